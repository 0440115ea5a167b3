"""Defects: each takes a rule of protocol 5.7.8, 6.11, 7.9 or 16.12 away from the router. A named schedule catches it.

Those whose schedule is a short test of two cores are in `tests/router/test_kept_maps.py`.
"""

from __future__ import annotations

from typing import Any

from chaos.simulation.defects.taking import Patch, always
from router.core.completion import Completion, Settlement
from router.core.feeding import Feed, Feeds
from router.core.intervals import IntervalSet
from router.core.keeping import Handover, KeptLink
from router.core.kept_maps import Kept
from router.core.membership import Membership
from router.core.ports import SubscriberAttach
from router.core.publisher import BaseFeed, Publisher
from router.core.publisher_handshake import READY
from router.core.queue.doubts import Doubts
from router.core.recovery import Recovering
from router.mqtt.publisher import MqttPublisher
from router.mqtt.service import Mqtt
from router.mqtt.session import Session


def complete_at_once(self: Completion, one: Settlement, routers: list[str]) -> None:
    self._open.setdefault(one.publisher, {})[one] = None
    self._check(one)


def wait_for_routers_only(self: Completion, one: Settlement, routers: list[str]) -> None:
    one.holders.clear()
    ASK(self, one, routers)


ASK = Completion._ask


def unknown_is_complete(
    self: Completion, publisher: Publisher, tag: bytes, outgoing: bytes, feeds: list[BaseFeed], *, recorded: bool
) -> None:
    if recorded:
        SETTLED_TAG(self, publisher, tag, outgoing, feeds, recorded=recorded)
    else:
        publisher.port.tag_completed(tag)  # type: ignore[attr-defined]


SETTLED_TAG = Completion.settled_tag


def complete_while_it_claims(self: Completion, one: Settlement) -> None:
    handshake = one.publisher.handshake
    state, handshake.state = handshake.state, READY
    CHECK(self, one)
    handshake.state = state


CHECK = Completion._check


def presents_nothing(self: Kept, port: object, attach: SubscriberAttach) -> bool:
    waits = RECALLS(self, port, attach)
    if waits:
        assert isinstance(port, KeptLink)
        self.cancel(port)
        port.enter(None)
    return False


RECALLS = Kept.recalls


def nobody_keeps(self: Membership) -> bool:
    return False


def kept_or_not(self: KeptLink, waiting: Handover) -> bool:
    return waiting.number >= 0


def flush_is_asked(self: MqttPublisher) -> None:
    self.asked = True
    self.session.service.to_flush(self)


def answered_by_its_router(self: MqttPublisher, now: float) -> None:
    FLUSH(self, now)
    self.answered(now)


FLUSH = MqttPublisher.flush


def never(self: Doubts, publisher: Publisher, tags: list[bytes]) -> None:
    pass


def give_back_at_once(self: KeptLink, tag: bytes) -> None:
    GIVE_BACK(self, tag)
    self._returned(tag)


GIVE_BACK = KeptLink._give_back


def waits_for_nobody(self: Feeds, *arguments: Any) -> None:
    PUBLISH(self, *arguments)
    for each in self.awaited.values():
        each.take()


PUBLISH = Feeds._publish


def nowhere(self: Feeds, *publisher: Publisher) -> None:
    pass


def is_recovered_alone(self: Recovering, address: str) -> bool:
    return self.is_recovered(address) or (self.times.booted and self.declarations.is_closed(address))


def epoch_of_the_clock(self: Session, address: str) -> int:
    return self.service.epoch()


def nothing_is_done(self: Mqtt, session: Session) -> None:
    pass


def nothing_there(self: Feeds, publisher: Publisher, start: int, stop: int) -> dict[Feed, IntervalSet]:
    return {}


# name -> what is taken away, the schedule that misses it, and how its violation begins
DEFECTS: dict[str, tuple[list[Patch], str, str]] = {
    "5.7.8 the router answers for its client": (
        [(MqttPublisher, "ask", flush_is_asked), (MqttPublisher, "flush", answered_by_its_router)],
        "its_client_works_elsewhere",
        "G2",
    ),
    "6.11.1 complete at once": (
        [(Completion, "_begin", complete_at_once)],
        "identifier_comes_again_before_all_have_settled",
        "G1",
    ),
    "6.11.3 only routers are waited for": (
        [(Completion, "_ask", wait_for_routers_only)],
        "identifier_comes_again_while_its_subscriber_is_away",
        "G1",
    ),
    "6.11.4 what nobody knows here is complete": (
        [(Completion, "settled_tag", unknown_is_complete)],
        "released_where_nobody_knows_the_identifier",
        "G1",
    ),
    "6.11.5 complete before its router is ready": (
        [(Completion, "_check", complete_while_it_claims)],
        "identifier_comes_again_before_its_router_is_ready",
        "G1",
    ),
    "7.9.11 given back at once": (
        [(KeptLink, "_give_back", give_back_at_once)],
        "given_back_while_the_keeper_has_it",
        "G2",
    ),
    "16.7.6 what was held under a tag is the next message's": (
        [(Doubts, "completed", never)],
        "tag_comes_again_that_a_member_had_accepted_who_left",
        "G4",
    ),
    "16.12.3 the topic does not wait for the queue": (
        [(Feeds, "_publish", waits_for_nobody)],
        "told_before_a_member_has_it",
        "G1",
    ),
    "16.12.3 complete without the queue": (
        [(Feeds, "ids", nothing_there)],
        "identifier_comes_again_before_a_member_has_settled",
        "G1",
    ),
    "16.12.4 not where it is known": (
        [(Feeds, "look", nowhere)],
        "identifier_comes_again_after_all_members_had_left",
        "G1",
    ),
    "16.12.4 not what came before the member": (
        [(Feeds, "feed_late", nowhere)],
        "router_that_has_started_learns_late_of_members",
        "G1",
    ),
    "16.12.5 established without the queues": (
        [(Recovering, "is_established", is_recovered_alone)],
        "file_closes_the_topic_and_a_member_is_there",
        "G1",
    ),
    "16.12.5 members are no subscription": (
        [(Feeds, "__bool__", always(False))],
        "only_members_subscribe",
        "G4",
    ),
    "16.12.6 a router answers for the publisher": (
        [(Feed, "ask", Feed.answered)],
        "its_client_works_elsewhere_and_a_member_comes",
        "G2",
    ),
    "7.9.2 no map is fetched": (
        [(Kept, "recalls", presents_nothing)],
        "released_by_its_client_and_not_settled",
        "G2",
    ),
    "7.9.3 any map will do": ([(Kept, "_is_later", always(True))], "a_router_before_has_an_older_map", "G2"),
    "7.9.4 no other router keeps it": (
        [(Membership, "choose_keeper", nobody_keeps)],
        "released_by_its_client_and_not_settled",
        "G2",
    ),
    "7.9.5 handed over before it is kept": (
        [(KeptLink, "_may_publish", kept_or_not)],
        "its_router_dies_before_the_keeper_knows",
        "G1",
    ),
    "docs/mqtt.md, Sessions: the clock alone makes the epoch": (
        [(Session, "_epoch_at", epoch_of_the_clock), (Mqtt, "session_disturbed", nothing_is_done)],
        "its_next_router_has_a_clock_that_is_behind",
        "G4",
    ),
    "docs/mqtt.md, Sessions: nobody is told to connect again": (
        [(Mqtt, "session_disturbed", nothing_is_done)],
        "two_routers_take_its_session_while_they_are_apart",
        "G4",
    ),
}
