"""A contract for import-linter: how many modules of a package may be one circle.

A circle is a set of modules each of which imports each other one, at once or through others; imports for types count. A
figure above `MOST` is what is left to untie, so it has to follow when the circle becomes smaller. Figures:
`[tool.importlinter]` in pyproject.toml.
"""

from __future__ import annotations

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output

MOST = 3


class Circles(Contract):
    largest = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """`largest` has packages, each with the number of modules that its largest circle may have: "amqp10 3"."""
        wrong = []
        for package, bound in map(str.split, self.largest):
            circle = largest_circle(graph, package)
            if len(circle) > int(bound):
                wrong.append(f"{package}: {len(circle)} modules are a circle, {bound} may be: {', '.join(circle)}")
            elif len(circle) < int(bound) and int(bound) > MOST:
                wrong.append(f"{package}: the largest circle has {len(circle)} modules: say so instead of {bound}")
        return ContractCheck(kept=not wrong, metadata={"wrong": wrong})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for line in check.metadata["wrong"]:
            output.print_error(line)


def largest_circle(graph: ImportGraph, package: str) -> list[str]:
    """The modules of the package's largest circle, sorted; one if there is none."""
    above = {module: graph.find_upstream_modules(module) for module in graph.find_descendants(package)}
    circles = [[one, *(each for each in above if each in seen and one in above[each])] for one, seen in above.items()]
    return sorted(max(circles, key=len))
