"""A store of retained messages: what it keeps of what comes to it."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from edges.retained.serve import PREFIX, RetainedStore
from edges.store import Store, open_store
from mqtt import Publish
from router.mqtt.conversion import to_message
from router.mqtt.retained import MOST_DELETED, end, read


def message(topic: str, at: int, payload: bytes = b"x") -> bytes:
    return to_message(Publish(topic, payload, 1, True), "p", stamp=(at, "a"))


async def taken(kept: RetainedStore, store: Store, *payloads: bytes) -> list[str]:
    """The topics that are on the disk then."""
    batch: Any = SimpleNamespace(payloads=list(payloads), other_formats={})
    await kept._take(store, batch)
    found = [read(payload) for _, payload in await store.scan(PREFIX)]
    return sorted(each.topic for each in found if each is not None and not each.empty)


class Taken(SimpleNamespace):
    """A batch. rejected: by index, the condition."""

    def __getitem__(self, index: int) -> Any:
        return SimpleNamespace(reject=lambda condition, text: self.rejected.update({index: condition}))


async def test_what_the_network_takes_from_no_store_is_rejected(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "s.db"))
    kept = RetainedStore("s", "retained", routers="amqp://127.0.0.1:1", data=tmp_path / "s.db")
    payloads = [message("small", 1), message("large", 2, bytes(1000)), message("small", 3)]
    batch: Any = Taken(payloads=payloads, other_formats={}, rejected={})
    try:
        await kept._take(store, batch, 1000)
        assert batch.rejected == {1: "amqp:link:message-size-exceeded"}
        assert [payload for _, payload in await store.scan(PREFIX)] == [payloads[2]]
        told: list[list[bytes]] = []

        async def put_payloads(payloads: list[bytes]) -> None:
            told.append(payloads)

        publisher: Any = SimpleNamespace(max_message_bytes=10, put_payloads=put_payloads)
        await kept._answer(store, publisher, "router")
        assert told == [[end("router", "s")]]
    finally:
        await store.close()


async def test_topics_that_were_cleared_leave_a_bounded_number_of_rows(tmp_path: Path) -> None:
    now_us = int(time.time() * 1e6)
    store = open_store(str(tmp_path / "s.db"))
    kept = RetainedStore("s", "retained", routers="amqp://127.0.0.1:1", data=tmp_path / "s.db")
    try:
        cleared = [message(f"job/{i}", now_us + i, b"") for i in range(MOST_DELETED + 500)]
        assert await taken(kept, store, message("job/1", now_us - 2), *cleared, message("stays", now_us)) == ["stays"]
        assert len(await store.scan(PREFIX)) == MOST_DELETED + 1
        assert len(kept._deleted) == MOST_DELETED
        late = message(f"job/{MOST_DELETED}", now_us - 1)
        assert await taken(kept, store, late) == ["stays"]
        later = message(f"job/{MOST_DELETED}", now_us + 2 * MOST_DELETED)
        assert await taken(kept, store, later) == [f"job/{MOST_DELETED}", "stays"]
    finally:
        await store.close()
