"""Small JSON documents of a log, wherever it lives: in a file, or an object of a store.

A document has one writer at a time.  In a file the log's locks and epochs keep others away; an object is replaced only
where it is still the one that this writer knows.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Protocol

from onceway.spark.files import Disk, Documents


class Document(Protocol):
    """Methods raise the error of its `Documents`, WalError and OSError."""

    path: str  # for people

    def read(self) -> dict[str, Any] | None:
        """Its content, which must not be changed; None where there is none.  Cheap where nothing has changed."""
        ...

    def write(self, content: Mapping[str, Any]) -> None:
        """Durable when it returns."""
        ...


class FileDocument:
    def __init__(self, path: str, documents: Documents, disk: Disk | None = None) -> None:
        self.path = path
        self._documents = documents
        self._disk = disk or Disk()
        self._seen: tuple[int, int, int] | None = None
        self._content: dict[str, Any] | None = None

    def read(self) -> dict[str, Any] | None:
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            return self._content  # it was there: it is being restored, or was removed by hand
        seen = (status.st_ino, status.st_mtime_ns, status.st_size)
        if seen != self._seen:
            self._content = self._documents.read(self.path)
            self._seen = seen
        return self._content

    def write(self, content: Mapping[str, Any]) -> None:
        self._documents.write(self.path, content, self._disk)
        self._seen = None
