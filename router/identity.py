"""What a client says of itself beyond AMQP: the link properties `onceway:*`, and how a publisher is named in messages.

PROTOCOL 1 gives the words, contract 8 the message annotation.  Knows values and their types, no link and no rule about
what follows from them.  Read `router.negotiation` next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from amqp10.codec import encode_value
from amqp10.errors import INVALID_FIELD, RemoteProtocolError
from amqp10.types import Symbol, Timestamp, ULong
from router.ports import Term

EPOCH: Final = "onceway:epoch"
INCARNATION: Final = "onceway:incarnation"
BORN: Final = "onceway:born"
UNIQUE_TAGS: Final = "onceway:unique-tags"
TERM: Final = "onceway:term"
RESUMED: Final = "onceway:resumed"
MARKS: Final = "onceway:marks"
GUARANTEE: Final = "onceway:guarantee"
REJECTED: Final = "onceway:rejected"
"""Contract 14: the condition of a rejected publication, and in its info map how many subscriptions rejected it."""

PUBLISHER_ANNOTATION: Final = "x-opt-onceway-publisher"


MAX_EPOCH: Final = 1 << 63


def number(properties: Mapping[Any, Any] | None, key: str) -> int | None:
    """An optional link property that is a ulong; other integer types are taken where their value fits."""
    value = (properties or {}).get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool | Timestamp) or not 0 <= value < 1 << 64:
        raise RemoteProtocolError(INVALID_FIELD, f"attach.properties: {key} must be a ulong, not {value!r:.60}")
    return int(value)


def epoch(properties: Mapping[Any, Any] | None) -> int | None:
    """The link property `onceway:epoch`: below 2**63, so that there are always later ones."""
    value = number(properties, EPOCH)
    if value is not None and value >= MAX_EPOCH:
        raise RemoteProtocolError(INVALID_FIELD, f"attach.properties: {EPOCH} must be below 2**63, not {value}")
    return value


def flag(properties: Mapping[Any, Any] | None, key: str) -> bool:
    """An optional link property that is a boolean; absent means false."""
    value = (properties or {}).get(key)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise RemoteProtocolError(INVALID_FIELD, f"attach.properties: {key} must be a boolean, not {value!r:.60}")
    return value


def term_value(term: Term) -> list[Any]:
    """A term on the wire: [ulong, string]."""
    return [ULong(term[0]), term[1]]


def properties(
    *,
    guarantee: str,
    term: Term | None = None,
    incarnation: int | None = None,
    resumed: bool | None = None,
    marks: list[Term] | None = None,
) -> dict[Symbol, Any]:
    """The properties of an answering attach; what is None is left out."""
    answer: dict[Symbol, Any] = {Symbol(GUARANTEE): Symbol(guarantee)}
    if term is not None:
        answer[Symbol(TERM)] = term_value(term)
    if incarnation is not None:
        answer[Symbol(INCARNATION)] = ULong(incarnation)
    if resumed is not None:
        answer[Symbol(RESUMED)] = resumed
    if marks is not None:
        answer[Symbol(MARKS)] = [term_value(mark) for mark in marks]
    return answer


def publisher_annotation(container: str, name: str) -> bytes:
    """The encoded value of the annotation `x-opt-onceway-publisher`: list [container-id, link name]."""
    return encode_value([container, name])
