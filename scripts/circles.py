"""A contract for import-linter: how many modules of a package may be one circle.

A circle is a set of modules each of which imports each other one, at once or through others; imports for types count.
"""

from __future__ import annotations

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output

MOST = 3


class Circles(Contract):
    packages = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """No circle within one of these packages has more than `MOST` modules."""
        circles = {str(package): largest_circle(graph, str(package)) for package in self.packages}
        wrong = [
            f"{package}: {len(circle)} modules are a circle, {MOST} may be: {', '.join(circle)}"
            for package, circle in circles.items()
            if len(circle) > MOST
        ]
        return ContractCheck(kept=not wrong, metadata={"wrong": wrong})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for line in check.metadata["wrong"]:
            output.print_error(line)


def largest_circle(graph: ImportGraph, package: str) -> list[str]:
    """The modules of the package's largest circle, sorted; one if there is none."""
    above = {module: graph.find_upstream_modules(module) for module in graph.find_descendants(package)}
    circles = [[one, *(each for each in above if each in seen and one in above[each])] for one, seen in above.items()]
    return sorted(max(circles, key=len))
