"""`python -m chaos.simulate`: what it says, and how it ends."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from chaos.simulate import main
from chaos.simulation.defects.mutations import AT_RANDOM, BY_SEED, MUTATIONS, Mutation, caught
from chaos.simulation.defects.taking import defective
from chaos.simulation.random.explore import explore
from chaos.simulation.random.plan import FAMILIES, TOPOLOGIES, families_on, family_of
from router.core.core import Core

BAD = (
    ["--seeds", "5-2"], ["--seeds", "7"], ["--seed", "x"], ["--seconds", "0"], ["--seconds", "nan"], ["--jobs", "0"],
    ["--topology", "torus"], ["--family", "kind"], ["--seed", "1", "--seeds", "1-2"],
    ["--family", "apart", "--topology", "ring"], ["--mutations", "--seconds", "3"], ["--mutations", "--topology", "ring"],
    ["--exhaustive", "--world", "nowhere"], ["--exhaustive", "--seeds", "0-5"], ["--exhaustive", "--crashes", "9"],
    ["--exhaustive", "--mutations"], ["--exhaustive", "--limit-states", "0"], ["--crashes", "1"], ["--world", "calm"],
)  # fmt: skip


# Those that have a schedule of their own are caught by it, too (`test_rules_taken_away`, `test_real_clients`).
SEEDED = [
    pytest.param(name, marks=pytest.mark.long) if number % 3 and MUTATIONS[name].schedule is not None else name
    for number, name in enumerate(sorted(BY_SEED))
]


def test_where_every_guarantee_holds_it_says_what_it_ran_and_how_to_run_it_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--seeds", "0-5", "--topology", "star"]) == 0
    first, summary, rerun = capsys.readouterr().out.splitlines()
    assert re.match(r"seeds 0-5; options --topology star, --jobs 1; commit \S+$", first)
    families = ", ".join(rf"{name} \d" for name in sorted({family_of(seed, "star") for seed in range(6)}))
    assert re.match(
        rf"6 schedules \({families}\), \d+ events, \d+ s, \d+ schedules per CPU second, 0 violations$", summary
    )
    assert rerun == "rerun: python -m chaos.simulate --seeds 0-5 --topology star"


@pytest.mark.parametrize("arguments", BAD, ids=" ".join)
def test_bad_options_end_with_2_and_a_reason(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    assert "error: " in capsys.readouterr().err


def test_violation_is_shrunk_told_and_drawn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Core, "may_accept", lambda self, *arguments: True)
    assert main(["--seed", "10", "--family", "all-die", "--out", str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "rerun: python -m chaos.simulate --seed 10 --family all-die"
    assert lines[-2].endswith(" 1 violations")
    rows = [line for line in lines if re.match(r" *\d+ +\d+\.\d{4} ", line)]
    assert len(rows) < 60
    assert any("! A          dies" in row for row in rows)
    assert "= " in rows[-1]
    assert "G1 ('p0', 0) is accepted but s0 has not accepted it" in rows[-1]
    (drawn,) = tmp_path.glob("*.svg")
    assert f"diagram: {drawn}" in lines
    told = " ".join(ET.parse(drawn).getroot().itertext())
    for words in ("dies", "transfer p0:0", "disposition 0 accepted", "G1 ('p0', 0)"):
        assert words in told


def test_every_topology_has_families_and_every_family_a_topology() -> None:
    assert {name for topology in TOPOLOGIES for name in families_on(topology)} == set(FAMILIES)
    for topology in TOPOLOGIES:
        assert {family_of(seed, topology) for seed in range(len(FAMILIES))} == set(families_on(topology))


def test_each_deliberate_defect_is_told_with_what_caught_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    harmless = Mutation("harmless", ((Core, "may_accept", Core.may_accept),), "G1", family="all-die")
    some = [MUTATIONS["stale_ingress_overtaken"], MUTATIONS["accepts_before_it_knows_anything"]]
    monkeypatch.setattr("chaos.simulate.MUTATIONS", {each.name: each for each in some})
    monkeypatch.setattr("chaos.simulation.defects.mutations.BY_SEED", {})
    assert main(["--mutations", "--seed", "10"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("caught stale_ingress_overtaken by schedule stale_ingress_overtaken: G1 ")
    assert lines[2].startswith("caught accepts_before_it_knows_anything by seed 10: G1 ")
    assert lines[-1] == "rerun: python -m chaos.simulate --mutations --seeds 10-10"
    monkeypatch.setattr("chaos.simulate.MUTATIONS", {"harmless": harmless})
    assert main(["--mutations", "--seed", "10"]) == 1
    assert "MISSED harmless" in capsys.readouterr().out.splitlines()


def test_at_least_twenty_deliberate_defects_leave_no_trace_behind() -> None:
    assert len(MUTATIONS) >= 20
    for mutation in MUTATIONS.values():
        before = [getattr(owner, method) for owner, method, _ in mutation.patches]
        with defective(mutation.patches):
            for owner, method, body in mutation.patches:
                assert getattr(owner, method) is body
        assert [getattr(owner, method) for owner, method, _ in mutation.patches] == before


@pytest.mark.parametrize("name", SEEDED)
def test_defect_is_caught_by_a_random_schedule_that_holds_without_it(name: str) -> None:
    found = caught(MUTATIONS[name])
    assert found is not None
    told = re.match(r"seed (\d+): .* \(--family (\S+)\)$", found)
    assert told is not None, found
    assert explore(int(told[1]), told[2])[1] is None


@pytest.mark.parametrize("name", AT_RANDOM)
def test_defect_that_any_schedule_may_run_into_is_caught_at_random(name: str) -> None:
    assert caught(MUTATIONS[name]) is not None
