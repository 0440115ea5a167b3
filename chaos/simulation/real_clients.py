"""The library's own clients in the simulated world: `onceway.client.protocol` over the world's pipes.

A `RealPublisher` or `RealSubscriber` is one process after another with the same journal (`torn_journal.py`) and clock.
The world decides when its disk gets further, when it is killed and how much of what it was writing is left, when its
clock jumps. What its application accepted is what its journal has made durable: that is when the checker hears of it.
A twin is a second process with the same identity, somewhere else: of a subscriber with the same journal, which it
fences; of a publisher with one of its own, as a journal of ours is locked.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from amqp10.outcomes import ACCEPTED, RELEASED, Accepted, Error, Outcome, Rejected, read_state
from chaos.simulation.checker import Violation
from chaos.simulation.clients import ADDRESS, Client, body_of, mid_of, settings_of
from chaos.simulation.publishers import Publisher
from chaos.simulation.subscribers import Subscriber
from chaos.simulation.torn_journal import Disk, File, Nothing, Steps, Storage, TornJournal
from onceway.client.protocol.endpoint import Endpoint
from onceway.client.protocol.events import Arrived, Attached, Decided, Detached, Failed, Gap, LinkEvent, Undecided
from onceway.client.protocol.link import ON
from onceway.client.protocol.publishing import PublisherLink
from onceway.client.protocol.subscribing import SubscriberLink
from onceway.errors import JournalError, LinkStolen

if TYPE_CHECKING:
    from chaos.simulation.checker import Mid
    from chaos.simulation.pipes import Pipe
    from chaos.simulation.world import Event

OURS = "ours"
JUMPS = (-7200, -40, -2, 2, 40, 7200)  # s, of clocks
START_US = 1_700_000_000_000_000
REJECTED = Rejected(Error("test:rejected", "the application does not want it"))
JOURNALS: dict[str, type[Disk] | type[File] | type[Nothing]] = {"torn": Disk, "sqlite": File, "none": Nothing}


class RealClient(Client):
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
        self.clock_us = 0  # how much its clock is wrong
        self.seed = 0
        self.jumped = False  # has its clock ever?
        self.forgotten = False  # an earlier life, of which something may be read late
        self.place = ("", 0)  # the router that it talks to, or talked to last
        self.still = False  # suspended

    @property
    def haunted(self) -> bool:
        """Memory and clock may be behind those of an earlier life, whose frames are read late."""
        return self.forgotten and self.jumped

    # ------------------------------------------------------------------ processes
    def begin(self) -> None:
        """A process starts, with what the journal knows."""
        self.lives += 1
        self.journal = self.storage.open(self)
        self.journal.open(self.identity, _nobody)
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
        """kill -9, and another process starts when it connects. keep: of the pending writes."""
        if self.journal is not None:
            self.journal.crash(keep)
        self.hang_up()
        self.gone()
        if not self.storage.lasting:
            self.forget()

    def forget(self) -> None:
        """A process with an empty journal comes next."""
        raise NotImplementedError

    def gone(self) -> None:
        """There is no process any more: neither are its link and what it had in hand."""
        self.journal = self.endpoint = self.real = None
        self.state = "off"
        self.still = False

    def stop(self) -> None:
        """The application gives up. It is started again only by `start`."""
        self.hang_up()
        self.gone()
        self.state = "down"
        if not self.storage.lasting:
            self.forget()

    def start(self) -> None:
        self.state, self.closed = "off", False
        other = self.original or self.twin
        if other is not None and other.state == "down" and self.given_up():
            other.closed = True  # this one goes on in its place

    def can_start(self) -> bool:
        """A supervisor starts it again when no other process of its identity is there."""
        if self.state != "down" or self.closed:
            return False
        other = self.original or self.twin
        return other is None or other.state == "down"

    # ------------------------------------------------------------------ the connection
    def connect(self, pipe: Pipe) -> None:
        if self.endpoint is None:
            self.begin()
        assert self.endpoint is not None
        self.forgotten = self.forgotten and not self.nothing_is_unread(pipe)
        self.pipe, self.state = pipe, "wait"
        self.place = (pipe.router, pipe.incarnation)
        self.endpoint.connect(settings_of(self.identity, self.frame), self.world.now)
        self.conn = self.endpoint.connection
        pipe.send_all(self.endpoint.data_to_send())
        self.look()

    def nothing_is_unread(self, pipe: Pipe) -> bool:
        """Of what was said before this connection, by this client or between routers, which are all together."""
        world = self.world
        if any(each.client is self and each.r_open and each is not pipe for each in world.pipes.values()):
            return False
        others = len(world.names) - 1
        return all(
            site is not None and not any(site.inbox.values()) and len(site.router.core.up) == others
            for site in world.sites.values()
        )

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
        if self.still:
            return
        deadline = self.endpoint.next_deadline() if self.endpoint is not None else None
        if self.endpoint is not None and deadline is not None and deadline <= self.world.now:
            closed = self.endpoint.handle_timer(self.world.now)
            self.look()
            if closed is not None:  # the router says nothing for too long
                self.hang_up()

    def disk(self) -> None:
        """The journal gets as far as the first that waits for it."""
        assert self.journal is not None
        assert self.endpoint is not None
        self.journal.advance()
        self.endpoint.durable(self.world.now)
        self.look()

    def fill(self) -> None:
        assert self.journal is not None
        assert self.endpoint is not None
        self.journal.fill()
        self.endpoint.durable(self.world.now)
        self.look()

    def waits_for_disk(self) -> bool:
        return self.journal is not None and self.journal.waits()

    def look(self) -> None:
        """What the link tells its application, and what is to be sent."""
        while self.real is not None and (events := self.real.take_events()):
            for event in events:
                self.hear(event)
                if self.endpoint is None:
                    return
        if self.pipe is not None and self.real is not None:
            self.state = "on" if self.real.state is ON else "wait"
        self.flush()

    def hear(self, event: LinkEvent) -> None:
        if isinstance(event, Failed):
            assert isinstance(event.error, JournalError | LinkStolen), f"{self.name}: failed: {event.error}"
            self.refusals.append(str(event.error))
            excused = self.haunted or self.has_company() or self.is_behind()
            if isinstance(event.error, LinkStolen) and not excused:
                raise Violation(f"G4 {self.name} gives up without cause: {event.error}")
            self.stop()
            self.closed = self.closing or (excused and self.given_up())
        elif isinstance(event, Detached):
            self.closed = True
            self.stop()

    def has_company(self) -> bool:
        """Whether there has been another process with its identity."""
        other = self.original or self.twin
        return other is not None and (other.lives > 0 or other.state != "down")

    def is_behind(self) -> bool:
        """Whether its clock may be behind an earlier life's of which it has heard too late."""
        return False

    def given_up(self) -> bool:
        """Whether an application that has failed leaves it to the other process for good."""
        return False

    def leave(self) -> None:
        self.closing = True
        if self.real is None:  # no process: nobody closes
            self.closed, self.state = True, "down"
            return
        self.real.leave(True, self.world.now)
        self.look()

    def restart(self) -> None:
        self.kill(0)

    # ------------------------------------------------------------------ what the journal tells
    def forgetting(self, first: int, last: int) -> None:
        raise AssertionError("only publishers forget")

    def accepted(self, tags: Sequence[bytes], outcome: bytes) -> None:
        raise AssertionError("only subscribers accept")

    def took_over(self) -> None:
        raise AssertionError("only a subscription's journal is held")

    # ------------------------------------------------------------------ what can happen
    def goes_on(self, events: list[Event]) -> None:
        """Adds what it does by itself."""
        if self.waits_for_disk():
            events.append(("disk", self.name))
        if self.state == "down" and self.can_start():
            events.append(("start", self.name))

    def may_do(self, budget: dict[str, int]) -> list[Event]:
        """Its application."""
        return []

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
        """What its journal has not forgotten when everything is settled."""
        left = [] if self.journal is None else self.journal.left()
        return [f"journal of {self.name}: {text}" for text in left]


