"""What a client makes of what publishers say, of whom it knows nothing."""

from __future__ import annotations

import json
from typing import Any

import msgpack
import pytest

from amqp10.types import Raw
from edges.metadata.cli import line_of
from edges.metadata.client import MOST_DEPTH, Message, read_value
from edges.metadata.wire import Values


@pytest.mark.parametrize(
    "raw",
    [
        b"\x81\x90\xc0",  # a map with a list as key
        b"\xa2\xff\xfe",  # text that is no UTF-8
        b"\xd5\xff\x00\x00",  # a time of two bytes
        b"\x91" * (MOST_DEPTH + 1) + b"\xc0",
        b"\x91" * 5000 + b"\xc0",
    ],
)
def test_a_value_that_python_has_not_is_handed_over_raw(raw: bytes) -> None:
    message = Message("p", {}, read_value(raw))
    assert message.value == raw
    assert isinstance(message.value, Raw)
    assert message.raw
    assert json.loads(line_of(message._asdict()))["uuid"] == "p"


@pytest.mark.parametrize(
    "value",
    [{1: 2}, {b"\xff": 1}, {b"a": [{None: b"\xff"}]}, float("nan"), [float("inf")], msgpack.ExtType(5, b"x"), 1 << 63],
)
def test_a_value_that_json_has_not_is_a_line_of_json(value: Any) -> None:
    message = Message("p", {}, read_value(msgpack.packb(value)))
    assert message.raw is None

    def no_json(name: str) -> None:
        raise AssertionError(name)

    assert line_of(message._asdict()).endswith("\n")
    json.loads(line_of(message._asdict()), parse_constant=no_json)


def test_values_come_in_any_pieces() -> None:
    said = b"\x00\x82\xa1a\x01\xa1b\x81\x90\xc0\x02"
    for size in range(1, len(said) + 1):
        values = Values()
        pieces = [said[at : at + size] for at in range(0, len(said), size)]
        assert [each for piece in pieces for each in values.feed(piece)] == [said[:1], said[1:-1], said[-1:]]
