"""What happened in a simulated world, in words: a row for each event, with what was written, and when.

`Trace(world)` listens from then on; `text()` is the readable transcript, and `diagram.py` draws the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from amqp10.performatives import Attach, Detach, Disposition, Flow, decode_performative
from amqp10.record import values
from chaos.simulation.world.clients import Client
from chaos.simulation.world.pipes import frames_of, kind_of
from chaos.simulation.world.publishers import Publisher
from chaos.simulation.world.world import Event, World
from interrouter.stream import Received
from router.core.messages import Unknown
from router.names import EPOCH
from router.peers.wire import decode

QUIET = ("hb", "turn")  # heartbeats, and when a router writes, say nothing to a reader
# Kind of event -> kind of row, and its words: about the client or router that is named first,
OF_ONE = {
    "up": ("link", "session with {1} is up"), "down": ("link", "session with {1} is over"),
    "let": ("link", "what it says to {1} arrives again"), "connect": ("deed", "connects to {1}"),
    "disk": ("deed", "its journal is written"), "start": ("deed", "is started again"), "wake": ("deed", "is resumed"),
    "show": ("deed", "shows that it is there"), "close": ("deed", "closes"),
    "crash": ("fault", "dies"), "restart": ("fault", "starts again, empty"), "still": ("fault", "is suspended"),
    "hold": ("fault", "what it says to {1} stays on its way"), "part": ("fault", "is cut off from the others"),
    "pfresh": ("fault", "restarts without memory"), "sfresh": ("fault", "restarts without memory"),
    "srestart": ("fault", "restarts from its journal"), "full": ("fault", "has no room left on its disk"),
    "twin": ("fault", "another process starts as {0}, too"), "cut": ("fault", "trunk to {1} breaks"),
    "suspect": ("fault", "ends its session with {1}"), "clock": ("fault", "clock jumps by {1} s"),
    "quit": ("fault", "attaches to {1} and closes at once"),
    "forget": ("fault", "has {1} forgotten"),
    "kill": ("fault", "is killed; {1} pending writes are on its disk"),
}  # fmt: skip
# ... about no client or router,
OF_NOBODY = {
    "away": ("time", "{0} is away for too long"), "late": ("time", "{0} was suspended for too long, and is resumed"),
    "tick": ("time", "0.4 s pass"), "wait": ("time", "{0:g} s pass"), "pass": ("time", "{0} s pass, with heartbeats"),
    "pause": ("time", "nothing can happen for 1.2 s"), "heal": ("link", "trunks are whole again"),
    "reshape": ("fault", "the network is a {0} now"),
}  # fmt: skip
# ... and about one end of a connection: whether it is the client's.
OF_CONNECTION = {
    "stall": ("fault", True, "reads nothing more from {router}"),
    "unstall": ("deed", True, "reads from {router} again"),
    "cquit": ("fault", True, "leaves {router}"), "cdrop": ("fault", True, "loses its connection to {router}"),
    "cnotice": ("fault", True, "sees the end of its connection to {router}"),
    "rnotice": ("fault", False, "sees the end of {client}'s connection"),
    "rdrop": ("fault", False, "sees the end of {client}'s connection"),
}  # fmt: skip


@dataclass(slots=True)
class Row:
    """kind: message (between routers), frame (of a client), deed (of an application), link, fault, time, end."""

    time: float
    kind: str
    source: str
    sink: str
    text: str
    sent: int | None = None  # the row that it had been said after

    def __str__(self) -> str:
        who = f"{self.source} -> {self.sink}" if self.source != self.sink else self.source
        return f"{who:<10} {self.text}"


class Trace:
    def __init__(self, world: World) -> None:
        self.world = world
        self.rows: list[Row] = []
        self.said: dict[int, tuple[Any, int]] = {}  # item that is not read yet -> (item, row after which it was said)
        world.observer = self.see

    # ------------------------------------------------------------------ listening
    def see(self, event: Event) -> None:
        """Before it happens."""
        self._notice_what_was_said()
        kind, *rest = event
        if kind not in QUIET:
            getattr(self, f"_{kind}", self._other)(kind, *rest)

    def end(self, failure: BaseException | None) -> None:
        text = "every guarantee held" if failure is None else str(failure).split("\n", 1)[0]
        self._row("end", "", "", text)

    def _row(self, kind: str, source: str, sink: str, text: str, item: Any = None) -> None:
        _, sent = self.said.pop(id(item), (None, None)) if item is not None else (None, None)
        self.rows.append(Row(self.world.now, kind, source, sink, text, sent))

    def _notice_what_was_said(self) -> None:
        row = len(self.rows) - 1
        for pipe in self.world.pipes.values():
            for item in (*pipe.c2r, *pipe.r2c):
                self.said.setdefault(id(item), (item, row))
        for site in self.world.sites.values():
            for inbox in site.inbox.values() if site is not None else ():
                for event in inbox:
                    self.said.setdefault(id(event), (event, row))

    # ------------------------------------------------------------------ what is read
    def _msg(self, _: str, y: str, x: str) -> None:
        event = self.world.site(x).inbox[y][0]
        self._row("message", y, x, said_between_routers(event.data), event)

    def _c2r(self, _: str, cid: tuple[str, int]) -> None:
        pipe = self.world.pipes[cid]
        self._row("frame", cid[0], pipe.router, said_by_frames(pipe.c2r[0]), pipe.c2r[0])

    def _gulp(self, _: str, cid: tuple[str, int]) -> None:
        pipe = self.world.pipes[cid]
        for item in pipe.c2r:
            self._row("frame", cid[0], pipe.router, said_by_frames(item), item)

    def _r2c(self, _: str, cid: tuple[str, int]) -> None:
        pipe = self.world.pipes[cid]
        item = next((i for i in pipe.r2c if kind_of(i) not in ("open", "begin")), pipe.r2c[-1])
        self._row("frame", pipe.router, cid[0], said_by_frames(item), item)

    def _bit(self, _: str, cid: tuple[str, int], size: int) -> None:
        self._row("frame", cid[0], self.world.pipes[cid].router, some_bytes(size))

    def _cbit(self, _: str, cid: tuple[str, int], size: int) -> None:
        self._row("frame", self.world.pipes[cid].router, cid[0], some_bytes(size))

    def _drip(self, _: str, x: str, y: str, size: int) -> None:
        self._row("link", x, y, some_bytes(size))

    # ------------------------------------------------------------------ what is done, and what goes wrong
    def _send(self, _: str, name: str) -> None:
        self._row("deed", name, name, f"sends {name}:{self.world.publisher(name).seq}")

    def _settle(self, _: str, name: str) -> None:
        publisher = self.world.publisher(name)
        tag = publisher.next_to_settle()
        mid = publisher.unsettled[tag][1] if tag is not None else ("", 0)
        self._row("deed", name, name, f"forgets {mid[0]}:{mid[1]}, settles")

    def _decide(self, kind: str, name: str, index: int | None = None) -> None:
        in_hand = [f"{mid[0]}:{mid[1]}" for _, mid in self.world.subscriber(name).in_hand]
        verb = "accepts" if kind == "all" else f"{kind}s"
        self._row("deed", name, name, f"{verb} {' '.join(in_hand) if index is None else in_hand[index]}")

    _accept = _release = _reject = _all = _decide

    def _other(self, kind: str, *rest: Any) -> None:
        if kind in OF_CONNECTION:
            pipe = self.world.pipes[rest[0]]
            row, at_client, words = OF_CONNECTION[kind]
            who = pipe.cid[0] if at_client else pipe.router
            self._row(row, who, who, words.format(router=pipe.router, client=pipe.cid[0]))
        elif kind in OF_NOBODY:
            row, words = OF_NOBODY[kind]
            self._row(row, "", "", words.format(*rest))
        else:
            row, words = OF_ONE.get(kind, ("fault", kind))
            who = str(rest[0]) if rest else ""
            self._row(row, who, who, words.format(*rest))

    # ------------------------------------------------------------------ telling
    def text(self) -> str:
        lines = []
        for number, row in enumerate(self.rows):
            late = f"   (said after {row.sent})" if row.sent is not None and number - row.sent > LATE else ""
            mark = {"fault": "!", "end": "="}.get(row.kind, " ")
            lines.append(f"{number:4} {row.time:8.4f} {mark} {row}{late}")
        return "\n".join(lines)

    def lifelines(self) -> list[str]:
        """Publishers, routers, subscribers; without those that took no part."""
        there = {name for row in self.rows for name in (row.source, row.sink)}
        clients: list[Client] = list(self.world.clients.values())
        names = [c.name for c in clients if isinstance(c, Publisher)]
        names += self.world.names + [c.name for c in clients if not isinstance(c, Publisher)]
        return [name for name in names if name in there]


LATE = 8


def some_bytes(size: int) -> str:
    return "a byte of what follows" if size == 1 else f"{size} bytes of what follows"


def said_between_routers(data: Received) -> str:
    message = decode(data)
    told = []
    for name, value in values(message).items():
        if name in ("address", "payloads", "sizes", "timeout_s") or value is None or value in ((), [], False):
            continue
        told.append(f"{name} {brief(value)}")
    text = f"{type(message).__name__.upper()} {', '.join(told)}"
    return text if len(text) <= 110 else text[:107] + "..."


def brief(value: Any) -> str:
    """A few characters that distinguish the value."""
    if isinstance(value, Unknown):
        return "unknown"
    if isinstance(value, bytes):
        return value.decode() if value.isascii() and value.decode().isprintable() else value.hex()[:4]
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], str):  # a term, a subscription's name
        first = value[0] % 10_000_000 if isinstance(value[0], int) else value[0]
        return f"{first}/{value[1]}" if value[1] else str(first)
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str):  # a router and its incarnation
        return f"{value[0]}/{value[1] % 10_000}"
    if isinstance(value, (list, tuple)):
        return "[" + " ".join(brief(each) for each in value) + "]"
    if isinstance(value, IntEnum):
        return value.name.lower()
    for name in ("publisher", "name"):  # news
        if hasattr(value, name):
            return brief(getattr(value, name))
    return str(value)


def said_by_frames(data: bytes) -> str:
    """What a reader wants to know of them; open and begin are nothing without the attach that follows."""
    told = [said_by_frame(frame) for frame in frames_of(data)]
    return "; ".join(text for text in told if text not in ("open", "begin")) or "; ".join(told)


def said_by_frame(frame: bytes) -> str:
    kind = kind_of(frame)
    offset = 8 if frame[:4] == b"AMQP" else 0
    if kind == "heartbeat":
        return kind
    performative, _ = decode_performative(frame, offset + 8, len(frame))
    match performative:
        case Attach():
            epoch = (performative.properties or {}).get(EPOCH)
            unsettled = performative.unsettled
            listed = "" if unsettled is None else " map [" + " ".join(brief(bytes(tag)) for tag in unsettled) + "]"
            return f"attach{'' if epoch is None else f' epoch {epoch}'}{listed}"
        case Flow():
            return f"flow credit {performative.link_credit}" if performative.handle is not None else "flow"
        case Disposition():
            last = performative.last
            ids = f"{performative.first}" if last in (None, performative.first) else f"{performative.first}-{last}"
            state = type(performative.state).__name__.lower() if performative.state is not None else ""
            return " ".join(filter(None, ["disposition", ids, state, "settled" if performative.settled else ""]))
        case Detach():
            return f"detach {performative.error.condition}" if performative.error is not None else "detach"
    if kind == "transfer":
        resume = " resumed" if getattr(performative, "resume", False) else ""
        start = frame.find(b"mid:")
        mid = " " + frame[start + 4 : frame.index(b";", start)].decode() if start >= 0 else ""
        return f"transfer{mid}{resume}"
    return kind
