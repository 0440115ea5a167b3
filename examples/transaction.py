"""Enter 1000 messages into a database, each exactly once: what one does, and that it was accepted, are one commit.

    python examples/transaction.py [URL [DATABASE]]

The database is SQLite here; PostgreSQL and SQLAlchemy do as well. This program may be killed at any point and started
again. `examples/outbox.py` is the other side; start this one first.
"""

import asyncio
import sqlite3
import sys
import tempfile
from pathlib import Path

import onceway
from onceway.client.database_journal import TABLE

URL = sys.argv[1] if len(sys.argv) > 1 else "amqp://127.0.0.1:5672"
DATABASE = sys.argv[2] if len(sys.argv) > 2 else Path(tempfile.gettempdir(), "onceway-stock.db")
TOTAL = 1000


def connect() -> sqlite3.Connection:
    return sqlite3.connect(DATABASE, timeout=60)


async def main() -> None:
    database = connect()
    tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master")]
    for name, statement in {"onceway": TABLE["sqlite"], "reserved": "CREATE TABLE reserved (number INTEGER)"}.items():
        if name not in tables:
            database.execute(statement)
    async with onceway.connect(URL, container="stock", journal=onceway.DatabaseJournal(connect)) as connection:
        subscriber = await connection.subscriber("new-orders")
        (done,) = database.execute("SELECT count(*) FROM reserved").fetchone()
        print(f"begins with {done}", flush=True)
        while done < TOTAL:
            delivery = await subscriber.receive()
            with subscriber.transaction(database) as transaction:
                database.execute("INSERT INTO reserved VALUES (?)", [int(delivery.body)])
                transaction.accept(delivery)
            done += 1
    print(f"{TOTAL} are reserved")


asyncio.run(main())
