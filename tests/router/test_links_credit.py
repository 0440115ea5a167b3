"""Credit from windows and evidence that a publisher is there, without any link (protocol 5.2, 5.7, 6.8)."""

from __future__ import annotations

import pytest

from router.links.credit import Credit
from router.links.proof import Proof


def credit_with(messages: int, size: int, *payload_sizes: int) -> Credit:
    credit = Credit(0)
    credit.window(messages, size)
    for payload_size in payload_sizes:
        credit.sizes.observe([bytes(payload_size)])
    return credit


@pytest.mark.parametrize(
    ("messages", "size", "payload_sizes", "credit"),
    [
        (1_000, 8 << 20, [], 64),  # no size is known
        (1_000, 8 << 20, [100], 1_000),
        (1_000, 8 << 20, [100, 1 << 20, 100], 8),
        (1_000, 1, [10 << 20], 1),
        (10, 100, [0], 10),  # an empty payload counts as one octet
        (0, 8 << 20, [100], None),
        (5, 0, [100], None),
    ],
)
def test_credit_is_what_the_messages_and_the_bytes_left_are_good_for(
    messages: int, size: int, payload_sizes: list[int], credit: int | None
) -> None:
    """Protocol 6.8.3."""
    assert credit_with(messages, size, *payload_sizes).change(len(payload_sizes) if credit else 0) == credit


def test_only_the_last_hundred_sizes_count() -> None:
    """Protocol 6.8.3."""
    credit = credit_with(1_000, 8 << 20, 1 << 20)
    credit.sizes.observe([b"x"] * 99)
    assert credit.change(0) == 8
    credit.sizes.observe([b"x"])
    assert credit.change(0) == 1_000


def test_one_run_of_a_hundred_replaces_all_sizes() -> None:
    credit = credit_with(1_000, 8 << 20, 1 << 20)
    credit.sizes.observe([b"xy"] * 250)
    assert credit.sizes.largest == 2


def test_a_little_more_credit_is_not_told_and_a_quarter_more_is() -> None:
    """Protocol 6.8.5."""
    credit = credit_with(1_000, 8 << 20, 1)
    assert credit.change(1) == 1_000
    assert credit.change(200) is None  # 801 left
    assert credit.change(251) == 1_000


def test_credit_that_is_used_up_is_renewed_by_any_amount() -> None:
    credit = credit_with(4, 8 << 20, 1)
    assert credit.change(0) == 4
    credit.window(0, 8 << 20)
    assert credit.change(4) is None
    credit.window(1, 8 << 20)
    assert credit.change(4) == 1


def test_less_credit_is_told_at_once() -> None:
    """Protocol 6.8.5."""
    credit = credit_with(1_000, 8 << 20, 1)
    assert credit.change(0) == 1_000
    credit.sizes.observe([bytes(1 << 20)])
    assert credit.change(1) == 8


def test_a_question_gives_one_more_than_was_ever_told() -> None:
    """Protocol 5.7.1."""
    credit = credit_with(10, 8 << 20, 1)
    assert credit.change(0) == 10
    assert credit.ask(4) == 7
    assert credit.limit == 11


def test_a_question_gives_one_credit_where_the_window_is_full() -> None:
    credit = credit_with(0, 0, 1)
    assert credit.ask(20) == 1
    assert credit.change(20) is None, "not taken back before the answer"
    credit.answered()
    assert credit.change(20) == 0


def test_a_question_after_credit_was_taken_back_has_a_limit_of_its_own() -> None:
    credit = credit_with(10, 8 << 20, 1)
    credit.change(0)  # limit 10
    credit.window(4, 8 << 20)
    credit.change(0)  # limit 4
    credit.window(5, 8 << 20)
    credit.change(0)  # 5: within a quarter? 1 more of 5
    credit.window(0, 0)
    credit.change(0)  # limit 0
    told = set(credit.granted)
    assert credit.ask(0) == credit.limit
    assert credit.limit not in told
    assert credit.limit == 1


