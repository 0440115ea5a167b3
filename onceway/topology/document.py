"""A YAML document in which every value knows its line and place, so that problems name both.

Values are read as the text in the file, not as the type that YAML would guess: a router may be called `no` or `1`. The
document knows nothing of topologies; `sections` does.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import yaml

from onceway.errors import OncewayError

T = TypeVar("T")

NO_CHARACTER: Final = "\ufffd"
"""Stands for half of a character, and for whatever somebody could not read before."""
_YAML = "tag:yaml.org,2002:"
_NULL = f"{_YAML}null"
_MERGE = f"{_YAML}merge"
_TAGS = frozenset(
    f"{_YAML}{each}" for each in ("bool", "float", "int", "map", "merge", "null", "seq", "str", "timestamp", "value")
)
"""What YAML itself takes plain texts, mappings and lists for, which changes nothing here."""


@dataclass(frozen=True, slots=True)
class Problem:
    """`file:line: place: what; remedy`.  Line 0: the file as a whole; place "": the document as a whole."""

    file: str
    line: int
    place: str
    what: str
    remedy: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        what = f"{self.place}: {self.what}" if self.place else self.what
        return f"{where}: {what}; {self.remedy}" if self.remedy else f"{where}: {what}"


class ConfigError(OncewayError, ValueError):
    """The user's file is wrong. `problems` holds all problems in file order; str() is a line for each."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = sorted(problems, key=lambda problem: problem.line)
        super().__init__("\n".join(str(problem) for problem in self.problems))


@dataclass(slots=True)
class Problems:
    """Collects problems, so that reading continues after the first."""

    file: str
    found: dict[Problem, None] = field(default_factory=dict)  # each once, in the order in which they were found
    warnings: dict[Problem, None] = field(default_factory=dict)  # usable values that may surprise

    def add(self, line: int, place: str, what: str, remedy: str) -> None:
        self.found[Problem(self.file, line, place, what, remedy)] = None

    def raise_if_any(self) -> None:
        if self.found:
            raise ConfigError(self.found)


def suggest(wrong: str, known: Sequence[str], all_of_them: str = "known are") -> str:
    """`did you mean "x"?`, or the whole list where nothing is alike."""
    alike = difflib.get_close_matches(wrong.lower(), [name.lower() for name in known], n=1, cutoff=0.6)
    if alike:
        right = next(name for name in known if name.lower() == alike[0])
        return f'did you mean "{right}"?'
    return f"{all_of_them} {', '.join(known)}" if known else ""


@dataclass(frozen=True, slots=True)
class Item:
    """One value of the document.  The reading methods add a problem and return None if the value does not fit."""

    node: yaml.Node
    place: str
    problems: Problems

    @property
    def line(self) -> int:
        return int(self.node.start_mark.line) + 1

    def problem(self, what: str, remedy: str) -> None:
        self.problems.add(self.line, self.place, what, remedy)

    def warn(self, what: str, remedy: str) -> None:
        self.problems.warnings[Problem(self.problems.file, self.line, self.place, what, remedy)] = None

    @property
    def is_scalar(self) -> bool:
        return isinstance(self.node, yaml.ScalarNode) and not self.is_null

    @property
    def is_mapping(self) -> bool:
        return isinstance(self.node, yaml.MappingNode)

    @property
    def is_null(self) -> bool:
        return self.node.tag == _NULL

    @property
    def text(self) -> str:
        """The value as it stands in the file; only where `is_scalar`."""
        assert isinstance(self.node, yaml.ScalarNode)
        return str(self.node.value)

    def kind(self) -> str:
        if self.is_null:
            return "nothing"
        if isinstance(self.node, yaml.MappingNode):
            return "a mapping"
        if isinstance(self.node, yaml.SequenceNode):
            return "a list"
        return f'"{self.text}"'

    def scalar(self, read: Callable[[str], T], expected: str) -> T | None:
        """`read` gives the value, or raises ValueError with (what, remedy) or (what,)."""
        if not self.is_scalar:
            self.problem(f"{self.kind()} where {expected} belongs", f"write {expected}")
            return None
        try:
            return read(self.text)
        except ValueError as error:
            what, remedy = error.args if len(error.args) == 2 else (str(error), f"write {expected}")
            self.problem(what, remedy)
            return None

    def choice(self, choices: Sequence[str]) -> str | None:
        def read(text: str) -> str:
            if text not in choices:
                raise ValueError(f'no such choice: "{text}"', suggest(text, choices, "choices are"))
            return text

        return self.scalar(read, f"one of {', '.join(choices)}")

    def items(self, expected: str) -> list[Item] | None:
        """The values of a list."""
        if not isinstance(self.node, yaml.SequenceNode):
            self.problem(f"{self.kind()} where {expected} belongs", f"write {expected}")
            return None
        return [Item(node, f"{self.place}[{i}]", self.problems) for i, node in enumerate(self.node.value)]

    def entries(self, expected: str) -> dict[str, Entry] | None:
        """The entries of a mapping, by key. A key given twice is a problem; its first value counts."""
        if not isinstance(self.node, yaml.MappingNode):
            self.problem(f"{self.kind()} where {expected} belongs", f"write {expected}")
            return None
        entries: dict[str, Entry] = {}
        for key_node, node in self.node.value:
            key = Item(key_node, self.place, self.problems)
            if key_node.tag == _MERGE:
                key.problem(f'unknown key "{key.text}"', "write the keys out, merging is not read here")
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                key.problem(f"{key.kind()} as a key", "keys are plain words")
                continue
            place = f"{self.place}.{key.text}" if self.place else key.text
            entry = Entry(node, place, self.problems, key_node)
            if key.text in entries:
                first = entries[key.text].key_line
                self.problems.add(entry.key_line, place, f"given twice, first in line {first}", "leave one of them out")
            else:
                entries[key.text] = entry
        return entries

    def fields(
        self, known: Sequence[str], expected: str, required: Sequence[str] = (), one_of: Sequence[str] = ()
    ) -> dict[str, Entry] | None:
        """The entries of a mapping that may have only `known` keys, and must have the `required` ones and `one_of` the
        others."""
        entries = self.entries(expected)
        if entries is None:
            return None
        for key, entry in list(entries.items()):
            if key not in known:
                self.problems.add(entry.key_line, self.place, f'unknown key "{key}"', suggest(key, known))
                del entries[key]
        for key in (*(one_of[:1] if entries.keys().isdisjoint(one_of) else ()), *required):
            if key not in entries:
                self.problem(f"{key} is missing", f"add {key}: ...")
        return entries


