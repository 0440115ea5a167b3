"""Disks for tests of the write-ahead log: one without waiting, one that fails, one whose history can be cut anywhere.

`Recorded` does everything for real, but for fsync, and writes down what was done.  `after_kill` and `after_power_cut` lay
out in a fresh directory what a machine could find had it stopped there: a killed process leaves every byte that it had
written; a power cut leaves what was synced, any of what was not, and any first part of what had become of a directory.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from onceway.spark.files import BytesLike, Disk


class Quick(Disk):
    """Waits for no disk; nothing reaches it any more once it is not `alive`."""

    alive = True

    def step(self) -> None:
        if not self.alive:
            raise OSError(errno.EIO, "the process is dead")

    def make_directory(self, path: str) -> None:
        self.step()
        super().make_directory(path)

    def open(self, path: str, *, empty: bool = False) -> int:
        self.step()
        return super().open(path, empty=empty)

    def write(self, file: int, parts: Sequence[BytesLike], offset: int) -> None:
        self.step()
        super().write(file, parts, offset)

    def sync(self, file: int) -> None:
        self.step()

    def rename(self, old: str, new: str) -> None:
        self.step()
        super().rename(old, new)

    def remove(self, path: str) -> None:
        self.step()
        super().remove(path)

    def sync_directory(self, path: str) -> None:
        self.step()


class Failing(Quick):
    """The step behind the first `good` ones fails, half done if it is a write, and so do all that follow."""

    def __init__(self, good: int, number: int) -> None:
        self.good = good
        self.steps = 0
        self._number = number

    def step(self) -> None:
        super().step()
        self.steps += 1
        if self.steps > self.good:
            raise OSError(self._number, os.strerror(self._number))

    def write(self, file: int, parts: Sequence[BytesLike], offset: int) -> None:
        if self.alive and self.steps == self.good:
            data = b"".join(bytes(part) for part in parts)
            os.pwrite(file, data[: len(data) // 2], offset)
        super().write(file, parts, offset)


class Step(NamedTuple):
    kind: str  # directory, open, write, sync, sync_failed, rename, remove, sync_directory, durable
    path: str  # relative
    data: bytes = b""
    offset: int = 0
    other: str = ""
    row: int = 0


class Recorded(Quick):
    syncs_fail = False

    def __init__(self, root: Path) -> None:
        self.steps: list[Step] = []
        self._root = root
        self._paths: dict[int, str] = {}

    def _name(self, path: str) -> str:
        return os.path.relpath(path, self._root)

    def make_directory(self, path: str) -> None:
        super().make_directory(path)
        self.steps.append(Step("directory", self._name(path)))

    def open(self, path: str, *, empty: bool = False) -> int:
        file = super().open(path, empty=empty)
        self.steps.append(Step("open", self._name(path), row=int(empty)))
        self._paths[file] = self._name(path)
        return file

    def write(self, file: int, parts: Sequence[BytesLike], offset: int) -> None:
        data = b"".join(bytes(part) for part in parts)
        super().write(file, [data], offset)
        self.steps.append(Step("write", self._paths[file], data, offset))

    def sync(self, file: int) -> None:
        if self.syncs_fail:
            self.steps.append(Step("sync_failed", self._paths[file]))
            raise OSError(errno.EIO, "the disk did not take it")
        super().sync(file)
        self.steps.append(Step("sync", self._paths[file]))

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        self.steps.append(Step("rename", self._name(old), other=self._name(new)))

    def remove(self, path: str) -> None:
        super().remove(path)
        self.steps.append(Step("remove", self._name(path)))

    def sync_directory(self, path: str) -> None:
        super().sync_directory(path)
        self.steps.append(Step("sync_directory", self._name(path)))

    def durable(self, row: int) -> None:
        """The writer said that rows before this one may be accepted."""
        self.steps.append(Step("durable", "", row=row))


class _File:
    def __init__(self) -> None:
        self.safe = b""
        self.unsafe: list[Step] = []  # writes, and emptying, since it was last synced
        self.lost: list[Step] = []  # those whose sync has failed: they are seen, count as clean, and never get there

    def content(self, steps: Sequence[Step]) -> bytes:
        data = bytearray(self.safe)
        for step in steps:
            if step.kind == "open":
                data.clear()
                continue
            data += bytes(max(0, step.offset - len(data)))
            data[step.offset : step.offset + len(step.data)] = step.data
        return bytes(data)


class _Machine:
    """Files by name, as they are seen and as the disk has them."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.seen: dict[str, _File] = {}
        self.safe: dict[str, _File] = {}
        self.changes: dict[str, list[tuple[str, _File | None]]] = {}  # by directory, in order; None: the name is gone
        self.directories: list[str] = []
        for step in steps:
            getattr(self, f"_{step.kind}")(step)

    def _change(self, name: str, file: _File | None) -> None:
        self.changes.setdefault(os.path.dirname(name) or ".", []).append((name, file))

    def _directory(self, step: Step) -> None:
        self.directories.append(step.path)

    def _open(self, step: Step) -> None:
        if step.path not in self.seen:
            self.seen[step.path] = _File()
            self._change(step.path, self.seen[step.path])
        elif step.row:
            self.seen[step.path].unsafe.append(step)

    def _write(self, step: Step) -> None:
        self.seen[step.path].unsafe.append(step)

    def _sync(self, step: Step) -> None:
        file = self.seen[step.path]
        file.safe, file.unsafe = file.content(file.unsafe), []

    def _sync_failed(self, step: Step) -> None:
        file = self.seen[step.path]
        file.lost, file.unsafe = file.lost + file.unsafe, []

    def _rename(self, step: Step) -> None:
        self.seen[step.other] = self.seen.pop(step.path)
        self._change(step.other, self.seen[step.other])
        self._change(step.path, None)

    def _remove(self, step: Step) -> None:
        del self.seen[step.path]
        self._change(step.path, None)

    def _sync_directory(self, step: Step) -> None:
        self.settle(self.changes.pop(step.path, []))

    def _durable(self, step: Step) -> None:
        pass

    def settle(self, changes: Sequence[tuple[str, _File | None]]) -> None:
        for name, file in changes:
            if file is None:
                self.safe.pop(name, None)
            else:
                self.safe[name] = file

    def lay_out(self, contents: dict[str, bytes], root: Path) -> None:
        for directory in self.directories:
            (root / directory).mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            (root / name).write_bytes(content)


def after_kill(steps: Sequence[Step], octets: int | None, root: Path) -> None:
    """All of the steps were taken, but of the last one, if it is a write, only so many bytes were written."""
    if octets is not None and steps[-1].kind == "write":
        steps = [*steps[:-1], steps[-1]._replace(data=steps[-1].data[:octets])]
    machine = _Machine(steps)
    machine.lay_out({name: file.content(file.lost + file.unsafe) for name, file in machine.seen.items()}, root)


def after_power_cut(steps: Sequence[Step], rng: random.Random, root: Path) -> None:
    """What was synced, and some of what was not."""
    machine = _Machine(steps)
    for changes in machine.changes.values():
        machine.settle(changes[: rng.randint(0, len(changes))])
    contents = {}
    for name, file in machine.safe.items():
        kept = []
        for step in file.unsafe:
            fate = rng.randint(0, 2)
            if fate == 2 and step.kind == "write":
                step = step._replace(data=step.data[: rng.randint(0, len(step.data))])
            if fate:
                kept.append(step)
        contents[name] = file.content(kept)
    machine.lay_out(contents, root)
