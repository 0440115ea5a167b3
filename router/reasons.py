"""What a subscriber says beside its outcome, or a router in its stead, as bytes between routers and as the error of a
publisher (protocol 6.4.9).

The bytes are an AMQP map: `condition`, `description` and `info` of a rejection's error, or the `annotations` of
modified. What is too large is shortened, as it is a help and no more.
"""

from __future__ import annotations

from typing import Any, Final

from amqp10.codec import decode_value, encode_value
from amqp10.errors import DecodeError
from amqp10.outcomes import DeliveryState, Error, Modified, Rejected
from amqp10.types import Symbol, UInt
from router import names
from router.core.messages import MOST_REASON
from router.core.ports import Refusal

CONDITION: Final = Symbol("condition")
DESCRIPTION: Final = Symbol("description")
SHORT: Final = 200  # characters


def reason_of(state: DeliveryState | None) -> bytes:
    """What a rejection, or a failure, says of itself; empty where it says nothing."""
    told: dict[Symbol, Any] = {}
    if isinstance(state, Rejected) and state.error is not None:
        told = {CONDITION: Symbol(state.error.condition[:SHORT])}
        if state.error.description:
            told[DESCRIPTION] = state.error.description
        if state.error.info:
            told[Symbol("info")] = state.error.info
    elif isinstance(state, Modified) and state.message_annotations:
        told = {Symbol("annotations"): state.message_annotations}
    encoded = encode_value(told) if told else b""
    if len(encoded) > MOST_REASON:
        short = {key: told[key][:SHORT] for key in (CONDITION, DESCRIPTION) if key in told}
        encoded = encode_value(short) if short else b""
    return encoded


def reason_of_refusal(refusal: Refusal) -> bytes:
    """What a router says of its own rejection."""
    return reason_of(Rejected(Error(Symbol(refusal.condition), refusal.description)))


def rejection(rejected: int, reason: bytes, queue: bool) -> Rejected:
    """What a publisher is told: by how many subscriptions, and what the last of them has said. Only one consumer of a
    queue can have said anything, so the publisher gets its error (protocol 16.5.1)."""
    info: dict[Any, Any] = {Symbol(names.REJECTED): UInt(rejected)}
    told = _read(reason)
    if queue and CONDITION in told:
        own = told.get(Symbol("info"))
        return Rejected(
            Error(told[CONDITION], told.get(DESCRIPTION), {**(own if isinstance(own, dict) else {}), **info})
        )
    if told:
        info[Symbol(names.REASON)] = told
    return Rejected(Error(Symbol(names.REJECTED), _sentence(rejected, told), info))


def sentence(rejected: int, reason: bytes) -> str:
    """The same in words, for MQTT: without what its strings do not have [MQTT-1.5.4-2]."""
    return "".join(c for c in _sentence(rejected, _read(reason)) if c.isprintable())


def _sentence(rejected: int, told: dict[Any, Any]) -> str:
    said = [str(told[key]) for key in (CONDITION, DESCRIPTION) if key in told]
    return ": ".join([f"rejected by {rejected} subscription{'s' if rejected != 1 else ''}", *said])


def _read(reason: bytes) -> dict[Any, Any]:
    try:
        value = decode_value(reason, 0, len(reason))[0] if reason else {}
    except DecodeError:
        return {}
    return value if isinstance(value, dict) else {}
