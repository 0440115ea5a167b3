"""The cases of the cost fuzz (cost.py): whatever strangers may send, made by its grammar, in sizes.

What there is comes from the product's own tables: every performative with every field (amqp10.composite), every section
of a message, every filter (router.links.filters), every packet of MQTT with every field and property. In each place
grows each kind of value that is read there. What a table gets new is a case without a change here.
"""

# mypy: disable-error-code="misc"
# (it infers no type for a lambda that binds a loop's variable, of which a table of grammars is made)

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields as fields_of
from itertools import product
from typing import Any, Final

import mqtt
from amqp10.annotations import section_head
from amqp10.composite import BY_CODE, Composite
from amqp10.decoder import decode_value
from amqp10.encoder import encode_value
from amqp10.frames import AMQP_FRAME, AMQP_HEADER, SASL_FRAME, SASL_HEADER, encode_frame
from amqp10.outcomes import ACCEPTED, RELEASED, Rejected
from amqp10.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    Transfer,
)
from amqp10.sasl import ANONYMOUS_IDENTITY, Success
from amqp10.sections import Message, Properties
from amqp10.termini import Source, Target
from amqp10.types import Array, Described, Symbol, ULong
from chaos.fuzz.cost import Case, Turn
from edges.bus.rules import BadRequest, read_json
from edges.metadata.wire import Decoder
from onceway.base.websocket import ListenerWebSocket
from onceway.serve.clients import FRAMES_AT_ONCE, ClientCarrier
from router import names
from router.config import SHARED, AddressConfig, Life, RouterConfig
from router.links.client_connection import ClientConnection
from router.links.filters import KNOWN_FILTERS
from router.links.predicate import Predicate, PredicateError
from router.links.selector import SelectorError, compile_selector
from router.mqtt.base import SESSIONS
from router.mqtt.connection import MqttConnection
from router.router import Router

READ: Final = ClientCarrier.least_read  # bytes: what is read at once of a client whose reads are slow
NOW: Final = 1_000.0
UNBOUNDED: Final = 1 << 60
MAPPED: Final = 1 << 15
ANSWER_STEPS: Final = 12
"""For each entry of an unsettled map: the core's own step. The answer lists what the map has, as it stands then."""
P61: Final = 2**61 - 1  # Python's hash of a number is the number modulo this


class World:
    """A router and its clients."""

    def __init__(self) -> None:
        addresses = (
            AddressConfig(SESSIONS, no_subscribers="release"),
            AddressConfig(f"{SHARED}*", type="queue", no_subscribers="accept"),
            AddressConfig("queue", type="queue", priority=True),
            AddressConfig("expiring", expire=True, no_subscribers="accept"),
            AddressConfig("held"),
            AddressConfig("*", no_subscribers="accept"),
        )
        config = RouterConfig("a", ("a",), addresses, mqtt_topics=(("#", "all"),))
        self.router = Router(config, Life(1, NOW, True), wall_us=lambda: int(NOW * 1e6))
        self.out: dict[ClientConnection | MqttConnection, bytes] = {}

    def client(self, name: str, *, sessions: int = 1) -> ClientConnection:
        client = self.router.connect(NOW)
        client.connection.reader.budget = FRAMES_AT_ONCE
        begins = [(Begin(None, 0, 1 << 20, 1 << 20), channel) for channel in range(sessions)]
        self.says(client, AMQP_HEADER + frame(Open(name)) + b"".join(frame(*each) for each in begins))
        return client

    def mqtt(self, name: str) -> MqttConnection:
        client = self.router.connect_mqtt(
            NOW, "127.0.0.1:9", secure=False, authenticate=lambda user, password: Success(ANONYMOUS_IDENTITY)
        )
        if name:
            self.says(client, mqtt.encode(mqtt.Connect(name), 5))
        return client

    def says(self, client: ClientConnection | MqttConnection, data: bytes) -> None:
        for turn in self.turns(client, data, len(data)):
            turn()

    def turns(self, client: ClientConnection | MqttConnection, data: bytes, piece: int = READ) -> Iterator[Turn]:
        """The client says this, in pieces. What is done in parts takes a turn for each, as `onceway.serve` has it."""

        def hears(said: bytes) -> None:
            client.receive_data(said, NOW)
            self._write()

        for start in range(0, len(data), piece):
            yield lambda start=start: hears(data[start : start + piece])
            while self.router.wants_flush or client.more:
                yield lambda: hears(b"") if client.more else self._write()

    def _write(self) -> None:
        self.router.flush(NOW)
        self.router.take_messages()
        for connection in self.router.take_dirty():
            self.out[connection] = connection.data_to_send()


