"""The store of another process: what was asked is done once, though that process and the connection go and come."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from edges.store import Batch, Conflict, StoreError, open_store, remote
from edges.store.remote import DONE, RING
from tests.edges.store.conftest import all_of, append
from tests.edges.store.served import Served


def adding(payload: bytes, expected: bytes | None = None) -> Batch:
    """Refused unless the key `last` is as expected."""
    batch = Batch()
    batch.expect("last", expected)
    batch.put("last", payload)
    batch.append("s", [payload])
    return batch


async def test_a_commit_whose_answer_was_lost_with_the_process_is_done_once(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(served.url)
    with monkeypatch.context() as patch:
        patch.setattr(remote, "_answer", lambda *_: None)
        first = store.commit(adding(b"1"))
        refused = store.commit(adding(b"no"))
        second = store.commit(adding(b"2", b"1"))
        await served.ask(served.store.grown("s", 1))
        third = store.commit(adding(b"3", b"2"))
        await asyncio.to_thread(served.stop)
    await asyncio.to_thread(served.start)
    assert (await first).removed == {}
    with pytest.raises(Conflict, match="last"):
        await refused
    await second
    await third
    assert await all_of(store, "s") == [b"1", b"2", b"3"]
    await store.close()


async def test_commits_are_done_once_and_in_order_while_the_process_goes_and_comes(served: Served) -> None:
    store = open_store(served.url)
    answers = []
    for number in range(10 * RING):
        batch = Batch()
        batch.append("s", [b"%d" % number])
        answers.append(store.commit(batch))
        if number % 100 == 50:
            await asyncio.sleep(0)  # some of them are on their way
            await asyncio.to_thread(served.stop)
            await asyncio.to_thread(served.start)
    await asyncio.gather(*answers)
    assert await all_of(store, "s") == [b"%d" % number for number in range(10 * RING)]
    await store.close()


async def test_what_waits_goes_on_when_the_process_is_back(served: Served) -> None:
    store = open_store(served.url)
    grown = asyncio.ensure_future(store.grown("s", 0))
    assert await store.streams() == []
    await asyncio.to_thread(served.stop)
    found = asyncio.ensure_future(store.get("k"))
    await asyncio.to_thread(served.start)
    assert await found is None
    assert not grown.done()
    await append(store, "s", b"1")
    await grown
    await store.close()


async def test_the_keys_of_an_earlier_life_of_a_client_go(served: Served) -> None:
    for _ in range(2):
        store = open_store(served.url, client="b")
        await append(store, "s", b"1")
        await store.close()
    rows = await served.ask(served.store.scan(DONE))
    assert [(key.split("/")[1], value) for key, value in rows] == [("b", b"1")]


@pytest.mark.parametrize("status", [400, 401, 404])
async def test_a_process_that_refuses_is_named_with_a_reason(status: int) -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.Response(status=status)

    application = web.Application()
    application.router.add_get("/store", refuse)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/store"
    store = open_store(url)
    with pytest.raises(StoreError, match=f"{url}: that process|{url}: the key is refused"):
        await store.get("k")
    with pytest.raises(StoreError, match=url):
        await append(store, "s", b"1")
    await store.close()
    await runner.cleanup()
