"""Attaches taken apart: modes and guarantees, termini, link properties, refusals (protocol 5.3)."""

from __future__ import annotations

from typing import Any

import pytest

from amqp10.errors import RemoteProtocolError
from amqp10.outcomes import ACCEPTED, RELEASED, Modified, Received, Rejected
from amqp10.performatives import RCV_FIRST, RCV_SECOND, SND_MIXED, SND_SETTLED, SND_UNSETTLED, Attach
from amqp10.termini import COPY, Coordinator, Source, Target
from amqp10.types import Described, Symbol, Timestamp, ULong
from router.config import AddressConfig, RouterConfig
from router.core.ports import NEVER_EXPIRES_S, UNIQUE_TAGS, MapState, Outcome, SubscriberAnswer
from router.links.negotiation import (
    Redirected,
    answer_source,
    answer_target,
    read_publisher,
    read_subscriber,
)
from router.links.outcomes import default_outcome
from router.names import Guarantee

CONFIG = RouterConfig("a", addresses=(AddressConfig("orders", subscription_timeout_s=30.0),))


def best(guarantee: Guarantee) -> RouterConfig:
    return RouterConfig("a", defaults=AddressConfig(guarantee=guarantee))


def sending(**fields: Any) -> Attach:
    given: dict[str, Any] = {"source": Source(), "target": Target("orders"), "initial_delivery_count": 0, **fields}
    return Attach(given.pop("name", "link"), 0, False, **given)


def receiving(**fields: Any) -> Attach:
    given: dict[str, Any] = {"source": Source("orders"), "target": Target(), **fields}
    return Attach(given.pop("name", "link"), 0, True, **given)


def refusal(attach: Attach, config: RouterConfig = CONFIG) -> RemoteProtocolError:
    with pytest.raises(RemoteProtocolError) as caught:
        if attach.role:
            read_subscriber(attach, "client", config)
        else:
            read_publisher(attach, "client", config)
    return caught.value


@pytest.mark.parametrize(
    ("snd", "rcv", "guarantee", "answered_snd"),
    [
        (SND_UNSETTLED, RCV_SECOND, "exactly-once", SND_UNSETTLED),
        (SND_MIXED, RCV_SECOND, "exactly-once", SND_UNSETTLED),
        (SND_UNSETTLED, RCV_FIRST, "at-least-once", SND_UNSETTLED),
        (SND_MIXED, RCV_FIRST, "at-least-once", SND_UNSETTLED),
        (SND_SETTLED, RCV_FIRST, "at-most-once", SND_SETTLED),
        (SND_SETTLED, RCV_SECOND, "at-most-once", SND_SETTLED),
    ],
)
def test_a_receivers_modes_say_its_guarantee(snd: int, rcv: int, guarantee: str, answered_snd: int) -> None:
    attach, modes = read_subscriber(receiving(snd_settle_mode=snd, rcv_settle_mode=rcv), "client", CONFIG)
    assert (modes.guarantee, modes.snd, modes.rcv) == (guarantee, answered_snd, rcv)
    assert attach.mode_first is (rcv == RCV_FIRST)
    assert attach.settled_mode is (snd == SND_SETTLED)


def test_a_sender_keeps_its_mixed_mode() -> None:
    attach, modes = read_publisher(sending(rcv_settle_mode=RCV_SECOND), "client", CONFIG)
    assert (modes.guarantee, modes.snd) == ("exactly-once", SND_MIXED)
    assert not attach.mode_first


@pytest.mark.parametrize("make", [sending, receiving])
def test_a_guarantee_above_the_addresses_best_is_refused_and_not_lowered(make: Any) -> None:
    attach = make(snd_settle_mode=SND_UNSETTLED, rcv_settle_mode=RCV_SECOND)
    assert refusal(attach, best("at-least-once")).condition == "amqp:not-allowed"
    attach = make(snd_settle_mode=SND_UNSETTLED)
    assert refusal(attach, best("at-most-once")).condition == "amqp:not-allowed"


