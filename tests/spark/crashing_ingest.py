"""An ingest that dies, or stands still, at one place: `python -m tests.spark.crashing_ingest PLACE COUNT`.

PLACE says where, COUNT the how-manieth time it comes there.  It dies by SIGKILL, as by kill -9.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence

from onceway.base.loop import run
from onceway.spark.files import BytesLike, Disk
from onceway.spark.source.changing import Change
from onceway.spark.source.ingest import serve
from onceway.spark.source.receiving import Receiver
from onceway.spark.wal import Step, Wal
from onceway.spark.wal.frames import FRAME_MAGIC

PLACES = ("torn", "synced", "unaccepted", "change-begun", "change-frozen", "change-drained", "change-ended")


class Place:
    """Counts how often it is passed."""

    def __init__(self, name: str, count: int) -> None:
        self.name = name
        self.left = count

    def reached(self, name: str) -> bool:
        if name == self.name:
            self.left -= 1
        return name == self.name and self.left == 0


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arrange(place: Place) -> None:
    """Puts the place into the classes that pass it."""
    write, sync, rename = Disk.write, Disk.sync, Disk.rename
    written: dict[int, None] = {}  # files with frames that are not synced

    def writing(disk: Disk, file: int, parts: Sequence[BytesLike], offset: int) -> None:
        if bytes(parts[0][:4]) != FRAME_MAGIC:
            write(disk, file, parts, offset)
            return
        if place.reached("torn"):
            octets = b"".join(map(bytes, parts))
            write(disk, file, [octets[: len(octets) // 2]], offset)
            die()
        write(disk, file, parts, offset)
        written[file] = None

    def syncing(disk: Disk, file: int) -> None:
        sync(disk, file)
        if file in written and place.reached("synced"):
            die()

    def renaming(disk: Disk, old: str, new: str) -> None:
        if os.path.basename(new) == "wal.json" and place.reached("change-frozen"):
            os.kill(os.getpid(), signal.SIGSTOP)
        rename(disk, old, new)

    patches: list[tuple[str, Callable[..., None]]] = [
        ("write", writing), ("sync", syncing), ("rename", renaming),
    ]  # fmt: skip
    for name, patch in patches:
        setattr(Disk, name, patch)

    durable = Receiver.durable

    def accepting(receiver: Receiver) -> None:
        if receiver._waiting and receiver._waiting[0][0] <= receiver.writer.durable and place.reached("unaccepted"):
            die()
        durable(receiver)

    Receiver.durable = accepting  # type: ignore[method-assign]

    drained, change_to = Change._drained, Wal.change_to

    async def draining(ingest: Change) -> None:
        await ingest._up.wait()
        if place.reached("change-begun"):
            die()
        await drained(ingest)

    def changing(wal: Wal, step: Step) -> Wal:
        if step is Step.ENDED and place.reached("change-ended"):
            die()
        wal = change_to(wal, step)
        if step is Step.DRAINED and place.reached("change-drained"):
            die()
        return wal

    Change._drained = draining  # type: ignore[method-assign]
    Wal.change_to = changing  # type: ignore[method-assign]


if __name__ == "__main__":
    arrange(Place(sys.argv[1], int(sys.argv[2])))
    sys.exit(run(serve()))
