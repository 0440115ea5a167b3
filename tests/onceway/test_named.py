"""The files that a topology file names are found by its rows, and `check` opens each of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from onceway.access.files import unusable
from onceway.access.users import Users, store_users
from onceway.topology import loads
from onceway.topology.forms import File
from onceway.topology.named import named_files
from onceway.topology.sections import TOP
from onceway.topology.table import ListOf, Row, Section, Table, When
from router.reporting import NO_LOG
from tests.pki import Pki

PLACES = (
    ("tls", "t", "certificate"),
    ("tls", "t", "key"),
    ("tls", "t", "names", "shop.example", "certificate"),
    ("tls", "t", "names", "shop.example", "key"),
    ("tls", "t", "ca"),
    ("tls", "t", "revoked"),
    ("sasl", "users"),
    ("sasl", "tokens", "keys"),
    ("trunks", "key"),
)
KEY = "a network's key, which is of some length\n"


def document() -> dict[str, Any]:
    """A file that names one at each place. Certificates and keys are in one file, copied for each place."""
    named: dict[str, Any] = {}
    for place in PLACES:
        inner = named
        for key in place[:-1]:
            inner = inner.setdefault(key, {})
        inner[place[-1]] = ".".join(place)
    named["tls"]["t"]["clients"] = "optional"
    named["sasl"]["tokens"] |= {"issuer": "i", "audience": "o"}
    named["trunks"]["tls"] = "off"
    routers = {"a": {"amqp": 5672, "amqps": 5671, "tls": "t", "interrouter": 7671, "admin": 8671}}
    return {"network": "n", **named, "routers": routers}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    pki = Pki(tmp_path / "pki")
    pair, ca, revoked = pki.certificate("router", "localhost"), pki.ca, pki.revoked()
    for place in PLACES[:4]:
        (tmp_path / ".".join(place)).write_bytes(pair.read_bytes())
    (tmp_path / "tls.t.ca").write_bytes(Path(ca).read_bytes())
    (tmp_path / "tls.t.revoked").write_bytes(Path(revoked).read_bytes())
    store_users(tmp_path / "sasl.users", Users())
    key = json.loads(ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP256R1()).public_key()))
    (tmp_path / "sasl.tokens.keys").write_text(json.dumps({"keys": [{**key, "kid": "one"}]}))
    (tmp_path / "trunks.key").write_text(KEY)
    for path in tmp_path.glob("*.*"):
        path.chmod(0o600)
    return tmp_path


def test_each_place_is_found_and_each_file_is_opened_by_check(directory: Path) -> None:
    topology = loads(yaml.safe_dump(document()), "n.yaml", directory)
    found = named_files(topology.text)
    assert sorted(each.place for each in found) == sorted(PLACES)
    assert unusable(topology, ["a"], NO_LOG) == []
    for each in found:
        path = directory / each.node.value
        kept = path.read_bytes()
        path.unlink()
        assert [line for line in unusable(topology, ["a"], NO_LOG) if str(path) in line], each.place
        path.touch(0o600)
        path.write_bytes(kept)


def test_urls_and_variables_name_no_file() -> None:
    text = "sasl: {tokens: {keys: 'https://x/jwks'}}\ntrunks: {key: $KEY}\ntls: {t: {certificate: '${router}.pem'}}\n"
    assert [each.node.value for each in named_files(text)] == ["${router}.pem"]


def test_a_row_that_is_added_is_found() -> None:
    inner = Section("mail", "a mapping", (Row("banner", File(Path, "a file", secret=True), When.AT_ONCE, "new"),))
    form = ListOf(Table(inner, lambda given, scope: given.values), "a list")
    top = replace(TOP, rows=(*TOP.rows, Row("mail", form, When.AT_ONCE, "new")))
    (found,) = named_files("mail: [{banner: hello.txt}]", top)
    assert (found.place, found.node.value, found.secret) == (("mail", "0", "banner"), "hello.txt", True)
