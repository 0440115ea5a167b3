"""python-qpid-proton's own engine against ours, in one process, both ways round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from amqp10 import (
    ACCEPTED,
    Connection,
    ConnectionClosed,
    Dispositions,
    Event,
    Link,
    LinkAttached,
    LinkAttaching,
    LinkDetached,
    LinkFlow,
    ReceiverLink,
    SenderLink,
    Source,
    Target,
    Transfers,
)
from amqp10.sasl import Anonymous, Plain, server_mechanisms
from tests.amqp10.pair import accept_link, only, settings

proton = pytest.importorskip("proton")


class Proton:
    """A proton connection, bound to a transport, and our engine at the other end of it."""

    def __init__(
        self,
        *,
        server: bool = False,
        on_attaching: Callable[[Link], None] = accept_link,
        prepare: Callable[[Any], None] | None = None,
        **engine: Any,
    ) -> None:
        self.transport = proton.Transport(proton.Transport.SERVER if server else proton.Transport.CLIENT)
        self.connection = proton.Connection()
        self.connection.container = "proton"
        self.collector = proton.Collector()
        self.connection.collect(self.collector)
        self.on_attaching = on_attaching
        if prepare is not None:
            prepare(self)
        self.transport.bind(self.connection)
        self.engine = Connection(settings("engine", **engine), server=not server, now=0.0)
        self.seen: Counter[str] = Counter()

    def pump(self, handle: Callable[[Any], None] | None = None) -> list[Event]:
        """Carry bytes until both are silent; proton's events go to `handle`, the engine's are returned."""
        events: list[Event] = []
        while True:
            busy = False
            pending = self.transport.pending()
            if pending > 0:
                data = bytes(self.transport.peek(pending))
                self.transport.pop(len(data))
                busy = True
                for event in self.engine.receive_data(data, 0.0):
                    events.append(event)
                    if isinstance(event, LinkAttaching):
                        self.on_attaching(event.link)
            data = self.engine.data_to_send()
            while data:
                busy = True
                room = self.transport.capacity()
                assert room > 0, self.transport.condition
                self.transport.push(data[:room])
                data = data[room:]
                self._drain(handle)
            self._drain(handle)
            if not busy:
                return events

    def _drain(self, handle: Callable[[Any], None] | None) -> None:
        while (event := self.collector.peek()) is not None:
            self.seen[event.type.name.removeprefix("PN_")] += 1
            if handle is not None:
                handle(event)
            self.collector.pop()

    def sender(self, name: str = "link", session: Any = None) -> Any:
        if session is None:
            self.connection.open()
            session = self.connection.session()
            session.open()
        sender = session.sender(name)
        sender.target.address = "there"
        sender.open()
        return sender

    def receiver(self, name: str = "link") -> Any:
        self.connection.open()
        session = self.connection.session()
        session.open()
        receiver = session.receiver(name)
        receiver.source.address = "there"
        receiver.open()
        return receiver


def accept_everything(peer: Proton) -> Callable[[Any], None]:
    """What proton's own MessagingHandler does: open what the peer opens, keep what it sends."""

    def handle(event: Any) -> None:
        if event.type is proton.Event.CONNECTION_REMOTE_OPEN:
            event.connection.open()
        elif event.type is proton.Event.SESSION_REMOTE_OPEN:
            event.session.open()
        elif event.type is proton.Event.LINK_REMOTE_OPEN:
            event.link.source.copy(event.link.remote_source)
            event.link.target.copy(event.link.remote_target)
            event.link.open()
            if event.link.is_receiver:
                event.link.flow(100)

    return handle


def read(delivery: Any) -> bytes:
    data: bytes | None = delivery.link.recv(delivery.pending)
    return data or b""


