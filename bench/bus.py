"""From a push to the call-back: events pushed over HTTP at a fixed rate, one subscriber with timeout 0.

    .venv/bin/python -m bench bus [--rates 500,5000] [--seconds 10]

Router and edge are processes of their own; publisher and subscriber share this one, so that one clock dates both. Where
this machine cannot keep a rate up, the line says which it kept. CPU is in microseconds for each event.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path

import aiohttp
from aiohttp import web

from bench.processes import cpu_seconds
from onceway.loop import run
from tests.edges.bus.world import BusNetwork

CONNECTIONS = 64  # of the publisher
MOST = 1000  # events in a batch


async def measure(network: BusNetwork, token: str, topic: str, rate: int, seconds: float) -> str:
    bus = network.bus
    count = int(rate * seconds)
    pushed = [0.0] * count
    answered = [0.0] * count
    called = [0.0] * count
    left = count
    done = asyncio.Event()

    async def take(request: web.Request) -> web.Response:
        nonlocal left
        now = time.perf_counter()
        for event in await request.json():
            called[int(event["url"].rpartition("/")[2])] = now
            left -= 1
        if left <= 0:
            done.set()
        return web.Response(status=204)

    application = web.Application(client_max_size=1 << 26)
    application.router.add_post("/", take)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    callback = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    headers = {"Authorization": f"Basic {b64encode(f'{token}:'.encode()).decode()}"}
    url = f"http://127.0.0.1:{bus.port}"
    connector = aiohttp.TCPConnector(limit=CONNECTIONS)
    async with aiohttp.ClientSession(url, headers=headers, connector=connector) as session:

        async def post(path: str, body: dict[str, object]) -> None:
            async with session.post(path, json=body) as response:
                assert response.status == 204, (response.status, await response.text())

        await post(f"/topics/{topic}", {"type": "noop", "url": "https://example.com/0"})
        wish = {"topics": [topic], "callback": callback, "uuid": "u", "timeout": 0, "max": MOST}
        await post("/subscription", wish)

        async def push(number: int) -> None:
            pushed[number] = time.perf_counter()
            await post(f"/topics/{topic}", {"type": "update", "url": f"https://example.com/{number}"})
            answered[number] = time.perf_counter()

        processes = {"router": network["a"].pid, "edge": bus.pid}
        before = {name: cpu_seconds([pid]) for name, pid in processes.items()}
        began = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for number in range(count):
                wait = began + number / rate - time.perf_counter()
                if wait > 0:
                    await asyncio.sleep(wait)
                tasks.create_task(push(number))
        took = time.perf_counter() - began
        await done.wait()
        used = {name: (cpu_seconds([pid]) - before[name]) / count * 1e6 for name, pid in processes.items()}
    await runner.cleanup()
    return (
        f"{rate}/s asked, {count / took:,.0f}/s kept; "
        f"call-back {_shown(called, pushed)}; 204 {_shown(answered, pushed)}; "
        f"us of CPU each: {', '.join(f'{name} {each:.0f}' for name, each in used.items())}"
    )


def _shown(ends: Sequence[float], begins: Sequence[float]) -> str:
    """Median and 99th percentile."""
    waits = sorted(end - begin for begin, end in zip(begins, ends, strict=True))
    return f"{statistics.median(waits) * 1e3:.1f} ms, p99 {waits[len(waits) * 99 // 100] * 1e3:.1f} ms"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", default="500,5000")
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        network = BusNetwork(Path(directory), arguments=("--http-callbacks",), tls=False)
        try:
            network.start_all()
            token = network.bus.client("bench")
            for index, rate in enumerate(map(int, options.rates.split(","))):
                print(run(measure(network, token, "bench_" + "x" * index, rate, options.seconds)), flush=True)
        finally:
            network.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
