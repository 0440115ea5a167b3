"""The programs of examples/sansio, judged by proton and paho; their protocol halves, driven by `now`."""

from __future__ import annotations

import importlib.util
import queue
import re
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as PahoProperties
from paho.mqtt.subscribeoptions import SubscribeOptions

import mqtt
from amqp10 import (
    Connection,
    ConnectionClosed,
    ConnectionSettings,
    Dispositions,
    LinkDetached,
    Source,
    Target,
    Transfers,
)
from amqp10.errors import CONNECTION_FORCED, FRAMING_ERROR, RESOURCE_LIMIT_EXCEEDED, TRANSFER_LIMIT_EXCEEDED
from amqp10.frames import AMQP_HEADER, EMPTY_FRAME, encode_frame
from amqp10.performatives import Transfer
from tests import needs
from tests.amqp10.pair import kinds, only
from tests.running import BOUND_S, ROOT, Program

EXAMPLES = ROOT / "examples" / "sansio"
SERVERS = ("asyncio_echo", "trio_echo")
MOST_LINES = 180


def protocol_half(name: str) -> ModuleType:
    """The module, without its server where it is a program, too."""
    text = (EXAMPLES / f"{name}.py").read_text()
    spec = importlib.util.spec_from_loader(f"sansio_{name}", loader=None)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    exec(compile(text.partition("\nclass Handler")[0], f"{name}.py", "exec"), module.__dict__)
    return module


amqp_echo = protocol_half("amqp_echo")
mqtt_echo = protocol_half("mqtt_echo")


@pytest.fixture(params=SERVERS)
def program(request: pytest.FixtureRequest) -> Iterator[Program]:
    if request.param == "trio_echo":
        pytest.importorskip("trio", reason="needs trio, of onceway[check]")
    with Program([sys.executable, str(EXAMPLES / f"{request.param}.py"), "0"]) as running:
        yield running


@pytest.fixture
def port(program: Program) -> int:
    return int(program.line().removeprefix("listening on "))


@pytest.fixture
def mqtt_port() -> Iterator[int]:
    with Program([sys.executable, str(EXAMPLES / "mqtt_echo.py"), "0"]) as running:
        yield int(running.line().removeprefix("listening on "))


def test_every_example_is_listed_and_short() -> None:
    listed = (ROOT / "examples" / "README.md").read_text()
    programs = sorted(EXAMPLES.glob("*.py"))
    assert {path.stem for path in programs} == {"amqp_echo", "mqtt_echo", *SERVERS}
    for path in programs:
        assert f"| [sansio/{path.name}](sansio/{path.name}) |" in listed
        assert path.stem == "amqp_echo" or f"examples/sansio/{path.name} [PORT]" in path.read_text()
        assert len(path.read_text().splitlines()) < MOST_LINES


def test_both_packages_import_the_standard_library_alone() -> None:
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import amqp10.sasl, amqp10.sections, mqtt"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", ["amqp10", "mqtt-codec"])
def test_the_code_of_the_page_runs(page: str) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / f"{page}.md").read_text(), re.MULTILINE | re.DOTALL)
    assert blocks
    exec(compile("\n".join(blocks), f"{page}.md", "exec"), {})


# proton judges --------------------------------------------------------------------------------------------------------

with_proton = pytest.mark.skipif(not needs.has_proton(), reason=needs.PROTON)


def connected(port: int) -> Any:
    from proton.utils import BlockingConnection

    return BlockingConnection(f"amqp://127.0.0.1:{port}", timeout=BOUND_S)


def in_mode_second() -> Any:
    """proton's link option for rcv-settle-mode second."""
    from proton import Link
    from proton.reactor import LinkOption

    class Second(LinkOption):
        def apply(self, link: Any) -> None:
            link.rcv_settle_mode = Link.RCV_SECOND

    return Second()


@with_proton
def test_proton_gets_its_messages_back(port: int) -> None:
    from proton import Delivery, Message

    connection = connected(port)
    receiver = connection.create_receiver("a", credit=5)
    sender = connection.create_sender("a")
    for number in range(40):
        sent = sender.send(Message(body=f"message {number}"), timeout=BOUND_S)  # until it is settled
        assert sent.remote_state == Delivery.ACCEPTED
        assert receiver.receive(BOUND_S).body == f"message {number}"
        receiver.accept()
    connection.close()


