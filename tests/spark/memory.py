"""An object store in memory, of which any request can fail before or after it took effect; and a server of its API."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from hashlib import md5

from onceway.spark.errors import WalError


class Died(WalError):
    """The process is dead: nothing more that it does has an effect."""


class MemoryObjects:
    """`Objects` over a dictionary.  `before` and `after` are called around each request that changes something."""

    def __init__(self, contents: dict[str, bytes] | None = None) -> None:
        self.contents = {} if contents is None else contents
        self.requests: list[str] = []
        self.before: Callable[[], object] = lambda: None
        self.after_it: Callable[[], object] = lambda: None
        self._lock = threading.Lock()

    def _request(self, what: str) -> None:
        self.requests.append(what)

    def put(self, key: str, data: bytes, version: str | None) -> str | None:
        self._request(f"put {key}")
        self.before()
        with self._lock:
            there = self.contents.get(key)
            if (None if there is None else _version(there)) == version:
                self.contents[key] = data
                made: str | None = _version(data)
            else:
                made = None
        self.after_it()
        return made

    def get(self, key: str) -> tuple[bytes, str] | None:
        self._request(f"get {key}")
        data = self.contents.get(key)
        return None if data is None else (data, _version(data))

    def part(self, key: str, start: int, end: int) -> bytes:
        self._request(f"part {key}")
        try:
            return self.contents[key][start:end]
        except KeyError:
            raise FileNotFoundError(key) from None

    def after(self, prefix: str, key: str) -> list[str]:
        self._request(f"list {prefix}")
        return sorted(one for one in self.contents if one.startswith(prefix) and one > key)[:1000]

    def remove(self, keys: Sequence[str]) -> None:
        self._request(f"remove {len(keys)}")
        self.before()
        for key in keys:
            self.contents.pop(key, None)
        self.after_it()


def _version(data: bytes) -> str:
    return md5(data).hexdigest()