def test_a_question_whose_limit_was_gone_beyond_has_another_that_was_never_told() -> None:
    credit = credit_with(10, 8 << 20, 1)
    credit.change(0)  # limit 10
    credit.window(0, 0)
    credit.change(0)  # limit 0
    assert credit.ask_again(5) is None, "no question is open"
    assert credit.ask(0) == 1
    assert credit.ask_again(0) is None, "a flow can still show it"
    assert credit.ask_again(1) == 1, "a flow without credit shows no limit"
    assert credit.ask_again(9) == 2, "10 has been told before"
    assert credit.limit == 11
    assert credit.change(9) is None, "not taken back before the answer"
    credit.answered()
    assert credit.ask_again(20) is None


def opened(threshold: int = 10, seen: tuple[int, ...] = (10,), now: float = 0.0) -> Proof:
    proof = Proof()
    proof.start(now, threshold=threshold, seen=seen)
    return proof


def test_a_transfer_within_the_old_limit_proves_nothing() -> None:
    proof = opened()
    proof.granted(11)
    assert not proof.transfer(10)
    assert proof.transfer(11)
    assert not proof.open


def test_a_flow_that_shows_an_old_limit_proves_nothing() -> None:
    proof = opened()
    proof.granted(11)
    assert not proof.flow(4, 6)
    assert proof.flow(4, 7)


def test_a_later_limit_proves_as_well_and_one_seen_before_does_not() -> None:
    proof = opened(seen=(10, 15))
    proof.granted(11)
    proof.granted(15)
    proof.granted(20)
    assert not proof.flow(0, 15)
    assert proof.flow(0, 20)


def test_limits_wrap_on_the_wire() -> None:
    proof = opened(threshold=(1 << 32) - 1, seen=((1 << 32) - 1,))
    proof.granted((1 << 32) + 3)
    assert proof.flow(0xFFFFFFFE, 5)


def test_without_any_credit_a_flow_proves_only_after_the_echo_was_written() -> None:
    """Protocol 5.2.1."""
    proof = opened()
    assert not proof.flow(10, 0)
    proof.written()
    assert not proof.flow(10, None)
    assert proof.flow(10, 0)


def test_the_settlement_of_an_older_outcome_proves_nothing() -> None:
    proof = Proof()
    proof.outcome(1, 5)
    proof.start(0.0, threshold=0)
    proof.outcome(6, 9)
    assert not proof.settlement(1, 5)
    assert proof.settlement(9, 12)


def test_a_frame_proves_only_when_it_is_read_later_than_proof_after() -> None:
    proof = opened(now=100.0)
    assert not proof.frame(102.0, 2.0)
    assert proof.frame(102.1, 2.0)


def test_a_stall_of_our_own_starts_the_time_again() -> None:
    proof = opened(now=100.0)
    proof.stalled(103.0)
    assert not proof.frame(103.0, 2.0)
    assert not proof.frame(104.9, 2.0)
    assert proof.frame(105.1, 2.0)


def test_a_closed_proof_is_proved_no_second_time() -> None:
    proof = opened()
    assert proof.transfer(11)
    assert not proof.transfer(12)
    assert not proof.frame(99.0, 2.0)


def test_no_limit_from_before_an_open_question_is_told_again() -> None:
    """Protocol 5.7.4."""
    credit = Credit(0)
    credit.window(1000, 1 << 20)
    credit.sizes.observe([b"x"])
    assert credit.change(0) == 1000
    credit.window(0, 0)  # the subscriptions have gone
    assert credit.change(1) == 0
    asked = credit.ask(1)
    credit.window(1000 - 1, 1 << 20)  # and are back
    limit = 1 + (credit.change(1) or asked)
    assert limit > 1000  # a flow that shows 1000 may be older than the question
    credit.answered()
    assert credit.change(1) == 999  # the limit 1000 again
