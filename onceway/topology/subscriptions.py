"""`subscriptions` and `other_subscriptions` of an address: the subscriptions that every router knows from its start.

docs/topology.md explains them. Read `onceway.topology.sections` for the rest of an address.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from onceway.topology.document import Entry, Item
from router.config import AddressConfig
from router.policies import NOBODY, has_owner, owned

OTHER_SUBSCRIPTIONS: Final = ("allow", "refuse")
SUBSCRIPTION_KEYS: Final = ("container", "name", "user")
NAME_LIMIT: Final = 1024  # bytes of a container-id or a link name; the same as in attach
_EXAMPLE: Final = "[billing, {container: spark, name: lake}]"


def read_subscriptions(entry: Entry) -> tuple[tuple[str, str], ...]:
    """Container-id, with its user, and link name of each, in the file's order. `billing` alone stands for both."""
    found: dict[tuple[str, str], Item] = {}
    for item in entry.items(f"a list of subscriptions such as {_EXAMPLE}") or []:
        subscription = _read_subscription(item)
        if subscription is None:
            continue
        if subscription in found:
            container, name = subscription
            item.problem(
                f'container "{container}", link "{name}" is given already, in line {found[subscription].line}',
                "leave one of them out",
            )
            continue
        found[subscription] = item
    return tuple(found)


def _read_subscription(item: Item) -> tuple[str, str] | None:
    if not isinstance(item.node.value, list):  # nothing, or text
        name = item.scalar(_read_name, "a name, or {container: spark, name: lake}")
        return (owned(NOBODY.user, name), name) if name is not None else None
    expected = "a name, or a mapping such as {container: spark, name: lake}"
    fields = item.fields(SUBSCRIPTION_KEYS, expected, required=("container", "name"))
    if fields is None or "container" not in fields or "name" not in fields:
        return None
    user = fields["user"].scalar(_read_name, "the name of a user") if "user" in fields else None
    container = fields["container"].scalar(_read_name, "a container-id")
    name = fields["name"].scalar(_read_name, "the name of a link")
    return (owned(user or NOBODY.user, container), name) if container is not None and name is not None else None


def _read_name(text: str) -> str:
    if not text:
        raise ValueError("an empty name", "write the container-id and the link name that the client attaches with")
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > NAME_LIMIT:
        raise ValueError(f"a name of {size} bytes", f"container-ids and link names have at most {NAME_LIMIT} bytes")
    return text


def check_owners(addresses: Sequence[AddressConfig], entry: Entry) -> None:
    """Where every client is a user, a declared subscription of none could never be attached."""
    for address in addresses:
        for container, name in address.subscriptions:
            if not has_owner(container):
                entry.problem(
                    f'"{address.match}": the subscription {container} {name} is no user\'s, and sasl lets in users',
                    "add user: NAME to it, or to the pipe",
                )


def check_subscriptions(address: AddressConfig, fields: Mapping[str, Entry]) -> None:
    """Declared subscriptions belong to one address, and a set that is closed is not empty."""
    if "subscriptions" in fields and address.match.endswith("*"):
        fields["subscriptions"].problem(
            f'subscriptions of "{address.match}", which matches many addresses',
            "give each address with declared subscriptions an entry of its own, with its exact name",
        )
    elif address.other_subscriptions == "refuse" and "subscriptions" not in fields and address.type == "topic":
        fields["other_subscriptions"].problem(
            "refuse without subscriptions: nobody could subscribe", f"add subscriptions: {_EXAMPLE}, or write allow"
        )
