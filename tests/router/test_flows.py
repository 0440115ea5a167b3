"""Deliveries through one router and through three, with everything healthy."""

from __future__ import annotations

import pytest

from router.config import AddressConfig
from router.directory import publisher_id
from router.ports import UNIQUE_TAGS, Outcome
from tests.router.harness import TOPIC, Mesh

BODIES = [f"m{i}" for i in range(40)]


def test_a_message_is_delivered_accepted_told_and_settled() -> None:
    mesh = Mesh()
    subscriber = mesh.subscriber("a")
    publisher = mesh.publisher("a")
    publisher.send("hello", "world")
    assert subscriber.bodies() == ["hello", "world"]
    assert publisher.outcomes == {0: (Outcome.ACCEPTED, 0, False), 1: (Outcome.ACCEPTED, 0, False)}
    assert not subscriber.settled
    publisher.settle(0, 1)
    assert subscriber.settled == [got.id for got in subscriber.got]
    mesh.assert_settled()


def test_a_message_crosses_to_every_router_with_a_subscription_and_to_no_other() -> None:
    mesh = Mesh("abcd")
    near, far, beside = mesh.subscriber("a", "s0"), mesh.subscriber("b", "s1"), mesh.subscriber("b", "s2")
    other = mesh.subscriber("c", "s3")
    publisher = mesh.publisher("a")
    mesh.held.add(("a", "d"))
    publisher.send(*BODIES)
    assert near.bodies() == far.bodies() == beside.bodies() == other.bodies() == BODIES
    assert mesh.pending("a", "d") == []
    assert publisher.accepted() == list(range(40))
    publisher.settle(0, 39)
    assert not any(subscriber.unsettled() for subscriber in (near, far, beside, other))
    mesh.assert_settled()


def test_the_publisher_is_told_only_when_every_subscription_has_accepted() -> None:
    mesh = Mesh("ab")
    quick = mesh.subscriber("a", "s0")
    slow = mesh.subscriber("b", "s1", accepts=False)
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1", "m2")
    assert quick.bodies() == ["m0", "m1", "m2"]
    assert publisher.told == []
    slow.accept(slow.got[1].id)
    assert publisher.told == [1]
    slow.accept(slow.got[0].id, slow.got[2].id)
    assert sorted(publisher.told) == [0, 1, 2]


def test_credit_bounds_what_is_sent_and_order_holds() -> None:
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b", credit=0)
    publisher = mesh.publisher("a")
    publisher.send(*BODIES[:10])
    publisher.send(*BODIES[10:])
    assert subscriber.bodies() == []
    for i in range(40):
        subscriber.give_credit(1)
        assert subscriber.bodies() == BODIES[: i + 1]
    publisher.settle_all_told()
    mesh.assert_settled()


def test_two_publishers_share_a_topic_and_keep_their_orders() -> None:
    mesh = Mesh("ab")
    subscribers = [mesh.subscriber("a", "s0", credit=3), mesh.subscriber("b", "s1")]
    one, two = mesh.publisher("a", "p0"), mesh.publisher("b", "p1")
    for i in range(10):
        one.send(f"one{i}", f"more{i}")
        two.send(f"two{i}")
        subscribers[0].give_credit(3)
    for subscriber in subscribers:
        subscriber.give_credit(100)
        assert [b for b in subscriber.bodies() if b[0] != "t"] == [
            f"{k}{i}" for i in range(10) for k in ("one", "more")
        ]
        assert [b for b in subscriber.bodies() if b[0] == "t"] == [f"two{i}" for i in range(10)]
    one.settle_all_told()
    two.settle_all_told()
    mesh.assert_settled()


def test_a_log_goes_over_many_segments() -> None:
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b", credit=10_000)
    publisher = mesh.publisher("a")
    bodies = [f"{i}" for i in range(5_000)]
    for start in range(0, 5_000, 700):
        publisher.send(*bodies[start : start + 700])
    assert subscriber.bodies() == bodies
    publisher.settle(0, 2_499)
    assert len(mesh.cores["a"].addresses[TOPIC].ingress.log.blocks) == 3
    publisher.settle(2_500, 4_999)
    mesh.assert_settled()


