"""The judge itself: it must see each kind of fault."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.ledger import Ledger, Verdict, body, judge, read_body


def verdict(directory: Path, published: list[str], handed: list[str], killed: tuple[str, ...] = ()) -> Verdict:
    for name, lines in (("p", published), ("s", handed)):
        ledger = Ledger(directory / name)
        ledger.write(*lines)
        ledger.close()
    return judge([directory / "p"], [directory / "s"], killed=killed)


SENT = ["sent 0", "sent 1", "accepted 0", "accepted 1"]


def test_everything_once_and_in_order_is_faultless(tmp_path: Path) -> None:
    assert verdict(tmp_path, SENT, ["handed p 0", "handed p 1"]).faultless


def test_a_message_that_never_came_is_lost(tmp_path: Path) -> None:
    found = verdict(tmp_path, SENT, ["handed p 1"])
    assert found.received[0].lost == [0]
    assert not found.faultless


def test_a_message_without_outcome_is_a_fault(tmp_path: Path) -> None:
    assert not verdict(tmp_path, SENT[:3], ["handed p 0", "handed p 1"]).faultless


def test_a_message_handed_twice_is_a_duplicate(tmp_path: Path) -> None:
    assert verdict(tmp_path, SENT, ["handed p 0", "handed p 1", "handed p 0"]).received[0].duplicate == [0]


def test_an_older_message_after_a_newer_one_is_out_of_order(tmp_path: Path) -> None:
    assert verdict(tmp_path, SENT, ["handed p 1", "handed p 0"]).received[0].out_of_order == [(1, 0)]


def test_a_killed_subscriber_may_be_handed_again_what_it_had_not_accepted(tmp_path: Path) -> None:
    lines = ["handed p 0", "accepted p 0", "handed p 1", "handed p 1"]
    assert verdict(tmp_path, SENT, lines, ("s",)).faultless
    assert verdict(tmp_path, [], ["handed p 0"], ("s",)).received[0].duplicate == [0]


def test_bodies_carry_publisher_and_number() -> None:
    assert read_body(body("p1", 77)) == ("p1", 77)
    assert len(body("p1", 77)) == 100
