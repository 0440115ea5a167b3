"""The journal in the application's database: what a message did, and that it was accepted, are one commit."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy
import sqlalchemy.orm

import onceway
from onceway.client.database_journal import TABLE, Database
from tests.edges.store.postgres import Server
from tests.live import LiveNetwork, wait_until
from tests.running import ROOT, Program

ORDERS = "CREATE TABLE orders (number INTEGER PRIMARY KEY, via TEXT)"


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveNetwork]:
    with LiveNetwork(tmp_path_factory.mktemp("network"), ["a"]) as network:
        yield network.start()


@pytest.fixture(params=["sqlite3", "psycopg", "sqlalchemy-sqlite", "sqlalchemy-postgresql", "sqlalchemy-session"])
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Any]:
    """Opens a connection to a database with the journal's table and one of orders."""
    kind = request.param
    if kind in ("psycopg", "sqlalchemy-postgresql"):
        server: Server = request.getfixturevalue("postgres")
        name = f"shop_{abs(hash(request.node.name))}"
        server.execute(f"CREATE DATABASE {name}")
        url = server.url(name)
    else:
        url = f"sqlite:///{tmp_path / 'shop.db'}"
    if kind == "sqlite3":
        opened: Callable[[], Any] = lambda: sqlite3.connect(tmp_path / "shop.db")  # noqa: E731
    elif kind == "psycopg":
        opened = lambda: psycopg.connect(url)  # noqa: E731
    else:
        engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
        opened = (lambda: sqlalchemy.orm.Session(engine)) if kind == "sqlalchemy-session" else engine.connect
    database = Database(opened())
    database.run(TABLE[database.kind], ())
    database.run(ORDERS, ())
    database.commit()
    database.close()
    return opened


def rows(connect: Callable[[], Any], query: str) -> list[tuple[Any, ...]]:
    database = Database(connect())
    try:
        return [tuple(row) for row in database.run(query, ()).fetchall()]
    finally:
        database.close()


async def publish(network: LiveNetwork, address: str, numbers: range) -> None:
    async with onceway.connect(network.urls()) as connection:
        publisher = await connection.publisher(address)
        for number in numbers:
            await publisher.put(str(number))


async def test_what_a_transaction_commits_is_accepted_and_what_it_rolls_back_comes_again(
    network: LiveNetwork, connect: Callable[[], Any], request: pytest.FixtureRequest
) -> None:
    address = request.node.name.replace("[", ".").replace("]", "")
    insert = "INSERT INTO orders VALUES (?, 'orders')"
    application = connect()
    database = Database(application)
    async with onceway.connect(network.urls(), container="shop", journal=onceway.DatabaseJournal(connect)) as first:
        subscriber = await first.subscriber(address)
        publishing = asyncio.create_task(publish(network, address, range(4)))
        one, two = await subscriber.receive(), await subscriber.receive()
        with subscriber.transaction(application) as transaction:
            database.run(insert, (int(one.body),))
            transaction.accept(one)
        with pytest.raises(ZeroDivisionError), subscriber.transaction(application) as transaction:
            database.run(insert, (int(two.body),))
            transaction.accept(two)
            _ = 1 / 0
        assert not two.decided
    assert rows(connect, "SELECT number FROM orders") == [(0,)]
    async with onceway.connect(network.urls(), container="shop", journal=onceway.DatabaseJournal(connect)) as second:
        subscriber = await second.subscriber(address)
        batch = await anext(subscriber.batches(max_messages=3, max_wait=10.0))
        assert batch.bodies == ["1", "2", "3"]
        with subscriber.transaction(application) as transaction:
            database.run(insert, *((int(body),) for body in batch.bodies))
            transaction.accept(batch)
        await publishing
        await subscriber.close()
    database.close()
    assert rows(connect, "SELECT number FROM orders ORDER BY number") == [(0,), (1,), (2,), (3,)]
    assert rows(connect, "SELECT tag FROM onceway WHERE number = 0 AND tag <> ''") == []


