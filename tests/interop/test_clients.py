"""Clients that only `make interop` installs, in a directory that INTEROP names, beside what test_types.py does with them.

One program for each (rhea/does.js, programs/azure_does.py, programs/does.c) does WHAT with options NAME=VALUE: at (HOST:PORT),
address, count, mode, size (of bodies in octets; else they are `message N`), selector, ca, user, password, certificate, ws.

- send: prints each outcome; pre-settled it prints `sent`.
- receive: prints `attached`, then each body (its size and the sum of its octets if it is binary).
- drain: drains until it has COUNT, and prints their bodies and `drained`.
- anonymous: sends one message to each of ADDRESS, separated by commas, on one link; prints each address and its outcome.
- request: asks COUNT times, with a dynamic node for the replies, and prints these.
- open: connects and prints `connected` and the open's properties.
- again: sends one after the other, and goes on at the next place of AT when it loses one: prints outcomes and `again`.

If it cannot, it prints `refused: ` and why.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from proton import Message

from chaos.live.ports import free_port
from onceway.operate.node.entities import ATTRIBUTES
from tests.guarded import PASSWORD, Guarded
from tests.interop.messages import LARGEST, data_section, pattern
from tests.interop.raw import MODES, Subscriber, publish, unique
from tests.interop.test_receiving import COLOURS, SELECTOR, messages
from tests.live import PATIENT, LiveNetwork, wait_until
from tests.pki import Pki
from tests.running import PROGRAMS, Program, python

CLIENTS = ("promise", "core", "azure", "c")
every_client = pytest.mark.parametrize("client", CLIENTS)
not_azure = pytest.mark.parametrize("client", [client for client in CLIENTS if client != "azure"])
MECHANISMS_OF = {
    "promise": ("PLAIN", "EXTERNAL"),
    "core": (),
    "azure": ("PLAIN", "EXTERNAL"),
    "c": ("PLAIN", "EXTERNAL"),
}


@pytest.fixture
def installed() -> Path:
    directory = os.environ.get("INTEROP")
    if directory is None:
        pytest.skip("make interop installs this client")
    return Path(directory)


def does(installed: Path, client: str, what: str, at: str, **options: Any) -> Program:
    given = [what, f"at={at}", *(f"{name}={value}" for name, value in options.items())]
    if client == "c":
        (library,) = (installed / "deb/root/usr/lib").glob("*/libqpid-proton-core.so.10")
        return Program(
            [str(installed / "deb" / "does"), *given], {**os.environ, "LD_LIBRARY_PATH": str(library.parent)}
        )
    if client == "azure":
        return Program([str(installed / "python" / "bin" / "python"), str(PROGRAMS / "azure_does.py"), *given])
    environment = {**os.environ, "NODE_PATH": str(installed / "node_modules")}
    if "ca" in options:
        environment["NODE_EXTRA_CA_CERTS"] = str(options["ca"])
    return Program(["node", str(PROGRAMS.parent / "rhea" / "does.js"), client, *given], environment)


def texts(payloads: list[bytes]) -> list[Any]:
    bodies = []
    for payload in payloads:
        message = Message()
        message.decode(payload)
        bodies.append(message.body)
    return bodies


NUMBERED = [f"message {number}" for number in range(5)]


@every_client
@pytest.mark.parametrize("theirs", MODES)
def test_modes_that_differ(client: str, theirs: str, installed: Path, three_routers: LiveNetwork) -> None:
    """In each of its modes it sends to a receiver, and receives from a sender, in each other mode."""
    first, last = three_routers["a"].address, three_routers["c"].address
    for mode in MODES:
        address = unique("modes")
        with Subscriber(last, address, mode=theirs) as subscriber:
            if client != "azure" or mode == "unsettled":  # it waits for a settled outcome also of what it sent settled
                with does(installed, client, "send", first, address=address, mode=mode, count=5) as sending:
                    assert texts([each.payload for each in subscriber.wait(5)]) == NUMBERED
                    assert sending.lines(5) == ["sent" if mode == "pre-settled" else "accepted"] * 5
        with does(installed, client, "receive", last, address=address, mode=mode, count=5) as receiving:
            assert receiving.line() == "attached"
            publish(first, address, [Message(body=body).encode() for body in NUMBERED], mode=theirs)
            assert receiving.rest() == NUMBERED


@not_azure
def test_large(client: str, installed: Path, three_routers: LiveNetwork) -> None:
    address, body = unique("large"), pattern(LARGEST)
    first, last = three_routers["a"].address, three_routers["c"].address
    with does(installed, client, "receive", last, address=address, size=1) as receiving:
        assert receiving.line() == "attached"
        assert publish(first, address, [data_section(body)]) == ["accepted"]
        assert receiving.rest() == [f"{LARGEST} {sum(body)}"]
    with (
        Subscriber(last, address) as subscriber,
        does(installed, client, "send", first, address=address, size=LARGEST) as sending,
    ):
        assert sending.rest() == ["accepted"]
        (received,) = texts([each.payload for each in subscriber.wait(1)])
        assert received == body


AZURES = 1 << 20  # octets of a message, as its receivers say


def test_azure_sends_large_ones_and_takes_a_mebibyte(installed: Path, one_router: LiveNetwork) -> None:
    address, at = unique("large"), one_router["a"].address
    fits, larger = pattern(AZURES - 1_000), pattern(AZURES)
    with does(installed, "azure", "receive", at, address=address, size=1) as receiving:
        assert receiving.line() == "attached"
        assert publish(at, address, [data_section(larger), data_section(fits)]) == ["rejected", "accepted"]
        assert receiving.rest() == [f"{len(fits)} {sum(fits)}"]
    with (
        Subscriber(at, address) as subscriber,
        does(installed, "azure", "send", at, address=address, size=LARGEST) as sending,
    ):
        assert sending.rest() == ["accepted"]
        assert subscriber.wait(1)[0].payload.endswith(pattern(LARGEST))


def test_azure_consumes_of_a_queue_what_it_takes(installed: Path, tmp_path: Path) -> None:
    """What is larger goes to another consumer, and is rejected when that has gone."""
    fits, larger = data_section(pattern(1_000)), data_section(pattern(AZURES))
    queues = [{"match": "jobs", "type": "queue"}]
    with (
        LiveNetwork(tmp_path, "ab", [("a", "b")], addresses=queues, settings=PATIENT).start() as network,
        does(installed, "azure", "receive", network["a"].address, address="jobs", size=1, count=3) as receiving,
    ):
        first = network["a"].address
        assert receiving.line() == "attached"
        with Subscriber(network["b"].address, "jobs") as wide:
            assert publish(first, "jobs", [fits, larger, fits]) == ["accepted"] * 3
            assert [len(each.payload) > AZURES for each in wide.wait(1)] == [True]
        assert publish(first, "jobs", [larger, fits]) == ["rejected", "accepted"]
        assert receiving.rest() == [f"1000 {sum(pattern(1_000))}"] * 3


@not_azure
def test_drains(client: str, installed: Path, three_routers: LiveNetwork) -> None:
    address = unique("drained")
    with does(installed, client, "drain", three_routers["c"].address, address=address, count=3) as draining:
        assert publish(three_routers["a"].address, address, messages()) == ["accepted"] * 3
        assert draining.rest() == ["1", "2", "3", "drained"]


@every_client
def test_selects(client: str, installed: Path, three_routers: LiveNetwork) -> None:
    address = unique("selected")
    with does(
        installed, client, "receive", three_routers["c"].address, address=address, selector=SELECTOR
    ) as receiving:
        assert receiving.line() == "attached"
        assert publish(three_routers["a"].address, address, messages()) == ["accepted"] * len(COLOURS)
        assert receiving.rest() == ["3"]


@every_client
def test_sends_to_several_addresses(client: str, installed: Path, three_routers: LiveNetwork) -> None:
    one, two, at = unique("one"), unique("two"), three_routers["a"].address
    with Subscriber(three_routers["c"].address, one) as first, Subscriber(at, two) as second:
        told = [f"{one} accepted", f"{two} accepted", "$cbs rejected"]
        if client == "azure":  # it cannot read an error without an info map: its callback fails with IndexError
            told.pop()
        to = ",".join(each.split()[0] for each in told)
        with does(installed, client, "anonymous", at, address=to, count=len(told)) as sending:
            assert sending.rest() == told
        for number, subscriber in enumerate((first, second)):
            assert texts([each.payload for each in subscriber.wait(1)]) == [f"message {number}"]


@every_client
def test_asks_and_is_answered(client: str, installed: Path, three_routers: LiveNetwork) -> None:
    address = unique("service")
    with python("reply", three_routers["c"].address, address, 5) as service:
        assert service.line() == "attached"
        with does(installed, client, "request", three_routers["a"].address, address=address, count=5) as asking:
            assert asking.rest() == [body.upper() for body in NUMBERED]


@every_client
def test_reads_where_else_it_may_connect(client: str, installed: Path, three_routers: LiveNetwork) -> None:
    with does(installed, client, "open", three_routers["a"].address) as opening:
        (said,) = opening.rest()
    assert said.startswith("connected ")
    assert "failover-server-list" in said
    for name in "bc":
        assert str(three_routers[name].amqp_port) in said


@every_client
def test_goes_on_elsewhere_when_its_router_dies(client: str, installed: Path, tmp_path: Path) -> None:
    """At least once: what has no outcome is sent again."""
    count = 1_000
    with LiveNetwork(tmp_path, "ab", [("a", "b")]).start() as network:
        at = f"{network['a'].address},{network['b'].address}"
        with (
            Subscriber(network["b"].address, "orders") as subscriber,
            does(installed, client, "again", at, address="orders", count=count) as sending,
        ):
            assert sending.lines(5) == ["accepted"] * 5
            network.kill("a")
            said = Counter(sending.rest())
            assert said == {"accepted": count - 5, "again": 1}
            every = {f"message {number}" for number in range(count)}
            wait_until(lambda: set(texts([each.payload for each in subscriber.received])) == every, "every message")


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LiveNetwork, Path, dict[str, str]]]:
    """A router with TLS and without users, the file of its authority, and where it listens so."""
    directory = tmp_path_factory.mktemp("outside")
    pki = Pki(directory / "pki")
    pki.certificate("router", "127.0.0.1", "localhost")
    network = LiveNetwork(directory, "a")
    ports = {"amqps": free_port(), "wss": free_port()}
    document = network.topology()
    document["tls"] = {"outside": {"certificate": "pki/router.pem"}}
    document["websocket"] = {"origins": ["*"]}  # azure's client names one as pages do
    document["routers"]["a"] |= {**ports, "tls": "outside"}
    network.topology_path.write_text(yaml.safe_dump(document, sort_keys=False))
    with network.start():
        yield network, pki.ca, {name: f"localhost:{port}" for name, port in ports.items()}


@pytest.mark.parametrize(
    ("way", "client"), [("amqps", each) for each in CLIENTS] + [("wss", each) for each in CLIENTS if each != "c"]
)
def test_through(way: str, client: str, installed: Path, outside: Any) -> None:
    """TLS, and WebSocket in TLS: who does not trust the router's authority does not come in."""
    network, ca, at = outside
    options = {"ca": ca, **({"ws": 1} if way == "wss" else {}), "address": unique(way), "count": 5}
    with (
        Subscriber(network["a"].address, options["address"]) as subscriber,
        does(installed, client, "send", at[way], **options) as sending,
    ):
        assert sending.rest() == ["accepted"] * 5
        assert texts([each.payload for each in subscriber.wait(5)]) == NUMBERED
    stranger = Pki(network.directory / f"stranger-{way}-{client}").ca
    with does(installed, client, "open", at[way], **{**options, "ca": stranger}) as opening:
        (said,) = opening.rest()
    assert said.startswith("refused: "), said


