"""python-qpid-proton, byte by byte: what goes in at one router comes out at another, in every mode."""

from __future__ import annotations

import pytest

from tests.interop import messages
from tests.interop.conftest import Way
from tests.interop.raw import MODES, Subscriber, publish, unique


def carry(way: Way, mode: str, samples: list[messages.Sample]) -> None:
    address = unique("bodies")
    with Subscriber(way.subscribe, address, mode=mode) as subscriber:
        outcomes = publish(way.publish, address, [sample.payload for sample in samples], mode=mode)
        assert set(outcomes) == {"settled" if mode == "pre-settled" else "accepted"}
        received = subscriber.wait(len(samples))
    assert len(subscriber.received) == len(samples)
    for sample, delivery in zip(samples, received, strict=True):
        sample.check(delivery.payload)
    assert {delivery.settled for delivery in received} == {mode == "pre-settled"}
    assert len({delivery.tag for delivery in received}) == len(samples)
    assert max(len(delivery.tag) for delivery in received) <= 32


@pytest.mark.parametrize("mode", MODES)
def test_every_body_type_arrives_as_it_was_sent(way: Way, mode: str) -> None:
    carry(way, mode, messages.bodies())


@pytest.mark.parametrize("mode", MODES)
def test_every_other_section_arrives_as_it_was_sent(way: Way, mode: str) -> None:
    carry(way, mode, messages.sections())


@pytest.mark.parametrize("mode", MODES)
def test_ten_megabytes_arrive_between_small_messages(way: Way, mode: str) -> None:
    carry(way, mode, [messages.plain(1), messages.plain(messages.LARGEST), messages.plain(0), messages.plain(2)])


@pytest.mark.parametrize("mode", MODES)
def test_every_subscriber_gets_everything_in_order(way: Way, mode: str) -> None:
    address = unique("fan")
    samples = [messages.data_section(b"%d" % n) for n in range(500)]
    here, there = way.publish, way.subscribe
    with (
        Subscriber(there, address, mode=mode) as first,
        Subscriber(there, address, mode="unsettled", credit=7) as second,
        Subscriber(here, address, mode="second") as third,
    ):
        publish(way.publish, address, samples, mode=mode)
        for subscriber in (first, second, third):
            received = [delivery.payload[-len(s) :] for delivery, s in zip(subscriber.wait(500), samples, strict=True)]
            assert received == samples
        # The outgoing tag is the same at every router and for every subscriber.
        tags = [[delivery.tag for delivery in subscriber.received] for subscriber in (first, second, third)]
    assert tags[0] == tags[1] == tags[2]
