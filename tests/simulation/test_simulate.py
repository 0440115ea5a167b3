"""`python -m chaos.simulate`: what it says, and how it ends."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from chaos.simulate import main
from chaos.simulation.explore import FAMILIES, TOPOLOGIES, families_on, family_of
from router.ingress import Ingress

BAD = (
    ["--seeds", "5-2"], ["--seeds", "7"], ["--seed", "x"], ["--seconds", "0"], ["--seconds", "nan"], ["--jobs", "0"],
    ["--topology", "torus"], ["--family", "kind"], ["--seed", "1", "--seeds", "1-2"],
    ["--family", "apart", "--topology", "ring"],
)  # fmt: skip


def test_where_every_guarantee_holds_it_says_what_it_ran_and_how_to_run_it_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--seeds", "0-5", "--topology", "star"]) == 0
    first, summary, rerun = capsys.readouterr().out.splitlines()
    assert re.match(r"seeds 0-5; options --topology star, --jobs 1; commit \S+$", first)
    assert re.match(r"6 schedules, \d+ events, \d+ schedules/s, 0 violations$", summary)
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
    monkeypatch.setattr(Ingress, "_may_accept", lambda self, *arguments: True)
    assert main(["--seed", "37", "--family", "all-die", "--out", str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "rerun: python -m chaos.simulate --seed 37 --family all-die"
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
        assert {family_of(seed, topology) for seed in range(12)} == set(families_on(topology))
