"""The table of settings: a row for each key of a topology file, in sections.

Everything else is made from the rows: the reader and its errors (here), the plan of a reload (`difference`), the digest
by which files are compared (`said`), the tables of docs/topology.md and the JSON Schema (`reference`). The rows stand
in `sections` and in the modules of the sections, each with what must fit together across its keys. A value and its
default are the typed configuration's: a field of the same name, `Row.name`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from functools import cached_property
from typing import Any, Final, Generic, TypeVar

import yaml

from onceway.topology.document import Entry, Item
from onceway.topology.forms import NONE, Form, Part, Schema, Scope, Text
from onceway.topology.listeners import FIRST

T = TypeVar("T")
V = TypeVar("V")


class When(Enum):
    """When a change of a key takes effect in running routers. The value: how a line of a plan says it."""

    AT_ONCE = ""
    NEW_LINKS = "for new links"
    NEW_CONNECTIONS = "for new connections"
    NEXT_START = "when a router starts the next time"
    RESTART = "needs a restart"
    NEVER = "never while running"

    @property
    def words(self) -> str:
        return self.name.lower().replace("_", " ")


@dataclass(frozen=True, slots=True)
class Row:
    """A key of a topology file.

    Attributes:
        key: As the file has it.
        form: Which values it takes, with their bounds.
        when: When a change takes effect in running routers.
        help: What it means, for people; Markdown, relative to docs/topology.md.
        field: Its name in the typed configuration, with the unit; empty: the key.
        default: Words for a default that the typed configuration cannot say.
        required: Whether the section needs it.
        effective: The attribute that says what holds, where that is not the field itself.
        of: The types of address that may have it; empty: all.
        shown_by: The rows of its section that show it, where the typed configuration does not hold it.
        apart: Whether its rows have lines of their own in the plan of a reload.
        since: The first version that knows it.
    """

    key: str
    form: Form[Any]
    when: When
    help: str
    field: str = ""
    default: str = ""
    required: bool = False
    effective: str = ""
    of: tuple[str, ...] = ()
    shown_by: tuple[str, ...] = ()
    apart: bool = False
    since: str = FIRST

    @property
    def name(self) -> str:
        return self.field or self.key

    @property
    def described(self) -> str:
        """What it means, and since when it is there, if that is not always."""
        return self.help if self.since == FIRST else f"{self.help} (since {self.since})"

    def show(self, value: Any) -> str:
        return NONE if value is None else self.form.show(value) or NONE


@dataclass(frozen=True, slots=True)
class Given:
    """What a mapping of the file gives: its entries by key, and the values that could be read by the rows' names."""

    item: Item
    entries: Mapping[str, Entry]
    values: dict[str, Any]


@dataclass(frozen=True)
class Section:
    """The keys of one mapping. `typed`: what holds their values and their defaults. `one_of`: one of these has
    to be there, mostly the first."""

    title: str
    expected: str
    rows: tuple[Row, ...]
    typed: Any = None
    one_of: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for row in self.rows if self.typed else ():
            what = f"{self.title}.{row.key}: nothing holds `{row.name}`; give its row the `field` that does"
            assert any(_may_hold(part, row.name) for part in self._parts_typed), what

    @property
    def _parts_typed(self) -> tuple[Any, ...]:
        return self.typed if isinstance(self.typed, tuple) else (self.typed,)

    @cached_property
    def by_key(self) -> dict[str, Row]:
        return {row.key: row for row in self.rows}

    @cached_property
    def required(self) -> list[str]:
        return [row.key for row in self.rows if row.required]

    def entries(self, item: Item) -> dict[str, Entry] | None:
        """Returns what the mapping gives, by key, unread. None if it is none."""
        return item.fields(tuple(self.by_key), self.expected, self.required, self.one_of)

    def read(self, item: Item, scope: Scope) -> Given | None:
        """Reads the mapping as far as it can be read. None if it is none."""
        entries = self.entries(item)
        if entries is None:
            return None
        values = {}
        for key, entry in entries.items():
            value = self.by_key[key].form.read(entry, scope)
            if value is not None:
                values[self.by_key[key].name] = value
        return Given(item, entries, values)

    def values(self, *parts: Any) -> dict[str, Any]:
        """Returns the values by key, of the first of the parts (objects or mappings) that has each. None: none has."""
        return {row.key: _value(row.effective or row.name, parts) for row in self.rows if not row.apart}

    def default(self, row: Row) -> Any:
        """Returns the value of a key that a file leaves out; None if there is none."""
        for part in self._parts_typed:
            for each in fields(part) if is_dataclass(part) else ():
                if each.name == row.name:
                    if each.default is not MISSING:
                        return each.default
                    return each.default_factory() if each.default_factory is not MISSING else None
        return None

    def parts(self) -> Iterator[Part]:
        """Yields the section, and all that it is made of, each with its place in the mapping."""
        yield (), self
        for row in self.rows:
            yield from _below(row.key, row.form.parts())

    def schema(self) -> Schema:
        """Returns the JSON Schema of the mapping."""
        properties = {row.key: {**row.form.schema(), "description": _plain(row.described)} for row in self.rows}
        found: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
        if self.one_of:
            found["anyOf"] = [{"required": [key]} for key in self.one_of]
        return {**found, "required": self.required} if self.required else found


