"""A damaged file of the embedded store: what is read is what was written, or there is an error with file and remedy."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from edges.store import Batch, Retention, Store, StoreError
from edges.store.embedded import EmbeddedStore
from tests.edges.store.conftest import append

PAGE = 4096


class Contents(NamedTuple):
    """All that a store says."""

    streams: list[str]
    records: dict[str, list[tuple[int, int, bytes]]]
    positions: dict[str, list[int]]
    keys: list[tuple[str, bytes]]
    values: dict[str, bytes | None]


async def contents(store: Store, names: list[str], keys: list[str], times: list[int]) -> Contents:
    records = {}
    for name in names:
        first, end = await store.bounds(name)
        found = records[name] = []
        while first < end:
            some = await store.read(name, first, records=7)
            found += map(tuple, some)
            first = some[-1].position + 1 if some else end
    return Contents(
        streams=await store.streams(),
        records=records,
        positions={name: [await store.position_at(name, at) for at in times] for name in names},
        keys=await store.scan(""),
        values={key: await store.get(key) for key in keys},
    )


class Whole:
    """A store of many small and some large blocks and values, and what it says."""

    names: Final = ["few", "large", "many", "trimmed", "none"]
    keys: Final = [f"key {number:04d}" for number in range(150)]

    def __init__(self, path: Path) -> None:
        self.path = path
        asyncio.run(self._fill())

    async def _fill(self) -> None:
        rng = random.Random(1)
        now_us = 0

        def clock() -> int:
            nonlocal now_us
            now_us += 10
            return now_us

        store = EmbeddedStore(self.path, wall_us=clock)
        for number in range(80):
            await append(store, "many", *(b"%d %d" % (number, part) for part in range(rng.randrange(1, 5))))
        for number in range(4):
            await append(store, "large", *(rng.randbytes(7_000) for _ in range(3)))
            await append(store, "trimmed", rng.randbytes(3000), b"%d" % number)
        batch = Batch()
        batch.append("few", [b"one", b"", b"three"])
        batch.keep("many", Retention(octets=1 << 30))
        batch.trim("trimmed", 3)
        for key in self.keys[::2]:
            batch.put(key, rng.randbytes(rng.randrange(90)))
        batch.put("key large", rng.randbytes(9_000))
        await store.commit(batch)
        self.times = list(range(0, clock() + 100, 97))
        self.contents = await contents(store, self.names, self.keys, self.times)
        await store.close()

    def noticed(self, path: Path, octets: bytes) -> bool:
        """Whether a store with these octets says that it is damaged. If it does not, it says what it should."""
        for beside in ("-wal", "-shm"):
            path.with_name(path.name + beside).unlink(missing_ok=True)
        path.write_bytes(octets)

        async def go() -> None:
            store = EmbeddedStore(path)
            try:
                assert await contents(store, self.names, self.keys, self.times) == self.contents
            finally:
                await store.close()

        try:
            asyncio.run(go())
        except StoreError as error:
            if re.match(rf"{path}: .*(put a whole copy back|use the version that wrote it)$", str(error)) is None:
                raise
            return True
        return False


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return Whole(tmp_path_factory.mktemp("whole") / "edge.store")


def flipped(page: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(page))
    page[at] ^= 1 << rng.randrange(8)


def flipped_at_the_beginning(page: bytearray, rng: random.Random) -> None:
    """Of a page: counts, and where its cells are."""
    page[rng.randrange(40)] ^= 1 << rng.randrange(8)


def exchanged_cells(page: bytearray, rng: random.Random) -> None:
    page[8:10], page[10:12] = page[10:12], page[8:10]


def random_octets(page: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(page))
    page[at : at + 64] = rng.randbytes(len(page[at : at + 64]))


def emptied(page: bytearray, rng: random.Random) -> None:
    page[:] = bytes(len(page))


@pytest.mark.parametrize("damage", [flipped, flipped_at_the_beginning, exchanged_cells, random_octets, emptied])
def test_damage_of_any_page_never_becomes_a_wrong_record(
    whole: Whole, tmp_path: Path, damage: Callable[[bytearray, random.Random], None]
) -> None:
    rng = random.Random(2)
    good = whole.path.read_bytes()
    path = tmp_path / "s"
    noticed = []
    for page in range(len(good) // PAGE):
        octets = bytearray(good[page * PAGE : (page + 1) * PAGE])
        damage(octets, rng)
        noticed.append(whole.noticed(path, good[: page * PAGE] + octets + good[(page + 1) * PAGE :]))
    assert sum(noticed) > len(noticed) // 3


def test_a_page_in_another_pages_place_never_becomes_a_wrong_record(whole: Whole, tmp_path: Path) -> None:
    rng = random.Random(3)
    good = whole.path.read_bytes()
    path = tmp_path / "s"
    pages = len(good) // PAGE
    for page in range(1, pages):
        other = rng.randrange(1, pages)
        octets = good[other * PAGE : (other + 1) * PAGE]
        whole.noticed(path, good[: page * PAGE] + octets + good[(page + 1) * PAGE :])


def test_every_octet_of_what_is_known_of_the_streams_may_change(whole: Whole, tmp_path: Path) -> None:
    good = whole.path.read_bytes()
    path = tmp_path / "s"
    for name in ("large", "many", "trimmed"):
        begin = good.index(name.encode())
        for at in range(begin - 8, begin + len(name) + 20):
            damaged = good[:at] + bytes([good[at] ^ 2]) + good[at + 1 :]
            assert whole.noticed(path, damaged) or not begin <= at < begin + len(name) + 3


def test_every_octet_of_the_files_header_may_change(whole: Whole, tmp_path: Path) -> None:
    good = whole.path.read_bytes()
    path = tmp_path / "s"
    for at in range(100):
        whole.noticed(path, good[:at] + bytes([good[at] ^ 0xFF]) + good[at + 1 :])


def test_a_file_that_was_cut_anywhere_is_refused(whole: Whole, tmp_path: Path) -> None:
    good = whole.path.read_bytes()
    path = tmp_path / "s"
    for size in (*range(0, len(good), PAGE), 1, 99, 100, PAGE - 1, len(good) - 1, len(good) - PAGE // 2):
        assert whole.noticed(path, good[:size]), size
