"""`subscriptions` of an address: the subscriptions that every router knows from its start.

docs/topology.md explains them. Read `onceway.topology.addresses` for the rest of an address.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from onceway.topology.document import Entry, Item
from onceway.topology.forms import USER_NAME, Scope, Text
from onceway.topology.table import Either, Given, ListOf, Read, Row, Section, Table, When
from router.config import AddressConfig
from router.policies import NOBODY, has_owner, owned

NAME_LIMIT: Final = 1024  # bytes of a container-id or a link name; the same as in attach
EXAMPLE: Final = "[billing, {container: spark, name: lake}]"

Subscription = tuple[str, str]  # container-id, with its user, and link name


def _read_name(text: str) -> str:
    if not text:
        raise ValueError("an empty name", "write the container-id and the link name that the client attaches with")
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > NAME_LIMIT:
        raise ValueError(f"a name of {size} bytes", f"container-ids and link names have at most {NAME_LIMIT} bytes")
    return text


SUBSCRIPTION: Final = Section(
    "subscriptions",
    "a name, or a mapping such as {container: spark, name: lake}",
    (
        Row("container", Text(_read_name, "a container-id", "."), When.AT_ONCE,
            "the container-id that its client attaches with", required=True),
        Row("name", Text(_read_name, "the name of a link", "."), When.AT_ONCE, "the name of its link", required=True),
        Row("user", USER_NAME, When.AT_ONCE,
            "the user whose client alone can attach as it"),
    ),
)  # fmt: skip


def _make(given: Given, scope: Scope) -> Subscription | None:
    container, name = given.values.get("container"), given.values.get("name")
    if container is None or name is None:
        return None
    return owned(given.values.get("user", NOBODY.user), container), name


def _check(item: Item, found: list[Read[Subscription]], scope: Scope) -> tuple[Subscription, ...]:
    """In the file's order."""
    first: dict[Subscription, Item] = {}
    for each in found:
        if each.value in first:
            container, name = each.value
            each.item.problem(
                f'container "{container}", link "{name}" is given already, in line {first[each.value].line}',
                "leave one of them out",
            )
            continue
        first[each.value] = each.item
    return tuple(first)


def _read_both(text: str) -> Subscription:
    """`billing` alone stands for container-id and link name."""
    return owned(NOBODY.user, _read_name(text)), text


def _show(value: Subscription) -> str:
    container, name = value
    return container if container == name else f"{container} {name}"


SUBSCRIPTIONS: Final[ListOf[Subscription, Subscription]] = ListOf(
    Either(
        Text(_read_both, "a name, or {container: spark, name: lake}", ".", _show),
        Table(SUBSCRIPTION, _make),
    ),
    f"a list of subscriptions such as {EXAMPLE}",
    _check,
)


def check_owners(addresses: Sequence[AddressConfig], entry: Entry) -> None:
    """Where every client is a user, a declared subscription of none could never be attached."""
    for address in addresses:
        for container, name in address.subscriptions:
            if not has_owner(container):
                entry.problem(
                    f'"{address.match}": the subscription {container} {name} is no user\'s, and sasl lets in users',
                    "add user: NAME to it, or to the pipe",
                )
