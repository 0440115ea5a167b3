"""Who reads a lock file while it changes hands."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from onceway.spark.files import read_line, write_line


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[int]:
    file = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    yield file
    os.close(file)


def test_nobody_has_written(lock: int) -> None:
    assert read_line(lock) == ""


@pytest.mark.parametrize("later", ["process 7", "process 123", "process 1234567"])
def test_a_reader_finds_one_whole_line_at_each_step(lock: int, later: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was emptied and then written: a test which read in between found no process that it could wait for."""
    write_line(lock, "process 999")
    seen = []

    def watched(call: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any) -> Any:
            seen.append(read_line(lock))
            result = call(*arguments)
            seen.append(read_line(lock))
            return result

        return step

    for name in ("pwrite", "ftruncate"):
        monkeypatch.setattr(os, name, watched(getattr(os, name)))
    write_line(lock, later)
    assert seen == ["process 999", later, later, later]
    assert os.fstat(lock).st_size == len(later) + 1
