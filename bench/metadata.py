"""Subscriptions by metadata: a change of metadata, memory for many publishers, messages through one edge.

    .venv/bin/python -m bench metadata [--seconds 5]

Router, edge and publishers are processes of their own. CPU is in microseconds a message.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from bench.processes import cpu_seconds
from chaos.live.ports import free_port
from edges.metadata.client import Change, Client, Message
from edges.metadata.exchange import LocalPublishers, NetworkPublishers
from edges.metadata.registry import Diffs, Registry
from onceway.base.loop import run
from router.links.predicate import Predicate, Value
from tests.live import LiveNetwork

MANY = 100_000
PUBLISHERS = 4


def uuid(number: int) -> str:
    return str(UUID(int=number, version=4))


def metadata(number: int) -> dict[str, Value]:
    keys: dict[str, Value] = {f"Metadata/Key{key}": f"value {number % (key + 2)} of {key}" for key in range(9)}
    return keys | {"Number": str(number)}


def change(concerned: int, form: str = '= "{}"') -> None:
    """One key of one publisher, among 10,000 publishers and 1,000 predicates, so many of which name the key."""
    registry, diffs = Registry(), Diffs()
    groups = 1000 // concerned
    for number in range(1000):
        last = f"Group{number % groups} {form.format(number)}"
        text = f'Metadata/Key{number % 9} like "value [0-{number % 7}]" and {last}'
        registry.watch(Predicate(text), number)
    publishers: list[dict[str, Value]] = [{} for _ in range(10_000)]
    for number, each in enumerate(publishers):
        list(registry.put(uuid(number), each, (), diffs))
        each |= metadata(number)  # no predicate matches yet: none has its group
    took = []
    for number in range(100_000 // concerned):
        each = publishers[number]
        before = time.thread_time()
        each[f"Group{number % groups}"] = str(number % 1000)
        list(registry.put(uuid(number), each, [f"Group{number % groups}"], diffs))
        took.append(time.thread_time() - before)
    took.sort()
    print(
        f"a change, 10,000 publishers and 1,000 predicates, {concerned} of which name the key, {form}: "
        f"CPU median {statistics.median(took) * 1e6:.0f} us, most {took[-1] * 1e6:.0f} us (asked: below 1,000 us)"
    )
    began = time.perf_counter()
    registry.watch(Predicate("has Number"), "all")
    print(f"a new predicate that 10,000 publishers match: {(time.perf_counter() - began) * 1e3:.0f} ms")


def memory() -> None:
    """All publishers at one edge: what it says of them, and what it has heard."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    local = LocalPublishers("e", 1, time.time_ns)
    network = NetworkPublishers("e", 1, 0.0)
    known: dict[str, None] = {}
    for number in range(MANY):
        local.publish(known, uuid(number), dict(metadata(number)), b"\xc0")
        while local.waiting_bytes:
            out = local.message(0.0)
            assert out is not None
            network.receive(out.body, 0.0)
    used = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"{MANY:,} publishers with ten keys: {used:.0f} MiB, {used * 1024 / MANY:.1f} KiB each (asked: 1,024 MiB)")


async def watch(server: str, edge: int, router: int) -> None:
    async with Client(server) as client:
        events = client.watch("has Room")
        assert isinstance(await anext(events), Change)
        print("watching", flush=True)
        pids = {"edge": edge, "router": router}
        before = {name: cpu_seconds([pid]) for name, pid in pids.items()}
        began, delays, there = 0.0, [], set()
        async for event in events:
            if isinstance(event, Message):
                began = began or time.perf_counter()
                delays.append(time.time() - event.value[0])
            else:
                there.update(event.new)
                there.difference_update(event.gone)
                if delays and not there:
                    break
    took, count = time.perf_counter() - began, len(delays)
    cpu = [f"{name} {(cpu_seconds([pid]) - before[name]) / count * 1e6:.1f} us" for name, pid in pids.items()]
    print(
        f"one edge, {PUBLISHERS} publishers, one subscriber: {count / took:,.0f} messages/s (asked: 20,000); "
        f"CPU a message {', '.join(cpu)}; "
        f"latency with as much as goes through: median {statistics.median(delays) * 1e3:.0f} ms"
    )


def through(network: LiveNetwork, seconds: float) -> None:
    server = f"127.0.0.1:{free_port()}"
    me = [sys.executable, "-m", "bench.metadata"]
    serve = ["metadata", "serve", "--name", "bench", "--listen", server, "--url", network.urls()]
    edge = subprocess.Popen([sys.executable, "-m", "onceway", *serve], stderr=subprocess.PIPE, text=True)
    others: list[subprocess.Popen[str]] = []
    try:
        assert edge.stderr is not None
        while "metadata_listening" not in (line := edge.stderr.readline()):
            assert line, "the edge has ended"
        pids = f"{edge.pid},{network['a'].pid}"
        watching = subprocess.Popen([*me, "--watch", server, "--pids", pids], stdout=subprocess.PIPE, text=True)
        others.append(watching)
        assert watching.stdout is not None
        assert watching.stdout.readline() == "watching\n"
        publish = [*me, "--publish", server, "--seconds", str(seconds)]
        others += [subprocess.Popen([*publish, "--number", str(number)], text=True) for number in range(PUBLISHERS)]
        print(watching.stdout.read(), end="")
    finally:
        for process in [*others, edge]:
            process.terminate()
            process.wait()


async def publish(server: str, seconds: float, number: int) -> None:
    async with Client(server) as client:
        end, count = time.time() + seconds, 0
        await client.publish(uuid(number), [time.time()], {"Room": str(number)})
        while (now := time.time()) < end:
            await client.publish(uuid(number), [now, count, "x" * 60])
            count += 1


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench metadata", description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="how long messages are published")
    for hidden in ("--publish", "--watch", "--pids", "--number"):  # what the other processes are told
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.publish:
        run(publish(options.publish, options.seconds, int(options.number)))
    elif options.watch:
        run(watch(options.watch, *map(int, options.pids.split(","))))
    else:
        memory()  # first: it is the process's peak that is measured
        change(10)
        for form in ('= "{}"', '!= "{}"', 'like "^{}$"', 'like "[0-9]*{}$"', 'like "[0-9]*[{}]$"'):
            change(1000, form)
        with tempfile.TemporaryDirectory() as directory, LiveNetwork(Path(directory)) as network:
            through(network.start(), options.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
