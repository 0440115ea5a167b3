"""A subscriber's journal that is durable when a test says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onceway.client.journal import MemoryJournal, SubscriberJournal, SubscriberRecord


class StoredJournal(MemoryJournal):
    """An application's own: durable only when the test says so, and with things from an earlier process."""

    def __init__(self, record: SubscriberRecord) -> None:
        super().__init__()
        self.part = StoredSubscriber(record)
        self.number = 0

    def subscriber(self, address: str, name: str) -> SubscriberJournal:
        return self.part

    def sync(self) -> int:
        self.number += 1
        return self.number

    def catch_up(self) -> None:
        self.durable = self.number


class StoredSubscriber:
    def __init__(self, record: SubscriberRecord) -> None:
        self.record = record
        self.accepts: list[tuple[list[bytes], bytes]] = []
        self.settles: list[bytes] = []
        self.meanwhile: dict[bytes, bytes | None] = {}

    def attach(self, epoch: int, born: int) -> None: ...

    def attached(self, epoch: int) -> Mapping[bytes, bytes | None]:
        return self.meanwhile

    def contact(self, wall_us: int, timeout_s: float) -> None: ...

    def accept(self, tags: Sequence[bytes], outcome: bytes) -> None:
        self.accepts.append((list(tags), outcome))

    def settle(self, tags: Sequence[bytes]) -> None:
        self.settles += tags

    def close(self) -> None: ...


def stored(rig_wall_us: int = 1_000_000, **fields: object) -> StoredJournal:
    record = SubscriberRecord(epoch=900_000, born=800_000, contact_us=rig_wall_us, timeout_s=60.0)
    for name, value in fields.items():
        setattr(record, name, value)
    return StoredJournal(record)
