"""An object store as the log needs it: create once, replace what nobody else has replaced, read, list, remove.

`Objects` is what the log knows; `S3Objects` is it over obstore (docs/decisions/spark-log-on-objects.md).  A request
that fails for a reason that may pass (no answer, 500, 503 SlowDown) is repeated for RETRY_S.  So a write may have
happened although its answer was lost, and the repeat finds it there: whoever writes compares.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from onceway.spark.errors import WalError

RETRY_S: Final = 300.0
ANSWER_S: Final = 30.0
LONGEST_PAUSE_S: Final = 5.0


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


@lru_cache(maxsize=16)
def objects_at(location: str) -> Objects:
    """The store of an `s3://bucket/prefix`.  Endpoint, region and keys come from the environment (AWS_...)."""
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

    @contextmanager
    def _doing(self, what: str, key: str) -> Iterator[None]:
        from obstore.exceptions import BaseError

        try:
            yield
        except BaseError as error:
            said = str(error).partition("\n")[0]
            raise WalError(
                f"{self._place.rstrip('/')}/{key}: the object store failed {what}: {said}; mend that and start again: "
                "what is not in the log was not accepted and comes again"
            ) from error

    def put(self, key: str, data: bytes, version: str | None) -> str | None:
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        with self._doing("writing", key):
            try:
                # never in parts: a multipart upload is not conditional until its end
                mode: Any = "create" if version is None else {"e_tag": version}
                made = obstore.put(self._store, key, data, mode=mode, use_multipart=False)
            except (AlreadyExistsError, PreconditionError, FileNotFoundError):
                return None
        return str(made["e_tag"])

    def get(self, key: str) -> tuple[bytes, str] | None:
        import obstore

        with self._doing("reading", key):
            try:
                found = obstore.get(self._store, key)
            except FileNotFoundError:
                return None
            return bytes(found.bytes()), str(found.meta["e_tag"])

    def part(self, key: str, start: int, end: int) -> bytes:
        import obstore

        with self._doing("reading", key):
            return bytes(obstore.get_range(self._store, key, start=start, end=end))

    def after(self, prefix: str, key: str) -> list[str]:
        import obstore

        with self._doing("listing", prefix):
            for page in obstore.list(self._store, prefix=prefix, offset=key, chunk_size=1000):
                return sorted(str(entry["path"]) for entry in page)
        return []

    def remove(self, keys: Sequence[str]) -> None:
        import obstore

        with self._doing("removing", keys[0] if keys else ""):
            try:
                obstore.delete(self._store, list(keys))
            except FileNotFoundError:
                pass
