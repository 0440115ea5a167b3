"""Small JSON documents of a log, wherever it lives: in a file, or an object of a store.

`write` is for a document that has one writer at a time: of a file the log's locks and epochs keep others away, and an
object is replaced only where it is still the one that this writer knows.  `swap` needs none of these.
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

    def swap(self, content: Mapping[str, Any]) -> bool:
        """`write` in place of what was read or written here last; False where that is no longer there."""
        ...


class FileDocument:
    def __init__(self, path: str, documents: Documents, disk: Disk | None = None) -> None:
        self.path = path
        self._documents = documents
        self._disk = disk or Disk()
        self._seen: tuple[int, int, int] | None = None
        self._data: bytes | None = None
        self._content: dict[str, Any] | None = None

    def read(self) -> dict[str, Any] | None:
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            return self._content  # it was there: it is being restored, or was removed by hand
        seen = (status.st_ino, status.st_mtime_ns, status.st_size)
        if seen != self._seen:
            with open(self.path, "rb") as file:
                self._data = file.read()
            self._content = self._documents.parse(self.path, self._data)
            self._seen = seen
        return self._content

    def write(self, content: Mapping[str, Any]) -> None:
        self._data = self._documents.dump(content)
        self._disk.replace(self.path, self._data)
        self._seen = None

    def swap(self, content: Mapping[str, Any]) -> bool:
        data = self._documents.dump(content)
        self._seen = None
        if not self._disk.swap(self.path, self._data, data):
            return False
        self._data = data
        return True
