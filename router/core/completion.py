"""Settlements of publishers that use their tags again: when nobody holds the tag any more (protocol 6.11).

A settlement waits for routers, which answer FINISH, and for subscriptions that are not covered: these may show the tag
in a map, and get it by SETTLE of tags when they are synchronised.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, cast

from router.core import messages as m
from router.core.base import BaseAddress
from router.core.finishing import Finishing
from router.core.intervals import IntervalSet
from router.core.naming import outgoing_tags
from router.core.ports import CompletionPort
from router.core.publisher_handshake import FORWARDING

if TYPE_CHECKING:
    from router.core.directory import SubscriptionEntry
    from router.core.publisher import BaseFeed, Publisher


class Settlement:
    """What one publisher has settled in one turn: deliveries, and tags by which it has settled."""

    __slots__ = ("fed", "fed_tags", "holders", "ids", "missing", "publisher", "said", "tags")

    def __init__(self, publisher: Publisher) -> None:
        self.publisher = publisher
        self.ids = IntervalSet()
        self.tags: list[bytes] = []  # outgoing, of all that is settled
        self.said: list[bytes] = []  # the publisher's own, where it settled by tag
        self.fed: dict[BaseFeed, IntervalSet] = {}  # delivery-ids at queues that are not complete (protocol 16.12)
        self.fed_tags: dict[tuple[BaseFeed, bytes], None] = {}  # the same of tags
        self.missing: dict[str, int] = {}  # routers -> how many answers are missing
        self.holders: dict[m.SubscriptionName, None] = {}  # subscriptions that are not covered


class Completion:
    """Those of one address."""

    def __init__(self, address: BaseAddress, finishing: Finishing) -> None:
        self.address = address
        self.core = address.core
        self.finishing = finishing
        # in this turn; True: by tags of which this router knows nothing
        self.noted: dict[tuple[Publisher, bool], Settlement] = {}
        self._open: dict[Publisher, dict[Settlement, None]] = {}

    def __bool__(self) -> bool:
        return bool(self.noted or self._open)

    # ------------------------------------------------------------------------------------------------- what is settled

    def settled(
        self, publisher: Publisher, first_id: int, tags: list[bytes], fed: Mapping[BaseFeed, IntervalSet]
    ) -> None:
        """The publisher has settled records, which are about to be forgotten. fed: what stands for them at queues."""
        if publisher.brought.wants_completion:
            one = self.noted.setdefault((publisher, False), Settlement(publisher))
            one.ids.add(first_id, first_id + len(tags))
            one.tags += tags
            for feed, ids in fed.items():
                one.fed.setdefault(feed, IntervalSet()).add_all(ids)
            self.core.agenda.touch(self.address)

    def settled_tag(
        self, publisher: Publisher, tag: bytes, outgoing: bytes, feeds: list[BaseFeed], *, recorded: bool
    ) -> None:
        """The publisher has settled by tag: a record's, or one of which this router knows nothing (6.11.4)."""
        if publisher.brought.wants_completion:
            one = self.noted.setdefault((publisher, not recorded), Settlement(publisher))
            one.said.append(tag)
            one.tags.append(outgoing)
            one.fed_tags.update(dict.fromkeys((feed, outgoing) for feed in feeds))
            self.core.agenda.touch(self.address)

    # ------------------------------------------------------------------------------------- queues that the topic feeds

    def fed_late(self, feed: BaseFeed) -> None:
        """A queue is fed from now on: what is settled by tag is settled there, too (protocol 16.12.3)."""
        for one in self._of(feed.publisher):
            for outgoing in outgoing_tags(one.publisher.prefix, one.said):
                one.fed_tags[feed, outgoing] = None
                feed.early_tags.append(outgoing)

    def fed_completed(self, feed: BaseFeed, first_id: int, last_id: int) -> None:
        """These deliveries of the queue are complete."""
        for one in self._of(feed.publisher):
            ids = one.fed.get(feed)
            if ids is not None:
                ids.remove(first_id, last_id + 1)
                if not ids:
                    del one.fed[feed]
                    self._check(one)

    def fed_tag_completed(self, feed: BaseFeed, tag: bytes) -> None:
        for one in self._of(feed.publisher):
            if one.fed_tags.pop((feed, tag), self) is None:
                self._check(one)

    def begin(self, reached: tuple[str, ...]) -> None:
        """SETTLE has gone to the routers that a record may have reached."""
        noted, self.noted = self.noted, {}
        present = self.core.kinds.everybody(self.address.name)
        for (_, unknown), one in noted.items():
            self._begin(one, [router for router in present if unknown or router in reached])

    def _begin(self, one: Settlement, routers: list[str]) -> None:
        self._open.setdefault(one.publisher, {})[one] = None
        covered = one.publisher.coverage.covered
        for name, entry in self.address.known_subscriptions.items():
            if entry.home is None or name not in covered.get(entry.home, ()):
                one.holders[name] = None
        self._ask(one, routers)
        self._check(one)

    def _ask(self, one: Settlement, routers: list[str]) -> None:
        for router in routers:
            one.missing[router] = one.missing.get(router, 0) + 1
        self.finishing.ask(routers, True, partial(self._answered, one))

    def _answered(self, one: Settlement, router: str) -> None:
        one.missing[router] -= 1
        if not one.missing[router]:
            del one.missing[router]
            self._check(one)

    # --------------------------------------------------------------------------------------------------- subscriptions

    def synchronised(self, publisher: Publisher, entry: SubscriptionEntry) -> None:
        """SYNC has gone to a subscription, which may have shown a settled tag (6.11.3)."""
        for one in self._open.get(publisher, ()):
            if entry.name in one.holders:
                assert entry.home is not None
                del one.holders[entry.name]
                message = m.SettleTags(self.address.name, publisher.publisher_id, publisher.term, one.tags)
                self.core.post.send_to(entry.home, message)
                self._ask(one, [entry.home])

    def uncovered(self, entry: SubscriptionEntry) -> None:
        """A subscription is not covered at its home any more, which may not have answered (6.11.3)."""
        for one in self._all():
            if entry.home in one.missing:
                one.holders[entry.name] = None

    def forgotten(self, name: m.SubscriptionName) -> None:
        """A subscription has gone for good."""
        for one in self._all():
            if one.holders.pop(name, self) is None:
                self._check(one)

    # --------------------------------------------------------------------------------------------------------- complete

    def _check(self, one: Settlement) -> None:
        if one.missing or one.holders or one.fed or one.fed_tags or not one.publisher.ready:
            return
        publisher = one.publisher
        of_publisher = self._open.get(publisher, {})
        if one not in of_publisher or not self.core.may_accept(self.address):
            return
        del of_publisher[one]
        if not of_publisher:
            del self._open[publisher]
        self.core.agenda.touch(self.address)  # the address may be empty now
        if self.address.doubts is not None:
            self.address.doubts.completed(publisher, one.tags)
        if publisher.handshake.state is FORWARDING:
            return
        port = cast("CompletionPort", publisher.port)
        for start, stop in one.ids:
            port.completed(start, stop - 1)
        for tag in one.said:
            port.tag_completed(tag)

    def check(self, publisher: Publisher) -> None:
        """The publisher's link is ready."""
        for one in list(self._open.get(publisher, ())):
            self._check(one)

    def check_all(self) -> None:
        for one in self._all():
            self._check(one)

    def drop(self, publisher: Publisher) -> None:
        """The publisher's link is lost: it settles again elsewhere (6.11.5)."""
        for unknown in (False, True):
            self.noted.pop((publisher, unknown), None)
        self._open.pop(publisher, None)

    def _of(self, publisher: Publisher) -> list[Settlement]:
        """Returns a publisher's settlements that are not complete, also those of this turn."""
        noted = [self.noted[publisher, unknown] for unknown in (False, True) if (publisher, unknown) in self.noted]
        return [*noted, *self._open.get(publisher, ())]

    def _all(self) -> list[Settlement]:
        return [one for each in self._open.values() for one in each]

    def check_invariants(self) -> None:
        entries = self.address.known_subscriptions
        for one in self._all():
            assert not one.publisher.dropped
            waits = one.missing or one.holders or one.fed or one.fed_tags or not one.publisher.ready
            assert waits or not self.core.may_accept(self.address)
            assert all(name in entries for name in one.holders), "a settlement waits for one that has left"
            assert all(count > 0 for count in one.missing.values())
