"""Small files that people may look into: JSON with a checksum, replaced as a whole."""

from __future__ import annotations

import json
import zlib
from typing import Any

from onceway.spark.wal.disk import Disk
from onceway.spark.wal.errors import WalDamaged

_CHECKSUM = "crc32"


def write_document(disk: Disk, path: str, content: dict[str, Any]) -> None:
    """Durable when it returns.  Raises OSError."""
    disk.replace(path, dump(content))


def dump(content: dict[str, Any]) -> bytes:
    return json.dumps({**content, _CHECKSUM: _checksum(content)}, indent=1).encode() + b"\n"


def read_document(path: str) -> dict[str, Any] | None:
    """What it says; None where there is none.  Raises WalDamaged, OSError."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return None
    return parse(path, data)


def parse(path: str, data: bytes) -> dict[str, Any]:
    """What a document's octets say; `path` is for the error.  Raises WalDamaged."""
    try:
        content = json.loads(data)
    except ValueError:
        content = None
    if not isinstance(content, dict) or content.pop(_CHECKSUM, None) != _checksum(content):
        raise WalDamaged(
            f"{path}: damaged, or edited by hand (its checksum is not that of its content); restore it from a copy, "
            "or give a new walLocation and a new checkpoint, and expect what was not processed to be lost"
        )
    return content


def _checksum(content: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())
