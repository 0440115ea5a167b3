"""Filters of a source: which are applied, and which messages they let through (protocol 6.4.5)."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from amqp10 import sections
from amqp10.errors import DecodeError, RemoteProtocolError
from amqp10.sections import Glance, Header, Message, Properties
from amqp10.types import Described, Float, Symbol, Timestamp, ULong
from router import names
from router.core.ports import Outcome, too_large
from router.links.filters import (
    KNOWN_FILTERS,
    MOST_TOGETHER,
    Selection,
    asked_of,
    matches_words,
    partition_of,
    places_of,
    read_filters,
)
from router.links.predicate import _re2
from tests.builds import puts_stand_ins

SELECTOR = "apache.org:selector-filter:string"


def described(name: str | int, value: Any) -> Described:
    return Described(ULong(name) if isinstance(name, int) else Symbol(name), value)


def lets_through(name: str | int, value: Any, message: Message, container: str = "me") -> bool:
    applied, wants = read_filters({Symbol("f"): described(name, value)}, container)
    assert list(applied) == ["f"]
    return not Selection(wants, 0).unwanted([message.encode()], 0)


def message(
    properties: Properties | None = None, annotations: dict[str, Any] | None = None, **application: Any
) -> Message:
    return Message(
        b"x",
        header=Header(durable=True, priority=7),
        properties=properties,
        message_annotations={Symbol(key): value for key, value in (annotations or {}).items()},
        application_properties=application,
    )


@pytest.mark.parametrize("name", [SELECTOR, 0x468C00000004])
def test_a_selector_sees_application_properties_and_the_headers_of_jms(name: str | int) -> None:
    one = message(Properties(subject="news", correlation_id="c", group_id="g"), colour="blue", size=4)
    for text in (
        "colour = 'blue' and size > 3",
        "JMSType = 'news' and JMSCorrelationID = 'c' and JMSXGroupID = 'g'",
        "JMSPriority = 7 and JMSDeliveryMode = 'PERSISTENT'",
        "amqp.subject = 'news' and amqp.group_id = 'g'",
        "JMSMessageID is null",
    ):
        assert lets_through(name, text, one), text
    assert not lets_through(name, "colour = 'red'", one)
    assert not lets_through(name, "missing = 'red'", one), "unknown is not true"


@pytest.mark.parametrize("publisher", [("me", "out"), ("shop/7 ä", "a%2Fb"), ("", "/")])
def test_publisher_is_read_from_its_annotation_as_it_was_written(publisher: tuple[str, str]) -> None:
    assert names.publisher_named(names.publisher_text(*publisher)) == publisher
    for other in (None, ["me", "out"], "me", "a/b/c"):
        assert names.publisher_named(other) is None


def test_no_local_keeps_what_the_same_container_has_published_away() -> None:
    one = message(annotations={names.PUBLISHER_ANNOTATION: names.publisher_text("me", "out")})
    for name in ("apache.org:no-local-filter:list", 0x468C00000003):
        assert not lets_through(name, [], one, "me")
        assert lets_through(name, [], one, "you")


@pytest.mark.parametrize(
    ("pattern", "subject", "matches"),
    [
        ("a.b", "a.b", True),
        ("a.*", "a.b", True),
        ("a.*", "a", False),
        ("a.*", "a.b.c", False),
        ("a.#", "a", True),
        ("a.#", "a.b.c", True),
        ("#", "", True),
        ("#.c", "a.b.c", True),
        ("a.#.c.*", "a.c.c.d", True),
        ("a.#.c", "a.b", False),
        ("#.#.#", "a", True),
        ("*", None, False),
    ],
)
def test_a_topic_pattern_has_words(pattern: str, subject: str | None, matches: bool) -> None:
    for name in ("apache.org:legacy-amqp-topic-binding:string", 0x468C00000001):
        assert lets_through(name, pattern, message(Properties(subject=subject))) is matches


def test_a_pattern_of_many_words_takes_no_exponential_time() -> None:
    subject = ".".join(["a"] * 600)
    assert not matches_words(["#", "a"] * 300 + ["b"], places_of(subject), 600)
    assert matches_words(["#", "a"] * 300 + ["#"], places_of(subject), 600)


def test_property_filters_compare_each_field() -> None:
    one = message(Properties(subject="orders.new", message_id=7), colour="blue", flag=True)
    for wanted, matches in (
        ({"subject": "orders.new", "message-id": 7}, True),
        ({"subject": "&p:orders."}, True),
        ({"subject": "&s:.new"}, True),
        ({"subject": "&p:x"}, False),
        ({"subject": "orders.new", "reply-to": "x"}, False),
        ({"reply-to": None}, True),
    ):
        assert lets_through("amqp:properties-filter", wanted, one) is matches, wanted
    for wanted, matches in (
        ({"colour": "blue", "flag": True}, True),
        ({"flag": 1}, False),
        ({"colour": "&&blue"}, False),
        ({"other": None}, True),
    ):
        assert lets_through("amqp:application-properties-filter", wanted, one) is matches, wanted


def test_each_message_is_in_exactly_one_partition_and_a_group_stays_in_one() -> None:
    found = set()
    for i in range(64):
        one = message(Properties(group_id=f"g{i}"), {names.PUBLISHER_ANNOTATION: names.publisher_text("p", "out")})
        inside = [index for index in range(5) if lets_through(names.PARTITION, [index, 5], one)]
        assert len(inside) == 1
        found.add(inside[0])
        keyed = message(Properties(group_id="other"), {"x-opt-partition-key": f"g{i}"})
        assert partition_of(Glance(keyed.encode()), 5) == inside[0], "the key, and not the group"
    assert found == {0, 1, 2, 3, 4}
    plain = message(annotations={names.PUBLISHER_ANNOTATION: names.publisher_text("p", "out")})
    assert len([index for index in range(5) if lets_through(names.PARTITION, [index, 5], plain)]) == 1


def test_a_batch_is_judged_as_its_messages_are() -> None:
    like = [message(Properties(group_id=group)).encode() for group in ("a", "a", "b", "a") for _ in range(2)]
    batch = [*like, Message(b"x").encode(), b"", b"\xff", like[0][: -len(Message(b"x").encode())], like[0] + b"\x00"]
    for index in range(3):
        _, wants = read_filters({names.PARTITION: [index, 3]}, "c")
        selection = Selection(wants, 0)
        one_by_one = [i for i, each in enumerate(batch) if selection.unwanted([each], 0)]
        for each in (selection, Selection(wants, 1 << 20)):  # with a size, too
            assert [i for first, stop, _ in each.unwanted(batch, 0) for i in range(first, stop)] == one_by_one


def test_the_partition_of_a_message_does_not_depend_on_what_is_behind_its_properties() -> None:
    annotations = [{}, {names.PUBLISHER_ANNOTATION: names.publisher_text("p", "out")}, {"x-opt-partition-key": "k"}]
    for noted in annotations:
        for properties in (None, Properties(group_id="g"), Properties(message_id="x" * 600, group_id="g")):
            plain = Message(b"", properties=properties, message_annotations=noted).encode()
            more = Message(
                b"x" * 600, properties=properties, message_annotations=noted, application_properties={"a": 1}
            )
            assert partition_of(Glance(plain), 64) == partition_of(Glance(more.encode()), 64)
    keyed = Message(b"", message_annotations=annotations[2]).encode()
    broken = keyed[: -len(Message(b"").encode())] + b"\x00\x53\x74\xc1\xff"
    assert partition_of(Glance(broken), 64) == partition_of(Glance(keyed), 64)
    unkeyed = Message(b"", message_annotations=annotations[1]).encode()
    with pytest.raises(DecodeError):
        partition_of(Glance(unkeyed[: -len(Message(b"").encode())] + b"\x00\x53\x74\xc1\xff"), 64)


@pytest.mark.parametrize(
    ("predicate", "matches"),
    [
        ('has Metadata/System and Properties/UnitofTime = "s"', True),
        ("Metadata/System like '^HV' and n = '5' and f = '0.5' and on in ('true')", True),
        ("symbol = 'x' and time = '7'", True),
        ("has data and not data = 'x'", True),  # a value of a type that metadata do not have
        ("has null or has absent", False),  # nil deletes a key
        ("Metadata/System = 'light'", False),
    ],
)
def test_a_predicate_of_the_metadata_edge_sees_application_properties(predicate: str, matches: bool) -> None:
    properties = {"Metadata/System": "HVAC", "Properties/UnitofTime": "s", "n": ULong(5), "f": 0.5, "on": True}
    properties |= {"symbol": Symbol("x"), "time": Timestamp(7), "data": b"x", "null": None}
    assert lets_through(names.PREDICATE, predicate, message(**properties)) is matches
    asked = {Symbol(names.PREDICATE): predicate}  # not described: by its key
    applied, wants = read_filters(asked, "me")
    assert applied == asked
    assert bool(Selection(wants, 0).unwanted([message(**properties).encode()], 0)) is not matches


def test_a_router_without_re2_refuses_like_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    _re2.cache_clear()
    assert lets_through(names.PREDICATE, "has a", message(a=1))
    with pytest.raises(RemoteProtocolError, match="line 1, column 8: `like` needs google-re2"):
        lets_through(names.PREDICATE, "a like 'x'", message(a=1))


def test_the_filters_of_one_link_all_have_to_let_a_message_through() -> None:
    asked = {
        Symbol("s"): described(SELECTOR, "colour = 'blue'"),
        Symbol("t"): described("apache.org:legacy-amqp-topic-binding:string", "a.*"),
    }
    _, wants = read_filters(asked, "me")
    selection = Selection(wants, 0)
    batch = [
        message(Properties(subject=subject), colour=colour).encode()
        for subject, colour in (("a.b", "blue"), ("a.b", "red"), ("b.b", "blue"))
    ]
    assert selection.unwanted(batch, 0) == [(1, 3, Outcome.ACCEPTED)]
    assert selection.unwanted(batch, 7) == [], "another message-format is not looked at"


def test_what_cannot_be_read_is_let_through_by_no_filter() -> None:
    _, wants = read_filters({Symbol("s"): described(SELECTOR, "a is null")}, "me")
    odd = b"\x00\x53\x74\xc1\x02\x01\x40" + Message(b"x").encode()  # a map with one entry and no value
    assert Selection(wants, 0).unwanted([odd, Message(b"x").encode()], 0) == [(0, 1, Outcome.ACCEPTED)]


def test_a_message_of_many_properties_is_judged() -> None:
    _, wants = read_filters({Symbol("s"): described(SELECTOR, "p1999 = 1999")}, "me")
    many = Message(b"x", application_properties={f"p{i}": i for i in range(2_000)}).encode()
    assert Selection(wants, 0).unwanted([many], 0) == []


def test_each_message_is_judged_by_its_own_sections_whatever_the_one_before_was() -> None:
    _, wants = read_filters({SELECTOR: Described(SELECTOR, "n > 5")}, "c")
    selection = Selection(wants, 0)
    seven, eight, three = [Message(b"x", application_properties={"n": n}).encode() for n in (7, 8, 3)]
    none, plain = Message(b"x").encode(), Message(b"y" * 300).encode()
    # the same section in its long form, behind what could be the beginning of a body
    long = seven.replace(b"\x00\x53\x74", b"\x00\x80" + (0x74).to_bytes(8, "big"))
    body_long = none.replace(b"\x00\x53\x75", b"\x00\x80" + (0x75).to_bytes(8, "big"))
    batch = [seven, seven, three, eight, three, none, plain, body_long, long, body_long, b"\x00\x53", seven, none]
    one_by_one = [bool(Selection(wants, 0).unwanted([payload], 0)) for payload in batch]
    assert one_by_one == [payload not in (seven, eight, long) for payload in batch]
    ranges = [range(start, stop) for start, stop, _ in selection.unwanted(batch, 0)]
    assert [i for each in ranges for i in each] == [i for i, unwanted in enumerate(one_by_one) if unwanted]
    assert [bool(selection.unwanted([payload], 0)) for payload in batch] == one_by_one


def test_what_is_too_large_counts_as_rejected_and_what_is_filtered_out_does_not() -> None:
    _, wants = read_filters({Symbol("s"): described(SELECTOR, "a = 1")}, "me")
    large = Message(b"x" * 500, application_properties={"a": 1}).encode()
    other = Message(b"x" * 500, application_properties={"a": 2}).encode()
    small = Message(b"x", application_properties={"a": 1}).encode()
    refusal = too_large(100)
    assert Selection(wants, 100).unwanted([large, other, small], 0) == [(0, 1, refusal), (1, 2, Outcome.ACCEPTED)]
    assert Selection([], 100).unwanted([large, small, other], 5) == [(0, 1, refusal), (2, 3, refusal)]


@pytest.mark.parametrize(
    ("text", "needs"),
    [
        ("colour = 'blue'", ("colour", "blue")),
        ("size > 3 AND (colour = 'blue')", ("colour", "blue")),
        ("size = 4.0", ("size", b"4")),
        ("loud = TRUE AND size = 4", ("loud", b"true")),
        ("colour = 'blue' OR size = 4", None),
        ("NOT colour = 'blue'", None),
        ("colour <> 'blue'", None),
        ("colour = shade", None),
    ],
)
def test_what_a_selector_needs_is_what_it_cannot_do_without(text: str, needs: tuple[str, str | bytes] | None) -> None:
    _, wants = read_filters({Symbol("f"): described(SELECTOR, text)}, "me")
    found = Selection(wants, 0).needs
    assert (None if found is None else found[:2]) == needs


@pytest.mark.parametrize(
    "value",
    ["blue", Symbol("blue"), 4, ULong(4), 4.0, 4.5, Float(4.0), Float(4.5), True, 1, None, -0.0, 0, 1 << 62, [4], b"4"],
)
@pytest.mark.parametrize("literal", ["'blue'", "4", "4.0", "4.5", "TRUE", "1", "0", "4611686018427387904", "'4'"])
def test_what_the_table_leaves_out_the_selector_would_not_select(value: Any, literal: str) -> None:
    one = message(x=value)
    _, wants = read_filters({Symbol("f"): described(SELECTOR, f"x = {literal}")}, "me")
    selection = Selection(wants, 0)
    assert selection.needs is not None
    found = selection.places([message().encode(), one.encode()], {"x"})
    assert found.get(selection.needs, []) == ([] if selection.unwanted([one.encode()], 0) else [1])


@pytest.mark.parametrize(
    "name", ["JMSType", "amqp.subject", "amqp.reply_to", "amqp.reply-to", "amqp.reply_to-group_id"]
)
def test_the_table_has_what_a_selector_reads_of_headers_and_properties_of_the_same_name_before_them(name: str) -> None:
    plain = Message(b"", properties=Properties(subject="a", reply_to="a", reply_to_group_id="a"))
    named = Message(b"", properties=plain.properties, application_properties={name: "b"})
    empty = Message(b"", properties=plain.properties, application_properties={name: None})
    payloads = [each.encode() for each in (plain, named, empty, message())]
    selection = Selection([KNOWN_FILTERS[SELECTOR](f"\"{name}\" = 'a'", "me")], 0)
    assert selection.needs is not None
    assert selection.places(payloads, {"other": None, name: None})[selection.needs] == [0, 2]
    assert selection.unwanted(payloads, 0) == [(1, 2, Outcome.ACCEPTED), (3, 4, Outcome.ACCEPTED)]


def test_the_table_has_no_value_of_a_message_that_cannot_be_read_and_says_so() -> None:
    selection = Selection([KNOWN_FILTERS[SELECTOR]("x = 1", "me")], 0)
    told: list[bool] = []
    selection.told = lambda why, own: told.append(own)
    broken = b"\x00St\xc1"
    assert selection.places([broken, message(x=1).encode()], {"x"}) == {selection.needs: [1]}
    assert told == [False]


def test_unknown_filters_are_not_in_the_answer() -> None:
    asked = {
        Symbol("a"): described("example:colour", "blue"),
        Symbol("s"): described(SELECTOR, "a = 1"),
        Symbol("b"): 3,
    }
    applied, wants = read_filters(asked, "me")
    assert applied == {"s": asked[Symbol("s")]}
    assert len(wants) == 1
    assert read_filters(None, "me") == ({}, [])


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        (SELECTOR, "a = ", "line 1, column 5"),
        (SELECTOR, 7, "a string"),
        ("apache.org:legacy-amqp-topic-binding:string", None, "a string"),
        ("amqp:properties-filter", {"colour": 1}, "colour"),
        ("amqp:properties-filter", "x", "a map"),
        ("amqp:application-properties-filter", {"a": "&x"}, "&p:"),
        (names.PREDICATE, "has a and\nhas", "line 2, column 4: expected a key"),
        (names.PREDICATE, "a like '('", "line 1, column 8"),
        (names.PREDICATE, b"has a", "a string"),
        (names.PARTITION, [3, 3], "below"),
        (names.PARTITION, [True, 3], "index and count"),
        (names.PARTITION, [0, 1 << 20], "at most"),
        (names.PARTITION, ["0", 3], "two integers"),
        ("amqp:application-properties-filter", {"a": "x" * 20_000}, "bytes"),
    ],
)
def test_a_malformed_filter_is_refused_with_its_place(name: str, value: Any, word: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        read_filters({Symbol("mine"): described(name, value)}, "me")
    assert caught.value.condition == "amqp:invalid-field"
    assert word in caught.value.description
    assert "attach.source.filter" in caught.value.description


def test_more_filters_than_any_client_needs_are_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="more than 16"):
        read_filters({Symbol(str(i)): described(SELECTOR, "a = 1") for i in range(17)}, "me")


TOPIC = "apache.org:legacy-amqp-topic-binding:string"
LONG_PIECE = "text LIKE '%" + "a_" * 2_000 + "b%'"
DEAR_WORDS = ".".join(["#", "a"] * 100)


@pytest.mark.parametrize(
    ("name", "value", "said", "own"),
    [
        (SELECTOR, LONG_PIECE, message(text="a" * 1_000), True),
        (SELECTOR, LONG_PIECE, message(text="a" * 100_000), False),
        (TOPIC, DEAR_WORDS, message(Properties(subject="a." * 10_000)), False),
        (SELECTOR, "p1 = 1 OR p2 = 2", message(**{f"p{i}": i for i in range(5_000)}), False),
    ],
)
def test_a_message_that_takes_a_filter_too_many_steps_passes_by_and_that_is_told(
    name: str, value: str, said: Message, own: bool
) -> None:
    """It is the filter's fault, or that of a message with more than is looked at."""
    _, wants = read_filters({Symbol("f"): described(name, value)}, "me")
    selection = Selection(wants, 0)
    told: list[tuple[str, bool]] = []
    selection.told = lambda why, own: told.append((why, own))
    payloads = [said.encode(), message(Properties(subject="a.a"), text="b").encode()]
    assert (0, Outcome.ACCEPTED) in [(start, outcome) for start, _, outcome in selection.unwanted(payloads, 0)]
    assert [each for _, each in told] == [own]


