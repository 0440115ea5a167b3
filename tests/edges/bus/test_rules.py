"""Events as octets."""

from __future__ import annotations

import json
import tracemalloc
import zlib

import pytest

from edges.bus.rules import COMPRESSED_OCTETS, EVENT_OCTETS, BadRequest, event, read_event, read_json, text_of


def event_of(octets: int) -> bytes:
    """An event that is called back as so many octets."""
    empty = event("orders", {"type": "noop", "url": "https://x/", "timestamp": 1, "data": ""}, 0)
    text = "x" * (octets - len(empty))
    return event("orders", {"type": "noop", "url": "https://x/", "timestamp": 1, "data": text}, 0)


def test_an_event_of_5_kb_travels_as_it_is() -> None:
    body = event_of(COMPRESSED_OCTETS)
    assert len(body) == COMPRESSED_OCTETS == 5_000
    assert text_of(body) == body


def test_an_event_above_5_kb_is_compressed_and_keeps_its_topic() -> None:
    body = event_of(COMPRESSED_OCTETS + 1)
    assert len(body) < 200
    topic, text = read_event(body)
    assert topic == json.loads(text)["topic"] == "orders"
    assert text == text_of(body)
    assert len(text) == COMPRESSED_OCTETS + 1


GOOD = b'{"topic":"orders","type":"noop","url":"https://x/","t":1,"data":%s}'


def compressed(text: bytes) -> bytes:
    return b"zlib:orders:" + zlib.compress(text, 9)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{}", b"hello", b'{"topic":"A"', b"zlib:", b"zlib:A:x", b'{"topic":"' + b"x" * 33, "text", 1, None,
        b"zlib:orders:garbage", b'{"topic":"orders" this is no JSON', b'{"topic":"orders"}', GOOD % b"1" + b" 2",
        GOOD % b"1e400", GOOD % b"NaN", GOOD % b'"\xff"', GOOD % b'"\\ud800"', GOOD % (b"[" * 9999 + b"]" * 9999),
        GOOD % b'1,"topic":"others"', GOOD % b'1,"more":1', GOOD.replace(b"https", b"ftp") % b"1",
        compressed(GOOD % b"1")[:-1], compressed(GOOD % b"1") + b"x", compressed(b'{"topic":"others"}'),
        compressed(GOOD % (b'"' + b"x" * EVENT_OCTETS + b'"')), GOOD % (b'"' + b"x" * EVENT_OCTETS + b'"'),
    ],
)  # fmt: skip
def test_what_only_begins_like_an_event_is_none(body: object) -> None:
    with pytest.raises(BadRequest):
        read_event(body)


def test_a_large_event_is_not_decompressed_beyond_its_bound() -> None:
    bomb = compressed(bytes(20 * EVENT_OCTETS))
    tracemalloc.start()
    assert text_of(bomb) is None
    assert tracemalloc.get_traced_memory()[1] < 3 * EVENT_OCTETS
    tracemalloc.stop()


@pytest.mark.parametrize("data", [b"1e400", b"-1e400", b"NaN", b"Infinity", b'"\\uDC00"', b'{"\\ud800": 1}'])
def test_what_no_json_has_is_refused_when_it_is_pushed(data: bytes) -> None:
    with pytest.raises(BadRequest, match="the body is not JSON"):
        read_json(b'{"data": [%s]}' % data)


def test_a_pair_of_surrogates_is_a_character() -> None:
    assert read_json(rb'{"data": "\ud83d\ude00"}') == {"data": "\U0001f600"}
