"""What is made of the table of settings: the reference, the schema, and what a reload says and does for each row."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from chaos.live.ports import free_port
from onceway.access import authentication
from onceway.access.tls import listener_context
from onceway.base.logs import logger
from onceway.operate.control import ControlError
from onceway.operate.reload import ReloadRouter, arguments
from onceway.serve.server import RouterServer
from onceway.topology import ConfigError, Topology, load, loads, reference
from onceway.topology.forms import Duration
from onceway.topology.listeners import FIRST
from onceway.topology.said import configuration
from onceway.topology.table import Row, Section, When
from router.config import RouterConfig
from tests.cli.conftest import called
from tests.onceway import test_topology as broken
from tests.pki import Pki

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "topology.md"
SECTIONS = reference.by_title()
FILES = sorted(
    path
    for folder in ("topologies", "examples", "docs", "bench", "chaos", "tests")
    for path in (ROOT / folder).rglob("*.yaml")
)


def guess(text: str) -> Any:
    """The document as an editor takes it: YAML 1.2, where `off` and `no` are texts."""
    loader = yaml.SafeLoader(text)
    loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in found if tag != "tag:yaml.org,2002:bool"]
        for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def faults(text: str) -> list[str]:
    validator = jsonschema.Draft202012Validator(reference.schema())
    return [
        error.message for document in (yaml.safe_load(text), guess(text)) for error in validator.iter_errors(document)
    ]


def test_the_reference_has_every_key() -> None:
    text = PAGE.read_text()
    for title, section in SECTIONS.items():
        missing = [row.key for row in section.rows if not re.search(rf"`[^`]*\b{row.key}\b[^`]*`", text)]
        assert not missing, f"docs/topology.md says nothing of {title}: {missing}"


def test_a_row_that_nothing_holds_is_refused_as_it_is_declared() -> None:
    """The file's value would be read, and dropped: each plan would say that nothing changes."""
    row = Row("linger", Duration(0.1, 60), When.AT_ONCE, "how long a client that says nothing may stay")
    with pytest.raises(AssertionError, match=r"settings\.linger: nothing holds `linger`; give its row the `field`"):
        Section("settings", "a mapping", (row,), (RouterConfig,))
    Section("settings", "a mapping", (replace(row, field="heartbeat_s"),), (RouterConfig,))


def test_a_key_that_0_9_0_did_not_have_says_since_when_it_is_there() -> None:
    known = yaml.safe_load((Path(__file__).parent / "keys_of_0.9.0.yaml").read_text())
    for title, section in SECTIONS.items():
        found = [row.key for row in section.rows if row.since == FIRST]
        assert [key for key in found if key not in known.get(title, ())] == [], f"{title}: give them since"


def test_the_published_schema_is_that_of_the_command() -> None:
    done = called("schema")
    assert (done.returncode, done.stdout) == (0, (PAGE.parent / reference.SCHEMA).read_text())
    jsonschema.Draft202012Validator.check_schema(json.loads(done.stdout))


def good() -> list[str]:
    """Files that `check` takes: those of the repository, and each change of the walk."""
    texts = [path.read_text() for path in FILES] + [yaml.safe_dump(changed(*each[1:])) for each in WALK]
    found = []
    for text in texts:
        try:
            loads(text)
        except ConfigError:
            continue
        found.append(text)
    return found


def test_the_schema_takes_every_file_that_check_takes() -> None:
    texts = good()
    assert len(texts) >= 80
    for text in texts:
        assert faults(text) == [], text


@pytest.mark.parametrize(
    "added",
    [
        "colour: red\n",
        "settings: {heartbeat: fast}\n",
        "settings: {heartbeat: 5}\n",
        "settings: {window_bytes: 8MB}\n",
        "settings: {window_messages: ten}\n",
        "settings: {window_messages: -70}\n",
        "settings: {ready_when_isolated: perhaps}\n",
        "settings: 5\n",
        "addresses: [{type: topic}]\n",
        "addresses: {match: x}\n",
        "addresses: [{match: a, other_subscriptions: maybe}]\n",
        "addresses: [{match: a, subscriptions: billing}]\n",
        "addresses: [{match: a, subscriptions: [{container: c}]}]\n",
        "addresses: [{match: x, type: pipe, stores: {a: 1}, retention: {age: 72}}]\n",
        "defaults: {hots: x}\n",
        "limits: {conections: 5}\n",
        "users: {guest: {limit: {links: 5}}}\n",
        "tls: {x: {key: k}}\n",
        "tls: {x: {certificate: c, minimum: 1.1}}\n",
        "sasl: {mechanisms: [LOGIN]}\n",
        "sasl: {tokens: {keys: k, issuer: i}}\n",
        "sasl: {certificates: [{match: x}]}\n",
        "trunks: {key: k}\n",
        "websocket: {}\n",
        "mqtt: {shared: {}}\n",
        "policies: [{user: [a]}]\n",
    ],
)
def test_the_schema_refuses_what_check_refuses(added: str) -> None:
    text = broken.HEAD + added
    assert faults(text)
    with pytest.raises(ConfigError):
        loads(text)


