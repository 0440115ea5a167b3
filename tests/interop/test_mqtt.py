"""mosquitto's programs, paho-mqtt and aiomqtt judge the listener for MQTT; proton shares their topics."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import aiomqtt
import paho.mqtt.client as paho
import pytest
import yaml
from paho.mqtt.enums import CallbackAPIVersion
from proton import Message
from proton.utils import BlockingConnection

from chaos.live.ports import free_port
from edges.retained.serve import RetainedStore
from mqtt import (
    Connect,
    Disconnect,
    Packet,
    PacketReader,
    Pingreq,
    Properties,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    encode,
)
from onceway.access.users import User, Users, store_users, with_password
from tests.live import PATIENT, LiveNetwork, wait_until
from tests.pki import Pki

BOUND_S = 60.0
USER, PASSWORD = "alice", "wonderland"
needs_mosquitto = pytest.mark.skipif(shutil.which("mosquitto_sub") is None, reason="no mosquitto-clients")


@dataclass(frozen=True, slots=True)
class Routers:
    """a and b, with a listener for MQTT each; b has another with TLS and users."""

    network: LiveNetwork
    a: int
    b: int


def started(directory: Path, document: dict[str, object], network: LiveNetwork) -> LiveNetwork:
    network.topology_path.write_text(yaml.safe_dump(document, sort_keys=False))
    return network.start()


@pytest.fixture(scope="module")
def routers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Routers]:
    directory = tmp_path_factory.mktemp("mqtt")
    network = LiveNetwork(directory, ("a", "b"), [("a", "b")], [{"match": "*", "no_subscribers": "accept"}], PATIENT)
    document = network.topology()
    document["mqtt"] = {
        "topics": {"#": "telemetry"},
        "shared": {"workers/jobs/#": "jobs"},
        "retained": {"address": "retained", "stores": ["s"]},
    }
    document["addresses"].insert(0, {"match": "jobs", "type": "queue"})
    ports = [free_port(), free_port()]
    for name, port in zip("ab", ports, strict=True):
        document["routers"][name]["mqtt"] = port
    with network:
        yield Routers(started(directory, document, network), *ports)


class MosquittoSub:
    """mosquitto_sub, from the SUBACK on."""

    def __init__(self, port: int, topic: str, count: int, *options: str) -> None:
        command = ["stdbuf", "-oL", "mosquitto_sub", "-d", "-p", str(port), "-t", topic, "-C", str(count), *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.lines: list[str] = []
        for line in self.process.stdout:
            if line.startswith("Subscribed"):
                return
        raise AssertionError("no SUBACK")

    def result(self) -> list[str]:
        """The messages, one a line."""
        out, _ = self.process.communicate(timeout=BOUND_S)
        return [line for line in out.splitlines() if not line.startswith(("Client ", "Subscribed"))]


def mosquitto_pub(port: int, topic: str, *options: str) -> None:
    subprocess.run(["mosquitto_pub", "-p", str(port), "-t", topic, *options], check=True, timeout=BOUND_S)


@needs_mosquitto
@pytest.mark.parametrize("version", ["311", "5"])
def test_mosquitto_at_two_routers_with_each_qos(routers: Routers, version: str) -> None:
    subscriber = MosquittoSub(routers.b, f"m{version}/+/x", 3, "-q", "2", "-V", version, "-F", "%q %p")
    for qos in "012":
        mosquitto_pub(routers.a, f"m{version}/{qos}/x", "-q", qos, "-m", f"text {qos}", "-V", version)
    assert sorted(subscriber.result()) == ["0 text 0", "1 text 1", "2 text 2"]


def test_paho_publishes_what_aiomqtt_gets_once_and_in_order(routers: Routers) -> None:
    count, got = 500, []

    async def receive(subscribed: asyncio.Event) -> None:
        async with aiomqtt.Client("127.0.0.1", routers.b, protocol=aiomqtt.ProtocolVersion.V5) as client:
            await client.subscribe("numbers/#", qos=2)
            subscribed.set()
            async for message in client.messages:
                got.append(message.payload)
                if len(got) == count:
                    return

    async def exchange() -> None:
        subscribed = asyncio.Event()
        receiving = asyncio.create_task(receive(subscribed))
        await subscribed.wait()
        await asyncio.to_thread(publish)
        await receiving

    def publish() -> None:
        client = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv311)
        client.connect("127.0.0.1", routers.a)
        client.loop_start()
        for number in range(count):
            last = client.publish("numbers/all", str(number), qos=2)
        last.wait_for_publish(BOUND_S)
        client.disconnect()
        client.loop_stop()

    asyncio.run(asyncio.wait_for(exchange(), BOUND_S))
    assert got == [str(number).encode() for number in range(count)]


class StoreThread:
    """A store of retained messages, until the block ends."""

    def __init__(self, data: Path, routers: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._store = RetainedStore("s", "retained", routers=routers, data=data)
        self._thread = threading.Thread(target=self._run)
        self._task: asyncio.Task[None] | None = None

    def _run(self) -> None:
        self._task = self._loop.create_task(self._store.run())
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._task)
        self._loop.close()

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        if self._task is not None and not self._task.done():
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(BOUND_S)


@needs_mosquitto
def test_what_is_retained_at_one_router_is_read_at_another_also_after_both_and_the_store_have_restarted(
    routers: Routers, tmp_path: Path
) -> None:
    def retained() -> list[str]:
        command = [
            "mosquitto_sub",
            "-p",
            str(routers.b),
            "-t",
            "kept/+",
            "-C",
            "2",
            "-q",
            "2",
            "-V",
            "5",
            "-F",
            "%r %q %p",
        ]
        return subprocess.run(command, check=True, timeout=BOUND_S, capture_output=True, text=True).stdout.splitlines()

    with StoreThread(tmp_path / "s.db", routers.network["a"].url):
        for name in ("x", "y", "z"):
            mosquitto_pub(routers.a, f"kept/{name}", "-q", "1", "-r", "-m", name, "-V", "5")
        mosquitto_pub(routers.a, "kept/z", "-q", "1", "-r", "-n")
        assert sorted(retained()) == ["1 1 x", "1 1 y"]
    routers.network.kill("b")
    routers.network.spawn("b")
    routers.network.wait_ready("b")
    with StoreThread(tmp_path / "s.db", routers.network["a"].url):
        assert sorted(retained()) == ["1 1 x", "1 1 y"]


def test_members_at_two_routers_share_what_paho_and_proton_publish(routers: Routers) -> None:
    count = 20
    found: list[bytes] = []
    clients = [paho.Client(CallbackAPIVersion.VERSION2, protocol=each) for each in (paho.MQTTv5, paho.MQTTv311)]
    joined = threading.Semaphore(0)
    for client, port in zip(clients, (routers.a, routers.b), strict=True):
        client.on_message = lambda client, userdata, message: found.append(message.payload)
        client.on_subscribe = lambda *_: joined.release()
        client.connect("127.0.0.1", port)
        client.loop_start()
        client.subscribe("$share/anybody/work/#", qos=2)
    assert all(joined.acquire(timeout=BOUND_S) for _ in clients)
    connection = BlockingConnection(routers.network["b"].url, timeout=BOUND_S)
    sender = connection.create_sender("telemetry")
    for number in range(count):
        clients[0].publish("work/a", str(number), qos=2).wait_for_publish(BOUND_S)
        sender.send(Message(str(count + number).encode(), inferred=True, subject="work/b"), timeout=BOUND_S)
    connection.close()
    wait_until(lambda: len(found) >= 2 * count, "all messages", BOUND_S)
    for client in clients:
        client.disconnect()
        client.loop_stop()
    assert sorted(found, key=int) == [str(number).encode() for number in range(2 * count)]


def test_clients_of_amqp_are_members_of_the_group_that_the_file_names(routers: Routers) -> None:
    connection = BlockingConnection(routers.network["b"].url, timeout=BOUND_S)
    receiver = connection.create_receiver("jobs", credit=1)
    client = paho.Client(CallbackAPIVersion.VERSION2)
    client.connect("127.0.0.1", routers.a)
    client.loop_start()
    told = client.publish("jobs/a", "x", qos=2)
    assert receiver.receive(BOUND_S).body == b"x"
    receiver.accept()
    connection.close()
    told.wait_for_publish(BOUND_S)
    client.disconnect()
    client.loop_stop()


@needs_mosquitto
def test_amqp_and_mqtt_share_a_topic(routers: Routers) -> None:
    mqtt = MosquittoSub(routers.b, "shared/#", 2, "-q", "2", "-V", "5", "-F", "%t %p %P")
    connection = BlockingConnection(routers.network["a"].url, timeout=BOUND_S)
    receiver = connection.create_receiver("telemetry", credit=10)

    def send() -> None:
        other = BlockingConnection(routers.network["b"].url, timeout=BOUND_S)
        message = Message(b"from amqp", inferred=True, subject="shared/a", properties={"k": "v"})
        other.create_sender("telemetry").send(message, timeout=BOUND_S)
        other.close()

    sending = threading.Thread(target=send)
    sending.start()
    first = receiver.receive(BOUND_S)
    receiver.accept()  # it is written with the next wait
    options = ["-q", "2", "-V", "5", "-D", "PUBLISH", "user-property", "k", "w", "-m", "from mqtt"]
    publisher = subprocess.Popen(["mosquitto_pub", "-p", str(routers.a), "-t", "shared/b", *options])
    second = receiver.receive(BOUND_S)
    receiver.accept()
    connection.close()  # writes the acceptances first
    sending.join(BOUND_S)
    assert publisher.wait(BOUND_S) == 0
    got: list[tuple[Any, ...]] = [(each.subject, each.body, each.properties) for each in (first, second)]
    assert got == [
        ("shared/a", b"from amqp", {"k": "v"}),
        ("shared/b", b"from mqtt", {"k": "w"}),
    ]
    assert mqtt.result() == ["shared/a from amqp k:v", "shared/b from mqtt k:w"]


@needs_mosquitto
def test_users_come_in_with_a_password_and_only_through_tls(tmp_path: Path) -> None:
    pki = Pki(tmp_path / "pki")
    pki.certificate("router", "127.0.0.1", "localhost")
    store_users(tmp_path / "users.json", Users({USER: User(with_password(PASSWORD))}))
    network = LiveNetwork(tmp_path, addresses=[{"match": "*", "no_subscribers": "accept"}])
    document = network.topology()
    secure, plain, web = free_port(), free_port(), free_port()
    document |= {
        "mqtt": {"topics": {"#": "telemetry"}},
        "sasl": {"users": "users.json"},
        "tls": {"outside": {"certificate": "pki/router.pem", "ca": "pki/ca.pem"}},
        "policies": [{"users": [USER], "send": ["telemetry"], "receive": ["telemetry"]}],
        "websocket": {"origins": [f"https://127.0.0.1:{web}"]},  # paho says that it is a page of the host
    }
    document["routers"]["a"] |= {"mqtt": plain, "mqtts": secure, "wss": web, "tls": "outside"}
    context = ssl.create_default_context(cafile=str(pki.ca))

    def answer(port: int, user: str | None, password: str | None, version: int) -> str:
        codes: list[str] = []
        transport: Literal["websockets", "tcp"] = "websockets" if port == web else "tcp"
        client = paho.Client(CallbackAPIVersion.VERSION2, transport=transport, protocol=version)  # type: ignore[arg-type]
        client.on_connect = lambda _client, _data, _flags, reason, _properties: codes.append(str(reason))
        if user is not None:
            client.username_pw_set(user, password)
        if port != plain:
            client.tls_set_context(context)
        client.connect("127.0.0.1", port)
        client.loop_start()
        try:
            return str(wait_until(lambda: codes, "CONNACK", BOUND_S)[0])
        finally:
            client.disconnect()
            client.loop_stop()

    with started(tmp_path, document, network):
        assert answer(secure, USER, PASSWORD, 5) == "Success"
        assert answer(secure, USER, PASSWORD, 4) == "Success"
        assert answer(web, USER, PASSWORD, 5) == "Success"
        for port, user, password in ((secure, USER, "no"), (secure, None, None), (plain, USER, PASSWORD)):
            assert answer(port, user, password, 5) == "Bad user name or password"
        with pytest.raises(subprocess.CalledProcessError):  # it says goodbye in TLS, and nothing in that
            mosquitto_pub(secure, "t", "-m", "m", "--cafile", str(pki.ca), "-u", USER, "-P", "no")
    assert "no TLS with" not in network["a"].log_tail(1_000)


class Raw:
    """A client of version 5 that does one step of QoS 2 at a time, which paho's do not."""

    def __init__(self, port: int, client_id: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=BOUND_S)
        self.reader = PacketReader(version=5)
        self.inbox: list[Packet] = []
        connack = self.ask(Connect(client_id, 5, clean_start=False, properties=Properties(session_expiry_s=50)))
        self.present = connack.session_present

    def ask(self, packet: Packet) -> Packet:
        """The next packet that comes after this one was sent."""
        self.socket.sendall(encode(packet, 5))
        while not self.inbox:
            self.inbox += self.reader.receive_data(self.socket.recv(65_536))
        return self.inbox.pop(0)


