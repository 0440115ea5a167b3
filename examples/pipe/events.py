"""Events for many: every subscriber sees every event in the same order, whenever it comes, and from where it wants.

    python examples/pipe/events.py [URL] [PIPE]

The billing has listened from the start; the audit comes late and reads from the beginning; the display wants only what
happens from now on.
"""

import asyncio
import sys

from edges.pipe import Reader, pull, push

URL = sys.argv[1] if len(sys.argv) > 1 else "amqp://127.0.0.1:5672"
PIPE = sys.argv[2] if len(sys.argv) > 2 else "events"


async def listen(name: str, count: int) -> str:
    heard = [event.body async for event in pull(PIPE, routers=URL, count=count)]
    return f"{name}: {', '.join(heard)}"


async def main() -> None:
    billing = asyncio.create_task(listen("billing", 4))
    await push(URL, PIPE, ["door opened", "lights on"])
    async with Reader(PIPE, routers=URL, start="end") as display:
        await push(URL, PIPE, ["lights off", "door closed"])
        print(await billing)
        print(await listen("audit", 4))
        shown: list[str] = []
        async for batch in display.batches():
            shown += [event.body for event in batch]
            if len(shown) == 2:
                break
        print(f"display: {', '.join(shown)}")


asyncio.run(main())
