"""Conversations of valid and slightly invalid performatives: protocol errors on the wire and nothing else comes of them.

`make fuzz` runs more of them, with other seeds.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp10.frames import AMQP_HEADER, SASL_HEADER
from amqp10.performatives import Attach, Begin, Flow, Open
from amqp10.termini import Source, Target
from chaos.fuzz.targets import ENGINES, Routed, cut, feed, feed_an_owner, frame, parting
from tests.fuzz.conftest import PROFILE
from tests.fuzz.strategies import OPENS, Step, conversations, render

SEEDS = st.integers(0, 2**16)


def prelude(opened: Open) -> bytes:
    """Two sessions; on each a link to publish with, one to subscribe with, and credit for that."""
    octets = AMQP_HEADER + frame(opened)
    for channel in (0, 1):
        sending = Attach(f"in {channel}", 0, False, target=Target("s" if channel else "t"), initial_delivery_count=0)
        receiving = Attach(f"out {channel}", 1, True, rcv_settle_mode=1, source=Source("t", timeout=channel))
        credit = Flow(0, 1000, 0, 1000, handle=1, delivery_count=0, link_credit=30)
        octets += frame(Begin(None, 0, 1000, 1000), channel)
        octets += b"".join(frame(performative, channel) for performative in (receiving, sending, credit))
    return octets


@pytest.mark.parametrize("side", ENGINES)
def test_whole_input_and_single_octets_cause_the_same_events(side: str) -> None:
    @PROFILE
    @given(conversations())
    def same(steps: list[Step]) -> None:
        octets = render(steps) if not side.endswith("start") else prelude(Open("c")) + render(steps)
        whole = feed(ENGINES[side](), [octets])
        single = feed(ENGINES[side](), [octets[i : i + 1] for i in range(len(octets))])
        assert whole == single, parting(whole, single)

    same()


@pytest.mark.parametrize("side", ["server", "client"])
def test_an_owner_who_answers_gets_no_exception(side: str) -> None:
    @PROFILE
    @given(conversations(), SEEDS)
    def harmless(steps: list[Step], seed: int) -> None:
        rng = random.Random(seed)
        feed_an_owner(ENGINES[side](), cut(render(steps), rng), rng)

    harmless()


def test_a_router_survives_and_forgets_a_stranger() -> None:
    @PROFILE
    @given(OPENS, conversations(), SEEDS, st.sampled_from([True, True, False]))
    def survives(opened: Open, steps: list[Step], seed: int, plain: bool) -> None:
        routed = Routed()
        routed.feed([prelude(Open("c") if plain else opened)])
        routed.feed(cut(render(steps), random.Random(seed)))
        routed.status()
        routed.leave()

    survives()


def test_a_handshake_that_is_none_ends_the_connection() -> None:
    @PROFILE
    @given(st.lists(st.sampled_from([AMQP_HEADER, SASL_HEADER]) | st.binary(max_size=20), max_size=4), SEEDS)
    def ends(parts: list[bytes], seed: int) -> None:
        octets = b"".join(parts)
        for side in ("server-start", "client-start"):
            whole = feed(ENGINES[side](), [octets])
            pieces = feed(ENGINES[side](), cut(octets, random.Random(seed)))
            assert whole == pieces, parting(whole, pieces)

    ends()
