"""The driver's hold on its ingests: started, told how far Spark is, asked to drain, restarted, stopped.

Lives in the process that serves one query; only `drain` waits for an ingest.

An ingest that says why it cannot continue (`failed`: fenced off, no room, refused) would say the same again, so that is
final.  One that was killed, or has crashed, is started again: what it had accepted is in the log, and the rest comes
again, so its death costs a pause.  But not without end, since a defect or a lack of memory kills the next one too:
`Lives` decides.  One that lives and says nothing (stopped, in a deadlock, on a disk that does not answer) is killed.

A thread for each ingest reads the lines of its process (`ingest` defines them) and starts the next one.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, NoReturn

from onceway.base import waits
from onceway.client.urls import parse_urls
from onceway.errors import OncewayError
from onceway.spark.errors import IngestFailed
from onceway.spark.options import SourceOptions
from onceway.spark.wal import Wal
from router.json_text import write_json

MARK: Final = "ONCEWAY_SPARK_INGEST"  # onceway/spark/__init__.py checks it
COMMAND: Final = (sys.executable, "-m", "onceway.spark.source.ingest")
CONNECT_WITHIN_S: Final = 60.0  # for the first connection; later ones are tried for ever
ATTACH_WITHIN_S: Final = 120.0  # how long Trigger.AvailableNow waits for a network that recovers
ANSWER_WITHIN_S: Final = 15.0  # beyond drainTimeout
MOST_DEATHS: Final = 5
LONG_LIFE_S: Final = 60.0
AGAIN_AFTER_S: Final = 0.5  # three times as long after each further futile life: 20 s in all
# Fifteen beats of an ingest: no honest pause is as long.  Routers notice after their idle_timeout, and by default wait
# for longer than this from then on.
SILENT_S: Final = 30.0
LISTEN_S: Final = 1.0
NO_BACKLOG: Final = 1 << 62  # retention bounds the log, and no query holds it back


def say(text: str) -> None:
    """Writes a line to the driver's log."""
    print(f"onceway: {text}", file=sys.stderr, flush=True)  # noqa: T201