def _nobody() -> None:
    pass


class RealPublisher(RealClient, Publisher):
    """mids are numbered over its lives; the tags are the link's own business."""

    real: PublisherLink | None
    # a clock that is set back by less than the time for which nobody ran makes an absence look shorter
    jumps = tuple(seconds for seconds in JUMPS if seconds != -40)

    def __init__(
        self, name: str = "p0", total: int = 9, *, journal: str = "torn", burst: int = 1,
        twin_of: RealPublisher | None = None,
    ) -> None:  # fmt: skip
        Publisher.__init__(self, name, OURS, total)
        self.burst = burst
        self.mids: dict[int, Mid] = {}  # number -> what was put last under it
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
        put = self.real.put([body_of(mid) for mid in mids], self.world.now)
        assert put == first
        self.look()

    def look(self) -> None:
        if self.real is not None:
            self.incarnation = self.real.incarnation
            for one, other in ((self, self.original or self.twin), (self.original or self.twin, self)):
                if isinstance(one, RealPublisher) and isinstance(other, RealPublisher):
                    one.look_for_later_life(other)
        super().look()

    def look_for_later_life(self, other: RealPublisher) -> None:
        """What it has sent under an earlier incarnation is settled wherever the other's is known."""
        if self.real is not None and self.incarnation < other.incarnation:
            self.world.checker.overtaken |= {self.mids[number] for number, _ in self.real.undecided}

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

    def forget(self) -> None:
        """The journal is lost."""
        self.forgotten = True
        self.storage = JOURNALS[self.journal_kind]()
        if self.state != "down":
            self.hang_up()
            self.gone()

    def gone(self) -> None:
        super().gone()
        self.said = {}

    def is_behind(self) -> bool:
        """What it has sent is undecided under an incarnation that is refused for good: it cannot begin another one."""
        return self.jumped and self.real is not None and self.real.unsettled > 0

    def given_up(self) -> bool:
        return True

    def close(self) -> None:
        self.leave()

    def left_over(self) -> list[str]:
        if self.state == "down":
            return []
        return [f"{self.name} unsettled {self.real.undecided}"] if self.real is not None and self.real.unsettled else []