@pytest.mark.parametrize("size", [0, 1, 100, 16_000, 1_000_000])
def test_proton_publishes_and_learns_the_outcome(size: int) -> None:
    peer = Proton()
    sender = peer.sender()
    peer.pump()
    deliveries = []
    for number in range(20):
        deliveries.append(sender.delivery(f"tag{number}"))
        sender.send(bytes([number]) * size)
        sender.advance()
    runs = [event for event in peer.pump() if isinstance(event, Transfers)]
    assert [tag for run in runs for tag in run.tags] == [b"tag%d" % number for number in range(20)]
    assert [payload for run in runs for payload in run.payloads] == [bytes([n]) * size for n in range(20)]
    link = runs[0].link
    link.dispose(0, 19, ACCEPTED, False)
    peer.pump()
    assert all(delivery.remote_state == proton.Delivery.ACCEPTED for delivery in deliveries)
    assert not any(delivery.settled for delivery in deliveries)
    for delivery in deliveries:
        delivery.settle()
    settled = only(peer.pump(), Dispositions)
    assert (settled.first_id, settled.last_id, settled.settled) == (0, 19, True)


@pytest.mark.parametrize("size", [0, 1, 100, 16_000, 1_000_000])
def test_proton_subscribes_and_accepts(size: int) -> None:
    peer = Proton()
    receiver = peer.receiver()
    receiver.flow(50)
    events = peer.pump()
    link = only(events, LinkAttaching).link
    assert isinstance(link, SenderLink)
    assert link.credit == 50
    assert link.send([b"tag%02d" % n for n in range(20)], [bytes([n]) * size for n in range(20)]) == 0
    received: list[tuple[str, bytes]] = []
    deliveries = []

    def handle(event: Any) -> None:
        if event.type is proton.Event.DELIVERY and event.delivery.readable and not event.delivery.partial:
            received.append((event.delivery.tag, read(event.delivery)))
            event.delivery.update(proton.Delivery.ACCEPTED)
            deliveries.append(event.delivery)
            event.link.advance()

    answers = peer.pump(handle)
    assert received == [(f"tag{n:02}", bytes([n]) * size) for n in range(20)]
    dispositions = [event for event in answers if isinstance(event, Dispositions)]
    assert dispositions[0].first_id == 0
    assert dispositions[-1].last_id == 19
    assert {(event.state, event.settled) for event in dispositions} == {(ACCEPTED, False)}
    link.settle(0, 19, ACCEPTED)
    peer.pump()
    assert all(delivery.settled for delivery in deliveries)


def test_ids_may_begin_just_below_the_wrap() -> None:
    peer = Proton()
    receiver = peer.receiver()
    receiver.flow(100)
    link = only(peer.pump(), LinkAttaching).link
    assert isinstance(link, SenderLink)
    tags = [b"%d" % n for n in range(40)]
    first = link.send(tags, tags, id_hint=2**32 - 20)
    received: list[str] = []

    def handle(event: Any) -> None:
        if event.type is proton.Event.DELIVERY and event.delivery.readable:
            received.append(event.delivery.tag)
            event.delivery.update(proton.Delivery.ACCEPTED)
            event.delivery.settle()

    answers = [event for event in peer.pump(handle) if isinstance(event, Dispositions)]
    assert received == [tag.decode() for tag in tags]
    assert (answers[0].first_id, answers[-1].last_id) == (first, first + 39)
    assert sum(answer.last_id - answer.first_id + 1 for answer in answers) == 40


def test_pre_settled_messages_arrive_settled() -> None:
    peer = Proton()
    sender = peer.sender()
    sender.snd_settle_mode = proton.Link.SND_SETTLED
    peer.pump()
    for number in range(5):
        delivery = sender.delivery(str(number))
        sender.send(b"x")
        delivery.settle()
        sender.advance()
    run = only(peer.pump(), Transfers)
    assert run.settled
    assert len(run.tags) == 5


