"""Topic names and filters to addresses: whole levels, the longest prefix, and every address that a filter can meet."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqtt import matches
from router.config import SHARED
from router.mqtt.topic_map import TopicMap

# "z" is in no prefix: it stands for all that a wildcard may be besides.
NAMES = ["/".join(levels) for count in range(1, 5) for levels in product(["a", "b", "$x", "z"], repeat=count)]
PREFIXES = st.lists(st.sampled_from(["a", "b", "$x"]), min_size=1, max_size=3).map("/".join) | st.just("#")
LEVELS = st.lists(st.sampled_from(["a", "b", "$x", "+"]), max_size=3)
FILTERS = st.builds(lambda levels, last: "/".join(levels + last), LEVELS, st.sampled_from([["#"], ["+"], ["a"]]))


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("a", "short"),
        ("a/b", "long"),
        ("a/b/c", "long"),
        ("a/bc", "short"),
        ("ab", "rest"),
        ("/a", "rest"),
    ],
)
def test_longest_prefix_of_whole_levels_wins(name: str, address: str) -> None:
    assert TopicMap({"#": "rest", "a": "short", "a/b": "long"}).address_of(name) == address


def test_name_without_prefix_has_no_address() -> None:
    topics = TopicMap({"a": "x"})
    assert topics.address_of("b") is None
    assert topics.addresses_of("b/#") == []


def test_filter_meets_several_addresses_each_once() -> None:
    topics = TopicMap({"a": "x", "b": "y", "c": "x", "d/e": "z"})
    assert topics.addresses_of("+") == ["x", "y"]
    assert topics.addresses_of("#") == ["x", "y", "z"]


def test_filter_below_the_longer_prefix_does_not_meet_the_shorter_one() -> None:
    topics = TopicMap({"#": "rest", "a": "short", "a/b": "long"})
    assert topics.addresses_of("a/b/+") == ["long"]
    assert topics.addresses_of("a/+") == ["short", "long"]


@given(st.dictionaries(PREFIXES, st.sampled_from(["x", "y", "z"]), max_size=5), FILTERS)
@settings(max_examples=300, deadline=None)
def test_addresses_of_a_filter_are_those_of_the_names_that_it_matches(prefixes: dict[str, str], wanted: str) -> None:
    topics = TopicMap(prefixes)
    expected = {topics.address_of(name) for name in NAMES if matches(wanted, name)} - {None}
    found = topics.addresses_of(wanted)
    assert set(found) == expected
    assert len(found) == len(expected)


def test_shared_subscription_is_a_queue_that_gets_what_its_filter_matches() -> None:
    topics = TopicMap({"#": "all"}, {"g/jobs/+": "wild", "h/jobs/a": "plain"})
    assert topics.address_of("jobs/a") == "all"
    assert topics.addresses_of("$share/g/jobs/+") == ["wild"]
    assert topics.addresses_of("$share/g/jobs/#") == ["_mqtt/shared/g/jobs/#"]
    assert TopicMap({"plant": "all"}).addresses_of("$share/g/jobs/#") == []
    assert topics.topics_of("_mqtt/shared/g/jobs/#") == topics.topics_of("wild") == ["all"]
    assert topics.name_of("_mqtt/shared/g/jobs/a") == "jobs/a"
    assert [topics.name_of(queue) for queue in ("wild", "plain")] == ["wild", "jobs/a"]
    assert topics.has("wild", "jobs/c")
    assert not topics.has("plain", "jobs/c")


def test_message_without_a_topic_name_has_one_in_a_group_whose_filter_is_a_wildcard() -> None:
    topics = TopicMap({"#": "all", "jobs": "work"})
    assert topics.name_of(f"{SHARED}g/#") == "all"
    assert topics.name_of(f"{SHARED}g/jobs/+") == f"{SHARED}g/jobs/+"  # the filter matches none of the names
    assert topics.name_of(f"{SHARED}g/jobs/#") == "jobs"
