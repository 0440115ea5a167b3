"""python-qpid-proton's own style of programs: reactor (simple_send, simple_recv) and blocking."""

from __future__ import annotations

import pytest

from tests.interop.conftest import Way
from tests.interop.raw import MODES, unique
from tests.running import python

COUNT = 500


@pytest.mark.parametrize("mode", MODES)
def test_simple_send_reaches_simple_recv(way: Way, mode: str) -> None:
    address = unique("simple")
    with python("simple_recv", f"amqp://{way.subscribe}/{address}", COUNT, mode) as receiver:
        assert receiver.line() == "attached"
        with python("simple_send", f"amqp://{way.publish}/{address}", COUNT, mode) as sender:
            word = "sent" if mode == "pre-settled" else "confirmed"
            assert sender.rest() == [f"{COUNT} messages {word}"]
        assert receiver.rest() == [f"{{'sequence': {number}}}" for number in range(1, COUNT + 1)]


@pytest.mark.parametrize("mode", MODES)
def test_a_publisher_and_a_subscriber_need_not_agree_on_the_mode(way: Way, mode: str) -> None:
    address = unique("mixed")
    with (
        python("simple_recv", f"amqp://{way.subscribe}/{address}", 50, "second") as second,
        python("simple_recv", f"amqp://{way.subscribe}/{address}", 50, "unsettled") as first,
        python("simple_recv", f"amqp://{way.subscribe}/{address}", 50, "pre-settled") as settled,
    ):
        receivers = (second, first, settled)
        assert [receiver.line() for receiver in receivers] == ["attached"] * 3
        with python("simple_send", f"amqp://{way.publish}/{address}", 50, mode) as sender:
            sender.rest()
        for receiver in receivers:
            assert receiver.rest() == [f"{{'sequence': {number}}}" for number in range(1, 51)]


def test_blocking_send_reaches_blocking_receive(way: Way) -> None:
    address = unique("blocking")
    with python("blocking_recv", way.subscribe, address, 50) as receiver:
        assert receiver.line() == "attached"
        with python("blocking_send", way.publish, address, 50) as sender:
            assert sender.rest() == ["50 messages confirmed"]
        assert receiver.rest() == [f"{{'sequence': {number}}}" for number in range(1, 51)]


def test_a_publisher_that_was_first_waits_for_its_subscriber(way: Way) -> None:
    """no_subscribers: hold, the default: no credit, so nothing can be lost or in doubt."""
    address = unique("hold")
    with python("simple_send", f"amqp://{way.publish}/{address}", 20, "second") as sender:
        with python("simple_recv", f"amqp://{way.subscribe}/{address}", 20, "second") as receiver:
            assert receiver.line() == "attached"
            assert receiver.rest() == [f"{{'sequence': {number}}}" for number in range(1, 21)]
        assert sender.rest() == ["20 messages confirmed"]