@with_proton
def test_in_mode_second_the_sender_settles_first_at_both_links(port: int) -> None:
    from proton import Delivery, Message

    connection = connected(port)
    receiver = connection.create_receiver("a", credit=5, options=in_mode_second())
    sender = connection.create_sender("a", options=in_mode_second())
    assert receiver.link.remote_rcv_settle_mode == sender.link.remote_rcv_settle_mode == 1
    for number in range(20):
        sent = sender.link.send(Message(body=number))
        connection.wait(lambda sent=sent: sent.remote_state, timeout=BOUND_S)
        assert (sent.remote_state, sent.settled) == (Delivery.ACCEPTED, False)
        sent.settle()
        assert receiver.receive(BOUND_S).body == number
        received = receiver.fetcher.unsettled.popleft()
        assert not received.settled
        received.update(Delivery.ACCEPTED)
        connection.wait(lambda received=received: received.settled, timeout=BOUND_S)
        received.settle()
    connection.close()


@with_proton
def test_proton_gets_a_message_that_takes_many_frames(port: int) -> None:
    from proton import Message

    connection = connected(port)
    receiver = connection.create_receiver("a", credit=1)
    connection.create_sender("a").send(Message(body=b"x" * 900_000), timeout=BOUND_S)
    assert bytes(receiver.receive(BOUND_S).body) == b"x" * 900_000
    connection.close()


@with_proton
def test_who_receives_nothing_is_not_allowed_to_send_on(port: int) -> None:
    from proton import Message

    connection = connected(port)
    sender = connection.create_sender("a")
    connection.wait(lambda: sender.link.credit == amqp_echo.CREDIT, timeout=BOUND_S)
    sent = [sender.link.send(Message(body=number)) for number in range(amqp_echo.CREDIT)]
    other = connection.create_sender("b")  # its attach is answered: all before it has been read
    assert (sender.link.credit, other.link.credit) == (0, amqp_echo.CREDIT)
    assert not any(delivery.remote_state for delivery in sent)
    receiver = connection.create_receiver("a", credit=20)
    assert [receiver.receive(BOUND_S).body for _ in sent] == [*range(amqp_echo.CREDIT)]
    connection.wait(lambda: all(delivery.settled for delivery in sent), timeout=BOUND_S)
    connection.wait(lambda: sender.link.credit == amqp_echo.CREDIT, timeout=BOUND_S)
    connection.close()


@with_proton
def test_clients_get_their_own_messages_alone(port: int) -> None:
    from proton import Message

    connections = [connected(port) for _ in range(3)]
    receivers = [each.create_receiver("a", credit=5) for each in connections]
    for number, each in enumerate(connections):
        each.create_sender("a").send(Message(body=number), timeout=BOUND_S)
    assert [receiver.receive(BOUND_S).body for receiver in receivers] == [0, 1, 2]
    for each in connections:
        each.close()


@with_proton
def test_proton_is_refused_what_the_server_does_not_have(port: int) -> None:
    from proton.utils import LinkDetached as Refused

    connection = connected(port)
    with pytest.raises(Refused, match="amqp:not-implemented"):
        connection.create_receiver(None, dynamic=True)
    connection.close()


@with_proton
def test_a_server_that_stops_closes_its_connections(program: Program, port: int) -> None:
    from proton import ConnectionException

    connection = connected(port)
    receiver = connection.create_receiver("a", credit=1)
    program.process.send_signal(signal.SIGTERM)
    with pytest.raises(ConnectionException, match=CONNECTION_FORCED):
        receiver.receive(BOUND_S)
    assert program.rest() == []


def test_other_protocols_are_told_and_others_are_served_on(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), BOUND_S) as stranger:
        stranger.settimeout(BOUND_S)
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        answer = b""
        while data := stranger.recv(1000):
            answer += data
    assert answer.startswith(b"AMQP"), "AMQP 2.2: the header that it takes, then the end"
    with socket.create_connection(("127.0.0.1", port), BOUND_S) as client:
        client.settimeout(BOUND_S)
        client.sendall(AMQP_HEADER)
        assert client.recv(8) == AMQP_HEADER


