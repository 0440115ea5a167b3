"""Conversations as lists of steps: mostly valid AMQP, then one thing or another that is not.

A step says what to send relative to what went before (the next delivery-id, more or less), so that taking steps out
leaves a conversation that still makes sense: that is how hypothesis shrinks it. `render` turns steps into bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st

from amqp10.codec import decode_value, encode_value
from amqp10.frames import AMQP_FRAME, EMPTY_FRAME, encode_frame
from amqp10.outcomes import ACCEPTED, RELEASED, Error, Modified, Received, Rejected
from amqp10.performatives import Attach, Begin, Close, Detach, Disposition, End, Flow, Open, Performative, Transfer
from amqp10.termini import Coordinator, Source, Target
from amqp10.types import Described, Symbol, UInt, ULong
from tests.amqp10.values import VALUES

# What ends session or connection at once comes seldom: a conversation should get somewhere.
CHANNELS = st.sampled_from([0] * 24 + [1] * 12 + [2, 7, 8])
HANDLES = st.sampled_from([0] * 20 + [1] * 14 + [2, 3, 15, 16, 2**32 - 1])
IDS = st.sampled_from([0, 1, 5, 9, 10, 2**31 - 1, 2**31, 2**32 - 1])
WINDOWS = st.sampled_from([0, 1, 10, 1000, 2**31 - 1, 2**32 - 1])
TAGS = st.binary(max_size=33) | st.integers(0, 3).map(lambda n: b"tag-%d" % n)
NAMES = st.sampled_from(["in", "out", "a", "b", "c", "", "\0", "€"] * 4 + ["n" * 600])
ADDRESSES = st.sampled_from(["t", "s", "other"] * 5 + ["", None, "x" * 300])
STATES = st.sampled_from(
    [
        None,
        None,
        ACCEPTED,
        ACCEPTED,
        RELEASED,
        Rejected(),
        Rejected(Error("amqp:not-found", "d" * 100, {Symbol("k"): "v"})),
        Modified(True, True, {Symbol("x-opt"): 1}),
        Modified(),
        Received(0, 0),
        Described(ULong(0x99), [True]),
    ]
)
EPOCHS = st.sampled_from([0, 1, 2, 7, 2**63, 2**64 - 1])
KEYS = ("onceway:epoch", "onceway:incarnation", "onceway:born")
PROPERTIES = st.none() | st.dictionaries(
    st.sampled_from([Symbol(key) for key in KEYS]), EPOCHS.map(ULong) | st.sampled_from([None, "x", -1]), max_size=3
)
UNIQUE = st.just({Symbol("onceway:unique-tags"): True})
MAPS = st.none() | st.dictionaries(TAGS.filter(lambda tag: len(tag) <= 32), STATES, max_size=5)
MESSAGES = st.sampled_from(
    [
        b"\x00Su\xa0\x03abc",
        b"\x00Sw\xa1\x01x",
        b"\x00Sp\xc0\x02\x01A\x00Su\xa0\x01y",
        b"\x00Sr\xc1\x01\x00\x00Su\xa0\x00",
        b"",
        b"\x00",
        b"\x00Sz",
        b"\x00Su\xb0\x00\x00\x03\xe8" + b"z" * 1000,
    ]
)


@dataclass(slots=True)
class State:
    """What went before."""

    next_id: dict[int, int] = field(default_factory=dict)
    handles: set[tuple[int, int]] = field(default_factory=lambda: {(c, h) for c in (0, 1) for h in (0, 1)})
    out: list[bytes] = field(default_factory=list)

    def write(self, performative: Performative, channel: int, payload: bytes = b"") -> None:
        self.out.append(encode_frame(AMQP_FRAME, channel, performative.encode() + payload))


@dataclass(frozen=True, slots=True)
class Said:
    """A performative as it is."""

    performative: Performative
    channel: int

    def render(self, state: State) -> None:
        performative, channel = self.performative, self.channel
        if isinstance(performative, Attach):
            handle = performative.handle
            while (channel, handle) in state.handles and handle < 15:
                handle += 1
            state.handles.add((channel, handle))
            performative = replace(performative, handle=handle)
        elif isinstance(performative, Detach):
            state.handles.discard((channel, performative.handle))
        state.write(performative, channel)


@dataclass(frozen=True, slots=True)
class Deliveries:
    """Transfers whose ids go on from the last; `skew` away from what would be right. In `pieces` frames each, the last
    of which may be missing; `settle` puts a disposition behind each, as proton does."""

    channel: int
    handle: int
    count: int
    skew: int
    tag: bytes | None
    payload: bytes
    settled: bool | None
    pieces: int
    broken_off: bool
    aborted: bool
    resume: bool
    state: Any
    settle: bool

    def render(self, state: State) -> None:
        for _ in range(self.count):
            delivery_id = (state.next_id.get(self.channel, 0) + self.skew) & 0xFFFFFFFF
            state.next_id[self.channel] = (delivery_id + 1) & 0xFFFFFFFF
            tag = b"%d" % delivery_id if self.tag is None else self.tag[:32]
            for piece in range(self.pieces):
                last = piece == self.pieces - 1
                if last and self.broken_off:
                    break
                transfer = Transfer(
                    self.handle,
                    delivery_id if not piece else None,
                    tag if not piece else None,
                    0 if not piece else None,
                    self.settled,
                    not last,
                    state=self.state,
                    resume=self.resume,
                    aborted=self.aborted and last,
                )
                state.write(transfer, self.channel, self.payload)
            if self.settle:
                state.write(Disposition(False, delivery_id, None, True, ACCEPTED), self.channel)


@dataclass(frozen=True, slots=True)
class Wrong:
    """A performative one of whose fields is something else, or which has more or fewer of them."""

    performative: Performative
    channel: int
    place: int
    value: Any
    fields: int

    def render(self, state: State) -> None:
        octets = self.performative.encode()
        described, _ = decode_value(octets)
        values = list(described.value)
        while len(values) <= self.place:
            values.append(None)
        values[self.place] = self.value
        values = (values + [None] * self.fields)[: max(len(values) + self.fields, 0)]
        body = encode_value(Described(described.descriptor, values))
        state.out.append(encode_frame(AMQP_FRAME, self.channel, body))


@dataclass(frozen=True, slots=True)
class Octets:
    """Anything at all, or a frame around it."""

    octets: bytes
    framed: bool

    def render(self, state: State) -> None:
        state.out.append(encode_frame(AMQP_FRAME, 0, self.octets) if self.framed else self.octets)


@dataclass(frozen=True, slots=True)
class Again:
    """The last frame again, and again; one byte of it changed."""

    times: int
    place: int
    mask: int

    def render(self, state: State) -> None:
        if not state.out or not state.out[-1]:
            return
        last = bytearray(state.out[-1])
        if self.mask:
            last[self.place % len(last)] ^= self.mask
        state.out += [bytes(last)] * self.times


Step = Said | Deliveries | Wrong | Octets | Again

OPENS = st.builds(
    Open,
    st.sampled_from(["c", "d", "", "\0"]),
    max_frame_size=st.sampled_from([511, 512, 600, 2048, 2**32 - 1]),
    channel_max=st.sampled_from([0, 1, 65535]),
    idle_time_out=st.sampled_from([None, 0, 10, 1000, 2**32 - 1]),
    properties=PROPERTIES,
)
BEGINS = st.builds(
    Begin,
    st.sampled_from([None, None, 0, 1, 5]),
    IDS,
    WINDOWS,
    WINDOWS,
    st.sampled_from([0, 1, 255, 2**32 - 1]),
)
TERMINI: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.builds(
        Target, ADDRESSES, timeout=st.sampled_from([0, 1, 2**32 - 1]), dynamic=st.sampled_from([False, False, True])
    ),
    st.builds(Target, st.sampled_from(["t", "s"]), capabilities=st.sampled_from([(), ("topic",), ("queue", "topic")])),
)
SOURCES: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.builds(
        Source,
        ADDRESSES,
        expiry_policy=st.sampled_from(["link-detach", "session-end", "connection-close", "never", "what"]),
        timeout=st.sampled_from([0, 1, 3, 2**32 - 1]),
        default_outcome=STATES,
        filter=st.sampled_from([None, {Symbol("f"): Described(Symbol("f"), "x")}]),
    ),
)
ATTACHES = st.builds(
    Attach,
    NAMES,
    st.sampled_from([0, 1, 2, 2, 3, 4, 5, 6]),
    st.booleans(),
    st.sampled_from([0, 1, 2, 2]),
    st.sampled_from([0, 1, 1]),
    SOURCES,
    st.sampled_from([0] * 15 + [1]).flatmap(lambda rare: st.just(Coordinator()) if rare else TERMINI),
    MAPS,
    st.sampled_from([False, False, False, True]),
    st.sampled_from([0, 0, 0, None, 5, 2**32 - 1]),
    st.sampled_from([None, 0, 1, 2**64 - 1]),
    properties=PROPERTIES | UNIQUE,
)
FLOWS = st.builds(
    Flow,
    st.none() | IDS,
    WINDOWS,
    IDS,
    WINDOWS,
    st.none() | HANDLES,
    st.none() | IDS,
    st.none() | WINDOWS,
    st.none() | IDS,
    st.booleans(),
    st.booleans(),
    st.none() | st.just({Symbol("p"): 1}),
)
RANGE = st.integers(0, 15) | IDS
DISPOSITIONS = st.builds(Disposition, st.booleans(), RANGE, st.none() | RANGE, st.booleans(), STATES)
ERRORS = st.none() | st.sampled_from([Error("amqp:not-found"), Error("c" * 200, "d" * 700)])
DETACHES = st.builds(Detach, HANDLES, st.booleans(), ERRORS)
ENDS = st.builds(End, ERRORS)
CLOSES = st.builds(Close, ERRORS)
QUIET: st.SearchStrategy[Performative] = st.one_of(ATTACHES, FLOWS, DISPOSITIONS, DETACHES)
PERFORMATIVES: st.SearchStrategy[Performative] = st.one_of(
    ATTACHES, ATTACHES, FLOWS, FLOWS, DISPOSITIONS, DISPOSITIONS, DETACHES, BEGINS, ENDS, OPENS, CLOSES
)
DELIVERIES = st.builds(
    Deliveries,
    st.sampled_from([0, 0, 1]),
    st.sampled_from([0] * 9 + [1]),
    st.integers(1, 12),
    st.sampled_from([0] * 12 + [1, -1, 2**31]),
    st.none() | TAGS,
    MESSAGES,
    st.sampled_from([None, None, False, True]),
    st.sampled_from([1, 1, 1, 2, 3]),
    st.sampled_from([False] * 7 + [True]),
    st.sampled_from([False] * 7 + [True]),
    st.sampled_from([False] * 7 + [True]),
    st.sampled_from([None] * 6 + [ACCEPTED, Received(0, 0)]),
    st.booleans(),
)
TRANSFERS = st.builds(
    Transfer,
    HANDLES,
    st.none() | st.integers(0, 12) | IDS,
    st.none() | TAGS.map(lambda tag: tag[:32]),
    st.sampled_from([None, 0, 1, 2**32 - 1]),
    st.sampled_from([None, False, True]),
    st.booleans(),
    st.sampled_from([None, None, 0, 1]),
    STATES,
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
FIELD_VALUES: st.SearchStrategy[Any] = VALUES | st.sampled_from(
    [None, UInt(2**32 - 1), ULong(2**64 - 1), [], {}, Described(ULong(0x1D), [])]
)
HARMLESS: st.SearchStrategy[Step] = st.one_of(
    DELIVERIES,
    DELIVERIES,
    st.builds(Said, QUIET, st.sampled_from([0, 0, 1])),
    st.builds(Said, ATTACHES, st.sampled_from([0, 0, 1])),
    st.builds(Again, st.integers(1, 20), st.just(0), st.just(0)),
)
HARMFUL: st.SearchStrategy[Step] = st.one_of(
    st.builds(Said, PERFORMATIVES, CHANNELS),
    st.builds(Said, TRANSFERS, CHANNELS),
    st.builds(
        Wrong,
        PERFORMATIVES | TRANSFERS,
        st.just(0),
        st.integers(0, 14),
        FIELD_VALUES,
        st.sampled_from([0, 0, 1, -1, -3]),
    ),
    st.builds(Octets, st.sampled_from([EMPTY_FRAME, b"AMQP\x00\x01\x00\x00"]) | st.binary(max_size=40), st.booleans()),
    st.builds(Again, st.integers(1, 20), st.integers(0, 60), st.sampled_from([1, 0x80, 0xFF])),
)


def conversations(max_size: int = 12) -> st.SearchStrategy[list[Step]]:
    """What a client might say, at most three times with something in between that ends most of it."""
    harmless = st.lists(HARMLESS, max_size=max_size)
    return st.builds(lambda first, bad, rest: first + bad + rest, harmless, st.lists(HARMFUL, max_size=3), harmless)


def render(steps: list[Step]) -> bytes:
    state = State()
    for step in steps:
        step.render(state)
    return b"".join(state.out)
