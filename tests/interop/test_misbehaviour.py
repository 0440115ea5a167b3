"""Clients that vanish, stall or go on regardless: the right AMQP error, and nobody else notices.

`Witness` is everybody else.  The clients are written by hand, frame by frame (byhand.py).  Each rule of frames, links and
credit: tests/amqp10; what a router makes of any octets: tests/fuzz.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from proton import uint

from tests.interop import byhand
from tests.interop.byhand import CLOSE, DETACH, DISPOSITION, END, FLOW, OPEN, TRANSFER, ByHand
from tests.interop.raw import Subscriber, data_section, publish, unique
from tests.interop.witness import Witness
from tests.live import PATIENT, LiveNetwork, wait_until
from tests.live_fixture import LiveNetworks

BODY = data_section(b"x" * 100)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveNetwork]:
    """A pair with little memory, so that limits are reached quickly."""
    settings = {**PATIENT, "memory_limit": "4MiB", "window_bytes": "64MiB", "max_message_size": "1MiB"}
    with LiveNetwork(tmp_path_factory.mktemp("pair"), ("a", "b"), [("a", "b")], settings=settings) as network:
        yield network.start()


@pytest.fixture
def at(network: LiveNetwork) -> Iterator[str]:
    """Where to misbehave; a witness watches beside it, and every trace must be gone at the end."""
    with Witness(network["a"].address, network["b"].address):
        yield network["a"].address
    wait_until(lambda: not any(router.leftovers() for router in network), f"{network['a'].leftovers()} to be gone")
    for router in network:
        assert "Traceback" not in router.log_tail(10_000), router.log_tail()


# --- vanishing


@pytest.mark.parametrize("second", [False, True], ids=["first", "second"])
def test_a_publisher_that_vanishes_leaves_nothing_behind(at: str, second: bool) -> None:
    address = unique("vanish")
    with Subscriber(at, address, mode="second") as subscriber:
        client = ByHand(at).start(unique("vanishing"))
        client.publisher("p", address, second=second)
        for number in range(20):
            client.wait(lambda number=number: client.limit() > number, "credit")  # type: ignore[misc]
            client.send(byhand.transfer(0, number, BODY))
        client.wait(lambda: client.limit() > 20, "credit")
        client.send(byhand.transfer(0, 20, BODY[:50], more=True))
        client.wait(lambda: client.all(DISPOSITION), "an outcome")
        subscriber.wait(20)
        client.reset()
    # protocol 6.6, 8.4: what it never settled ends with it; the half message was never a message
    assert len(subscriber.received) == 20


def test_a_subscriber_that_vanishes_stalls_nobody(at: str) -> None:
    """Its source's timeout is AMQP's default, 0: it is not waited for."""
    address = unique("vanish")
    with Subscriber(at, address) as other:
        client = ByHand(at).start(unique("vanishing"))
        client.subscriber("s", address, credit=1_000)
        payloads = [BODY] * 500
        # the outcomes need the vanished one's accept, or its end
        outcomes: list[str] = []
        client.send(byhand.link_flow(1, 0, 1_000))
        client.reset()
        outcomes = publish(at, address, payloads)
        assert outcomes == ["accepted"] * 500
        other.wait(500)


def test_a_client_that_says_nothing_more_is_closed_after_the_idle_time_out(live_network: LiveNetworks) -> None:
    at = live_network("a", settings={"idle_timeout": "6s"})["a"].address  # the witness must say something in time, too
    with Witness(at, at) as witness, ByHand(at) as client:
        client.start(unique("silent"))
        assert client.all(OPEN)[0].fields[4] == 3_000  # 2.4.5: half of it, so that both have time
        client.subscriber("s", witness.address, credit=5)
        # The topic waits for the silent one, until it is given up.
        client.wait_closed()
        assert client.all(CLOSE)[0].error in {"amqp:resource-limit-exceeded", "amqp:connection:forced"}


# --- stalling


def test_a_subscriber_that_stops_reading_slows_its_own_topic_only(at: str) -> None:
    address = unique("stall")
    with ByHand(at, receive_buffer=4_096) as client:
        client.start(unique("stalled"), idle_ms=None)
        client.subscriber("s", address, credit=100_000)
        with ByHand(at) as publisher:
            publisher.start(unique("publisher"))
            publisher.publisher("p", address)
            sent = 0
            # As long as there is credit: until the stalled one's window is full.
            while sent < 5_000:
                limit = publisher.limit()
                if sent < limit:
                    count = min(limit - sent, 200)
                    publisher.send(*[byhand.transfer(0, sent + n, data_section(b"y" * 4_000)) for n in range(count)])
                    sent += count
                elif not publisher.receive(0.3):
                    break
            assert 0 < sent < 5_000, "the topic was not slowed"
            assert not publisher.all(DETACH)
            publisher.send(byhand.frame(CLOSE))


# --- credit and windows


def test_transfers_beyond_the_session_window_end_the_session(network: LiveNetwork, at: str) -> None:
    """At the memory limit the window is renewed no more; a client that goes on regardless is told so."""
    address = unique("flood")
    with ByHand(at) as stalled, ByHand(at) as client:
        stalled.start(unique("stalled"))
        stalled.subscriber("s", address, credit=0)
        client.start(unique("flooding"))
        large = data_section(b"z" * 1_000_000)
        links = 6  # one alone is not given so much credit
        for handle in range(links):  # before the memory is taken: what others have left of it may be less than all
            client.publisher(f"p{handle}", address, handle)
        for handle in range(links):
            client.send(byhand.transfer(handle, handle, large))
        wait_until(lambda: network["a"].status()["sessions_closed_for_memory"], "the window to close")
        window = client.all(FLOW)[-1].fields[1]
        client.send(*[byhand.transfer(0, links, b"", more=True) for _ in range(window + 1)])
        assert client.next(END).error == "amqp:session:window-violation"


def test_a_transfer_in_a_transaction_is_refused_and_not_published(at: str) -> None:
    address = unique("transaction")
    with Subscriber(at, address) as other, ByHand(at) as client:
        client.start(unique("transaction"))
        client.publisher("p", address)
        state = byhand.described(0x34, b"txn")  # transactional-state
        client.send(byhand.frame(TRANSFER, uint(0), uint(0), b"t", uint(0), False, False, None, state, payload=BODY))
        assert client.next(DETACH).error == "amqp:not-implemented"
        client.publisher("q", address, 1)
        client.send(byhand.transfer(1, 1, data_section(b"after")))
        assert [each.payload.endswith(data_section(b"after")) for each in other.wait(1)] == [True]
