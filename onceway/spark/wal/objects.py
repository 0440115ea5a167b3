"""An object store as the log needs it: create once, replace what nobody else has replaced, read, list, remove.

`Objects` is what the log knows; `S3Objects` is it over obstore (docs/decisions/spark-log-on-objects.md).  A request
that fails for a reason that may pass (no answer, 500, 503 SlowDown) is repeated for RETRY_S, one whose connection is
reset, or whose answer ends too early, a few times.  So a write may have happened although its answer was lost, and the
repeat finds it there: whoever writes compares.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import urlsplit

from onceway.spark.errors import WalError

T = TypeVar("T")

RETRY_S: Final = 300.0
ANSWER_S: Final = 30.0
LONGEST_PAUSE_S: Final = 5.0
CUT_PAUSES_S: Final = (0.1, 0.4, 1.6)  # obstore does not repeat a write that was sent, or an answer that was begun


class Objects(Protocol):
    """Keys are below one prefix.  Methods raise WalError where the store does not answer, or refuses."""

    def put(self, key: str, data: bytes, version: str | None) -> str | None:
        """Creates (version None) or replaces this version; the new version, or None: it is there, or another one is."""
        ...

    def get(self, key: str) -> tuple[bytes, str] | None:
        """Content and version; None where there is no such object."""
        ...

    def part(self, key: str, start: int, end: int) -> bytes:
        """These bytes of an object.  Raises FileNotFoundError."""
        ...

    def after(self, prefix: str, key: str) -> list[str]:
        """The first thousand keys or so with this prefix that come after `key`, in order."""
        ...

    def remove(self, keys: Sequence[str]) -> None:
        """Missing ones are no error."""
        ...


def objects_at(location: str) -> Objects:
    """The store of an `s3://bucket/prefix`.  Endpoint, region and keys come from the environment (AWS_...), as it is
    now: a notebook may change it between two queries."""
    return _objects(location, tuple(one for one in os.environ.items() if one[0].startswith("AWS_")))


@lru_cache(maxsize=16)
def _objects(location: str, environment: tuple[tuple[str, str], ...]) -> Objects:
    return S3Objects(location)


class S3Objects:
    def __init__(self, location: str) -> None:
        if find_spec("obstore") is None:
            raise WalError(f"{location}: a log in an object store needs obstore: pip install 'onceway[spark-s3]'")
        from obstore.store import S3Store

        parts = urlsplit(location)
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
        options: Any = {"timeout": timedelta(seconds=ANSWER_S)}
        if endpoint.startswith("http://"):
            options["allow_http"] = True
        named: dict[str, Any] = {"endpoint": endpoint} if endpoint else {}
        self._place = location
        self._store: Any = S3Store(
            parts.netloc,
            prefix=parts.path.strip("/") or None,
            client_options=options,
            retry_config={
                "max_retries": 1000,
                "retry_timeout": timedelta(seconds=RETRY_S),
                "backoff": {
                    "init_backoff": timedelta(milliseconds=100),
                    "max_backoff": timedelta(seconds=LONGEST_PAUSE_S),
                    "base": 2.0,
                },
            },
            **named,
        )

    def _ask(self, what: str, key: str, request: Callable[[], T]) -> T:
        from obstore.exceptions import BaseError, GenericError

        pauses = iter(CUT_PAUSES_S)
        while True:
            try:
                return request()
            except BaseError as error:
                pause = next(pauses, None)
                if pause is None or not isinstance(error, GenericError):
                    said = str(error).partition("\n")[0]
                    raise WalError(
                        f"{self._place.rstrip('/')}/{key}: the object store failed {what}: {said}; mend that and start "
                        "again: what is not in the log was not accepted and comes again"
                    ) from error
            time.sleep(pause)

    def put(self, key: str, data: bytes, version: str | None) -> str | None:
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        def put() -> str | None:
            try:
                # never in parts: a multipart upload is not conditional until its end
                mode: Any = "create" if version is None else {"e_tag": version}
                made = obstore.put(self._store, key, data, mode=mode, use_multipart=False)
            except (AlreadyExistsError, PreconditionError, FileNotFoundError):
                return None
            return str(made["e_tag"])

        return self._ask("writing", key, put)

    def get(self, key: str) -> tuple[bytes, str] | None:
        import obstore

        def get() -> tuple[bytes, str] | None:
            try:
                found = obstore.get(self._store, key)
            except FileNotFoundError:
                return None
            return bytes(found.bytes()), str(found.meta["e_tag"])

        return self._ask("reading", key, get)

    def part(self, key: str, start: int, end: int) -> bytes:
        import obstore

        return self._ask("reading", key, lambda: bytes(obstore.get_range(self._store, key, start=start, end=end)))

    def after(self, prefix: str, key: str) -> list[str]:
        import obstore

        def after() -> list[str]:
            for page in obstore.list(self._store, prefix=prefix, offset=key, chunk_size=1000):
                return sorted(str(entry["path"]) for entry in page)
            return []

        return self._ask("listing", prefix, after)

    def remove(self, keys: Sequence[str]) -> None:
        import obstore

        def remove() -> None:
            with suppress(FileNotFoundError):
                obstore.delete(self._store, list(keys))

        self._ask("removing", keys[0] if keys else "", remove)
