"""Client processes for the kill tests: `python -m tests.chaos.workload publish|subscribe --client onceway|proton ...`.

Each says READY once its first attach has been answered and keeps its ledger (tests/chaos/ledger.py).  A publisher ends
by itself, saying DONE, when all its messages are accepted and settled; a subscriber at SIGTERM.  `onceway` is our
client, with a journal.  `proton` is what a careful user of python-qpid-proton writes (proton_workload.py).
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence

import onceway
from onceway.client.publisher import Publication
from onceway.client.reports import Report
from onceway.client.subscriber import Batch
from tests.chaos.ledger import Ledger, body, read_body


def main(argv: Sequence[str] | None = None) -> None:
    args = options(argv)
    ledger = Ledger(args.ledger)
    if args.client == "proton":
        from tests.chaos import proton_workload

        proton_workload.run(args, ledger)
    else:
        asyncio.run(publish(args, ledger) if args.what == "publish" else subscribe(args, ledger))


def options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["publish", "subscribe"])
    parser.add_argument("--client", choices=["onceway", "proton"], default="onceway")
    parser.add_argument("--urls", required=True, help="amqp://h:p,amqp://h:p, tried in this order")
    parser.add_argument("--address", default="orders")
    parser.add_argument("--name", required=True, help="container-id; goes into every body")
    parser.add_argument("--ledger", required=True)
    parser.add_argument("--journal")
    parser.add_argument("--count", type=int, default=1_000)
    parser.add_argument("--rate", type=float, default=1_000.0, help="messages a second")
    return parser.parse_args(argv)


def say(word: str) -> None:
    print(word, flush=True)


async def publish(args: argparse.Namespace, ledger: Ledger) -> None:
    def report(event: Report) -> None:
        ledger.write(f"note {event}")

    under_way: asyncio.Queue[Publication | None] = asyncio.Queue()

    async def collect() -> None:
        while (publication := await under_way.get()) is not None:
            await publication
            ledger.write(f"accepted {publication.sequence}")

    async with onceway.connect(
        args.urls, container=args.name, journal=args.journal, ordered=True, on_report=report
    ) as connection:
        publisher = await connection.publisher(args.address, name="orders")
        say("READY")
        collector = asyncio.create_task(collect())
        for publication in publisher.recovered:
            under_way.put_nowait(publication)
        loop = asyncio.get_running_loop()
        started, first = loop.time(), publisher.sequence
        while publisher.sequence < args.count:
            ahead = (publisher.sequence - first) / args.rate - (loop.time() - started)
            if ahead > 0:
                await asyncio.sleep(ahead)
            number = publisher.sequence
            ledger.write(f"sent {number}")
            publication = await publisher.put(body(args.name, number))
            assert publication.sequence == number
            under_way.put_nowait(publication)
        await publisher.drain()
        under_way.put_nowait(None)
        await collector
        say("DONE")


async def subscribe(args: argparse.Namespace, ledger: Ledger) -> None:
    def report(event: Report) -> None:
        ledger.write(f"note {event}")

    def lines(word: str, batch: Batch) -> list[str]:
        found = []
        for octets in batch.bodies:
            assert isinstance(octets, bytes)
            publisher, number = read_body(octets)
            found.append(f"{word} {publisher} {number}")
        return found

    async def receive() -> None:
        async for batch in subscriber.batches(max_messages=200):
            ledger.write(*lines("handed", batch))
            await batch.accept()
            ledger.write(*lines("accepted", batch))

    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with onceway.connect(
        args.urls, container=args.name, journal=args.journal, ordered=True, on_report=report
    ) as connection:
        subscriber = await connection.subscriber(args.address, name="orders")
        say("READY")
        receiving = asyncio.create_task(receive())
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait([receiving, stopping], return_when=asyncio.FIRST_COMPLETED)
        if receiving.done():
            receiving.result()
            sys.exit("the subscriber was closed under its reader")
        await subscriber.close()
        receiving.cancel()


if __name__ == "__main__":
    main()