def test_the_outgoing_tag_names_publisher_and_incarnation_and_is_at_most_32_bytes() -> None:
    mesh = Mesh("ab")
    subscribers = [mesh.subscriber("a", "s0"), mesh.subscriber("b", "s1")]
    publisher = mesh.publisher("a", incarnation=7, epoch=7)
    publisher.send("short", "long", tags=[b"t" * 16, b"t" * 17])
    prefix = publisher_id("p", "out", TOPIC, False) + (7).to_bytes(8, "big")
    for subscriber in subscribers:
        short, long = (got.tag for got in subscriber.got)
        assert short == prefix + b"t" * 16
        assert long.startswith(prefix)
        assert len(long) == 32
        assert long != short


def test_the_message_format_passes_through() -> None:
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b", credit=0)
    publisher = mesh.publisher("a")
    publisher.send("m0")
    publisher.send("m1", "m2", code=7)
    publisher.send("m3")
    subscriber.give_credit(10)
    assert [got.format for got in subscriber.got] == [0, 7, 7, 0]


# ------------------------------------------------------------------------------------------------------ outcomes: 6.4


def test_a_rejection_is_final_and_the_publisher_sees_how_many_rejected() -> None:
    mesh = Mesh("ab")
    mesh.subscriber("a", "s0")
    refusing = [mesh.subscriber("a", "s1", accepts=False), mesh.subscriber("b", "s2", accepts=False)]
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1", "m2")
    for subscriber in refusing:
        subscriber.accept(subscriber.got[0].id)
        subscriber.dispose(Outcome.REJECTED, subscriber.got[1].id)
        subscriber.accept(subscriber.got[2].id)
    assert publisher.outcomes[0] == (Outcome.ACCEPTED, 0, False)
    assert publisher.outcomes[1] == (Outcome.REJECTED, 2, False)
    assert publisher.outcomes[2] == (Outcome.ACCEPTED, 0, False)
    publisher.settle(0, 2)
    mesh.assert_settled()


def test_what_is_released_comes_again_in_order_ahead_of_everything_new() -> None:
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b", credit=3, accepts=False)
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1", "m2", "m3")
    ids = [got.id for got in subscriber.got]
    subscriber.dispose(Outcome.RELEASED, ids[2])
    subscriber.dispose(Outcome.RELEASED, ids[0], ids[1])
    assert sorted(subscriber.settled) == ids, "the old delivery is settled first"
    subscriber.give_credit(10)
    assert subscriber.bodies("again") == ["m0", "m1", "m2"]
    assert [got.body for got in subscriber.got[3:]] == ["m0", "m1", "m2", "m3"]
    assert [got.tag for got in subscriber.got[3:6]] == [got.tag for got in subscriber.got[:3]]
    assert [got.count for got in subscriber.got] == [0, 0, 0, 1, 1, 1, 0]
    assert publisher.told == []
    subscriber.accept(subscriber.got[3].id, subscriber.got[-1].id)
    assert sorted(publisher.told) == [0, 1, 2, 3]
    publisher.settle(0, 3)
    mesh.assert_settled()


def test_a_delivery_released_too_often_counts_as_rejected() -> None:
    mesh = Mesh("ab", address=AddressConfig(max_redeliveries=2))
    subscriber = mesh.subscriber("b", accepts=False)
    publisher = mesh.publisher("a")
    publisher.send("m0")
    for _ in range(3):
        subscriber.dispose(Outcome.RELEASED, subscriber.got[-1].id)
    assert [got.count for got in subscriber.got] == [0, 1, 2]
    assert publisher.outcomes == {0: (Outcome.REJECTED, 1, False)}
    publisher.settle(0)
    mesh.assert_settled()


def test_no_redelivery_where_none_is_allowed() -> None:
    mesh = Mesh(address=AddressConfig(max_redeliveries=0))
    subscriber = mesh.subscriber("a", accepts=False)
    publisher = mesh.publisher("a")
    publisher.send("m0")
    subscriber.dispose(Outcome.RELEASED, subscriber.got[-1].id)
    assert publisher.outcomes == {0: (Outcome.REJECTED, 1, False)}


def test_a_release_that_the_subscriber_settles_itself_is_not_settled_again() -> None:
    mesh = Mesh()
    subscriber = mesh.subscriber("a", accepts=False)
    publisher = mesh.publisher("a")
    publisher.send("m0")
    subscriber.dispose(Outcome.RELEASED, subscriber.got[0].id, settled=True)
    assert subscriber.settled == []
    assert subscriber.bodies("again") == ["m0"]
    subscriber.accept(subscriber.got[1].id)
    publisher.settle(0)
    assert subscriber.settled == [subscriber.got[1].id]
    mesh.assert_settled()


