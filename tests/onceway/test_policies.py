"""Policies at routers, and whose names are whose."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

import onceway
from chaos.live.ports import free_port
from onceway.access.users import User, Users, load_users, store_users, with_password
from onceway.errors import LinkRefused
from tests.guarded import PASSWORD, Guarded

MALLORYS = "builder"


@pytest.fixture
def guarded(tmp_path: Path) -> Guarded:
    guarded = Guarded(tmp_path)
    users = load_users(guarded.users)
    everyone = {**users.by_name, "mallory": User(with_password(MALLORYS), ("guests",))}
    store_users(guarded.users, Users(everyone, users.secret))
    document = yaml.safe_load(guarded.network.topology_path.read_text())
    document["policies"] = [
        {"groups": ["ops"], "send": ["*"], "receive": ["*"]},
        {"groups": ["guests"], "send": ["guests/*"], "receive": ["orders", "box/${user}"]},
    ]
    for router in document["routers"].values():
        router["wss"] = free_port()
        guarded.url.append(f"wss://127.0.0.1:{router['wss']}")
    guarded.network.topology_path.write_text(yaml.safe_dump(document, sort_keys=False))
    return guarded


def connect(guarded: Guarded, number: int, user: str, password: str) -> onceway.Connection:
    """number: 0 and 1 are routers a and b, 2 and 3 the same with a WebSocket."""
    return onceway.connect(
        guarded.url[number],
        container="c",
        tls=guarded.tls(),
        credentials=onceway.Credentials(user, password),
        connect_timeout_s=10.0,
    )


def test_nobody_takes_what_is_another_users_by_its_name(guarded: Guarded) -> None:
    async def story() -> None:
        async with connect(guarded, 0, "alice", PASSWORD) as alice, connect(guarded, 3, "mallory", MALLORYS) as mallory:
            hers = await alice.subscriber("orders", name="s")
            publisher = await alice.publisher("orders", name="p")
            theirs = await mallory.subscriber("orders", name="s")
            sent = await publisher.put(b"one order")
            for subscriber in (hers, theirs):
                delivery = await subscriber.receive()
                assert delivery.body == b"one order"
                await delivery.accept()
            await sent
            await theirs.close()
            sent = await publisher.put(b"another")
            delivery = await hers.receive()
            assert delivery.body == b"another"
            await delivery.accept()
            await sent

    guarded.play(story)


@pytest.mark.parametrize("listener", [0, 2], ids=["amqps", "wss"])
def test_what_no_entry_allows_is_refused_and_a_reload_takes_rights_away(guarded: Guarded, listener: int) -> None:
    async def story() -> None:
        async with connect(guarded, listener, "mallory", MALLORYS) as mallory:
            with pytest.raises(LinkRefused, match="user 'mallory' may not send to 'orders': no policy allows it"):
                await mallory.publisher("orders")
            with pytest.raises(LinkRefused, match="may not receive from 'box/alice'"):
                await mallory.subscriber("box/alice")
            subscriber = await mallory.subscriber("orders")
            await mallory.subscriber("box/mallory")
            users = load_users(guarded.users)
            fewer = {**users.by_name, "mallory": User(with_password(MALLORYS))}
            store_users(guarded.users, Users(fewer, users.secret))
            assert guarded.reload() == ""
            with pytest.raises(LinkRefused, match="may not receive from 'orders'"):
                await subscriber.receive()
            async with connect(guarded, 0, "alice", PASSWORD) as alice:
                assert (await alice.publisher("orders")).guarantee == "exactly-once"
        log = guarded.log()
        assert "link_refused" in log
        assert "amqp:unauthorized-access" in log

    guarded.play(story)