async def test_a_process_whose_link_another_one_has_opened_commits_nothing(
    network: LiveNetwork, connect: Callable[[], Any], request: pytest.FixtureRequest
) -> None:
    address = request.node.name.replace("[", ".").replace("]", "")
    journals = [onceway.DatabaseJournal(connect) for _ in range(2)]
    application = connect()
    database = Database(application)
    async with onceway.connect(network.urls(), container="shop", journal=journals[0]) as first:
        subscriber = await first.subscriber(address)
        publishing = asyncio.create_task(publish(network, address, range(1)))
        delivery = await subscriber.receive()
        async with onceway.connect(network.urls(), container="shop", journal=journals[1]) as second:
            other = await second.subscriber(address)
            with pytest.raises(onceway.JournalLocked), subscriber.transaction(application) as transaction:
                database.run("INSERT INTO orders VALUES (0, 'first')", ())
                transaction.accept(delivery)
            again = await other.receive()
            with other.transaction(application) as transaction:
                database.run("INSERT INTO orders VALUES (0, 'second')", ())
                transaction.accept(again)
            await publishing
    database.close()
    assert rows(connect, "SELECT number, via FROM orders") == [(0, "second")]


async def test_an_outbox_sends_what_was_committed_once_and_in_order(
    network: LiveNetwork, connect: Callable[[], Any], request: pytest.FixtureRequest
) -> None:
    address = request.node.name.replace("[", ".").replace("]", "")
    application = connect()
    database = Database(application)
    for number in range(3):
        onceway.put_in_outbox(application, "shop", address, f"before {number}")
        database.commit()
    onceway.put_in_outbox(application, "shop", address, "rolled back")
    database.rollback()
    async with (
        onceway.connect(network.urls()) as elsewhere,
        onceway.connect(network.urls(), container="shop", journal=onceway.DatabaseJournal(connect)) as connection,
    ):
        subscriber = await elsewhere.subscriber(address)
        async with connection.outbox(address) as outbox:
            outbox.put(application, "now")
            database.commit()
            got = []
            while len(got) < 4:
                delivery = await subscriber.receive()
                got.append(delivery.body)
                await delivery.accept()
            await outbox.flush()
    assert got == ["before 0", "before 1", "before 2", "now"]
    database.close()
    assert rows(connect, "SELECT body FROM onceway WHERE tag IS NULL") == []


