"""Events as octets."""

from __future__ import annotations

import json

import pytest

from edges.bus.rules import COMPRESSED_OCTETS, event, text_of, topic_of


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
    assert topic_of(body) == "orders"
    assert len(text_of(body)) == COMPRESSED_OCTETS + 1
    assert json.loads(text_of(body))["topic"] == "orders"


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"hello", b'{"topic":"A"', b"zlib:", b"zlib:A:x", b'{"topic":"' + b"x" * 33]
)
def test_what_is_no_event_has_no_topic(body: bytes) -> None:
    assert topic_of(body) is None
