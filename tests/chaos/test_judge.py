"""The judge sees each kind of fault, takes no fault for one, and says unknown where the history does not tell."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from chaos.judge.history import HistoryError
from chaos.judge.judge import judge
from chaos.judge.verdict import Judgement, Verdict
from tests.chaos.histories import CASES, Case, History


def kinds(judgement: Judgement) -> list[tuple[str, str]]:
    return sorted({(finding.guarantee, finding.kind) for finding in judgement.findings})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_kind_of_run_gets_its_verdict_and_its_reasons(case: Case, tmp_path: Path) -> None:
    judgement = judge(case.build(tmp_path))
    assert kinds(judgement) == sorted(case.kinds), f"\n{judgement}"
    assert judgement.verdict == case.verdict


def test_reasons_name_who_how_many_and_which(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.ready("s0").deliver(0, 10)
    history.send(10, 17).outcome(10, 17).deliver(17, 20).end().close()
    judgement = judge(tmp_path)
    assert judgement.reasons == [
        "G1 G5 silently lost: 7 (10, 11, 12, 13, 14, ...) at s0 from p0: accepted, never handed, and nobody told it"
    ]
    finding = judgement.findings[0]
    assert (finding.subscriber, finding.publisher, finding.count) == ("s0", "p0", 7)
    assert finding.examples == (10, 11, 12, 13, 14)


def test_the_table_counts_what_each_subscriber_got(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.send(0, 5).outcome(0, 5).ready("s0").deliver(5, 12).end().close()
    (pair,) = judge(tmp_path).pairs
    assert (pair.due, pair.received, pair.accepted) == (7, 7, 7)


def command(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "chaos", "judge", str(directory), *options]
    return subprocess.run(line, capture_output=True, text=True, check=False)


def test_the_command_says_its_verdict_in_words_json_and_exit_code(tmp_path: Path) -> None:
    for verdict, code in ((Verdict.OK, 0), (Verdict.VIOLATED, 1), (Verdict.UNKNOWN, 3)):
        directory = tmp_path / verdict
        directory.mkdir()
        case = next(case for case in CASES if case.verdict is verdict)
        done = command(case.build(directory))
        assert (done.returncode, done.stdout.split(":")[0]) == (code, verdict)
    said: dict[str, Any] = json.loads(command(tmp_path / "violated", "--json").stdout)
    assert said["verdict"] == "violated"
    assert said["findings"][0]["guarantee"]


def test_the_command_names_the_line_that_is_no_history(tmp_path: Path) -> None:
    (tmp_path / "p0.jsonl").write_text('{"op":"send","p":"p0","n":1,"t":1.0}\n{"op":"sent","t":1}\n{"op":"note"')
    done = command(tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("p0.jsonl:2: no such op: 'sent'")
    assert command(tmp_path / "none").returncode == 2


def test_two_lines_of_the_run_are_no_history(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.run()
    history.close()
    with pytest.raises(HistoryError, match=r"run\.jsonl:2: a second line of the run"):
        judge(tmp_path)