def test_settle_modes_are_negotiated() -> None:
    modes: list[tuple[int, int]] = []

    def answer(link: Link) -> None:
        modes.append((link.snd_settle_mode, link.rcv_settle_mode))
        accept_link(link)

    peer = Proton(on_attaching=answer)
    peer.connection.open()
    session = peer.connection.session()
    session.open()
    sender = session.sender("first")
    sender.snd_settle_mode = proton.Link.SND_UNSETTLED
    sender.rcv_settle_mode = proton.Link.RCV_SECOND
    sender.open()
    receiver = session.receiver("second")
    receiver.rcv_settle_mode = proton.Link.RCV_SECOND
    receiver.open()
    peer.pump()
    assert modes == [(0, 1), (2, 1)]
    assert sender.remote_rcv_settle_mode == proton.Link.RCV_SECOND
    assert sender.remote_snd_settle_mode == proton.Link.SND_UNSETTLED


def test_drain_from_proton_is_answered() -> None:
    peer = Proton()
    receiver = peer.receiver()
    receiver.drain(10)
    events = peer.pump()
    link = only(events, LinkFlow).link
    assert isinstance(link, SenderLink)
    assert link.drain
    link.send([b"1", b"2"], [b"a", b"b"])
    link.drained()
    peer.pump()
    assert receiver.credit - receiver.queued == 0
    assert receiver.drained() == 8


def test_drain_towards_proton_is_answered() -> None:
    peer = Proton()
    sender = peer.sender()
    link = only(peer.pump(), LinkAttaching).link
    assert isinstance(link, ReceiverLink)
    link.grant(10, drain=True)
    peer.pump()
    assert sender.drain_mode
    sender.drained()
    event = only(peer.pump(), LinkFlow)
    assert event.link is link
    assert link.credit == 0


def test_a_refused_link_shows_its_error() -> None:
    peer = Proton(on_attaching=lambda link: link.refuse("amqp:not-found", "no such thing", {"x": 1}))
    sender = peer.sender()
    events = peer.pump()
    assert sender.remote_target.address is None
    assert sender.remote_condition.name == "amqp:not-found"
    sender.close()
    event = only(events + peer.pump(), LinkDetached)
    assert event.local


def test_outcomes_of_all_kinds_pass() -> None:
    peer = Proton()
    receiver = peer.receiver()
    receiver.flow(50)
    link = only(peer.pump(), LinkAttaching).link
    assert isinstance(link, SenderLink)
    link.send([b"1", b"2", b"3", b"4"], [b""] * 4)
    outcomes = [
        proton.Delivery.ACCEPTED,
        proton.Delivery.REJECTED,
        proton.Delivery.RELEASED,
        proton.Delivery.MODIFIED,
    ]

    def handle(event: Any) -> None:
        if event.type is proton.Event.DELIVERY and event.delivery.readable:
            event.delivery.update(outcomes[int(event.delivery.tag) - 1])
            event.delivery.settle()

    answers = [event for event in peer.pump(handle) if isinstance(event, Dispositions)]
    answers.sort(key=lambda answer: answer.first_id)  # proton writes them in an order of its own
    assert [type(answer.state).__name__ for answer in answers] == ["Accepted", "Rejected", "Released", "Modified"]
    assert [answer.first_id for answer in answers] == [0, 1, 2, 3]


def test_our_client_publishes_to_proton() -> None:
    peer = Proton(server=True)
    peer.engine.open()
    sender = peer.engine.begin().sender("link")
    sender.attach(source=Source("here"), target=Target("there"))
    received: list[bytes] = []
    accept = accept_everything(peer)

    def handle(event: Any) -> None:
        accept(event)
        if event.type is proton.Event.DELIVERY and event.delivery.readable and not event.delivery.partial:
            received.append(read(event.delivery))
            event.delivery.update(proton.Delivery.ACCEPTED)
            event.delivery.settle()

    events = peer.pump(handle)
    assert only(events, LinkAttached).link is sender
    assert sender.credit == 100
    payloads = [b"small"] * 10 + [b"L" * 1_000_000] * 2 + [b"small again"] * 10
    sender.send([b"%d" % n for n in range(22)], payloads)
    answers = [event for event in peer.pump(handle) if isinstance(event, Dispositions)]
    assert received == payloads
    assert sum(answer.last_id - answer.first_id + 1 for answer in answers) == 22


