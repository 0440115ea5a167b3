"""Which subscriptions get the stream of a publisher that is attached here, and what needs a later proof of it.

A subscription is covered for a publisher when DATA for it goes to its home (protocol 6.1). It becomes covered by SYNC.
That may need the answer to a question first: an ingress with a half-open connection may not know that its publisher
works elsewhere (protocol 5.7). FLUSH, by which an ingress says that nothing is sent again, needs an answer, too.
"""

from __future__ import annotations

from router.core import messages as m
from router.core.base import BaseAddress
from router.core.completion import Completion
from router.core.directory import SubscriptionEntry
from router.core.messages import SubscriptionName
from router.core.publisher import FLUSH, BaseFeed, Publisher
from router.core.publisher_handshake import READY, Input
from router.core.records import Records


class Streams:
    """Which subscriptions get what the publishers of one address send at this router."""

    def __init__(self, address: BaseAddress, records: Records, completion: Completion) -> None:
        self.address = address
        self.core = address.core
        self.records = records
        self.completion = completion
        self.publishers = address.attached.claimed

    # -------------------------------------------------------------------------------------------------------- questions

    def ask(self, publisher: Publisher) -> None:
        """Asks a question if one is needed and none is open (protocol 5.7), or the other routers instead of the
        publisher (protocol 5.9)."""
        if publisher.handshake.state is not READY:
            return
        roll_call, questions = self.core.roll_call, publisher.questions
        needs = questions.needed
        if publisher.handshake.is_here and questions.calls:
            roll_call.want(max(questions.calls.values()))
            needs = {name: question for name, question in needs.items() if name not in questions.calls}
        if questions.asked != questions.answered:
            # protocol 5.9: a question that was asked in advance gives way to another one, where it is of no use
            no_use = not (publisher.handshake.brought_epoch or roll_call.together)
            if not (no_use and needs and min(needs.values()) > questions.asked):
                return
            questions.answered = questions.asked
        elif not (needs or roll_call.is_to_prove(publisher)):
            return
        questions.asked += 1
        publisher.ingress.ask(publisher)

    def called(self, publisher: Publisher, number: int) -> None:
        """All routers have answered (protocol 5.9). That serves only what was waiting when they were called."""
        if publisher.handshake.state is READY and publisher.handshake.is_here:
            for name, first in list(publisher.questions.calls.items()):
                if first <= number:
                    self._serve(publisher, name)
        self.ask(publisher)

    def question_answered(self, publisher: Publisher) -> None:
        """The open question is answered. It serves only what was waiting when it was asked (protocol 5.7)."""
        questions = publisher.questions
        if publisher.handshake.state is not READY or questions.asked == questions.answered:
            return
        questions.answered = questions.asked
        publisher.handshake.proved()
        for name, question in list(questions.needed.items()):
            if question <= questions.answered:
                self._serve(publisher, name)
        self.ask(publisher)
        self.core.roll_call.check_asked()

    def _serve(self, publisher: Publisher, name: SubscriptionName | BaseFeed | None) -> None:
        if publisher.questions.needed.pop(name, None) is None:
            return
        if name is FLUSH:
            self._flush(publisher)
            return
        if isinstance(name, BaseFeed):
            name.answered()
            return
        publisher.questions.calls.pop(name, None)
        entry = self.address.known_subscriptions.get(name)
        if entry is not None and entry.home is not None:
            self.sync(publisher, entry)

    # -------------------------------------------------------------------------------------------------------- coverage

    def synchronise(self, entry: SubscriptionEntry, history: bool) -> None:
        """A subscription has joined: every publisher here is synchronised to it, with history only after the answer to
        a question (protocol 7.4).

        A subscription without history holds nothing that an outdated ingress could settle wrongly. Publishers that are
        still proving are asked for their sign of life again.
        """
        if history:
            for publisher in self.address.attached.proving():
                publisher.ingress.receive(publisher, Input.JOIN)
        for publisher in list(self.publishers.values()):
            if self.records.lacks_payload(publisher, entry):
                publisher.ingress.ask_again(publisher)
                continue
            publisher.coverage.uncovered[entry] = None
            if history:
                publisher.questions.need(entry.name)
                if not publisher.handshake.brought_epoch:
                    publisher.questions.calls[entry.name] = self.core.roll_call.next
                self.ask(publisher)
            else:
                self.sync(publisher, entry)

    def sync(self, publisher: Publisher, entry: SubscriptionEntry) -> None:
        """SYNC: from here on the publisher's stream flows to the subscription, at its home (protocol 7.5)."""
        assert entry.home is not None
        entries = self.records.distribution.entries_for(publisher, entry)
        self.cover(publisher, entry)
        self.core.post.send_to(
            entry.home,
            m.Sync(
                self.address.name,
                publisher.publisher_id,
                publisher.incarnation,
                publisher.term,
                entry.name,
                entry.term,
                entries,
                self.expected(publisher),
            ),
        )
        self.completion.synchronised(publisher, entry)

    def expected(self, publisher: Publisher) -> m.Expected:
        """Returns the expected set for PUB and SYNC. Unknown is not empty (protocol 5.4)."""
        return m.UNKNOWN if publisher.resending.unknown else list(publisher.resending.tags)

    def cover(self, publisher: Publisher, entry: SubscriptionEntry) -> None:
        assert entry.home is not None
        publisher.coverage.cover(entry)
        self.records.expect_home(entry.home)

    def uncover(self, entry: SubscriptionEntry) -> None:
        """The subscription is covered nowhere, and questions for it are void (protocol 8.1)."""
        self.completion.uncovered(entry)
        for publisher in self.publishers.values():
            publisher.questions.forget(entry.name)
            publisher.coverage.forget(entry)

    def router_down(self, router: str, orphans: list[SubscriptionEntry]) -> None:
        """That router covers nothing any more (protocol 8.6)."""
        for entry in orphans:
            self.uncover(entry)
        for publisher in self.publishers.values():
            publisher.coverage.uncover_home(router)

    # ------------------------------------------------------------------------------------------------------------ flush

    def expect_until_flush(self, publisher: Publisher) -> None:
        """Starts the time in which the publisher may send again what it has in doubt (protocol 8.5)."""
        publisher.resending.flush_at = at = self.core.now + publisher.timeout_s
        self.core.agenda.due(at, self.address)

    def flush_due(self, publisher: Publisher) -> None:
        """The publisher's time to send again is over. The FLUSH still needs a later proof (protocol 8.5)."""
        resending = publisher.resending
        resending.flush_at = None
        if publisher.handshake.state is not READY or not (resending.unknown or resending.tags):
            return
        if resending.withheld:
            self.expect_until_flush(publisher)
            return
        publisher.questions.need(FLUSH)
        self.ask(publisher)

    def flush_after_turn(self, publisher: Publisher) -> None:
        """What waited for its turn is taken: a FLUSH that has waited for that goes on (protocol 8.5)."""
        if publisher.resending.flush_at is None and FLUSH not in publisher.questions.needed:
            self.flush_due(publisher)

    def _flush(self, publisher: Publisher) -> None:
        if publisher.held.parts:  # sent again before its answer, and bound to no position yet
            return
        publisher.resending.expect([], unknown=False)
        if self.address.doubts is not None:
            self.address.doubts.flushed(publisher)
        flush = m.Flush(self.address.name, publisher.publisher_id, publisher.incarnation, publisher.term)
        self.core.post.broadcast(flush)

    def tick(self) -> None:
        for publisher in list(self.publishers.values()):
            flush_at = publisher.resending.flush_at
            if flush_at is not None and self.core.now >= flush_at:
                self.flush_due(publisher)

    def deadlines(self) -> list[float]:
        return [p.resending.flush_at for p in self.publishers.values() if p.resending.flush_at is not None]

    def check_invariants(self) -> None:
        subscriptions = self.address.known_subscriptions
        for publisher in self.publishers.values():
            coverage, questions = publisher.coverage, publisher.questions
            covered = {(home, name) for home, names in coverage.covered.items() for name in names}
            homes = {entry.home for entry in subscriptions.values()}
            assert all(home in homes for home in coverage.covered)
            for entry in subscriptions.values():
                at_home = (entry.home, entry.name) in covered
                covered.discard((entry.home, entry.name))
                assert at_home + (entry in coverage.uncovered) == (entry.home is not None), (
                    f"{entry.name} at {entry.home}, covered {coverage.covered}"
                )
            assert not covered, f"covered where they are not: {covered}"
            assert all(subscriptions.get(entry.name) is entry for entry in coverage.uncovered)
            assert all(home in self.records.awaited for home in coverage.covered)
            assert all(
                name is FLUSH or isinstance(name, BaseFeed) or name in subscriptions for name in questions.needed
            )
            assert questions.calls.keys() <= questions.needed.keys()
