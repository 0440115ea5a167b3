"""The linter's contract of circles (scripts/circles.py)."""

from __future__ import annotations

from grimp import ImportGraph

from scripts.circles import Circles, largest_circle


def test_a_circle_of_four_is_told_and_one_of_three_may_be() -> None:
    graph = ImportGraph()
    for module in ("p", "p.a", "p.b", "p.c", "p.d", "p.e", "p.f", "q", "q.a", "q.b", "q.c"):
        graph.add_module(module)
    for package, imports in {"p": ("ab", "bc", "cd", "da", "ae", "ef", "fe"), "q": ("ab", "bc", "ca")}.items():
        for importer, imported in imports:
            graph.add_import(importer=f"{package}.{importer}", imported=f"{package}.{imported}")
    assert largest_circle(graph, "p") == ["p.a", "p.b", "p.c", "p.d"]
    check = Circles("", {}, {"packages": ["p", "q"]}).check(graph, verbose=False)
    assert check.metadata["wrong"] == ["p: 4 modules are a circle, 3 may be: p.a, p.b, p.c, p.d"]
