"""What strangers' filters, subscriptions and retained topics cost a router, beside a former release.

    python -m bench strangers [--release v0.9.0] [--costs TEXT] [--runs N]

One router, started anew for each figure: this tree's and the release's by turns, in one run. CPU seconds of the router
(user and system), each figure the median of the runs with the least and the most:

selectors    of a message on a topic with 1,000 subscriptions, of whose selectors (`number = 17`) one lets it through;
             200 messages at once
filters 10   of a message of MQTT, QoS 1, beside a client with 10 filters of which none matches
filters 10k  the same beside 10,000
retained     of a SUBSCRIBE with one exact topic, of 1,000, beside 10,000 retained topics; each gets one message
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

import onceway
from amqp10.types import Described, Symbol
from bench.processes import cpu_seconds
from tests.live import LiveNetwork, dying_with_us, wait_until
from tests.releases import RELEASES, extract

BOUND_S: Final = 900.0
SELECTORS, RETAINED, SUBSCRIBES = 1_000, 10_000, 1_000
AT_ONCE: Final = 200  # messages: one by one, the router would mostly wait, and its timers be counted
IN_A_PACKET: Final = 100  # filters of a SUBSCRIBE
SELECTOR: Final = Symbol("apache.org:selector-filter:string")


@dataclass
class Stage:
    """A router of one tree, with AMQP and MQTT, and a store of retained messages."""

    network: LiveNetwork
    mqtt_port: int

    @contextmanager
    def counting(self) -> Iterator[list[float]]:
        """CPU seconds of the router while the block runs."""
        pid = self.network["a"].pid
        spent = [-cpu_seconds([pid])]
        yield spent
        spent[0] += cpu_seconds([pid])


@contextmanager
def stage(directory: Path, tree: Path | None) -> Iterator[Stage]:
    trees = {} if tree is None else {"a": tree}
    network = LiveNetwork(directory, addresses=[{"match": "*", "no_subscribers": "accept"}], trees=trees)
    ports = network.serve_mqtt(topics={"#": "telemetry"}, retained={"address": "retained", "stores": ["s"]})
    serve = ["retained", "serve", str(network.topology_path), "--store", "s", "--data", str(directory / "s.db")]
    with network, (directory / "store.log").open("wb") as log:
        network.start()
        store = subprocess.Popen(
            dying_with_us([sys.executable, "-m", "onceway", *serve]), stdout=log, stderr=log, cwd=directory
        )
        try:
            yield Stage(network, ports["a"])
        finally:
            store.terminate()
            store.wait(60)


class Client:
    """paho-mqtt, version 3.1.1. `acknowledged`: its SUBSCRIBEs; `messages`: that have come."""

    def __init__(self, port: int, name: str) -> None:
        self.acknowledged = self.messages = 0
        connected = threading.Event()
        self.paho = paho.Client(CallbackAPIVersion.VERSION2, name, protocol=paho.MQTTv311)
        self.paho.max_inflight_messages_set(100)
        self.paho.max_queued_messages_set(0)
        self.paho.on_connect = lambda *_: connected.set()
        self.paho.on_subscribe = self._subscribed
        self.paho.on_message = self._message
        self.paho.connect("127.0.0.1", port)
        self.paho.loop_start()
        if not connected.wait(BOUND_S):
            raise SystemExit(f"bench: no CONNACK at port {port}")

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()

    def _subscribed(self, *_: object) -> None:
        self.acknowledged += 1

    def _message(self, *_: object) -> None:
        self.messages += 1

    def subscribe(self, packets: Sequence[Sequence[str]]) -> None:
        """Until all are acknowledged."""
        for topics in packets:
            self.paho.subscribe([(topic, 1) for topic in topics])
        wait_until(lambda: self.acknowledged == len(packets), f"{len(packets)} SUBACK", BOUND_S)

    def publish(self, topics: Sequence[str], *, retain: bool = False) -> None:
        """Until all are acknowledged."""
        sent = [self.paho.publish(topic, b"x" * 100, 1, retain) for topic in topics]
        wait_until(lambda: all(each.is_published() for each in sent), f"{len(topics)} PUBACK", BOUND_S)


def selectors(there: Stage) -> float:
    return asyncio.run(asyncio.wait_for(_selected(there), BOUND_S)) / SELECTORS


async def _selected(there: Stage) -> float:
    url = there.network["a"].url
    async with onceway.connect(url, container="s") as here, onceway.connect(url, container="p") as there_too:
        subscribers = [
            await here.subscriber(
                "numbers", name=f"s{i}", filters={"only": Described(SELECTOR, f"number = {i}")}, credit=10
            )
            for i in range(SELECTORS)
        ]
        publisher = await there_too.publisher("numbers")
        with there.counting() as spent:
            for first in range(0, SELECTORS, AT_ONCE):
                numbers = range(first, first + AT_ONCE)
                await publisher.put_many(
                    onceway.Message(b"x" * 100, application_properties={"number": i}) for i in numbers
                )
                for i in numbers:
                    await (await subscribers[i].receive()).accept()
            await publisher.drain()
        return spent[0]


def filters(number: int) -> Callable[[Stage], float]:
    def measure(there: Stage) -> float:
        messages = 5_000  # each on a topic of its own: what is remembered of a topic does not help
        topics = [f"elsewhere/{i}/+/{i}" for i in range(number)]
        packets = [topics[first : first + IN_A_PACKET] for first in range(0, number, IN_A_PACKET)]
        with Client(there.mqtt_port, "s") as subscriber, Client(there.mqtt_port, "p") as publisher:
            subscriber.subscribe(packets)
            with there.counting() as spent:
                publisher.publish([f"press/{i}/speed/{i}" for i in range(messages)])
            assert subscriber.messages == 0
        return spent[0] / messages

    return measure


def retained(there: Stage) -> float:
    topics = [f"kept/{i}/state" for i in range(RETAINED)]
    with Client(there.mqtt_port, "p") as publisher:
        publisher.publish(topics, retain=True)
    with Client(there.mqtt_port, "s") as subscriber, there.counting() as spent:
        subscriber.subscribe([[topic] for topic in topics[:SUBSCRIBES]])
        wait_until(lambda: subscriber.messages == SUBSCRIBES, f"{SUBSCRIBES} retained messages", BOUND_S)
    return spent[0] / SUBSCRIBES


COSTS: Final = {
    "selectors": selectors,
    "filters 10": filters(10),
    "filters 10k": filters(10_000),
    "retained": retained,
}


def main(arguments: Sequence[str]) -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        "python -m bench strangers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--release", choices=RELEASES, default="v0.9.0", help="beside which one")
    parser.add_argument("--costs", default="", help="those whose names have this in them")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args(arguments)
    print(f"| ms of CPU | {options.release} | this tree | times |\n| --- | --- | --- | --- |", flush=True)
    with tempfile.TemporaryDirectory(prefix="onceway-bench-") as temporary:
        before = extract(options.release, Path(temporary) / "before")
        for name, measure in COSTS.items():
            if options.costs not in name:
                continue
            figures: dict[Path | None, list[float]] = {before: [], None: []}
            for run in range(options.runs):
                for tree, found in figures.items():
                    directory = Path(temporary) / f"{name.replace(' ', '-')}-{run}-{'now' if tree is None else 'then'}"
                    with stage(directory, tree) as there:
                        found.append(measure(there) * 1_000)
            then, now = figures.values()
            times = statistics.median(then) / statistics.median(now)
            print(f"| {name} | {told(then)} | {told(now)} | {times:.1f} |", flush=True)
    return 0


def told(figures: Sequence[float]) -> str:
    return f"{statistics.median(figures):.3f} ({min(figures):.3f} to {max(figures):.3f})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