def test_a_client_that_does_not_read_is_not_read(port: int) -> None:
    links, size = 4, 1_000_000
    client = Connection(ConnectionSettings(container_id="client", idle_timeout_s=None), server=False, now=0.0)
    client.open()
    session = client.begin()
    senders = [session.sender(f"s{address}") for address in range(links)]
    for sender in senders:
        sender.attach(source=Source(sender.name), target=Target(sender.name))
        receiver = session.receiver("r" + sender.name)
        receiver.attach(source=Source(sender.name), target=Target(sender.name))
        receiver.grant(100)
    with socket.socket() as transport:
        transport.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        transport.settimeout(BOUND_S)
        transport.connect(("127.0.0.1", port))
        while not all(sender.credit for sender in senders):
            transport.sendall(client.data_to_send())
            client.receive_data(transport.recv(65536), 0.0)
        for sender in senders:
            for number in range(amqp_echo.CREDIT):
                sender.send([b"%d" % number], [bytes(size)])
        unsent = memoryview(client.data_to_send())
        while unsent and select.select([], [transport], [], 2.0)[1]:
            unsent = unsent[transport.send(unsent[:65536]) :]
        assert unsent, "the server has read all, and holds all answers"
        came = 0
        while came < links * amqp_echo.CREDIT:
            readable, writable, _ = select.select([transport], [transport] if unsent else [], [], BOUND_S)
            if readable:
                events = client.receive_data(transport.recv(1 << 20), 0.0)
                came += sum(len(event.payloads) for event in events if isinstance(event, Transfers))
            if writable:
                unsent = unsent[transport.send(unsent[:65536]) :]
            assert readable or writable, f"{came} messages came"


# The protocol half ----------------------------------------------------------------------------------------------------


class Pair:
    """An echo and a client of it, joined in memory."""

    def __init__(self, **settings: Any) -> None:
        self.echo = amqp_echo.Echo(0.0)
        settings = {"idle_timeout_s": None, **settings}
        self.client = Connection(ConnectionSettings(container_id="client", **settings), server=False, now=0.0)
        self.client.open()
        self.session = self.client.begin()
        self.pump()

    def pump(self, now: float = 0.0, more: bytes = b"") -> list[Any]:
        events: list[Any] = []
        data: bytes | None = self.client.data_to_send() + more or None
        while (answer := self.echo.turn(data, now)) or data:
            events += self.client.receive_data(answer, now)
            self.client.check_invariants()
            self.echo.connection.check_invariants()
            data = self.client.data_to_send() or None
        return events

    def links(self, address: str = "a", credit: int = 100) -> tuple[Any, Any]:
        sender, receiver = self.session.sender("s" + address), self.session.receiver("r" + address)
        sender.attach(source=Source(address), target=Target(address))
        receiver.attach(source=Source(address), target=Target(address))
        receiver.grant(credit)
        self.pump()
        return sender, receiver


def test_heartbeats_keep_a_client_that_asks_for_them() -> None:
    pair = Pair(idle_timeout_s=4.0)  # its open says 2 s
    assert pair.echo.connection.next_deadline() == 1.0
    assert pair.echo.turn(None, 0.9) == b""
    assert pair.echo.turn(None, 1.0) == EMPTY_FRAME
    assert pair.echo.connection.next_deadline() == 2.0


def test_a_silent_client_is_closed() -> None:
    pair = Pair()
    assert pair.echo.connection.next_deadline() == 16.0
    last = pair.echo.turn(None, 16.0)
    assert pair.echo.connection.closed
    closed = only(pair.client.receive_data(last, 16.0), ConnectionClosed)
    assert closed.error.condition == RESOURCE_LIMIT_EXCEEDED


def test_a_transfer_without_credit_ends_its_link_alone() -> None:
    pair = Pair()
    sender, receiver = pair.links(credit=0)
    good, _ = pair.links("b")
    sender.send([b"%d" % number for number in range(amqp_echo.CREDIT)], [b""] * amqp_echo.CREDIT)
    pair.pump()
    assert sender.credit == 0
    transfer = Transfer(handle=sender.handle, delivery_id=amqp_echo.CREDIT, delivery_tag=b"too many")
    events = pair.pump(more=encode_frame(0, pair.session.channel, transfer.encode()))
    detached = only(events, LinkDetached)
    assert (detached.link, detached.error.condition) == (sender, TRANSFER_LIMIT_EXCEEDED)
    assert good.attached
    assert receiver.attached
    assert sender not in pair.echo.waiting, "what it had to echo is forgotten"
    assert len(pair.echo.waiting) == 1


def test_frames_that_cannot_be_read_end_the_connection() -> None:
    pair = Pair()
    closed = only(pair.pump(more=b"\0\0\0\1\2\0\0\0"), ConnectionClosed)
    assert closed.error.condition == FRAMING_ERROR
    assert not pair.echo.connection.closed, "the client's close is waited for, and nothing can be read"
    pair.echo.turn(None, pair.echo.connection.next_deadline())
    assert pair.echo.connection.closed


