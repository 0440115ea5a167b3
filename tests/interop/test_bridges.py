"""mosquitto's bridges, with their defaults, to two routers (docs/mqtt.md, "Bridges")."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from chaos.live.ports import free_port
from tests.interop import debian
from tests.interop.test_mqtt import StoreThread
from tests.live import PATIENT, LiveNetwork, wait_until
from tests.running import BOUND_S, Program

VERSIONS = ("mqttv311", "mqttv50")


class Client:
    """At a broker or a router. `got` has (topic, payload, RETAIN) of what came."""

    def __init__(self, port: int, *filters: str) -> None:
        self.got: list[tuple[str, str, bool]] = []
        granted = threading.Semaphore(0)
        self._client = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
        self._client.on_message = lambda _client, _data, message: self.got.append(
            (message.topic, message.payload.decode(), message.retain)
        )
        self._client.on_subscribe = lambda *_: granted.release()
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()
        for each in filters:
            self._client.subscribe(each, options=paho.SubscribeOptions(2, retainAsPublished=True))
            assert granted.acquire(timeout=BOUND_S)

    def publish(self, topic: str, payload: str, *, qos: int = 1, retain: bool = False) -> None:
        self._client.publish(topic, payload, qos, retain).wait_for_publish(BOUND_S)

    def wait(self, count: int) -> list[tuple[str, str, bool]]:
        wait_until(lambda: len(self.got) >= count, f"{count} messages, not {self.got}", BOUND_S)
        return self.got

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


class Broker:
    """mosquitto with a bridge."""

    def __init__(self, directory: Path, name: str, remote: int, version: str, *topics: str) -> None:
        here = debian.found("mosquitto")
        if here is None:
            pytest.skip("mosquitto is not installed: it is Debian's package mosquitto")
        self.port = free_port()
        lines = [
            f"listener {self.port} 127.0.0.1", "allow_anonymous true", "log_dest stderr", "log_type all",
            f"connection {name}", f"address 127.0.0.1:{remote}", f"bridge_protocol_version {version}",
            *(f"topic {each}" for each in topics),
        ]  # fmt: skip
        config = directory / "mosquitto.conf"
        config.write_text("\n".join([*lines, ""]))
        self._program = Program([here[0], "-c", str(config)], here[1])

    @property
    def said(self) -> str:
        """Its log."""
        return self._program.errors

    def until(self, text: str, count: int = 1) -> None:
        """Until its log has this so many times."""
        wait_until(lambda: self.said.count(text) >= count, f"{text} in\n{self.said}", BOUND_S)

    def close(self) -> None:
        self._program.__exit__()


@dataclass(frozen=True, slots=True)
class Routers:
    """a and b know the topics below `plant` and have a store of what is retained."""

    network: LiveNetwork
    a: int
    b: int


@pytest.fixture(scope="module")
def routers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Routers]:
    directory = tmp_path_factory.mktemp("bridges")
    network = LiveNetwork(directory, ("a", "b"), [("a", "b")], [{"match": "*", "no_subscribers": "accept"}], PATIENT)
    ports = network.serve_mqtt(topics={"plant": "telemetry"}, retained={"address": "retained", "stores": ["s"]})
    with network.start(), StoreThread(directory / "s.db", network["b"].url):
        first = Client(ports["a"], "plant/first")
        first.publish("plant/first", "x", retain=True)
        for each in (Client(port, "plant/first") for port in ports.values()):  # what is retained is known
            each.wait(1)
            each.close()
        first.close()
        yield Routers(network, ports["a"], ports["b"])


@dataclass(frozen=True, slots=True)
class Bridged:
    """`at` is what a test's topics begin with; a client of the broker, and one of router b."""

    at: str
    broker: Broker
    here: Client
    there: Client


def connected_once(broker: Broker) -> None:
    """Neither its level nor its state in `$SYS`, nor a filter that the routers do not know, has ended its connection."""
    assert broker.said.count("sending CONNECT") == 1, broker.said


@pytest.fixture(params=VERSIONS)
def make(request: pytest.FixtureRequest, tmp_path: Path, routers: Routers) -> Iterator[Callable[[str], Bridged]]:
    """Makes a broker with a bridge to router a, of topics below `at`, and of others that the routers do not know."""
    with ExitStack() as closing:

        def made(direction: str) -> Bridged:
            at = f"plant/{direction.partition(' ')[0]}-{request.param}"
            topics = f"{at}/# {direction}", "office/# both 1"
            broker = Broker(tmp_path, at.replace("/", "-"), routers.a, request.param, *topics)
            closing.callback(broker.close)
            closing.callback(connected_once, broker)
            broker.until(" SUBACK", 1 if direction.startswith("out") else 2)
            clients = Client(broker.port, f"{at}/#"), Client(routers.b, f"{at}/#")
            for each in clients:
                closing.callback(each.close)
            return Bridged(at, broker, *clients)

        yield made


def shown(client: Client, at: str, count: int) -> list[tuple[str, str, bool]]:
    """Topic below `at`, payload and RETAIN of so many messages."""
    return [(topic.removeprefix(f"{at}/"), payload, retain) for topic, payload, retain in client.wait(count)]


def test_bridge_out(make: Callable[[str], Bridged]) -> None:
    each = make("out 2")
    each.there.publish(f"{each.at}/there", "stays")
    for number in range(3):
        each.here.publish(f"{each.at}/{number}", "goes", qos=number, retain=number == 1)
    goes = [(f"{number}", "goes", number == 1) for number in range(3)]
    assert shown(each.here, each.at, 3) == goes
    assert shown(each.there, each.at, 4) == [("there", "stays", False), *goes]


def test_bridge_in(make: Callable[[str], Bridged]) -> None:
    """What is retained in the network is retained by the broker, what was there before the bridge, too."""
    each = make("in 2")
    each.here.publish(f"{each.at}/here", "stays")
    for number in range(3):
        each.there.publish(f"{each.at}/{number}", "comes", qos=number, retain=number == 1)
    comes = [(f"{number}", "comes", number == 1) for number in range(3)]
    assert shown(each.here, each.at, 4) == [("here", "stays", False), *comes]
    assert shown(each.there, each.at, 3) == comes
    late = Client(each.broker.port, f"{each.at}/#")
    assert shown(late, each.at, 1) == [("1", "comes", True)]
    late.close()


def test_bridge_both(make: Callable[[str], Bridged]) -> None:
    """Nothing comes back to where it was published, which would be between these and what comes from the other side."""
    each = make("both 2")
    for number in range(3):
        each.here.publish(f"{each.at}/{number}", "goes", qos=number, retain=number == 1)
        shown(each.there, each.at, 2 * number + 1)
        each.there.publish(f"{each.at}/{number}", "comes", qos=number, retain=number == 1)
        shown(each.here, each.at, 2 * number + 2)
    both = [(f"{number}", payload, number == 1) for number in range(3) for payload in ("goes", "comes")]
    assert shown(each.here, each.at, 6) == both
    assert shown(each.there, each.at, 6) == both
    each.there.publish(f"{each.at}/end", "")
    assert shown(each.here, each.at, 7)[6:] == [("end", "", False)]
