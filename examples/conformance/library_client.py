"""This library as a client under test: `onceway conformance -- python examples/conformance/library_client.py`.

It reads orders from standard input and says what happens, a line each (docs/write-a-client.md).
"""

import asyncio
import os
import sys
from pathlib import Path

import onceway


def say(*words: str) -> None:
    print(*words, flush=True)


def undecided(report: onceway.PublicationsUndecided) -> None:
    for _, payload in () if report.kept else report.publications:
        say("undecided", onceway.Message.decode(payload).value.decode())


async def outcome(publication: onceway.Publication, body: str) -> None:
    try:
        await publication
        say("accepted", body)
    except onceway.DeliveryRejected:
        say("rejected", body)
    except onceway.DeliveryNotAccepted:
        say("released", body)
    except (onceway.DeliveryUndecided, onceway.UndecidedPublications):
        pass  # `undecided` has said it


async def publish(connection: onceway.Connection, address: str, bodies: asyncio.Queue[str]) -> None:
    async with asyncio.TaskGroup() as outcomes:
        publisher = await connection.publisher(address, on_undecided=undecided)
        while True:
            body = await bodies.get()
            outcomes.create_task(outcome(await publisher.put(body.encode()), body))


async def receive(connection: onceway.Connection, address: str, deliveries: dict[str, onceway.Delivery]) -> None:
    subscriber = await connection.subscriber(address, on_gap=lambda gap: say("missed"))
    async for delivery in subscriber:
        body = delivery.body.decode()
        deliveries[body] = delivery
        say("received", body)


async def work(task: asyncio.Task[None]) -> None:
    try:
        await task
    except* onceway.OncewayError as errors:
        say("gave-up", str(errors.exceptions[0]))


async def main() -> None:
    say("client", "publisher", "subscriber", "maps", "journal")
    journal = Path(os.environ["ONCEWAY_STATE"]) / "journal"
    bodies: asyncio.Queue[str] = asyncio.Queue()
    deliveries: dict[str, onceway.Delivery] = {}
    working: list[asyncio.Task[None]] = []
    connection = await onceway.connect(os.environ["ONCEWAY_URL"], journal=journal)
    while (order := (await asyncio.to_thread(sys.stdin.readline)).split()) and order[0] != "stop":
        match order:
            case "publisher", address:
                working.append(asyncio.create_task(work(asyncio.create_task(publish(connection, address, bodies)))))
            case "subscriber", address:
                working.append(asyncio.create_task(work(asyncio.create_task(receive(connection, address, deliveries)))))
            case "send", body:
                bodies.put_nowait(body)
            case "accept" | "reject" | "release" as verdict, body:
                await getattr(deliveries[body], verdict)()
    await connection.close(timeout_s=0)
    os._exit(0)


asyncio.run(main())