def test_drain_is_answered_when_all_that_waits_is_sent() -> None:
    pair = Pair()
    sender, receiver = pair.links(credit=0)
    sender.send([b"1", b"2"], [b"one", b"two"])
    pair.pump()
    receiver.grant(5, drain=True)
    events = pair.pump()
    assert [payload for event in events for payload in getattr(event, "payloads", ())] == [b"one", b"two"]
    assert (receiver.credit, receiver.granted.drained) == (0, 3)


def test_a_message_that_the_receiver_takes_not_is_rejected() -> None:
    pair = Pair(max_message_size=100)
    sender, _ = pair.links()
    sender.send([b"1"], [b"x" * 101])
    told = only(pair.pump(), Dispositions)
    assert (told.settled, told.state.error.condition) == (True, "amqp:link:message-size-exceeded")


def test_what_was_sent_settled_is_not_answered() -> None:
    pair = Pair()
    sender, _ = pair.links()
    sender.send([b"1"], [b"once"], settled=True)
    assert kinds(pair.pump()) == ["Transfers"]


def test_a_link_that_goes_takes_what_waits_with_it() -> None:
    pair = Pair()
    sender, receiver = pair.links(credit=0)
    sender.send([b"1"], [b"lost"])
    pair.pump()
    sender.detach()
    receiver.detach()
    pair.pump()
    assert not pair.echo.waiting
    assert not pair.echo.subscribers
    pair.links("b")
    pair.session.end()
    pair.pump()
    assert not pair.echo.waiting
    assert not pair.echo.subscribers


# paho judges ----------------------------------------------------------------------------------------------------------


class Paho:
    """A client whose messages and acknowledgements a test waits for."""

    def __init__(self, port: int, version: int, **connect: Any) -> None:
        self.messages: queue.Queue[Any] = queue.Queue()
        self.subscribed, self.ended = threading.Event(), threading.Event()
        self.client = paho.Client(CallbackAPIVersion.VERSION2, protocol=version)  # type: ignore[arg-type]
        self.client.on_message = lambda client, data, message: self.messages.put(message)
        self.client.on_subscribe = lambda *_: self.subscribed.set()
        self.client.on_disconnect = lambda *_: self.ended.set()
        self.client.connect("127.0.0.1", port, **connect)
        self.client.loop_start()

    def subscribe(self, topic_filter: str, **options: Any) -> None:
        self.client.subscribe(topic_filter, **options)
        assert self.subscribed.wait(BOUND_S)

    def close(self) -> None:
        self.client.disconnect()
        assert self.ended.wait(BOUND_S)
        self.client.loop_stop()


VERSIONS = [paho.MQTTv311, paho.MQTTv5]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_paho_gets_its_messages_back(mqtt_port: int, version: int, qos: int) -> None:
    client = Paho(mqtt_port, version)
    client.subscribe("a/#", qos=2)
    sent = [client.client.publish(f"a/{number}", b"%d" % number, qos) for number in range(60)]
    received = [client.messages.get(timeout=BOUND_S) for _ in range(60)]
    assert [(each.topic, each.payload, each.qos) for each in received] == [
        (f"a/{number}", b"%d" % number, qos) for number in range(60)
    ]
    for each in sent:
        each.wait_for_publish(BOUND_S)
        assert each.is_published()
    client.close()


def test_a_client_of_version_5_that_takes_one_at_a_time_gets_all(mqtt_port: int) -> None:
    one = PahoProperties(PacketTypes.CONNECT)
    one.ReceiveMaximum = 1
    client = Paho(mqtt_port, paho.MQTTv5, properties=one)
    client.subscribe("a", qos=1)
    for number in range(20):
        client.client.publish("a", b"%d" % number, 1)
    assert [client.messages.get(timeout=BOUND_S).payload for _ in range(20)] == [b"%d" % each for each in range(20)]
    client.close()


def test_no_local_gets_nothing_back(mqtt_port: int) -> None:
    client = Paho(mqtt_port, paho.MQTTv5)
    client.subscribe("a", options=SubscribeOptions(qos=1, noLocal=True))
    client.subscribed.clear()
    client.subscribe("b", qos=1)
    client.client.publish("a", b"mine", 1)
    client.client.publish("b", b"back", 1)
    assert client.messages.get(timeout=BOUND_S).payload == b"back"
    client.close()


