"""Tokens of OAUTHBEARER: which count, whose they are, and clients that come in with them."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

import onceway
from amqp10.sasl import Failure
from onceway.access.tokens import Holder, Tokens
from onceway.errors import AuthenticationFailed, UsageError
from onceway.topology import ConfigError, loads
from onceway.topology.sasl import TokenRules
from tests.guarded import Guarded

jwt = pytest.importorskip("jwt", reason="needs onceway[oauth]")

ISSUER, AUDIENCE = "https://id.example.org", "onceway"
RULES = TokenRules("keys.json", ISSUER, AUDIENCE, user="sub", groups="groups")


class Issuer:
    """Signs tokens; `jwks()` is what it publishes."""

    def __init__(self, kid: str = "1") -> None:
        from cryptography.hazmat.primitives.asymmetric import ec

        self.kid = kid
        self.private = ec.generate_private_key(ec.SECP256R1())

    def jwks(self, *others: Issuer, **more: str) -> bytes:
        algorithm = jwt.algorithms.ECAlgorithm
        keys = [
            {**algorithm.to_jwk(each.private.public_key(), as_dict=True), "kid": each.kid, **more}
            for each in (self, *others)
        ]
        return json.dumps({"keys": keys}).encode()

    def token(self, headers: dict[str, Any] | None = None, lasts_s: float = 60.0, **claims: Any) -> str:
        said = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": time.time() + lasts_s, **claims}
        said = {name: value for name, value in said.items() if value is not None}
        token: str = jwt.encode(said, self.private, "ES256", headers={"kid": self.kid, **(headers or {})})
        return token


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


def tokens(directory: Path, jwks: bytes, rules: TokenRules = RULES) -> Tokens:
    (directory / "keys.json").write_bytes(jwks)
    return Tokens(rules, directory, "t.yaml: sasl.tokens")


def test_a_token_says_who_it_is(issuer: Issuer, tmp_path: Path) -> None:
    ours = tokens(tmp_path, issuer.jwks(Issuer("2")))
    found = ours.verify(issuer.token(groups=["ops", "eu"], aud=["other", AUDIENCE]))
    assert isinstance(found, Holder)
    assert (found.user, found.groups) == ("alice", ("ops", "eu"))
    assert 60 < found.lasts_s <= 90
    assert isinstance(ours.verify(issuer.token(lasts_s=-10)), Holder), "clocks may differ a little"


def test_tokens_that_are_wrong_do_not_count(issuer: Issuer, tmp_path: Path) -> None:
    ours = tokens(tmp_path, issuer.jwks())
    good = issuer.token()
    header, body, signature = good.split(".")
    symmetric = jwt.encode(
        {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": 1 << 33}, "k" * 32, "HS256", {"kid": "1"}
    )
    bad = {
        "expired": issuer.token(lasts_s=-31),
        "not valid yet": issuer.token(nbf=time.time() + 60),
        "of another audience": issuer.token(aud="shop"),
        "of another issuer": issuer.token(iss="https://id.example.com"),
        "without audience": issuer.token(aud=None),
        "without end": issuer.token(exp=None),
        "with an end beyond all numbers": issuer.token(exp=10**400),
        "without user": issuer.token(sub=None),
        "user is a number": issuer.token(sub=7),
        "user is anonymous": issuer.token(sub="anonymous"),
        "user is empty": issuer.token(sub=""),
        "user is long": issuer.token(sub="x" * 256),
        "groups are numbers": issuer.token(groups=[1]),
        "of another key of this name": Issuer().token(),
        "of another key": Issuer("9").token(),
        "without signature": f"{header}.{body}.",
        "with another's signature": f"{header}.{issuer.token(sub='root').split('.')[1]}.{signature}",
        "alg none": jwt.encode(
            {"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "exp": 1 << 33}, "", "none", {"kid": "1"}
        ),
        "signed with the public key": symmetric,
        "no token": "x",
        "empty": "",
        "deep": ".".join(["W" * 12_000, "W" * 12_000, "x"]),
        "a header of lists": "W1tbW1tbW1tbW1tb." + "x.y",
    }
    for what, token in bad.items():
        assert isinstance(ours.verify(token), Failure), what
    assert isinstance(ours.verify(good), Holder)


def test_a_key_is_used_for_what_it_says(issuer: Issuer, tmp_path: Path) -> None:
    assert isinstance(tokens(tmp_path, issuer.jwks(alg="ES256")).verify(issuer.token()), Holder)
    with pytest.raises(UsageError, match="no set of JSON web keys"):
        tokens(tmp_path, issuer.jwks(alg="RS256"))
    with pytest.raises(UsageError, match="no key of the kinds RSA, EC, OKP in it"):
        tokens(tmp_path, issuer.jwks(use="enc"))
    secret = json.dumps({"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "1"}]}).encode()
    with pytest.raises(UsageError, match="no key of the kinds"):
        tokens(tmp_path, secret)


@pytest.mark.parametrize(
    "text", [b"", b"{}", b"[]", b'{"keys": 7}', b'{"keys": [{}]}', b"[" * 100_000, b"\xff", b"x" * (1 << 21)]
)
def test_a_file_that_has_no_keys_is_named(tmp_path: Path, text: bytes) -> None:
    with pytest.raises(UsageError, match=r"t\.yaml: sasl\.tokens: .*keys\.json: "):
        tokens(tmp_path, text)


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("{keys: k}", "sasl.tokens: issuer is missing"),
        ("{keys: 'http://id.example.org/k', issuer: i, audience: a}", "can be changed on the way; write https://"),
        ("{keys: k, issuer: '', audience: a}", "sasl.tokens.issuer: an empty text"),
        ("{keys: k, issuer: i, audience: a, claim: b}", 'sasl.tokens: unknown key "claim"'),
    ],
)
def test_mistakes_in_the_file_are_named(section: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loads(f"network: n\nsasl: {{tokens: {section}}}\nrouters: {{a: {{amqp: 1, interrouter: 2, admin: 3}}}}\n")
    assert said in str(caught.value)


class Published:
    """What a server publishes, and how often it was asked."""

    jwks = b"{}"
    asked = 0


@pytest.fixture
def published() -> Iterator[tuple[str, Published]]:
    there = Published()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            there.asked += 1
            self.send_response(200 if there.jwks else 302)
            self.send_header("Location", "http://127.0.0.1:1/")
            self.end_headers()
            self.wfile.write(there.jwks)

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/keys", there
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_keys_of_a_url_are_fetched_when_they_are_needed_and_not_more_often(
    issuer: Issuer, tmp_path: Path, published: tuple[str, Published]
) -> None:
    url, there = published
    there.jwks = issuer.jwks()
    ours = Tokens(TokenRules(url, ISSUER, AUDIENCE), tmp_path, "t")
    now = time.monotonic()
    assert ours.wants_keys(issuer.token(), now)
    ours.fetch()
    assert isinstance(ours.verify(issuer.token()), Holder)
    new = Issuer("new")
    assert not ours.wants_keys(issuer.token(), now + 60), "its key is known"
    assert not ours.wants_keys(new.token(), now + 5), "whatever strangers send, no more than every ten seconds"
    assert ours.wants_keys(new.token(), now + 60)
    there.jwks = new.jwks()
    ours.fetch()
    assert isinstance(ours.verify(new.token()), Holder)
    assert isinstance(ours.verify(issuer.token()), Failure), "it is withdrawn"
    assert ours.wants_keys(new.token(), now + 700)
    for broken in (b"", b"[]"):
        there.jwks = broken
        ours.fetch()
        assert isinstance(ours.verify(new.token()), Holder), "the old ones stay"
    failure = ours.verify(issuer.token())
    assert isinstance(failure, Failure)
    assert f"{url}: no set of JSON web keys" in failure.reason
    assert there.asked == 4


def test_clients_come_in_with_tokens_and_stay_until_they_expire(
    issuer: Issuer, tmp_path: Path, published: tuple[str, Published]
) -> None:
    url, there = published
    there.jwks = issuer.jwks()
    guarded = Guarded(tmp_path, tokens={"keys": url, "issuer": ISSUER, "audience": AUDIENCE, "groups": "groups"})
    policies = [{"groups": ["shop"], "send": ["orders"]}]  # the file of users has alice in ops
    document = yaml.safe_load(guarded.network.topology_path.read_text())
    guarded.network.topology_path.write_text(yaml.safe_dump({**document, "policies": policies}, sort_keys=False))
    long = issuer.token(groups=["shop"], text="x" * 8_000)

    def connect(token: str, **more: Any) -> onceway.Connection:
        credentials = onceway.Credentials(token=lambda: token)
        return onceway.connect(
            guarded.url[0], tls=guarded.tls(), credentials=credentials, connect_timeout_s=10.0, **more
        )

    async def story() -> None:
        async with connect(long) as connection:
            await connection.publisher("orders")
            with pytest.raises(onceway.LinkRefused, match="user 'alice' may not receive from 'orders'"):
                await connection.subscriber("orders")
            assert guarded.reload() == ""  # the token holds, not the file of users
            await connection.publisher("orders", name="another")
            for wrong in (issuer.token(lasts_s=-60), issuer.token(aud="shop"), Issuer().token(), "x"):
                with pytest.raises(AuthenticationFailed, match="the server refused OAUTHBEARER"):
                    await connect(wrong)
            lost: asyncio.Queue[str] = asyncio.Queue()

            def report(event: onceway.Report) -> None:
                if isinstance(event, onceway.RouterLost):
                    lost.put_nowait(event.reason)

            short = await connect(issuer.token(lasts_s=-28.5), on_report=report)
            assert await lost.get() == "amqp:unauthorized-access: the token has expired"
            await short.close(timeout_s=0)
            assert connection.router == "a"
            with pytest.raises(AuthenticationFailed, match="none will do"):
                await connect_plain()

    async def connect_plain() -> None:
        """Without TLS tokens are not even asked for."""
        credentials = onceway.Credentials(token=long)
        await onceway.connect(guarded.plain[0], credentials=credentials, connect_timeout_s=5.0)

    guarded.play(story)
    log = guarded.log()
    assert long not in log
    assert "a token that does not count: " in log
