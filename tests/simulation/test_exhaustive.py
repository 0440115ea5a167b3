"""Everything that can happen in the smallest worlds: they are gone through, and what is wrong there is found."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from amqp10.outcomes import Error, Rejected
from amqp10.reading import Reader
from amqp10.types import Symbol, UInt, ULong
from chaos.simulate import main
from chaos.simulation.defects.mutations import MUTATIONS, caught
from chaos.simulation.defects.taking import defective
from chaos.simulation.exhaustive.exploration import Search, agree
from chaos.simulation.exhaustive.normalization import AS_IF
from chaos.simulation.exhaustive.processes import RouterProcess
from chaos.simulation.exhaustive.product import MutableState, Product
from chaos.simulation.exhaustive.smallest import ACROSS, WORLDS, Setting
from chaos.simulation.exhaustive.snapshots import Snapshots
from chaos.simulation.random.explore import explore
from chaos.simulation.world.clients import MEMORY, PLAIN, UNIQUE

RESTART = pytest.param("restart-1-one", marks=pytest.mark.long)
LARGER = [pytest.param(name, marks=pytest.mark.long) for name in ("half-open-1-one", "drops-1-one", "crash-1-one")]


def test_smallest_world_is_gone_through_completely(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--exhaustive", "--world", "calm,trunk-1-one,queue-calm,queue-group,large-calm"]) == 0
    first, head, calm, trunk, queue, group, large, summary, rerun = capsys.readouterr().out.splitlines()
    assert group.endswith("completely; 20 paths in whole worlds, too")
    assert large.endswith("completely; 2 paths in whole worlds, too")
    assert re.match(
        r"5 worlds; options --world calm,trunk-1-one,queue-calm,queue-group,large-calm, --jobs 1; commit \S+$", first
    )
    assert head.split()[:6] == ["world", "states", "transitions", "merged", "depth", "quiet"]
    assert queue.endswith("completely; 13 paths in whole worlds, too")
    for line in (calm, trunk):
        assert line.endswith("completely; 20 paths in whole worlds, too")
    assert int(trunk.split()[1]) > 300
    assert re.match(r"5 worlds, 5 gone through completely, 0 cut, 0 violations, ", summary)
    assert (
        rerun
        == "rerun: python -m chaos.simulate --exhaustive --world calm,trunk-1-one,queue-calm,queue-group,large-calm"
    )


def test_world_that_is_cut_says_how_far_it_was_gone_through(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("chaos.simulation.exhaustive.exploration.SAMPLED", 3)
    assert main(["--exhaustive", "--world", "calm", "--crashes", "1", "--drops", "1", "--limit-states", "200"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert re.search(r"to depth \d+, \d+ situations left, 3 of them drained$", lines[2])
    assert "0 gone through completely, 1 cut, 0 violations" in lines[-2]


def figures(text: str) -> list[list[str]]:
    """Of each world, but for the seconds."""
    return [line.split()[:7] + line.split()[8:] for line in text.splitlines()[2:-2]]


def test_same_worlds_have_the_same_figures_in_any_process(capsys: pytest.CaptureFixture[str]) -> None:
    """Here after other tests and twice, and in a new program that shares the work with another process."""
    worlds = "trunk-1-one,calm"
    argv = [sys.executable, "-m", "chaos.simulate", "--exhaustive", "--world", worlds, "--jobs", "2"]
    alone = figures(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)
    assert [words[0] for words in alone] == worlds.split(",")
    explore(11)
    for world in (worlds, worlds.partition(",")[2]):
        assert main(["--exhaustive", "--world", world]) == 0
        assert figures(capsys.readouterr().out) == alone[-1 - world.count(",") :]


def test_situations_are_the_same_whatever_is_one_object() -> None:
    """Equal values, made apart or once, nested, in sets in another order; but two lists are not one list."""

    def situation(number: int, text: str, twice: bool) -> list[Any]:
        def value() -> Any:
            name = "".join(text)
            error = Error(Symbol(name), name + "!")
            return (name, (ULong(number), name.encode()), Rejected(error), frozenset((name, number)), number + 0.5)

        def numbers(start: int) -> set[int]:
            made = {start}
            made |= {1, 9, 17}  # which collide, so that they come in the order in which they went in
            return made

        one = value()
        return [one, value() if twice else one, numbers(17 if twice else 1)]

    snapshots = Snapshots()
    apart, once = situation(1000, "orders", True), situation(1000, "orders", False)
    assert apart[0] is not apart[1]
    assert list(apart[2]) != list(once[2])
    assert snapshots.number(apart) == snapshots.number(once)
    for other in (situation(1001, "orders", False), situation(1000, "order", False), [*once[:2], [1, 9, 17]]):
        assert snapshots.number(other) != snapshots.number(once)
    same: list[int] = []
    assert snapshots.number([same, same]) != snapshots.number([[], []])
    assert snapshots.number([UInt(1)]) != snapshots.number([ULong(1)]) != snapshots.number([1])


def test_connection_before_the_end_of_sasl_asks_the_router_of_its_own_snapshot() -> None:
    product = Product(WORLDS["calm"])
    snapshots = product.locals.routers
    begun = product.locals.start("A", 1, True, 0.0, 0).number
    processes = [snapshots.load(begun) for _ in range(2)]
    for process in processes:
        process.servers["p0", 0] = process.router.connect(0.0)
    numbers = [snapshots.number(process) for process in processes]
    assert numbers[0] == numbers[1] != begun
    loaded = snapshots.load(numbers[0])
    assert loaded.servers["p0", 0].connection.settings.per_user.func.__self__ is loaded.router.offers


def test_long_search_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("chaos.simulate.EVERY_S", 0.0)
    assert main(["--exhaustive", "--world", "trunk-1-one"]) == 0
    told = [
        re.fullmatch(r"\d+ s: (\d+) states, depth (\d+), (\d+) left", x) for x in capsys.readouterr().err.splitlines()
    ]
    assert len(told) >= 2
    states = [int(each[1]) for each in told if each is not None]
    assert len(states) == len(told)
    assert states == sorted(set(states))


def quiet_situations(setting: Setting, reduce: bool = True) -> tuple[set[tuple[object, ...]], int, int]:
    """Of each: what is under way, who is connected where, what is left of faults; how many there were of these, and of
    states."""
    search = Search(setting, reduce=reduce)
    result = search.run()
    assert result.complete
    product = search.product
    found = set()
    for place in search.quiet:
        draft = MutableState(product, search.state(place))
        seen = product.view(search.state(place))
        found.add((str(seen.inboxes), str(seen.pipes), draft.rest))
    assert len(search.quiet) == result.quiet
    return found, result.quiet, result.states


@pytest.mark.parametrize(
    "name",
    ["calm", "calm-2", "trunk-1-one", RESTART, *LARGER],
)
def test_what_is_left_out_leads_nowhere_else(name: str) -> None:
    """Persistent sets: every quiet situation is found without trying every order."""
    *reduced, few = quiet_situations(WORLDS[name], True)
    *whole, many = quiet_situations(WORLDS[name], False)
    assert reduced == whole
    assert few < many


@pytest.mark.parametrize("name", ["trunk-1-one", "calm-2", RESTART, *LARGER])
def test_what_snapshots_say_nothing_of_leads_nowhere_else(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found, _, few = quiet_situations(WORLDS[name])
    for kind in AS_IF:
        if kind is not Reader:  # what it has learnt cannot be written down
            monkeypatch.setitem(AS_IF, kind, lambda _: {})
    monkeypatch.setattr(RouterProcess, "arrange", lambda _: None)
    whole, _, many = quiet_situations(WORLDS[name])
    assert found == whole
    assert few < many


@pytest.mark.parametrize(
    "setting",
    [
        replace(WORLDS["crash-2-drop-of-2"], faults={"crash": 2, "cdrop": 2, "rdrop": 1, "srestart": 1}),
        Setting((UNIQUE,), (PLAIN,), places=ACROSS, faults={"crash": 2, "cdrop": 1}),
        Setting((MEMORY,), (MEMORY,), places=ACROSS, faults={"crash": 1, "cdrop": 1}),
        Setting(places=ACROSS, faults={"cut": 2, "cdrop": 1}, strict=False),
    ],
    ids=["recovering", "plain", "memory", "trunk"],
)
def test_situations_put_together_look_like_whole_worlds(setting: Setting) -> None:
    """Random paths, faults and time among them, after each event."""
    product = Product(setting)
    for seed in range(3):
        rng = random.Random(seed)
        state, path = product.begin()
        path = list(path)
        for _ in range(60):
            possible = product.progress(state) + product.faults(state) or [("pause",)]
            event = rng.choice(possible)
            state = product.step(state, event)
            path.append(event)
        agree(setting, product, path, rng)


@pytest.mark.parametrize(
    ("defect", "world", "fault", "end"),
    [
        (
            "condition_orphan_is_covered_nowhere",
            "restart-1-one",
            "restarts from its journal",
            "G1 ('p0', 0) is accepted",
        ),
        pytest.param(
            "unresolved_not_listed",
            "drops-1-one",
            "loses its connection to",
            "G4 left over: p0 unsettled",
            marks=pytest.mark.long,
        ),
    ],
)
def test_rule_taken_away_is_found_told_and_drawn(
    defect: str, world: str, fault: str, end: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with defective(MUTATIONS[defect].patches):
        assert main(["--exhaustive", "--world", world, "--out", str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "1 violations" in lines[-2]
    rows = [line for line in lines if re.match(r" *\d+ +\d+\.\d{4} ", line)]
    assert any(f"! s0         {fault}" in row for row in rows)
    assert re.search(rf" = +{re.escape(end)}", rows[-1])
    assert not any("in the whole world this ends well" in line for line in lines)
    (drawn,) = tmp_path.glob(f"world-{world}.svg")
    assert f"diagram: {drawn}" in lines
    assert fault in " ".join(ET.parse(drawn).getroot().itertext())


def test_defect_that_does_nothing_here_is_gone_through_like_the_code_itself() -> None:
    """Its body has a name of its own, and is among a router's handlers: snapshots must find it again."""
    calm = Search(WORLDS["calm"]).run()
    with defective(MUTATIONS["condition_orphan_is_covered_nowhere"].patches):
        found = Search(WORLDS["calm"]).run()
    assert found.complete
    assert (found.states, found.transitions) == (calm.states, calm.transitions)


def test_defect_is_said_to_be_caught_by_the_world_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chaos.simulation.defects.mutations.BY_SEED", {})  # where no seed finds it any more
    found = caught(MUTATIONS["condition_orphan_is_covered_nowhere"])
    assert found == "world restart-1-one: G1 ('p0', 0) is accepted but s0 has not accepted it"