def test_clients_of_mqtt_get_their_own_messages_alone(mqtt_port: int) -> None:
    clients = [Paho(mqtt_port, version) for version in VERSIONS]
    for number, client in enumerate(clients):
        client.subscribe("a")
        client.client.publish("a", b"%d" % number)
    assert [client.messages.get(timeout=BOUND_S).payload for client in clients] == [b"0", b"1"]
    for client in clients:
        client.close()


def test_who_speaks_no_mqtt_is_cut_off_and_others_are_served_on(mqtt_port: int) -> None:
    with socket.create_connection(("127.0.0.1", mqtt_port), BOUND_S) as stranger:
        stranger.settimeout(BOUND_S)
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert stranger.recv(100) == b""
    Paho(mqtt_port, paho.MQTTv311).close()


def begun(version: int = 5, **connect: Any) -> Any:
    echo = mqtt_echo.Echo(0.0)
    echo.receive(mqtt.encode(mqtt.Connect("c", version, **connect), version), 0.0)
    echo.connection.data_to_send()
    return echo


def says(echo: Any, version: int = 5) -> list[Any]:
    return mqtt.PacketReader(version=version).receive_data(echo.connection.data_to_send())


def tell(echo: Any, *packets: Any, version: int = 5) -> list[Any]:
    echo.receive(b"".join(mqtt.encode(packet, version) for packet in packets), 0.0)
    return says(echo, version)


def test_a_client_of_mqtt_that_is_silent_is_closed() -> None:
    echo = begun(keep_alive_s=10)
    assert echo.connection.deadline() == 15.0
    echo.connection.check_time(15.0)
    assert [packet.reason for packet in says(echo)] == [mqtt.Reason.KEEP_ALIVE_TIMEOUT]


@pytest.mark.parametrize("version", [4, 5])
def test_a_publish_of_qos_2_that_comes_again_is_echoed_once(version: int) -> None:
    echo = begun(version)
    tell(echo, mqtt.Subscribe(1, [mqtt.Subscription("a")]), version=version)
    publish = mqtt.Publish("a", b"once", 2, packet_id=7)
    assert tell(echo, publish, version=version) == [mqtt.Publish("a", b"once"), mqtt.Pubrec(7)]
    assert tell(echo, publish, mqtt.Pubrel(7), version=version) == [mqtt.Pubrec(7), mqtt.Pubcomp(7)]
    unknown = mqtt.Reason.PACKET_IDENTIFIER_NOT_FOUND if version == 5 else mqtt.Reason.SUCCESS
    assert tell(echo, mqtt.Pubrel(7), version=version) == [mqtt.Pubcomp(7, unknown)]


def test_who_acknowledges_nothing_is_not_acknowledged_and_then_closed() -> None:
    echo = begun(properties=mqtt.Properties(receive_maximum=1))
    tell(echo, mqtt.Subscribe(1, [mqtt.Subscription("a", 1)]))
    answers = tell(echo, *(mqtt.Publish("a", b"", 1, packet_id=number) for number in range(1, mqtt_echo.MOST + 1)))
    assert answers == [mqtt.Publish("a", b"", 1, packet_id=1), mqtt.Puback(1)]
    assert tell(echo, mqtt.Publish("a", b"", 1, packet_id=1)) == []
    assert echo.connection.state == mqtt_echo.OPEN
    assert [each.reason for each in tell(echo, mqtt.Publish("a", b"", 0))] == [mqtt.Reason.QUOTA_EXCEEDED]


def test_a_message_to_be_retained_ends_the_connection_as_connack_has_ruled_that_out() -> None:
    answers = tell(begun(), mqtt.Publish("a", b"", retain=True))
    assert [each.reason for each in answers] == [mqtt.Reason.RETAIN_NOT_SUPPORTED]


def test_what_comes_behind_a_fault_is_not_answered() -> None:
    echo = begun()
    echo.receive(mqtt.encode(mqtt.Pingreq(), 5) + b"\0\0" + mqtt.encode(mqtt.Pingreq(), 5), 0.0)
    assert [each.reason for each in says(echo)] == [mqtt.Reason.MALFORMED_PACKET]


def test_many_topic_filters_are_subscribed_to_in_one_packet() -> None:
    filters = [mqtt.Subscription(f"a/{number}", number % 3) for number in range(3000)]
    (suback,) = tell(begun(), mqtt.Subscribe(1, filters))
    assert [int(reason) for reason in suback.reasons] == [number % 3 for number in range(3000)]
