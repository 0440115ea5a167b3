"""The language of predicates: what it means, and what it says to what is no predicate."""

from __future__ import annotations

import time
from typing import Any

import pytest
import re2
from hypothesis import example, given
from hypothesis import strategies as st

from router.links.predicate import (
    MOST_CHARACTERS,
    MOST_DEPTH,
    MOST_STEPS,
    Predicate,
    PredicateError,
)

METADATA = {
    "Metadata/System": "HVAC",
    "Properties/UnitofTime": "s",
    "n": 5,
    "f": 0.5,
    "on": True,
    "empty": "",
    "umlaut": "ä",
}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ('has Metadata/System and Properties/UnitofTime = "s"', True),
        ("has Metadata/System", True),
        ("has Metadata", False),
        ("has empty", True),
        ("Properties/UnitofTime = 's'", True),
        ("Properties/UnitofTime = 'S'", False),
        ("missing = 's'", False),
        ("Properties/UnitofTime != 's'", False),
        ("Properties/UnitofTime != 'ms'", True),
        ("missing != 's'", True),  # as `not missing = 's'`
        ("Metadata/System like 'VA'", True),  # unanchored
        ("Metadata/System like '^VA'", False),
        ("Metadata/System like '^H.*C$'", True),
        ("missing like ''", False),
        ("umlaut like '^.$' and umlaut like '[ä-ö]'", True),  # characters, not octets
        ("n in ('4', '5')", True),
        ("n in ('4')", False),
        ("missing in ('4')", False),
        ("n = '5' and f = '0.5' and on = 'true'", True),  # numbers and booleans as JSON writes them
        ("not has missing", True),
        ("not has n and has missing", False),  # not binds tighter than and
        ("not (has n and has missing)", True),
        ("has n or has n and has missing", True),  # and binds tighter than or
        ("(has n or has n) and has missing", False),
        ("not not has n", True),
        ("has n\n\tand\n has f", True),
    ],
)
def test_a_predicate_means(text: str, matches: bool) -> None:
    assert Predicate(text).matches(METADATA) is matches


@pytest.mark.parametrize(
    "key", ["~a", "$b", "_c", "A/b%c_d-e9", "order", "android", "nothing", "hash", "inner", "likely"]
)
def test_these_are_keys(key: str) -> None:
    predicate = Predicate(f"has {key} and {key} = '1'")
    assert predicate.keys == {key}
    assert predicate.matches({key: "1"})


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ('"a\'b"', "a'b"),
        ("'a\"b'", 'a"b'),
        (r'"a\"b"', 'a"b'),
        (r"'a\'b'", "a'b"),
        (r'"a\\b"', "a\\b"),
        (r'"a\db"', r"a\db"),
    ],
)
def test_a_quoted_value_may_contain_quotes(written: str, value: str) -> None:
    assert Predicate(f"k = {written}").matches({"k": value})


@pytest.mark.parametrize(
    ("text", "line", "column", "said"),
    [
        ("", 1, 1, 'expected "(", "has", "not" or a key, found the end'),
        ("has", 1, 4, "expected a key, found the end"),
        ("a = b", 1, 5, "expected a value in quotes, found 'b'"),
        ('a = "b" or', 1, 11, "found the end"),
        ('a = "b" c', 1, 9, "found 'c'"),
        ('a = "b" )', 1, 9, "found ')'"),
        ("(has a", 1, 7, 'expected ")"'),
        ('has a and\n  b = "c', 2, 7, "a quote that is not closed"),
        ("a ! 'b'", 1, 3, "unexpected '!'"),
        ("has a\nand has b\nand %", 3, 5, "unexpected '%'"),
        ("a in ('x',)", 1, 11, "expected a value in quotes"),
        ("has 9a", 1, 5, "unexpected '9'"),
        ("a like '('", 1, 8, "is no regular expression: missing )"),
        ("has é", 1, 5, "unexpected 'é'"),
    ],
)
def test_what_is_no_predicate_is_refused_with_its_place(text: str, line: int, column: int, said: str) -> None:
    with pytest.raises(PredicateError) as caught:
        Predicate(text)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert str(caught.value).startswith(f"line {line}, column {column}: ")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5000 + "has a" + ")" * 5000,
        "(" * MOST_DEPTH + "has a" + ")" * MOST_DEPTH,
        "not " * MOST_DEPTH + "has a",
        "has a and " * 1000,
    ],
)
def test_an_endless_predicate_is_refused(text: str) -> None:
    with pytest.raises(PredicateError):
        Predicate(text)


def test_regular_expressions_have_a_bound_together() -> None:
    Predicate("a like 'x.{50}y'")
    with pytest.raises(PredicateError, match=r"regular expressions have \d+ instructions together, 1000 at most"):
        Predicate(" or ".join("a like 'x.{50}y'" for _ in range(4)))


