"""The history's files: written line by line, whole after a kill -9, read by time, and wrong lines named."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.judge.history import FIELDS, HistoryError, Writer, files, read, read_file


class Clock:
    now = 10.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "p0.jsonl"


def ops(path: Path) -> list[str]:
    return [event.op for event in read_file(path)]


def test_lines_are_read_as_they_were_written(path: Path) -> None:
    clock = Clock()
    with Writer(path, clock=clock) as writer:
        writer.send("p0", 17)
        clock.now = 10.25
        writer.outcome("p0", 17, "accepted")
        writer.receive("s0", ("p0", 17), ("p1", 3))
        writer.accept("s0", ("p0", 17))
        writer.write("fault", kind="kill", target="router a", until=None)
    assert [dict(event.fields) for event in read_file(path)] == [
        {"op": "send", "p": "p0", "n": 17, "t": 10.0},
        {"op": "outcome", "p": "p0", "n": 17, "outcome": "accepted", "t": 10.25},
        {"op": "receive", "s": "s0", "p": "p0", "n": 17, "t": 10.25},
        {"op": "receive", "s": "s0", "p": "p1", "n": 3, "t": 10.25},
        {"op": "accept", "s": "s0", "p": "p0", "n": 17, "t": 10.25},
        {"op": "fault", "kind": "kill", "target": "router a", "until": None, "t": 10.25},
    ]


def test_names_are_quoted_and_numbers_grow_large(path: Path) -> None:
    with Writer(path) as writer:
        writer.send('p"ü\n', 2**40)
    (event,) = read_file(path)
    assert (event.fields["p"], event.fields["n"]) == ('p"ü\n', 2**40)


def test_a_writer_knows_only_the_events_of_the_format(path: Path) -> None:
    with Writer(path) as writer, pytest.raises(ValueError, match="no such event: sent"):
        writer.write("sent")


def test_time_never_runs_backwards_in_a_file(path: Path) -> None:
    clock = Clock()
    with Writer(path, clock=clock) as writer:
        writer.write("fault", kind="kill", target="router a", t=12.0)
        writer.send("p0", 1)
    assert [event.t for event in read_file(path)] == [12.0, 12.0]
    path.write_text('{"op":"note","text":"","t":2}\n{"op":"note","text":"","t":1}\n')
    with pytest.raises(HistoryError, match=r"p0\.jsonl:2: t runs backwards, from 2\.000000 to 1\.000000"):
        ops(path)


def test_lines_outlive_a_kill_9(path: Path) -> None:
    program = f"""
from chaos.judge.history import Writer
writer, n = Writer({str(path)!r}), 0
while True:
    writer.send("p0", n)
    if n == 500:
        print("READY", flush=True)
    n += 1
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
    numbers = [event.fields["n"] for event in read_file(path)]
    assert numbers == list(range(len(numbers)))
    assert len(numbers) > 500


@pytest.mark.parametrize("torn", ["{", '{"op":"send","p":"p0"', '{"op":"note","text":"' + "x" * 9000, "\0\0\0"])
def test_a_torn_last_line_is_left_out_and_cut_off_by_the_next_writer(path: Path, torn: str) -> None:
    with Writer(path) as writer:
        writer.send("p0", 1)
    with path.open("a") as file:
        file.write(torn)
    assert ops(path) == ["send"]
    with Writer(path) as writer:
        writer.outcome("p0", 1, "accepted")
    assert ops(path) == ["send", "outcome"]


def test_a_file_that_is_nothing_but_a_torn_line_starts_anew(path: Path) -> None:
    path.write_text('{"op":')
    with Writer(path) as writer:
        writer.send("p0", 1)
    assert ops(path) == ["send"]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("[1]", "not an object"),
        ("nonsense", "not JSON: Expecting value"),
        ('{"t":1}', "no such op: None"),
        ('{"op":"send","p":"p0","n":1}', "send: t is None, not seconds"),
        ('{"op":"send","p":"p0","n":1,"t":NaN}', "send: t is nan"),
        ('{"op":"send","p":"p0","n":1,"t":1' + "0" * 400 + "}", "send: t is 1000"),
        ('{"op":"send","p":"\\ud800","n":1,"t":1}', "not JSON: half a character"),
        ("[" * 100_000, "not JSON: maximum recursion depth"),
        ('{"op":"run","publishers":[{"name":"p","timeout_s":NaN}],"subscribers":[],"t":1}', "run: p: timeout_s is nan"),
        ('{"op":"send","p":"p0","n":"1","t":1}', "send: n is '1'"),
        ('{"op":"send","p":"p0","n":true,"t":1}', "send: n is True"),
        ('{"op":"send","p":"p0","n":-1,"t":1}', "send: n is -1, not 0 to"),
        ('{"op":"close","t":1}', "close: of a publisher"),
        ('{"op":"close","p":"p0","s":"s0","t":1}', "close: of a publisher"),
        ('{"op":"outcome","p":"p0","n":1,"outcome":"fine","t":1}', "outcome: 'fine' is none of accepted"),
        ('{"op":"run","publishers":[{}],"subscribers":[],"t":1}', "run: publishers has an entry without a name"),
        ('{"op":"run","publishers":[{"name":"p"},{"name":"p"}],"subscribers":[],"t":1}', "run: publishers has p twice"),
        ('{"op":"run","publishers":[],"subscribers":[{"name":"s","guarantee":"some"}],"t":1}', "run: s: guarantee"),
    ],
)
def test_a_malformed_line_is_named_with_its_place(path: Path, line: str, complaint: str) -> None:
    path.write_text(f'{{"op":"note","text":"","t":1}}\n{line}\n{{"op":"note","text":"","t":2}}\n')
    with pytest.raises(HistoryError) as raised:
        ops(path)
    assert str(raised.value).startswith(f"p0.jsonl:2: {complaint}")


def test_files_are_read_together_by_time_then_file_then_line(tmp_path: Path) -> None:
    for name, times in (("b", (1, 3, 3)), ("a", (2, 3)), ("c", (0,))):
        lines = [json.dumps({"op": "note", "text": f"{name}{index}", "t": t}) for index, t in enumerate(times)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    assert [event.fields["text"] for event in read(tmp_path)] == ["c0", "b0", "a0", "a1", "b1", "b2"]


def test_no_directory_and_an_empty_one_are_no_history(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="no such directory"):
        files(tmp_path / "none")
    with pytest.raises(HistoryError, match=r"no \*\.jsonl in it"):
        files(tmp_path)


def test_every_event_is_explained_in_the_docs() -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "chaos.md").read_text()
    assert [op for op in FIELDS if f"`{op}`" not in page] == []