class Ingests:
    """The ingests of one query, at most `receivers`."""

    def __init__(self, options: SourceOptions, wal: Wal, slots: Sequence[int] | None = None) -> None:
        """slots: those to receive, where it is not all of the options' topics.  Raises IngestFailed."""
        self._options = options
        self._wal = wal
        self._changed = waits.INGEST_STATE(
            threading.Condition()
        )  # guards what the threads write; reentrant: a signal handler stops us
        self._ingests: list[IngestProcess] = []
        if slots is None:
            slots = [slot for topic in options.topics for slot in wal.slots_of(topic)]
        self._most = len(slots)
        apart = options.ingest == "apart"
        if apart and wal.in_change():
            raise IngestFailed(
                f"{wal.location} is being changed to partitions={wal.partitions}: start the query with ingest=driver "
                "until it receives, then these receivers"
            )
        # each waits for its lease: one that waits for a slot must not hold another
        count = len(slots) if apart else min(options.receivers or options.partitions, len(slots))
        for number in range(count):
            own = slots[number::count]
            # each gets its share of the limit: it does not see the others' rows
            backlog = options.max_backlog * len(own) // len(slots)
            config = self._config(own, NO_BACKLOG if apart else backlog)
            self._ingests.append(IngestProcess(config, own, _row_counter(wal, own), self._changed))
        self._slots = {slot: ingest for ingest in self._ingests for slot in ingest.slots}
        self._drains = 0
        self._stopping = False

    def add(self, wal: Wal, slots: Sequence[int]) -> None:
        """Receives these as well; they have been added to the log.  Raises OSError."""
        more = Ingests(self._options, wal, slots)
        with self._changed:
            for ingest in more._ingests:
                ingest.join(self._changed)
                self._ingests.append(ingest)
            self._slots |= more._slots
        for ingest in more._ingests:
            ingest.start()

    def _config(self, slots: Sequence[int], backlog: int) -> dict[str, Any]:
        return {
            **asdict(self._options),
            "slots": slots,
            "max_backlog": backlog,
            "change": False,
            "connect_timeout_s": CONNECT_WITHIN_S if self._options.ingest == "driver" else None,
            "parent": os.getpid(),
        }

    def begin(self) -> None:
        if self._most and (self._options.receivers or 0) > self._most:
            say(
                f"receivers={self._options.receivers}, but there are {self._most} links to receive from (topics times "
                f"partitions): {self._most} started"
            )
        if self._wal.in_change():
            self._change()
        for ingest in self._ingests:
            ingest.start()

    def _change(self) -> None:
        """Drains the partitions that there were while the new ones already exist.  Raises IngestFailed.

        One process does it, and its successors when it dies.
        """
        wal = self._wal
        old = wal.in_change()
        slots = [slot for slot in wal.slots if slot in old or slot not in wal.before]
        config = {**self._config(slots, NO_BACKLOG), "change": True}
        one = IngestProcess(config, slots, _row_counter(wal, slots), self._changed)
        self._ingests.append(one)
        say(f"draining {len(old)} links, then receiving with partitions={wal.partitions}")
        within_s = ATTACH_WITHIN_S + self._options.drain_timeout_s
        one.start()
        try:
            with self._changed:
                if not self._wait(lambda: one.changed, within_s):
                    raise IngestFailed(
                        f"the old partitions of {wal.location} were not drained within {within_s:g} s; start the query "
                        "again, which goes on with it (drainTimeout=10m waits for longer)"
                    )
        finally:
            one.hang_up()
            one.wait(waits.INGEST_END.s)
            self._ingests.remove(one)

    def recovered(self, slot: int) -> int | None:
        """Where the slot's log ended when its first ingest had recovered it, or ends if it has none; None: not yet."""
        ingest = self._slots.get(slot)
        return self._wal.slot(slot).end() if ingest is None else ingest.recovered.get(slot)

    def check(self) -> None:
        """Raises IngestFailed if one of them cannot continue."""
        for ingest in self._ingests:
            if ingest.failure is not None and not self._stopping:
                raise IngestFailed(ingest.failure)

    def drain(self, timeout_s: float) -> dict[int, int]:
        """Receives what the network holds now; returns the end of each drained slot.

        Raises IngestFailed, also where the network does not attach us in time.
        """
        asked: dict[IngestProcess, int] = {}  # and its `restarts` then
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
        """Waits for all that were asked, or until one has died and its successor has to be asked."""

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
        """The state of all ingests together."""
        with self._changed:
            states = [ingest.state for ingest in self._ingests]
            attached = sum(len(ingest.up) for ingest in self._ingests)
            restarts = sum(ingest.restarts for ingest in self._ingests)
        words = {str(state.get("state", "starting")): None for state in states}
        return {
            "state": ", ".join(words),
            "attached": attached,
            "routers": ", ".join({str(state["router"]): None for state in states if state.get("router")}),
            "pendingBytes": sum(state.get("pendingBytes", 0) for state in states),
            "restarts": restarts,
        }

    def stop(self) -> None:
        """Ends each in good order within a bound, then by force."""
        self._stopping = True
        for ingest in self._ingests:
            ingest.hang_up()
        deadline = time.monotonic() + waits.INGEST_END.s
        for ingest in self._ingests:
            ingest.wait(max(0.0, deadline - time.monotonic()))


def _row_counter(wal: Wal, slots: Sequence[int]) -> Callable[[], int]:
    """A function that counts the durable rows of these slots.  It raises WalError, OSError."""
    readers = [wal.slot(slot) for slot in slots]
    return lambda: sum(reader.end() for reader in readers)


def _end_of(process: subprocess.Popen[bytes]) -> int:
    """The exit code of one whose output has ended: a process that closes it and stays is killed."""
    try:
        return process.wait(waits.INGEST_END.s)
    except subprocess.TimeoutExpired:
        process.kill()
        return waits.KILLED(process).wait()


# -- one ingest


