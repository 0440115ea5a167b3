"""When a process counts as one that hangs: no turn has ended for as long as one could have."""

from __future__ import annotations

import os
import time

import pytest

from onceway.host.patience import DISK, RUNS, Patience, main_thread

WAITS, STOPPED = "S", "T"


class Process:
    """Its main thread is in a state, and has had so much CPU."""

    def __init__(self, state: str) -> None:
        self.state, self.cpu_s = state, 0.0
        self.patience = Patience(1, 0.0, 5.0, lambda pid: (self.state, self.cpu_s))

    def silent(self, turns: list[int | None], *, cpu_share: float = 0.0, answers: bool = False) -> float:
        """For how long it has ended no turn, as far as is seen: it is looked at each second."""
        for n, count in enumerate(turns):
            self.cpu_s += cpu_share
            self.patience.look(float(n + 1), count, answered=answers)
        return self.patience.silent_s


@pytest.mark.parametrize("state", [RUNS, WAITS, STOPPED, DISK])
def test_a_process_whose_turns_end_works_though_it_never_answers(state: str) -> None:
    assert Process(state).silent([*range(100)], cpu_share=1.0) == 0.0


def test_a_process_that_answers_works_though_nothing_is_known_of_its_turns() -> None:
    assert Process(WAITS).silent([None] * 100, answers=True) == 0.0


@pytest.mark.parametrize(
    ("state", "turn", "cpu_share", "silent_s"),
    [
        (RUNS, 7, 1.0, 20.0),
        (RUNS, 7, 0.02, 0.4),  # others leave it no CPU
        (DISK, 7, 0.0, 0.0),
        (WAITS, 7, 0.0, 20.0),
        (WAITS, None, 0.0, 21.0),
        (STOPPED, 7, 0.0, 20.0),
        (STOPPED, None, 0.0, 21.0),
    ],
)
def test_a_turn_that_does_not_end_hangs_unless_others_or_a_disk_hold_it_up(
    state: str, turn: int | None, cpu_share: float, silent_s: float
) -> None:
    assert Process(state).silent([turn] * 21, cpu_share=cpu_share) == pytest.approx(silent_s)


def test_who_looks_may_have_stood_still_itself() -> None:
    process = Process(WAITS)
    process.patience.look(1.0, 7)
    process.patience.look(1_000.0, 7)
    assert process.patience.silent_s == 5.0


def test_the_state_and_the_cpu_of_a_main_thread_are_read() -> None:
    found = main_thread(os.getpid())
    assert found[0] == RUNS
    assert 0.0 < found[1] <= time.process_time() + 0.02
    assert main_thread(0) is None
