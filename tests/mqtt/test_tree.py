"""The tree of topics: what `matches` says of each pair, and how many steps a search takes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from mqtt import TopicTree, matches
from mqtt.topics import MOST_LEVELS
from tests.mqtt.strategies import FILTERS

LEVELS = st.sampled_from(["", "a", "b", "$SYS"])
NAMES = st.lists(LEVELS, min_size=1, max_size=4).map("/".join).filter(bool)


@given(st.sets(FILTERS, max_size=8), st.sets(NAMES, max_size=8))
@settings(max_examples=200, derandomize=True, database=None, deadline=None)
def test_both_directions_find_what_matches(filters: set[str], names: set[str]) -> None:
    of_filters, of_names = TopicTree[str](), TopicTree[str]()
    for text in filters:
        of_filters.put(text, text)
    for name in names:
        of_names.put(name, name)
    for name in names:
        assert sorted(of_filters.matching(name)) == sorted(text for text in filters if matches(text, name))
    for text in filters:
        found = [each for each in of_names.matched(text) if each is not None]
        assert sorted(found) == sorted(name for name in names if matches(text, name))


@given(st.lists(st.tuples(NAMES, st.booleans()), max_size=30))
@settings(max_examples=200, derandomize=True, database=None, deadline=None)
def test_what_was_removed_leaves_no_level(changes: list[tuple[str, bool]]) -> None:
    tree, kept = TopicTree[str](), {}
    for name, entered in changes:
        if entered:
            tree.put(name, name)
            kept[name] = name
        else:
            assert tree.pop(name) == kept.pop(name, None)
    assert {each for each in tree.matched("#") if each is not None} == {name for name in kept if name[0] != "$"}
    for name in list(kept):
        assert tree.get(name) == tree.pop(name) == name
    assert not tree._root.below


def test_a_name_costs_the_same_among_ten_filters_and_ten_thousand() -> None:
    steps = []
    for count in (10, 10_000):
        tree = TopicTree[int]()
        for i in range(count):
            tree.put(f"site/{i}/device/{i}/state", i)
        tree.steps = 0
        assert not tree.matching("site/x/device/1/state")
        steps.append(tree.steps)
    assert steps[0] == steps[1]


def test_a_filter_costs_what_it_matches() -> None:
    tree = TopicTree[int]()
    for i in range(10_000):
        tree.put(f"device/{i}/state", i)
    assert [each for each in tree.matched("device/77/state") if each is not None] == [77]
    assert tree.steps <= 4


def test_filters_that_all_begin_alike_are_looked_at_once_a_level() -> None:
    """2**10 filters of `+` and `a` in each level: a name that fits all of their beginnings."""
    tree, levels = TopicTree[str](), 10
    for i in range(1 << levels):
        tree.put("/".join("+a"[i >> bit & 1] for bit in range(levels)) + "/end", "x")
    assert not tree.matching("/".join("a" * levels) + "/other")
    assert tree.steps <= 2 << levels


def test_a_long_name_takes_no_more_levels_than_a_filter_may_have() -> None:
    tree = TopicTree[int]()
    name = "/" * 65_535
    tree.put(name, 1)
    assert tree.get(name) == 1
    assert tree.get(name + "x") is None
    assert [each for each in tree.matched("#") if each is not None] == [1]
    assert tree.steps <= MOST_LEVELS + 3
