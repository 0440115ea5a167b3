"""An address of type pipe: its stores, and the declared subscriptions by which they attach.

To the routers a pipe is an exactly-once topic with one declared subscription, its primary store's, and, where there are
several stores, a second topic NAME.log, by which the primary tells all of them what the pipe holds. docs/pipe.md
explains both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from onceway.base.values import format_host_port, read_host_port, read_name
from onceway.client.urls import has_password
from onceway.topology.document import Bounds, Entry, Form, Item, read_quantity
from onceway.topology.tls import TlsProfile, read_profile_name
from router.config import AddressConfig
from router.policies import NOBODY, owned

_LONGEST_S: Final = 36_525 * 86_400.0
_LARGEST: Final = float(1 << 60)
_EXPECTED: Final = "a mapping of stores such as {a: 5981, b: 5982}, the primary first"
_NOT_OF_PIPES: Final = (
    "subscriptions", "other_subscriptions", "guarantee", "no_subscribers", "max_redeliveries", "expire",
)  # fmt: skip


def primary_subscription(pipe: str) -> tuple[str, str]:
    """Container-id and link name by which whichever store is the primary subscribes to the pipe."""
    return f"onceway-pipe:{pipe}", pipe


def log_subscription(pipe: str, store: str) -> tuple[str, str]:
    """Container-id and link name by which a store follows NAME.log."""
    return f"onceway-pipe:{pipe}:{store}", "log"


def log_name(pipe: str) -> str:
    return f"{pipe}.log"


def log_address(pipe: AddressConfig) -> AddressConfig:
    """The topic by which the stores of a pipe agree. They are the same user's there."""
    owner = pipe.subscriptions[0][0].removesuffix(primary_subscription(pipe.match)[0])
    followers = [log_subscription(pipe.match, name) for name, _, _ in pipe.stores]
    return AddressConfig(
        match=log_name(pipe.match),
        subscription_timeout_s=pipe.subscription_timeout_s,
        publisher_timeout_s=pipe.publisher_timeout_s,
        subscriptions=tuple((owner + container, link) for container, link in followers),
        other_subscriptions="refuse",
    )


def read_pipe(
    values: Mapping[str, Any], fields: Mapping[str, Entry], item: Item, profiles: Mapping[str, TlsProfile]
) -> dict[str, Any]:
    """What an address of type pipe has beside its timeouts; nothing for a topic."""
    if values.get("type") != "pipe":
        for key in ("stores", "store_data", "store_metrics", "store_tls", "retention", "user"):
            if key in fields:
                fields[key].problem(f"{key} of a topic", "write type: pipe, or leave the line out")
        return {}
    match = values.get("match")
    if match is None:
        return {}
    for key in _NOT_OF_PIPES:
        if key in fields:
            fields[key].problem(
                f"{key} of a pipe", "leave the line out: a pipe is exactly-once, and its stores subscribe"
            )
    if match.endswith("*"):
        fields["match"].problem(f'a pipe "{match}", which matches many addresses', "give each pipe an entry of its own")
    if "stores" not in fields:
        item.problem("a pipe without stores", f"add stores: {_EXPECTED}")
        return {}
    stores = _places(fields["stores"], _EXPECTED)
    if not stores:
        fields["stores"].problem("a pipe without stores", f"write {_EXPECTED}")
    names = [name for name, _, _ in stores]
    metrics: tuple[tuple[str, str, int], ...] = ()
    if "store_metrics" in fields:
        metrics = _places(fields["store_metrics"], "a mapping such as {s: 9981}", names)
    user = fields["user"].scalar(_read_user, "the name of a user") if "user" in fields else None
    container, link = primary_subscription(match)
    return {
        "stores": stores,
        "store_data": _store_data(fields, names),
        "store_metrics": metrics,
        "store_tls": read_profile_name(fields.get("store_tls"), profiles),
        **_retention(fields),
        "guarantee": "exactly-once",
        "no_subscribers": "hold",
        "subscriptions": ((owned(user or NOBODY.user, container), link),),
        "other_subscriptions": "refuse",
    }


def _places(entry: Entry, expected: str, names: Sequence[str] = ()) -> tuple[tuple[str, str, int], ...]:
    """Name of a store, host and port; `names` are those that the file has."""
    found: list[tuple[str, str, int]] = []
    for name, place in (entry.entries(expected) or {}).items():
        try:
            read_name(name)
        except ValueError as error:
            place.problem(*error.args)
        if names and name not in names:
            place.problem(f'no store "{name}"', f"stores are {', '.join(names)}")
        address = place.scalar(lambda text: read_host_port(text, "127.0.0.1"), "a port, or host:port")
        if address is not None:
            other = next((each for each, *taken in found if (*taken,) == address), None)
            if other is not None:
                place.problem(f"{format_host_port(address)} is taken by {other}", "give each store a port of its own")
            found.append((name, *address))
    return tuple(found)


def _retention(fields: Mapping[str, Entry]) -> dict[str, Any]:
    if "retention" not in fields:
        return {}
    expected = "a mapping such as {age: 72h, size: 1GiB}"
    found = fields["retention"].fields(("age", "size"), expected)
    if found is not None and not found:
        fields["retention"].problem("a retention of nothing", f"write {expected}")
    forms: dict[str, tuple[str, Form, Bounds]] = {
        "age": ("retention_s", "duration", (1, _LONGEST_S)),
        "size": ("retention_octets", "size", (16 << 20, _LARGEST)),
    }
    return {forms[key][0]: read_quantity(entry, *forms[key][1:]) for key, entry in (found or {}).items()}


def _read_data(text: str) -> str:
    if not text.startswith(("/", "postgresql://", "postgres://")):
        raise ValueError(f'"{text}" as the place of data', "write an absolute path, or postgresql://...")
    if has_password(text):
        raise ValueError("a password in the URL of a database", "PostgreSQL's clients read $PGPASSWORD and ~/.pgpass")
    return text


def _read_user(text: str) -> str:
    if not text:
        raise ValueError("an empty name", "write the user as whom the stores attach")
    return text


def _store_data(fields: Mapping[str, Entry], stores: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Where each store keeps its data, for those of which the file says it."""
    places = {}
    entries = fields["store_data"].entries("a mapping such as {s: /srv/pipes}") if "store_data" in fields else None
    for name, entry in (entries or {}).items():
        place = entry.scalar(_read_data, "an absolute path, or postgresql://...")
        if name not in stores:
            entry.problem(f'no store "{name}"', f"stores are {', '.join(stores)}")
        elif place:
            places[name] = place
    return tuple(places.items())
