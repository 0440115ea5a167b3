"""The lines of an outbox's journal: each is one group of operations, as JSON behind a checksum.

A killed process, or a machine without power, leaves a torn last line at most, which was never relied on: it is cut.  A
bad line with a good one behind it is damage, and said to be.  What the operations are: `outbox_journal`.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Sequence
from typing import Any


def continues(last: list[Any], operation: list[Any]) -> bool:
    """Outcomes come in order, in pieces: two of them as one."""
    if not last[0] == operation[0] == "forget":
        return False
    return bool(last[1] == operation[1] and last[3] + 1 == operation[2] and last[4] == operation[4])


def append(file: int, operations: Sequence[Sequence[Any]]) -> None:
    """One group, durable when it returns."""
    text = json.dumps(operations, separators=(",", ":")).encode()
    data = memoryview(b"%08x %s\n" % (zlib.crc32(text), text))
    while data:
        data = data[os.write(file, data) :]
    os.fdatasync(file)


def read_groups(data: bytes) -> tuple[list[list[list[Any]]] | None, int]:
    """(groups, bytes of them); None where there is damage that a crash does not leave."""
    groups: list[list[list[Any]]] = []
    good = 0
    bad = False
    for line in data.splitlines(keepends=True):
        group = _read_group(line)
        if group is None:
            bad = True
        elif bad:
            return None, 0
        else:
            groups.append(group)
            good += len(line)
    return (groups or None), good


def _read_group(line: bytes) -> list[list[Any]] | None:
    if not line.endswith(b"\n") or line[8:9] != b" ":
        return None
    text = line[9:-1]
    if line[:8] != b"%08x" % zlib.crc32(text):
        return None
    group: list[list[Any]] = json.loads(text)
    return group
