"""The forms of values in a topology file: how a text is read, how a value is shown, and what a JSON Schema says of it.

A form is the value of a row (`onceway.topology.table`). Scalars are here; lists and mappings are there, since they are
made of rows. Forms of single texts are read by `onceway.base.values`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import yaml

from amqp10.errors import EncodeError
from amqp10.scram import prepare
from onceway.base.values import (
    format_duration,
    format_host_port,
    format_size,
    read_count,
    read_duration,
    read_host,
    read_host_port,
    read_name,
    read_size,
    read_switch,
)
from onceway.topology.document import Item, suggest
from router.config import AddressConfig, Limits, RouterConfig
from router.policies import EVERYONE

if TYPE_CHECKING:
    from onceway.topology.sasl import Sasl
    from onceway.topology.table import Section
    from onceway.topology.tls import TlsProfile

T = TypeVar("T")
Schema = dict[str, Any]
HostPort = tuple[str, int]
Pattern = tuple[str, ...]
"""The keys that lead to a value; `*` for each of a list, and for names of the file's choice."""
Part = tuple[Pattern, "Form[Any] | Section"]

DEFAULT_HOST: Final = "127.0.0.1"
NONE: Final = "(none)"
"""How what is not there is shown."""


@dataclass(slots=True)
class Scope:
    """What the reading of one value may need of others."""

    host: str = DEFAULT_HOST  # of ports that name none
    profiles: Mapping[str, TlsProfile] = field(default_factory=dict)
    sasl: Sasl | None = None
    settings: RouterConfig = field(default_factory=lambda: RouterConfig(name=""))
    limits: Limits = field(default_factory=Limits)  # of listeners that have none of their own
    for_addresses: Mapping[str, Any] = field(default_factory=dict)  # fields of AddressConfig that `settings` gives
    sign_of_life_s: float = 0.0  # that a publisher without epochs needs
    addresses: tuple[AddressConfig, ...] = ()

    @property
    def named(self) -> bool:
        """Whether clients can be users with a name."""
        return self.sasl is not None


class Form(ABC, Generic[T]):
    @abstractmethod
    def read(self, item: Item, scope: Scope) -> T | None:
        """Returns the value, or None with a problem noted."""

    def show(self, value: T) -> str:
        """Returns the value in words, as it would stand in a file."""
        return str(value)

    @abstractmethod
    def schema(self) -> Schema:
        """Returns the JSON Schema of what a file may say. It may allow more than `read` does, never less."""

    def parts(self) -> Iterator[Part]:
        """Yields the form, and all that it is made of, each with its place in the value."""
        yield (), self


@dataclass(frozen=True, slots=True)
class Text(Form[T]):
    """A scalar. `parse` raises ValueError(what, remedy). `guessed`: YAML may take such a text for a number, true or
    null, and it is one of these all the same."""

    parse: Callable[[str], T]
    expected: str
    pattern: str = ""
    shown: Callable[[T], str] = str
    guessed: bool = True

    def read(self, item: Item, scope: Scope) -> T | None:
        return item.scalar(self.parse, self.expected)

    def show(self, value: T) -> str:
        return self.shown(value)

    def schema(self) -> Schema:
        types = ["string", "number", "boolean"] if self.guessed else "string"
        return {"type": types, **({"pattern": self.pattern} if self.pattern else {})}


def filled(what: str, remedy: str) -> Callable[[str], str]:
    """Returns the parse of a text that may be anything but empty, with what is said of an empty one."""

    def parse(text: str) -> str:
        if not text:
            raise ValueError(what, remedy)
        return text

    return parse


def _read_user(text: str) -> str:
    """As routers compare it: what looks the same is the same."""
    if not text:
        raise ValueError("an empty name", "write the name by which the user logs in")
    if text == EVERYONE:
        raise ValueError(f'"{text}" is nobody: it means everyone in policies alone', "name each user, or a group")
    try:
        return prepare(text)
    except EncodeError as error:
        raise ValueError(
            f'"{text}" is no name of a user: {error}', "write the name by which the user logs in"
        ) from error