def test_a_value_that_takes_too_long_to_search_counts_as_a_match() -> None:
    """Nothing is lost by it, whether the predicate wants it or not."""
    large, small = "x" * MOST_STEPS, "x" * 100
    for text, matches in (("a like 'x.{50}y'", False), ("not a like 'x.{50}y'", True)):
        predicate = Predicate(text)
        assert predicate.matches({"a": large})
        assert predicate.matches({"a": small}) is matches


def test_a_long_chain_is_a_predicate() -> None:
    text = " or ".join(f"k{n} = '{n}'" for n in range(200))
    assert len(text) < MOST_CHARACTERS
    assert Predicate(text).matches({"k199": "199"})


def test_no_regular_expression_keeps_the_edge_busy() -> None:
    predicate = Predicate("k like '(a+)+$'")
    before = time.process_time()
    assert not predicate.matches({"k": "a" * 5_000 + "b"})  # Python's own would need 2**5000 steps
    assert time.process_time() - before < 5


KEYS = st.sampled_from(["a", "b", "c"])
VALUES = st.sampled_from(["0", "1", "01"])
LEAVES = st.one_of(
    st.tuples(st.just("has"), KEYS, VALUES),
    st.tuples(st.sampled_from(["=", "!=", "like", "in"]), KEYS, VALUES),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.tuples(st.just("not"), inner), st.tuples(st.sampled_from(["and", "or"]), inner, inner)),
    max_leaves=12,
)


def written(tree: Any) -> str:
    kind = tree[0]
    if kind in ("and", "or"):
        return f"({written(tree[1])} {kind} {written(tree[2])})"
    if kind == "not":
        return f"not ({written(tree[1])})"
    if kind == "has":
        return f"has {tree[1]}"
    return f"{tree[1]} in ('{tree[2]}', 'x')" if kind == "in" else f"{tree[1]} {kind} '{tree[2]}'"


def meant(tree: Any, metadata: dict[str, str]) -> bool:
    kind = tree[0]
    if kind == "and":
        return meant(tree[1], metadata) and meant(tree[2], metadata)
    if kind == "or":
        return meant(tree[1], metadata) or meant(tree[2], metadata)
    if kind == "not":
        return not meant(tree[1], metadata)
    value = metadata.get(tree[1])
    if kind == "has":
        return value is not None
    if kind == "like":
        return value is not None and tree[2] in value
    return (value == tree[2]) is (kind != "!=")


@given(TREES, st.dictionaries(KEYS, VALUES))
def test_a_predicate_means_what_its_tree_means(tree: Any, metadata: dict[str, str]) -> None:
    predicate = Predicate(written(tree))
    assert predicate.matches(metadata) is meant(tree, metadata)
    assert predicate.matches_nothing is meant(tree, {})
    others = {key: value for key, value in metadata.items() if key in predicate.keys}
    assert predicate.matches(others) is meant(tree, metadata)


@pytest.mark.parametrize(
    ("text", "needs"),
    [
        ("a = '1'", ("a", {"1"})),
        ("has b and a in ('1', '2')", ("a", {"1", "2"})),
        ("(a in ('1', '2')) and b = '3'", ("b", {"3"})),
        ("a = '1' or a in ('2', '3') and has b", ("a", {"1", "2", "3"})),
        ("a = '1' or b = '1'", None),
        ("a = '1' or has a", None),
        ("not a = '1'", None),
        ("a != '1'", None),
        ("a like '1'", None),
    ],
)
def test_value_that_a_predicate_needs(text: str, needs: tuple[str, set[str]] | None) -> None:
    assert Predicate(text).needs == needs


@given(st.text("12^$|*?+.,[]()\\{}", max_size=8), st.text("12.", max_size=4))
@example("^?12", "2")
@example("12{0}", "1")
@example("12|1", "1")
def test_like_finds_what_the_library_finds(pattern: str, value: str) -> None:
    options = re2.Options()
    options.log_errors = False
    written = pattern.replace("\\", "\\\\")
    try:
        found = re2.compile(pattern, options).search(value) is not None
    except re2.error:
        with pytest.raises(PredicateError):
            Predicate(f"a like '{written}'")
    else:
        assert Predicate(f"a like '{written}'").matches({"a": value}) is found


def test_search_that_is_known_is_that_of_its_value() -> None:
    predicate = Predicate("a like '^[0-9]+$'")
    for number in range(200):
        assert predicate.matches({"a": str(number)})
        assert not predicate.matches({"a": f"{number}x"})
        assert predicate.matches({"a": number})
    assert predicate.matches({"a": "1" * 1000})
