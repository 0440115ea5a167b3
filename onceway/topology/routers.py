"""`routers` of a topology file: which there are, and where they listen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from onceway.base.values import format_host_port, is_loopback, is_unspecified, read_name
from onceway.topology.document import Entry, Item
from onceway.topology.forms import HOST, Form, HostPort, Part, Place, Profile, Schema, Scope
from onceway.topology.limits import OF_A_ROUTER
from onceway.topology.listeners import BY_KEY, FOR_CLIENTS, LISTENERS, SECURE, RouterAddress
from onceway.topology.table import Given, Row, Section, When
from router.config import Limits

_EXPECTED: Final = "a mapping such as a: {amqp: 5672, interrouter: 7671, admin: 8671}"
ROUTER: Final = Section(
    "routers",
    "a mapping such as {amqp: 5672, interrouter: 7671, admin: 8671}",
    (
        *(Row(each.key, Place(), When.RESTART, each.help, required=not each.for_clients, since=each.since)
          for each in LISTENERS),
        Row("host", HOST, When.RESTART, "the host of this router's ports that name none", default="`defaults`'",
            shown_by=tuple(BY_KEY)),
        Row("tls", Profile(), When.RESTART, "the [profile](#tls) of `amqps`, `wss` and `mqtts`"),
        Row("limits", OF_A_ROUTER, When.AT_ONCE, "limits of this router's AMQP listener that differ from the file's",
            default="the file's `limits`", apart=True),
    ),
    RouterAddress,
    one_of=FOR_CLIENTS,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Listening:
    """A router of the file."""

    at: RouterAddress
    limits: Limits | None  # None: the file's


@dataclass(frozen=True, slots=True)
class _Taken:
    place: HostPort
    entry: Entry
    machine: str  # by which the other routers reach its router


@dataclass(frozen=True, slots=True)
class _Routers(Form[dict[str, Listening]]):
    """Routers by name; no two listeners are at the same place."""

    def read(self, item: Item, scope: Scope) -> dict[str, Listening] | None:
        entries = item.entries(_EXPECTED)
        if entries is None:
            return None
        if not entries:
            item.problem("there are no routers", f"write {_EXPECTED}")
        taken: list[_Taken] = []
        found = {}
        for name, entry in entries.items():
            try:
                read_name(name)
            except ValueError as error:
                entry.problem(*error.args)
            if name.split("-")[0] == "supervisor":  # the names of supervisors' control sockets
                entry.problem(f'"{name}" is the name of a supervisor', "choose another name")
            given = ROUTER.read(entry, replace(scope, host=""))
            found[name] = _listening(given or Given(entry, {}, {}), scope.host, taken)
        return found

    def schema(self) -> Schema:
        return {"type": "object", "minProperties": 1, "additionalProperties": ROUTER.schema()}

    def parts(self) -> Iterator[Part]:
        yield (), self
        yield from ((("*", *place), part) for place, part in ROUTER.parts())


ROUTERS: Final = _Routers()


def _listening(given: Given, host: str, taken: list[_Taken]) -> Listening:
    """host: of routers that have none. Ports that name none have the router's, which stands anywhere in its mapping."""
    entries, host = given.entries, given.values.get("host", host)
    places = {key: (each[0] or host, each[1]) for key in BY_KEY if (each := given.values.get(key)) is not None}
    listeners = {key: places.get(key, (host, 0)) for key in BY_KEY if key in places or key not in FOR_CLIENTS}
    for key, place in places.items():
        _check_place(key, _Taken(place, entries[key], listeners["interrouter"][0]), taken)
    secure = [entries[key] for key in BY_KEY if key in SECURE and key in entries]
    if secure and "tls" not in entries:
        secure[0].problem("a listener with TLS and no certificate", "add tls: the name of a profile under tls")
    if "tls" in entries and not secure:
        *some, last = (row.key for row in LISTENERS if row.secure)
        entries["tls"].problem("no listener has TLS", f"add {', '.join(some)} or {last}: a port for clients with TLS")
    return Listening(RouterAddress(listeners, given.values.get("tls", "")), given.values.get("limits"))


def _check_place(key: str, one: _Taken, taken: list[_Taken]) -> None:
    if BY_KEY[key].reach == "neighbours" and is_unspecified(one.place[0]):
        one.entry.problem(
            f"{format_host_port(one.place)} is no address that a neighbour can connect to",
            "write the host by which the other routers reach this one",
        )
    other = next((each for each in taken if _clash(each, one)), None)
    if other is not None:
        one.entry.problem(
            f"{format_host_port(one.place)} is taken by {other.entry.place} (line {other.entry.line})",
            "give each listener a port of its own",
        )
    else:
        taken.append(one)


def _clash(one: _Taken, other: _Taken) -> bool:
    """Whether both cannot listen. Loopback and unspecified addresses are each machine's own: routers that others reach
    by different hosts may both have them."""
    if one.place[1] != other.place[1]:
        return False
    hosts = {"127.0.0.1" if each.place[0] == "localhost" else each.place[0].lower() for each in (one, other)}
    machines = {each.machine.lower() for each in (one, other)}
    if len(machines) == 2 and not any(map(is_loopback, machines)):
        return len(hosts) == 1 and not any(is_loopback(host) or is_unspecified(host) for host in hosts)
    return len(hosts) == 1 or any(map(is_unspecified, hosts))


def check_no_mqtt(item: Item) -> None:
    """A listener for MQTT needs the section that says which topics there are."""
    for each in (item.entries("") or {}).values() if item.is_mapping else ():
        for key, entry in (each.entries("") or {}).items() if each.is_mapping else ():
            if key in BY_KEY and BY_KEY[key].needs == "mqtt":
                entry.problem("a listener for MQTT, and no topics", 'add a section mqtt: {topics: {"#": ADDRESS}}')