def fields_of(kind: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns those of the values that are fields of this dataclass."""
    return {each.name: values[each.name] for each in fields(kind) if each.name in values}


def _below(key: str, parts: Iterable[Part]) -> Iterator[Part]:
    return (((key, *place), part) for place, part in parts)


def _may_hold(kind: Any, name: str) -> bool:
    """Says whether objects of this kind have the value: as a field, by a property, or by its key."""
    return hasattr(kind, "__getitem__") or hasattr(kind, name) or any(each.name == name for each in fields(kind))


def _value(name: str, parts: tuple[Any, ...]) -> Any:
    for part in parts:
        if isinstance(part, Mapping):
            if name in part:
                return part[name]
        elif hasattr(part, name):
            return getattr(part, name)
    return None


_LINK: Final = re.compile(r"\[([^\]]*)\]\([^)]*\)")


def _plain(text: str) -> str:
    """Markdown without its links and marks."""
    return _LINK.sub(r"\1", text).replace("`", "")


Make = Callable[[Given, Scope], T | None]


@dataclass(frozen=True, slots=True)
class Table(Form[T]):
    """A mapping with the keys of a section. `make` gives the value and says what does not fit together."""

    section: Section
    make: Make[T]

    def read(self, item: Item, scope: Scope) -> T | None:
        given = self.section.read(item, scope)
        return None if given is None else self.make(given, scope)

    def show(self, value: T) -> str:
        values = self.section.values(value)
        shown = ((row.key, row.show(values[row.key])) for row in self.section.rows if not row.apart)
        return ", ".join(f"{key} {text}" for key, text in shown if text != NONE)

    def schema(self) -> Schema:
        return self.section.schema()

    def parts(self) -> Iterator[Part]:
        yield (), self
        yield from self.section.parts()


@dataclass(frozen=True, slots=True)
class Read(Generic[T]):
    """One of several: where it stands, and its value."""

    item: Item
    value: T


@dataclass(frozen=True, slots=True)
class ListOf(Form[tuple[V, ...]], Generic[T, V]):
    """A list. `make` makes of what could be read what is kept; without it that is."""

    of: Form[T]
    expected: str
    make: Callable[[Item, list[Read[T]], Scope], tuple[V, ...]] | None = None

    def read(self, item: Item, scope: Scope) -> tuple[V, ...] | None:
        items = item.items(self.expected)
        if items is None:
            return None
        found = [Read(each, value) for each in items if (value := self.of.read(each, scope)) is not None]
        return self.make(item, found, scope) if self.make is not None else tuple(each.value for each in found)  # type: ignore[misc]

    def show(self, value: tuple[V, ...]) -> str:
        return ", ".join(map(self.of.show, value))  # type: ignore[arg-type]

    def schema(self) -> Schema:
        return {"type": "array", "items": self.of.schema()}

    def parts(self) -> Iterator[Part]:
        yield (), self
        yield from _below("*", self.of.parts())


@dataclass(frozen=True, slots=True)
class ByName(Form[dict[str, T]], Generic[T]):
    """A mapping with names of the file's choice, each of the form `name`."""

    of: Form[T]
    expected: str
    name: Form[str] = Text(str, "a name")  # noqa: RUF009  (forms are frozen)

    def read(self, item: Item, scope: Scope) -> dict[str, T] | None:
        entries = item.entries(self.expected)
        if entries is None:
            return None
        found: dict[str, T] = {}
        for entry in entries.values():
            name = self.name.read(Item(entry.key_node, entry.place, entry.problems), scope)
            value = self.of.read(entry, scope)
            if name in found:
                entry.problem(f'"{name}" is given already, written otherwise', "leave one of them out")
            elif name is not None and value is not None:
                found[name] = value
        return found

    def show(self, value: Mapping[str, T]) -> str:
        return ", ".join(f"{name}: {self.of.show(each)}" for name, each in value.items())

    def schema(self) -> Schema:
        return {"type": "object", "additionalProperties": self.of.schema()}

    def parts(self) -> Iterator[Part]:
        yield (), self
        yield from _below("*", self.of.parts())


@dataclass(frozen=True, slots=True)
class Either(Form[T]):
    """A text, or the longer form of the same."""

    short: Form[T]
    long: Form[T]

    def read(self, item: Item, scope: Scope) -> T | None:
        return (self.short if isinstance(item.node, yaml.ScalarNode) else self.long).read(item, scope)

    def show(self, value: T) -> str:
        return self.short.show(value)

    def schema(self) -> Schema:
        return {"anyOf": [self.short.schema(), self.long.schema()]}

    def parts(self) -> Iterator[Part]:
        yield (), self
        yield from self.short.parts()
        yield from self.long.parts()