def frame(performative: Composite, channel: int = 0, payload: bytes = b"", kind: int = AMQP_FRAME) -> bytes:
    return encode_frame(kind, channel, performative.encode() + payload)


def publishing(handle: int = 0, address: str = "t", **fields: Any) -> Attach:
    return Attach(f"p{handle}", handle, False, target=Target(address), initial_delivery_count=0, **fields)


def subscribing(handle: int = 0, address: str = "t", chosen: Any = None) -> Attach:
    return Attach(f"s{handle}", handle, True, rcv_settle_mode=1, source=Source(address, filter=chosen), target=Target())


def credit(handle: int = 0, count: int = 100_000) -> Flow:
    return Flow(0, 1 << 20, 0, 1 << 20, handle=handle, delivery_count=0, link_credit=count)


# --- values that grow, wherever there is one


def nested(n: int) -> Any:
    value: Any = [None] * n
    for _ in range(20):
        value = [value]
    return value


GROWN: Final[dict[str, Callable[[int], Any]]] = {
    "text": lambda n: "x" * n,
    "symbol": lambda n: Symbol("x" * n),
    "binary": lambda n: b"x" * n,
    "symbols": lambda n: Array("symbol", [f"x{i}" for i in range(n)]),
    "list": lambda n: [None] * n,
    "deep": nested,
    "map": lambda n: {Symbol(f"x{i}"): i for i in range(n)},
    "texts": lambda n: {f"x{i}": "y" for i in range(n)},
    "one-hash": lambda n: {uuid.UUID(int=7 + i * P61): None for i in range(n)},
    "longs": lambda n: {ULong(i << 32): i for i in range(n)},
    "tags": lambda n: {b"%d" % i: None for i in range(n)},
    "deliveries": lambda n: {b"somebody" + (1).to_bytes(8, "big") + b"%d" % i: None for i in range(n)},
    "states": lambda n: {b"%d" % i: Rejected() for i in range(n)},
    "described": lambda n: Described(ULong(0x99), [None] * n),
    "modified": lambda n: Described(ULong(0x27), [True, True, {Symbol(f"x{i}"): i for i in range(n)}]),
    "error": lambda n: Described(ULong(0x1D), [Symbol("x"), "x" * n, {Symbol(f"x{i}"): i for i in range(n)}]),
    "source": lambda n: Described(
        ULong(0x28), ["t", None, None, None, None, None, None, {Symbol(f"x{i}"): "x = 1" for i in range(n)}]
    ),
}

PERFORMATIVES: Final[dict[type[Composite], Composite]] = {
    Open: Open("c"),
    Begin: Begin(None, 0, 100, 100),
    Attach: subscribing(2),
    Flow: credit(0, 10),
    Transfer: Transfer(1, 0, b"0", 0),
    Disposition: Disposition(True, 0, 10, False, ACCEPTED),
    Detach: Detach(0, True),
    End: End(),
    Close: Close(),
    SaslMechanisms: SaslMechanisms(("PLAIN",)),
    SaslInit: SaslInit("PLAIN", b"\0u\0p"),
    SaslChallenge: SaslChallenge(b""),
    SaslResponse: SaslResponse(b""),
    SaslOutcome: SaslOutcome(0),
}
_OF_OTHERS: Final = (
    "source", "target", "coordinator", "error", "received", "accepted", "rejected", "released", "modified",
)  # fmt: skip
"""Beginnings of the names of composites that stand within others."""