def test_mixed_asks_for_no_more_than_an_at_most_once_address_gives() -> None:
    attach, modes = read_subscriber(receiving(), "client", best("at-most-once"))
    assert (modes.guarantee, modes.snd) == ("at-most-once", SND_SETTLED)
    assert attach.settled_mode


@pytest.mark.parametrize(
    ("attach", "condition", "word"),
    [
        (sending(target=Coordinator()), "amqp:not-implemented", "transactions"),
        (sending(target=None), "amqp:invalid-field", "null"),
        (sending(target=Target(dynamic=True)), "amqp:not-implemented", "dynamic"),
        (sending(target=Target("")), "amqp:invalid-field", "address"),
        (receiving(source=None), "amqp:invalid-field", "null"),
        (receiving(source=Source()), "amqp:invalid-field", "address"),
        (receiving(source=Source(dynamic=True)), "amqp:not-implemented", "dynamic"),
        (receiving(source=Source("orders", expiry_policy=Symbol("tomorrow"))), "amqp:invalid-field", "expiry-policy"),
        (receiving(source=Source("orders", default_outcome=Described(ULong(0x34), []))), "amqp:invalid-field", "0x"),
        (sending(unsettled={b"1": Described(ULong(0x33), [])}), "amqp:invalid-field", "delivery-state"),
        (sending(unsettled={}, incomplete_unsettled=True), "amqp:not-implemented", "incomplete"),
        (receiving(unsettled={}, incomplete_unsettled=True), "amqp:not-implemented", "incomplete"),
    ],
)
def test_what_is_not_offered_is_refused_by_name(attach: Attach, condition: str, word: str) -> None:
    error = refusal(attach)
    assert error.condition == condition
    assert word in error.description or word == "0x"


@pytest.mark.parametrize("key", ["onceway:epoch", "onceway:incarnation", "onceway:born", "onceway:unique-tags"])
@pytest.mark.parametrize("value", ["seven", -1, 1.5, b"7", [7], Timestamp(7)])
def test_a_link_property_of_the_wrong_type_is_refused(key: str, value: object) -> None:
    attach = (receiving if key == "onceway:born" else sending)(properties={Symbol(key): value})
    error = refusal(attach)
    assert error.condition == "amqp:invalid-field"
    assert key in error.description


@pytest.mark.parametrize("value", [ULong(7), 7])
def test_a_publishers_properties_are_read(value: int) -> None:
    properties = {Symbol("onceway:epoch"): value, Symbol("onceway:incarnation"): ULong(2**63 - 1)}
    attach, _ = read_publisher(sending(properties=properties), "client", CONFIG)
    assert (attach.epoch, attach.incarnation) == (7, 2**63 - 1)
    assert (attach.container, attach.name, attach.address) == ("client", "link", "orders")
    assert attach.unsettled is None


def test_an_epoch_leaves_room_for_later_ones() -> None:
    """The router's own terms go on from a client's epochs, and are below 2^63, too (protocol 1.4)."""
    last = 2**63 - 2**32 - 1
    assert read_publisher(sending(properties={Symbol("onceway:epoch"): last}), "c", CONFIG)[0].epoch == last
    for make in (sending, receiving):
        error = refusal(make(properties={Symbol("onceway:epoch"): ULong(last + 1)}))
        assert (error.condition, f"below {last + 1}" in error.description) == ("amqp:invalid-field", True)


def test_an_incarnation_that_no_publisher_has_is_refused() -> None:
    """Protocol 1.5."""
    error = refusal(sending(properties={Symbol("onceway:incarnation"): ULong(2**63)}))
    assert (error.condition, "onceway:incarnation" in error.description) == ("amqp:invalid-field", True)


def test_names_of_more_than_1024_octets_are_refused() -> None:
    for attach in (
        sending(name="n" * 1025),
        receiving(name="n" * 1025),
        sending(target=Target("a" * 1025)),
        receiving(source=Source("€" * 342)),
    ):
        error = refusal(attach)
        assert (error.condition, "at most 1024" in error.description) == ("amqp:invalid-field", True)


def test_booleans_are_no_numbers() -> None:
    assert "epoch" in refusal(sending(properties={Symbol("onceway:epoch"): True})).description


