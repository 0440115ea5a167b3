"""The border of input in tests: what is raised where, and a router whose clients' input is traced call by call."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from amqp10.outcomes import ACCEPTED
from amqp10.runs import Transfers
from amqp10.sasl import Success
from amqp10.sections import Message
from amqp10.termini import Source, Target
from mqtt import Connack, Connect, Packet, Properties, Puback, Publish, encode
from router import border as module
from router.border import Border
from router.config import SHARED, AddressConfig, Life, RouterConfig
from router.mqtt.base import SESSIONS
from router.reporting import NO_LOG
from router.router import Router
from tests.router import mqtt_clients
from tests.router.links import Clients
from tests.router.mqtt_clients import answer, subscribe, texts

ROOT = Path(__file__).parents[2]
LAYERS = tuple(f"{ROOT / layer}/" for layer in ("amqp10", "mqtt", "router"))
BORDER = str(Path(module.__file__))
Call = tuple[str, int, str]
"""The file and line of a call, and what is called."""


class Idle:
    """A core that nobody has called."""

    entered: float | None = None


def border() -> Border:
    """What nobody expects is raised."""
    return Border(Idle(), NO_LOG)


class Broken(Exception):
    """Nobody expects it."""


class Stop(Exception):
    """The scenario has met the injected error."""


class Told:
    """A log that keeps its errors."""

    def __init__(self) -> None:
        self.errors: list[dict[str, Any]] = []

    def debug(self, event: str, text: str, /, **fields: object) -> None:
        text.format_map(fields)

    info = warning = debug

    def error(self, event: str, text: str, /, exc: BaseException | None = None, **fields: object) -> None:
        text.format_map(fields)
        self.errors.append({"event": event, "exc": exc, **fields})


class Tracer:
    """Sees each call of the product that input causes.

    Attributes:
        before: Those that come before the core is called, or answer its questions: in the order of the first of each.
        within: The functions that are called within the core, and answer no question.
        inject: The call at whose first time an error is raised.
    """

    def __init__(self) -> None:
        self.before: dict[Call, None] = {}
        self.within: set[tuple[str, str]] = set()
        self.inject: Call | None = None
        self.fired = False
        self._core: Any = None
        self._inputs = self._questions = 0

    def of(self, core: Any) -> None:
        self._core, self.fired = core, False
        self._inputs = self._questions = 0

    def run(self, work: Callable[[], object]) -> None:
        if self.fired:
            work()
            return
        sys.setprofile(self._see)
        try:
            work()
        finally:
            sys.setprofile(None)

    def _see(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if code.co_filename == BORDER:
            change = {"call": 1, "return": -1}.get(event, 0)
            if code.co_name == "input":
                self._inputs += change
            elif code.co_name in ("ask", "each", "unwanted", "_values_of"):
                self._questions += change
        elif event == "call" and code.co_filename.startswith(LAYERS) and frame.f_back is not None:
            if self._questions or (self._inputs and self._core.entered is None):
                self._before(frame.f_back, code)
            else:
                self.within.add((code.co_filename[len(str(ROOT)) + 1 :], code.co_qualname))

    def _before(self, caller: FrameType, code: CodeType) -> None:
        call = caller.f_code.co_filename[len(str(ROOT)) + 1 :], caller.f_lineno, code.co_qualname
        self.before[call] = None
        if call == self.inject and not self.fired:
            self.fired = True
            raise Broken(call)


class MqttClient(mqtt_clients.Client):
    """One whose input goes through the border."""

    def send(self, *packets: Packet) -> list[Packet]:
        data = b"".join(encode(packet, self.version) for packet in packets)
        self.world.input(self.connection, data)  # type: ignore[attr-defined]
        self.world.settle()
        return self.take()


class Site(Clients):
    """A router with an honest pair of clients of either protocol; everything else is up to the scenario."""

    def __init__(self, tracer: Tracer) -> None:
        addresses = (
            AddressConfig(SESSIONS, subscription_timeout_s=60.0, no_subscribers="release"),
            AddressConfig(f"{SHARED}*", type="queue", subscription_timeout_s=60.0, no_subscribers="accept"),
            AddressConfig("q*", type="queue", expire=True, priority=True),
            AddressConfig("expiring", expire=True),
            AddressConfig("*", no_subscribers="accept"),
        )
        config = RouterConfig(
            "a", ("a",), addresses, mqtt_topics=(("#", "all"), ("honest", "honest")), mqtt_retained="kept"
        )
        self.told = Told()
        tokens = iter(range(100))
        router = Router(
            config, Life(1, 1_000.0, True), wall_us=lambda: 10**15, log=self.told, token=lambda: str(next(tokens))
        )
        super().__init__(router, 1_000.0)
        self.mqtt: dict[Any, mqtt_clients.Client] = {}
        self.tracer: Tracer | None = None
        self._seen: list[Any] = []
        honest = self.connect("honest")
        self.sender = honest.sender("out", target=Target("honest"))
        self.receiver = honest.receiver("in", source=Source("honest"), credit=100)
        self.honest = honest
        self.subscriber, self.publisher = self.connect_mqtt("hs"), self.connect_mqtt("hp")
        subscribe(self.subscriber, "honest/#")
        tracer.of(router.core)
        self.tracer = tracer

    # --- what `tests.router.mqtt_clients` needs of its world

    def client(self, version: int = 5, step: Success | None = None) -> MqttClient:
        client = MqttClient(self, version, step or Success("anonymous"))  # type: ignore[arg-type]
        self.mqtt[client.connection] = client
        return client

    def connect_mqtt(self, client_id: str, version: int = 5, **options: Any) -> MqttClient:
        client = self.client(version)
        answer, *client.inbox = client.send(Connect(client_id, version, **options))
        assert isinstance(answer, Connack), answer
        return client

    def settle(self) -> None:
        self.exchange()

    # --- Clients

    def input(self, served: Any, data: bytes) -> None:
        self._trace(lambda: self.router.border.input(served, served.receive_data, data, self.now))

    def _trace(self, work: Callable[[], object]) -> None:
        if self.tracer is None:
            work()
        else:
            self.tracer.run(work)

    def exchange(self) -> None:
        moved = True
        while moved:
            moved = False
            for client in self.clients:
                if data := client.connection.data_to_send():
                    moved = True
                    self.input(client.served, data)
            self._trace(lambda: self.router.flush(self.now))
            moved = moved or self.router.wants_flush
            for each in self.router.take_dirty():
                moved = True
                if each in self.mqtt:
                    self.mqtt[each].inbox += self.mqtt[each].reader.receive_data(each.data_to_send())
            for client in self.clients:
                if data := client.served.data_to_send():
                    moved = True
                    client.events += client.connection.receive_data(data, self.now)
        self.router.core.check_invariants()
        if self.tracer is not None and self.tracer.fired:
            raise Stop

    # --- what must hold after an error

    def check_honest(self) -> None:
        """The honest pairs are connected, and a message of each comes to both, once."""
        self.tracer = None
        self.sender.send([b"tag"], [Message(b"amqp").encode()])
        self.exchange()
        assert self._accepted() == ([b"amqp"], [b"amqp"])
        told = self.publisher.send(
            Publish("honest/x", b"mqtt", 1, packet_id=1, properties=Properties(content_type="t"))
        )
        assert self._accepted() == ([b"mqtt"], [b"mqtt"])
        assert [*told, *self.publisher.take()] == [Puback(1)]

    def _accepted(self) -> tuple[list[object], list[bytes]]:
        """What has come to both subscribers, who accept it."""
        transfers = [each for each in self.honest.seen(Transfers, self.receiver) if each not in self._seen]
        self._seen += transfers
        for each in transfers:
            self.receiver.dispose(each.first_id, each.first_id + len(each.tags) - 1, ACCEPTED, True)
        packets = answer(self.subscriber)
        self.exchange()
        return [Message.decode(payload).value for each in transfers for payload in each.payloads], texts(packets)