def test_what_waits_to_be_delivered_again_goes_when_its_publisher_settles_early() -> None:
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b", credit=1, accepts=False)
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1")
    subscriber.dispose(Outcome.RELEASED, subscriber.got[0].id)
    publisher.settle(0, 1)
    subscriber.give_credit(5)
    assert len(subscriber.got) == 1
    mesh.assert_settled()


# ------------------------------------------------------------------------------------------------------ settling: 6.6


def test_a_publisher_that_settles_early_takes_its_messages_back() -> None:
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b", credit=1, accepts=False)
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1", "m2")
    publisher.settle(0, 1)
    assert subscriber.settled == [subscriber.got[0].id]
    subscriber.give_credit(5)
    assert subscriber.bodies() == ["m0", "m2"]
    subscriber.accept(subscriber.got[1].id)
    assert publisher.told == [2]
    publisher.settle(2)
    mesh.assert_settled()


def test_a_publisher_in_mode_first_is_settled_with_its_outcome() -> None:
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b")
    publisher = mesh.publisher("a", mode_first=True)
    publisher.send("m0", "m1")
    assert publisher.outcomes == {0: (Outcome.ACCEPTED, 0, True), 1: (Outcome.ACCEPTED, 0, True)}
    assert not subscriber.unsettled()
    mesh.assert_settled()


def test_a_repeated_tag_of_a_publisher_with_unique_tags_gets_its_records_outcome() -> None:
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b", accepts=False)
    publisher = mesh.publisher("a", unsettled=UNIQUE_TAGS)
    publisher.send("m0", "m1", "m0")
    publisher.send("m1", "m2")
    assert subscriber.bodies() == ["m0", "m1", "m2"]
    subscriber.accept(subscriber.got[0].id, subscriber.got[1].id)
    assert sorted(publisher.told) == [0, 1, 2, 3]
    publisher.send("m0")
    assert publisher.outcomes[5] == (Outcome.ACCEPTED, 0, False)
    subscriber.accept(subscriber.got[2].id)
    publisher.settle(0, 5)
    mesh.assert_settled()


# ------------------------------------------------------------------------------------ receivers that settle: 6.9


def test_a_subscriber_in_mode_first_is_settled_at_acceptance_and_known_until_the_publisher_settles() -> None:
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b", mode_first=True)
    publisher = mesh.publisher("a")
    publisher.send("m0")
    assert subscriber.settled == [subscriber.got[0].id]
    assert publisher.told == [0]
    publisher.settle(0)
    assert subscriber.settled == [subscriber.got[0].id], "not settled twice"
    mesh.assert_settled()


def test_a_subscriber_without_memory_that_nobody_waits_for_is_settled_at_acceptance() -> None:
    mesh = Mesh()
    plain = mesh.subscriber("a", "s0", timeout_s=0.0)
    waited_for = mesh.subscriber("a", "s1", timeout_s=5.0)
    publisher = mesh.publisher("a")
    publisher.send("m0")
    assert plain.settled == [plain.got[0].id]
    assert waited_for.settled == []
    publisher.settle(0)
    assert waited_for.settled == [waited_for.got[0].id]
    mesh.assert_settled()


def test_a_receiver_that_settles_with_its_acceptance_is_not_settled_again() -> None:
    mesh = Mesh()
    subscriber = mesh.subscriber("a")
    subscriber.settles = True
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1")
    publisher.settle(0, 1)
    assert subscriber.settled == []
    mesh.assert_settled()


def test_a_subscription_with_settled_transfers_accepts_when_they_are_written() -> None:
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b", settled_mode=True, credit=1)
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1")
    assert publisher.told == [0]
    assert subscriber.got[0].settled
    subscriber.give_credit(1)
    assert publisher.told == [0, 1]
    publisher.settle(0, 1)
    assert subscriber.settled == []
    mesh.assert_settled()


# --------------------------------------------------------------------------------------------------- pre-settled: 6.9


def test_a_presettled_transfer_reaches_all_at_most_once_and_has_no_outcome() -> None:
    mesh = Mesh("ab")
    subscribers = [mesh.subscriber("a", "s0"), mesh.subscriber("b", "s1")]
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1", settled=True)
    for subscriber in subscribers:
        assert subscriber.bodies() == ["m0", "m1"]
        assert all(got.settled for got in subscriber.got)
    assert publisher.told == []
    mesh.assert_settled()


