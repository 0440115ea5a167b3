"""Clients that vanish, stall or break rules: the right AMQP error, and nobody else notices.

`Witness` is everybody else.  The clients are written by hand, frame by frame (byhand.py).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import pytest
from proton import uint

from tests.interop import byhand
from tests.interop.byhand import ATTACH, BEGIN, CLOSE, DETACH, DISPOSITION, END, FLOW, OPEN, TRANSFER, ByHand
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


def test_more_transfers_than_credit_detach_the_link(at: str) -> None:
    address = unique("greedy")
    with ByHand(at) as subscriber, ByHand(at) as client:
        subscriber.start(unique("slow"))
        subscriber.subscriber("s", address)  # which accepts nothing: else there might always be new credit in time
        client.start(unique("greedy"))
        credit = client.publisher("p", address)
        client.send(*[byhand.transfer(0, number, BODY) for number in range(credit + 5_000)])
        detach = client.next(DETACH)
        assert detach.error == "amqp:link:transfer-limit-exceeded"
        assert detach.fields[1] is True  # closed


def test_a_transfer_without_any_credit_detaches_the_link(at: str) -> None:
    with ByHand(at) as client:
        client.start(unique("greedy"))
        client.send(byhand.attach_sender("p", 0, unique("nobody-listens")), byhand.transfer(0, 0, BODY))
        assert client.next(DETACH).error == "amqp:link:transfer-limit-exceeded"


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


def test_a_message_beyond_max_message_size_detaches_the_link(at: str) -> None:
    address = unique("large")
    with Subscriber(at, address), ByHand(at) as client:
        client.start(unique("large"))
        client.publisher("p", address)
        advertised = client.all(ATTACH)[0].fields[10]
        assert advertised == 1 << 20
        for _ in range(40):
            client.send(byhand.transfer(0, 0, b"z" * (1 << 20 >> 4), more=True))
            if client.receive(0.0005) and client.all(DETACH):
                break
        assert client.next(DETACH).error == "amqp:link:message-size-exceeded"


# --- the rules of frames

FRAMING = "amqp:connection:framing-error"
# (what it sends, what ends, with which error); the engine's own tests have each rule in detail
BROKEN: dict[str, tuple[Callable[[ByHand], bytes], int, str]] = {
    "a frame beyond max-frame-size": (
        lambda client: struct.pack(">IBBH", client.all(OPEN)[0].fields[2] + 1, 2, 0, 0), CLOSE, FRAMING
    ),
    "a frame shorter than its header": (lambda _: struct.pack(">IBBH", 7, 2, 0, 0), CLOSE, FRAMING),
    "an unknown performative": (lambda _: byhand.frame(0x7F, "what"), CLOSE, "amqp:decode-error"),
    "a field of the wrong type": (lambda _: byhand.frame(ATTACH, "p", "no handle", False), CLOSE, "amqp:invalid-field"),
    "a second open": (lambda _: byhand.open_("again"), CLOSE, "amqp:illegal-state"),
    "a begin beyond channel-max": (
        lambda client: byhand.begin(channel=client.all(OPEN)[0].fields[3] + 1), CLOSE, FRAMING
    ),
    "a frame on a channel without session": (
        lambda _: byhand.attach_sender("p", 0, "anywhere", channel=7), CLOSE, "amqp:illegal-state"
    ),
    "a handle that is not attached": (lambda _: byhand.transfer(5, 0, BODY), END, "amqp:session:unattached-handle"),
    "a handle beyond handle-max": (
        lambda client: byhand.attach_sender("p", client.all(BEGIN)[0].fields[4] + 1, "anywhere"), CLOSE, FRAMING
    ),
    "a transfer on a link of the wrong direction": (
        lambda _: byhand.attach_receiver("s", 1, "anywhere") + byhand.transfer(1, 0, BODY), END,
        "amqp:session:errant-link",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_rule_of_frames_ends_the_connection_or_the_session(at: str, what: str) -> None:
    octets, ends, error = BROKEN[what]
    with ByHand(at) as client:
        client.start(unique("frames"))
        client.send(octets(client))
        assert client.next(ends).error == error


def test_a_handle_in_use_ends_the_session(at: str) -> None:
    address = unique("handles")
    with Subscriber(at, address), ByHand(at) as client:
        client.start(unique("handles"))
        client.publisher("p", address)
        client.send(byhand.attach_sender("q", 0, address))
        assert client.next(END).error == "amqp:session:handle-in-use"


def test_a_delivery_id_that_jumps_ends_the_session(at: str) -> None:
    """2.5.6: ids of a session run on by one."""
    address = unique("ids")
    with Subscriber(at, address), ByHand(at) as client:
        client.start(unique("ids"))
        client.publisher("p", address)
        client.send(byhand.transfer(0, 0, BODY), byhand.transfer(0, 77, BODY))
        assert client.next(END).error is not None


def test_dispositions_for_deliveries_that_never_were_change_nothing(at: str) -> None:
    address = unique("nothing")
    with ByHand(at) as client:
        client.start(unique("nothing"))
        client.subscriber("s", address)
        client.send(byhand.accept(1_000, 5_000), byhand.accept(0, 2**32 - 1), byhand.accept(2**31, 5))
        client.send(byhand.link_flow(1, 0, 100))
        # The accept of what had not been sent yet counts for nothing: it has to accept what comes.
        with Subscriber(at, address) as other, ByHand(at) as publisher:
            publisher.start(unique("p"))
            publisher.publisher("p", address)
            publisher.send(byhand.transfer(0, 0, BODY))
            client.next(TRANSFER)
            other.wait(1)
            assert not publisher.wait_maybe(lambda: publisher.all(DISPOSITION), 0.3)
            client.send(byhand.accept(0, 0))
            publisher.next(DISPOSITION)


def test_another_protocol_is_answered_with_a_protocol_header(at: str) -> None:
    for greeting in (b"GET / HTTP/1.1\r\n\r\n", b"AMQP\x00\x00\x09\x01", b"\x16\x03\x01\x02\x00\x01\x00\x01"):
        with ByHand(at) as client:
            client.send(greeting)
            client.wait_closed()
            assert client.headers, greeting
            assert client.headers[0][:4] == b"AMQP"


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


def test_a_message_without_to_on_a_link_without_address_is_rejected_alone(at: str) -> None:
    with ByHand(at) as client:
        client.start(unique("anonymous"))
        client.send(byhand.attach_sender("p", 0, None))
        attach = client.next(ATTACH)
        assert attach.fields[6].value[0] is None  # a target, without an address
        client.next(FLOW)
        client.send(byhand.transfer(0, 0, BODY))
        outcome = client.next(DISPOSITION)
        assert outcome.fields[3] is True  # settled
        assert outcome.fields[4].descriptor == 0x25
        assert str(outcome.fields[4].value[0].value[0]) == "amqp:invalid-field"
        assert client.all(DETACH) == []


def test_flow_with_silly_numbers_changes_nothing_for_others(at: str) -> None:
    address = unique("silly")
    with Subscriber(at, address) as other, ByHand(at) as client:
        client.start(unique("silly"))
        client.subscriber("s", address, credit=0)
        client.send(byhand.link_flow(1, 2**32 - 1, 2**32 - 1, window=0))
        client.send(byhand.frame(FLOW, uint(5), uint(2**32 - 1), uint(2**31), uint(0), uint(1), uint(77), uint(0)))
        client.send(byhand.frame(CLOSE))
        client.wait_closed()
        assert publish(at, address, [BODY] * 10) == ["accepted"] * 10
        other.wait(10)
