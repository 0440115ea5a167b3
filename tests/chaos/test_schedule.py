"""Chaos schedules: what a file may say, and how its problems are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.live.faults import proxied, to_the_end
from chaos.live.schedule import EDGES, Fault, Schedule, Target
from chaos.live.schedule_files import DRAIN_S, find, library, load_schedule, loads
from onceway.topology import ConfigError

HEAD = """\
shows: something
topology: {routers: [a, b, c], links: [a - b, b - c]}
workload:
  publishers:
    - {name: p1, at: a, count: 10}
  subscribers:
    - {name: s1, at: b}
    - {name: s2, at: c, client: proton}
"""


def read(text: str) -> Schedule:
    return loads(text, Path("s.yaml"))


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(text)
    return str(caught.value).splitlines()


@pytest.mark.parametrize("path", library(), ids=lambda path: path.stem)
def test_every_schedule_of_the_library_loads_and_says_what_it_shows(path: Path) -> None:
    schedule = load_schedule(path)
    assert schedule.shows.endswith((".", ")."))
    assert schedule.faults
    assert len(schedule.subscribers) >= 2 or schedule.has_edges


def test_the_library_has_what_the_docs_promise() -> None:
    names = {path.stem for path in library()}
    assert {"accept_settle_window", "wan_7_percent", "subscriber_away", "rolling_restart", "two_hundred_kills"} <= names
    assert find("short") in library()


def test_each_edge_has_a_schedule_of_less_than_20_s_that_kills_routers() -> None:
    schedules = {path.stem: load_schedule(path) for path in library()}
    for edge in EDGES:
        schedule = schedules[f"edge_{edge}"]
        assert {client.client for client in schedule.clients} >= {edge}
        assert {fault.kind for fault in schedule.faults} == {"kill"}
        assert schedule.length_s < 20
        assert not schedule.long


def test_defaults_of_clients_and_faults() -> None:
    schedule = read(HEAD + "faults: [{at: 1s, fault: partition, on: trunk b - a}]\n")
    publisher, (subscriber, other) = schedule.publishers[0], schedule.subscribers
    assert (publisher.client, publisher.settle, publisher.rate, publisher.size) == ("onceway", "second", 100.0, 100)
    assert (subscriber.pause_s, subscriber.credit, other.client) == (0.0, 500, "proton")
    assert schedule.faults == (Fault("partition", (Target("trunk", "named", ("b", "a")),), 1.0),)
    assert (schedule.address, schedule.drain_s) == ("orders", DRAIN_S)


def test_a_shipped_topology_can_be_named_and_its_settings_changed() -> None:
    text = HEAD.replace("{routers: [a, b, c], links: [a - b, b - c]}", "{like: ring, settings: {heartbeat: 1s}}")
    schedule = read(text)
    assert schedule.routers == ("a", "b", "c", "d", "e")
    assert schedule.settings == {"heartbeat": "1s"}


def test_values_carry_seconds_bytes_and_counts() -> None:
    schedule = read(
        HEAD
        + "faults:\n"
        + "  - {at: 2s, fault: latency, on: any trunk, latency: 500ms, jitter: 1s, for: 3s, toxicity: 0.5}\n"
        + "  - {at: 1s, fault: kill, on: [router a, router b], back: 100ms, wait: ready, every: 1s, times: 3}\n"
        + "  - {at: 3s, fault: slicer, on: link s1 - b, average_size: 1KiB, delay: 0.1ms, stream: upstream}\n"
    )
    kill, latency, slicer = schedule.faults  # by time
    assert (latency.values, latency.for_s, latency.toxicity) == ({"latency": 0.5, "jitter": 1.0}, 3.0, 0.5)
    assert (kill.values, kill.every_s, kill.times, kill.wait, kill.last_s) == ({"back": 0.1}, 1.0, 3, True, 3.0)
    assert slicer.values == {"average_size": 1024, "delay": 0.0001}
    assert slicer.stream == "upstream"


def test_only_connections_that_a_fault_may_hit_go_through_proxies() -> None:
    def of(on: str) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        return proxied(read(HEAD + f"faults: [{{at: 1s, fault: down, on: {on}}}]\n"))

    assert proxied(read(HEAD + "faults: [{at: 1s, fault: kill, on: any router}]\n")) == ([], [])
    assert of("trunk c - b") == ([("b", "c")], [])
    assert of("router b") == ([("a", "b"), ("b", "c")], [])
    assert of("link s1") == ([], [("s1", "a"), ("s1", "b"), ("s1", "c")])
    assert of("link s1 - c") == ([], [("s1", "c")])
    assert len(of("any link")[1]) == 9


def test_a_fault_on_connections_without_an_end_lasts_as_long_as_there_are_faults() -> None:
    schedule = read(HEAD + "faults: [{at: 1s, fault: down, on: any trunk}, {at: 5s, fault: kill, on: router a}]\n")
    assert [fault.for_s for fault in to_the_end(schedule)] == [4.0, None]


def test_all_problems_of_a_file_come_at_once() -> None:
    text = (
        "shows: something\n"
        "topology: {routers: [a, b], links: [a - c]}\n"
        "workload:\n"
        "  publishers: [{name: p1, at: d, count: 1, duration: 1s}]\n"
        "  subscribers: [{name: p1, at: a, cliet: x}]\n"
        "faults:\n"
        "  - {at: 1, fault: kil, on: router a}\n"
        "  - {fault: kill, on: trunk a - b}\n"
    )
    assert problems(text) == [
        's.yaml:2: topology.links[0]: no router "c"; routers are a, b',
        's.yaml:4: workload.publishers[0].at: no router "d"; routers are a, b',
        "s.yaml:4: workload.publishers[0]: how much it publishes is said twice; "
        "give one, or none: until the faults are over",
        's.yaml:5: workload.subscribers[0]: unknown key "cliet"; did you mean "client"?',
        "s.yaml:5: workload.subscribers[0].name: p1 is there already, in line 4; give each client its name",
        's.yaml:7: faults[0].fault: no such choice: "kil"; did you mean "kill"?',
        "s.yaml:8: faults[1]: at is missing; add at: ...",
        "s.yaml:8: faults[1].on: no link between a and b; links are ",
    ]


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("{at: 1s, fault: kill, on: router x}", '.on: no router "x"; routers are a, b, c'),
        ("{at: 1s, fault: kill, on: client p2}", '.on: no client "p2"; clients are p1, s1, s2'),
        ("{at: 1s, fault: kill, on: trunk a - b}", ".on: kill on a trunk means nothing; kill is on a router or client"),
        ("{at: 1s, fault: latency, on: client p1, latency: 1s}", ".on: latency on a client means nothing; "),
        ("{at: 1s, fault: latency, on: any trunk}", ": latency is missing; add latency: ..."),
        ("{at: 1s, fault: stop, on: any router}", ": for is missing; add for: ..."),
        ("{at: 1s, fault: kill, on: any router, for: 1s}", ': unknown key "for"; '),
        ("{at: 1s, fault: kill, on: somebody}", '.on: "somebody" is no target; write for example router a'),
        ("{at: 1s, fault: kill, on: any body}", '.on: "any body" is no target; write any router'),
        ("{at: 1s, fault: down, on: trunk a - c}", ".on: no link between a and c; links are a - b, b - c"),
        ("{at: 1s, fault: down, on: trunk a}", '.on: "trunk a" is no trunk; '),
        ("{at: 1s, fault: partition, on: any trunk, toxicity: 2}", ".toxicity: 2 is out of range; write a number"),
        ("{at: 1s, fault: down, on: any trunk, stream: upstream}", ': unknown key "stream"; '),
        ("{at: 1s, fault: kill, on: any router, times: 3}", ": every and times go together; give both, or none"),
        ("{at: 1s, fault: kill, on: client s2, back: 1s}", ".on: s2 is a proton client, which has no journal"),
        (
            "{at: 1s, fault: down, on: any trunk, for: 2s, every: 1s, times: 2}",
            ".for: for 2s is not over when it comes again after 1s; make every longer than for",
        ),
        ("{at: 1s, fault: stop, on: router a, for: 2s, every: 1s, times: 2}", ".for: for 2s is not over when it comes"),
        ("{at: 1s, fault: stop, on: router a, for: 0s}", ".for: 0s is out of range; write a value from 1ms to 24h"),
        ("{at: 1s, fault: kill, on: router a, every: 0s, times: 2}", ".every: 0s is out of range; "),
        ("{at: 25h, fault: kill, on: router a}", ".at: 25h is out of range; "),
        ("{at: 1s, fault: kill, on: []}", ".on: no target; write for example router a"),
        ("{at: 1s, fault: bandwidth, on: any trunk, rate: 0B}", ".rate: 0B is out of range; write a value from 1000B"),
        ("{at: 1s, fault: garbage, on: any router, connections: 0}", ".connections: 0 is out of range; "),
    ],
)
def test_a_fault_that_means_nothing_is_told_with_place_and_remedy(fault: str, expected: str) -> None:
    lines = problems(HEAD + f"faults:\n  - {fault}\n")
    assert len(lines) == 1
    assert lines[0].startswith(f"s.yaml:10: faults[0]{expected}")


@pytest.mark.parametrize(
    ("part", "other", "expected"),
    [
        (
            "    - {name: p1, at: a, count: 10}\n",
            "    []\n",
            "workload.publishers: there is nobody; write a list of publi",
        ),
        (
            "  subscribers:",
            "  address: ''\n  subscribers:",
            "workload.address: an empty address; write a name, or leave",
        ),
        (
            "  subscribers:",
            "  drain: 0s\n  subscribers:",
            "workload.drain: 0s is out of range; write a value from 100ms",
        ),
        ("- b, b - c]", "- b, {between: [b, c], via: 5}]", "topology.links: via means nothing here; leave it out"),
    ],
)
def test_a_run_that_would_mean_nothing_is_told_with_place_and_remedy(part: str, other: str, expected: str) -> None:
    (line,) = problems(HEAD.replace(part, other))
    assert line.partition(": ")[2].startswith(expected)


def test_a_topology_without_routers_is_told() -> None:
    lines = problems("shows: x\ntopology: {routers: []}\nworkload: {publishers: [], subscribers: []}\n")
    assert lines[0] == "s.yaml:2: topology.routers: there are no routers; write a list of names"


def test_a_folder_of_its_runs_does_not_hide_a_schedule_of_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "short").mkdir()
    monkeypatch.chdir(tmp_path)
    assert find("short") in library()


def test_a_schedule_that_is_not_there_names_the_library(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be read .*; give the path of a schedule, or one of the library: "):
        load_schedule(tmp_path / "none.yaml")
