"""The report: figures over time as the history has them, on a page that needs nothing else."""

from __future__ import annotations

import random
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner

from chaos.judge.history import read
from chaos.judge.judge import judge
from chaos.live.cli import command
from chaos.live.drawing import clock, clock_step, draw, duration
from chaos.live.report import times_text, write_report
from chaos.live.timeline import Latencies, Timeline, Watcher, nice_step
from tests.chaos.histories import CASES, Case, History

VOID = {"meta"}


class Page(HTMLParser):
    """Text, and whether all that was opened was closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.tags: set[str] = set()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.words.append(data)

    @property
    def text(self) -> str:
        return "\n".join(self.words)


def written(directory: Path) -> str:
    return write_report(directory).read_text()


def figures(history: History) -> Timeline:
    history.close()
    watcher = Watcher(judge(history.directory).facts.seconds)
    for event in read(history.directory):
        watcher.take(event)
    return watcher.timeline


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_kind_of_run_has_a_page_with_its_verdict_and_reasons(case: Case, tmp_path: Path) -> None:
    page = Page(written(case.build(tmp_path)))
    assert page.open == []
    assert case.verdict in page.words
    for finding in judge(tmp_path).findings:
        assert finding.text in page.words


def test_the_page_needs_no_network_and_no_script(tmp_path: Path) -> None:
    text = written(CASES[0].build(tmp_path))
    assert not re.search(r"https?:|url\(|@import|\bsrc=|<link|<script", text)
    assert {"style", "svg", "table"} <= Page(text).tags


def test_the_page_says_how_to_run_it_again(tmp_path: Path) -> None:
    assert "onceway chaos run made up --seed 1" in Page(written(CASES[0].build(tmp_path))).text


def test_a_schedule_that_is_not_the_librarys_is_run_again_from_the_runs_copy(tmp_path: Path) -> None:
    directory = CASES[0].build(tmp_path)
    copy = directory / "schedule.yaml"
    copy.write_text("shows: something\n")
    assert f"onceway chaos run {copy} --seed 1" in Page(written(directory)).text


def test_names_from_the_history_are_text_on_the_page(tmp_path: Path) -> None:
    name = "<script>&amp;"
    history = History(tmp_path, [name], [name])
    history.write("s", "ready", s=name)
    history.fault("kill", f"router {name}")
    history.write("p", "send", p=name, n=0).write("s", "receive", s=name, p=name, n=0).end().close()
    page = Page(written(tmp_path))
    assert "script" not in page.tags
    assert name in page.words


def test_a_run_without_any_event_has_a_page(tmp_path: Path) -> None:
    History(tmp_path).close()
    assert "latency: nothing was received" in Page(written(tmp_path)).text


def test_the_command_writes_where_it_is_told_and_exits_as_the_judge(tmp_path: Path) -> None:
    violated = next(case for case in CASES if case.verdict == "violated").build(tmp_path)
    out = tmp_path / "page.html"
    result = CliRunner().invoke(command, ["report", str(violated), "--out", str(out)])
    assert (result.exit_code, result.output) == (1, f"{out}\n")
    assert out.stat().st_size > 1_000
    assert CliRunner().invoke(command, ["report", str(tmp_path / "none")]).exit_code == 2


def test_latency_runs_from_send_to_receive(tmp_path: Path) -> None:
    history = History(tmp_path).ready()
    for n in range(100):
        history.send(n).later(0.099).take(n)
    found = figures(history.end())
    assert found.latencies.count == 100
    assert found.latencies.percentile(50) == pytest.approx(0.1, rel=0.05)
    assert found.latencies.most == pytest.approx(0.1)
    assert sum(stretch.received for stretch in found.stretches) == 100
    assert found.subscribers["s0"].received == 100


def test_recovery_of_a_killed_routers_subscriber_ends_at_the_next_router(tmp_path: Path) -> None:
    history = (
        History(tmp_path, subscribers=("s0", "s1")).attached("s0", "a").attached("s1", "b").ready("s0").ready("s1")
    )
    history.send(0, 3).fault("kill", "router a").later(0.049).receive(0)  # what was under way still comes
    history.later(0.248).attached("s0", "b").receive(1).receive(2)
    (fault,) = figures(history.end()).faults
    assert list(fault.recovered) == ["s0"]  # s1 is at b
    assert fault.recovered["s0"] == pytest.approx(0.300)
    assert fault.pauses["s0"] == pytest.approx(0.250)
    assert fault.until == fault.at


def test_a_fault_that_is_nobodys_own_concerns_every_subscriber(tmp_path: Path) -> None:
    history = History(tmp_path, subscribers=("s0", "s1", "s2")).ready("s0").ready("s1").ready("s2")
    history.send(0).fault("partition", "trunk a - b", until=history.now + 1.0).later(0.499).receive(0).receive(
        0, s="s1"
    )
    (fault,) = figures(history.end()).faults
    assert fault.recovered == {"s0": pytest.approx(0.5), "s1": pytest.approx(0.501)}
    assert list(fault.waiting) == ["s2"]
    assert fault.until - fault.at == pytest.approx(0.999)


def test_a_pause_belongs_to_the_fault_before_it(tmp_path: Path) -> None:
    history = History(tmp_path).ready().send(0, 9)
    history.receive(0).fault("kill", "router x").later(0.099).receive(1)
    history.fault("kill", "router y").later(0.299).receive(2).later(8).receive(3).later(20).receive(4).later(
        30
    ).receive(5)
    first, second = figures(history.end()).faults
    assert first.pauses["s0"] == pytest.approx(0.1)
    assert second.pauses["s0"] == pytest.approx(20.001)  # it began within 10 s; the next one did not


def test_a_fault_that_lasts_keeps_its_pauses_when_another_comes(tmp_path: Path) -> None:
    history = History(tmp_path).ready().send(0, 9)
    history.receive(0).fault("stop", "client s0", until=history.now + 2).later(0.5).fault("kill", "router y")
    history.later(1.498).receive(1)
    stop, kill = figures(history.end()).faults
    assert stop.pauses["s0"] == pytest.approx(2.0)
    assert kill.pauses["s0"] == pytest.approx(1.499)


def test_a_router_is_drawn_as_gone_until_it_is_ready(tmp_path: Path) -> None:
    history = History(tmp_path).fault("kill", "router a").write("run", "router", name="a", state="gone", pid=1)
    history.later(0.5).write("run", "router", name="a", state="ready", pid=2).end()
    ((router, gone, back),) = figures(history).downs
    assert (router, back) == ("a", pytest.approx(gone + 0.501))
    assert "router a gone at" in Page(written(tmp_path)).text


def test_the_drawing_begins_where_something_happens(tmp_path: Path) -> None:
    history = History(tmp_path).later(17).ready().send(0).receive(0).later(10).send(1).receive(1).end()
    ticks = re.findall(r">([0-9]+) s</text>", draw(figures(history)))
    assert ticks[0] != "0"
    assert int(ticks[0]) <= 17 < int(ticks[1])


def test_ninety_percent_are_no_fewer_than_half(tmp_path: Path) -> None:
    history = History(tmp_path, subscribers=("s0", "s1")).attached("s0", "a").attached("s1", "a").ready("s0")
    history.ready("s1").send(0, 2).fault("kill", "router a").later(0.1).attached("s0", "b").receive(0)
    history.later(0.5).attached("s1", "b").receive(0, s="s1").end().close()
    page = written(tmp_path)
    row = page[page.index("Recovery from kills") :]
    cells = re.findall(r'<td class="n">([^<]*)</td>', row)
    assert cells[3] == cells[4]  # of two, nine in ten are both


def test_percentiles_are_within_five_percent() -> None:
    rng = random.Random(7)
    times = sorted(rng.expovariate(10) + 1e-4 for _ in range(5_000))
    latencies = Latencies()
    for time in times:
        latencies.add(time)
    for percent in (1, 50, 90, 99, 99.9):
        assert latencies.percentile(percent) == pytest.approx(times[int(len(times) * percent / 100) - 1], rel=0.05)
    assert latencies.percentile(100) == latencies.most == times[-1]
    assert Latencies().percentile(50) == 0.0


def test_steps_of_axes_are_round() -> None:
    assert [nice_step(seconds, 10) for seconds in (0.7, 9, 17, 32, 100)] == [0.1, 1.0, 2.0, 5.0, 10.0]
    assert [clock_step(seconds) for seconds in (12, 149, 300, 510, 3_000, 40_000)] == [2.0, 20.0, 30, 60, 300, 7200]


def test_times_are_said_in_few_words() -> None:
    assert [duration(seconds) for seconds in (0.0012, 0.0123, 0.9, 1.5)] == ["1.2 ms", "12 ms", "900 ms", "1.50 s"]
    assert [clock(20), clock(200), clock(3_725), clock(0, 600)] == ["20 s", "3:20", "1:02:05", "0:00"]
    assert times_text({"b": 1.5, "a": 0.003}, none=["c"]) == "a 3.0 ms, b 1.50 s; c none"
    assert times_text({str(number): float(number + 1) for number in range(7)}) == "median 4.00 s, 6 7.00 s"
    assert times_text({}) == "–"
