"""The PySpark job comes to the judge's verdict, for the judge's reasons, with the judge's figures.

One job for all histories: starting one costs more than everything that it is asked here.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from chaos.judge.audit import audit, audit_and_say
from chaos.judge.history import HistoryError
from chaos.judge.judge import judge
from chaos.judge.verdict import Judgement
from chaos.live.cli import command
from onceway.errors import UsageError
from onceway.spark.session import NoSpark
from tests.chaos.histories import CASES, History

pytestmark = pytest.mark.slow

SEEDS = range(6)
PATTERN = "[1]{a,b}*?"  # which is this directory's name
TORN = '{"op":"send","p":"p0","n":9,"t":1'
MALFORMED = {
    "not JSON": ("p0.jsonl", "{}}\n", "p0.jsonl:2: not JSON"),
    "no such op": ("p0.jsonl", '{"op":"sent","t":9}\n', "p0.jsonl:2: no such op: 'sent'"),
    "no number": ("p0.jsonl", '{"op":"send","p":"p0","n":"3","t":9}\n', "p0.jsonl:2: send: n is '3'"),
    "time runs backwards": ("p0.jsonl", '{"op":"note","text":"","t":1}\n', "p0.jsonl:2: t runs backwards"),
    "a second run": ("run.jsonl", '{"op":"run","publishers":[],"subscribers":[],"t":999}\n', "run.jsonl"),
}


def anything(directory: Path, seed: int) -> Path:
    """Thousands of lines of which most make no sense: what the judge makes of them, the job must."""
    rng = random.Random(seed)
    publishers, subscribers = [f"p{i}" for i in range(4)], [f"s{i}" for i in range(5)]
    waited_for: list[str | dict[str, Any]] = [{"name": name, "timeout_s": 0.5} for name in subscribers]
    history = History(directory, list(publishers), waited_for)
    for _ in range(2_000):
        p, s, n = rng.choice(publishers), rng.choice(subscribers), rng.randrange(60)
        match rng.randrange(40):
            case 0:
                rng.choice([history.told, history.leave, history.start])(s)
            case 1 if rng.random() < 0.2:
                history.fault(rng.choice(["kill", "latency"]), rng.choice(["router a", f"client {s}"]))
            case 2 | 3:
                history.ready(s)
            case draw if draw < 16:
                history.send(n, p=p)
            case draw if draw < 22:
                history.outcome(n, p=p, outcome=rng.choice(["accepted", "accepted", "rejected"]))
            case draw if draw < 32:
                history.receive(n, s=s, p=p)
            case _:
                history.accept(n, s=s, p=p)
    history.end(rng.random() < 0.5).close()
    return directory


def malformed(directory: Path, file: str, line: str) -> Path:
    history = History(directory)
    history.write("p0", "send", p="p0", n=0).close()
    with (directory / file).open("a") as opened:
        opened.write(line + '{"op":"note","text":"not the last","t":1000}\n')
    return directory


@pytest.fixture(scope="module")
def audited(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Judgement | HistoryError]]:
    """Every history of these tests, by its name."""
    root = tmp_path_factory.mktemp("histories of every kind")
    directories: dict[str, Path] = {}

    def new(name: str) -> Path:
        directories[name] = root / f"{len(directories)} {name}"
        directories[name].mkdir()
        return directories[name]

    for case in CASES:
        case.build(new(case.name))
    for seed in SEEDS:
        anything(new(f"seed {seed}"), seed)
    for name, (file, line, _) in MALFORMED.items():
        malformed(new(name), file, line)
    torn = next(case for case in CASES if case.name == "all is well").build(new("torn"))
    with (torn / "p0.jsonl").open("a") as file:
        file.write(TORN)
    CASES[0].build(new(PATTERN))
    new("empty")
    new("with:colon").joinpath("p0.jsonl").touch()
    directories["none"] = root / "none"
    found = audit(spark, list(directories.values()))
    return {name: (path, found[str(path)]) for name, path in directories.items()}


Audited = dict[str, tuple[Path, Judgement | HistoryError]]


@pytest.mark.parametrize("name", [*(case.name for case in CASES), *(f"seed {seed}" for seed in SEEDS), "torn", PATTERN])
def test_the_job_and_the_judge_agree_on_everything(audited: Audited, name: str) -> None:
    path, judgement = audited[name]
    assert judgement == judge(path)


@pytest.mark.parametrize("name", MALFORMED)
def test_the_job_names_the_line_that_is_no_history(audited: Audited, name: str) -> None:
    _, error = audited[name]
    assert isinstance(error, HistoryError)
    assert str(error).startswith(MALFORMED[name][2])


@pytest.mark.parametrize("name", ["empty", "none"])
def test_a_directory_without_lines_is_no_history(audited: Audited, name: str) -> None:
    assert "so no history" in str(audited[name][1])


def test_a_directory_that_hadoop_does_not_read_is_told(audited: Audited) -> None:
    path, error = audited["with:colon"]
    assert str(error) == f"{path}: Hadoop reads no path with a colon; rename the directory"


@pytest.mark.long
def test_the_command_says_what_the_judge_says(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    CASES[-1].build(tmp_path)
    assert audit_and_say(spark, [str(tmp_path)], as_json=False) == 1
    assert capsys.readouterr().out == f"{judge(tmp_path)}\n"
    assert audit_and_say(spark, [str(tmp_path)], as_json=True) == 1
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(judge(tmp_path).as_dict()))


def test_without_spark_the_command_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(app: str) -> Any:
        raise NoSpark("pyspark is not installed")

    monkeypatch.setattr("onceway.spark.session.session", nothing)
    with pytest.raises(UsageError, match=r"^pyspark is not installed$"):
        command.main(["audit", str(tmp_path)], standalone_mode=False)