class RealSubscriber(RealClient, Subscriber):
    """Accepts what it gets by position; `positions` goes with `in_hand`."""

    real: SubscriberLink | None

    def __init__(
        self, name: str = "s0", credit: int = 10, *, journal: str = "torn", twin_of: RealSubscriber | None = None
    ) -> None:
        Subscriber.__init__(self, name, OURS, credit)
        self.positions: list[int] = []
        self.notes = False  # keeps the tags of what it has been handed, without payload
        self.knows = False  # of a subscription: from the journal as the process found it, or by an answer
        self.set_up(journal, twin_of)
        if twin_of is not None:
            assert twin_of.storage.shared
            self.storage, self.mid_of_tag = twin_of.storage, twin_of.mid_of_tag

    def make_link(self, endpoint: Endpoint) -> SubscriberLink:
        return endpoint.subscriber(
            ADDRESS, "in", "exactly-once", self.world.now, credit=self.credit, credit_bytes=1 << 30,
            subscription_timeout_s=None,
        )  # fmt: skip

    def begin(self) -> None:
        super().begin()
        assert self.real is not None
        self.knows = self.real._confirmed

    def holds(self) -> bool:
        """Whether what it accepts counts: no other process has the journal."""
        return not isinstance(self.storage, Disk) or self.storage.holder is self.journal

    def hear(self, event: LinkEvent) -> None:
        super().hear(event)
        checker = self.world.checker
        if isinstance(event, Arrived):
            for position, (tag, payload) in enumerate(zip(event.tags, event.payloads, strict=True), event.position):
                self.mid_of_tag[tag] = mid = mid_of(payload)
                self.in_hand.append((tag, mid))
                self.positions.append(position)
                if self.holds():
                    checker.handed(self.identity, mid)
            if isinstance(self.journal, TornJournal) and self.notes:
                self.journal.note(event.tags)
        elif isinstance(event, Gap):
            assert self.real is not None
            checker.subscriber_told(self.identity)
            void = self.real.holdings.settled_early
            for position, (_, mid) in zip(self.positions, self.in_hand, strict=True):
                if position in void:  # its accept has no effect any more
                    checker.gave_back(self.identity, mid)
        elif isinstance(event, Attached):
            if not self.knows:  # of the one that another process has, or had, and maybe lost
                checker.began_anew(self.identity)
            self.knows = True
            if self.identity not in checker.current:
                checker.confirmed(self.identity)

    def took_over(self) -> None:
        checker = self.world.checker
        checker.let_go(self.identity)
        if self.in_hand:
            checker.in_hand[self.identity] = {mid for _, mid in self.in_hand}

    def accepted(self, tags: Sequence[bytes], outcome: bytes) -> None:
        state = read_state(outcome, 0, len(outcome))[0]
        if self.closing:  # its subscription is no more
            return
        for tag in tags:
            mid = self.mid_of_tag[tag]
            self.world.checker.accepted(self.identity, mid)
            if isinstance(state, Rejected):
                self.world.checker.rejected(self.identity, mid)

    # ------------------------------------------------------------------ the application
    def accept(self, index: int = 0) -> None:
        self.decide(index, index, ACCEPTED)

    def accept_all(self) -> None:
        while self.in_hand:
            end = 1
            while end < len(self.in_hand) and self.positions[end] == self.positions[end - 1] + 1:
                end += 1
            self.decide(0, end - 1, ACCEPTED)

    def reject(self, index: int = 0) -> None:
        self.decide(index, index, REJECTED)

    def release(self, index: int = 0) -> None:
        self.world.checker.gave_back(self.identity, self.in_hand[index][1])
        self.decide(index, index, RELEASED)

    def can_release(self, index: int) -> bool:
        return self.real is not None

    def decide(self, first: int, last: int, outcome: Outcome) -> None:
        assert self.real is not None
        low, high = self.positions[first], self.positions[last]
        del self.in_hand[first : last + 1], self.positions[first : last + 1]
        self.real.decide(low, high, outcome, self.world.now)
        self.look()

    # ------------------------------------------------------------------ what goes wrong
    def gone(self) -> None:
        held = self.holds()
        super().gone()
        self.in_hand, self.positions = [], []
        if held:
            self.world.checker.let_go(self.identity)

    def forget(self) -> None:
        """The journal is lost, and with it every process of this identity."""
        self.world.checker.forgot(self.identity)
        self.forgotten = True
        self.storage = JOURNALS[self.journal_kind]()
        other = self.original or self.twin
        if other is not None:
            other.storage = self.storage
            other.forgotten = True
            if other.state != "down":
                other.stop()
        if self.state != "down":
            self.hang_up()
            self.gone()

    def disconnected(self) -> None:
        pass

    def close(self) -> None:
        self.world.checker.forgot(self.identity)  # what comes under this name later is another subscription
        self.leave()

    def may_do(self, budget: dict[str, int]) -> list[Event]:
        events: list[Event] = []
        if self.real is not None and len(self.in_hand) > 1 and not self.closing:
            events.append(("all", self.name))
            if budget.get("reject"):
                events += [("reject", self.name, index) for index in range(len(self.in_hand))]
        return events

    def left_over(self) -> list[str]:
        if self.state == "down" or self.real is None:
            return []
        return [f"{self.name} holds {self.real.held}"] if self.real.held else []

    def empty(self) -> list[str]:
        """What another process has written since it took the journal, the next one reads (it is told: at its next
        write, or by the network)."""
        return super().empty() if self.holds() else []


# ---------------------------------------------------------------------- drawing them
def draw_publisher(drawn: Publisher, rng: random.Random) -> list[Publisher]:
    """In place of one that was drawn as ours: it, and the twin that it may get."""
    if drawn.kind != OURS:
        return [drawn]
    journal = rng.choice(["torn", "torn", "sqlite", "none"])
    one = RealPublisher(drawn.name, drawn.total, journal=journal, burst=rng.choice([1, 1, 3]))
    return [one, RealPublisher(f"{drawn.name}+", 3, journal=journal, twin_of=one)]


def draw_subscriber(drawn: Subscriber, rng: random.Random) -> list[Subscriber]:
    if drawn.kind != OURS:
        return [drawn]
    journal = rng.choice(["torn", "torn", "sqlite", "none"])
    one = RealSubscriber(drawn.name, drawn.credit, journal=journal)
    one.notes = rng.random() < 0.5
    if not one.storage.shared:
        return [one]
    return [one, RealSubscriber(f"{drawn.name}+", drawn.credit, journal=journal, twin_of=one)]
