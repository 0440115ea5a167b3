"""The border of input: what an error that nobody expects ends, wherever it is raised."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from amqp10.errors import INTERNAL_ERROR
from amqp10.events import ConnectionClosed
from amqp10.outcomes import ACCEPTED, Modified, Rejected
from amqp10.performatives import RCV_FIRST
from amqp10.runs import Dispositions
from amqp10.sections import Header, Message
from amqp10.sections import Properties as MessageProperties
from amqp10.termini import Source, Target
from amqp10.types import Described, Symbol, ULong
from mqtt import (
    Disconnect,
    Properties,
    Puback,
    Publish,
    Pubrec,
    Pubrel,
    Reason,
    Subscribe,
    Subscription,
    Unsubscribe,
    Will,
)
from router.border import CLIENT, MESSAGE
from router.core.core import Core
from router.mqtt.messages import Messages
from router.mqtt.session import Session
from tests.router.borders import ROOT, Broken, Call, Site, Stop, Tracer
from tests.router.mqtt_clients import answer, subscribe

pytestmark = pytest.mark.skipif(not hasattr(Core.flush, "__code__"), reason="calls of compiled modules are not seen")

RICH = Message(
    b"rich",
    header=Header(durable=True, priority=7, ttl=100_000),
    message_annotations={Symbol("x-opt-partition-key"): "key", Symbol("x-opt-mqtt-qos"): 1},
    properties=MessageProperties(subject="a.b", correlation_id=7, group_id="g", absolute_expiry_time=2**62),
    application_properties={"a": 1, "text": "t"},
).encode()
FILTERS = {
    "apache.org:selector-filter:string": "a = 1 and JMSPriority > 2",
    "apache.org:legacy-amqp-topic-binding:string": "a.*",
    "apache.org:no-local-filter:list": [],
    "amqp:properties-filter": {"subject": "&p:a"},
    "amqp:application-properties-filter": {"a": 1},
    "onceway:partition": [0, 1],
    "onceway:predicate": "text = 't'",
}


def amqp_messages(site: Site) -> None:
    client = site.connect("c")
    filters = {Symbol(name): Described(Symbol(name), value) for name, value in FILTERS.items()}
    everything = client.receiver("all", source=Source("expiring"), credit=10)
    client.receiver("some", source=Source("expiring", filter=filters), credit=10)
    sender = client.sender("out", target=Target("expiring"))
    sender.send([b"1", b"2"], [RICH, Message("plain").encode()])
    site.exchange()
    everything.dispose(0, 0, Rejected(), True)
    everything.dispose(1, 1, Modified(delivery_failed=True), True)
    site.exchange()
    everything.dispose(2, 2, ACCEPTED, True)
    sender.detach(None, closed=True)
    site.exchange()
    client.session.end()
    client.connection.close()
    site.exchange()


def a_queue(site: Site) -> None:
    client = site.connect("c")
    consumer = client.receiver("in", source=Source("q"), credit=1)
    sender = client.sender("out", target=Target("q"))
    sender.send([b"1", b"2"], [RICH, Message("plain").encode()])
    client.receiver("look", source=Source("q", distribution_mode=Symbol("copy")), credit=10)
    consumer.dispose(0, 0, Modified(delivery_failed=True), True)
    consumer.grant(5)
    site.exchange()
    client.lose()


def an_anonymous_link(site: Site) -> None:
    client = site.connect("c")
    sender = client.sender("out", target=Target(None), rcv_settle_mode=RCV_FIRST)
    node = client.receiver("node", source=Source(None, dynamic=True), credit=10)
    address = client.answered(node).source.address
    for number, to in enumerate((address, "t", "", 7)):
        sender.send([b"%d" % number], [Message(b"", properties=MessageProperties(to=str(to))).encode()])
    site.exchange()


def a_resumed_map(site: Site) -> None:
    client = site.connect("c")
    epoch = {Symbol("onceway:epoch"): ULong(1)}
    client.receiver("in", source=Source("t"), unsettled={b"1": None, b"2": ACCEPTED}, properties=epoch)
    client.sender("out", target=Target("t"), unsettled={b"1": None, b"2": ACCEPTED}, properties=epoch)
    client.sender("odd", target=Target("t", capabilities=(Symbol("shared"),)))


def mqtt_messages(site: Site) -> None:
    lasting = Properties(session_expiry_s=50, topic_alias_maximum=2)
    will = Will("all/will", b"w", 1, True, Properties(content_type="t", message_expiry_s=9))
    subscriber = site.connect_mqtt("s", properties=lasting, will=will)
    subscribe(subscriber, "x/#", "all/#", "$share/g/x/#")
    publisher = site.connect_mqtt("p", 4)
    properties = Properties(user_properties=(("k", "v"), ("k", "w")), message_expiry_s=5, correlation_data=b"c")
    other = site.connect_mqtt("o", clean_start=False, properties=Properties(session_expiry_s=50))
    for qos in range(3):
        other.send(Publish("x/y", b"rich", qos, packet_id=qos, properties=properties, retain=qos == 1))
        publisher.send(Publish("x/y", b"plain", qos, packet_id=qos))
        answer(subscriber)
    other.send(Pubrel(2))
    subscriber.send(Pubrec(99), Puback(98))
    subscriber.send(Unsubscribe(2, ["x/#"]))
    other.send(Subscribe(3, [Subscription("x/y", 1)]))
    other.send(Disconnect(Reason.SUCCESS, Properties(session_expiry_s=1)))
    subscriber.lose()


def amqp_to_mqtt(site: Site) -> None:
    for expiry_s in (0, 50):
        subscriber = site.connect_mqtt("s", properties=Properties(session_expiry_s=expiry_s))
        subscribe(subscriber, "a.b", "all", "$share/g/a.b")
        client = site.connect(f"c{expiry_s}")
        sender = client.sender("out", target=Target("all"))
        sender.send([b"1", b"2", b"3"], [RICH, Message([1]).encode(), b"\x00\x53\x75\xa0\x05"], settled=False)
        site.exchange()
        answer(subscriber)


def nonsense(site: Site) -> None:
    client = site.connect("c")
    site.input(client.served, b"\x00\x00\x00\x0c\x02\x00\x00\x00\x00\x53\x99\x45")
    site.exchange()
    lost = site.connect_mqtt("m")
    site.input(lost.connection, b"\xff\xff\xff\xff\xff")
    site.exchange()


SCENARIOS = (
    amqp_messages, a_queue, an_anonymous_link, a_resumed_map, mqtt_messages, amqp_to_mqtt, nonsense,
)  # fmt: skip


def played(scenario: Callable[[Site], None], inject: Call | None = None) -> tuple[Tracer, Site]:
    tracer = Tracer()
    site = Site(tracer)
    tracer.inject = inject
    try:
        scenario(site)
    except Stop:
        assert tracer.fired
    return tracer, site


def check_every(scenario: Callable[[Site], None], step: int) -> None:
    """Raises an error at each call that a scenario's input causes before the core is called, in a router of its own."""
    played(scenario)  # fills what is kept of answers
    calls = list(played(scenario)[0].before)
    assert len(calls) > 100
    for call in calls[::step]:
        tracer, site = played(scenario, call)
        assert tracer.fired, call
        assert [type(each["exc"]) for each in site.told.errors] == [Broken], call
        site.check_honest()


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_an_error_before_the_core_is_called_ends_one_connection_or_rejects_one_message(
    scenario: Callable[[Site], None], step: int
) -> None:
    """Calls are found by tracing: an error is raised at every fifth, in `make chaos` at each."""
    check_every(scenario, step)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_nothing_is_decoded_or_judged_within_the_core(scenario: Callable[[Site], None]) -> None:
    """It asks, and a question that fails has an answer."""
    tracer, _ = played(scenario)
    found = {call for call in tracer.within if call[0].startswith(READERS) and not call[1].endswith("__init__")}
    assert not found


