"""Restarts, kills, a full store, autodrop."""

from __future__ import annotations

import itertools
import random
import resource
import threading
import time
from collections.abc import Callable, Sequence
from itertools import pairwise

import httpx
import pytest

from tests.edges.bus.conftest import BusNetworks
from tests.edges.bus.world import ROOT_KEY, BusProcess, Sink, ask
from tests.edges.store.postgres import Server
from tests.live import wait_until

Sinks = Callable[..., Sink]


def numbers(sink: Sink) -> list[int]:
    return [int(event["url"].rpartition("/")[2]) for event in sink.events]


def noise(number: int, octets: int = 50_000) -> str:
    """Text that cannot be compressed to less than about half."""
    return random.Random(number).randbytes(octets).hex()


@pytest.mark.slow
def test_a_restarted_bus_goes_on_with_what_it_holds(bus_network: BusNetworks, make_sink: Sinks) -> None:
    bus = bus_network().bus
    well = threading.Event()
    sink = make_sink(lambda _: 200 if well.is_set() else 500)
    token = bus.client()
    bus.push(token, "orders", 0)
    bus.subscribe(token, sink, "orders")
    for number in range(1, 4):
        assert bus.push(token, "orders", number) == 204
    assert bus.stop() == 0
    place = f"{bus.directory / 'data-a'}/store"
    assert f"{place}: new, nothing was in it  event=bus_new" in bus.said()
    bus.start()
    assert f"{place}: 1 topics, the longest up to position 4, 1 subscribers  event=bus_loaded" in bus.said()
    assert bus.metric("onceway_bus_process_total", status="start") == 2
    assert bus.metric("onceway_bus_process_total", status="stop") == 1
    well.set()
    wait_until(lambda: bus.subscription(token)["events"]["queued"] == 0, "the queue is delivered")
    bus.kill()
    bus.start()
    sink.batches.clear()
    assert bus.push(token, "orders", 4) == 204
    sink.wait(1)
    assert numbers(sink) == [4]
    assert bus.ask("GET", "/topics", token).json == [{"name": "orders", "publisher": "client", "events": 5}]
    found = bus.subscription(token)
    assert (found["topics"], found["timeout"], found["callback"]) == (["orders"], 0, sink.url)


def test_what_everybody_has_taken_goes_when_it_is_not_kept_for_replay(
    bus_network: BusNetworks, make_sink: Sinks
) -> None:
    bus = bus_network(arguments=("--keep", "0")).bus
    sink = make_sink()
    token = bus.client()
    bus.push(token, "orders", 0)
    bus.subscribe(token, sink, "orders")
    pushed = itertools.count(1)

    def replayed() -> list[int]:
        """What comes of the past, and a new event."""
        number = next(pushed)
        assert bus.push(token, "orders", number) == 204
        wait_until(lambda: number in numbers(sink) and bus.subscription(token)["events"]["queued"] == 0, "it is taken")
        sink.batches.clear()
        assert bus.ask("PUT", "/subscriber/topics/orders", token, {"position": 0}).status == 204
        wait_until(lambda: bus.subscription(token)["events"]["queued"] == 0, "all is taken again")
        return numbers(sink)

    wait_until(lambda: 0 not in replayed(), "what was taken is removed")


class Pusher:
    """Pushes numbers in order, at one edge after the other; each until it is answered with 204."""

    def __init__(self, buses: Sequence[BusProcess], token: str, topic: str) -> None:
        self._buses, self._token, self._topic = itertools.cycle(buses), token, topic
        self._stop = threading.Event()
        self.pushed: list[int] = []
        self.last = ""  # what became of the last push
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            event = {"type": "noop", "url": f"https://example.com/{number}"}
            bus = next(self._buses)
            try:
                answer = ask(bus.port, "POST", f"/topics/{self._topic}", self._token, event)
            except httpx.HTTPError as error:
                self.last = f"{time.ctime()} {bus.log_path.stem}: {error!r}"
                continue  # it is dead at the moment
            status = answer.status
            self.last = f"{time.ctime()} {bus.log_path.stem}: {status} {answer.body!r}"
            if status == 204:
                self.pushed.append(number)
                number += 1
            else:
                assert status == 503, status

    def end(self) -> list[int]:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        return self.pushed


