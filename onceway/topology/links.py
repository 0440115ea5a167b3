"""`links` of a topology file: which routers are neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from onceway.topology.document import Item, suggest
from onceway.topology.forms import DEFAULT_HOST, Count, HostPort, Place, Scope, Text
from onceway.topology.table import Either, Given, ListOf, Read, Row, Section, Table, When

Link = tuple[str, str, int]  # two routers and the cost between them
_EXPECTED: Final = '"a - b" or {between: [a, b], cost: 2}'


@dataclass(frozen=True, slots=True)
class GivenLink:
    """A link as the file has it."""

    between: tuple[str, ...]
    cost: int = 1
    via: HostPort | None = None  # where it is dialled, in place of the neighbour's listener


def _read_pair(text: str) -> GivenLink:
    names = text.split(" - ")
    if len(names) != 2:
        raise ValueError(f'"{text}" is no link', "write two routers as: a - b")
    return GivenLink(tuple(name.strip() for name in names))


def _check_between(item: Item, found: list[Read[str]], scope: Scope) -> tuple[str, ...]:
    if len(item.node.value) != 2:
        item.problem(f"{len(item.node.value)} routers", "a link is between two: between: [a, b]")
        return ()
    return tuple(each.value for each in found)


def _make(given: Given, scope: Scope) -> GivenLink | None:
    """None where what is written of it could not be read."""
    unread = [key for key in given.entries if LINK.by_key[key].name not in given.values]
    return None if unread or len(given.values.get("between", ())) != 2 else GivenLink(**given.values)


LINK: Final = Section(
    "links",
    _EXPECTED,
    (
        Row("between", ListOf(Text(str, "the name of a router"), "a list of two routers", _check_between),
            When.AT_ONCE,
            "the two routers. The one whose name sorts first connects to the other one, at that one's `interrouter` "
            "address", required=True),
        Row("cost", Count(1, 1 << 20), When.AT_ONCE, "messages take the cheapest path"),
        Row("via", Place(DEFAULT_HOST), When.AT_ONCE,
            "another address to connect to, such as a forwarder or a proxy between the two ([chaos runs](chaos.md) "
            "break links there). It is used when the link is connected the next time",
            default="the neighbour's `interrouter`"),
    ),
    GivenLink,
)  # fmt: skip
ONE_LINK: Final = Either(Text(_read_pair, _EXPECTED, " - "), Table(LINK, _make))


def _keep(item: Item, found: list[Read[GivenLink]], scope: Scope) -> tuple[Any, ...]:
    return tuple(found) if len(found) == len(item.node.value) else (*found, None)


LINKS: Final[ListOf[GivenLink, Any]] = ListOf(
    ONE_LINK, 'a list of links, each "a - b" or {between: [a, b], cost: 2}', _keep
)


def join(
    item: Item, found: Sequence[Read[GivenLink] | None], routers: Sequence[str]
) -> tuple[list[Link], dict[frozenset[str], HostPort]]:
    """Returns the links, and where those are dialled that have a `via`.

    Args:
        item: What problems with all of them are named at.
        found: What could be read; None stands for what could not.
        routers: Those that there are.
    """
    links: list[Link] = []
    vias: dict[frozenset[str], HostPort] = {}
    lines: dict[frozenset[str], Item] = {}
    sound = True
    for each in found:
        if each is None or not _ends_are_known(each, routers):
            sound = False
            continue
        one, other = each.value.between
        pair = frozenset((one, other))
        if pair in lines:
            each.item.problem(f"{one} - {other} is given already, in line {lines[pair].line}", "leave one of them out")
            continue
        lines[pair] = each.item
        links.append((one, other, int(each.value.cost)))
        if each.value.via is not None:
            vias[pair] = each.value.via
    if sound:
        _check_connected(item, routers, links)
    return links, vias


def _ends_are_known(link: Read[GivenLink], routers: Sequence[str]) -> bool:
    one, other = link.value.between
    known = True
    for name, item in zip(link.value.between, _ends(link.item), strict=True):
        if name not in routers:
            item.problem(f'no router "{name}"', suggest(name, routers, "routers are") or "add it under routers")
            known = False
    if known and one == other:
        link.item.problem(f"a link from {one} to itself", "a link is between two routers")
        known = False
    return known


def _ends(item: Item) -> Sequence[Item]:
    if item.is_scalar:
        return item, item
    return (item.entries("") or {})["between"].items("") or ()


def _check_connected(item: Item, routers: Sequence[str], links: Sequence[Link]) -> None:
    """Every router must be reachable from every other: two halves would be two networks."""
    pieces: list[list[str]] = []
    left = list(routers)
    while left:
        piece = [left.pop(0)]
        for name in piece:
            for one, other, _ in links:
                far = other if one == name else one if other == name else None
                if far in left:
                    left.remove(far)
                    piece.append(far)
        pieces.append([name for name in routers if name in piece])
    if len(pieces) > 1:
        item.problems.add(
            item.line,
            "links",
            f"the network falls apart into {' | '.join(', '.join(piece) for piece in pieces)}",
            f"add a link, for example: {pieces[0][0]} - {pieces[1][0]}",
        )


def said(link: Link, via: Mapping[frozenset[str], HostPort]) -> GivenLink:
    """A link of a topology as a file has it."""
    one, other, cost = link
    return GivenLink((one, other), cost, via.get(frozenset((one, other))))