READERS = (
    "amqp10/decoder.py", "amqp10/sections.py", "mqtt/decoder.py", "router/links/filters.py",
    "router/links/selector.py", "router/links/predicate.py", "router/mqtt/conversion.py",
)  # fmt: skip


def test_error_within_the_core_ends_the_router(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(Tracer())
    client = site.connect("c")

    def broken(*_: object) -> None:
        raise Broken

    monkeypatch.setattr(Core, "address", broken)
    client.session.receiver("in").attach(source=Source("t"), target=Target())
    with pytest.raises(Broken):
        site.exchange()
    assert not site.told.errors


def test_client_is_told_and_the_log_says_who_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(Tracer())
    client, other = site.connect("c"), site.connect_mqtt("m")

    def broken(*_: object) -> None:
        raise Broken

    monkeypatch.setattr("router.links.client_connection.read_subscriber", broken)
    monkeypatch.setattr(Session, "change_filters", broken)
    client.receiver("in")
    (closed,) = client.seen(ConnectionClosed)
    assert closed.error.condition == INTERNAL_ERROR
    (disconnect,) = other.send(Subscribe(1, [Subscription("a", 1)]))
    assert isinstance(disconnect, Disconnect)
    assert disconnect.reason is Reason.UNSPECIFIED_ERROR
    who = [(each["event"], each["user"], each["container"], each["client"]) for each in site.told.errors]
    assert who == [("input_failed", "anonymous", "c", ""), ("input_failed", "anonymous", "m", "127.0.0.1:9")]
    assert site.router.border.failed == {CLIENT: 2, MESSAGE: 0}
    site.check_honest()


def test_message_that_cannot_be_read_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(Tracer())
    subscriber, client = site.connect_mqtt("s"), site.connect("c")
    subscribe(subscriber, "all")
    sender = client.sender("out", target=Target("all"))

    def broken(*_: object) -> None:
        raise Broken

    with monkeypatch.context() as patch:
        patch.setattr(Messages, "_look", broken)
        sender.send([b"1"], [RICH])
        site.exchange()
    (told,) = client.seen(Dispositions, sender)
    assert isinstance(told.state, Rejected)
    assert site.router.border.failed == {CLIENT: 0, MESSAGE: 1}


def test_whatever_calls_the_core_says_so() -> None:
    """Nobody notes the time in the core without `entered`."""
    for path in [*(ROOT / "router").rglob("*.py"), *(ROOT / "onceway/serve").glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Assign):
                names = [ast.unparse(target) for target in node.targets]
                core = "self" if path.name == "core.py" else None
                for name in names:
                    owner = name.removesuffix(".now")
                    if name.endswith(".now") and owner.rpartition(".")[2] == (core or "core"):
                        assert f"{owner}.entered" in names or "__init__" in _function_of(path, node), (path, name)


def _function_of(path: Path, statement: ast.stmt) -> str:
    found = [
        each.name
        for each in ast.walk(ast.parse(path.read_text()))
        if isinstance(each, ast.FunctionDef) and each.lineno <= statement.lineno <= (each.end_lineno or 0)
    ]
    return found[-1] if found else ""
