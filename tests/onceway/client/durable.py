"""A journal for simulations: what was synced survives a crash, what was only written does not."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence

from onceway.client.journal import PublisherJournal, PublisherRecord, SubscriberJournal, SubscriberRecord
from onceway.errors import JournalError


class Disk:
    """What is left after a crash."""

    def __init__(self) -> None:
        self.publishers: dict[tuple[str, str], PublisherRecord] = {}
        self.subscribers: dict[tuple[str, str], SubscriberRecord] = {}


class DurableJournal:
    """One life of a client; the next one is made with the same disk."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.durable = 0
        self.failure: JournalError | None = None
        self.pending: list[Callable[[], None]] = []
        self.number = 0

    def open(self, container: str | None, wake: Callable[[], None]) -> str:
        assert container is not None
        return container

    def publisher(self, address: str, name: str) -> PublisherJournal:
        record = self.disk.publishers.setdefault((address, name), PublisherRecord())
        return _Publisher(self, record)

    def subscriber(self, address: str, name: str) -> SubscriberJournal:
        record = self.disk.subscribers.setdefault((address, name), SubscriberRecord())
        return _Subscriber(self, record)

    def sync(self) -> int:
        if self.pending:
            self.number += 1
            number = self.number
            self.pending.append(lambda: self._reached(number))
        return self.number

    def _reached(self, number: int) -> None:
        self.durable = number

    def write(self) -> bool:
        """The disk does one more thing; False if there is nothing left to do."""
        if not self.pending:
            return False
        while self.pending:
            before = self.durable
            self.pending.pop(0)()
            if self.durable != before:
                return True
        return True

    def close(self) -> None:
        while self.write():
            pass


class _Publisher:
    def __init__(self, journal: DurableJournal, stored: PublisherRecord) -> None:
        self.record = copy.deepcopy(stored)
        self._stored = stored
        self._write = journal.pending.append

    def attach(self, epoch: int, incarnation: int) -> None:
        def apply() -> None:
            self._stored.epoch, self._stored.incarnation = epoch, incarnation

        self._write(apply)

    def contact(self, wall_us: int, timeout_s: float) -> None:
        def apply() -> None:
            self._stored.contact_us, self._stored.timeout_s = wall_us, timeout_s

        self._write(apply)

    def publish(self, first: int, payloads: Sequence[bytes]) -> None:
        kept = list(enumerate(payloads, first))

        def apply() -> None:
            self._stored.undecided += kept
            self._stored.sequence = first + len(kept)

        self._write(apply)

    def forget(self, first: int, last: int, outcome: object = None) -> None:
        def apply() -> None:
            self._stored.undecided = [item for item in self._stored.undecided if not first <= item[0] <= last]

        self._write(apply)

    def close(self) -> None:
        raise NotImplementedError("simulated publishers stay")


class _Subscriber:
    def __init__(self, journal: DurableJournal, stored: SubscriberRecord) -> None:
        self.record = copy.deepcopy(stored)
        self._stored = stored
        self._born = stored.born
        self._write = journal.pending.append

    def attach(self, epoch: int, born: int) -> None:
        self._born = born

        def apply() -> None:
            self._stored.epoch = epoch

        self._write(apply)

    def attached(self, epoch: int) -> Mapping[bytes, bytes | None]:
        born = self._born

        def apply() -> None:
            self._stored.born = born

        self._write(apply)
        return {}

    def contact(self, wall_us: int, timeout_s: float) -> None:
        def apply() -> None:
            self._stored.contact_us, self._stored.timeout_s = wall_us, timeout_s

        self._write(apply)

    def accept(self, tags: Sequence[bytes], outcome: bytes) -> None:
        kept = dict.fromkeys(tags, outcome)

        def apply() -> None:
            self._stored.unsettled.update(kept)

        self._write(apply)

    def settle(self, tags: Sequence[bytes]) -> None:
        gone = list(tags)

        def apply() -> None:
            for tag in gone:
                self._stored.unsettled.pop(tag, None)

        self._write(apply)

    def close(self) -> None:
        raise NotImplementedError("simulated subscribers stay")