@pytest.mark.parametrize("kills", [4, pytest.param(200, marks=pytest.mark.long)])
def test_two_databases_agree_however_often_both_programs_and_the_router_are_killed(tmp_path: Path, kills: int) -> None:
    """examples/outbox.py and examples/transaction.py, each killed at any point and started again."""
    rng = random.Random(kills)
    places = {"transaction": tmp_path / "stock.db", "outbox": tmp_path / "orders.db"}
    last = {"transaction": "1000 are reserved", "outbox": "all 1000 are accepted"}
    with LiveNetwork(tmp_path / "network", ["a", "b"], [("a", "b")]) as network, ExitStack() as stack:
        network.start()

        def start(name: str) -> Program:
            program = stack.enter_context(
                Program([sys.executable, str(ROOT / "examples" / f"{name}.py"), network.urls(), str(places[name])])
            )
            assert program.line().startswith("begins with ")
            return program

        running = {name: start(name) for name in places}
        for number in range(kills):
            victim = rng.choice(sorted(running))
            program, enough = running[victim], rows_of(places[victim]) + rng.randrange(1000 // kills)

            def goes_on(victim: str = victim, program: Program = program, enough: int = enough) -> bool:
                return rows_of(places[victim]) > enough or program.process.poll() is not None

            wait_until(goes_on, "it goes on")
            program.process.kill()
            if number % 3 == 0:
                router = rng.choice("ab")
                network.kill(router)
                network.start(router, fresh=False)
            running[victim] = start(victim)
        for name, program in running.items():
            assert program.rest() == [last[name]]
    with sqlite3.connect(places["outbox"]) as orders, sqlite3.connect(places["transaction"]) as stock:
        assert orders.execute("SELECT number FROM orders ORDER BY rowid").fetchall() == [(n,) for n in range(1000)]
        assert stock.execute("SELECT number FROM reserved ORDER BY rowid").fetchall() == [(n,) for n in range(1000)]
        assert orders.execute("SELECT count(*) FROM onceway WHERE tag IS NULL").fetchone() == (0,)


def rows_of(place: Path) -> int:
    table = "orders" if place.stem == "orders" else "reserved"
    with closing(sqlite3.connect(place, timeout=60)) as database:
        (count,) = database.execute(f"SELECT count(*) FROM {table}").fetchone()
        return int(count)


async def test_a_commit_whose_answer_is_lost_is_not_made_again(network: LiveNetwork, tmp_path: Path) -> None:
    class Lossy(sqlite3.Connection):
        def commit(self) -> None:
            super().commit()
            raise sqlite3.OperationalError("the answer is lost")

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(tmp_path / "shop.db")

    with closing(connect()) as database:
        database.execute(TABLE["sqlite"])
        database.execute(ORDERS)
    async with onceway.connect(
        network.urls(), container="shop", journal=onceway.DatabaseJournal(connect)
    ) as connection:
        subscriber = await connection.subscriber("lossy")
        publishing = asyncio.create_task(publish(network, "lossy", range(1)))
        delivery = await subscriber.receive()
        lossy, database = sqlite3.connect(tmp_path / "shop.db", factory=Lossy), connect()
        for each, error in ((lossy, sqlite3.OperationalError), (database, sqlite3.IntegrityError)):
            with pytest.raises(error), subscriber.transaction(each) as transaction:
                each.execute("INSERT INTO orders (via) VALUES ('once')")
                transaction.accept(delivery)
        await delivery.accept()
        await publishing
        lossy.close()
        database.close()
    assert rows(connect, "SELECT via FROM orders") == [("once",)]


async def test_what_cannot_be_in_one_commit_is_refused(network: LiveNetwork, tmp_path: Path) -> None:
    def connect() -> sqlite3.Connection:
        return sqlite3.connect(tmp_path / "shop.db")

    by_itself, elsewhere = sqlite3.connect(tmp_path / "shop.db", isolation_level=None), sqlite3.connect(":memory:")
    for database in (by_itself, elsewhere):
        database.execute(TABLE["sqlite"])
    with pytest.raises(onceway.UsageError, match="found by its container"):
        await onceway.connect(network.urls(), journal=onceway.DatabaseJournal(connect))
    async with onceway.connect(network.urls()) as plain:
        subscriber = await plain.subscriber("refused")
        with pytest.raises(onceway.UsageError, match="needs the journal of its database"):
            subscriber.transaction(by_itself)
        with pytest.raises(onceway.UsageError, match="needs the journal of its database"):
            plain.outbox("refused")
    async with onceway.connect(
        network.urls(), container="shop", journal=onceway.DatabaseJournal(connect)
    ) as connection:
        subscriber = await connection.subscriber("refused")
        publishing = asyncio.create_task(publish(network, "refused", range(1)))
        delivery = await subscriber.receive()
        with pytest.raises(onceway.UsageError, match="not a connection of sqlite3, psycopg or SQLAlchemy"):
            subscriber.transaction(object())
        for database, why in ((by_itself, "autocommit"), (elsewhere, "another database")):
            with pytest.raises(onceway.UsageError, match=why), subscriber.transaction(database) as transaction:
                transaction.accept(delivery)
            assert not delivery.decided
        with pytest.raises(onceway.UsageError, match="autocommit"):
            onceway.put_in_outbox(by_itself, "shop", "refused", "x")
        await delivery.accept()
        await publishing
    by_itself.close()
    elsewhere.close()


def test_the_documentation_has_the_statements() -> None:
    text = (ROOT / "docs" / "database.md").read_text()
    for statement in TABLE.values():
        assert statement in text
