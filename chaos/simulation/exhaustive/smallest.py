"""The smallest worlds, which can be searched exhaustively, and each as a whole.

`Setting` says what a world has; `Small` is the world itself, with real networks between its routers, in which a path
that `exploration.py` has found can be watched; `View` is what must look the same in both.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from chaos.simulation.exhaustive.processes import STEP_S
from chaos.simulation.world.clients import MEMORY, PLAIN, RECOVERING, UNIQUE
from chaos.simulation.world.faulty_world import FaultyWorld
from chaos.simulation.world.publishers import Publisher
from chaos.simulation.world.routers import START_US
from chaos.simulation.world.subscribers import Subscriber
from interrouter.events import PeerMessage, PeerUp
from interrouter.stream import whole
from router.config import AddressConfig

TURN_S = 3 * STEP_S  # of a pause: time in which nothing happens
FAULTS = ("crash", "cdrop", "rdrop", "cut", "srestart", "close")  # and what a client may decide once

LEAST_FRAME = 512  # bytes (AMQP 2.7.1)
LARGE_SIZE = 1_100
WINDOW = 8  # messages of a publisher under way
ADDRESS = AddressConfig(subscription_timeout_s=8.0, publisher_timeout_s=16.0)


class Thrifty(Subscriber):
    """Renews its credit when half of it is used, as libraries do."""

    def grant(self) -> None:
        if self.link.credit * 2 <= self.credit:
            super().grant()


@dataclass(frozen=True)
class Setting:
    """One of the smallest worlds."""

    publishers: tuple[str, ...] = (RECOVERING,)  # kinds
    subscribers: tuple[str, ...] = (RECOVERING,)
    messages: int = 2
    places: tuple[str, ...] = ("A", "A")  # where subscribers, then publishers are when it begins; "": not yet
    faults: dict[str, int] = field(default_factory=dict)
    mortal: str = "AB"  # routers that crash
    credit: int = 10
    keep: bool = True  # subscribers keep what they have in hand when a connection is lost
    renews: bool = False  # credit is renewed at each message, not when half of it is used, which two messages never do
    names: str = "AB"
    strict: bool = True
    queue: bool = False
    groups: int = 0  # of what is sent, at a queue
    large: bool = False  # each message comes in three frames, and passes on while it comes (protocol 6.12)

    def clients(self) -> tuple[list[Publisher], list[Subscriber]]:
        publishers = [Publisher(f"p{i}", kind, self.messages) for i, kind in enumerate(self.publishers)]
        for publisher in publishers:
            publisher.groups = self.groups
        subscribers = [
            (Subscriber if self.renews else Thrifty)(f"s{i}", kind, self.credit, self.keep)
            for i, kind in enumerate(self.subscribers)
        ]
        for subscriber in subscribers:
            subscriber.patient = self.queue and "crash" in self.faults  # protocol 14, "Consumers that close too soon"
        if self.large:
            for publisher in publishers:
                publisher.size = LARGE_SIZE
            for client in (*publishers, *subscribers):
                client.frame = LEAST_FRAME
        return publishers, subscribers

    @property
    def address(self) -> AddressConfig:
        return replace(ADDRESS, type="queue") if self.queue else ADDRESS

    @property
    def config(self) -> dict[str, Any]:
        """Of routers: what a publisher may have under way does not grow when the size of its messages is known."""
        large = {"max_frame_size": LEAST_FRAME, "stream_above": 300, "stream_share": 600} if self.large else {}
        return large if self.renews else {"window_messages": WINDOW, **large}

    def placed(self) -> list[tuple[str, str]]:
        publishers, subscribers = self.clients()
        pairs = zip((*subscribers, *publishers), self.places, strict=True)
        return [(client.name, place) for client, place in pairs if place]


class Small(FaultyWorld):
    """The same world as a whole."""

    tick_s = 0.0

    def __init__(self, setting: Setting) -> None:
        self.lives = dict.fromkeys(setting.names, 0)
        publishers, subscribers = setting.clients()
        self.clocked = any(c.kind != RECOVERING for c in (*publishers, *subscribers))
        super().__init__(
            setting.names, publishers, subscribers, strict=setting.strict, address=setting.address, **setting.config
        )

    def draw_incarnation(self, name: str) -> int:
        self.lives[name] += 1
        return incarnation_of(name, self.lives[name])

    def wall_us(self, name: str) -> int:
        return START_US + (sum(self.numbers.values()) if self.clocked else 0)

    def do_pause(self) -> None:
        self.advance(TURN_S, STEP_S)
        for client in self.clients.values():
            if client.kind == UNIQUE and client.state == "on":
                client.heartbeat()

    def view(self) -> View:
        inboxes = {
            (x, y): tuple(
                whole(e.data) if isinstance(e, PeerMessage) else "up" if isinstance(e, PeerUp) else "down"
                for e in inbox
            )
            for x, site in self.sites.items()
            if site is not None
            for y, inbox in site.inbox.items()
        }
        pipes = {
            cid: (p.router, p.incarnation, tuple(p.c2r), tuple(p.r2c) if p.r_open else (), p.c_open, p.r_open)
            for cid, p in self.pipes.items()
        }
        alive = all(site is not None for site in self.sites.values())
        left = [text for text in self.left_over() if not text.startswith("inbox")] if alive else []
        return View(inboxes, pipes, sorted(left))


class View(NamedTuple):
    """inboxes: (x, y) -> what router x has not read of y; pipes: connection -> where it leads, what is under way in it,
    and which ends are open; left: what is not done."""

    inboxes: dict[tuple[str, str], tuple[Any, ...]]
    pipes: dict[tuple[str, int], tuple[Any, ...]]
    left: list[str]


def incarnation_of(name: str, life: int) -> int:
    return life << 8 | ord(name)


TWO = (RECOVERING, RECOVERING)
HERE, ACROSS, BOTH, NOWHERE = ("A", "A"), ("B", "A"), ("A", "B", "A"), ("", "")
WORLDS: dict[str, Setting] = {
    "calm": Setting(places=ACROSS),
    "calm-2": Setting(subscribers=TWO, places=BOTH),
    "attach-1": Setting(places=NOWHERE, messages=1, faults={"cdrop": 1}),
    "restart-1-one": Setting(places=ACROSS, messages=1, faults={"srestart": 1}),
    "drops-1-one": Setting(places=ACROSS, messages=1, faults={"cdrop": 1}),
    "half-open-1-one": Setting(places=ACROSS, messages=1, faults={"rdrop": 1}),
    "trunk-1-one": Setting(places=ACROSS, messages=1, faults={"cut": 1}, strict=False),
    "crash-1-one": Setting(places=ACROSS, messages=1, faults={"crash": 1}),
    "flows-drops-1-one": Setting(places=ACROSS, messages=1, faults={"cdrop": 1}, renews=True),
    "flows-crash-1-one": Setting(places=ACROSS, messages=1, faults={"crash": 1}, renews=True),
    "plain-drops-1-one": Setting((UNIQUE,), (PLAIN,), 1, ACROSS, {"cdrop": 1}),
    "memory-drops-1-one": Setting((MEMORY,), (MEMORY,), 1, ACROSS, {"cdrop": 1}),
    "drops-1-one-of-2": Setting(subscribers=TWO, messages=1, places=BOTH, faults={"cdrop": 1}),
    "queue-calm": Setting(subscribers=TWO, places=BOTH, queue=True),
    "queue-drops-1-one": Setting(subscribers=TWO, messages=1, places=BOTH, faults={"cdrop": 1}, queue=True),
    "queue-half-open-1-one": Setting(subscribers=TWO, messages=1, places=BOTH, faults={"rdrop": 1}, queue=True),
    "queue-restart-1-one": Setting(subscribers=TWO, messages=1, places=BOTH, faults={"srestart": 1}, queue=True),
    "queue-crash-1-one": Setting(subscribers=TWO, messages=1, places=BOTH, faults={"crash": 1}, queue=True),
    "queue-crash-drop-one": Setting(
        subscribers=TWO, messages=1, places=BOTH, faults={"crash": 1, "cdrop": 1}, queue=True
    ),
    "queue-close-one": Setting(subscribers=TWO, messages=1, places=BOTH, faults={"close": 1}, queue=True),
    "queue-close-drop-one": Setting(
        subscribers=TWO, messages=1, places=BOTH, faults={"close": 1, "cdrop": 1}, queue=True
    ),
    "queue-order-drops-1": Setting(places=ACROSS, faults={"cdrop": 1}, queue=True),
    "queue-order-trunk-1": Setting(places=ACROSS, faults={"cut": 1}, queue=True, strict=False),
    "queue-order-crash-1": Setting(places=ACROSS, faults={"crash": 1}, queue=True),
    "queue-group": Setting(subscribers=TWO, places=BOTH, credit=1, queue=True, groups=1),
    "queue-group-drops-1": Setting(subscribers=TWO, places=BOTH, credit=1, faults={"cdrop": 1}, queue=True, groups=1),
    "queue-group-crash-1-A": Setting(
        subscribers=TWO, places=("B", "B", "A"), credit=1, faults={"crash": 1}, mortal="A", queue=True, groups=1
    ),
    "large-calm": Setting(places=ACROSS, messages=1, large=True),
    "large-drops-1-one": Setting(places=ACROSS, messages=1, faults={"cdrop": 1}, large=True),
    "large-crash-1-one": Setting(places=ACROSS, messages=1, faults={"crash": 1}, large=True),
    "large-drops-1-one-of-2": Setting(subscribers=TWO, messages=1, places=BOTH, faults={"cdrop": 1}, large=True),
    "large-calm-2-of-2": Setting(TWO, TWO, 1, ("A", "B", "A", "B"), large=True),
    "crash-1-one-here": Setting(messages=1, faults={"crash": 1}),
    "drops-1": Setting(places=ACROSS, faults={"cdrop": 1}),
    "drops-1-here": Setting(faults={"cdrop": 1}),
    "half-open-1": Setting(places=ACROSS, faults={"rdrop": 1}),
    "restart-1": Setting(places=ACROSS, faults={"srestart": 1}),
    "trunk-1": Setting(places=ACROSS, faults={"cut": 1}, strict=False),
    "crash-1": Setting(places=ACROSS, faults={"crash": 1}),
    "crash-1-here": Setting(faults={"crash": 1}),
    "drops-2-one": Setting(places=ACROSS, messages=1, faults={"cdrop": 2}),
    "crash-1-one-of-2": Setting(subscribers=TWO, messages=1, places=BOTH, faults={"crash": 1}),
    "plain-crash-1-one": Setting((UNIQUE,), (PLAIN,), 1, ACROSS, {"crash": 1}),
    "memory-crash-1-one": Setting((MEMORY,), (MEMORY,), 1, ACROSS, {"crash": 1}),
    "trunk-drop-one": Setting(places=ACROSS, messages=1, faults={"cut": 1, "cdrop": 1}, strict=False),
    "crash-drop-one": Setting(places=ACROSS, messages=1, faults={"crash": 1, "cdrop": 1}),
    "crash-2-one": Setting(places=ACROSS, messages=1, faults={"crash": 2}),
    "queue-close-crash-one": Setting(
        subscribers=TWO, messages=1, places=BOTH, faults={"close": 1, "crash": 1}, queue=True
    ),
    "queue-close-drops-2-one": Setting(
        subscribers=TWO, messages=1, places=BOTH, faults={"close": 1, "cdrop": 2}, queue=True
    ),
    "crash-2-one-of-2-A": Setting(subscribers=TWO, messages=1, places=BOTH, faults={"crash": 2}, mortal="A"),
    "drops-1-of-2": Setting(subscribers=TWO, places=BOTH, faults={"cdrop": 1}),
    "half-open-1-of-2": Setting(subscribers=TWO, places=BOTH, faults={"rdrop": 1}),
    "restart-1-of-2": Setting(subscribers=TWO, places=BOTH, faults={"srestart": 1}),
    "crash-1-of-2": Setting(subscribers=TWO, places=BOTH, faults={"crash": 1}),
    "crash-2": Setting(places=ACROSS, faults={"crash": 2}),
    "drops-2": Setting(places=ACROSS, faults={"cdrop": 2}),
    "crash-2-one-of-2": Setting(subscribers=TWO, messages=1, places=BOTH, faults={"crash": 2}),
    "crash-2-of-2": Setting(subscribers=TWO, places=BOTH, faults={"crash": 2}),
    "crash-2-drop": Setting(places=ACROSS, faults={"crash": 2, "cdrop": 1}),
    "crash-2-drop-of-2": Setting(subscribers=TWO, places=BOTH, faults={"crash": 2, "cdrop": 1}),
}
"""The smaller first. `one`: one message, else two; `here`: all at one router; `of-2`: two subscribers, at both; `A`: no
other router dies; `flows`: credit is renewed at each message."""
