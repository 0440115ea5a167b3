"""The files that a topology file names, and what a reload says of them."""

from __future__ import annotations

import json
from pathlib import Path

import jwt
import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric import ec

from chaos.live.ports import free_port
from onceway.access import authentication
from onceway.access.files import Files, difference, out_of_reach
from onceway.access.tls import listener_context, profile_context
from onceway.access.users import User, Users, store_users, with_password
from onceway.base.logs import logger
from onceway.host.supervisor import Supervisor
from onceway.operate.control import ControlError
from onceway.operate.reload import ReloadRouter, arguments
from onceway.serve.server import RouterServer
from onceway.topology import Topology, loads
from router.reporting import NO_LOG
from tests.pki import Pki

FILE = """
network: n
tls: {t: {certificate: pki/router.pem, ca: pki/ca.pem, revoked: pki/revoked.pem, clients: optional}}
sasl: {users: users.json%s}
%s
routers:
  a: {amqp: 5672, amqps: 5671, tls: t, interrouter: 7671, admin: 8671}
"""


def topology(directory: Path, sasl: str = "", more: str = "") -> Topology:
    return loads(FILE % (sasl, more), "n.yaml", directory)


def read(at: Topology) -> Files:
    return Files((profile_context(at, "t", "a", NO_LOG), None), authentication.load(at))


def keys(path: Path, *names: str) -> None:
    made = [jwt.algorithms.ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP256R1()).public_key(), as_dict=True)
            for _ in names]  # fmt: skip
    path.write_text(json.dumps({"keys": [{**key, "kid": name} for key, name in zip(made, names, strict=True)]}))


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    pki = Pki(tmp_path / "pki")
    pki.certificate("router", "localhost")
    pki.revoked()
    return pki


def test_each_change_in_another_file_has_its_line(tmp_path: Path, pki: Pki) -> None:
    users, jwks = tmp_path / "users.json", tmp_path / "jwks.json"
    ada, bob, eve = (User(with_password(name), ("ops",)) for name in ("ada", "bob", "eve"))
    secret = Users().secret
    store_users(users, Users({"ada": ada, "bob": bob, "eve": eve}, secret))
    keys(jwks, "old")
    at = topology(tmp_path, ", tokens: {keys: jwks.json, issuer: i, audience: o}")
    before = read(at)
    assert difference(before, read(at)) == []

    moved, other = User(bob.verifiers, ("ops", "sales")), User(with_password("other"), eve.groups)
    store_users(users, Users({"bob": moved, "eve": other, "fay": ada}, secret))
    keys(jwks, "old", "new")
    pki.ca.write_bytes(pki.ca.read_bytes() + Pki(tmp_path / "another").ca.read_bytes())
    pki.revoked(pki.certificate("gone"))
    pki.certificate("router", "localhost")
    lines = difference(before, read(at))
    assert lines[:4] == [
        "removed user ada",
        "added user fay",
        "changed password of user eve",
        "changed groups of user bob ops -> ops, sales",
    ]
    assert lines[4].startswith(f"read again {tmp_path}/pki/router.pem, valid until 20")
    assert lines[5:] == [
        f"read again {tmp_path}/pki/ca.pem, authorities",
        f"read again {tmp_path}/pki/revoked.pem, revoked certificates",
        f"read again {jwks}, keys old, new",
    ]


def test_of_very_many_users_the_first_are_named(tmp_path: Path, pki: Pki) -> None:
    store_users(tmp_path / "users.json", Users())
    before = read(topology(tmp_path))
    store_users(tmp_path / "users.json", Users({f"{number:03}": User({}) for number in range(150)}))
    lines = difference(before, read(topology(tmp_path)))
    assert [len(lines), lines[0], lines[-1]] == [101, "added user 000", "added user: 50 more"]


def test_a_declared_subscription_that_nobody_may_have_is_named(tmp_path: Path, pki: Pki) -> None:
    store_users(tmp_path / "users.json", Users({"ada": User({}, ("ops",)), "bob": User({})}))
    declared = "addresses: [{match: orders, subscriptions: [{user: %s, container: c, name: n}]}]"
    policies = "\npolicies: [{groups: [ops], receive: [orders]}]"

    def said(user: str, more: str = "", sasl: str = "") -> list[str]:
        at = topology(tmp_path, sasl, declared % user + more)
        return out_of_reach(at, authentication.load(at))

    def line(user: str, reason: str) -> list[str]:
        what = f"address orders: publishers wait for the declared subscription {user}|c/n, and {reason}"
        return [f"{what}: remove it from the file, or let the user have it again"]

    assert said("ada") == said("ada", policies) == said("bob") == []
    assert said("bob", policies) == line("bob", "no policy lets user bob receive from it")
    assert said("eve") == line("eve", "there is no user eve")
    by_certificate = ", certificates: [{from: common_name}]"
    assert said("eve", sasl=by_certificate) == [], "a certificate may say who that is"
    assert said("eve", policies, by_certificate) == line("eve", "no policy lets user eve receive from it")


