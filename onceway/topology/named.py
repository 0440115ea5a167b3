"""The files that a topology file names, as the rows say that it does: by a form that is a `File`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import yaml

from onceway.topology.document import Problems, compose
from onceway.topology.forms import File, Pattern
from onceway.topology.sections import TOP
from onceway.topology.table import Section


class Named(NamedTuple):
    """A value of a topology file that names another file."""

    place: tuple[str, ...]  # the keys that lead there
    node: yaml.ScalarNode
    secret: bool


def named_files(text: str, top: Section = TOP) -> list[Named]:
    """Those of a topology file that has been read. One that has an anchor comes again where it is repeated."""
    root = compose(text, Problems(""))
    assert root is not None  # it has been read before
    return list(named(root.node, top))


def named(root: yaml.Node, top: Section = TOP) -> Iterator[Named]:
    for pattern, part in top.parts():
        if isinstance(part, File):
            for place, node in _at(root, pattern):
                if not part.elsewhere(node.value):
                    yield Named(place, node, part.secret)


def _at(node: yaml.Node, pattern: Pattern) -> Iterator[tuple[tuple[str, ...], yaml.ScalarNode]]:
    if not pattern:
        if isinstance(node, yaml.ScalarNode):
            yield (), node
        return
    values: list[tuple[str, yaml.Node]] = []
    if isinstance(node, yaml.MappingNode):
        values = [(key.value, value) for key, value in node.value if pattern[0] in ("*", key.value)]
    elif isinstance(node, yaml.SequenceNode):
        values = [(str(index), value) for index, value in enumerate(node.value) if pattern[0] == "*"]
    for key, value in values:
        yield from (((key, *place), found) for place, found in _at(value, pattern[1:]))
