"""Policies at routers, and whose names are whose."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
import yaml

import onceway
from chaos.live.ports import free_port
from onceway.access.users import User, Users, load_users, store_users, with_password
from onceway.errors import LinkRefused
from tests.guarded import PASSWORD, Guarded
from tests.serving import exchange, until

MALLORYS = "builder"
AWAY = ("mallory|away", "away")


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
            await exchange(publisher, hers, b"another")

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


@pytest.mark.parametrize("how", ["user removed", "right taken away"])
def test_nobody_waits_for_what_a_user_had_subscribed_to_whose_rights_are_gone(guarded: Guarded, how: str) -> None:
    """He has chosen how long others wait for him; the reload ends that. Who comes back is told that he is
    broken."""

    def subscriptions() -> list[tuple[str, str]]:
        cores = [served.server.router.core for served in guarded.routers.values()]
        addresses = [core.addresses[name] for core in cores for name in ("orders", "else") if name in core.addresses]
        return sorted({name for address in addresses for name in address.subscriptions.entries})

    async def story() -> None:
        password = guarded.users.parent / "password"
        password.write_text(MALLORYS)
        who = ["--ca", guarded.pki.ca, "--user", "mallory", "--password-file", password]
        command = ["-m", "onceway", "subscribe", "orders", "--url", guarded.url[0], "--name", "away", *who]
        away = await asyncio.create_subprocess_exec(sys.executable, *command)
        await until(lambda: subscriptions() == [AWAY], "the subscription")
        away.kill()
        await away.wait()
        async with connect(guarded, 1, "alice", PASSWORD) as alice, connect(guarded, 1, "mallory", MALLORYS) as here:
            await here.subscriber("orders", name="here")
            await alice.subscriber("else", name="hers")
            assert subscriptions() == [("alice|c", "hers"), AWAY, ("mallory|c", "here")]
            users = load_users(guarded.users)
            if how == "user removed":
                fewer = {name: user for name, user in users.by_name.items() if name != "mallory"}
                store_users(guarded.users, Users(fewer, users.secret))
            else:
                rights = guarded.network.topology_path.read_text()
                guarded.network.topology_path.write_text(rights.replace("- orders", "- prices"))
            assert guarded.reload() == ""
            await until(lambda: subscriptions() == [("alice|c", "hers")], "the subscriptions to be dropped")
            own, publisher = await alice.subscriber("orders", name="own"), await alice.publisher("orders")
            sent = await publisher.put(b"nobody is waited for")
            await (await own.receive()).accept()
            await asyncio.wait_for(sent, 10.0)
            for served in guarded.routers.values():
                former = served.server.router.core.memory.former.named("orders", AWAY, None)
                assert former.broken, "its client would not be told when it is back"
        assert "subscription_dropped" in guarded.log() + guarded.log("b")

    guarded.play(story)
