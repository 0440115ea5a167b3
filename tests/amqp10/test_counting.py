"""What a stranger's frame makes us decode is counted before it is decoded."""

from __future__ import annotations

import pytest
from hypothesis import given

from amqp10.codec import decode_value, encode_value
from amqp10.connection import Connection
from amqp10.counting import check_values
from amqp10.errors import DecodeError
from amqp10.events import ConnectionClosed
from amqp10.frames import AMQP_FRAME, AMQP_HEADER, SASL_FRAME, SASL_HEADER, encode_frame
from amqp10.performatives import Open, SaslInit, SaslResponse
from amqp10.sasl import Challenge, server_mechanisms
from amqp10.settings import BEFORE_LOGIN, VALUES_BEFORE_LOGIN, ConnectionSettings
from amqp10.types import Array, Described, Symbol, ULong
from tests.amqp10.values import VALUES


def counted(data: bytes) -> int:
    """The least bound that lets it pass."""
    low, high = 0, 2 * len(data) + 2_000
    while low < high:
        middle = (low + high) // 2
        try:
            check_values(data, 0, len(data), middle)
            high = middle
        except DecodeError:
            low = middle + 1
    return low


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (None, 1),
        ("x" * 300, 1),
        ([], 1),
        ([1, [2, 3], {"a": b"x"}], 8),
        ([None] * 300, 301),
        (Array("uint", (1, 2, 3)), 4),
        (Described(ULong(7), "x"), 3),
    ],
)
def test_values_within_values_count(value: object, count: int) -> None:
    assert counted(encode_value(value)) == count


def test_an_array_of_lists_counts_its_bytes() -> None:
    data = b"\xe0\x0c\x03\xc0" + b"\x02\x01\x40" * 3 + b"\x40"
    assert counted(data) >= 10


@given(VALUES)
def test_what_can_be_decoded_has_no_fewer_values_than_are_counted(value: object) -> None:
    def size(one: object) -> int:
        if isinstance(one, dict):
            return 1 + sum(size(key) + size(each) for key, each in one.items())
        if isinstance(one, list | tuple):
            return 1 + sum(map(size, one))
        if isinstance(one, Described):
            return 1 + size(one.descriptor) + size(one.value)
        return 1

    data = encode_value(value)
    assert counted(data) >= size(decode_value(data)[0])


def ended(connection: Connection, data: bytes) -> str:
    """Why it is closed."""
    for event in connection.receive_data(data, 0.0):
        if isinstance(event, ConnectionClosed) and event.error is not None:
            return event.error.description or ""
    return ""


def server() -> Connection:
    settings = ConnectionSettings(container_id="r", sasl=server_mechanisms(verify=lambda *_: False))
    return Connection(settings, server=True, now=0.0)


def test_an_open_of_many_values_is_refused_and_one_that_clients_send_is_not() -> None:
    properties = {Symbol(f"k{n}"): None for n in range(VALUES_BEFORE_LOGIN)}
    opened = encode_frame(AMQP_FRAME, 0, Open("c", properties=properties).encode())
    assert "more than 512 values" in ended(server(), AMQP_HEADER + opened)
    properties = {Symbol(f"k{n}"): "x" * 300 for n in range(VALUES_BEFORE_LOGIN // 3)}
    assert ended(server(), AMQP_HEADER + encode_frame(AMQP_FRAME, 0, Open("c", properties=properties).encode())) == ""


class Asking:
    """A mechanism that is never satisfied, with frames as large as tokens need."""

    largest_frame = 16 << 10
    names = (Symbol("ASKING"),)

    def begin(self, name: str) -> Asking:
        return self

    def step(self, data: bytes | None) -> Challenge:
        return Challenge(b"more")


def asking() -> Connection:
    connection = Connection(ConnectionSettings(container_id="r", sasl=Asking()), server=True, now=0.0)
    connection.receive_data(SASL_HEADER + encode_frame(SASL_FRAME, 0, SaslInit(Symbol("ASKING")).encode()), 0.0)
    return connection


def test_a_sasl_exchange_has_an_end_however_many_frames_it_has() -> None:
    connection = asking()
    response = encode_frame(SASL_FRAME, 0, SaslResponse(b"x" * 1_000).encode())
    said = [ended(connection, response) for _ in range(BEFORE_LOGIN // len(response) + 1)]
    assert set(said[:-2]) == {""}
    assert "too much input before authentication" in said


def test_a_sasl_frame_of_many_values_is_refused_before_it_is_decoded() -> None:
    connection = asking()
    many = b"\x00\x53\x43\xd0" + (1_004).to_bytes(4, "big") + (1_000).to_bytes(4, "big") + b"\x40" * 1_000
    assert "more than 512 values" in ended(connection, encode_frame(SASL_FRAME, 0, many))
