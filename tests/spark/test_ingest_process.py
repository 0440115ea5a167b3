"""Which deaths of an ingest are mended by another one, with programs in its place that die as they are told."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from onceway.spark.errors import WalDamaged
from onceway.spark.source.ingests import LONG_LIFE_S, MOST_DEATHS, SILENT_S, IngestProcess, Lives
from tests.live import ROOT, wait_until

MakeIngest = Callable[..., IngestProcess]


@pytest.fixture
def ingest(monkeypatch: pytest.MonkeyPatch) -> MakeIngest:
    monkeypatch.setattr("onceway.spark.source.ingests.AGAIN_AFTER_S", 0.001)

    def make(program: str, end: Callable[[], int] = lambda: 0) -> IngestProcess:
        monkeypatch.setattr("onceway.spark.source.ingests.COMMAND", (sys.executable, "-S", "-c", program))
        made = IngestProcess({}, [0], end, threading.Condition())
        made.start()
        return made

    return make


def failure(ingest: IngestProcess) -> str:
    return str(wait_until(lambda: ingest.failure, "it is given up"))


def test_lives_in_vain_are_followed_by_longer_and_longer_pauses_and_then_by_none() -> None:
    lives = Lives()
    pauses = [lives.died(1.0, grew=False) for _ in range(MOST_DEATHS)]
    assert pauses == [0.5, 1.5, 4.5, 13.5, None]


def test_a_life_that_brought_a_row_or_was_long_lets_the_deaths_before_it_be_forgotten() -> None:
    for lasted_s, grew in ((0.1, True), (LONG_LIFE_S, False)):
        lives = Lives()
        for _ in range(3):
            for _ in range(MOST_DEATHS - 1):
                assert lives.died(0.1, grew=False)
            assert lives.died(lasted_s, grew=grew) == 0.5


def test_one_that_always_crashes_fails_the_query_with_its_end(
    ingest: MakeIngest, capsys: pytest.CaptureFixture[str]
) -> None:
    one = ingest("raise SystemExit(3)")
    assert "the ingest died 5 times in a row without receiving anything; the last one (process " in failure(one)
    assert ") ended with 3, and its last words are in the driver's log" in failure(one)
    assert one.restarts == MOST_DEATHS - 1
    assert capsys.readouterr().err.count("starting it again in") == MOST_DEATHS - 1


def test_one_that_says_why_it_cannot_go_on_is_believed(ingest: MakeIngest) -> None:
    one = ingest("""print('{"failed": "WalFull: no room"}'); raise SystemExit(1)""")
    assert failure(one) == "WalFull: no room"
    assert one.restarts == 0


def test_one_that_dies_in_the_middle_of_a_word_has_not_said_it(ingest: MakeIngest) -> None:
    one = ingest("""import os; os.write(1, b'{"failed": "Wal'); os.kill(os.getpid(), 9)""")
    assert "was killed by signal 9" in failure(one)


def test_what_is_no_word_of_an_ingest_is_passed_on(ingest: MakeIngest, capsys: pytest.CaptureFixture[str]) -> None:
    one = ingest("""print("hello"); print(1); print('{"failed": "the end"}')""")
    assert failure(one) == "the end"
    said = "onceway: the ingest wrote to its stdout: "
    assert capsys.readouterr().err == f"{said}hello\n{said}1\n"


def test_one_that_lives_and_says_nothing_is_killed_and_followed_by_the_next(
    ingest: MakeIngest, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("onceway.spark.source.ingests.SILENT_S", 0.03)
    monkeypatch.setattr("onceway.spark.source.ingests.LISTEN_S", 0.01)
    one = ingest("import sys; sys.stdin.read()")
    assert "had hung: it said nothing for 0.03 s, and was killed" in failure(one)
    assert one.restarts == MOST_DEATHS - 1
    assert capsys.readouterr().err.count("had hung") == MOST_DEATHS - 1


def test_one_that_may_wait_for_the_lock_may_be_silent_for_longer() -> None:
    one = IngestProcess({"lock_timeout_s": 600.0}, [0], lambda: 0, threading.Condition())
    assert one._patience_s == SILENT_S + 600.0
    one.up[0] = 7
    assert one._patience_s == SILENT_S


def test_the_next_one_is_told_how_far_spark_is_and_waits_for_the_network(ingest: MakeIngest) -> None:
    program = """
import json, sys
config, processed = json.loads(input()), json.loads(input())
if "connect_timeout_s" in config:
    print(json.dumps({"failed": [config, processed]}))
else:
    print(json.dumps({"up": 0, "end": 7}))
"""
    one = ingest(program)
    one.positions("processed", {0: 5, 1: 9})
    assert failure(one) == str([{"connect_timeout_s": None}, {"processed": {"0": 5}}])


def test_a_log_that_cannot_be_read_is_the_reason(ingest: MakeIngest) -> None:
    ends = iter([0])

    def end() -> int:
        for number in ends:
            return number
        raise WalDamaged("epoch: damaged")

    assert failure(ingest("raise SystemExit(1)", end)) == "WalDamaged: epoch: damaged"
    assert next(ends, None) is None


def test_one_that_is_hung_up_is_not_started_again(ingest: MakeIngest) -> None:
    one = ingest("import sys; sys.stdin.read()")
    one.hang_up()
    one.wait(20.0)
    assert one.failure is None
    assert one.restarts == 0


SIGTERM_AT_ITS_END = """
import atexit, os, signal, sys
from onceway.base.loop import run
from onceway.spark.source.ingest import serve
atexit.register(lambda: os.kill(os.getpid(), signal.SIGTERM))
sys.exit(run(serve()))
"""


@pytest.mark.parametrize("loop", ["asyncio", "fastest"])
def test_sigterm_that_comes_after_the_last_one_is_no_other_end(loop: str) -> None:
    environment = {**os.environ, "ONCEWAY_LOOP": loop, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", SIGTERM_AT_ITS_END], input=b"", capture_output=True, env=environment, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