def of_fields() -> Iterator[Case]:
    """Every performative, with every kind of value in every field."""
    for cls, plain in PERFORMATIVES.items():
        sasl = cls.type_name.startswith("sasl")
        for place, kind in product(range(len(cls.fields)), GROWN):
            if sasl and kind in ("tags", "deliveries", "states", "modified", "source"):
                continue

            def prepare(n: int, plain: Composite = plain, place: int = place, kind: str = kind) -> Iterator[Turn]:
                octets = plain.encode()
                values = list(decode_value(octets)[0].value)
                values += [None] * (place + 1 - len(values))
                values[place] = GROWN[kind](n)
                body = encode_value(Described(ULong(plain.descriptor_code), values))
                world = World()
                if plain.type_name.startswith("sasl"):
                    client = world.router.connect(NOW)
                    return world.turns(client, SASL_HEADER + encode_frame(SASL_FRAME, 0, body))
                if isinstance(plain, Open):
                    client = world.router.connect(NOW)
                    return world.turns(client, AMQP_HEADER + encode_frame(AMQP_FRAME, 0, body))
                client = world.client("c")
                world.says(client, frame(subscribing()) + frame(publishing(1)) + frame(credit()))
                return world.turns(client, encode_frame(AMQP_FRAME, 0, body))

            yield Case(f"field/{cls.fields[place].where}/{kind}", prepare)


def of_maps() -> Iterator[Case]:
    """Unsettled maps of what is a client's: a publisher's, which proves itself, and a subscription's."""
    answered = ANSWER_STEPS * MAPPED
    for (kind, role), state in product((("publisher", False), ("subscription", True)), (None, ACCEPTED, Rejected())):

        def prepare(n: int, role: bool = role, state: Any = state) -> Iterator[Turn]:
            world = World()
            client = world.client("c")
            tags = GROWN["deliveries"](n)
            attach = subscribing(7) if role else publishing(7, properties={Symbol(names.INCARNATION): ULong(3)})
            attach.unsettled = dict.fromkeys(tags, state)
            proof = Flow(0, 1 << 20, 0, 1 << 20, handle=7, delivery_count=0, link_credit=10)
            return world.turns(client, frame(attach) + frame(proof))

        told = "undecided" if state is None else type(state).__name__.lower()
        yield Case(f"map/{kind}/{told}", prepare, 32, MAPPED, answered)


# --- many things that stand there, and many frames about them

LINKS: Final = 200  # of one session: handle-max is 255
MANY: Final = 1 << 16  # bytes of many frames: a first read may bring more, of which the reader's budget takes a part


def deliveries(world: World, client: ClientConnection, n: int, *, sends: bool) -> None:
    """n of this client's are unsettled, those of two links by turns: n ranges."""
    for handle in (0, 1):
        attach = publishing(handle, f"held{handle}") if sends else subscribing(handle, f"t{handle}")
        world.says(client, frame(attach) + (b"" if sends else frame(credit(handle))))
    other = client if sends else world.client("other")
    if sends:
        reader = world.client("reader")
        for handle in (0, 1):
            world.says(reader, frame(subscribing(handle, f"held{handle}")) + frame(credit(handle)))
    else:
        for handle in (0, 1):
            world.says(other, frame(publishing(handle, f"t{handle}")))
    for number in range(n):
        tag = number.to_bytes(4, "big")
        world.says(other, frame(Transfer(number & 1, number, tag, 0), 0, b"\x00Su\xa0\x00"))


def links(world: World, client: ClientConnection, n: int, *, sends: bool, first: int = 0) -> None:
    """first: number of the first address."""
    for handle in range(n):
        address = f"a{first + handle}"
        attach = publishing(handle, address) if sends else subscribing(handle, address)
        world.says(client, frame(attach) + (b"" if sends else frame(credit(handle, 1))))