@needs_mosquitto
def test_publisher_goes_on_at_another_router_where_it_was(routers: Routers) -> None:
    subscriber = MosquittoSub(routers.b, "moves", 3, "-q", "2", "-V", "5")
    first = Raw(routers.a, "moving")
    assert first.ask(Publish("moves", b"one", 2, packet_id=1)) == Pubrec(1)
    assert first.ask(Publish("moves", b"two", 2, packet_id=2)) == Pubrec(2)
    second = Raw(routers.b, "moving")
    assert second.present
    assert second.ask(Publish("moves", b"one", 2, dup=True, packet_id=1)) == Pubrec(1)
    for identifier in (1, 2):
        assert second.ask(Pubrel(identifier)) == Pubcomp(identifier)
    assert second.ask(Publish("moves", b"three", 2, packet_id=1)) == Pubrec(1)
    assert subscriber.result() == ["one", "two", "three"]
    assert isinstance(first.inbox.pop() if first.inbox else first.ask(Pingreq()), Disconnect)
    for client in (first, second):
        client.socket.close()


@needs_mosquitto
def test_one_identifier_for_message_after_message(routers: Routers) -> None:
    count = 200
    subscriber = MosquittoSub(routers.b, "again", count, "-q", "2", "-V", "5")
    publisher = Raw(routers.a, "again")
    for number in range(count):
        assert publisher.ask(Publish("again", str(number).encode(), 2, packet_id=7)) == Pubrec(7)
        assert publisher.ask(Pubrel(7)) == Pubcomp(7)
    publisher.socket.close()
    assert subscriber.result() == [str(number) for number in range(count)]