def test_a_pattern_without_underscores_is_searched_in_any_value() -> None:
    assert lets_through(SELECTOR, "text LIKE '%needle%'", message(text="x" * 3_000_000 + "needle"))
    assert not lets_through(SELECTOR, "text LIKE '%needle%less%'", message(text="x" * 3_000_000 + "needle"))
    assert lets_through(SELECTOR, "text LIKE '%n__dle%'", message(text="x" * 10_000 + "needle"))
    assert lets_through(SELECTOR, "text LIKE 'a%b%b%c'", message(text="a b b c"))
    assert not lets_through(SELECTOR, "text LIKE 'a%b%b%c'", message(text="a b c"))


@pytest.mark.parametrize(
    ("name", "value", "counts"),
    [
        (SELECTOR, "a = 'b' AND c LIKE '%d%'", False),
        (SELECTOR, "a = 'b' AND c LIKE '%d_e%'", True),
        (SELECTOR, f"a = 'b' AND c LIKE '%{'d' * 200}%'", True),
        (SELECTOR, "a = 'b' OR c LIKE '%d%'", True),
        (names.PARTITION, [0, 3], False),
        (TOPIC, "a.*", True),
    ],
)
def test_filters_that_each_message_asks_are_counted(name: str, value: Any, counts: bool) -> None:
    applied, wants = read_filters({Symbol("f"): described(name, value)}, "me")
    assert bool(asked_of(applied, wants)) is counts
    assert asked_of(applied, wants) < MOST_TOGETHER


@puts_stand_ins
@pytest.mark.parametrize("size", [10, 10_000])
def test_application_properties_are_decoded_once_for_all_filters(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = []
    read = sections._read_application_properties

    def reads(*arguments: Any) -> Any:
        decoded.append(arguments)
        return read(*arguments)

    monkeypatch.setattr(sections, "_read_application_properties", reads)
    payloads = [message(text=f"once {size} {n}" + "x" * size).encode() for n in range(4)]
    for n in range(20):
        _, wants = read_filters({Symbol("f"): described(SELECTOR, f"text = '{n}' OR text LIKE '%{n}y'")}, "me")
        Selection(wants, 0).unwanted(payloads, 0)
    assert len(decoded) == 4