async def test_a_listener_shows_its_profile_until_the_restart_that_a_change_of_it_needs(
    tmp_path: Path, pki: Pki
) -> None:
    pki.certificate("other", "localhost")
    places = {key: free_port() for key in ("amqp", "amqps", "interrouter", "admin")}

    def file(profile: str, port: int) -> Topology:
        profiles = {"x": {"certificate": "pki/router.pem"}, "y": {"certificate": "pki/other.pem"}}
        a = {**places, "amqps": port, "tls": profile}
        return loads(yaml.safe_dump({"network": "n", "tls": profiles, "routers": {"a": a}}), "n.yaml", tmp_path)

    old, new = file("x", places["amqps"]), file("y", free_port())
    server = RouterServer(old, "a", fresh=True)
    reload = ReloadRouter(server, logger("a"))
    await server.start(listener_context(old, "a", NO_LOG))
    try:
        renewed = pki.certificate("router", "localhost", days=100)
        done = await reload.action(arguments(new))
        assert [each.partition(" ")[2].split()[0] for each in done["restart"]] == ["amqps", "tls"]
        assert [each.partition(",")[0] for each in done["files"]] == [f"read again {renewed}"]
        assert [each.file for each in server.certificates] == [renewed]
        assert server.in_force.routers["a"] == old.routers["a"]
        (tmp_path / "pki" / "other.pem").write_text("torn")
        with pytest.raises(ControlError, match=r"other\.pem"):
            await reload.action(arguments(new))
    finally:
        await server.stop(0.0)


async def test_a_dry_run_logs_nothing_and_a_reload_says_once_that_a_certificate_ends(tmp_path: Path, pki: Pki) -> None:
    pki.certificate("router", "localhost", days=3)
    places = {key: free_port() for key in ("amqp", "amqps", "interrouter", "admin")}
    file = {"network": "n", "tls": {"x": {"certificate": "pki/router.pem"}}, "routers": {"a": {**places, "tls": "x"}}}
    at = loads(yaml.safe_dump(file), "n.yaml", tmp_path)
    server, said = RouterServer(at, "a", fresh=True), Events()
    await server.start(listener_context(at, "a", NO_LOG))
    try:
        reload = ReloadRouter(server, said)
        await reload.action(arguments(at, dry_run=True))
        assert said.events == []
        await reload.action(arguments(at))
        assert said.events == ["certificate_expires", "reloaded"]
    finally:
        await server.stop(0.0)


class Events:
    def __init__(self) -> None:
        self.events: list[str] = []

    def debug(self, event: str, text: str, /, **fields: object) -> None:
        self.events.append(event)

    info = warning = debug

    def error(self, event: str, text: str, /, exc: BaseException | None = None, **fields: object) -> None:
        self.events.append(event)


async def test_a_router_that_is_added_with_files_it_could_not_use_is_refused_by_who_would_start_it(
    tmp_path: Path, pki: Pki
) -> None:
    """It was started again and again, and reload said that it was."""

    def file(names: str) -> Topology:
        routers = {name: {key: free_port() for key in ("amqp", "amqps", "interrouter", "admin")} for name in names}
        says = {
            "network": "n",
            "tls": {"x": {"certificate": "pki/${router}.pem"}},
            "routers": {name: {**places, "tls": "x"} for name, places in routers.items()},
            "links": [f"a - {name}" for name in names[1:]],
        }
        return loads(yaml.safe_dump(says), "n.yaml", tmp_path)

    pki.certificate("a", "localhost")
    supervisor = Supervisor(file("a"), ["a"], Reports(), state=tmp_path / "state")
    assert supervisor.reloading is not None
    for dry_run in (True, False):
        with pytest.raises(ControlError, match=r"n.yaml: tls.x.certificate: .*/b.pem cannot be read: No such file"):
            await supervisor.reloading.follow(file("ab"), dry_run=dry_run)
    assert list(supervisor.topology.routers) == ["a"]
    pki.certificate("b", "localhost")
    assert (await supervisor.reloading.follow(file("ab"), dry_run=True))["started"] == ["b"]


class Reports:
    log = logger("test")

    def said(self, name: str, text: str) -> None: ...
    def ready(self, text: str) -> None: ...
    def looked(self) -> None: ...
