"""Leases: who of several processes on one store does something, known by a name.

A holder renews its lease while it lives. Others watch the lease's value: when it has not changed for the lease's time
on their own clock, the holder is taken for dead. No clocks of two hosts are compared. Whoever acquires the lease raises
its epoch: a commit that expects the lease's value (`fence`) changes nothing once another has taken the lease, whatever
the old holder believes. That alone makes it safe; the time only says how soon another takes over.

    lease = Lease(store, "bus/senders/3", "edge-a")
    if await lease.acquire():
        batch = Batch()
        lease.fence(batch)
        batch.put(...)
        await store.commit(batch)      # Conflict: another has the lease
"""

from __future__ import annotations

import asyncio
import secrets
import struct
import time
from collections.abc import Callable
from typing import Final

from edges.store import Batch, Conflict, Store, StoreError

TTL_S: Final = 5.0
_VALUE: Final = struct.Struct(">QQ")  # epoch, renewals; then the holder's name and its life


class LeaseLost(StoreError):
    """Another process has taken the lease."""


class Lease:
    """One process's view of a lease.

    Args:
        store: Where it is.
        name: Its key, below `lease/`.
        holder: Who this is, for people that look.
        ttl_s: A lease that was not renewed for so long is taken over. The same for all that want it.
        clock: A clock of this process that only goes forward, in seconds.

    Attributes:
        epoch: Raised each time that the lease is acquired; 0 while this process has never had it.
        held: This process acquired the lease, and has not seen that it lost it.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        holder: str,
        ttl_s: float = TTL_S,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.key = f"lease/{name}"
        self.ttl_s = ttl_s
        self.epoch = 0
        self.held = False
        self._store = store
        self._clock = clock
        self._holder = f"{holder} {secrets.token_hex(8)}".encode()  # a process that was started again is another one
        self._turn = asyncio.Lock()
        self._value: bytes | None = None  # as this process wrote it
        self._seen: bytes | None = None  # another's, first seen at
        self._seen_at = 0.0

    async def acquire(self) -> bool:
        """Takes the lease if it is free, or if its holder was not seen to renew it for `ttl_s`. To be called again and
        again, a few times within `ttl_s`; True at once if this process has it.

        Raises:
            StoreError: The store cannot be asked.
        """
        async with self._turn:
            if self.held:
                return True
            seen = await self._store.get(self.key)
            now = self._clock()
            epoch = 1
            if seen is not None:
                held_epoch, _ = _VALUE.unpack_from(seen)
                epoch = held_epoch + 1
                if seen != self._seen:
                    self._seen, self._seen_at = seen, now
                if len(seen) > _VALUE.size and now - self._seen_at < self.ttl_s:
                    return False
            try:
                await self._write(seen, _VALUE.pack(epoch, 0) + self._holder)
            except Conflict:
                return False  # another was faster
            self.epoch = epoch
            self.held = True
            return True

    async def renew(self) -> None:
        """To be called several times within `ttl_s` by the holder.

        Raises:
            LeaseLost: This process does not have the lease.
            StoreError: The store cannot be asked; the lease may still be held.
        """
        async with self._turn:
            self._check()
            assert self._value is not None
            epoch, renewals = _VALUE.unpack_from(self._value)
            await self._change(_VALUE.pack(epoch, renewals + 1) + self._holder)

    async def release(self) -> None:
        """Lets others acquire the lease at once. Nothing happens if this process does not have it.

        Raises:
            StoreError: The store cannot be asked; others take the lease when its time has passed.
        """
        async with self._turn:
            if self.held:
                try:
                    await self._change(_VALUE.pack(self.epoch, 0))
                except LeaseLost:
                    pass  # which is what was wanted
                self.held = False

    def fence(self, batch: Batch) -> None:
        """The batch changes nothing unless this process has the lease when it is written.

        Renewals change what is expected, so the fence is a key of its own, which only `acquire` and `release` write.

        Raises:
            LeaseLost: This process knows already that it does not have the lease.
        """
        self._check()
        batch.expect(f"{self.key}/epoch", self._fence())

    def _fence(self) -> bytes:
        return _VALUE.pack(self.epoch, 0) + self._holder

    def _check(self) -> None:
        if not self.held:
            raise LeaseLost(f"{self.key}: another process has the lease, or it was not acquired")

    async def _change(self, value: bytes) -> None:
        try:
            await self._write(self._value, value)
        except Conflict:
            self.held = False
            raise LeaseLost(f"{self.key}: another process has taken the lease") from None

    async def _write(self, expected: bytes | None, value: bytes) -> None:
        batch = Batch()
        batch.expect(self.key, expected)
        batch.put(self.key, value)
        _, renewals = _VALUE.unpack_from(value)
        if renewals == 0:
            batch.put(f"{self.key}/epoch", value)
        await self._store.commit(batch)
        self._value = value
