"""The store of the edges: append-only streams with positions, and a table of keys, changed together.

One interface, three forms: embedded (one process), PostgreSQL (several hosts), and `remote`, the embedded store of
another process. What one `commit` changes is durable as
a whole or not at all; many commits share one write to the disk. Readers never block writers.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from onceway.errors import OncewayError


class StoreError(OncewayError):
    """The store cannot go on: the message names the place and the remedy."""


class StoreFull(StoreError):
    """The disk, or the store's own limit, is full. Nothing of the batch was written."""


class Conflict(StoreError):
    """A key was not as the batch expected. Nothing of the batch was written.

    Attributes:
        key: The first such key.
    """

    def __init__(self, key: str) -> None:
        super().__init__(f"the value of {key!r} is another one")
        self.key = key


class Record(NamedTuple):
    """One entry of a stream."""

    position: int  # ascending from 0 within a stream; never used again, also after a trim
    time_us: int  # microseconds since the epoch at which it was appended; never less than that of the one before
    payload: bytes


class Bounds(NamedTuple):
    """What a stream holds: the positions first, first + 1 ... next - 1."""

    first: int
    next: int


class Retention(NamedTuple):
    """How much a stream keeps. What is older or more is removed in the background, in blocks, oldest first."""

    age_s: float | None = None
    octets: int | None = None


NAME_OCTETS: Final = 1000


def _named(name: str) -> str:
    """A key or a stream's name that every form of the store can keep."""
    if "\0" in name or len(name.encode()) > NAME_OCTETS:
        raise ValueError(f"{name[:40]!r}: a name is text without NUL of at most {NAME_OCTETS} octets of UTF-8")
    return name


@dataclass(slots=True)
class Batch:
    """Changes that become durable together, in this order: expected, values, trimmed, kept, appended.

    Keys and names of streams are text without NUL of at most NAME_OCTETS in UTF-8; the methods raise ValueError for
    others.
    """

    expected: dict[str, bytes | None] = field(default_factory=dict)
    values: dict[str, bytes | None] = field(default_factory=dict)
    appended: dict[str, list[bytes]] = field(default_factory=dict)
    trimmed: dict[str, int | None] = field(default_factory=dict)
    kept: dict[str, Retention] = field(default_factory=dict)
    frees: bool = False  # what it appends is little and lets much be trimmed: it may go on a disk that is almost full

    def expect(self, key: str, value: bytes | None) -> None:
        """Write nothing of this batch unless the key has this value; None: unless it has none."""
        self.expected[_named(key)] = value

    def put(self, key: str, value: bytes) -> None:
        self.values[_named(key)] = value

    def delete(self, key: str) -> None:
        self.values[_named(key)] = None

    def append(self, stream: str, payloads: Sequence[bytes]) -> None:
        """A stream exists once something was appended to it."""
        self.appended.setdefault(_named(stream), []).extend(payloads)

    def trim(self, stream: str, before: int | None = None) -> None:
        """Remove the records before this position; None: all that the stream had before this batch."""
        self.trimmed[_named(stream)] = before

    def keep(self, stream: str, retention: Retention) -> None:
        """Keep so much of the stream from now on; without this it keeps everything."""
        self.kept[_named(stream)] = retention


class Committed(NamedTuple):
    """What a commit did."""

    positions: dict[str, range]  # by stream: where the batch's records are
    removed: dict[str, int]  # by stream: how many records a trim removed


class Store(Protocol):
    """For one asyncio loop. Every method raises StoreError, only `commit` StoreFull; none blocks the loop.

    Attributes:
        place: Where it is, for messages.
    """

    place: str

    def commit(self, batch: Batch, *, with_next: bool = False) -> Awaitable[Committed]:
        """Done once it is durable. Commits happen in the order of the calls, whether or not they are awaited.

        Args:
            batch: What is changed.
            with_next: It has time: it may be written with the next commit, or when `hurry` is called, or after a while.

        Raises:
            Conflict: A key was not as expected.
            StoreFull: Nothing was written; the store goes on, and takes again what frees room.
        """
        ...

    def hurry(self) -> None:
        """Somebody waits for what was to be written with the next commit."""
        ...

    async def read(self, stream: str, first: int, *, records: int = 1000, octets: int = 1 << 20) -> list[Record]:
        """Records from this position on (from the oldest that is left, if that is later), at most so many and so large
        together; at least one if there is one."""
        ...

    async def bounds(self, stream: str) -> Bounds:
        """(0, 0) for a stream that does not exist."""
        ...

    async def position_at(self, stream: str, time_us: int) -> int:
        """The position of the first record at or after this time; `next` if there is none."""
        ...

    async def surplus(self, stream: str, retention: Retention) -> int:
        """The position before which there is more than that: what `keep` would remove, as far as it looks at a time."""
        ...

    async def grown(self, stream: str, position: int) -> None:
        """Returns once the stream has a record at or after this position."""
        ...

    async def get(self, key: str) -> bytes | None: ...

    async def scan(self, prefix: str) -> list[tuple[str, bytes]]:
        """(key, value) with this prefix, in the order of their keys."""
        ...

    async def streams(self, prefix: str = "") -> list[str]: ...

    async def used(self) -> int:
        """Octets on the disk."""
        ...

    def free(self) -> int | None:
        """Octets that the disk has left before commits are refused; None: the disk is another machine's."""
        ...

    async def close(self) -> None:
        """Makes durable what was committed, and closes."""
        ...


def open_store(
    place: str,
    *,
    limit_octets: int | None = None,
    key: str = "",
    client: str = "",
    context: ssl.SSLContext | None = None,
) -> Store:
    """Opens the store at `place`: a path, `postgresql://USER@HOST/DATABASE`, or the URL `https://...` of
    another process that serves its store.

    To be called in the loop that uses it. Opening a database waits for its server, 5 s at most for each address.

    Args:
        place: Where it is.
        limit_octets: How large an embedded store may become; None: as large as the disk.
        key: For another process's store: its user name for HTTP Basic.
        client: For another process's store: the name of this one, which is its alone.
        context: For another process's store: how its certificate is checked; None: as the system does.

    Raises:
        StoreError: It cannot be opened.
    """
    from edges.store.embedded import EmbeddedStore

    scheme, colon, _ = place.partition("://")
    if scheme in ("postgresql", "postgres") and colon:
        try:
            from edges.store.postgresql import PostgresStore
        except ImportError as error:
            raise StoreError(f"PostgreSQL needs psycopg: pip install 'onceway[postgresql]' ({error})") from error
        if limit_octets is not None:
            raise StoreError(f"{place}: a limit of octets is the server's to set")
        return PostgresStore(place)
    if scheme in ("https", "http") and colon:
        from edges.store.remote import RemoteStore

        if limit_octets is not None:
            raise StoreError(f"{place}: a limit of octets is set where the store is")
        return RemoteStore(place, key=key, client=client, context=context)
    if colon:
        raise StoreError(f"{place}: there is no store of the kind {scheme!r}; give a path")
    return EmbeddedStore(place, limit_octets=limit_octets)
