"""The bench programs, with a few messages each: that they run and count right, not what they measure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench import compare, core, engine, interrouter, kill, links, memory, mqtt, unsettled
from bench.load import GeneratorsMissing, Load, built
from bench.peers import DEFINITIONS


@pytest.fixture(scope="module", autouse=True)
def _generators() -> None:
    try:
        built("amqp")
    except GeneratorsMissing as problem:
        pytest.skip(str(problem))


def measured(tmp_path: Path, table: str, *options: str) -> dict[str, dict[str, Any]]:
    """The rows of a comparison with Onceway alone, by column."""
    found = tmp_path / "figures.json"
    arguments = ["--peers", "onceway", "--routers", "1", "--settle", "0", "--json", str(found), *options]
    assert compare.main(arguments, [table]) == 0
    return {row["column"]: row for row in json.loads(found.read_text())}


def test_every_subscriber_gets_every_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = measured(tmp_path, "compare", "--count", "320")
    assert {column: (row["load"]["count"], row["received"]) for column, row in rows.items()} == {
        "1": (320, 320),
        "4": (80, 320),
        "16": (20, 320),
        "200": (1, 200),
    }
    for row in rows.values():
        assert row["faults"] == {}
        assert 0 < row["latency_p50_ms"] <= row["latency_p99_ms"]
    table = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert [line.split("|")[1].strip() for line in table[2:]] == ["Onceway, one router"]


def test_mqtt_listener_is_measured_as_brokers_are(tmp_path: Path) -> None:
    try:
        built("mqtt")
    except GeneratorsMissing as problem:
        pytest.skip(str(problem))
    row = measured(tmp_path, "compare", "--peers", "onceway-mqtt", "--columns", "4", "--count", "80")["4"]
    assert (row["peer"], row["received"], row["faults"]) == ("Onceway, MQTT QoS 2", 80, {})


def test_figures_are_written_between_the_marks_of_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readme = tmp_path / "README.md"
    (begin, end), others = compare.marks("queue"), "kept\n".join(compare.marks("table"))
    readme.write_text(f"before\n{begin}old\n{end}{others}after\n")
    monkeypatch.setattr(compare, "README", readme)
    rows = measured(tmp_path, "queue", "--readme", "--columns", "topic 10,4 consumers 10,filter 10", "--count", "40")
    assert {row["received"] for row in rows.values()} == {40}
    assert not any(row["faults"] for row in rows.values())
    text = readme.read_text()
    assert (text.split()[0], "old" in text, text.endswith(f"{end}{others}after\n")) == ("before", False, True)
    shown = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("|")]
    assert shown[2:] == ["topic 10", "filter 10", "4 consumers 10"]


def test_every_topic_has_a_publisher_and_a_subscriber(tmp_path: Path) -> None:
    row = measured(tmp_path, "wide", "--columns", "10", "--count", "400")["10"]
    assert (row["load"]["topics"], row["load"]["count"], row["received"]) == (40, 10, 400)


def test_bodies_keep_their_size(tmp_path: Path) -> None:
    # and through TLS as a user with a certificate
    row = measured(tmp_path, "bodies", "--columns", "1 MB", "--count", "20", "--security", "mutual")["1 MB"]
    assert (row["load"]["body"], row["received"]) == (1_000_000, 20)


def test_a_rate_is_not_exceeded(tmp_path: Path) -> None:
    row = measured(tmp_path, "latency", "--columns", "1 topic 1000/s", "--count", "300")["1 topic 1000/s"]
    assert 0 < row["messages_per_s"] < 1_100


def test_a_peer_that_is_not_there_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nowhere = [option for name in DEFINITIONS for option in (f"--{name}", str(tmp_path / "none"))]
    assert compare.main(["--peers", ",".join(DEFINITIONS), *nowhere]) == 0
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(" left out: ")[0] for line in said] == [d.label for d in DEFINITIONS.values()]


def test_generators_that_cannot_be_built_say_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("bench.load.BUILD", tmp_path)
    monkeypatch.setattr("bench.load.LIBRARIES", {"amqp": ("no-such-library", "no-such-library-dev")})
    built.cache_clear()
    with pytest.raises(GeneratorsMissing, match="apt-get install no-such-library-dev"):
        built("amqp")
    built.cache_clear()


def test_mqtt_generators_build() -> None:
    try:
        load = Load("127.0.0.1:1", "127.0.0.1:1", "bench", kind="mqtt", qos=1)
        assert Path(load.publish()[0]).is_file()
    except GeneratorsMissing as problem:
        pytest.skip(str(problem))


@pytest.mark.parametrize("subject", unsettled.SIZES)
def test_nothing_is_lost_beside_what_is_unsettled_idle_or_stalled(subject: str, tmp_path: Path) -> None:
    found = tmp_path / "rows.json"
    options = ["--sizes", "20", "--count", "500", "--rounds", "1", "--json", str(found)]
    unsettled.main(["--only", subject, *options])
    (row,) = json.loads(found.read_text())
    assert (row["subject"], row["beside"]) == (subject, 20)
    assert not any(row["faults"].values())


def test_filters_and_queues_are_measured_beside_a_topic(capsys: pytest.CaptureFixture[str]) -> None:
    assert links.main(["--messages", "100", "--rounds", "1"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["us", "per", "delivery,", "in", "batches", "of", "1", "10", "50"]
    assert [row[:32].strip() for row in rows] == list(links.CASES)
    assert rows[0].count("(1.00)") == 3


def test_dynamic_nodes_are_measured_in_two_routers(capsys: pytest.CaptureFixture[str]) -> None:
    assert links.main(["--nodes", "20", "--messages", "200"]) == 0
    rows = capsys.readouterr().out.splitlines()[1:]
    before, _, beside, _, after = (row[:30].strip() for row in rows)
    assert (before, beside, after) == ("request and reply, 1 node", "request and reply, 20 more", before)


def test_routers_forget_what_is_settled(capsys: pytest.CaptureFixture[str]) -> None:
    assert memory.main(["--runs", "1", "--routers", "1", "--subs", "2", "--count", "100"]) == 0
    assert "nothing left behind" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("program", "options", "rows"),
    [(core, ["--messages", "200"], 11), (engine, ["--seconds", "0", "--only", "ranges"], 3), (mqtt, ["--seconds", "0", "--only", "QoS 2 out"], 2), (interrouter, ["--seconds", "0.01"], 11)],
)  # fmt: skip
def test_programs_without_sockets_print_their_table(
    program: Any, options: list[str], rows: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main(options) == 0
    assert len(capsys.readouterr().out.splitlines()) == rows


def test_what_a_kill_has_lost_and_repeated_is_counted() -> None:
    assert kill.tally(range(5), [0, 1, 1, 4, 3, 0]) == (5, 1, 2, 1)
