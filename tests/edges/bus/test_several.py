"""Several edges with one store are one bus: who sees what, who calls back, and what holds when any of them dies."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from edges.bus.shares import SLOTS
from tests.edges.bus.conftest import BusNetworks
from tests.edges.bus.test_storage import Pusher, judge, numbers
from tests.edges.bus.world import ROOT_KEY, SHARED, Batch, BusNetwork, Sink
from tests.edges.store.postgres import Server
from tests.live import NotReady, wait_until

Sinks = Callable[..., Sink]


@pytest.fixture(scope="module", params=["postgresql", SHARED])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BusNetwork]:
    """Two edges at one router."""
    store = SHARED
    if request.param != SHARED:
        server: Server = request.getfixturevalue("postgres")
        server.execute("CREATE DATABASE pair")
        store = server.url("pair")
    made = BusNetwork(tmp_path_factory.mktemp("pair"), edges=("a", "b"), store=store)
    try:
        yield made.start_all()
    finally:
        made.close()


def test_what_one_edge_has_answered_holds_at_the_other(pair: BusNetwork, sink: Sink, topic: str) -> None:
    a, b = pair.buses
    token, other = a.client("one"), b.client("two")
    assert b.push(token, topic, 0) == 204
    assert a.push(other, topic, 1) == 403
    assert a.subscribe(token, sink, topic) == 204
    assert b.subscription(token)["topics"] == [topic]
    assert b.ask("PUT", "/subscriber", token, {"max": 7}).status == 204
    assert a.subscription(token)["max_events"] == 7
    assert {"name": topic, "publisher": "one", "events": 1} in a.ask("GET", "/topics", token).json
    assert b.ask("DELETE", f"/topics/{topic}", token).status == 204
    assert a.subscription(token)["topics"] == []
    assert a.push(other, topic, 2) == 204
    assert b.push(token, topic, 3) == 403
    assert a.ask("DELETE", "/subscriber", token).status == 204
    assert b.ask("GET", "/subscriber", token).status == 404
    assert b.ask("DELETE", f"/api_tokens/{token}", ROOT_KEY).status == 204
    assert a.ask("GET", "/topics", token).status == 401


def test_of_clients_that_push_a_new_topic_at_two_edges_one_gets_it(pair: BusNetwork, topic: str) -> None:
    tokens = [pair.bus.client("one"), pair.bus.client("two")]
    with ThreadPoolExecutor(2) as pool:
        for number in range(8):
            name = f"{topic}_{'abcdefgh'[number]}"
            pushes = [pool.submit(bus.push, token, name) for bus, token in zip(pair.buses, tokens, strict=True)]
            assert sorted(push.result() for push in pushes) == [204, 403]


def test_subscribers_are_shared_by_the_edges_and_get_what_is_pushed_at_either(
    pair: BusNetwork, make_sink: Sinks, topic: str
) -> None:
    a, b = pair.buses
    owner = a.client("owner")
    assert a.push(owner, topic, 0) == 204
    sinks = {a.client(f"s{number}"): make_sink() for number in range(8)}
    for token, sink in sinks.items():
        assert a.subscribe(token, sink, topic) == 204
    for number in range(1, 21):
        assert pair.buses[number % 2].push(owner, topic, number) == 204
    for token, sink in sinks.items():
        sink.wait(20)
        assert numbers(sink) == list(range(1, 21))
        wait_until(lambda token=token: b.subscription(token)["events"]["queued"] == 0, "b sees what a has delivered")  # type: ignore[misc]
    assert b.subscription(token)["events"]["sent"] == 20
    pages = [bus.ask("GET", "/", token).body.decode() for bus in pair.buses]
    for sink in sinks.values():  # its failures are shown by one
        assert [f"{sink.url}, by another edge" in page for page in pages].count(True) == 1
    assert b.ask("PUT", f"/subscriber/topics/{topic}", token, {"position": 10}).status == 204
    sink.wait(31)
    assert numbers(sink)[20:] == list(range(10, 21))
    generations = [int(batch.header.split()[0]) for batch in (sink.batches[0], sink.batches[-1])]
    assert generations[1] == generations[0] + 1


def test_an_edge_that_starts_sends_nothing_that_another_one_is_sending(
    pair: BusNetwork, make_sink: Sinks, topic: str
) -> None:
    a, b = pair.buses
    assert b.stop() == 0
    every = f"{SLOTS + 1} roles"
    wait_until(lambda: a.said().rpartition("this edge has ")[2].startswith(every), "one edge has all roles")
    token = a.client("owner")
    wait_until(lambda: a.push(token, topic, 0) == 204, "it speaks to the network, too")
    called, answered = threading.Event(), threading.Event()

    def answer(batch: Batch) -> int:
        called.set()
        assert answered.wait(60)
        return 200

    sink = make_sink(answer)
    assert a.subscribe(token, sink, topic) == 204
    assert a.push(token, topic, 1) == 204
    assert called.wait(60)
    b.start()
    answered.set()
    wait_until(lambda: a.subscription(token)["events"]["queued"] == 0, "it is taken")
    assert b.push(token, topic, 2) == 204
    sink.wait(2)
    assert numbers(sink) == [1, 2]


class Chaos:
    """Two edges, two routers and a database under load, and what dies of them. Without a database bus-a has the store."""

    def __init__(self, network: BusNetwork, server: Server | None, make_sink: Sinks, subscribers: int = 6) -> None:
        self.network, self._server = network, server
        self.names = {bus.log_path.stem: bus for bus in network.buses}
        owner = network.bus.client("owner")
        assert network.bus.push(owner, "orders", 0) == 204
        self.sinks = {network.bus.client(f"s{number}"): make_sink() for number in range(subscribers)}
        for token, sink in self.sinks.items():
            assert network.bus.subscribe(token, sink, "orders") == 204
        self._pusher = Pusher(network.buses, owner, "orders")
        self._edge_deaths = 0

    def kill(self, victim: str) -> None:
        """Kills it once pushes have gone on since the last death, and starts it again."""
        self.go_on()
        if victim == "database":
            self._server.kill()
            self._server.start()
            self._edge_deaths += 1  # an answer could not be written before its edge was taken for dead
        elif victim in self.names:
            self.names[victim].kill()
            if self._server is not None or victim != "bus-a":
                self.go_on()  # with the other edge
            self.names[victim].start()
            self._edge_deaths += 1
        elif victim.startswith("pause "):
            bus = self.names[victim.removeprefix("pause ")]
            (other,) = (each for each in self.network.buses if each is not bus)
            os.kill(bus.pid, signal.SIGSTOP)
            every = f"{SLOTS + 1} roles"  # which it may have already, where the load has held the first one up before
            wait_until(lambda: other.said().rpartition("this edge has ")[2].startswith(every), "the other takes over")
            os.kill(bus.pid, signal.SIGCONT)
            self._edge_deaths += 1
        else:
            self.network.kill(victim)
            self.network.start(victim, fresh=False)

    def go_on(self) -> None:
        """All subscribers are called back with what is pushed from now on."""
        seen = len(self._pusher.pushed)
        try:
            wait_until(lambda: len(self._pusher.pushed) > seen + 15, "pushes go on")
            last = self._pusher.pushed[-1]
            for sink in self.sinks.values():
                wait_until(lambda sink=sink: numbers(sink)[-1:] >= [last], "call-backs go on")  # type: ignore[misc]
        except NotReady as error:
            raise NotReady(f"{error}; last push: {self._pusher.last}\n{self.network.logs()}") from error

    def judge(self) -> None:
        self.go_on()
        pushed = self._pusher.end()
        for sink in self.sinks.values():
            wait_until(lambda sink=sink: set(pushed) <= set(numbers(sink)), "all is called back")  # type: ignore[misc]
            judge(sink, "orders", pushed, self._edge_deaths, late=True)


@pytest.mark.slow
@pytest.mark.parametrize("store", ["postgresql", pytest.param(SHARED, marks=pytest.mark.long)])
def test_nothing_is_lost_or_disordered_when_edges_routers_and_the_store_are_killed(
    bus_network: BusNetworks, make_sink: Sinks, store: str, request: pytest.FixtureRequest
) -> None:
    server: Server | None = None if store == SHARED else request.getfixturevalue("own_server")
    network = bus_network("a", "b", edges=("a", "b"), store=server.url() if server else SHARED)
    chaos = Chaos(network, server, make_sink)
    victims = ["bus-a", "a", "database", "bus-b", "b"] if server else ["bus-a", "bus-b"]
    if kills := int(os.environ.get("BUS_KILLS", "0")):  # `make chaos`
        seed = os.environ.get("BUS_SEED", "13")
        print(
            f"rerun: BUS_KILLS={kills} BUS_SEED={seed} python -m pytest tests/edges/bus/test_several.py -m slow -k {store} -s"
        )
        rng = random.Random(seed)
        pauses = ["pause bus-a", "pause bus-b"] if server else ["pause bus-b"]
        routers = [] if server else ["a", "b"]  # the others have them already
        victims = [rng.choice([*victims, *routers, *pauses]) for _ in range(kills)]
    for number, victim in enumerate(victims):
        print(f"{number + 1} of {len(victims)}: {victim}", flush=True)
        chaos.kill(victim)
    chaos.judge()
