"""The library's own clients in the simulated world: `onceway.client.protocol` over the world's pipes.

A `RealPublisher` or `RealSubscriber` (real_subscribers.py) is one process after another, with the same journal
(`torn_journal.py`) and clock. The world decides when its disk writes, when it is killed and which of its pending writes
are on the disk then, and when its clock jumps. The checker hears of an accept when the journal has made it durable.

A twin is a second process with the same identity elsewhere. A subscriber's twin has the same journal, from which it
fences the first process; a publisher's twin has one of its own, as our journals are locked.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from amqp10.outcomes import Accepted, Error, Rejected
from chaos.simulation.world.checker import Violation
from chaos.simulation.world.clients import ADDRESS, Client, body_of, settings_of
from chaos.simulation.world.publishers import Publisher
from chaos.simulation.world.torn_journal import Disk, File, Listener, Nothing, Steps, Storage
from onceway.client.journal_links import PublisherRows
from onceway.client.protocol.endpoint import Endpoint
from onceway.client.protocol.events import Decided, Detached, Failed, LinkEvent, Undecided
from onceway.client.protocol.link import ATTACHED
from onceway.client.protocol.publishing import PublisherLink
from onceway.client.protocol.subscribing import SubscriberLink
from onceway.errors import JournalError, LinkStolen

if TYPE_CHECKING:
    from chaos.simulation.world.checker import Mid
    from chaos.simulation.world.pipes import Pipe
    from chaos.simulation.world.world import Event

OURS = "ours"
JUMPS = (-7200, -40, -2, 2, 40, 7200)  # s, of clocks
START_US = 1_700_000_000_000_000
REJECTED = Rejected(Error("test:rejected", "the application does not want it"))
JOURNALS: dict[str, type[Disk] | type[File] | type[Nothing]] = {"torn": Disk, "sqlite": File, "none": Nothing}


class RealClient(Client, Listener):
    """What both have in common. state: off (a process without a connection), wait, on, down (no process)."""

    jumps: tuple[int, ...] = JUMPS
    journal_kind: str
    storage: Storage
    journal: Steps | None
    endpoint: Endpoint | None
    real: PublisherLink | SubscriberLink | None

    def set_up(self, journal: str, twin_of: RealClient | None) -> None:
        self.journal_kind = journal
        self.identity = self.name if twin_of is None else twin_of.name
        self.original = twin_of
        self.twin: RealClient | None = None
        if twin_of is not None:
            twin_of.twin = self
            self.state, self.closed = "down", True
        self.storage = JOURNALS[journal]()
        self.journal = self.endpoint = self.real = None
        self.lives = 0
        self.clock_us = 0  # the error of its clock
        self.seed = 0
        self.jumped = False  # has its clock ever?
        self.forgotten = False  # an earlier life is forgotten, but its frames may still be read
        self.place = ("", 0)  # the router that it talks to, or talked to last
        self.suspended = False
        self.connected_at = 0.0

    @property
    def may_read_earlier_life(self) -> bool:
        """Frames of an earlier life may be read late, and memory and clock may be behind that life."""
        return self.forgotten and self.jumped

    # ------------------------------------------------------------------ processes
    def begin(self) -> None:
        """A process starts, with what the journal knows."""
        self.lives += 1
        self.journal = self.storage.open(self)
        self.journal.open(self.identity, lambda: None)
        rng = random.Random(f"{self.seed} {self.name} {self.lives}")
        self.endpoint = Endpoint(self.identity, self.journal, wall_us=self.wall_us, rng=rng)
        self.real = self.make_link(self.endpoint)

    def make_link(self, endpoint: Endpoint) -> PublisherLink | SubscriberLink:
        raise NotImplementedError

    def wall_us(self) -> int:
        return START_US + int(self.world.now * 1e6) + self.clock_us

    def set_clock(self, seconds: int) -> None:
        self.clock_us += seconds * 1_000_000
        self.jumped = True

    def kill(self, keep: int) -> None:
        """kill -9; another process starts when it connects. keep: how many of the pending writes reach the disk."""
        if self.journal is not None:
            self.journal.crash(keep)
        self.stop("off")

    def forget(self) -> None:
        """The journal is lost: a process with an empty one comes next."""
        self.forgotten = True
        self.storage = JOURNALS[self.journal_kind]()
        if self.state != "down":
            self.hang_up()
            self.gone()

    def gone(self) -> None:
        """The process is gone, and with it its link and what the application had in hand."""
        self.journal = self.endpoint = self.real = None
        self.state = "off"
        self.suspended = False

    def stop(self, state: str = "down") -> None:
        """The application ends. It is started again only by `start`."""
        self.hang_up()
        self.gone()
        self.state = state
        if not self.storage.lasting:
            self.forget()

    def start(self) -> None:
        self.state, self.closed = "off", False
        if self.other is not None and self.other.state == "down" and self.leaves_it_to_the_other():
            self.other.closed = True  # this one takes its place

    def can_start(self) -> bool:
        """Whether a supervisor may start it again: no other process of its identity is there."""
        return self.state == "down" and not self.closed and (self.other is None or self.other.state == "down")

    # ------------------------------------------------------------------ the connection
    def connect(self, pipe: Pipe) -> None:
        if self.endpoint is None:
            self.begin()
        assert self.endpoint is not None
        self.forgotten = self.forgotten and not self.nothing_is_unread(pipe)
        self.pipe, self.state, self.connected_at = pipe, "wait", self.world.now
        self.place = (pipe.router, pipe.incarnation)
        self.endpoint.connect(settings_of(self.identity, self.frame), self.world.now)
        self.conn = self.endpoint.connection
        pipe.send_all(self.endpoint.data_to_send())
        self.look()

    def nothing_is_unread(self, pipe: Pipe) -> bool:
        """Whether all that was said before this connection has been read, by this client and between routers, and all
        routers are in session."""
        world = self.world
        if any(each.client is self and each.r_open and each is not pipe for each in world.pipes.values()):
            return False
        sites = world.sites.values()
        together = all(site is not None and len(site.router.core.members.up) + 1 == len(sites) for site in sites)
        return together and not world.has_unread()

    def receive(self, data: bytes) -> None:
        assert self.endpoint is not None
        closed = self.endpoint.receive_data(data, self.world.now)
        assert closed is None, f"{self.name}: unexpected {closed}"
        self.look()

    def flush(self) -> None:
        if self.endpoint is not None and self.pipe is not None:
            self.pipe.send(self.endpoint.data_to_send())

    def hang_up(self) -> None:
        pipe, self.pipe, self.conn = self.pipe, None, None
        if pipe is not None:
            pipe.client_gone()
        if self.endpoint is not None:
            self.endpoint.lost(self.world.now, "the connection is gone")
            self.state = "off"
            self.look()

    def tick(self) -> None:
        if self.suspended:
            return
        deadline = self.endpoint.next_deadline() if self.endpoint is not None else None
        if self.endpoint is not None and deadline is not None and deadline <= self.world.now:
            closed = self.endpoint.handle_timer(self.world.now)
            self.look()
            if closed is not None:  # the router says nothing for too long
                self.hang_up()

    def disk(self, full: bool = False) -> None:
        """The journal commits what its first waiter needs; or its disk is full."""
        assert self.journal is not None
        assert self.endpoint is not None
        if full:
            self.journal.fill()
        else:
            self.journal.advance()
        self.endpoint.durable(self.world.now)
        self.look()

    def fill(self) -> None:
        self.disk(full=True)

    def look(self) -> None:
        """What the link tells its application, and what is to be sent."""
        while self.real is not None and (events := self.real.take_events()):
            for event in events:
                self.hear(event)
                if self.endpoint is None:
                    return
        if self.pipe is not None and self.real is not None:
            self.state = "on" if self.real.state is ATTACHED else "wait"
        self.flush()
        if self.endpoint is not None and self.real is not None:
            self.endpoint.check_invariants()
            self.check_journal()

    def check_journal(self) -> None:
        """The product's journal holds what its link has, but for one that is being closed."""
        raise NotImplementedError

    def hear(self, event: LinkEvent) -> None:
        if isinstance(event, Failed):
            assert isinstance(event.error, JournalError | LinkStolen), f"{self.name}: failed: {event.error}"
            self.refusals.append(str(event.error))
            excused = self.may_read_earlier_life or self.has_company() or self.is_behind()
            if isinstance(event.error, LinkStolen) and not excused:
                raise Violation(f"G4 {self.name} gives up without cause: {event.error}")
            self.stop()
            self.closed = self.closing or (excused and self.leaves_it_to_the_other())
        elif isinstance(event, Detached):
            self.closed = True
            self.stop()

    @property
    def other(self) -> RealClient | None:
        """The other process of its identity."""
        return self.original or self.twin

    def has_company(self) -> bool:
        """Whether there has been another process with its identity."""
        return self.other is not None and (self.other.lives > 0 or self.other.state != "down")

    def is_behind(self) -> bool:
        """Whether its clock may be behind that of an earlier life, of which it has learned too late."""
        return False

    def leaves_it_to_the_other(self) -> bool:
        """Whether an application that has failed leaves it to the other process for good."""
        return False

    def leave(self) -> None:
        self.closing = True
        if self.real is None:  # there is no process that could close
            self.closed, self.state = True, "down"
            return
        self.real.leave(True, self.world.now)
        self.look()

    def restart(self) -> None:
        self.kill(0)

    # ------------------------------------------------------------------ what can happen
    def add_own_events(self, events: list[Event]) -> None:
        """What it does by itself."""
        if self.journal is not None and self.journal.waits():
            events.append(("disk", self.name))
        if self.state == "down" and self.can_start():
            events.append(("start", self.name))

    def may_go_wrong(self, budget: dict[str, int]) -> list[Event]:
        events: list[Event] = []
        if self.state == "down":
            return events
        if self.journal is not None:
            if budget.get("kill"):
                pending = self.journal.pending()
                events += [("kill", self.name, keep) for keep in sorted({0, pending // 2, pending})]
            if budget.get("full") and self.journal_kind != "none":
                events.append(("full", self.name))
        if budget.get("clock"):
            events += [("clock", self.name, seconds) for seconds in self.jumps]
        twin = self.twin
        if budget.get("twin") and twin is not None and twin.state == "down" and not twin.closing and self.lives:
            events.append(("twin", self.name))
        return events

    def empty(self) -> list[str]:
        """What its journal still has when everything is settled."""
        left = [] if self.journal is None else self.journal.left()
        return [f"journal of {self.name}: {text}" for text in left]


class RealPublisher(RealClient, Publisher):
    """mids are numbered over all its lives; the link chooses the tags."""

    real: PublisherLink | None
    # a clock that is set back by less than the time without a process makes an absence look shorter
    jumps = tuple(seconds for seconds in JUMPS if seconds != -40)

    def __init__(
        self, name: str = "p0", total: int = 9, *, journal: str = "torn", burst: int = 1,
        twin_of: RealPublisher | None = None,
    ) -> None:  # fmt: skip
        Publisher.__init__(self, name, OURS, total)
        self.burst = burst
        self.mids: dict[int, Mid] = {}  # number -> the last mid that was put under it
        self.said: dict[int, tuple[str, int]] = {}  # number -> the router that has told its outcome
        self.incarnation = 0  # that its process has, or had
        self.set_up(journal, twin_of)

    def make_link(self, endpoint: Endpoint) -> PublisherLink:
        return endpoint.publisher(ADDRESS, "out", "exactly-once", self.world.now)

    def can_send(self) -> bool:
        return self.real is not None and self.pipe is not None and self.real.room > 0 and not self.closing

    def send(self) -> None:
        assert self.can_send(), f"{self.name} cannot send"
        assert self.real is not None
        count = min(self.burst, self.real.room, self.total - self.seq)
        mids = [(self.name, number) for number in range(self.seq, self.seq + count)]
        self.seq += count
        first = self.real.sequence
        self.mids.update(zip(range(first, first + count), mids, strict=True))
        for mid in mids:
            self.world.checker.sent(mid)
        put = self.real.put([body_of(mid, self.size) for mid in mids], self.world.now)
        assert put == first
        self.look()

    def look(self) -> None:
        if self.real is not None:
            self.incarnation = self.real.incarnation
            for one, other in ((self, self.other), (self.other, self)):
                assert isinstance(one, RealPublisher | None)
                assert isinstance(other, RealPublisher | None)
                if one and other and one.real is not None and one.incarnation < other.incarnation:
                    # what it has sent is settled where the other's incarnation is known
                    self.world.checker.overtaken |= {one.mids[number] for number, _ in one.real.undecided}
        super().look()

    def check_journal(self) -> None:
        assert self.real is not None
        part = self.real._part
        if isinstance(part, PublisherRows) and not self.closing:
            part.check_invariants([number for number, _ in self.real.undecided])

    def hear(self, event: LinkEvent) -> None:
        super().hear(event)
        if isinstance(event, Decided):
            for number in range(event.first, event.last + 1):
                self.told(self.mids[number], event.state, self.said.pop(number))
        elif isinstance(event, Undecided):
            self.world.checker.publisher_told(self.identity, event.reason)
            self.world.checker.abandoned |= {self.mids[number] for number, _ in event.publications}

    def told(self, mid: Mid, state: object, at: tuple[str, int]) -> None:
        if isinstance(state, Accepted):
            self.world.checker.told_accepted(mid, at)
        else:
            assert isinstance(state, Rejected), f"{self.name}: {mid} is {state}"
            self.world.checker.told_rejected(mid, at)

    def forgetting(self, first: int, last: int) -> None:
        self.said.update(dict.fromkeys(range(first, last + 1), self.place))

    def next_to_settle(self) -> bytes | None:
        return None  # it settles by itself

    def show(self) -> None:
        """It shows by itself that it is there."""

    def gone(self) -> None:
        super().gone()
        self.said = {}

    def is_behind(self) -> bool:
        """Its undecided messages have an incarnation that is refused for good: it cannot begin another one."""
        return self.jumped and self.real is not None and self.real.unsettled > 0

    def leaves_it_to_the_other(self) -> bool:
        return True

    def close(self) -> None:
        self.leave()

    def left_over(self) -> list[str]:
        if self.state == "down":
            return []
        return [f"{self.name} unsettled {self.real.undecided}"] if self.real is not None and self.real.unsettled else []