# --- the walk over all rows


def base() -> dict[str, Any]:
    """A file with every key, which one router follows."""
    ports = dict(zip(PORTS, PLACES, strict=True))
    return {
        "network": "walk",
        "defaults": {"host": "127.0.0.1"},
        "settings": {"memory_limit": "256MiB", "max_message_size": "16MiB", "stream_above": "1MiB"},
        "limits": {},
        "users": {"alice": {"limits": {"links": 5}}},
        "policies": [{"users": ["*"], "send": ["*"], "receive": ["*"], "dynamic": True}],
        "addresses": [
            {"match": "orders", "subscriptions": [{"container": "c", "name": "n", "user": "alice"}]},
            {"match": "jobs", "type": "queue"},
            {"match": "audit", "subscription_timeout": "30s"},
            {"match": "group", "type": "queue"},
            {"match": "line", "type": "pipe", "stores": {"s": 1}, "user": "alice"},
        ],
        "mqtt": {"topics": {"#": "audit"}, "retained": {"address": "kept", "stores": ["s"], "user": "alice"}},
        "tls": {"x": {"certificate": "router.pem", "ca": "ca.pem"}, "y": {"certificate": "router.pem", "ca": "ca.pem"}},
        "sasl": {"users": "users.json", "mechanisms": ["SCRAM-SHA-512", "PLAIN"]},
        "trunks": {"tls": "off"},
        "websocket": {"origins": ["https://one.example"]},
        "hostnames": ["one.example"],
        "http_hosts": ["one.example"],
        "admin": {"tls": "x", "users": ["alice"]},
        "routers": {
            "a": {**ports, "tls": "x"},
            "b": {"amqp": 11, "interrouter": 12, "admin": 13},
        },
        "links": ["a - b"],
    }


LOG = logger("a")
PORTS = ("amqp", "amqps", "ws", "wss", "mqtt", "mqtts", "interrouter", "admin")
PLACES = [free_port() for _ in PORTS]
PIPE = ("addresses", 4)
LINK = {"between": ["a", "b"]}
TOKENS = {"keys": "jwks.json", "issuer": "https://id.example", "audience": "onceway"}
RULES = [{"from": "common_name"}]