STANDING: Final[dict[str, tuple[Callable[[World, ClientConnection, int], None], int]]] = {
    "sent": (lambda world, client, n: deliveries(world, client, n, sends=True), 900),
    "received": (lambda world, client, n: deliveries(world, client, n, sends=False), 900),
    "publishers": (lambda world, client, n: links(world, client, n, sends=True), LINKS),
    "subscribers": (lambda world, client, n: links(world, client, n, sends=False), LINKS),
}
REPEATED: Final[dict[str, Callable[[int, int], bytes]]] = {
    "accepted": lambda n, i: frame(Disposition(True, 0, n, False, ACCEPTED)),
    "outcomes": lambda n, i: frame(Disposition(True, 0, n, False, (ACCEPTED, RELEASED)[i % 2])),
    "unknown": lambda n, i: frame(Disposition(True, i % 7, n, False, Described(ULong(0x99), []))),
    "settled-one-by-one": lambda n, i: frame(Disposition(True, n - i, n, True, ACCEPTED)),
    "sender-says": lambda n, i: frame(Disposition(False, 0, n, False, ACCEPTED)),
    "sender-settles": lambda n, i: frame(Disposition(False, n - i, n, True)),
    "session-flow": lambda n, i: frame(Flow(0, i % 2, 0, 1000, echo=True)),
    "link-flow": lambda n, i: frame(
        Flow(0, 1000, 0, 1000, handle=0, delivery_count=0, link_credit=i, drain=i % 2 == 1)
    ),
    "link": lambda n, i: frame(publishing(250, "other")) + frame(Detach(250, True)),
    "subscription": lambda n, i: frame(subscribing(250, "other")) + frame(Detach(250, True)),
    "empty": lambda n, i: encode_frame(AMQP_FRAME, 0, b""),
}


def of_many() -> Iterator[Case]:
    for (name, (stand, most)), (said, make) in product(STANDING.items(), REPEATED.items()):

        def prepare(
            n: int,
            stand: Callable[[World, ClientConnection, int], None] = stand,
            make: Callable[[int, int], bytes] = make,
            most: int = most,
        ) -> Iterator[Turn]:
            n = min(n, most)
            world = World()
            client = world.client("c")
            stand(world, client, n)
            return world.turns(client, b"".join(make(n, i) for i in range(n)), MANY)

        yield Case(f"many/{name}/{said}", prepare, 30, most)


# --- messages

SECTIONS: Final = {"delivery-annotations": 0x71, "message-annotations": 0x72, "application-properties": 0x74,
                   "data": 0x75, "amqp-sequence": 0x76, "amqp-value": 0x77, "footer": 0x78, "header": 0x70,
                   "properties": 0x73}  # fmt: skip


def section(name: str, value: Any) -> bytes:
    if name == "header":
        value = [True, 4, value]
    elif name == "properties":
        value = [value] * 2
    return section_head(SECTIONS[name]) + encode_value(value)


BODIES: Final[dict[str, Callable[[int], bytes]]] = {
    **{
        f"{name}/{kind}": lambda n, name=name, grow=grow: (
            section(name, grow(n)) + (b"" if name in ("data", "amqp-value", "amqp-sequence") else b"\x00Su\xa0\x00")
        )
        for name, (kind, grow) in product(SECTIONS, GROWN.items())
        if kind not in ("states", "source", "modified", "error", "tags", "deliveries")
    },
    **{f"{name}/repeated": lambda n, name=name: section(name, b"" if name == "data" else []) * n for name in SECTIONS},
    "subject/words": lambda n: Message(b"", properties=Properties(subject="a." * n)).encode(),
    "subject/plain": lambda n: Message(b"", properties=Properties(subject="a" * n)).encode(),
}
SELECTOR: Final = Symbol("apache.org:selector-filter:string")
READERS: Final[dict[str, tuple[str, dict[Symbol, Any] | None]]] = {
    "nobody": ("t", None),
    "selector": ("t", {SELECTOR: "x1 = 'y' OR x2 = 1"}),
    "like": ("t", {SELECTOR: "amqp.subject LIKE '%a_a_a%b%'"}),
    "topic": ("t", {Symbol("apache.org:legacy-amqp-topic-binding:string"): "#.a.#.b"}),
    "partition": ("t", {Symbol("onceway:partition"): [0, 3]}),
    "properties": ("t", {Symbol("amqp:application-properties-filter"): {"x": 1}}),
    "queue": ("queue", None),
    "expiring": ("expiring", None),
    "mqtt": ("all", None),
}