USER_NAME: Final = Text(_read_user, "the name of a user", ".")
USER_OR_ALL: Final = Text(lambda text: text if text == EVERYONE else _read_user(text), "the name of a user", ".")
NAME: Final = Text(read_name, "a name", r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")
HOST: Final = Text(read_host, "a host")


@dataclass(frozen=True, slots=True)
class File(Text[T]):
    """The path of a file. `secret`: nobody else may read it. `elsewhere`: a text that names none."""

    secret: bool = False
    elsewhere: Callable[[str], bool] = lambda text: False


@dataclass(frozen=True, slots=True)
class Switch(Form[bool]):
    def read(self, item: Item, scope: Scope) -> bool | None:
        return item.scalar(read_switch, "true or false")

    def show(self, value: bool) -> str:
        return str(value).lower()

    def schema(self) -> Schema:
        return {
            "anyOf": [{"type": "boolean"}, {"type": "string", "pattern": "^([Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee])$"}]
        }


@dataclass(frozen=True, slots=True)
class Choice(Form[str]):
    choices: tuple[str, ...]

    def read(self, item: Item, scope: Scope) -> str | None:
        return item.choice(self.choices)

    def schema(self) -> Schema:
        # YAML takes 1.2 for a number and, in its older version, off for false.
        guessed = [yaml.safe_load(each) for each in self.choices]
        return {"enum": [*self.choices, *(each for each in guessed if not isinstance(each, str))]}


@dataclass(frozen=True, slots=True)
class _Quantity(Form[float]):
    """A value with bounds, both allowed."""

    least: float
    most: float

    def read(self, item: Item, scope: Scope) -> float | None:
        value = self._scalar(item)
        if value is None or self.least <= value <= self.most:
            return value
        least, most = self._limit(self.least), self._limit(self.most)
        way = f"less than {least}" if value < self.least else f"more than {most}"
        item.problem(f"{item.text} is {way}", f"write a value from {least} to {most}")
        return None

    @abstractmethod
    def _scalar(self, item: Item) -> float | None: ...

    def _limit(self, limit: float) -> str:
        return self.show(limit)


@dataclass(frozen=True, slots=True)
class Duration(_Quantity):
    """In seconds."""

    def _scalar(self, item: Item) -> float | None:
        return item.scalar(read_duration, "a duration such as 60s")

    def show(self, value: float) -> str:
        return format_duration(value)

    def schema(self) -> Schema:
        return {"type": "string", "pattern": r"^[0-9]{1,18}(\.[0-9]{1,18})?\s*(ms|s|m|h)$"}


@dataclass(frozen=True, slots=True)
class Size(_Quantity):
    """In bytes."""

    def _scalar(self, item: Item) -> float | None:
        return item.scalar(read_size, "a size such as 8MiB")

    def show(self, value: float) -> str:
        return format_size(int(value))

    def _limit(self, limit: float) -> str:
        return f"{limit:.0f}B"

    def schema(self) -> Schema:
        return {"type": "string", "pattern": r"^[0-9]{1,18}(\.[0-9]{1,18})?\s*(B|KiB|MiB|GiB)$"}


@dataclass(frozen=True, slots=True)
class Count(_Quantity):
    def _scalar(self, item: Item) -> float | None:
        return item.scalar(read_count, "a whole number")

    def _limit(self, limit: float) -> str:
        return f"{limit:.0f}"

    def schema(self) -> Schema:
        number = {"type": "integer", "minimum": int(self.least), "maximum": int(self.most)}
        return {"anyOf": [number, {"type": "string", "pattern": "^[0-9][0-9_]{0,24}$"}]}


@dataclass(frozen=True, slots=True)
class Place(Form[HostPort]):
    """A port, at this host or the scope's, or host:port."""

    host: str = ""

    def read(self, item: Item, scope: Scope) -> HostPort | None:
        return item.scalar(lambda text: read_host_port(text, self.host or scope.host), "a port, or host:port")

    def show(self, value: HostPort) -> str:
        return format_host_port(value)

    def schema(self) -> Schema:
        port = {"type": "integer", "minimum": 1, "maximum": 65_535}
        return {"anyOf": [port, {"type": "string", "pattern": r"^([^\s]+:)?[0-9]{1,6}$"}]}


@dataclass(frozen=True, slots=True)
class Profile(Form[str]):
    """The name of a TLS profile. `off`: or that there is none."""

    off: bool = False

    def read(self, item: Item, scope: Scope) -> str | None:
        def known(text: str) -> str:
            if text not in scope.profiles:
                raise ValueError(f'no TLS profile "{text}"', suggest(text, list(scope.profiles)) or "give it under tls")
            return text

        if self.off and item.is_scalar and item.text == "off":
            return ""
        return item.scalar(known, "the name of a profile under tls")

    def show(self, value: str) -> str:
        return value or ("off" if self.off else NONE)

    def schema(self) -> Schema:
        return {"type": ["string", "number", "boolean"]}