def test_presettled_transfers_keep_their_place_among_the_others() -> None:
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b", credit=0)
    publisher = mesh.publisher("a")
    publisher.send("m0")
    publisher.send("m1", "m2", settled=True)
    publisher.send("m3")
    subscriber.give_credit(2)
    subscriber.give_credit(9)
    assert subscriber.bodies() == ["m0", "m1", "m2", "m3"]


def test_presettled_transfers_that_find_no_credit_are_dropped_oldest_first_and_counted() -> None:
    mesh = Mesh("ab", presettled_queue=3)
    subscriber = mesh.subscriber("b", credit=0)
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1", settled=True)
    publisher.send("m2", "m3", "m4", settled=True)
    subscriber.give_credit(9)
    assert subscriber.bodies() == ["m2", "m3", "m4"]
    (link,) = mesh.cores["b"].addresses[TOPIC].egress.subscribers.values()
    assert link.dropped == 2


def test_presettled_transfers_held_at_the_barrier_are_forwarded_though_the_link_has_gone() -> None:
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b")
    mesh.held.add(("b", "a"))
    publisher = mesh.publisher("a")
    publisher.send("m0", settled=True)
    publisher.send("m1")
    publisher.leave()
    assert subscriber.bodies() == []
    mesh.held.clear()
    mesh.run()
    assert subscriber.bodies() == ["m0"]
    mesh.assert_settled()


# ----------------------------------------------------------------------------------------------- no subscription: 6.10


def test_without_a_subscription_hold_gives_no_credit_until_one_comes() -> None:
    mesh = Mesh("ab")
    publisher = mesh.publisher("a")
    assert publisher.window == (0, 0, "no subscribers")
    publisher.send("m0")
    assert publisher.told == []
    subscriber = mesh.subscriber("b")
    assert subscriber.bodies() == ["m0"]
    assert publisher.told == [0]
    assert publisher.window[0] > 0
    publisher.settle(0)
    subscriber.leave(closed=True)
    assert publisher.window == (0, 0, "no subscribers")
    mesh.assert_settled()


def test_an_orphan_counts_as_a_subscription() -> None:
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b")
    publisher = mesh.publisher("a")
    subscriber.leave()
    publisher.send("m0")
    assert publisher.window[0] > 0
    assert publisher.told == []


@pytest.mark.parametrize(("policy", "outcome"), [("accept", Outcome.ACCEPTED), ("release", Outcome.RELEASED)])
def test_without_a_subscription_the_address_may_accept_or_release_at_once(policy: str, outcome: Outcome) -> None:
    mesh = Mesh("ab", address=AddressConfig(no_subscribers=policy))  # type: ignore[arg-type]
    publisher = mesh.publisher("a")
    assert publisher.window[0] > 0
    publisher.send("m0")
    assert publisher.outcomes == {0: (outcome, 0, False)}
    publisher.settle(0)
    mesh.assert_settled()


def test_release_gives_back_what_was_taken_when_the_last_subscription_leaves() -> None:
    mesh = Mesh("ab", address=AddressConfig(no_subscribers="release"))
    subscriber = mesh.subscriber("b", accepts=False)
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1")
    subscriber.accept(subscriber.got[0].id)
    subscriber.leave(closed=True)
    assert [publisher.outcomes[i][0] for i in (0, 1)] == [Outcome.ACCEPTED, Outcome.RELEASED]
    publisher.settle(0, 1)
    mesh.assert_settled()


# ------------------------------------------------------------------------------------------------------- windows: 6.8


def test_the_window_counts_messages_and_bytes_that_are_not_done() -> None:
    mesh = Mesh("ab", window_messages=10, window_bytes=100)
    subscriber = mesh.subscriber("b", accepts=False)
    publisher = mesh.publisher("a")
    assert publisher.window == (10, 100, "")
    publisher.send("x" * 30, "y")
    assert publisher.window == (8, 69, "")
    publisher.send("z" * 69)
    assert publisher.window == (0, 0, "window of bytes")
    subscriber.accept(subscriber.got[0].id, subscriber.got[2].id)
    assert publisher.window == (10, 100, "")
    publisher.send(*[f"{i}" for i in range(10)])
    assert publisher.window == (0, 0, "window")


