"""What happened in a simulated world, in words: a row for each event, with what was said and when it had been said.

`Trace(world)` listens from then on; `text()` is the readable transcript, and `diagram.py` draws the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any

from amqp10.performatives import Attach, Detach, Disposition, Flow, decode_performative
from chaos.simulation.clients import Client
from chaos.simulation.frames import frames_of, kind_of
from chaos.simulation.publishers import Publisher
from chaos.simulation.world import Event, World
from router.messages import Unknown
from router.wire import decode

QUIET = ("hb", "turn")  # signs of life, and when a router writes, say nothing to a reader


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
        self.said: dict[int, tuple[Any, int]] = {}  # what waits to be read -> after which row it was said
        world.observer = self.see

    # ------------------------------------------------------------------ listening
    def see(self, event: Event) -> None:
        """Before it happens."""
        self._notice_what_was_said()
        kind, *rest = event
        if kind not in QUIET:
            getattr(self, f"_{kind}", self._fault)(kind, *rest)

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

    def _up(self, _: str, x: str, y: str) -> None:
        self._row("link", x, x, f"session with {y} is up")

    def _down(self, _: str, x: str, y: str) -> None:
        self._row("link", x, x, f"session with {y} is over")

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
        self._row("frame", cid[0], self.world.pipes[cid].router, octets(size))

    def _cbit(self, _: str, cid: tuple[str, int], size: int) -> None:
        self._row("frame", self.world.pipes[cid].router, cid[0], octets(size))

    def _drip(self, _: str, x: str, y: str, size: int) -> None:
        self._row("link", x, y, octets(size))

    # ------------------------------------------------------------------ what is done
    def _connect(self, _: str, name: str, router: str) -> None:
        self._row("deed", name, name, f"connects to {router}")

    def _send(self, _: str, name: str) -> None:
        publisher = self.world.publisher(name)
        self._row("deed", name, name, f"sends {name}:{publisher.seq}")

    def _settle(self, _: str, name: str) -> None:
        publisher = self.world.publisher(name)
        tag = publisher.next_to_settle()
        mid = publisher.unsettled[tag][1] if tag is not None else ("", 0)
        self._row("deed", name, name, f"forgets {mid[0]}:{mid[1]}, settles")

    def _accept(self, _: str, name: str, index: int) -> None:
        mid = self.world.subscriber(name).in_hand[index][1]
        self._row("deed", name, name, f"accepts {mid[0]}:{mid[1]}")

    def _release(self, _: str, name: str, index: int) -> None:
        mid = self.world.subscriber(name).in_hand[index][1]
        self._row("deed", name, name, f"releases {mid[0]}:{mid[1]}")

    def _reject(self, _: str, name: str, index: int) -> None:
        mid = self.world.subscriber(name).in_hand[index][1]
        self._row("deed", name, name, f"rejects {mid[0]}:{mid[1]}")

    def _all(self, _: str, name: str) -> None:
        told = " ".join(f"{mid[0]}:{mid[1]}" for _, mid in self.world.subscriber(name).in_hand)
        self._row("deed", name, name, f"accepts {told}")

    def _disk(self, _: str, name: str) -> None:
        self._row("deed", name, name, "its journal is written")

    def _start(self, _: str, name: str) -> None:
        self._row("deed", name, name, "is started again")

    def _away(self, _: str, name: str) -> None:
        self._row("time", "", "", f"{name} is away for too long")

    def _wake(self, _: str, name: str, timers_first: bool = False) -> None:
        self._row("deed", name, name, "goes on")

    def _late(self, _: str, name: str, timers_first: bool = False) -> None:
        self._row("time", "", "", f"{name} has stood still for too long, and goes on")

    def _show(self, _: str, name: str) -> None:
        self._row("deed", name, name, "shows that it is there")

    def _close(self, _: str, name: str) -> None:
        self._row("deed", name, name, "closes")

    def _tick(self, _: str) -> None:
        self._row("time", "", "", "0.4 s pass")

    def _wait(self, _: str, seconds: float) -> None:
        self._row("time", "", "", f"{seconds:g} s pass")

    def _pass(self, _: str, seconds: float) -> None:
        self._row("time", "", "", f"{seconds} s pass, with heartbeats")

    def _pause(self, _: str) -> None:
        self._row("time", "", "", "nothing can happen for 1.2 s")

    # ------------------------------------------------------------------ what goes wrong
    def _heal(self, _: str) -> None:
        self._row("link", "", "", "trunks are whole again")

    def _hold(self, _: str, x: str, y: str) -> None:
        self._row("fault", x, x, f"what it says to {y} stays on its way")

    def _let(self, _: str, x: str, y: str) -> None:
        self._row("link", x, x, f"what it says to {y} comes on")

    def _stall(self, _: str, cid: tuple[str, int]) -> None:
        self._row("fault", cid[0], cid[0], f"reads nothing more from {self.world.pipes[cid].router}")

    def _unstall(self, _: str, cid: tuple[str, int]) -> None:
        self._row("deed", cid[0], cid[0], f"reads from {self.world.pipes[cid].router} again")

    def _reshape(self, _: str, shape: str) -> None:
        self._row("fault", "", "", f"the network is a {shape} now")

    def _cquit(self, _: str, cid: tuple[str, int]) -> None:
        self._row("fault", cid[0], cid[0], f"gives {self.world.pipes[cid].router} up")

    def _fault(self, kind: str, *rest: Any) -> None:
        if kind in ("cdrop", "cnotice", "rnotice", "rdrop"):
            pipe = self.world.pipes[rest[0]]
            if kind in ("cdrop", "cnotice"):
                lost = "loses its connection to" if kind == "cdrop" else "sees the end of its connection to"
                self._row("fault", pipe.cid[0], pipe.cid[0], f"{lost} {pipe.router}")
            else:
                self._row("fault", pipe.router, pipe.router, f"sees the end of {pipe.cid[0]}'s connection")
            return
        where = str(rest[0]) if rest else ""
        words = {
            "crash": "dies",
            "restart": "starts again, empty",
            "part": "is cut off from the others",
            "pfresh": "restarts without memory",
            "sfresh": "restarts without memory",
            "srestart": "restarts from its journal",
            "full": "has no room left on its disk",
            "still": "stands still",
            "twin": f"another process starts as {where}, too",
        }
        if kind == "cut":
            words[kind] = f"trunk to {rest[1]} breaks"
        elif kind == "suspect":
            words[kind] = f"gives up its session with {rest[1]}"
        elif kind == "quit":
            words[kind] = f"attaches to {rest[1]} and closes at once"
        elif kind == "kill":
            words[kind] = f"is killed; {rest[1]} pending writes are on its disk"
        elif kind == "clock":
            words[kind] = f"clock jumps by {rest[1]} s"
        self._row("fault", where, where, words.get(kind, kind))

    # ------------------------------------------------------------------ telling
    def text(self) -> str:
        lines = []
        for number, row in enumerate(self.rows):
            late = f"   (said after {row.sent})" if row.sent is not None and number - row.sent > LATE else ""
            mark = {"fault": "!", "end": "="}.get(row.kind, " ")
            lines.append(f"{number:4} {row.time:8.4f} {mark} {row}{late}")
        return "\n".join(lines)

    def lifelines(self) -> list[str]:
        """Publishers, routers, subscribers; without those who took no part."""
        there = {name for row in self.rows for name in (row.source, row.sink)}
        clients: list[Client] = list(self.world.clients.values())
        names = [c.name for c in clients if isinstance(c, Publisher)]
        names += self.world.names + [c.name for c in clients if not isinstance(c, Publisher)]
        return [name for name in names if name in there]


LATE = 8


def octets(size: int) -> str:
    return "an octet of what follows" if size == 1 else f"{size} octets of what follows"


def said_between_routers(data: bytes) -> str:
    message = decode(data)
    told = []
    for each in fields(message):
        value = getattr(message, each.name)
        if each.name in ("address", "payloads", "sizes", "timeout_s") or value is None or value in ((), [], False):
            continue
        told.append(f"{each.name} {brief(value)}")
    text = f"{type(message).__name__.upper()} {', '.join(told)}"
    return text if len(text) <= 110 else text[:107] + "..."


def brief(value: Any) -> str:
    """A few characters that tell it from its neighbours."""
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
            epoch = (performative.properties or {}).get("onceway:epoch")
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
