"""Publish 1000 numbered messages, each exactly once, however often this program is killed and started again.

    python examples/exactly_once.py [URL [JOURNAL]]

The journal is a file.  It holds the container-id, the messages without outcome, which are sent again at the next start,
and the number of the next message (`publisher.sequence`): the place in the source where this program continues.  A
message is sent only when the journal has it.  One that was put just before a crash and is not in the journal is put by
the next process, under the same number.  A subscriber that has to survive its own death has a journal, too.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

import onceway

URL = sys.argv[1] if len(sys.argv) > 1 else "amqp://127.0.0.1:5672"
JOURNAL = sys.argv[2] if len(sys.argv) > 2 else Path(tempfile.gettempdir(), "onceway-example.journal")
TOTAL = 1000


async def main() -> None:
    async with onceway.connect(URL, journal=JOURNAL) as connection:
        publisher = await connection.publisher("numbers")
        print(f"begins at {publisher.sequence}, sends {len(publisher.recovered)} again", flush=True)
        for number in range(publisher.sequence, TOTAL):
            await publisher.put(f"number {number}")
            if number % 100 == 99:
                print(f"put {number + 1}", flush=True)
                await asyncio.sleep(0.05)  # as if the source were slow
        await publisher.drain()
        print(f"all {TOTAL} are accepted")


asyncio.run(main())
