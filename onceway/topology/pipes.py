"""An address of type pipe: its stores, and the declared subscriptions by which they attach.

To the routers a pipe is an exactly-once topic with one declared subscription, its primary store's, and, where there are
several stores, a second topic NAME.log, by which the primary tells all of them what the pipe holds. What only stores
heed is a `Pipe`; routers are not told it. docs/pipe.md explains both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from onceway.base.values import format_host_port
from onceway.client.urls import has_password
from onceway.topology.document import Item
from onceway.topology.forms import DEFAULT_HOST, NAME, USER_NAME, Duration, HostPort, Place, Profile, Scope, Size, Text
from onceway.topology.table import ByName, Given, Row, Section, Table, When, fields_of
from router.config import AddressConfig
from router.policies import NOBODY, owned

_EXPECTED: Final = "a mapping of stores such as {a: 5981, b: 5982}, the primary first"


@dataclass(frozen=True, slots=True)
class Retention:
    """What is dropped. None: nothing because of it."""

    age_s: float | None = None  # what is older
    octets: int | None = None  # the oldest of what is more


@dataclass(frozen=True, slots=True)
class Pipe:
    """What the stores of a pipe are told."""

    stores: Mapping[str, HostPort]  # where each listens for readers, the primary first
    data: Mapping[str, str] = field(default_factory=dict)  # of those of which the file says where they keep it
    metrics: Mapping[str, HostPort] = field(default_factory=dict)  # where they answer Prometheus
    tls: str = ""  # the TLS profile of the stores' listeners; empty: they have no TLS
    retention: Retention | None = None
    user: str = NOBODY.user  # as whom they attach

    @property
    def urls(self) -> dict[str, str]:
        """The URL of each store, the primary's first."""
        scheme = "amqps" if self.tls else "amqp"
        return {name: f"{scheme}://{format_host_port(place)}" for name, place in self.stores.items()}

    def of(self, store: str) -> tuple[HostPort, str | None, HostPort | None, str]:
        """Where a store listens, keeps its data and answers Prometheus, and its TLS profile."""
        return self.stores[store], self.data.get(store), self.metrics.get(store), self.tls


def primary_subscription(pipe: str) -> tuple[str, str]:
    """Container-id and link name by which whichever store is the primary subscribes to the pipe."""
    return f"onceway-pipe:{pipe}", pipe


def log_subscription(pipe: str, store: str) -> tuple[str, str]:
    """Container-id and link name by which a store follows NAME.log."""
    return f"onceway-pipe:{pipe}:{store}", "log"


def log_name(pipe: str) -> str:
    return f"{pipe}.log"


def as_topic(match: str, pipe: Pipe) -> dict[str, Any]:
    """What routers are told of a pipe: fields of AddressConfig."""
    container, link = primary_subscription(match)
    scheme = "amqps" if pipe.tls else "amqp"
    return {
        "read_at": tuple((scheme, *place) for place in pipe.stores.values()),
        "subscriptions": ((owned(pipe.user, container), link),),
        "other_subscriptions": "refuse",
    }


def log_address(address: AddressConfig, pipe: Pipe) -> AddressConfig:
    """The topic by which the stores of a pipe agree. They are the same user's there."""
    followers = [log_subscription(address.match, name) for name in pipe.stores]
    return AddressConfig(
        match=log_name(address.match),
        subscription_timeout_s=address.subscription_timeout_s,
        publisher_timeout_s=address.publisher_timeout_s,
        subscriptions=tuple((owned(pipe.user, container), link) for container, link in followers),
        other_subscriptions="refuse",
    )


def _read_data(text: str) -> str:
    if not text.startswith(("/", "postgresql://", "postgres://")):
        raise ValueError(f'"{text}" as the place of data', "write an absolute path, or postgresql://...")
    if has_password(text):
        raise ValueError("a password in the URL of a database", "PostgreSQL's clients read $PGPASSWORD and ~/.pgpass")
    return text


class _Places(ByName[HostPort]):
    """Names of stores with a port of their own, at 127.0.0.1 unless they name a host."""

    def __init__(self, expected: str) -> None:
        super().__init__(Place(DEFAULT_HOST), expected, NAME)

    def read(self, item: Item, scope: Scope) -> dict[str, HostPort] | None:
        found = ByName.read(self, item, scope) or {}
        first: dict[HostPort, str] = {}
        for name, place in found.items():
            if (other := first.setdefault(place, name)) != name:
                entry = (item.entries("") or {})[name]
                entry.problem(f"{format_host_port(place)} is taken by {other}", "give each store a port of its own")
        return found


def _make_retention(given: Given, scope: Scope) -> Retention:
    if not given.entries:
        given.item.problem("a retention of nothing", f"write {RETENTION.expected}")
    return Retention(**given.values)


RETENTION: Final = Section(
    "retention",
    "a mapping such as {age: 72h, size: 1GiB}",
    (
        Row("age", Duration(1, 36_525 * 86_400.0), When.AT_ONCE, "what is older is dropped", "age_s"),
        Row("size", Size(16 << 20, float(1 << 60)), When.AT_ONCE, "of what is more the oldest is dropped", "octets"),
    ),
    Retention,
)
_PIPE: Final = ("pipe",)
PIPE_ROWS: Final = (
    Row("stores", _Places(_EXPECTED), When.AT_ONCE,
        "of a pipe: where each of its stores listens for readers, by name, the primary first", of=_PIPE,
        default="none"),
    Row("store_data",
        ByName(Text(_read_data, "an absolute path, or postgresql://...", "."), "a mapping such as {s: /srv/pipes}"),
        When.AT_ONCE, "of a pipe: where a store keeps its data, by name: `{s: /srv/s, t: postgresql://...}`", "data",
        of=_PIPE, default="the state directory"),
    Row("store_metrics", _Places("a mapping such as {s: 9981}"), When.AT_ONCE,
        "of a pipe: where a store answers Prometheus, by name: `{s: 9981, t: 9982}` ([metrics](pipe.md#metrics))",
        "metrics", of=_PIPE, default="none"),
    Row("store_tls", Profile(), When.AT_ONCE,
        "of a pipe: the [TLS profile](#tls) of its stores' listeners, with the store's name for `${router}` ([who "
        "may read](pipe.md#who-may-read))", "tls", of=_PIPE, default="none"),
    Row("retention", Table(RETENTION, _make_retention), When.AT_ONCE,
        "of a pipe: what is dropped, `{age: 72h, size: 10GiB}` or one of them; `size` is at least 16 MiB", of=_PIPE,
        default="none"),
    Row("user", USER_NAME, When.AT_ONCE,
        "of a pipe: the user as whom its stores attach, where [`sasl`](#sasl) lets in users only", of=_PIPE,
        default="anonymous"),
)  # fmt: skip


def make_pipe(match: str, given: Given) -> Pipe | None:
    """None, and a problem noted, without stores."""
    entries = given.entries
    if match.endswith("*"):
        entries["match"].problem(
            f'a pipe "{match}", which matches many addresses', "give each pipe an entry of its own"
        )
    if "stores" not in entries:
        given.item.problem("a pipe without stores", f"add stores: {_EXPECTED}")
        return None
    values = fields_of(Pipe, given.values)
    stores = values.get("stores")
    if not stores:
        entries["stores"].problem("a pipe without stores", f"write {_EXPECTED}")
        return None
    for key, named in (("store_data", values.get("data")), ("store_metrics", values.get("metrics"))):
        for name in named or ():
            if name not in stores:
                entry = (entries[key].entries("") or {})[name]
                entry.problem(f'no store "{name}"', f"stores are {', '.join(stores)}")
    return Pipe(**values)
