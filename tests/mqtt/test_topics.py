"""Topic names and filters: the examples of the standard (4.7), and paho's opinion."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paho.mqtt.client import topic_matches_sub

from mqtt import filter_fault, matches, name_fault
from tests.mqtt.strategies import FILTERS


@pytest.mark.parametrize(
    ("topic_filter", "name", "expected"),
    [
        ("sport/tennis/player1/#", "sport/tennis/player1", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/ranking", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
        ("sport/#", "sport", True),
        ("#", "a/b", True),
        ("sport/tennis/+", "sport/tennis/player1", True),
        ("sport/+", "sport/", True),
        ("+/+", "/finance", True),
        ("/+", "/finance", True),
        ("$SYS/#", "$SYS/a", True),
        ("$SYS/monitor/+", "$SYS/monitor/Clients", True),
        ("sport/tennis/+", "sport/tennis/player1/ranking", False),
        ("sport/+", "sport", False),
        ("+", "/finance", False),
        ("#", "$SYS/a", False),
        ("+/monitor/Clients", "$SYS/monitor/Clients", False),
        ("a/b/#", "a", False),
        ("Accounts", "ACCOUNTS", False),
    ],
)
def test_filter_matches(topic_filter: str, name: str, expected: bool) -> None:
    assert matches(topic_filter, name) is expected


@given(FILTERS, st.lists(st.sampled_from(["", "a", "b", "$SYS"]), min_size=1, max_size=4).map("/".join).filter(bool))
@settings(max_examples=500, derandomize=True, database=None, deadline=None)
def test_paho_matches_the_same(topic_filter: str, name: str) -> None:
    assert matches(topic_filter, name) == topic_matches_sub(topic_filter, name)


@pytest.mark.parametrize("topic_filter", ["", "sport/tennis#", "sport/tennis/#/ranking", "sport+", "a/#/#", "+a/b"])
def test_bad_filter_is_refused(topic_filter: str) -> None:
    assert filter_fault(topic_filter, 4)
    assert filter_fault(topic_filter, 5)
    assert filter_fault(f"$share/g/{topic_filter}", 5)


@pytest.mark.parametrize("topic_filter", ["$share/", "$share/g", "$share//a", "$share/+/a", "$share/g#/a"])
def test_bad_share_is_refused_in_version_5(topic_filter: str) -> None:
    assert filter_fault(topic_filter, 5)


def test_share_is_a_level_like_others_in_3_1_1() -> None:
    assert filter_fault("$share/g", 4) is None


@pytest.mark.parametrize("topic_filter", ["#", "+", "/", "+/tennis/#", "sport/+/player1", "$share/g/a/+", "$shared"])
def test_good_filter_is_taken(topic_filter: str) -> None:
    assert filter_fault(topic_filter, 5) is None


@pytest.mark.parametrize("name", ["", "a/+", "#"])
def test_bad_name_is_refused(name: str) -> None:
    assert name_fault(name)
