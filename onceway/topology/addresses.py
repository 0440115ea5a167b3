"""`addresses` of a topology file: topics, queues and pipes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from onceway.topology.document import Item
from onceway.topology.forms import Choice, Count, Scope, Switch, Text
from onceway.topology.pipes import PIPE_ROWS, Pipe, as_topic, log_address, make_pipe
from onceway.topology.settings import TIMEOUT_ROWS, check_sign_of_life, check_timeouts
from onceway.topology.subscriptions import EXAMPLE, SUBSCRIPTIONS
from onceway.topology.table import Given, ListOf, Read, Row, Section, Table, When, fields_of
from router.config import RESERVED, AddressConfig, is_dynamic
from router.names import GUARANTEES

_TOPIC: Final = ("topic",)
_NO_PIPE: Final = ("topic", "queue")


def is_for_clients(address: str) -> bool:
    """Says whether entries of the file may name it."""
    return not address.startswith(RESERVED) and not is_dynamic(address)


def _read_match(text: str) -> str:
    if not text:
        raise ValueError("an empty address", 'write a name, or "*" for all')
    if "*" in text[:-1]:
        raise ValueError(f'"{text}" has a * that is not at its end', "write an exact name, or a prefix ending in *")
    if not is_for_clients(text):
        raise ValueError(f'"{text}" holds for nothing: routers use such addresses themselves', "leave the entry out")
    return text


ADDRESS: Final = Section(
    "addresses",
    "a mapping such as {match: orders}",
    (
        Row("match", Text(_read_match, "an address, or a prefix ending in *", "."), When.AT_ONCE,
            "an exact name, or a prefix ending in `*`; no entry holds for addresses that begin with `$`, `_mqtt/` or "
            "`_dynamic/`",
            required=True),
        Row("type", Choice(("topic", "queue", "pipe")), When.AT_ONCE,
            "topic: every message goes to every subscription; queue: [every message goes to one "
            "consumer](queues.md); pipe: [below](#pipes). An address that becomes a queue, or a topic again, is "
            "served [from when all routers follow the file](queues.md#a-first-queue)"),
        Row("guarantee", Choice(tuple(GUARANTEES)), When.NEW_LINKS,
            "the best that a link may negotiate: exactly-once, at-least-once, at-most-once", of=_NO_PIPE),
        *TIMEOUT_ROWS,
        Row("no_subscribers", Choice(("hold", "accept", "release")), When.AT_ONCE,
            "when there is no subscription: `hold` gives publishers no credit; `accept` and `release` tell them that "
            "outcome", of=_NO_PIPE),
        Row("expire", Switch(), When.NEW_LINKS,
            "whether a message is dropped in place of being sent when its `ttl`, counted from when its router has "
            "taken it, or its `absolute-expiry-time` is over; its publisher is told accepted. What is sent "
            "has the `ttl` that is left. Without `expire` both are passed on and mean nothing here. Keep clocks "
            "together", of=_NO_PIPE),
        Row("priority", Switch(), When.NEW_LINKS,
            "of a [queue](queues.md): whether messages of a higher priority go first", of=("queue",)),
        Row("max_redeliveries", Count(0, 1 << 20), When.AT_ONCE,
            "how often a delivery that failed (`modified` with delivery-failed) is sent again to the same "
            "subscriber; then it counts as rejected. A release does not count", of=_NO_PIPE),
        Row("subscriptions", SUBSCRIPTIONS, When.AT_ONCE,
            "the [declared subscriptions](#declared-subscriptions) of this address; not for a prefix", of=_TOPIC,
            default="none"),
        Row("other_subscriptions", Choice(("allow", "refuse")), When.NEW_LINKS,
            "whether subscriptions that are not declared may attach: `allow` or `refuse`; `refuse` needs "
            "`subscriptions`", of=_TOPIC),
        *PIPE_ROWS,
    ),
    (AddressConfig, Pipe),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Address:
    """An entry of the file. `pipe`: what the stores of an address of that type are told."""

    config: AddressConfig
    pipe: Pipe | None = None

    @property
    def said(self) -> dict[str, Any]:
        """The values by key; None of those that its type does not have."""
        values = ADDRESS.values(self.config, *([self.pipe] if self.pipe is not None else ()))
        return {row.key: values[row.key] if not row.of or self.config.type in row.of else None for row in ADDRESS.rows}


def _make(given: Given, scope: Scope) -> Address | None:
    entries = given.entries
    values: dict[str, Any] = {**scope.for_addresses, **given.values}
    match, kind = values.get("match"), values.get("type", "topic")
    if match is None:
        return None
    _check_type(given, kind)
    pipe = make_pipe(match, given) if kind == "pipe" else None
    if pipe is not None:
        for row in ADDRESS.rows:
            if row.of and kind not in row.of:
                values.pop(row.name, None)
        values.update(as_topic(match, pipe))
    config = AddressConfig(**fields_of(AddressConfig, values))
    _check_subscriptions(config, given)
    if any(row.key in entries for row in TIMEOUT_ROWS):
        check_timeouts(config, given)
        check_sign_of_life(config, given.item, scope.sign_of_life_s)
    return Address(config, pipe)


def _check_type(given: Given, kind: str) -> None:
    """No key that an address of this type cannot have."""
    for row in ADDRESS.rows:
        if row.key not in given.entries or not row.of or kind in row.of:
            continue
        entry = given.entries[row.key]
        if row.of == ("queue",):
            if given.values.get(row.name):
                entry.problem("only a queue has priorities", "write type: queue, or leave the line out")
        elif row.of == ("pipe",):
            entry.problem(f"{row.key} of a topic", "write type: pipe, or leave the line out")
        elif kind == "pipe":
            entry.problem(
                f"{row.key} of a pipe", "leave the line out: a pipe is exactly-once, and its stores subscribe"
            )
        else:
            entry.problem(f"{row.key} of a queue", "leave the line out: consumers of a queue are not declared")
    if kind == "queue" and given.values.get("guarantee") == "at-most-once":
        given.entries["guarantee"].problem("a queue that is at-most-once", "write at-least-once or exactly-once")
    if kind == "queue" and given.values.get("no_subscribers") == "accept":
        given.entries["no_subscribers"].problem("a queue that accepts for nobody", "write hold or release")


def _check_subscriptions(address: AddressConfig, given: Given) -> None:
    """Declared subscriptions belong to one address, and a set that is closed is not empty."""
    entries = given.entries
    if "subscriptions" in entries and address.match.endswith("*"):
        entries["subscriptions"].problem(
            f'subscriptions of "{address.match}", which matches many addresses',
            "give each address with declared subscriptions an entry of its own, with its exact name",
        )
    elif address.other_subscriptions == "refuse" and "subscriptions" not in entries and address.type == "topic":
        entries["other_subscriptions"].problem(
            "refuse without subscriptions: nobody could subscribe", f"add subscriptions: {EXAMPLE}, or write allow"
        )


def _check_order(item: Item, found: list[Read[Address]], scope: Scope) -> tuple[Address, ...]:
    """Each takes something that none before it takes."""
    earlier: list[tuple[str, AddressConfig]] = []
    for each in found:
        config = each.value.config
        for own in as_told([each.value]):
            place, other = next(((place, other) for place, other in earlier if other.covers(own)), ("", config))
            if place:
                each.item.problem(
                    f'never used: {place} ("{other.match}") takes all that "{own.match}" matches',
                    "the first match wins, so put the narrower one first, or leave it out",
                )
                break
        earlier += ((each.item.place, told) for told in as_told([each.value]))
    return tuple(each.value for each in found)


ADDRESSES: Final[ListOf[Address, Address]] = ListOf(
    Table(ADDRESS, _make), "a list of addresses, each with match", _check_order
)


def as_told(addresses: Sequence[Address]) -> tuple[AddressConfig, ...]:
    """What routers are told: the addresses, and behind each pipe with several stores that of its log."""
    told: list[AddressConfig] = []
    for each in addresses:
        told.append(each.config)
        if each.pipe is not None and len(each.pipe.stores) > 1:
            told.append(log_address(each.config, each.pipe))
    return tuple(told)
