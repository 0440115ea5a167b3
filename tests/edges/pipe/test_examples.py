"""The programs of examples/pipe do what their docstrings say."""

from __future__ import annotations

import sys

import pytest

from tests.edges.pipe.network import PipeNetwork
from tests.running import ROOT, Program

EXAMPLES = ROOT / "examples" / "pipe"

PRINTS = {
    "work_queue": [
        *(f"worker 0: photo {number}" for number in (0, 3, 6)),
        "worker 1: photo 1",
        *(f"worker 2: photo {number}" for number in (2, 5, 8)),
        *(f"worker 1: photo {number}" for number in (4, 7)),
    ],
    "events": [
        "billing: door opened, lights on, lights off, door closed",
        "audit: door opened, lights on, lights off, door closed",
        "display: lights off, door closed",
    ],
    "hand_over": [
        "transform: 4 messages of {0} are done",
        "load: Ada, Grace, Alan",
        "load: 4 messages of {1} are done",
    ],
}


@pytest.mark.parametrize("name", PRINTS)
def test_example_prints_what_it_should(network: PipeNetwork, pipe: str, name: str) -> None:
    arguments = [str(EXAMPLES / f"{name}.py"), network.urls(), pipe]
    second = f"pipe{29 - len(pipe)}"
    if name == "hand_over":
        arguments.append(second)
    with Program([sys.executable, *arguments]) as program:
        printed = program.rest()
    expected = [line.format(pipe, second) for line in PRINTS[name]]
    assert sorted(printed) == sorted(expected) if name == "hand_over" else printed == expected


def test_every_example_is_tested_listed_and_short() -> None:
    listed = (ROOT / "examples" / "README.md").read_text()
    programs = sorted(EXAMPLES.glob("*.py"))
    assert {program.stem for program in programs} == set(PRINTS)
    for program in programs:
        assert f"| [pipe/{program.name}](pipe/{program.name}) |" in listed
        assert f"examples/pipe/{program.name} [URL" in program.read_text()
        assert len(program.read_text().splitlines()) < 60