# section, what is changed first so that the key may be there, place of the key, its new value
Step = tuple[str, dict[tuple[Any, ...], Any], tuple[Any, ...], Any]
WALK: list[Step] = [
    ("top level", {}, ("network",), "other"),
    ("top level", {}, ("hostnames",), ["two.example"]),
    ("top level", {}, ("http_hosts",), ["two.example"]),
    ("defaults", {}, ("defaults", "host"), "127.0.0.2"),
    *(
        ("settings", {}, ("settings", key), value)
        for key, value in {
            "heartbeat": "400ms", "dead_after": "4s", "discovery": "2s", "idle_timeout": "20s", "proof_after": "1s",
            "window_messages": 7, "window_bytes": "7MiB", "unsettled_window": 7, "max_message_size": "7MiB",
            "max_frame_size": "7MiB", "stream_above": "7MiB", "memory_limit": "70MiB", "presettled_queue": 7,
            "ready_when_isolated": True, "strip_addresses": False, "done_bytes": "7MiB", "subscription_timeout": "55s", "publisher_timeout": "7m",
        }.items()
    ),
    *(
        ("limits", {} if place[0] == "limits" else {place: {}}, (*place, key), value)
        for place in (("limits",), ("users", "alice", "limits"), ("routers", "a", "limits"))
        for key, value in {
            "connections": 7, "half_open": 7, "handshake_timeout": "7s", "sessions": 7, "links": 7, "unsettled_map": 7,
            "unread_output": "7MiB", "max_frame_size": "1MiB", "max_message_size": "1MiB", "unsettled_window": 8,
            "idle_timeout": "17s",
        }.items()
        if place[0] != "users" or key not in ("half_open", "handshake_timeout")
    ),
    *(
        ("policies", {}, ("policies", 0, key), value)
        for key, value in {
            "users": ["alice"], "groups": ["ops"], "send": ["orders"], "receive": ["orders"], "dynamic": False,
            "anonymous": False,
        }.items()
    ),
    ("addresses", {}, ("addresses", 2, "match"), "audited"),
    ("addresses", {}, ("addresses", 1, "type"), "topic"),
    *(
        ("addresses", {}, ("addresses", 2, key), value)
        for key, value in {
            "guarantee": "at-most-once", "subscription_timeout": "20s", "publisher_timeout": "9m",
            "no_subscribers": "accept", "expire": True, "max_redeliveries": 7,
        }.items()
    ),
    ("addresses", {}, ("addresses", 1, "priority"), True),
    ("addresses", {}, ("addresses", 0, "subscriptions"), [{"container": "d", "name": "n", "user": "alice"}]),
    ("addresses", {}, ("addresses", 0, "other_subscriptions"), "refuse"),
    *(
        ("addresses", {}, (*PIPE, key), value)
        for key, value in {
            "stores": {"s": 2}, "store_data": {"s": "/srv/s"}, "store_metrics": {"s": 3}, "store_tls": "x",
            "retention": {"age": "72h"}, "user": "bob",
        }.items()
    ),
    *(("subscriptions", {}, ("addresses", 0, "subscriptions", 0, key), "bob") for key in ("container", "name", "user")),
    ("retention", {(*PIPE, "retention"): {"age": "1h"}}, (*PIPE, "retention", "age"), "72h"),
    ("retention", {(*PIPE, "retention"): {"age": "1h"}}, (*PIPE, "retention", "size"), "1GiB"),
    ("mqtt", {}, ("mqtt", "topics"), {"plant": "audit"}),
    ("mqtt", {}, ("mqtt", "shared"), {"workers/#": "group"}),
    ("mqtt", {}, ("mqtt", "retained"), {"address": "kept", "stores": ["t"]}),
    ("mqtt", {}, ("mqtt", "session_expiry"), "7s"),
    ("retained", {}, ("mqtt", "retained", "address"), "kept2"),
    ("retained", {}, ("mqtt", "retained", "stores"), ["s", "t"]),
    ("retained", {}, ("mqtt", "retained", "user"), "bob"),
    *(
        ("tls", {}, ("tls", "y", key), value)
        for key, value in {
            "certificate": "other.pem", "key": "other.pem", "names": {"one.example": {"certificate": "router.pem"}},
            "ca": "other.pem", "clients": "required", "revoked": "crl.pem", "minimum": "1.3", "ciphers": "HIGH",
        }.items()
    ),
    *(
        ("names", {("tls", "y", "names"): {"one.example": {"certificate": "router.pem"}}},
         ("tls", "y", "names", "one.example", key), "other.pem")
        for key in ("certificate", "key")
    ),
    ("sasl", {}, ("sasl", "mechanisms"), ["SCRAM-SHA-512"]),
    ("sasl", {}, ("sasl", "users"), "others.json"),
    ("sasl", {}, ("sasl", "plain_without_tls"), True),
    ("sasl", {}, ("sasl", "certificates"), RULES),
    ("sasl", {}, ("sasl", "tokens"), TOKENS),
    *(
        ("certificates", {("sasl", "certificates"): RULES}, ("sasl", "certificates", 0, key), value)
        for key, value in {"from": "email", "match": "(.*)@x", "user": "bob"}.items()
    ),
    *(
        ("tokens", {("sasl", "tokens"): TOKENS}, ("sasl", "tokens", key), value)
        for key, value in {
            "keys": "jwks2.json", "issuer": "https://x", "audience": "x", "user": "email", "groups": "groups"
        }.items()
    ),
    ("trunks", {}, ("trunks", "tls"), "x"),
    ("trunks", {}, ("trunks", "key"), "network.key"),
    ("websocket", {}, ("websocket", "origins"), ["https://two.example"]),
    ("admin", {}, ("admin", "tls"), "y"),
    ("admin", {}, ("admin", "users"), ["bob"]),
    ("admin", {}, ("admin", "groups"), ["ops"]),
    ("admin", {}, ("admin", "act"), {"users": ["bob"]}),
    ("act", {("admin", "act"): {"users": ["alice"]}}, ("admin", "act", "users"), ["bob"]),
    ("act", {("admin", "act"): {"users": ["alice"]}}, ("admin", "act", "groups"), ["ops"]),
    *(("routers", {}, ("routers", "a", key), 14 + i) for i, key in enumerate(PORTS)),
    ("routers", {}, ("routers", "a", "host"), "127.0.0.3"),
    ("routers", {}, ("routers", "a", "tls"), "y"),
    ("links", {("links", 0): LINK}, ("links", 0, "between"), ["a", "c"]),
    ("links", {("links", 0): LINK}, ("links", 0, "cost"), 7),
    ("links", {("links", 0): LINK}, ("links", 0, "via"), 7777),
]  # fmt: skip


def put(document: Any, place: tuple[Any, ...], value: Any) -> None:
    for key in place[:-1]:
        document = document[key]
    document[place[-1]] = value


