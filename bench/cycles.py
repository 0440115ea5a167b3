"""Whether what clients make goes with them: each kind made and deleted again and again, in two routers of one process.

    python -m bench cycles [--kinds TEXT] [--first N] [--cycles N] [--list]

Walks the tables of kinds that the tests walk (`tests/router/made.py`, `tests/router/mqtt_made.py`), each in a process
of its own. After the first cycles it measures, and again after the others: the objects that can be reached from both
routers, their octets, and the process's resident memory, which has the clients in it. Routers have no disk of their
own. Exit status 1 if octets or resident memory have grown by more than 5 %.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from onceway.base.heap import resident_bytes
from tests.router import made, mqtt_made, test_made, test_mqtt_made
from tests.router.sizes import Size

MOST: float = 1.05


class Sample(NamedTuple):
    objects: int
    octets: int
    resident: int


def sample(sizes: list[Size]) -> Sample:
    gc.collect()
    return Sample(sum(each.number for each in sizes), sum(each.octets for each in sizes), resident_bytes() or 0)


def of_amqp(kind: made.Kind) -> Callable[[range], list[Size]]:
    network = made.network()
    client = network.connect("client")

    def walk(numbers: range) -> list[Size]:
        test_made.cycles(network, client, kind, numbers)
        return test_made.sizes(network)

    return walk


def of_mqtt(kind: mqtt_made.Kind) -> Callable[[range], list[Size]]:
    network = mqtt_made.Network()
    return lambda numbers: test_mqtt_made.cycles(network, kind, numbers)


def measure(protocol: str, number: int, first: int, cycles: int) -> tuple[Sample, Sample, float]:
    walk = of_amqp(made.KINDS[number]) if protocol == "AMQP" else of_mqtt(mqtt_made.KINDS[number])
    before = sample(walk(range(first)))
    began = time.process_time()
    sizes = walk(range(first, first + cycles))
    return before, sample(sizes), time.process_time() - began


def main(arguments: Sequence[str]) -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(prog="bench cycles", description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--kinds", default="", help="those whose names have this in them")
    parser.add_argument(
        "--first", type=int, default=3_000, help="cycles before it measures: until then the heap grows to its size"
    )
    parser.add_argument("--cycles", type=int, default=10_000)
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args(arguments)
    kinds = [("AMQP", number, kind.name) for number, kind in enumerate(made.KINDS)]
    kinds += [("MQTT", number, kind.name) for number, kind in enumerate(mqtt_made.KINDS)]
    grown = 0
    print(f"{'':60} {'ms a cycle':>10} {'objects':>17} {'octets':>19} {'resident KiB':>19}")
    for protocol, number, name in kinds:
        title = f"{protocol}: {name}"
        if options.kinds not in title:
            continue
        if options.list:
            print(title)
            continue
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            before, after, spent_s = pool.apply(measure, (protocol, number, options.first, options.cycles))
        bad = after.octets > before.octets * MOST or after.resident > before.resident * MOST
        grown += bad
        print(
            f"{title:60} {spent_s / options.cycles * 1000:10.2f} {before.objects:8} {after.objects:8} "
            f"{before.octets:9} {after.octets:9} {before.resident >> 10:9} {after.resident >> 10:9}"
            f"{'  GROWN' if bad else ''}",
            flush=True,
        )
    return int(grown > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
