"""`onceway admin` against real routers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import onceway as client
from onceway.client.reports import LinkAttached, PublicationsUndecided, RouterLost, SubscriptionGap
from tests.cli.conftest import onceway
from tests.live import LiveNetwork, wait_until

BOUND_S = 120.0
LEDGER = [{"match": "ledger", "subscriptions": ["billing"]}]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveNetwork]:
    with LiveNetwork(tmp_path_factory.mktemp("admin"), ["a", "b"], [("a", "b")], LEDGER) as network:
        yield network.start()


def admin(network: LiveNetwork, *arguments: object, stdin: bytes = b"") -> Any:
    env = {"ONCEWAY_STATE_DIR": str(network.directory / "state")}
    return onceway("admin", *arguments, stdin=stdin, env=env)


async def test_a_dropped_subscription_is_waited_for_no_more_and_is_told_so(pair: LiveNetwork, tmp_path: Path) -> None:
    journal = tmp_path / "billing.journal"
    drop = ("subscription", "drop", "orders", "billing", "invoices")

    async def ask(*arguments: object, stdin: bytes = b"") -> Any:
        return await asyncio.to_thread(admin, pair, *arguments, stdin=stdin)

    async with client.connect(pair.urls("b"), container="billing", journal=journal) as away:
        await away.subscriber("orders", name="invoices")
        elsewhere = await ask(*drop, "--yes", "--router", "a")
        assert elsewhere.returncode == 1
        assert "billing/invoices is attached at router b; drop it on the host of that router" in elsewhere.stderr
    async with client.connect(pair.urls("a"), container="shop") as connection:
        other = await connection.subscriber("orders", name="other")
        publisher = await connection.publisher("orders")
        publications = await publisher.put_many([b"1", b"2"])
        await asyncio.to_thread(wait_until, lambda: pair["a"].status()["records"]["owed"] == 2, "owed at a")
        for arguments, stdin in ((drop, b"n\n"), (drop, b"")):
            kept = await ask(*arguments, stdin=stdin)
            assert kept.returncode == 1
            assert "The routers of this host owe 2 messages to it, which it will never get." in kept.stderr
        missing = await ask("subscription", "drop", "orders", "billing", "invoice")
        assert missing.returncode == 2
        assert missing.stderr == 'orders: no subscription "billing/invoice"; did you mean "billing/invoices"?\n'
        done = await ask(*drop, "--yes", "--json")
        assert (done.returncode, json.loads(done.stdout)["owed"]) == (0, 2), done.stderr
        assert [one["name"] for one in pair["b"].status()["addresses"]["orders"]["subscriptions"]] == ["other"]
        async for delivery in other:
            await delivery.accept()
            if delivery.body == b"2":
                break
        await publications
        gaps: list[SubscriptionGap] = []
        async with client.connect(pair.urls("b"), container="billing", journal=journal) as back:
            await back.subscriber("orders", name="invoices", on_gap=gaps.append)
            await asyncio.to_thread(wait_until, lambda: gaps, "the gap to be told")
        assert "onceway:subscription-broken" in gaps[0].reason


def test_an_attached_subscription_that_is_dropped_is_told_so_and_begins_anew(pair: LiveNetwork) -> None:
    drop = ("subscription", "drop", "parts", "billing", "invoices")
    gaps: list[SubscriptionGap] = []

    async def scene() -> None:
        async with client.connect(pair.urls("b"), container="billing") as connection:
            subscriber = await connection.subscriber("parts", name="invoices", on_gap=gaps.append)
            kept = await asyncio.to_thread(admin, pair, *drop, stdin=b"n\n")
            assert kept.returncode == 1
            assert "is attached at router b; its client is told, and may subscribe again at once." in kept.stderr
            assert not gaps
            done = await asyncio.to_thread(admin, pair, *drop, stdin=b"y\n")
            assert (done.returncode, done.stdout) == (0, "parts: subscription billing/invoices dropped\n"), done.stderr
            await asyncio.to_thread(wait_until, lambda: gaps, "the gap to be told")
            async with client.connect(pair.urls("a"), container="shop") as shop:
                publisher = await shop.publisher("parts")
                publication = await publisher.put(b"x")
                async for delivery in subscriber:
                    await delivery.accept()
                    break
                await publication

    asyncio.run(asyncio.wait_for(scene(), BOUND_S))
    assert "the operator has dropped this subscription" in gaps[0].reason


async def test_a_forgotten_publisher_is_waited_for_no_more_and_is_told_so(pair: LiveNetwork, tmp_path: Path) -> None:
    journal = tmp_path / "shop.journal"
    forget = ("publisher", "forget", "sales", "shop", "till")

    def in_doubt(router: str) -> Any:
        return pair[router].status()["addresses"]["sales"]["oldest_in_doubt_s"]

    async def ask(*arguments: object, stdin: bytes = b"") -> Any:
        return await asyncio.to_thread(admin, pair, *arguments, stdin=stdin)

    def undecided(reports: list[Any]) -> list[PublicationsUndecided]:
        return [each for each in reports if isinstance(each, PublicationsUndecided)]

    async with client.connect(pair.urls("b"), container="reader") as connection:
        quick = await connection.subscriber("sales", name="quick")
        slow = await connection.subscriber("sales", name="slow")
        async with client.connect(pair.urls("a"), container="shop", journal=journal) as shop:
            publisher = await shop.publisher("sales", name="till")
            await publisher.put(b"1")
            for subscriber in (quick, slow):
                delivery = await anext(aiter(subscriber))
                if subscriber is quick:
                    await delivery.accept()
            attached = await ask(*forget, "--yes")
            assert attached.returncode == 1
            assert "is attached at router a; stop its client, or close its link first: onceway admin link close" in (
                attached.stderr
            )
            await shop.close(timeout_s=0.0)  # as if it had died: b"1" is undecided
        missing = await ask("publisher", "forget", "sales", "shop", "tilt")
        assert missing.returncode == 2
        assert missing.stderr.startswith('sales: no publisher "shop/tilt"')
        kept = await ask(*forget, stdin=b"n\n")
        assert kept.returncode == 1
        assert "hold 2 of its deliveries: 1 that they have accepted, which count, and 1 that they have not" in (
            kept.stderr
        )
        done = await ask(*forget, "--yes", "--json", "--router", "a")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["missing"] == []
        await asyncio.to_thread(wait_until, lambda: in_doubt("b") is None, "nothing in doubt")
        told = "an operator has had this publisher forgotten"
        reports: list[Any] = []
        with pytest.raises(client.UndecidedPublications, match=told):
            async with client.connect(
                pair.urls("b"), container="shop", journal=journal, on_report=reports.append
            ) as back:
                await back.publisher("sales", name="till")
                await asyncio.to_thread(wait_until, lambda: undecided(reports), "what is undecided to be told")
        assert [sequence for sequence, _ in undecided(reports)[0].publications] == [0]


def test_a_declared_subscription_is_removed_in_the_file_only(pair: LiveNetwork) -> None:
    done = admin(pair, "subscription", "drop", "ledger", "billing", "billing")
    assert done.returncode == 1
    assert done.stderr == "ledger: subscription billing/billing is declared in the topology file; remove it there\n"


def test_links_and_connections_that_are_closed_come_back(pair: LiveNetwork) -> None:
    async def scene() -> None:
        reports: list[Any] = []

        def seen(kind: type) -> int:
            return sum(isinstance(report, kind) for report in reports)

        async with client.connect(pair.urls("b"), container="web", on_report=reports.append) as connection:
            subscriber = await connection.subscriber("news")
            publisher = await connection.publisher("news")
            for arguments, count in (
                (("link", "close", "news", "web", "news"), 2),
                (("connection", "close", "web"), 1),
            ):
                attached = seen(LinkAttached)
                done = await asyncio.to_thread(admin, pair, *arguments, "--json")
                assert done.returncode == 0, done.stderr
                assert json.loads(done.stdout)["closed"] == {"b": count}
                await asyncio.to_thread(wait_until, lambda n=attached: seen(LinkAttached) == n + 2, "both links")
            assert seen(RouterLost) == 1
            publication = await publisher.put(b"x")
            async for delivery in subscriber:
                await delivery.accept()
                break
            await publication

    asyncio.run(asyncio.wait_for(scene(), BOUND_S))
    done = admin(pair, "connection", "close", "nobody", "--router", "a")
    assert (done.returncode, done.stderr) == (2, 'no connection of container "nobody"\n')
    done = admin(pair, "link", "close", "news", "web", "x")
    assert (done.returncode, done.stderr) == (2, 'news: no link "web/x"\n')