class Lives:
    """Whether an ingest that died is started again: until MOST_DEATHS lives in a row were futile.

    A life was futile if it added no row to the log and was shorter than LONG_LIFE_S.
    """

    def __init__(self) -> None:
        self.futile = 0

    def died(self, lasted_s: float, *, grew: bool) -> float | None:
        """In how many seconds to start the next one; None: never."""
        if grew or lasted_s >= LONG_LIFE_S:
            self.futile = 0
            return AGAIN_AFTER_S
        self.futile += 1
        return AGAIN_AFTER_S * 3.0 ** (self.futile - 1) if self.futile < MOST_DEATHS else None


class IngestProcess:
    """One child process, its successors when it dies, and what it has said.

    config: its first line; slots: those that it writes; end: counts the rows of these in the log; changed: guards all
    state here, and is notified of changes.
    """

    def __init__(
        self, config: Mapping[str, Any], slots: Sequence[int], end: Callable[[], int], changed: threading.Condition
    ) -> None:
        self.slots = tuple(slots)
        self.up: dict[int, int] = {}  # slot -> end of the log when it was recovered
        self.recovered: dict[int, int] = {}  # the same of the first process
        self.drained: tuple[int, dict[int, int]] = (0, {})
        self.changed = False  # the number of partitions
        self.restarts = 0
        self.failure: str | None = None  # why no other one will be started
        self.state: dict[str, Any] = {}
        self._config = dict(config)
        self._positions: dict[str, dict[int, int]] = {"processed": {}, "trim": {}}  # sent, also to the next one
        self._end = end
        self._rows = 0  # in the log when this process began
        self._lives = Lives()
        self._changed = changed
        self._stopping = False
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def ready(self) -> bool:
        """All of its slots are attached and recovered."""
        return len(self.up) == len(self.slots)

    # -- commands

    def join(self, changed: threading.Condition) -> None:
        """Before `start`: becomes one of those that this condition guards."""
        self._changed = changed

    def start(self) -> None:
        """Raises OSError where the first one cannot be started, and what `end` raises."""
        self._rows = self._end()
        self._begin()
        threading.Thread(target=self._supervise, name="onceway ingest", daemon=True).start()

    def positions(self, what: str, positions: Mapping[int, int]) -> None:
        """Tells how far Spark is.  what: `processed` or `trim`."""
        with self._changed:
            known = self._positions[what]
            news = {slot: positions[slot] for slot in self.slots if slot in positions}
            if any(known.get(slot) != position for slot, position in news.items()):
                known.update(news)
                self._tell({what: news})

    def drain(self, number: int, within_s: float) -> None:
        with self._changed:
            self._tell({"drain": number, "within": within_s})

    def hang_up(self) -> None:
        """Ends it in good order; no other one is started."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
            if self._process is not None and self._process.stdin is not None:
                self._process.stdin.close()

    def wait(self, timeout_s: float) -> None:
        """After `hang_up`: waits for its end, and kills it after timeout_s."""
        if self._process is None:
            return
        try:
            waits.INGEST_END(self._process).wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            waits.KILLED(self._process).wait()

    def _tell(self, line: dict[str, Any]) -> None:
        process = self._process
        if process is None or process.stdin is None or process.stdin.closed:
            return  # the next one is told the positions
        try:
            os.write(process.stdin.fileno(), write_json(line).encode() + b"\n")
        except (BlockingIOError, BrokenPipeError):
            pass  # full: later lines supersede it; broken: `_supervise` notices

    # -- supervision

    def _begin(self) -> None:
        """Starts a process; under the lock, except for the first one.  Raises OSError."""
        paths = [path for path in sys.path if path]
        self._process = subprocess.Popen(
            COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), MARK: "1"},
            start_new_session=True,  # Ctrl-C is the driver's
        )
        assert self._process.stdin is not None
        self._tell(self._config)
        # An ingest that hangs must not hang the query.
        os.set_blocking(self._process.stdin.fileno(), False)

    def _supervise(self) -> None:
        while True:
            process, began = self._process, time.monotonic()
            assert process is not None
            silent_s = self._listen(process)
            lasted_s = time.monotonic() - began - silent_s
            code = _end_of(process)
            how = f"was killed by signal {-code}" if code < 0 else f"ended with {code}"
            if silent_s:
                how = f"had hung: it said nothing for {silent_s:g} s, and was killed"
            if not self._again(f"(process {process.pid}) {how}", lasted_s):
                return

    def _listen(self, process: subprocess.Popen[bytes]) -> float:
        """Reads its lines to its end and returns 0; or kills a silent one and returns for how many seconds it was."""
        assert process.stdout is not None
        pipe = process.stdout.fileno()
        poll = select.poll()
        poll.register(pipe, select.POLLIN)
        silent_s, torn = 0.0, b""
        while True:
            if not waits.INGEST_LINES(poll).poll(LISTEN_S * 1000):
                # counted in turns of our own: if the whole machine stood still, we have not listened
                silent_s += LISTEN_S
                if silent_s < self._patience_s:
                    continue
                process.kill()
                return silent_s
            data = os.read(pipe, 1 << 16)
            if not data:
                return 0.0  # a torn line was torn by its death
            silent_s = 0.0
            *lines, torn = (torn + data).split(b"\n")
            for text in lines:
                self._hear(text)

    @property
    def _patience_s(self) -> float:
        """Before it is up it may wait for the log's lock, and reports nothing meanwhile."""
        return SILENT_S if self.up else SILENT_S + float(self._config.get("lock_timeout_s", 0.0))

    def _hear(self, text: bytes) -> None:
        try:
            line = json.loads(text)
        except ValueError:
            line = None
        if not isinstance(line, dict):  # a library that prints
            say(f"the ingest wrote to its stdout: {text.decode(errors='replace').rstrip()}")
            return
        with self._changed:
            match line:
                case {"up": slot, "end": end}:
                    self.up[slot] = end
                    self.recovered.setdefault(slot, end)
                    # from now on it waits for a network that is down: the options were right once
                    self._config["connect_timeout_s"] = None
                case {"changed": changed}:
                    self.changed = changed
                case {"state": state}:
                    self.state = state
                case {"drained": number, "ends": ends}:
                    self.drained = (number, {int(slot): end for slot, end in ends.items()})
                case {"failed": reason} if self._config.get("ingest") == "apart":
                    say(f"slot {self.slots[0]}: {reason}")  # another host has it now, or may have it next
                case {"failed": reason}:
                    self.failure = reason
            self._changed.notify_all()

    def _again(self, how: str, lasted_s: float) -> bool:
        """After a death: starts another one after a pause; False where there is to be none."""
        with self._changed:
            self._clean_up()
            while self.failure is None and not self._stopping:
                try:
                    rows = self._end()
                except (OncewayError, OSError) as error:
                    self.failure = f"{type(error).__name__}: {error}"
                    break
                after_s = self._lives.died(lasted_s, grew=rows > self._rows)
                self._rows = rows
                if after_s is None:
                    self.failure = (
                        f"the ingest died {MOST_DEATHS} times in a row without receiving anything; the last one {how}, "
                        "and its last words are in the driver's log. Signal 9 is kill -9, or the kernel's when memory "
                        "is short. Mend that and start the query again: what was accepted is in the log, what was not "
                        "comes again"
                    )
                    break
                say(f"the ingest {how}; starting it again in {after_s:g} s")
                self._changed.notify_all()
                if self._changed.wait_for(lambda: self._stopping, after_s):
                    break
                self.restarts += 1
                try:
                    self._begin()
                except OSError as error:  # no memory, no process
                    how, lasted_s = f"could not be started ({error})", 0.0
                    continue
                for what, positions in self._positions.items():
                    if positions:
                        self._tell({what: positions})
                return True
            self._changed.notify_all()
            return False

    def _clean_up(self) -> None:
        process = self._process
        assert process is not None
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        self.up.clear()
        self.state = {"state": "restarting"}
