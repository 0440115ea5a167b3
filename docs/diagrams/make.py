"""Draws the diagrams of docs/protocol, for light and dark pages: each `*.txt` here becomes an SVG, and each table of
`HANDSHAKES`, with a row for each state, a column for each input, and in each cell what is done and the next state.

    python docs/diagrams/make.py

A text has one line for each step, from top to bottom; `[4.2]` at its end names the section that says so:

    title TEXT                  lanes P:publisher A:router ... from left to right
    P -> A: TEXT                an arrow, with its label
    A: TEXT                     a note at this lane
    A..B: TEXT                  a note across these lanes
    die A, start A              its lifeline is broken from here on, goes on from here on
    === TEXT                    a line across the picture
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from types import ModuleType

from router.core import publisher_handshake, subscriber_handshake

HANDSHAKES = {
    "publisher-attach": ("The attach handshake of a publisher", publisher_handshake),
    "subscriber-attach": ("The attach handshake of a subscription", subscriber_handshake),
}

LEFT, GAP, TOP, ROW, NOTE = 62, 158, 84, 32, 26
CHAR = 6.3  # average width of a character at 12 px
INKS = ["bg", "ink", "dim", "line", "message", "frame", "fault", "router", "client", "note"]
LIGHT = ["#ffffff", "#1f2933", "#66727f", "#9aa5b1", "#1f5fa8", "#2a7a4b", "#c0232c", "#e4edf8", "#e3f3e9", "#fdf3d0"]
DARK = ["#14181d", "#e6eaef", "#98a4b1", "#5d6875", "#7fb4f5", "#7ccf9c", "#ff7b7f", "#1d3147", "#1c3a2a", "#403716"]
STEP = re.compile(r"(?P<a>\w+) -> (?P<b>\w+): (?P<text>.*)|(?P<first>\w+)(?:\.\.(?P<last>\w+))?: (?P<note>.*)")


def style(colours: list[str]) -> str:
    rules = [".bg{fill:%(bg)s}", "text{fill:%(ink)s}", ".dim{fill:%(dim)s}", ".life{stroke:%(line)s}",
             ".name{stroke:%(line)s}", ".router{fill:%(router)s}", ".client{fill:%(client)s}",
             ".note{fill:%(note)s;stroke:%(line)s}", ".halo{stroke:%(bg)s}", ".cut{stroke:%(dim)s}",
             ".gap{stroke:%(bg)s}", ".fault{stroke:%(fault)s}", "text.fault{fill:%(fault)s;stroke:none}"]  # fmt: skip
    rules += [f".{kind}{{stroke:%({kind})s}}.{kind}-head{{fill:%({kind})s}}" for kind in ("message", "frame")]
    return "".join(rules) % dict(zip(INKS, colours, strict=True))


class Picture:
    """One diagram while it is drawn."""

    def __init__(self, text: str) -> None:
        self.title = ""
        self.lanes: dict[str, tuple[int, str]] = {}  # name -> x, kind
        self.alive: dict[str, float | None] = {}  # since which y its lifeline is drawn unbroken; None: dead
        self.behind: list[str] = []
        self.front: list[str] = []
        self.y = float(TOP)
        for line in text.splitlines():
            if line.strip():
                self.step(line.strip())
        for name in self.lanes:
            self.lifeline(name, self.y + ROW)

    def step(self, line: str) -> None:
        line, _, section = line.removesuffix("]").partition(" [")
        word, _, rest = line.partition(" ")
        found = STEP.fullmatch(line)
        if word == "title":
            self.title = rest
        elif word == "lanes":
            for i, lane in enumerate(rest.split()):
                name, kind = lane.split(":")
                self.lanes[name] = (LEFT + GAP // 2 + GAP * i, kind)
                self.alive[name] = TOP
        elif word == "===":
            self.y += ROW + 4
            self.front.append(f'<path class="cut" d="M{LEFT - 12} {self.y}H{self.width - 10}" stroke-dasharray="7 4"/>')
            x, half = LEFT + (self.width - LEFT) / 2, len(rest) * CHAR / 2 + 4
            self.front.append(f'<path class="gap" d="M{x - half:.0f} {self.y}H{x + half:.0f}" stroke-width="16"/>')
            self.words(x, self.y + 4, rest, "dim")
            self.y += 4
        elif word in ("die", "start"):
            self.y += ROW
            self.lifeline(rest, self.y)
            x = self.lanes[rest][0]
            if word == "die":
                cross = f"M{x - 7} {self.y - 7}l14 14M{x + 7} {self.y - 7}l-14 14"
                self.front.append(f'<path class="fault" stroke-width="2.5" d="{cross}"/>')
                self.front.append(f'<text class="fault" x="{x + 12}" y="{self.y + 4}">dies</text>')
                self.alive[rest] = None
            else:
                self.words(x, self.y + 4, "starts again, empty", "dim")
                self.alive[rest] = self.y
        elif found:
            self.arrow(found["a"], found["b"], found["text"]) if found["a"] else self.note(found)
        else:
            raise SystemExit(f"{self.title}: not understood: {line}")
        if section:
            self.front.append(f'<text class="dim small" x="8" y="{self.y + 4}">{escape(section)}</text>')
        if found and found["note"]:
            self.y += 5

    @property
    def width(self) -> int:
        return LEFT + GAP * len(self.lanes) + 10

    def lifeline(self, name: str, end: float) -> None:
        x, since = self.lanes[name][0], self.alive[name]
        if since is not None:
            self.behind.append(f'<path class="life" d="M{x} {since}V{end}"/>')

    def words(self, x: float, y: float, text: str, kind: str = "") -> None:
        self.front.append(f'<text class="halo {kind}" text-anchor="middle" x="{x}" y="{y}">{escape(text)}</text>')

    def arrow(self, a: str, b: str, text: str) -> None:
        self.y += ROW
        start, end = self.lanes[a][0], self.lanes[b][0]
        kind = "message" if self.lanes[a][1] == self.lanes[b][1] == "router" else "frame"
        tip, back = (end - 2, -9) if end > start else (end + 2, 9)
        self.front.append(f'<path class="{kind}" stroke-width="1.6" d="M{start} {self.y}H{tip + back}"/>')
        self.front.append(f'<path class="{kind}-head" d="M{tip} {self.y}l{back} -4.5v9z"/>')
        self.words((start + end) / 2, self.y - 6, text)

    def note(self, found: re.Match[str]) -> None:
        self.y += ROW + 2
        first, last = self.lanes[found["first"]][0], self.lanes[found["last"] or found["first"]][0]
        half = max(len(found["note"]) * CHAR / 2 + 10, (last - first) / 2 + 20)
        x = min(max((first + last) / 2, LEFT - 8 + half), self.width - 8 - half)
        box = f'x="{x - half:.0f}" y="{self.y - NOTE / 2 - 1}" width="{2 * half:.0f}" height="{NOTE}" rx="4"'
        self.front.append(f'<rect class="note" {box}/>')
        self.front.append(f'<text text-anchor="middle" x="{x:.0f}" y="{self.y + 3}">{escape(found["note"])}</text>')

    def svg(self) -> str:
        width, height = self.width, int(self.y + ROW + 12)
        heads = []
        for name, (x, kind) in self.lanes.items():
            colour = "router" if kind == "router" else "client"
            heads.append(f'<rect class="name {colour}" x="{x - 52}" y="46" width="104" height="30" rx="5"/>')
            heads.append(f'<text text-anchor="middle" x="{x}" y="66"><tspan class="b">{name}</tspan> {kind}</text>')
        return page(self.title, width, height, [*self.behind, *heads, *self.front])


def page(title: str, width: int, height: int, drawn: list[str]) -> str:
    base = "text{font:12px system-ui,'Segoe UI',Helvetica,Arial,sans-serif}.small{font-size:11px}.b{font-weight:600}"
    base += "path{fill:none}.halo{paint-order:stroke;stroke-width:5px;stroke-linejoin:round}"
    both = f"{style(LIGHT)}@media (prefers-color-scheme: dark){{{style(DARK)}}}"
    top = f'<text x="16" y="28" class="b" style="font-size:15px">{escape(title)}</text>'
    size = f'width="{width}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {width} {height}"><style>{base}{both}</style>'
    return "\n".join([head, f'<rect class="bg" {size}/>', top, *drawn, "</svg>\n"])


def handshake(title: str, module: ModuleType) -> str:
    """The picture of a table: state, input -> action, next state."""
    inputs, states = list(module.Input), list(module.State)
    left, column, row = 150, 108, 38
    width, height = left + column * len(inputs) + 10, TOP + row * len(states) + 10
    drawn = []
    for i, what in enumerate(inputs):
        x = left + column * i + column / 2
        for j, word in enumerate(said(what.name).rsplit(" ", 1)):
            drawn.append(f'<text class="b" text-anchor="middle" x="{x}" y="{56 + 15 * j}">{word}</text>')
    for i, state in enumerate(states):
        y = TOP + row * i
        drawn.append(f'<path class="life" d="M12 {y - 6}H{width - 10}"/>')
        drawn.append(f'<text class="b" x="16" y="{y + 15}">{said(state.name)}</text>')
        for j, what in enumerate(inputs):
            if (state, what) in module.TABLE:
                action, then = module.TABLE[state, what]
                x, stays = left + column * j + column / 2, then is state
                words = "stays" if stays else said(then.name)
                kind, done = "dim" if stays else "", "" if action.name == "NOTHING" else said(action.name)
                drawn.append(f'<text class="{kind}" text-anchor="middle" x="{x}" y="{y + 10}">{words}</text>')
                drawn.append(f'<text class="dim small" text-anchor="middle" x="{x}" y="{y + 25}">{done}</text>')
    return page(title, width, height, drawn)


def said(name: str) -> str:
    return name.lower().replace("_", " ")


if __name__ == "__main__":
    for stem, (title, module) in HANDSHAKES.items():
        Path(__file__).with_name(f"{stem}.svg").write_text(handshake(title, module))
    for source in sorted(Path(__file__).parent.glob("*.txt")):
        source.with_suffix(".svg").write_text(Picture(source.read_text()).svg())