def test_a_bus_without_a_router_says_so_and_makes_no_topic(bus_network: BusNetworks) -> None:
    network = bus_network()
    bus = network.bus
    token = bus.client()
    network.kill("a")
    wait_until(lambda: bus.ask("GET", "/pulse", ROOT_KEY).status == 500, "the bus says that its router is gone")
    bus.stop()
    bus.spawn()
    wait_until(lambda: bus.said().count("listening: ") == 2, "it answers requests")
    assert bus.push(token, "orders") == 503
    assert bus.ask("GET", "/topics", token).json == []
    network.start("a")
    wait_until(bus.ready, "the bus works")
    assert bus.push(token, "orders") == 204


def judge(sink: Sink, topic: str, pushed: list[int], deaths: int, *, late: bool = False) -> None:
    """Everything that was pushed has come, in order; what came twice is one batch for each death.

    Late: a push that one edge did not answer was made again at another, and the first may still have come, too.
    """
    firsts: list[int] = []
    end, repeats = 0, 0
    for batch in sink.batches:
        _, part = batch.header.split()
        name, _, span = part.partition(":")
        first, last = map(int, span.split("-"))
        assert name == topic
        assert len(batch.events) == last - first + 1
        urls = [int(event["url"].rpartition("/")[2]) for event in batch.events]
        if firsts and first < end:
            repeats += 1
            urls = urls[end - first :]
        else:
            assert not firsts or first == end, "a gap"
        firsts += urls
        end = max(end, last + 1)
    if late:
        firsts = list(dict.fromkeys(firsts))
    assert firsts == sorted(firsts), [pair for pair in pairwise(firsts) if pair[0] > pair[1]]
    assert set(pushed) <= set(firsts)
    assert repeats <= deaths


@pytest.mark.slow
def test_nothing_is_lost_and_order_is_kept_when_the_bus_and_routers_are_killed(
    bus_network: BusNetworks, make_sink: Sinks
) -> None:
    network = bus_network("a", "b")
    bus, sink = network.bus, make_sink()
    token = bus.client()
    bus.ask("POST", "/topics/orders", token, {"type": "noop", "url": "https://example.com/0"})
    bus.subscribe(token, sink, "orders")
    pusher = Pusher([bus], token, "orders")
    for victim in ("bus", "a", "bus", "b", "bus"):
        seen = len(pusher.pushed)
        wait_until(lambda seen=seen: len(pusher.pushed) > seen + 15, "pushes go on")  # type: ignore[misc]
        if victim == "bus":
            bus.kill()
            bus.start()
        else:
            network.kill(victim)
            network.start(victim)
    seen = len(pusher.pushed)
    wait_until(lambda: len(pusher.pushed) > seen + 15, "pushes go on")
    pushed = pusher.end()
    wait_until(lambda: bus.subscription(token)["events"]["queued"] == 0, "all is delivered")
    wait_until(lambda: set(pushed) <= set(numbers(sink)), "all is called back")
    judge(sink, "orders", pushed, deaths=3)


def fill(bus: BusProcess, sink: Sink, well: threading.Event, make_room: Callable[[], None]) -> None:
    """Pushes until nothing more can be stored, and again when there is room: what was answered with 204 has come once,
    in order."""
    token = bus.client()
    assert bus.push(token, "orders", 0) == 204
    bus.subscribe(token, sink, "orders", max=7)
    taken = []
    for number in range(1, 200):
        status = bus.push(token, "orders", number, data=noise(number))
        if status != 204:
            break
        taken.append(number)
    assert status == 503
    wait_until(lambda: bus.ask("GET", "/pulse", ROOT_KEY).status == 500, "the bus says that it cannot work")
    make_room()
    well.set()
    wait_until(lambda: bus.push(token, "orders", 1000) == 204, "there is room again")
    wait_until(lambda: 1000 in numbers(sink), "all is called back")
    sent = [number for number in dict.fromkeys(numbers(sink)) if number in taken]
    assert sent == taken
    assert bus.ask("GET", "/pulse", ROOT_KEY).status == 204