@dataclass(frozen=True, slots=True)
class Entry(Item):
    """A value in a mapping, with its key."""

    key_node: yaml.Node

    @property
    def key_line(self) -> int:
        return int(self.key_node.start_mark.line) + 1


class _Loader(yaml.SafeLoader):
    """Makes one character of the two halves as which JSON writes those beyond U+FFFF."""

    def compose_scalar_node(self, anchor: dict[Any, yaml.Node]) -> yaml.ScalarNode:
        node = super().compose_scalar_node(anchor)
        if not node.value.isascii():
            node.value = node.value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return node


def compose(data: bytes | str, problems: Problems) -> Item | None:
    """The document's root, or None with a problem noted. Bytes are UTF-8: YAML would have UTF-16, too, and then nobody
    else could read the file."""
    if isinstance(data, bytes):
        try:
            data = data.decode()
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            what = f"not YAML: the byte 0x{error.object[error.start]:02x} is not UTF-8"
            problems.add(line, "", what, "save the file as UTF-8 text")
            return None
    try:
        loader = _Loader(data)
        try:
            node = loader.get_single_node()
        except RecursionError:
            problems.add(loader.line + 1, "", "nested far too deeply", "topology files are a few levels deep")
            return None
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else 0
        what = " ".join(part for part in (error.context, error.problem) if part)
        problems.add(line, "", f"not YAML: {what}", "look at the indentation, brackets and quotes of this line")
        return None
    except yaml.reader.ReaderError as error:
        what = f"not YAML: a file of text has no character #x{error.character:04x}"
        problems.add(data.count("\n", 0, error.position) + 1, "", what, "save the file as UTF-8 text")
        return None
    if node is None:
        problems.add(1, "", "the file is empty", "docs/topology.md shows what belongs here")
        return None
    root = Item(node, "", problems)
    _check_values(root)
    return root


def _check_values(root: Item) -> None:
    """Notes what says something elsewhere and nothing here: tags, by which other programs include files and variables,
    and characters that are none."""
    waiting, seen = [root], {root.node}
    while waiting:
        item = waiting.pop()
        node = item.node
        if node.tag not in _TAGS:
            item.problem(f"the tag {node.tag.replace(_YAML, '!!')} means nothing here", "write the value itself")
        if isinstance(node, yaml.ScalarNode) and not {"\0", NO_CHARACTER}.isdisjoint(node.value):
            item.problem("a character that is none", "write the character itself, or leave it out")
        for each in _below(item):
            if each.node not in seen:
                seen.add(each.node)
                waiting.append(each)


def _below(item: Item) -> Iterator[Item]:
    node, problems = item.node, item.problems
    if isinstance(node, yaml.SequenceNode):
        yield from (Item(each, f"{item.place}[{i}]", problems) for i, each in enumerate(node.value))
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield Item(key, item.place, problems)
            name = str(key.value) if isinstance(key, yaml.ScalarNode) else ""
            yield Item(value, f"{item.place}.{name}" if item.place else name, problems)
