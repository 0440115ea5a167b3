"""Performatives and what they are made of, as Hypothesis draws them and tests write and read them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from amqp10.codec import encode_value
from amqp10.performatives import (
    ACCEPTED,
    RELEASED,
    Attach,
    Begin,
    Close,
    Coordinator,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Modified,
    Open,
    Received,
    Rejected,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    Source,
    Target,
    Transfer,
    decode_performative,
)
from amqp10.types import Described, ULong
from tests.amqp10.values import SYMBOLS, TEXT, VALUES

DECODE = "amqp:decode-error"
INVALID = "amqp:invalid-field"

uints = st.sampled_from([0, 1, 255, 256, 2**32 - 1]) | st.integers(0, 2**32 - 1)
ushorts = st.integers(0, 65535)
booleans = st.booleans()
tags = st.binary(max_size=32)
fields = st.dictionaries(SYMBOLS, VALUES, max_size=2)
symbol_tuples = st.lists(SYMBOLS, max_size=3).map(tuple)


def optional(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


errors = st.builds(Error, SYMBOLS, optional(TEXT), optional(fields))
states = st.one_of(
    st.just(ACCEPTED),
    st.just(RELEASED),
    st.builds(Rejected, optional(errors)),
    st.builds(Modified, booleans, booleans, optional(fields)),
    st.builds(Received, uints, st.integers(0, 2**64 - 1)),
    st.builds(Described, st.just(ULong(0x34)), st.lists(st.binary(max_size=5), max_size=2)),
)
sources = st.builds(
    Source,
    optional(TEXT),
    st.integers(0, 2),
    SYMBOLS,
    uints,
    booleans,
    optional(fields),
    optional(SYMBOLS),
    optional(fields),
    optional(states),
    symbol_tuples,
    symbol_tuples,
)
targets = st.builds(
    Target, optional(TEXT), st.integers(0, 2), SYMBOLS, uints, booleans, optional(fields), symbol_tuples
) | st.builds(Coordinator, symbol_tuples)
transfers = st.builds(
    Transfer,
    uints,
    optional(uints),
    optional(tags),
    optional(uints),
    optional(booleans),
    booleans,
    optional(st.integers(0, 1)),
    optional(states),
    booleans,
    booleans,
    booleans,
)
flows = st.builds(
    Flow,
    optional(uints),
    uints,
    uints,
    uints,
    optional(uints),
    optional(uints),
    optional(uints),
    optional(uints),
    booleans,
    booleans,
    optional(fields),
)
dispositions = st.builds(Disposition, booleans, uints, optional(uints), booleans, optional(states), booleans)
performatives = st.one_of(
    st.builds(
        Open,
        TEXT,
        optional(TEXT),
        uints,
        ushorts,
        optional(uints),
        symbol_tuples,
        symbol_tuples,
        symbol_tuples,
        symbol_tuples,
        optional(fields),
    ),
    st.builds(Begin, optional(ushorts), uints, uints, uints, uints, symbol_tuples, symbol_tuples, optional(fields)),
    st.builds(
        Attach,
        TEXT,
        uints,
        booleans,
        st.integers(0, 2),
        st.integers(0, 1),
        optional(sources),
        optional(targets),
        optional(st.dictionaries(tags, optional(states), max_size=4)),
        booleans,
        optional(uints),
        optional(st.integers(0, 2**64 - 1)),
        symbol_tuples,
        symbol_tuples,
        optional(fields),
    ),
    flows,
    transfers,
    dispositions,
    st.builds(Detach, uints, booleans, optional(errors)),
    st.builds(End, optional(errors)),
    st.builds(Close, optional(errors)),
    st.builds(SaslMechanisms, symbol_tuples),
    st.builds(SaslInit, SYMBOLS, optional(st.binary(max_size=40)), optional(TEXT)),
    st.builds(SaslChallenge, st.binary(max_size=40)),
    st.builds(SaslResponse, st.binary(max_size=40)),
    st.builds(SaslOutcome, st.integers(0, 4), optional(st.binary(max_size=40))),
)


def described(code: int, *values: Any) -> bytes:
    return encode_value(Described(ULong(code), list(values)))


def decode(data: bytes) -> Any:
    performative, end = decode_performative(data, 0, len(data))
    assert end == len(data)
    return performative