def test_a_full_store_answers_503_and_loses_nothing(bus_network: BusNetworks, make_sink: Sinks) -> None:
    bus = bus_network(arguments=("--max-storage", "1", "--keep", "0")).bus
    well = threading.Event()
    fill(bus, make_sink(lambda _: 200 if well.is_set() else 500), well, lambda: None)


def test_a_full_disk_answers_503_and_loses_nothing(bus_network: BusNetworks, make_sink: Sinks) -> None:
    bus = bus_network().bus
    well = threading.Event()

    def limit_files(octets: int) -> None:
        resource.prlimit(bus.pid, resource.RLIMIT_FSIZE, (octets, resource.RLIM_INFINITY))

    limit_files(2_000_000)
    sink = make_sink(lambda _: 200 if well.is_set() else 500)
    fill(bus, sink, well, lambda: limit_files(resource.RLIM_INFINITY))
    bus.kill()
    bus.start()
    assert bus.metric("onceway_bus_process_total", status="start") == 2


def test_a_full_disk_of_the_database_answers_503_and_loses_nothing(
    bus_network: BusNetworks, make_sink: Sinks, small_server: Server
) -> None:
    url, make_room = small_server.small_database("full_bus")
    well = threading.Event()
    fill(bus_network(store=url).bus, make_sink(lambda _: 200 if well.is_set() else 500), well, make_room)


def test_an_event_is_kept_once_however_many_subscribers_wait_for_it(bus_network: BusNetworks, make_sink: Sinks) -> None:
    bus = bus_network().bus
    sink = make_sink(lambda _: 500)
    token = bus.client()
    bus.push(token, "orders", 0)
    for _ in range(10):
        bus.subscribe(bus.client(), sink, "orders")
    before = bus.metric("onceway_bus_storage_used_bytes")
    assert bus.push(token, "orders", 1, data=noise(1, 200_000)) == 204
    wait_until(lambda: sum("-1" in batch.header for batch in list(sink.batches)) >= 10, "all ten are called back")
    kept = bus.metric("onceway_bus_storage_used_bytes") - before
    assert 200_000 < kept < 700_000  # in the publisher's journal until it is settled, and in the topic


def test_autodrop_drops_the_oldest_events_of_the_stalest_queue(bus_network: BusNetworks, make_sink: Sinks) -> None:
    network = bus_network(arguments=("--max-storage", "4", "--min-free", "1"))
    bus = network.bus
    well = threading.Event()
    stale, quick = make_sink(lambda _: 200 if well.is_set() else 500), make_sink()
    stale_token, quick_token = bus.client("stale"), bus.client("quick")
    assert bus.push(stale_token, "orders", 0) == 204
    bus.subscribe(stale_token, stale, "orders")
    bus.subscribe(quick_token, quick, "orders")

    def dropped(subscriber: str = "stale") -> float:
        return bus.metric("onceway_bus_events_autodropped_total", subscriber=subscriber)

    number = 0
    while not dropped():
        number += 1
        assert number < 300, "nothing is dropped"
        while (status := bus.push(stale_token, "orders", number, data=noise(number))) != 204:
            assert status == 503
    assert "bus_autodrop" in bus.said()
    wait_until(lambda: set(range(1, number + 1)) <= set(numbers(quick)), "the quick one misses nothing")
    assert dropped("quick") == 0
    stale.batches.clear()
    well.set()
    assert bus.push(stale_token, "orders", number + 1) == 204
    wait_until(lambda: number + 1 in numbers(stale), "the stale one gets what is left")
    got = numbers(stale)
    assert got == sorted(got)
    assert 1 not in got
