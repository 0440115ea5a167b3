"""What a pipe costs: pushes in batches through a router into one store, and readers of one store, each all of it.

    python -m bench pipe [--messages 200000] [--octets 100] [--readers 4]

CPU is that of the named process, in microseconds for each message; the rates are those of this machine at this moment.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onceway
from bench.processes import cpu_seconds
from edges.pipe import Reader
from onceway.base.loop import run
from tests.edges.pipe.network import PipeNetwork

BATCH = 5_000


async def write(urls: str, messages: int, octets: int) -> None:
    body = bytes(octets)
    async with onceway.connect(urls, close_timeout_s=None) as connection:
        publisher = await connection.publisher("jobs")
        for _ in range(messages // BATCH):
            await publisher.put_many([body] * BATCH)
        await publisher.drain()


async def read(url: str, answer: Any, go: Any) -> None:
    go.wait()
    began, cpu = time.perf_counter(), time.process_time()
    count = 0
    async with Reader("jobs", stores=url) as reader:
        async for batch in reader.batches(reader.end):
            count += len(batch)
    answer.put((count, began, time.perf_counter(), time.process_time() - cpu))


def reader(url: str, answer: Any, go: Any) -> None:
    run(read(url, answer, go))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--octets", type=int, default=100)
    parser.add_argument("--readers", type=int, default=4)
    options = parser.parse_args(arguments)
    messages = options.messages - options.messages % BATCH
    with tempfile.TemporaryDirectory() as directory:
        network = PipeNetwork(Path(directory), ("a",), {"jobs": ("s",)})
        try:
            network.start_all()
            processes = {"router": network["a"].pid, "store": network.store_pid("s")}
            before = {name: cpu_seconds([pid]) for name, pid in processes.items()}
            began, own = time.perf_counter(), time.process_time()
            run(write(network.urls(), messages, options.octets))
            wall, own = time.perf_counter() - began, time.process_time() - own
            used = {name: cpu_seconds([pid]) - before[name] for name, pid in processes.items()}
            shown = ", ".join(f"{name} {seconds / messages * 1e6:.2f}" for name, seconds in used.items())
            print(f"pushes: {messages / wall:,.0f}/s; us of CPU each: publisher {own / messages * 1e6:.2f}, {shown}")

            context = multiprocessing.get_context("spawn")
            answer, go = context.Queue(), context.Event()
            before_store = cpu_seconds([processes["store"]])
            arguments_ = (network.store_url(), answer, go)
            children = [context.Process(target=reader, args=arguments_) for _ in range(options.readers)]
            for child in children:
                child.start()
            time.sleep(3)  # all have imported what they need
            go.set()
            found = [answer.get() for _ in children]
            for child in children:
                child.join()
            store = cpu_seconds([processes["store"]]) - before_store
            took = max(end for _, _, end, _ in found) - min(begin for _, begin, _, _ in found)
            count = sum(number for number, _, _, _ in found)
            print(
                f"pulls: {count / len(found) / took:,.0f}/s for each of {len(found)} readers; us of CPU each: "
                f"store {store / count * 1e6:.2f}, reader {sum(cpu for *_, cpu in found) / count * 1e6:.2f}"
            )
        finally:
            network.close()
    return 0
