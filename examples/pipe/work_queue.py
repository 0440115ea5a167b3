"""A work queue: three workers share the jobs of a pipe, and one that dies goes on where it was.

    python examples/pipe/work_queue.py [URL] [PIPE]

Nothing is removed from a pipe, and all see the same order: so worker n of three takes the jobs whose position leaves
the remainder n, without a word to the others, and writes down the position that it has done. Here worker 1 dies after
its first job; the next process of that worker begins behind it.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from edges.pipe import pull, push

URL = sys.argv[1] if len(sys.argv) > 1 else "amqp://127.0.0.1:5672"
PIPE = sys.argv[2] if len(sys.argv) > 2 else "jobs"
WORKERS = 3


async def work(number: int, notes: Path, most: int) -> None:
    note = notes / f"worker-{number}"
    begin = int(note.read_text()) + 1 if note.exists() else None
    async for job in pull(PIPE, routers=URL, start=begin):
        if job.position % WORKERS == number:
            print(f"worker {number}: {job.body}")
            note.write_text(str(job.position))
            most -= 1
            if not most:
                return


async def main() -> None:
    await push(URL, PIPE, [f"photo {number}" for number in range(9)])
    with tempfile.TemporaryDirectory() as directory:
        notes = Path(directory)
        await work(0, notes, 9)
        await work(1, notes, 1)  # it dies
        await work(2, notes, 9)
        await work(1, notes, 9)


asyncio.run(main())
