"""The driver's hold on its ingests: started, told how far Spark is, asked to drain, stopped.

Lives in the process that serves one query.  `ingest_process` has one of them, and sees to it that it lives; nothing
here waits for an ingest but `drain`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, NoReturn

from onceway.client.urls import parse_urls
from onceway.spark.errors import IngestFailed
from onceway.spark.ingest_process import IngestProcess
from onceway.spark.options import SourceOptions
from onceway.spark.readable import say
from onceway.spark.wal import Wal

STOP_WITHIN_S: Final = 5.0
CONNECT_WITHIN_S: Final = 60.0  # for the first connection; later ones are tried for ever
ATTACH_WITHIN_S: Final = 120.0  # Trigger.AvailableNow waits so long for a network that recovers
ANSWER_WITHIN_S: Final = 15.0  # beyond drainTimeout


class Ingests:
    """Of one query, `receivers` at most.  Implements `stream.Receiving`."""

    def __init__(self, options: SourceOptions, wal: Wal) -> None:
        self._options = options
        self._changed = threading.Condition()  # over everything that the threads write; reentrant, since signals stop
        self._ingests: list[IngestProcess] = []
        count = min(options.receivers, len(options.topics))
        for number in range(count):
            topics = options.topics[number::count]
            slots = [wal.slot_of(topic) for topic in topics]
            self._ingests.append(IngestProcess(self._config(topics), slots, _rows(wal, slots), self._changed))
        self._slots = {slot: ingest for ingest in self._ingests for slot in ingest.slots}
        self._drains = 0
        self._stopping = False

    def _config(self, topics: tuple[str, ...]) -> dict[str, Any]:
        # each may hold back its share of the log: it does not see the others'
        backlog = self._options.max_backlog * len(topics) // len(self._options.topics)
        return {
            **asdict(self._options),
            "topics": topics,
            "max_backlog": backlog,
            "connect_timeout_s": CONNECT_WITHIN_S,
            "parent": os.getpid(),
        }

    def begin(self) -> None:
        if self._options.receivers > len(self._ingests):
            say(
                f"receivers={self._options.receivers}, but a topic has one link: "
                f"{len(self._ingests)} started for {len(self._options.topics)} topics"
            )
        for ingest in self._ingests:
            ingest.start()

    def recovered(self, slot: int) -> bool:
        ingest = self._slots.get(slot)
        return ingest is None or slot in ingest.up

    def check(self) -> None:
        """Raises IngestFailed."""
        for ingest in self._ingests:
            if ingest.failure is not None and not self._stopping:
                raise IngestFailed(ingest.failure)

    def drain(self, timeout_s: float) -> dict[int, int]:
        """Raises IngestFailed, also where the network does not attach us in time."""
        asked: dict[IngestProcess, int] = {}  # which of its lives
        with self._changed:
            self._drains += 1
            while left := [one for one in self._ingests if one.drained[0] != self._drains]:
                if not self._wait(lambda: all(one.ready for one in self._ingests), ATTACH_WITHIN_S):
                    self._not_attached()
                for one in left:
                    if asked.get(one) != one.restarts:
                        asked[one] = one.restarts
                        one.drain(self._drains, timeout_s)
                self._wait_for_answer(asked, timeout_s + ANSWER_WITHIN_S)
            return {slot: end for ingest in self._ingests for slot, end in ingest.drained[1].items()}

    def _wait_for_answer(self, asked: Mapping[IngestProcess, int], within_s: float) -> None:
        """Of all that are asked; or until one of them has died, and another life has to be asked."""

        def over() -> bool:
            left = [one for one in asked if one.drained[0] != self._drains]
            return not left or any(one.restarts != asked[one] for one in left)

        if not self._wait(over, within_s):
            raise IngestFailed(f"an ingest did not answer within {within_s:g} s; start again")

    def _not_attached(self) -> NoReturn:
        states = ", ".join(str(ingest.state.get("state", "starting")) for ingest in self._ingests)
        routers = ", ".join(map(str, parse_urls(self._options.url)))  # without the password
        raise IngestFailed(
            f"no subscription at {routers} within {ATTACH_WITHIN_S:g} s ({states}); "
            "the network may be recovering: its routers' /readyz says so"
        )

    def _wait(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        self._changed.wait_for(lambda: condition() or any(one.failure for one in self._ingests), timeout_s)
        self.check()
        return condition()

    def processed(self, positions: Mapping[int, int]) -> None:
        for ingest in self._ingests:
            ingest.positions("processed", positions)

    def trim(self, positions: Mapping[int, int]) -> None:
        for ingest in self._ingests:
            ingest.positions("trim", positions)

    def state(self) -> dict[str, Any]:
        """One ingest's words, or several ones' together."""
        with self._changed:
            states = [ingest.state for ingest in self._ingests]
            attached = sum(len(ingest.up) for ingest in self._ingests)
            restarts = sum(ingest.restarts for ingest in self._ingests)
        words = {str(state.get("state", "starting")): None for state in states}
        return {
            "state": ", ".join(words),
            "attached": attached,
            "routers": ", ".join({str(state["router"]): None for state in states if state.get("router")}),
            "accepted": sum(state.get("accepted", 0) for state in states),
            "pendingBytes": sum(state.get("pendingBytes", 0) for state in states),
            "restarts": restarts,
        }

    def stop(self) -> None:
        """In good order, each within a bound; then without."""
        self._stopping = True
        for ingest in self._ingests:
            ingest.hang_up()
        for ingest in self._ingests:
            ingest.wait(STOP_WITHIN_S)


def _rows(wal: Wal, slots: Sequence[int]) -> Callable[[], int]:
    """How many rows of these slots are durable.  Raises WalError, OSError."""
    readers = [wal.slot(slot) for slot in slots]
    return lambda: sum(reader.end() for reader in readers)
