"""Take 1000 orders into a database, and publish each exactly once: an order and its message are one commit.

    python examples/outbox.py [URL [DATABASE]]

The database is SQLite here; PostgreSQL and SQLAlchemy do as well. This program may be killed at any point and started
again. `examples/transaction.py` is the other side.
"""

import asyncio
import sqlite3
import sys
import tempfile
from pathlib import Path

import onceway
from onceway.client.database_journal import TABLE

URL = sys.argv[1] if len(sys.argv) > 1 else "amqp://127.0.0.1:5672"
DATABASE = sys.argv[2] if len(sys.argv) > 2 else Path(tempfile.gettempdir(), "onceway-orders.db")
TOTAL = 1000


def connect() -> sqlite3.Connection:
    return sqlite3.connect(DATABASE, timeout=60)


async def main() -> None:
    database = connect()
    tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master")]
    for name, statement in {"onceway": TABLE["sqlite"], "orders": "CREATE TABLE orders (number INTEGER)"}.items():
        if name not in tables:
            database.execute(statement)
    async with (
        onceway.connect(URL, container="shop", journal=onceway.DatabaseJournal(connect)) as connection,
        connection.outbox("new-orders") as outbox,
    ):
        (taken,) = database.execute("SELECT count(*) FROM orders").fetchone()
        print(f"begins with order {taken}", flush=True)
        for number in range(taken, TOTAL):
            database.execute("INSERT INTO orders VALUES (?)", [number])
            outbox.put(database, str(number))
            database.commit()
            await asyncio.sleep(0.002)  # as if customers took their time
        await outbox.flush()
    print(f"all {TOTAL} are accepted")


asyncio.run(main())
