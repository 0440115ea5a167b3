"""The admin listener with TLS: who may read, and what no page of another site gets."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

import onceway
from chaos.live.ports import free_port
from onceway.access import authentication
from onceway.access.guesses import MOST_OF_KNOWN
from onceway.access.readers import HEADERS
from onceway.access.users import User, Users, store_users, with_password
from onceway.base.loop import run
from onceway.cli.reload import elsewhere
from onceway.cli.sockets import Reading
from onceway.cli.status import Asked
from onceway.cli.trace import ask as ask_for_trace
from onceway.cli.trace import explain
from onceway.host.management import Management
from onceway.operate.node.node import Node
from onceway.operate.probe import Probe
from onceway.serve.ports import admin_url
from onceway.serve.server import RouterServer
from onceway.topology import ConfigError, Topology, loads
from router.policies import Identity
from router.reporting import NO_LOG
from tests.onceway.test_tokens import AUDIENCE, ISSUER, Issuer
from tests.pki import Pki

BOUND_S = 60.0
PASSWORD = "wonderland"


class Closed:
    """One router in this process, whose admin listener is for the group ops and for carol."""

    def __init__(self, directory: Path) -> None:
        self.pki, self.issuer = Pki(directory / "pki"), Issuer()
        self.pki.certificate("router", "127.0.0.1")
        (directory / "keys.json").write_bytes(self.issuer.jwks())
        names = {"alice": ("ops",), "bob": ()}
        store_users(
            directory / "users.json",
            Users({name: User(with_password(PASSWORD), groups) for name, groups in names.items()}),
        )
        listeners = {name: free_port() for name in ("amqp", "interrouter", "admin")}
        self.text = yaml.safe_dump(
            {
                "network": "n",
                "tls": {"x": {"certificate": "pki/router.pem", "ca": "pki/ca.pem", "clients": "optional"}},
                "sasl": {
                    "users": "users.json",
                    "certificates": [{"from": "common_name"}],
                    "tokens": {"keys": "keys.json", "issuer": ISSUER, "audience": AUDIENCE, "groups": "groups"},
                },
                "admin": {"tls": "x", "groups": ["ops"], "users": ["carol"]},
                "routers": {"a": listeners},
            },
            sort_keys=False,
        )
        self.file = directory / "n.yaml"
        self.topology: Topology = loads(self.text, str(self.file), str(directory))
        self.url = admin_url(self.topology, "a")
        self.server = RouterServer(self.topology, "a", fresh=True)
        self.management = Management(self.server, NO_LOG, None, None)  # type: ignore[arg-type]

    async def __aenter__(self) -> Closed:
        await self.server.start(authentication=authentication.load(self.topology))
        await self.management.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.management.stop()
        await self.server.stop()

    async def get(
        self, page: str, certificate: Path | None = None, method: str = "GET", **more: Any
    ) -> tuple[int, Any]:
        tls = onceway.tls_context(self.pki.ca, certificate)
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls)) as session,
            session.request(method, self.url + page, **more) as response,
        ):
            assert {name: response.headers.get(name) for name in HEADERS} == HEADERS, page
            return response.status, await response.text()


def test_only_those_of_the_file_read_and_nobody_acts(tmp_path: Path) -> None:
    async def story() -> None:
        async with Closed(tmp_path) as closed:
            for page in ("/", "/status", "/metrics", "/trace"):
                status, text = await closed.get(page)
                assert (status, "onceway" in text) == (401, False)
            assert (await closed.get("/healthz"))[0] == 200
            assert (await closed.get("/readyz"))[0] in (200, 503)
            carol, bob = closed.pki.certificate("carol"), closed.pki.certificate("bob")

            def basic(user: str, password: str) -> dict[str, Any]:
                return {"headers": {"Authorization": f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"}}

            def bearer(**claims: Any) -> dict[str, Any]:
                return {"headers": {"Authorization": f"Bearer {closed.issuer.token(**claims)}"}}

            for expected, how in (
                (200, basic("alice", PASSWORD)),
                (401, basic("alice", "wonder")),
                (401, basic("nobody", PASSWORD)),
                (403, basic("bob", PASSWORD)),
                (200, bearer(sub="dave", groups=["ops"])),
                (403, bearer(sub="dave")),
                (401, bearer(sub="dave", groups=["ops"], aud="shop")),
                (200, {"certificate": carol}),
                (403, {"certificate": bob}),
                (401, {"headers": {"Authorization": "Basic =="}}),
                (401, {"headers": {"Authorization": "Digest x"}}),
            ):
                assert (await closed.get("/status?limit=0", **how))[0] == expected, how
            for action in ("/drain", "/reload", "/connection/close"):
                assert (await closed.get(action, method="POST", json={}, **basic("alice", PASSWORD)))[0] == 404
            assert (await closed.get("/status", method="POST", **basic("alice", PASSWORD)))[0] == 405
            assert "onceway_state" in (await closed.get("/metrics", **basic("alice", PASSWORD)))[1]

            own = closed.server.listening.authentication
            assert own is not None
            for _ in range(MOST_OF_KNOWN + 1):  # one is forgotten meanwhile
                own.guesses.failed("127.0.0.1:1", "alice", asyncio.get_running_loop().time())
            assert (await closed.get("/status", **basic("alice", PASSWORD)))[0] == 401, "guessing is over"

    run(asyncio.wait_for(story(), BOUND_S))


def test_new_certificates_are_shown_after_a_reload_and_a_probe_says_what_it_lacks(tmp_path: Path) -> None:
    async def story() -> None:
        async with Closed(tmp_path) as closed:
            login = f"Basic {b64encode(f'alice:{PASSWORD}'.encode()).decode()}"
            tls = onceway.tls_context(closed.pki.ca)
            async with Probe(tls=tls, login=login) as probe:
                found = await probe.summary(closed.url)
                days = [one["days"] for one in found["certificates"]]
                closed.pki.certificate("router", "127.0.0.1", days=2.5)
                closed.management.reload.follow(closed.topology)
                found = await probe.summary(closed.url)
                assert [round(one["days"], 1) for one in found["certificates"]] == [2.5] != days
            async with Probe(tls=tls) as probe:
                assert await probe.summary(closed.url) is None
                assert probe.why[closed.url] == "needs a login: give --user and --password-file, or --certificate"
            for user, password, why in (
                ("bob", PASSWORD, "user 'bob' may not read here"),
                ("alice", "x", "this user and password are not taken"),
            ):
                login = f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"
                async with Probe(tls=tls, login=login) as probe:
                    assert await probe.summary(closed.url) is None
                    assert probe.why[closed.url] == f"does not let us read: {why}"
            async with Probe() as probe:
                assert await probe.summary(closed.url) is None
                assert "does not answer through TLS that we trust, give --ca" in probe.why[closed.url]

    run(asyncio.wait_for(story(), BOUND_S))


async def test_commands_say_that_a_login_is_needed_and_take_one(tmp_path: Path) -> None:
    """`status`, `trace` and `reload`, of a router that runs elsewhere."""
    query = {"address": "orders", "container": "p", "name": "p", "tag": "00"}
    password, needed = tmp_path / "password", "needs a login: give --user and --password-file, or --certificate"
    password.write_text(PASSWORD)
    async with Closed(tmp_path) as closed:
        closed.file.write_text(closed.text)
        carol = str(closed.pki.certificate("carol"))
        ca, nowhere = str(closed.pki.ca), tmp_path / "state"
        nobody = Reading(ca=ca, state_dir=nowhere)
        alice, by_certificate = (
            replace(nobody, user="alice", password_file=str(password)),
            replace(nobody, certificate=carol),
        )
        for target in (str(closed.file), closed.url):
            _, why, _ = await Asked(target, BOUND_S, with_addresses=False, reading=nobody).ask()
            assert list(why.values()) == [needed]
            answers, silent = await ask_for_trace(target, query, nobody)
            (line,) = explain(answers, "p/p", "orders", silent)
            assert line.endswith(f"] {needed}; what it knows is missing")
            for reading in (alice, by_certificate):
                statuses, _, _ = await Asked(target, BOUND_S, with_addresses=False, reading=reading).ask()
                assert list(statuses) == ["a"]
                answers, silent = await ask_for_trace(target, query, reading)
                assert [answer and answer["name"] for answer in answers.values()] == ["a"]
        assert await elsewhere(closed.topology, ["a"], nobody) == [f"[a] {needed}; which file it has is not known"]
        assert await elsewhere(closed.topology, ["a"], alice) == []
        other = loads(closed.text + "addresses: [{match: other}]", str(closed.file), str(tmp_path))
        (line,) = await elsewhere(other, ["a"], alice)
        assert line == "routers on other hosts still have another file: a; reload them, too"


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("{users: [a]}", "admin: passwords and tokens could be read on the way; add tls"),
        ("{tls: x, users: [a]}", "admin: nobody can say who they are; add a section sasl"),
        ("{tls: y}", 'admin.tls: no TLS profile "y"'),
        ("{read: [a]}", 'admin: unknown key "read"'),
    ],
)
def test_mistakes_in_the_file_are_named(section: str, said: str) -> None:
    text = "network: n\ntls: {x: {certificate: c}}\nrouters: {a: {amqp: 1, interrouter: 2, admin: 3}}\n"
    with pytest.raises(ConfigError) as caught:
        loads(f"{text}admin: {section}\n")
    assert said in str(caught.value)


POLICIES = 'policies: [{users: ["*"], send: ["*"], receive: ["*"], dynamic: true}]\n'
ADMIN = "admin: {tls: x, users: [bob], groups: [watch], act: {users: [carol]}}\n"


@pytest.mark.parametrize(
    ("text", "readers"),
    [
        ("", {"alice", "bob", "carol", "watcher", "anonymous"}),
        (POLICIES, set()),
        (ADMIN, {"bob", "carol", "watcher"}),
        (POLICIES + ADMIN, {"bob", "carol", "watcher"}),
        ("admin: {act: {users: [carol]}}\n", {"alice", "bob", "carol", "watcher", "anonymous"}),
        (POLICIES + "admin: {act: {users: [carol]}}\n", {"carol"}),
    ],
)
def test_who_may_ask_the_management_node(text: str, readers: set[str]) -> None:
    """Policies that let everybody do everything with addresses let nobody read there."""
    base = (
        "network: n\ntls: {x: {certificate: c}}\nsasl: {users: u}\nrouters: {a: {amqp: 1, interrouter: 2, admin: 3}}\n"
    )
    topology = loads(base + text)
    server = RouterServer(topology, "a", fresh=True, log=NO_LOG)
    node = Node(server, None, None)  # type: ignore[arg-type]
    groups = {"watcher": ("watch",)}
    names = ("alice", "bob", "carol", "watcher", "anonymous")
    assert {name for name in names if node.may_read(Identity(name, groups.get(name, ())))} == readers
