"""One ingest over its lives: started, listened to, and started again when it dies without having said why.

An ingest that says why it cannot go on (`failed`: fenced off, no room, refused) would say the same again, so that is
the end.  One that was killed, or has crashed, is started again: what it had accepted is in the log, what it had not
comes again, so its death costs a pause.  Not for ever, since a defect or a lack of memory kills the next one too:
`Lives` decides.  One that lives and says nothing (stopped, in a deadlock, at a disk that does not answer) is killed.

A thread for each reads what its process says (`onceway.spark.ingest` has the lines) and starts the next one.
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
from typing import Any, Final

from onceway.errors import OncewayError
from onceway.spark.readable import say

MARK: Final = "ONCEWAY_SPARK_INGEST"  # onceway/spark/__init__.py looks at it
COMMAND: Final = (sys.executable, "-m", "onceway.spark.ingest")
MOST_DEATHS: Final = 5
LONG_LIFE_S: Final = 60.0
AGAIN_AFTER_S: Final = 0.5  # three times as long after each further death in vain: 20 s in all
# Fifteen of its beats: no honest pause is as long.  Routers notice after their idle_timeout, and wait for longer than
# this from then on, unless told otherwise.
SILENT_S: Final = 30.0
LISTEN_S: Final = 1.0


class Lives:
    """Whether an ingest that died is started again: until MOST_DEATHS in a row were in vain.

    A life in vain brought no row into the log and was shorter than LONG_LIFE_S.
    """

    def __init__(self) -> None:
        self.in_vain = 0

    def died(self, lasted_s: float, *, grew: bool) -> float | None:
        """In how many seconds to start the next one; None: not again."""
        if grew or lasted_s >= LONG_LIFE_S:
            self.in_vain = 0
            return AGAIN_AFTER_S
        self.in_vain += 1
        return AGAIN_AFTER_S * 3.0 ** (self.in_vain - 1) if self.in_vain < MOST_DEATHS else None


class IngestProcess:
    """One child process, the next one in its place when it dies, and what it has said.

    config: what it is told first; slots: those that it writes; end: how many rows the log has of these;
    changed: over everything that is said here, and notified of it.
    """

    def __init__(
        self, config: Mapping[str, Any], slots: Sequence[int], end: Callable[[], int], changed: threading.Condition
    ) -> None:
        self.slots = tuple(slots)
        self.up: dict[int, int] = {}  # slot -> end of the log when it was recovered
        self.drained: tuple[int, dict[int, int]] = (0, {})
        self.restarts = 0
        self.failure: str | None = None  # why there will be no other one
        self._state: dict[str, Any] = {}
        self._accepted = 0  # by those that are dead, as far as they have said
        self._config = dict(config)
        self._positions: dict[str, dict[int, int]] = {"processed": {}, "trim": {}}  # told, also to the next one
        self._end = end
        self._rows = 0  # in the log when this life began
        self._lives = Lives()
        self._changed = changed
        self._stopping = False
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def ready(self) -> bool:
        """All of its slots are attached and recovered."""
        return len(self.up) == len(self.slots)

    @property
    def state(self) -> dict[str, Any]:
        return {**self._state, "accepted": self._accepted + self._state.get("accepted", 0)}

    # -- what it is told

    def start(self) -> None:
        """Raises OSError where the first one cannot be started, and what `end` raises."""
        self._rows = self._end()
        self._begin()
        threading.Thread(target=self._supervise, name="onceway ingest", daemon=True).start()

    def positions(self, what: str, positions: Mapping[int, int]) -> None:
        """How far Spark is: what: `processed` or `trim`."""
        with self._changed:
            told = self._positions[what]
            news = {slot: positions[slot] for slot in self.slots if slot in positions}
            if any(told.get(slot) != position for slot, position in news.items()):
                told.update(news)
                self._tell({what: news})

    def drain(self, number: int, within_s: float) -> None:
        with self._changed:
            self._tell({"drain": number, "within": within_s})

    def hang_up(self) -> None:
        """It ends in good order, and no other one is started."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
            if self._process is not None and self._process.stdin is not None:
                self._process.stdin.close()

    def wait(self, timeout_s: float) -> None:
        """After `hang_up`: until it has ended, by force after timeout_s."""
        if self._process is None:
            return
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _tell(self, line: dict[str, Any]) -> None:
        process = self._process
        if process is None or process.stdin is None or process.stdin.closed:
            return  # the next one is told all that counts
        try:
            os.write(process.stdin.fileno(), json.dumps(line).encode() + b"\n")
        except (BlockingIOError, BrokenPipeError):
            pass  # full: what is told later supersedes it; broken: `_supervise` sees to it

    # -- its lives

    def _begin(self) -> None:
        """Under the lock, but for the first one.  Raises OSError."""
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
            code = process.wait()
            how = f"was killed by signal {-code}" if code < 0 else f"ended with {code}"
            if silent_s:
                how = f"had hung: it said nothing for {silent_s:g} s, and was killed"
            if not self._again(f"(process {process.pid}) {how}", lasted_s):
                return

    def _listen(self, process: subprocess.Popen[bytes]) -> float:
        """To its end: 0; or until it has been silent for too long, so many seconds: then it has been killed."""
        assert process.stdout is not None
        pipe = process.stdout.fileno()
        poll = select.poll()
        poll.register(pipe, select.POLLIN)
        silent_s, torn = 0.0, b""
        while True:
            if not poll.poll(LISTEN_S * 1000):
                # In turns of our own: where the whole machine stood still, we have not listened.
                silent_s += LISTEN_S
                if silent_s < self._patience_s:
                    continue
                process.kill()
                return silent_s
            octets = os.read(pipe, 1 << 16)
            if not octets:
                return 0.0  # what is torn was torn by its death
            silent_s = 0.0
            *lines, torn = (torn + octets).split(b"\n")
            for text in lines:
                self._hear(text)

    @property
    def _patience_s(self) -> float:
        """Before it is up it may wait for the log's lock, and does nothing else meanwhile."""
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
            self._heard(line)
            self._changed.notify_all()

    def _heard(self, line: dict[str, Any]) -> None:
        if "up" in line:
            self.up[line["up"]] = line["end"]
            # a network that is away is waited for, as by one that lives: the options have been good once
            self._config["connect_timeout_s"] = None
        elif "state" in line:
            self._state = line["state"]
        elif "drained" in line:
            self.drained = (line["drained"], {int(slot): end for slot, end in line["ends"].items()})
        elif "failed" in line:
            self.failure = line["failed"]

    def _again(self, how: str, lasted_s: float) -> bool:
        """After a death: another one, in a while; False where there is to be none."""
        with self._changed:
            self._buried()
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

    def _buried(self) -> None:
        process = self._process
        assert process is not None
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        self.up.clear()
        self._accepted += self._state.get("accepted", 0)
        self._state = {"state": "restarting"}
