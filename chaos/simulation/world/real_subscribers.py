"""The library's own subscribers in the simulated world (real_clients.py): what their journals accept counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from amqp10.outcomes import ACCEPTED, RELEASED, Outcome, Rejected, read_state
from chaos.simulation.world.checker import Life
from chaos.simulation.world.clients import ADDRESS, mid_of
from chaos.simulation.world.real_clients import OURS, REJECTED, RealClient
from chaos.simulation.world.subscribers import Subscriber
from chaos.simulation.world.torn_journal import Disk, TornJournal
from onceway.client.journal_links import SubscriberRows
from onceway.client.protocol.endpoint import Endpoint
from onceway.client.protocol.events import Arrived, Attached, Gap, LinkEvent
from onceway.client.protocol.subscribing import SubscriberLink

if TYPE_CHECKING:
    from chaos.simulation.world.world import Event


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
        self.life: Life | None = None  # the one that this process knows of
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
        self.life = self.world.checker.current.get(self.identity)

    def check_journal(self) -> None:
        assert self.real is not None
        part = self.real._part
        if isinstance(part, SubscriberRows) and not self.closing:
            part.check_invariants(self.real.holdings.positions)

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
            if self.life is None or self.life.ended is None:
                by_itself = event.reason.startswith("no contact")
                checker.subscriber_told(self.identity, counted=self.connected_at if by_itself else None)
            else:  # the other process of this journal has told of the same gap meanwhile
                checker.began_anew(self.identity)
            void = self.real.holdings.settled_early
            for position, (_, mid) in zip(self.positions, self.in_hand, strict=True):
                if position in void:  # its accept has no effect any more
                    checker.gave_back(self.identity, mid)
        elif isinstance(event, Attached):
            if not self.knows:  # another process has, or had, a subscription of this name
                checker.began_anew(self.identity)
            self.knows = True
            if self.identity not in checker.current:
                checker.confirmed(self.identity)
            self.life = checker.current[self.identity]
            if not checker.strict:  # else nothing excuses that it misses something
                checker.attached(self.identity, self.world.now, event.timeout_s)

    def took_over(self) -> None:
        self.world.checker.let_go(self.identity, (mid for _, mid in self.in_hand))

    def accepted(self, tags: Sequence[bytes], outcome: bytes) -> None:
        state = read_state(outcome, 0, len(outcome))[0]
        for tag in tags:
            mid = self.mid_of_tag[tag]
            if self.closing:  # its subscription is no more; a declared one goes on with what this process has accepted
                if isinstance(state, Rejected):  # another process of this journal says so yet
                    self.world.checker.rejected(self.identity, mid)
                if self.identity in self.world.checker.declared:
                    self.world.checker.current[self.identity].accepted.add(mid)
                continue
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
        super().forget()
        if self.other is not None:
            self.other.storage = self.storage
            self.other.forgotten = True
            if self.other.state != "down":
                self.other.stop()

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
        """Nothing if another process has taken the journal: this process learns that at its next write, or from the
        network."""
        return super().empty() if self.holds() else []