def test_unique_tags_stand_in_place_of_a_map() -> None:
    properties = {Symbol("onceway:unique-tags"): True}
    assert read_publisher(sending(properties=properties), "client", CONFIG)[0].unsettled is UNIQUE_TAGS
    assert read_publisher(sending(properties=properties, unsettled={}), "client", CONFIG)[0].unsettled is UNIQUE_TAGS
    assert refusal(sending(properties=properties, unsettled={b"1": None})).condition == "amqp:invalid-field"


def test_null_is_no_empty_map() -> None:
    """Protocol 7.1.3."""
    assert read_publisher(sending(unsettled={}), "client", CONFIG)[0].unsettled == {}
    assert read_subscriber(receiving(unsettled={}), "client", CONFIG)[0].unsettled == {}
    assert read_subscriber(receiving(), "client", CONFIG)[0].unsettled is None


def test_a_publishers_map_says_which_outcomes_it_knows() -> None:
    unsettled = {b"1": None, b"2": ACCEPTED, b"3": Rejected(), b"4": Received(0, 0), b"5": RELEASED}
    attach, _ = read_publisher(sending(unsettled=unsettled), "client", CONFIG)
    assert attach.unsettled == {
        b"1": None,
        b"2": Outcome.ACCEPTED,
        b"3": Outcome.REJECTED,
        b"4": None,
        b"5": Outcome.RELEASED,
    }


def test_a_subscribers_map_says_what_it_has() -> None:
    unsettled = {
        b"1": None,
        b"2": ACCEPTED,
        b"3": Received(0, 0),
        b"4": Modified(undeliverable_here=True),
        b"5": Modified(delivery_failed=True),
    }
    attach, _ = read_subscriber(receiving(unsettled=unsettled), "client", CONFIG)
    assert attach.unsettled == {
        b"1": MapState.UNDECIDED,
        b"2": MapState.ACCEPTED,
        b"3": MapState.RECEIVED,
        b"4": MapState.REJECTED,
        b"5": MapState.RELEASED,
    }


def test_timeout_and_expiry_policy_are_read_from_the_source() -> None:
    source = Source("orders", timeout=300, expiry_policy=Symbol("never"))
    attach, _ = read_subscriber(receiving(source=source), "client", CONFIG)
    assert (attach.timeout_s, attach.expiry_policy) == (300.0, "never")
    plain, _ = read_subscriber(receiving(), "client", CONFIG)
    assert (plain.timeout_s, plain.expiry_policy) == (0.0, "session-end")


def test_the_answering_source_says_what_was_granted_and_leaves_out_filters_that_are_not_known() -> None:
    asked = Source(
        "orders",
        durable=2,
        timeout=300,
        filter={Symbol("f"): "x"},
        default_outcome=RELEASED,
        capabilities=(Symbol("topic"), Symbol("queue")),
    )
    answer = SubscriberAnswer((1, "a"), None, False, [], 30.0, "link-detach")
    attach = receiving(source=asked)
    assert read_subscriber(attach, "client", CONFIG)[0].selection is None
    source = answer_source(attach, answer, CONFIG.address("orders"))
    assert (source.address, source.durable, source.timeout, source.expiry_policy) == ("orders", 0, 30, "link-detach")
    assert source.filter is None
    assert source.distribution_mode == "copy"
    assert source.capabilities == ("topic",)
    assert source.default_outcome == RELEASED


def test_the_answering_target_says_how_long_the_publisher_is_waited_for() -> None:
    asked = Target("orders", durable=2, expiry_policy=Symbol("never"), timeout=7)
    answered = answer_target(sending(target=asked), CONFIG.address("orders"))
    assert (answered.timeout, answered.durable, answered.expiry_policy) == (90, 0, "link-detach")


