"""What a topology file may say: its top level, and what must fit together across its sections.

Reading goes on after a problem, so that all of them come at once; a value that could not be read is left at its
default and not judged again. The result is only used when there was no problem. Each section has a module of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from onceway.base.values import read_host
from onceway.topology import admin, mqtt, sasl, settings, tls, websocket
from onceway.topology.addresses import ADDRESSES, as_told
from onceway.topology.document import Entry, Item, Problems
from onceway.topology.forms import DEFAULT_HOST, HOST, NAME, Scope, Text
from onceway.topology.limits import OF_A_ROUTER, USERS
from onceway.topology.links import LINKS, join
from onceway.topology.model import Topology
from onceway.topology.policies import POLICIES
from onceway.topology.routers import ROUTERS, check_no_mqtt
from onceway.topology.settings import Settings, check_sign_of_life, longest_sign_of_life_s
from onceway.topology.subscriptions import check_owners
from onceway.topology.table import ListOf, Row, Section, Table, When, fields_of
from router.config import AddressConfig, RouterConfig, stripped

DEFAULTS: Final = Section(
    "defaults",
    "a mapping such as {host: 127.0.0.1}",
    (
        Row("host", HOST, When.RESTART, "where ports without a host listen", default=DEFAULT_HOST),
    ),
)  # fmt: skip
_HOSTS: Final[ListOf[str, str]] = ListOf(
    Text(lambda text: read_host(text).lower(), "a host"), "a list of hosts, such as amqp.example.org"
)

TOP: Final = Section(
    "top level",
    "a mapping with network, routers and links",
    (
        Row("network", NAME, When.NEVER, "the network's name", required=True),
        Row("defaults", Table(DEFAULTS, lambda given, scope: given.values.get("host")), When.RESTART,
            "`host`: where ports without a host listen; 127.0.0.1", apart=True),
        Row("settings", settings.FORM, When.AT_ONCE, "timers and sizes, [below](#settings)", apart=True),
        Row("limits", OF_A_ROUTER, When.AT_ONCE, "what clients may take of each router, [below](#limits-and-users)",
            apart=True),
        Row("users", USERS, When.AT_ONCE, "limits of single users, [below](#limits-and-users)", apart=True),
        Row("policies", POLICIES, When.AT_ONCE,
            "which users may use which addresses, [below](#policies); without it all may use all", apart=True),
        Row("addresses", ADDRESSES, When.AT_ONCE, "settings of addresses, [below](#addresses); the first match wins",
            apart=True),
        Row("mqtt", mqtt.FORM, When.AT_ONCE, "which topics clients of MQTT have, [below](#mqtt)", apart=True),
        Row("tls", tls.PROFILES, When.NEW_CONNECTIONS, "certificates and keys of listeners and trunks, [below](#tls)",
            apart=True),
        Row("sasl", sasl.FORM, When.NEW_CONNECTIONS,
            "how clients say who they are, [below](#sasl); without it they need not", apart=True),
        Row("trunks", tls.TRUNK_FORM, When.RESTART,
            "how routers connect to each other, [below](#trunks). Without the section they have neither TLS nor a "
            "key, and the file is refused where a router's `interrouter` is not at this machine alone", apart=True),
        Row("websocket", websocket.FORM, When.NEW_CONNECTIONS, "which web pages may connect, [below](#websocket)",
            apart=True),
        Row("hostnames", _HOSTS, When.NEW_CONNECTIONS,
            "the hosts that clients may name in their open, such as `[amqp.example.org]`: a client that names "
            "another one has come to the wrong network, and is closed with `amqp:not-found`. Name the hosts of your "
            "tools' URLs, too. Without it, and for clients that name none, every one will do"),
        Row("http_hosts", _HOSTS, When.NEW_CONNECTIONS,
            "hosts that requests of HTTP (`admin`, `ws`, `wss`) may name besides the hosts of this file, those of the "
            "certificate, `localhost` and addresses, such as the name by which Prometheus or a proxy asks. Others are "
            "answered with 421: a page could have its name mean this machine", since="0.10.0"),
        Row("admin", admin.FORM, When.AT_ONCE, "who reads the admin listeners, and who may act, [below](#admin)",
            apart=True),
        Row("routers", ROUTERS, When.AT_ONCE,
            "the routers by name, with their listeners, [below](#routers); `supervisor` and names that begin with "
            "`supervisor-` are taken", required=True, apart=True),
        Row("links", LINKS, When.AT_ONCE,
            "which routers are neighbours, [below](#links); required from two routers on", apart=True),
    ),
)  # fmt: skip


def read_topology(root: Item, problems: Problems) -> Topology | None:
    top = TOP.entries(root)
    if top is None:
        return None
    scope = Scope()

    def read(key: str, default: Any = None) -> Any:
        value = TOP.by_key[key].form.read(top[key], scope) if key in top else None
        return default if value is None else value

    plain = {row.name: value for row in TOP.rows if not row.apart and (value := read(row.key)) is not None}
    scope.host = read("defaults", DEFAULT_HOST)
    given: Settings = read("settings", Settings({}, {}))
    scope.settings = trial = RouterConfig(name="", **given.of_routers)
    scope.for_addresses = given.of_addresses
    scope.limits = limits = read("limits", scope.limits)
    scope.profiles = profiles = read("tls", {})
    scope.sasl = login = read("sasl")
    users = read("users", {})
    policies = read("policies")
    trunks = read("trunks", {})
    origins = read("websocket", ())
    rules = read("admin", admin.AdminRules())
    listening = read("routers", {})
    routers = {name: each.at for name, each in listening.items()}
    of_routers = {name: each.limits for name, each in listening.items() if each.limits is not None}
    scope.sign_of_life_s = longest_sign_of_life_s(trial, [limits, *of_routers.values(), *users.values()])
    entries = read("addresses", ())
    told = as_told(entries)
    defaults = AddressConfig(**given.of_addresses)
    if "addresses" in top and login is not None and sasl.ANONYMOUS not in login.mechanisms:
        check_owners(told, top["addresses"])
    if not any(address.match == "*" for address in told):
        check_sign_of_life(defaults, top.get("settings", root), scope.sign_of_life_s)
    if "mqtt" not in top and "routers" in top:
        check_no_mqtt(top["routers"])
    scope.addresses = told
    of_mqtt = read("mqtt")
    found = read("links", ())
    whole: Entry | None = top.get("links", top.get("routers"))
    links, via = join(whole, found, list(routers)) if whole is not None else ([], {})
    if "trunks" not in top:
        places = {end: routers[end]["interrouter"] for link in links for end in link[:2]}
        tls.check_trunks_stay(top.get("links", root), places)
    if problems.found:
        return None
    config = RouterConfig(
        name="",
        routers=tuple(routers),
        addresses=(*(of_mqtt.addresses if of_mqtt is not None else ()), *told),
        defaults=defaults,
        limits=limits,
        users=tuple(users.items()),
        policies=policies,
        **fields_of(RouterConfig, plain),
        **(of_mqtt.of_routers if of_mqtt is not None else {}),
        **given.of_routers,
    )
    _warn_of_names(top, config)
    return Topology(
        path=Path(problems.file),
        routers=routers,
        links=tuple(links),
        settings=config,
        given=entries,
        mqtt=of_mqtt,
        via=via,
        limits=of_routers,
        tls=profiles,
        sasl=login,
        origins=origins,
        admin=rules,
        warnings=tuple(problems.warnings),
        **trunks,
        **fields_of(Topology, plain),
    )


def _warn_of_names(top: Mapping[str, Entry], config: RouterConfig) -> None:
    """Names of this file that mean another one where a client of AMQP says them, or would if they were not here."""
    remedy = "name what is left, or write settings: {strip_addresses: false}"
    of_mqtt = [config.mqtt_retained, *(address for _, address in (*config.mqtt_topics, *config.mqtt_shared))]
    for section, names in (("addresses", [_said(each.match) for each in config.addresses]), ("mqtt", of_mqtt)):
        for said in names if section in top else ():
            left = stripped(said)
            if config.strip_addresses and left != said == config.left_of(said):
                text = f"{said} is an address of its own, as it stands here: else a client that says it means {left}"
                top[section].warn(text, remedy)
    for policy in config.policies or ():
        for match in (*policy.send, *policy.receive):
            said = _said(match)
            if config.left_of(said) != said:
                text = f"{match} allows no client of AMQP anything: who says {said} means {config.left_of(said)}"
                top["policies"].warn(text, remedy)


def _said(match: str) -> str:
    """An address that it matches."""
    return f"{match[:-1]}…" if match.endswith("*") else match
