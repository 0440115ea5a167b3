"""The driver's hold on its ingests: started, listened to, told how far Spark is, stopped.

Lives in the process that serves one query.  A thread for each ingest reads what it says (`onceway.spark.ingest` has the
lines); nothing here waits for an ingest but `drain`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from onceway.client.urls import parse_urls
from onceway.spark.errors import IngestFailed
from onceway.spark.options import SourceOptions
from onceway.spark.wal import Wal

MARK: Final = "ONCEWAY_SPARK_INGEST"  # onceway/spark/__init__.py looks at it
COMMAND: Final = (sys.executable, "-m", "onceway.spark.ingest")
STOP_WITHIN_S: Final = 5.0
CONNECT_WITHIN_S: Final = 60.0  # for the first connection; later ones are tried for ever
ATTACH_WITHIN_S: Final = 120.0  # Trigger.AvailableNow waits so long for a network that recovers
ANSWER_WITHIN_S: Final = 15.0  # beyond drainTimeout


class Ingests:
    """Of one query, `receivers` at most.  Implements `stream.Receiving`."""

    def __init__(self, options: SourceOptions, wal: Wal) -> None:
        self._options = options
        self._changed = threading.Condition()  # over everything that the threads write; reentrant, since signals stop
        self._ingests: list[_Ingest] = []
        count = min(options.receivers, len(options.topics))
        for number in range(count):
            topics = options.topics[number::count]
            slots = [wal.slot_of(topic) for topic in topics]
            self._ingests.append(_Ingest(self._config(topics), slots, self._changed))
        self._slots = {slot: ingest for ingest in self._ingests for slot in ingest.slots}
        self._told: dict[str, dict[int, int]] = {"processed": {}, "trim": {}}
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
            print(  # noqa: T201
                f"onceway: receivers={self._options.receivers}, but a topic has one link: "
                f"{len(self._ingests)} started for {len(self._options.topics)} topics",
                file=sys.stderr,
                flush=True,
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
        with self._changed:
            up = self._wait(lambda: all(len(one.up) == len(one.slots) for one in self._ingests), ATTACH_WITHIN_S)
            if not up:
                states = ", ".join(str(ingest.state.get("state", "starting")) for ingest in self._ingests)
                routers = ", ".join(map(str, parse_urls(self._options.url)))  # without the password
                raise IngestFailed(
                    f"no subscription at {routers} within {ATTACH_WITHIN_S:g} s ({states}); "
                    "the network may be recovering: its routers' /readyz says so"
                )
            self._drains += 1
            number = self._drains
            for ingest in self._ingests:
                ingest.tell({"drain": number, "within": timeout_s})
            if not self._wait(
                lambda: all(one.drained[0] == number for one in self._ingests), timeout_s + ANSWER_WITHIN_S
            ):
                raise IngestFailed(f"an ingest did not answer within {timeout_s + ANSWER_WITHIN_S:g} s; start again")
            return {slot: end for ingest in self._ingests for slot, end in ingest.drained[1].items()}

    def _wait(self, condition: Any, timeout_s: float) -> bool:
        self._changed.wait_for(lambda: condition() or any(one.failure for one in self._ingests), timeout_s)
        self.check()
        return bool(condition())

    def processed(self, positions: Mapping[int, int]) -> None:
        self._tell_positions("processed", positions)

    def trim(self, positions: Mapping[int, int]) -> None:
        self._tell_positions("trim", positions)

    def _tell_positions(self, what: str, positions: Mapping[int, int]) -> None:
        told = self._told[what]
        for ingest in self._ingests:
            news = {slot: positions[slot] for slot in ingest.slots if slot in positions}
            if any(told.get(slot) != position for slot, position in news.items()):
                told.update(news)
                ingest.tell({what: news})

    def state(self) -> dict[str, Any]:
        """One ingest's words, or several ones' together."""
        with self._changed:
            states = [ingest.state for ingest in self._ingests]
        words = {str(state.get("state", "starting")): None for state in states}
        return {
            "state": ", ".join(words),
            "attached": sum(len(ingest.up) for ingest in self._ingests),
            "routers": ", ".join({str(state["router"]): None for state in states if state.get("router")}),
            "accepted": sum(state.get("accepted", 0) for state in states),
            "pendingBytes": sum(state.get("pendingBytes", 0) for state in states),
        }

    def stop(self) -> None:
        """In good order, each within a bound; then without."""
        self._stopping = True
        for ingest in self._ingests:
            ingest.hang_up()
        for ingest in self._ingests:
            ingest.wait(STOP_WITHIN_S)


class _Ingest:
    """One child process, and what it has said."""

    def __init__(self, config: dict[str, Any], slots: list[int], changed: threading.Condition) -> None:
        self.slots = slots
        self.up: dict[int, int] = {}  # slot -> end of the log when it was recovered
        self.state: dict[str, Any] = {}
        self.drained: tuple[int, dict[int, int]] = (0, {})
        self.failure: str | None = None
        self._config = config
        self._changed = changed
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        paths = [path for path in sys.path if path]
        self._process = subprocess.Popen(
            COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), MARK: "1"},
            start_new_session=True,  # Ctrl-C is the driver's
        )
        assert self._process.stdin is not None
        self.tell(self._config)
        # What is told later is superseded by what is told after it: an ingest that hangs must not hang the query.
        os.set_blocking(self._process.stdin.fileno(), False)
        threading.Thread(target=self._listen, args=(self._process,), name="onceway ingest", daemon=True).start()

    def tell(self, line: dict[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            os.write(self._process.stdin.fileno(), json.dumps(line).encode() + b"\n")
        except (BlockingIOError, BrokenPipeError):
            pass  # full: see above; broken: `_listen` says why

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with self._changed:
                self._heard(json.loads(line))
                self._changed.notify_all()
        code = process.wait()
        with self._changed:
            if self.failure is None:
                ended = f"was killed by signal {-code}" if code < 0 else f"ended with {code}"
                self.failure = (
                    f"the ingest (process {process.pid}) {ended}; its last words are in the driver's log. Start the "
                    "query again: what was accepted is in the log, what was not comes again"
                )
            self._changed.notify_all()

    def _heard(self, line: dict[str, Any]) -> None:
        if "up" in line:
            self.up[line["up"]] = line["end"]
        elif "state" in line:
            self.state = line["state"]
        elif "drained" in line:
            self.drained = (line["drained"], {int(slot): end for slot, end in line["ends"].items()})
        elif "failed" in line:
            self.failure = line["failed"]

    def hang_up(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    def wait(self, timeout_s: float) -> None:
        if self._process is None:
            return
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
