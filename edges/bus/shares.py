"""Which of several edges on one database does what: roles, each held by one edge.

A role is to speak to the network for the bus, or to call back the subscribers of one slot. It is a row of the store
that names its edge. Each edge writes a beat all the time. Whose beat the others do not see change for TTL_S, on their
own clocks, is taken for dead, and they share its roles. That only says when: what an edge writes in a role expects the
role's row, so it changes nothing once another has the role. An edge whose own beat is late begins no call-back.
"""

from __future__ import annotations

import secrets
import time
import zlib
from collections.abc import Callable
from typing import Final

from edges.store import Batch, Conflict, Store

ROLES: Final = "bus/role/"
BEATS: Final = "bus/edge/"
NETWORK: Final = ROLES + "network"
SLOTS: Final = 32
TTL_S: Final = 3.0
TICK_S: Final = 0.5
FORGET_S: Final = 3600.0  # after that the beat of a dead edge is removed
ATTACHED: Final = b" attached"  # ends the row of NETWORK once the network knows the subscription


def slot_of(identity: str) -> str:
    return f"{ROLES}{zlib.crc32(identity.encode()) % SLOTS:02d}"


class Shares:
    """One edge's roles; `tick` is to be called every TICK_S.

    Args:
        store: A database that all edges of the bus use.
        name: Of this edge; no other living one has it.

    Attributes:
        held: The roles of this edge.
        taken: Those of them that it has got with the latest tick.
        attached: Some edge that lives is attached to the network: what is published comes to the bus.
    """

    def __init__(self, store: Store, name: str) -> None:
        self.held: set[str] = set()
        self.taken: set[str] = set()
        self.attached = False
        self._store = store
        self._name = name
        self._me = f"{name} {secrets.token_hex(8)}"
        self._beats = 0
        self._beat_at = -TTL_S
        self._seen: dict[str, tuple[bytes, float]] = {}  # beats of others, and when they were new
        self._heard: set[str] = set()  # whose beat has changed

    def on_time(self) -> bool:
        """Nobody can have taken a role from this edge."""
        return time.monotonic() < self._beat_at + TTL_S

    def fence(self, role: str) -> tuple[str, bytes]:
        """What a commit in this role expects."""
        return role, self._me.encode()

    async def tick(self, *, connected: bool, idle: Callable[[str], bool]) -> None:
        """Beats, and takes or gives roles; `held` is then as the store has it.

        Args:
            connected: This edge can speak to the network.
            idle: Whether nothing is under way in a role, so that it may be given to another.
        """
        now = time.monotonic()
        self._beats += 1
        batch = Batch()
        batch.put(BEATS + self._me, b"%d" % self._beats)
        await self._store.commit(batch)
        late, self._beat_at = now - self._beat_at > TTL_S / 2, now
        living = await self._living(time.monotonic(), late=late)
        rows = dict(await self._store.scan(ROLES))
        owners = {role: row.removesuffix(ATTACHED).decode() for role, row in rows.items()}
        held = {role for role, owner in owners.items() if owner == self._me}
        network = rows.get(NETWORK, b"")
        speaks = living & self._heard | ({self._me} if connected else set())
        self.attached = network.endswith(ATTACHED) and owners[NETWORK] in speaks
        roles = [f"{ROLES}{number:02d}" for number in range(SLOTS)]
        free = [role for role in roles if owners.get(role) not in living]
        slots = held - {NETWORK}
        share = -(-SLOTS // len(living))
        take = free[: max(0, share - len(slots))]
        if connected and owners.get(NETWORK) not in living:
            take.append(NETWORK)
        give = [] if free else sorted(slots)[share:]
        if not connected and len(living) > 1 and NETWORK in held:
            give.append(NETWORK)
        taken = {role for role in take if await self._change(role, rows.get(role), self._me.encode())}
        for role in give:
            self.held.discard(role)  # nothing begins from now on
            if idle(role):
                await self._change(role, rows[role], None)
        self.held, self.taken = held - set(give) | taken, taken

    async def say_attached(self) -> None:
        """Conflict if another edge has the role by now."""
        mine = self._me.encode()
        if not await self._change(NETWORK, mine, mine + ATTACHED) and await self._store.get(NETWORK) != mine + ATTACHED:
            raise Conflict(NETWORK)

    async def leave(self) -> None:
        """Gives all roles."""
        for role, row in await self._store.scan(ROLES):
            if row.removesuffix(ATTACHED) == self._me.encode():
                await self._change(role, row, None)
        batch = Batch()
        batch.delete(BEATS + self._me)
        await self._store.commit(batch)

    async def _living(self, now: float, *, late: bool) -> set[str]:
        """Late: this edge has not looked for a while, so that it does not know of the others' silence."""
        living = {self._me}
        batch = Batch()
        seen: dict[str, tuple[bytes, float]] = {}
        for key, value in await self._store.scan(BEATS):
            edge = key.removeprefix(BEATS)
            if edge == self._me:
                continue
            if edge.rpartition(" ")[0] == self._name:
                batch.delete(key)  # this edge, before it was started again
                continue
            known, since = self._seen.get(edge, (value, now))
            if known != value:
                self._heard.add(edge)
            if known != value or late:
                since = now
            seen[edge] = (value, since)
            if now - since < TTL_S:
                living.add(edge)
            elif now - since > FORGET_S:
                batch.delete(key)
        self._seen = seen
        self._heard &= seen.keys()
        if batch.values:
            await self._store.commit(batch)
        return living

    async def _change(self, role: str, before: bytes | None, after: bytes | None) -> bool:
        batch = Batch()
        batch.expect(role, before)
        batch.values[role] = after
        try:
            await self._store.commit(batch)
        except Conflict:
            return False
        return True