def test_a_source_that_asks_for_never_is_answered_with_what_it_gets() -> None:
    """Protocol 7.8.2."""
    asked = receiving(source=Source("orders", durable=2, expiry_policy=Symbol("never"), timeout=5))
    kept = answer_source(asked, SubscriberAnswer((1, "a"), None, False, [], 5.0, "never"), CONFIG.address("orders"))
    assert (kept.durable, kept.timeout, kept.expiry_policy) == (0, 30, "link-detach")
    declared = answer_source(
        asked, SubscriberAnswer((1, "a"), None, False, [], NEVER_EXPIRES_S, "never"), CONFIG.address("orders")
    )
    assert (declared.durable, declared.timeout, declared.expiry_policy) == (1, 0xFFFFFFFF, "never")


@pytest.mark.parametrize("address", ["$cbs", "$management", "$"])
def test_reserved_names_are_no_topics(address: str) -> None:
    for attach in (sending(target=Target(address)), receiving(source=Source(address))):
        error = refusal(attach)
        assert (error.condition, "reserved" in error.description) == ("amqp:not-found", True)


def test_a_settlement_without_a_state_means_the_default_outcome_or_released() -> None:
    assert default_outcome(receiving(), queue=False) is Outcome.RELEASED
    accepts = receiving(source=Source("orders", default_outcome=ACCEPTED))
    assert default_outcome(accepts, queue=False) is Outcome.ACCEPTED
    undeliverable = receiving(source=Source("orders", default_outcome=Modified(undeliverable_here=True)))
    assert default_outcome(undeliverable, queue=False) is Outcome.REJECTED
    assert default_outcome(undeliverable, queue=True) is Outcome.ELSEWHERE


QUEUE = RouterConfig("a", defaults=AddressConfig(type="queue"), max_message_size=1_000)


def test_filters_at_a_queue_are_refused() -> None:
    selector = {Symbol("f"): Described(Symbol("apache.org:selector-filter:string"), "a = 1")}
    error = refusal(receiving(source=Source("q", filter=selector)), QUEUE)
    assert (error.condition, "takes no filters" in error.description) == ("amqp:not-implemented", True), error


def test_a_consumers_size_is_for_the_queue_to_judge() -> None:
    """Protocol 16.5.6. A browser, which takes nothing from others, passes by what is larger."""
    found, _ = read_subscriber(receiving(source=Source("q"), max_message_size=999), "client", QUEUE)
    assert (found.most_bytes, found.selection) == (999, None)
    browses = receiving(source=Source("q", distribution_mode=COPY), max_message_size=999)
    selection = read_subscriber(browses, "client", QUEUE)[0].selection
    assert selection is not None
    assert [each[:2] for each in selection.unwanted([b"x" * 999, b"x" * 1_000], 0)] == [(1, 2)]


def test_a_queue_moves_deliveries_and_undecided_ones_may_go_elsewhere() -> None:
    undeliverable = {b"t": Modified(undeliverable_here=True), b"u": None, b"v": Rejected()}
    asked = receiving(
        source=Source("q", capabilities=(Symbol("queue"),)), max_message_size=1_000, unsettled=undeliverable
    )
    found, _ = read_subscriber(asked, "client", QUEUE)
    assert found.unsettled == {b"t": MapState.RELEASED, b"u": MapState.UNDECIDED, b"v": MapState.REJECTED}
    source = answer_source(asked, SubscriberAnswer((1, "a"), None, False, [], 0.0, "link-detach"), QUEUE.address("q"))
    assert (source.distribution_mode, source.capabilities) == ("move", ("queue",))


def test_a_reader_of_a_pipe_is_sent_to_its_stores_and_its_primary_is_not() -> None:
    pipe = AddressConfig(
        "orders", type="pipe", read_at=(("amqp", "h", 1), ("amqp", "i", 2)), subscriptions=(("p", "q"),)
    )
    config = RouterConfig("a", addresses=(pipe,))
    refused = refusal(receiving(), config)
    assert isinstance(refused, Redirected)
    assert refused.condition == "amqp:link:redirect"
    assert (refused.info["network-host"], refused.info["port"]) == ("h", 1)
    assert refused.info["onceway:stores"] == ["h:1", "i:2"]
    attach, _ = read_subscriber(receiving(name="q"), "p", config)
    assert attach.address == "orders"
    publisher, _ = read_publisher(sending(), "anybody", config)
    assert publisher.address == "orders"
