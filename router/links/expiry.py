"""Messages whose time is over, where an address has `expire: true` (protocol 6.4.8).

A message's ttl counts from when its ingress takes it. The ingress writes down when that ends, in an annotation, so that
the message may wait anywhere. `properties.absolute-expiry-time` is the publisher's own, and counts as it is.
"""

from __future__ import annotations

from typing import Final

from amqp10.annotations import with_message_annotation
from amqp10.codec import encode_value
from amqp10.errors import DecodeError
from amqp10.sections import Glance, with_ttl
from amqp10.types import Timestamp

EXPIRES: Final = "x-opt-onceway-expires"


def with_expiry(payloads: list[bytes], now_ms: int) -> list[bytes]:
    """The payloads of messages, each with a ttl annotated with the time at which it ends. A header that cannot be read
    has none."""
    return [_with_expiry(payload, now_ms) for payload in payloads]


def _with_expiry(payload: bytes, now_ms: int) -> bytes:
    try:
        ttl_ms = Glance(payload).header.ttl
    except DecodeError:
        return payload
    if ttl_ms is None:
        return payload
    return with_message_annotation(payload, EXPIRES, encode_value(Timestamp(now_ms + ttl_ms)))


def expired(payloads: list[bytes], message_format: int, now_ms: int) -> list[int]:
    """Returns the indexes of those whose time is over."""
    if message_format:
        return []
    times = [ends_at(payload) for payload in payloads]
    return [i for i, time in enumerate(times) if time is not None and time <= now_ms]


def with_time_left(payloads: list[bytes], message_format: int, now_ms: int) -> list[bytes]:
    """The payloads, with ttls that are less by the time that their messages have waited (AMQP 3.2.1)."""
    return payloads if message_format else [_with_time_left(payload, now_ms) for payload in payloads]


def _with_time_left(payload: bytes, now_ms: int) -> bytes:
    try:
        ends_ms = Glance(payload).annotation(EXPIRES)
    except DecodeError:
        return payload
    return with_ttl(payload, max(ends_ms - now_ms, 1)) if isinstance(ends_ms, int) else payload


def ends_at(payload: bytes) -> int | None:
    """When the time of a message is over, in ms of the wall clock. What cannot be read has none."""
    try:
        glance = Glance(payload)
        times = glance.properties.absolute_expiry_time, glance.annotation(EXPIRES)
    except DecodeError:
        return None
    return min([time for time in times if isinstance(time, int)], default=None)
