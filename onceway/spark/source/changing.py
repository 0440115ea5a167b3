"""Another number of partitions for a log that has rows (`changePartitions`)."""

from __future__ import annotations

import asyncio
import contextlib

from onceway.base import waits
from onceway.client.connection import Connection
from onceway.spark.errors import SparkSourceError
from onceway.spark.source.receiving import LEAVE_WITHIN_S, Ingest, all_of
from onceway.spark.wal import Step


class Change(Ingest):
    """Drains the old partitions and ends their subscriptions.

    The new subscriptions are there first and accept nothing.  So what is published from then on reaches both, and
    publishers come to stand; what the old ones have appended by then, the new ones leave out (`Wal.repeats`).  A
    successor takes the change before it receives, and begins again with what the manifest says then: where this says
    that the old partitions are drained, nobody appends to them any more.
    """

    async def run(self) -> None:
        """Never returns."""
        await super().run()
        if self._receiving:
            self._wal = self._wal.change_to(Step.DRAINED)
        if self._wal.in_change():
            await self._end()
            self._wal = self._wal.change_to(Step.ENDED)
        self._tell({"changed": True})
        await waits.STOP(asyncio.Event()).wait()

    async def _work(self, connection: Connection) -> None:
        self._wal = self._wal.take_change()  # the slots' locks and leases are ours; nothing is fenced off yet
        self._receiving = self._wal.in_change(Step.DRAINING)
        if not self._receiving:
            return
        for slot in self._slots:
            if slot not in self._receiving:
                await self._subscribe(connection, slot, credit=1)
                self._journal.watches[slot].misses_nothing()  # also if it is created again: the old ones are there
        with contextlib.suppress(_Drained):
            await all_of(self._drained(), *(self._receive(connection, slot) for slot in self._receiving))

    async def _drained(self) -> None:
        """Raises _Drained."""
        await waits.INGEST_UP(self._up).wait()
        try:
            async with waits.INGEST_DRAIN(asyncio.timeout(self._config["drain_timeout_s"])):
                await all_of(*(receiver.drain() for receiver in self._receivers.values()))
        except TimeoutError:
            raise SparkSourceError(
                f"more comes than can be drained within {self._config['drain_timeout_s']:g} s: the number of "
                "partitions stays; start the query again with a longer drainTimeout"
            ) from None
        raise _Drained

    async def _end(self) -> None:
        """Without the journal: what comes to them after the drain is of no interest to the log."""
        connection = await self._connect(None)
        try:
            for slot in self._wal.in_change():
                await (await self._subscribe(connection, slot, credit=1, only_new=False)).close()
        finally:
            await connection.close(timeout_s=LEAVE_WITHIN_S)


class _Drained(Exception):
    """The old partitions have nothing more."""