def of_messages() -> Iterator[Case]:
    """Every section, with every kind of value, or many times, as seen by every reader that a router has."""
    for (body, make), (reader, (address, chosen)) in product(BODIES.items(), READERS.items()):

        def prepare(
            n: int,
            make: Callable[[int], bytes] = make,
            reader: str = reader,
            address: str = address,
            chosen: dict[Symbol, Any] | None = chosen,
        ) -> Iterator[Turn]:
            world = World()
            if reader == "mqtt":
                world.says(world.mqtt("m"), mqtt.encode(mqtt.Subscribe(1, [mqtt.Subscription("#")]), 5))
            elif reader != "nobody":
                world.says(world.client("s"), frame(subscribing(0, address, chosen)) + frame(credit()))
            client = world.client("c")
            world.says(client, frame(publishing(0, address)))
            return world.turns(client, frame(Transfer(0, 0, b"0", 0), 0, make(n)))

        yield Case(f"message/{body}/{reader}", prepare)


def of_runs() -> Iterator[Case]:
    """Many messages, many frames of one message, many subscriptions that look at one."""

    def messages(n: int) -> Iterator[Turn]:
        world = World()
        world.says(world.client("s"), frame(subscribing(0, "t", {SELECTOR: "x = 1"})) + frame(credit()))
        client = world.client("c")
        world.says(client, frame(publishing()))
        payload = Message(b"", application_properties={"x": 1}).encode()
        return world.turns(client, b"".join(frame(Transfer(0, i, b"%d" % i, 0), 0, payload) for i in range(n)))

    def parts(n: int) -> Iterator[Turn]:
        world = World()
        client = world.client("c")
        world.says(client, frame(publishing()))
        first = frame(Transfer(0, 0, b"0", 0, more=True), 0, b"\x00Su\xb0\x00\x00\xff\xff")
        return world.turns(client, first + frame(Transfer(0, more=True), 0, b"x") * n)

    yield Case("run/messages", messages, 40, 900)
    yield Case("run/parts", parts, 30)


# --- filters


def repeat(each: str, joint: str) -> Callable[[int], str]:
    return lambda n: joint.join(each.replace("#", str(i)) for i in range(n))


SELECTORS: Final[dict[str, Callable[[int], str]]] = {
    "and": repeat("x# <> 1", " AND "),
    "or": repeat("x# = 1", " OR "),
    "sum": lambda n: "x = " + " + ".join(["1"] * n),
    "product": lambda n: "x = " + " * ".join(["9"] * n),
    "in": lambda n: f"x IN ({', '.join(repr(str(i)) for i in range(n))})",
    "not": lambda n: "NOT " * n + "x = 1",
    "nested": lambda n: "(" * n + "x = 1" + ")" * n,
    "signs": lambda n: "x = " + "-" * n + "1",
    "like": lambda n: f"x LIKE '{'%a_' * n}'",
    "string": lambda n: f"x = '{chr(39) * 2 * n}'",
    "number": lambda n: "x = 1" + "0" * n,
    "hexadecimal": lambda n: "x = 0x1" + "0" * n,
    "blanks": lambda n: "x" + " " * n + "= 1",
    "quotes": lambda n: "'" * n,
}
PREDICATES: Final[dict[str, Callable[[int], str]]] = {
    "and": repeat('x# != "1"', " and "),
    "or": repeat('x# = "1"', " or "),
    "in": lambda n: f"x in ({', '.join(repr(str(i)) for i in range(n))})",
    "not": lambda n: "not " * n + "has x",
    "nested": lambda n: "(" * n + "has x" + ")" * n,
    "string": lambda n: 'x = "' + "\\\\" * n + '"',
    "quotes": lambda n: '"\\' * n,
}


