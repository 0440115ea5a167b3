"""The linter's contract of circles (scripts/circles.py)."""

from __future__ import annotations

from grimp import ImportGraph

from scripts.circles import Circles, largest_circle


def test_a_circle_larger_than_its_figure_and_a_figure_larger_than_its_circle_are_told() -> None:
    graph = ImportGraph()
    for module in ("p", "p.a", "p.b", "p.c", "p.d", "p.e", "p.f", "q"):
        graph.add_module(module)
    for importer, imported in ("ab", "bc", "cd", "da", "ae", "ef", "fe"):
        graph.add_import(importer=f"p.{importer}", imported=f"p.{imported}")
    assert largest_circle(graph, "p") == ["p.a", "p.b", "p.c", "p.d"]
    told = {}
    for figure in (3, 4, 5):
        contract = Circles("", {}, {"largest": [f"p {figure}"]})
        told[figure] = contract.check(graph, verbose=False).metadata["wrong"]
    assert told[3] == ["p: 4 modules are a circle, 3 may be: p.a, p.b, p.c, p.d"]
    assert told[4] == []
    assert told[5] == ["p: the largest circle has 4 modules: say so instead of 5"]