def test_our_client_subscribes_at_proton() -> None:
    peer = Proton(server=True)
    peer.engine.open()
    receiver = peer.engine.begin().receiver("link")
    receiver.attach(source=Source("there"), target=Target("here"), rcv_settle_mode=1)
    receiver.grant(10)
    links: list[Any] = []
    accept = accept_everything(peer)

    def handle(event: Any) -> None:
        accept(event)
        if event.type is proton.Event.LINK_REMOTE_OPEN:
            links.append(event.link)

    peer.pump(handle)
    sender = links[0]
    assert sender.credit == 10
    deliveries = []
    for number in range(10):
        deliveries.append(sender.delivery(str(number)))
        sender.send(b"y" * 300_000)
        sender.advance()
    runs = [event for event in peer.pump(handle) if isinstance(event, Transfers)]
    assert sum(len(run.tags) for run in runs) == 10
    assert all(payload == b"y" * 300_000 for run in runs for payload in run.payloads)
    receiver.dispose(0, 9, ACCEPTED, True)
    peer.pump(handle)
    assert all(delivery.settled for delivery in deliveries)


@pytest.mark.parametrize("mechanism", ["ANONYMOUS", "PLAIN"])
def test_proton_authenticates_to_our_server(mechanism: str) -> None:
    def prepare(peer: Proton) -> None:
        sasl = peer.transport.sasl()
        sasl.allow_insecure_mechs = True
        sasl.allowed_mechs(mechanism)
        if mechanism == "PLAIN":
            peer.connection.user = "ann"
            peer.connection.password = "secret"

    peer = Proton(prepare=prepare, sasl=server_mechanisms(verify=lambda user, password: password == "secret"))
    sender = peer.sender()
    peer.pump()
    assert sender.credit == 100
    assert peer.engine.handshake.user == ("ann" if mechanism == "PLAIN" else "anonymous")


def test_proton_with_a_wrong_password_is_refused() -> None:
    def prepare(peer: Proton) -> None:
        sasl = peer.transport.sasl()
        sasl.allow_insecure_mechs = True
        sasl.allowed_mechs("PLAIN")
        peer.connection.user = "ann"
        peer.connection.password = "guess"

    peer = Proton(prepare=prepare, sasl=server_mechanisms(verify=lambda user, password: password == "secret"))
    peer.connection.open()
    closed = only(peer.pump(), ConnectionClosed)
    assert closed.error.condition == "amqp:unauthorized-access"
    assert peer.seen["TRANSPORT_ERROR"] == 1


def test_our_client_authenticates_to_proton() -> None:
    def prepare(peer: Proton) -> None:
        peer.transport.sasl().allowed_mechs("ANONYMOUS")

    peer = Proton(server=True, prepare=prepare, sasl=Anonymous())
    peer.engine.open()
    peer.pump(accept_everything(peer))
    assert peer.engine.remote_open.container_id == "proton"


def test_a_mechanism_that_the_server_lacks_ends_the_connection() -> None:
    def prepare(peer: Proton) -> None:
        peer.transport.sasl().allowed_mechs("ANONYMOUS")

    peer = Proton(server=True, prepare=prepare, sasl=Plain("ann", "secret"))
    peer.engine.open()
    closed = only(peer.pump(), ConnectionClosed)
    assert closed.error.condition == "amqp:unauthorized-access"


def test_close_goes_both_ways() -> None:
    peer = Proton()
    peer.sender()
    peer.pump()
    peer.connection.close()
    assert only(peer.pump(), ConnectionClosed).error is None
    assert peer.engine.closed
    assert peer.seen["CONNECTION_REMOTE_CLOSE"] == 1