def changed(first: dict[tuple[Any, ...], Any], place: tuple[Any, ...], value: Any) -> dict[str, Any]:
    document = before(first)
    if place[-1] == "between":  # another pair, and the network still hangs together
        document["routers"]["c"] = {"amqp": 21, "interrouter": 22, "admin": 23}
        document["links"].append("b - c")
    put(document, place, copy.deepcopy(value))
    return document


def before(first: dict[tuple[Any, ...], Any]) -> dict[str, Any]:
    document = copy.deepcopy(base())
    for each, there in first.items():
        put(document, each, copy.deepcopy(there))
    return document


def rows() -> Iterator[tuple[Section, Row]]:
    """Those that have a value of their own: no section, of which each row is walked."""
    for section in SECTIONS.values():
        yield from ((section, row) for row in section.rows if not row.apart)


def test_the_walk_reaches_every_row() -> None:
    walked = {(title, place[-1]) for title, _, place, _ in WALK}
    assert walked == {(section.title, row.key) for section, row in rows()}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates, users and keys that the file names."""
    found = tmp_path_factory.mktemp("walk")
    pki = Pki(found)
    (found / "network.key").touch(0o600)
    (found / "network.key").write_text("a network's key, of some length\n")
    key = json.loads(ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP256R1()).public_key()))
    for name in ("jwks.json", "jwks2.json"):
        (found / name).write_text(json.dumps({"keys": [{**key, "kid": "one", "alg": "ES256"}]}))
    router, other = pki.certificate("router", "localhost"), pki.certificate("other", "localhost")
    for name, path in (("router.pem", router), ("other.pem", other)):
        (found / name).write_bytes(path.read_bytes())
    for name in ("users.json", "others.json"):
        done = called("user", "add", "alice", "--password-file", "-", "--file", found / name, stdin=b"a password\n")
        assert done.returncode == 0, done.stderr
    return found


def read(document: dict[str, Any], directory: Path) -> Topology:
    return loads(yaml.safe_dump(document), str(directory / "walk.yaml"))


@pytest.mark.parametrize("step", WALK, ids=lambda step: ".".join(map(str, step[2])))
async def test_a_reload_does_what_its_plan_says(step: Step, directory: Path) -> None:
    title, first, place, value = step
    row = SECTIONS[title].by_key[place[-1]]
    old, new = read(before(first), directory), read(changed(first, place, value), directory)
    server = RouterServer(old, "a", fresh=True)
    reload = ReloadRouter(server, LOG)
    await server.start(listener_context(old, "a", LOG), authentication.load(old))
    try:
        await _follow(server, reload, step, row, old, new)
    finally:
        await server.stop(0.0)


async def _follow(
    server: RouterServer, reload: ReloadRouter, step: Step, row: Row, old: Topology, new: Topology
) -> None:
    place = step[2]
    was = server.configuration()
    assert was == configuration(old, old, "a")
    if row.when is When.NEVER:
        with pytest.raises(ControlError, match="another network"):
            await reload.action(arguments(new, dry_run=True))
        return
    plan = await reload.action(arguments(new, dry_run=True))
    assert server.configuration() == was, "a dry run changes nothing"
    done = await reload.action(arguments(new))
    lines = plan["changes"]
    assert lines
    assert done["changes"] == lines
    now = server.configuration()
    promised = configuration(new, new, "a")
    changes = {key for key in was.keys() | promised.keys() if was.get(key) != promised.get(key)}
    own = {key for key in changes if not key.startswith("router b")}
    waits = {key for key in own if row.when is When.RESTART and was.get(key) != promised.get(key)}
    assert bool(done["restart"]) == bool(waits)
    for key in own:
        assert now.get(key) == (was if key in waits else promised).get(key), key
    # every change has its line, and the line of this key says when it holds
    assert all(line.endswith(row.when.value) for line in lines if re.search(rf"\b{place[-1]}\b", line)), lines
    if row.key == "type":  # what only one of the types has comes or goes with it
        own = {key for key in own if key.endswith(".type")}
    for key in own - {"policies"}:
        named = [line for line in lines if line_of(key) in line or line.startswith(("added", "removed"))]
        assert named, f"{key}: {lines}"


def line_of(key: str) -> str:
    """How a line of a plan names a key of the configuration."""
    return key.removeprefix("router a: ")


def test_files_with_the_same_values_have_the_same_digest(directory: Path) -> None:
    digests = {}
    for _, first, place, value in WALK:
        document = changed(first, place, value)
        found = read(document, directory).file_digest
        document["routers"] = dict(reversed(document["routers"].items()))
        assert read(document, directory).file_digest == found
        assert found != read(before(first), directory).file_digest, place
        digests[place] = found
    assert load(ROOT / "topologies" / "pair.yaml").file_digest == load(ROOT / "topologies" / "pair.yaml").file_digest