@pytest.mark.parametrize("client", [client for client in CLIENTS if MECHANISMS_OF[client]])
def test_each_mechanism(client: str, installed: Path, tmp_path: Path) -> None:
    """With TLS, rightly and wrongly. ANONYMOUS is what the other tests use."""
    guarded = Guarded(tmp_path, certificates=[{"from": "common_name", "match": "alice"}])
    own = {name: guarded.pki.certificate(name) for name in ("alice", "nobody")}
    tries: dict[str, list[dict[str, Any]]] = {
        "PLAIN": [{"user": "alice", "password": PASSWORD}, {"user": "alice", "password": "x"}],
        "EXTERNAL": [{"certificate": own["alice"]}, {"certificate": own["nobody"]}],
    }

    def judge() -> None:
        at = guarded.url[0].removeprefix("amqps://").replace("127.0.0.1", "localhost")
        for mechanism in MECHANISMS_OF[client]:
            said = []
            for each in tries[mechanism]:
                with does(installed, client, "open", at, ca=guarded.pki.ca, mechanism=mechanism, **each) as opening:
                    said += opening.rest()
            assert [line.split()[0] for line in said] == ["connected", "refused:"], said

    guarded.play(lambda: asyncio.to_thread(judge))


def test_azures_core_amqp_asks_the_management_node(installed: Path, three_routers: Any) -> None:
    environment = {**os.environ, "NODE_PATH": str(installed / "node_modules")}
    path = PROGRAMS.parent / "rhea" / "core_amqp.js"
    with Program(["node", str(path), "ask", three_routers["a"].address], environment) as client:
        assert sorted(client.rest()) == sorted(f"onceway.{kind}" for kind in ATTRIBUTES)