def test_done_and_unsettled_records_fill_a_window_of_their_own() -> None:
    mesh = Mesh("ab", unsettled_window=5)
    mesh.subscriber("b")
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1", "m2")
    assert publisher.window[0] == 2
    publisher.send("m3", "m4")
    assert publisher.window == (0, 0, "unsettled window")
    publisher.settle(0, 3)
    assert publisher.window[0] == 4


def test_at_the_memory_limit_nobody_gets_credit() -> None:
    mesh = Mesh("ab", memory_limit=100)
    subscriber = mesh.subscriber("b", accepts=False)
    one, two = mesh.publisher("a", "p0"), mesh.publisher("a", "p1")
    one.send("x" * 100)
    assert one.window == two.window == (0, 0, "memory limit")
    subscriber.accept(subscriber.got[0].id)
    one.settle(0)
    assert one.window[0] > 0
    assert two.window[0] > 0
    mesh.assert_settled()


def test_remote_payload_is_counted_until_everybody_here_has_accepted_it() -> None:
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b", accepts=False)
    publisher = mesh.publisher("a")
    publisher.send("x" * 100)
    assert mesh.cores["b"].meter == 100
    subscriber.accept(subscriber.got[0].id)
    assert mesh.cores["b"].meter == 0
    assert mesh.cores["a"].meter == 100, "a new subscription may still need it"
    publisher.settle(0)
    mesh.assert_settled()


# ---------------------------------------------------------------------------------------- done payload freed early: 9


def test_above_done_bytes_the_oldest_payload_is_freed_and_a_new_subscription_never_gets_it() -> None:
    mesh = Mesh("ab", done_bytes=150)
    first = mesh.subscriber("a", "s0")
    publisher = mesh.publisher("a")
    for i in range(5):
        publisher.send(f"{i}" * 50)
    assert mesh.cores["a"].meter <= 150
    second = mesh.subscriber("b", "s1")
    assert [body[0] for body in second.bodies()] == [str(i) for i in range(5)][-len(second.bodies()) :]
    assert 0 < len(second.bodies()) < 5
    publisher.settle(0, 4)
    assert not first.unsettled()
    assert not second.unsettled()
    mesh.assert_settled()


def test_what_a_subscription_accepts_as_it_leaves_counts() -> None:
    """In one read: with `hold` nobody else could accept it any more, and the publisher would wait for ever."""
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b", accepts=False)
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1")
    core = mesh.cores["b"]
    core.subscriber_disposition(
        subscriber, subscriber.got[0].id, subscriber.got[1].id, Outcome.ACCEPTED, False, mesh.now
    )
    subscriber.leave(closed=True)
    assert publisher.accepted() == [0, 1]


def test_what_a_publisher_settles_as_it_leaves_is_settled_everywhere() -> None:
    """In one read: its farewell makes positions void at every egress, so the settlements must have gone before."""
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b")
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1")
    mesh.cores["a"].publisher_settled(publisher, 0, 1, mesh.now)
    publisher.leave()
    assert not subscriber.unsettled()


def test_who_missed_that_a_publisher_closed_is_told_when_the_session_is_back() -> None:
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b")
    publisher = mesh.publisher("a", incarnation=7, epoch=7)
    publisher.send("m0", "m1")
    mesh.held.add(("a", "b"))
    publisher.settle(0, 1)
    publisher.leave(closed=True)
    assert mesh.pending("a", "b") == ["Settle", "PubClose"]
    mesh.part("a", "b")
    assert len(subscriber.unsettled()) == 2
    mesh.held.clear()
    mesh.join("a", "b")
    mesh.run()
    assert subscriber.unsettled() == []
    mesh.assert_settled()


def test_a_publisher_that_came_back_is_not_closed_again() -> None:
    mesh = Mesh("abc")
    subscriber = mesh.subscriber("b", accepts=False)
    publisher = mesh.publisher("a", incarnation=7, epoch=7)
    publisher.send("m0")
    subscriber.accept(subscriber.got[0].id)
    mesh.held.add(("a", "b"))
    publisher.settle(0)
    publisher.leave(closed=True)
    mesh.part("a", "b")
    mesh.held.clear()
    again = mesh.publisher("c", incarnation=8, epoch=8)
    again.send("m1")
    mesh.join("a", "b")
    mesh.run()
    assert [got.body for got in subscriber.unsettled()] == ["m1"]
    assert again.told == []
    subscriber.accept(subscriber.got[-1].id)
    assert again.accepted() == [0]
