"""MQTT QoS 2 through kill -9 in mid-stream: what is lost and what comes twice, beside mosquitto without persistence.

    python -m bench kill [--peers onceway,mosquitto] [--messages N] [--runs R]

One publisher and one subscriber (paho-mqtt, 3.1.1, sessions that persist, 100 messages in flight) are at one router.
When the subscriber has a quarter of the messages, the router is killed. Onceway has two routers, and both clients go on
at the other one. mosquitto is started again at once, on the same port, and the clients connect again; the subscriber
subscribes again where its session is gone. "Acknowledged" is what the publisher has PUBCOMP of. What has not come 10 s
after the last acknowledgement is lost.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from bench.peers import DEFINITIONS, Broker
from tests.live import LiveNetwork, NotReady, wait_until
from tests.roamer import Roamer

IN_FLIGHT = 100
BOUND_S = 100.0
LATE_S = 10.0
PEERS = ("onceway", "mosquitto")


class Tally(NamedTuple):
    """Of one run."""

    acknowledged: int
    lost: int  # of those that were acknowledged
    repeated: int
    disordered: int  # first deliveries that come after a later one


def tally(acknowledged: Sequence[int], got: Sequence[int]) -> Tally:
    first = list(dict.fromkeys(got))
    disordered = sum(b < a for a, b in pairwise(first))
    return Tally(len(acknowledged), len(set(acknowledged) - set(got)), len(got) - len(first), disordered)


def stream(ports: list[int], messages: int, kill: Callable[[], None]) -> Tally:
    """Publishes, kills at a quarter, and waits for the rest."""
    subscriber = Roamer("s", ports[:], "press/speed", IN_FLIGHT)
    wait_until(subscriber.subscribed.is_set, "SUBACK", BOUND_S)
    publisher = Roamer("p", ports[:], in_flight=IN_FLIGHT)
    try:
        sent = [publisher.client.publish("press/speed", str(number), 2) for number in range(messages)]
        wait_until(lambda: len(subscriber.got) >= messages // 4, "a quarter of the messages", BOUND_S)
        kill()
        wait_until(lambda: sent[-1].is_published() and all(each.is_published() for each in sent), "PUBCOMP", BOUND_S)
        try:
            wait_until(lambda: len(set(subscriber.got)) == messages, "all messages", LATE_S)
        except NotReady:
            pass  # these are counted as lost
        return tally([number for number, each in enumerate(sent) if each.is_published()], subscriber.got)
    finally:
        subscriber.close()
        publisher.close()


def onceway(directory: Path, messages: int) -> Tally:
    network = LiveNetwork(
        directory, "ab", [("a", "b")], [{"match": "*", "no_subscribers": "accept"}], {"dead_after": "2s"}
    )
    ports = [*network.serve_mqtt(topics={"#": "telemetry"}).values()]
    with network:
        network.start()
        return stream(ports, messages, lambda: network.kill("a"))


def mosquitto(directory: Path, messages: int) -> Tally:
    definition = DEFINITIONS["mosquitto"]
    program = definition.find(None)
    if program is None:
        raise SystemExit(f"bench: no mosquitto: {definition.remedy}")
    with Broker(definition, program, directory) as broker:

        def kill() -> None:
            broker.running[0].kill()
            broker.running[0].wait()
            broker.restart()

        return stream(broker.ports * 2, messages, kill)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("python -m bench kill", description=__doc__)
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--messages", type=int, default=4_000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args(arguments)
    chosen = options.peers.split(",")
    if unknown := [each for each in chosen if each not in PEERS]:
        parser.error(f"no peer {unknown[0]}; there are {', '.join(PEERS)}")
    print(f"{'':12}{'acknowledged':>14}{'lost':>8}{'repeated':>10}{'disordered':>12}")
    for run in range(options.runs):
        for peer in chosen:
            with tempfile.TemporaryDirectory() as directory:
                found = {"onceway": onceway, "mosquitto": mosquitto}[peer](
                    Path(directory) / f"{peer}{run}", options.messages
                )
            print(
                f"{peer:12}{found.acknowledged:>14}{found.lost:>8}{found.repeated:>10}{found.disordered:>12}",
                flush=True,
            )
    return 0