def of_filters() -> Iterator[Case]:
    def selector(text: str) -> None:
        try:
            compile_selector(text)[0](lambda name: "aaaaaaaaa" * 9)
        except SelectorError:
            pass

    def predicate(text: str) -> None:
        try:
            Predicate(text).matches({"x": "1"})
        except PredicateError:
            pass

    for name, make in SELECTORS.items():
        yield Case(f"selector/{name}", lambda n, make=make: [lambda: selector(make(n))], 6, 4_096)
    for name, make in PREDICATES.items():
        yield Case(f"predicate/{name}", lambda n, make=make: [lambda: predicate(make(n))], 6, 4_096)
    for key, (kind, grow) in product([key for key in KNOWN_FILTERS if isinstance(key, str)], GROWN.items()):

        def attach(n: int, key: str = key, grow: Callable[[int], Any] = grow) -> Iterator[Turn]:
            world = World()
            return world.turns(world.client("c"), frame(subscribing(0, "t", {Symbol(key): grow(n)})))

        yield Case(f"filter/{key}/{kind}", attach)


# --- MQTT

PACKETS: Final[dict[type[Any], Any]] = {
    mqtt.Connect: mqtt.Connect("m"),
    mqtt.Publish: mqtt.Publish("t", b"x"),
    mqtt.Puback: mqtt.Puback(1),
    mqtt.Pubrec: mqtt.Pubrec(1),
    mqtt.Pubrel: mqtt.Pubrel(1),
    mqtt.Pubcomp: mqtt.Pubcomp(1),
    mqtt.Subscribe: mqtt.Subscribe(1, [mqtt.Subscription("t")]),
    mqtt.Unsubscribe: mqtt.Unsubscribe(1, ["t"]),
    mqtt.Pingreq: mqtt.Pingreq(),
    mqtt.Disconnect: mqtt.Disconnect(),
    mqtt.Auth: mqtt.Auth(),
}
"""Those that clients send."""
TEXTS: Final[dict[str, Callable[[int], str]]] = {
    "long": lambda n: "x" * n,
    "levels": lambda n: "/".join("x" * n),
    "plus": lambda n: "/".join("+" * n),
    "mixed": lambda n: "/".join("+x" * (n // 2)) + "/#",
}
PROPERTIES: Final[dict[str, Callable[[int], Any]]] = {
    "user_properties": lambda n: tuple(("x", "y") for _ in range(n)),
    "content_type": lambda n: "x" * n,
    "response_topic": lambda n: "/".join("x" * n),
    "correlation_data": lambda n: b"x" * n,
    "reason_string": lambda n: "x" * n,
}


def grown_packets() -> Iterator[tuple[str, Callable[[int], Any]]]:
    for cls, plain in PACKETS.items():
        name = cls.__name__.lower()
        yield f"{name}/repeated", lambda n, plain=plain: [plain] * n
        for each in fields_of(cls):
            value = getattr(plain, each.name)
            if each.name == "properties":
                for key, grow in PROPERTIES.items():
                    yield (
                        f"{name}/{key}",
                        lambda n, plain=plain, key=key, grow=grow: [
                            dataclasses.replace(plain, properties=mqtt.Properties(**{key: grow(n)}))
                        ],
                    )
            elif isinstance(value, str) or each.name in ("username",):
                for kind, text in TEXTS.items():
                    yield (
                        f"{name}/{each.name}/{kind}",
                        lambda n, plain=plain, field=each.name, text=text: [
                            dataclasses.replace(plain, **{field: text(n)})
                        ],
                    )
            elif isinstance(value, bytes) or each.name == "password":
                yield (
                    f"{name}/{each.name}",
                    lambda n, plain=plain, field=each.name: [dataclasses.replace(plain, **{field: b"x" * n})],
                )
            elif isinstance(value, list):
                for kind, text in TEXTS.items():
                    yield (
                        f"{name}/{each.name}/{kind}",
                        lambda n, plain=plain, field=each.name, text=text: [
                            dataclasses.replace(plain, **{field: [_filter(plain, text(n))]})
                        ],
                    )
                yield (
                    f"{name}/{each.name}/many",
                    lambda n, plain=plain, field=each.name: [
                        dataclasses.replace(plain, **{field: [_filter(plain, f"a/{i}") for i in range(n)]})
                    ],
                )
                yield (
                    f"{name}/{each.name}/wild",
                    lambda n, plain=plain, field=each.name: [
                        dataclasses.replace(plain, **{field: [_filter(plain, f"+/{i}/#") for i in range(n)]})
                    ],
                )


def _filter(packet: Any, text: str) -> Any:
    return mqtt.Subscription(text) if isinstance(packet, mqtt.Subscribe) else text


def of_packets() -> Iterator[Case]:
    for name, make in grown_packets():

        def prepare(n: int, make: Callable[[int], list[Any]] = make) -> Iterable[Turn]:
            world = World()
            packets = make(n)
            client = world.mqtt("" if isinstance(packets[0], mqtt.Connect) else "m")
            try:
                data = b"".join(mqtt.encode(packet, 5) for packet in packets)
            except mqtt.EncodeError:  # MQTT has no such packet
                return []
            return world.turns(client, data)

        yield Case(f"mqtt/{name}", prepare, 4)


# --- other listeners


def of_others() -> Iterator[Case]:
    head = b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    key = b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: amqp\r\n"

    def socket(data: bytes, opened: bool) -> Iterator[Turn]:
        websocket = ListenerWebSocket(("amqp",))
        if opened:
            websocket.receive(head + key + b"\r\n")
        for start in range(0, len(data), READ):
            yield lambda start=start: websocket.receive(data[start : start + READ])

    yield Case("websocket/headers", lambda n: socket(head + b"A: b\r\n" * n, False), 6)
    yield Case("websocket/header", lambda n: socket(head + b"A: " + b"b, " * n + b"\r\n\r\n", False), 3)
    yield Case("websocket/frames", lambda n: socket((b"\x82\x80" + bytes(4)) * n, True), 6)
    yield Case("websocket/pings", lambda n: socket((b"\x89\x80" + bytes(4)) * n, True), 6)
    yield Case("websocket/parts", lambda n: socket(b"\x02\x80" + bytes(4) + (b"\x00\x81" + bytes(5)) * n, True), 7)

    def packed(data: bytes) -> Iterator[Turn]:
        decoder = Decoder(1 << 20)
        for start in range(0, len(data), READ):
            yield lambda start=start: decoder.feed(data[start : start + READ])

    def keys(n: int) -> bytes:
        import msgpack

        named = "00000000-0000-0000-0000-000000000007"
        return bytes(msgpack.packb([named, {f"k{i}": i for i in range(n)}, 1]))

    yield Case("metadata/keys", lambda n: packed(keys(n)), 6)
    yield Case("metadata/messages", lambda n: packed(b"\xa3x=1" * n), 4)
    yield Case("metadata/numbers", lambda n: packed(b"\x93\xa1x\xdf" + n.to_bytes(4, "big") + b"\x01\x02" * n), 2)

    def body(data: bytes) -> None:
        try:
            read_json(data)
        except BadRequest:
            pass

    for name, data in (
        ("keys", lambda n: b"{" + b",".join(b'"%d":1' % i for i in range(n)) + b"}"),
        ("digits", lambda n: b'{"a":' + b"9" * n + b"}"),
        ("deep", lambda n: b'{"a":' * n + b"1" + b"}" * n),
    ):
        yield Case(f"json/{name}", lambda n, data=data: [lambda: body(data(n))], 6)


MAKERS: Final = (of_fields, of_maps, of_many, of_messages, of_runs, of_filters, of_packets, of_others)


def left_out() -> set[str]:
    """Composites of AMQP that no case has: sections and what stands within others have theirs with these."""
    within = {cls.type_name for cls in BY_CODE.values() if cls.type_name.startswith(_OF_OTHERS)}
    return (
        {cls.type_name for cls in BY_CODE.values()} - {cls.type_name for cls in PERFORMATIVES} - within - set(SECTIONS)
    )