def test_rabbitmqs_client_takes_rabbitmq_only(installed: Path, three_routers: Any) -> None:
    """The reason why docs/interop.md has nothing else of it."""
    text = (
        "from rabbitmq_amqp_python_client import Environment\n"
        f"Environment(uri='amqp://guest:guest@{three_routers['a'].address}/').connection().dial()\n"
    )
    with Program([str(installed / "python" / "bin" / "python"), "-c", text]) as client:
        assert client.process.wait(60) != 0
    assert "Expected 'RabbitMQ', got 'onceway'" in client.errors


# What a client's own source does not have: whose column has no test there says so (tests/interop/page.py).
LACKS = {
    "c-websocket": ("deb/root/usr/include/proton/*.h", "websocket"),
    "azure-drain": ("python/lib/python3*/site-packages/azure/servicebus/_pyamqp/*.py", "drain=true"),
    "core-password": ("node_modules/@azure/core-amqp/dist/commonjs/ConnectionContextBase.js", "password"),
    "core-certificate": (
        "node_modules/@azure/core-amqp/dist/commonjs/ConnectionContextBase.js",
        "enable_sasl_external",
    ),
}


@pytest.mark.parametrize("lack", LACKS)
def test_has_no(lack: str, installed: Path) -> None:
    files, word = LACKS[lack]
    found = list(installed.glob(files))
    assert found
    assert not [path for path in found if word in path.read_text(errors="replace").lower().replace(" ", "")]
