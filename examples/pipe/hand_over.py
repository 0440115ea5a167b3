"""Batch jobs that hand over to each other: each reads what the one before has pushed, up to its mark, and empties it.

    python examples/pipe/hand_over.py [URL] [PIPE] [PIPE]

Extract pushes records and a mark. Transform may start before or after that: it reads up to the mark, pushes to the next
pipe, and resets the first one for tomorrow. Load does the same with the second. Nobody needs to run at the same time.
"""

import asyncio
import sys
from collections.abc import AsyncIterator

from edges.pipe import pull, push, reset

URL = sys.argv[1] if len(sys.argv) > 1 else "amqp://127.0.0.1:5672"
RAW = sys.argv[2] if len(sys.argv) > 2 else "raw"
CLEAN = sys.argv[3] if len(sys.argv) > 3 else "clean"
END = "-- end --"


async def until_mark(pipe: str) -> AsyncIterator[str]:
    async for record in pull(pipe, routers=URL, follow=True):
        if record.body == END:
            return
        yield record.body


async def extract() -> None:
    await push(URL, RAW, [" Ada ", "grace", " ALAN", END])


async def transform() -> None:
    names = [record.strip().title() async for record in until_mark(RAW)]
    await push(URL, CLEAN, [*names, END])
    print(f"transform: {await reset(URL, RAW)} messages of {RAW} are done")


async def load() -> None:
    print("load:", ", ".join([name async for name in until_mark(CLEAN)]))
    print(f"load: {await reset(URL, CLEAN)} messages of {CLEAN} are done")


async def main() -> None:
    await asyncio.gather(load(), transform(), extract())


asyncio.run(main())
