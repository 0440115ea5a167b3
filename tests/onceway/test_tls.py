"""Clients that connect through TLS."""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
import yaml

import onceway
from chaos.live.ports import free_port
from onceway.access.certificates import end_point, first_certificate, validity
from onceway.access.tls import Tls, server_context
from onceway.base.loop import run
from onceway.base.private import let_read
from onceway.errors import UsageError
from onceway.topology import ConfigError, loads
from onceway.topology.tls import Pair, TlsProfile
from tests.live import LiveNetwork
from tests.pki import Pki
from tests.serving import Served, exchange, serving, undisturbed

BOUND_S = 60.0


class Secure:
    """Two routers that listen with TLS, at `url[name]`."""

    def __init__(self, directory: Path, **profile: str) -> None:
        self.pki = Pki(directory / "pki")
        self.pki.certificate("router", "127.0.0.1")
        self.network = LiveNetwork(directory, ("a", "b"), [("a", "b")])
        self.profile = {"certificate": "pki/router.pem", **profile}
        self.ports = {name: free_port() for name in "ab"}
        self.routers: dict[str, Served] = {}
        self.url = {name: f"amqps://127.0.0.1:{port}" for name, port in self.ports.items()}
        self.write()

    def write(self) -> None:
        document = self.network.topology()
        document["tls"] = {"outside": self.profile}
        for name, port in self.ports.items():
            document["routers"][name] |= {"amqps": port, "tls": "outside"}
        self.network.topology_path.write_text(yaml.safe_dump(document, sort_keys=False))

    def tls(self, certificate: Path | None = None) -> ssl.SSLContext:
        return onceway.tls_context(self.pki.ca, certificate)

    def undisturbed(self, certificate: Path | None = None) -> AbstractAsyncContextManager[None]:
        one, other = (onceway.connect(self.url[name], tls=self.tls(certificate)) for name in "ab")
        return undisturbed(one, other)

    async def refused(self, url: str | None = None, tls: ssl.SSLContext | None = None) -> str:
        """Why the router is not reached: of the first try, however long it takes."""
        lost: asyncio.Queue[str] = asyncio.Queue()
        connecting = onceway.connect(
            url or self.url["a"],
            tls=tls or self.tls(),
            on_report=lambda report: lost.put_nowait(report.reason) if isinstance(report, onceway.RouterLost) else None,
        )
        opened = asyncio.ensure_future(connecting.__aenter__())
        try:
            return await lost.get()
        finally:
            opened.cancel()
            await asyncio.gather(opened, return_exceptions=True)
            await connecting.close(timeout_s=0)


def play(secure: Secure, story: Callable[[], Awaitable[None]]) -> None:
    async def played() -> None:
        async with serving(secure.network.topology_path) as secure.routers:
            await story()

    run(asyncio.wait_for(played(), BOUND_S))


def test_messages_go_through_tls_and_who_is_not_trusted_is_told_why(tmp_path: Path) -> None:
    secure = Secure(tmp_path)
    stranger = Pki(tmp_path / "stranger")

    async def story() -> None:
        async with secure.undisturbed():
            plain = secure.network.routers["a"].url
            reasons = await asyncio.gather(
                secure.refused(tls=onceway.tls_context(stranger.ca)),
                secure.refused(tls=ssl.create_default_context()),
                secure.refused(secure.url["a"].replace("127.0.0.1", "localhost")),
                secure.refused(plain.replace("amqp://", "amqps://")),
                secure.refused(secure.url["a"].replace("amqps://", "amqp://")),
            )
            for why in reasons[:3]:
                assert why.startswith("the other side's certificate is not accepted: ")
            assert "Hostname mismatch" in reasons[2]
            assert all(reasons)

    play(secure, story)


def test_clients_show_a_certificate_where_it_is_required(tmp_path: Path) -> None:
    secure = Secure(tmp_path, ca="pki/ca.pem", clients="required", revoked="pki/revoked.pem")
    good, bad = secure.pki.certificate("good"), secure.pki.certificate("bad")
    old = secure.pki.certificate("old", days=-1)
    foreign = Pki(tmp_path / "foreign").certificate("good")
    secure.pki.revoked(bad)

    async def story() -> None:
        async with secure.undisturbed(good):
            said = {"certificate required": None, "revoked": bad, "expired": old, "unknown ca": foreign}
            reasons = await asyncio.gather(*(secure.refused(tls=secure.tls(pem)) for pem in said.values()))
            for part, why in zip(said, reasons, strict=True):
                assert part in why

    play(secure, story)


def test_certificates_are_read_again_on_reload_without_a_dropped_connection(tmp_path: Path) -> None:
    secure = Secure(tmp_path)

    async def story() -> None:
        async with secure.undisturbed():
            pem = secure.pki.directory / "router.pem"
            before = pem.read_text()
            pem.write_text(before.split("-----BEGIN CERTIFICATE")[0])
            refused = secure.routers["a"].reload()
            assert f"tls.outside.certificate: {pem} holds no CERTIFICATE in PEM form" in refused
            pem.write_text(before)
            assert "Hostname mismatch" in await secure.refused(secure.url["a"].replace("127.0.0.1", "localhost"))
            secure.pki.certificate("router", "127.0.0.1", "localhost", days=2.5)
            assert secure.routers["a"].reload() == ""
            log = secure.network.routers["a"].log_path.read_text()
            assert f"read again {pem}, valid until 20" in log
            assert "changes: 1" in log
            named = secure.url["a"].replace("127.0.0.1", "localhost")
            await (await onceway.connect(named, tls=secure.tls(), connect_timeout_s=5.0)).close()
            router = secure.network.routers["a"]
            assert "expires in 2 days" in router.log_path.read_text()
            assert (
                f'onceway_certificate_days{{file="{pem}"}} 2.5'
                in (await asyncio.to_thread(router.get, "/metrics"))[1].decode()
            )

    play(secure, story)


def test_a_router_that_is_drained_sends_tls_clients_to_the_tls_listener_of_another(tmp_path: Path) -> None:
    secure = Secure(tmp_path)

    async def story() -> None:
        async with onceway.connect(secure.url["a"], tls=secure.tls()) as connection:
            subscriber = await connection.subscriber("orders")
            secure.routers["a"].server.drain()
            await secure.routers["a"].server.until_drained(10.0)
            publisher = await connection.publisher("orders")
            await exchange(publisher, subscriber, b"after")
            assert connection.url == secure.url["b"]

    play(secure, story)


def test_a_handshake_that_does_not_go_on_is_ended(tmp_path: Path) -> None:
    secure = Secure(tmp_path)
    document = yaml.safe_load(secure.network.topology_path.read_text())
    document["limits"] = {"handshake_timeout": "300ms"}
    secure.network.topology_path.write_text(yaml.safe_dump(document, sort_keys=False))

    async def story() -> None:
        for data in (b"", b"\x16\x03\x01\x02"):
            reader, writer = await asyncio.open_connection("127.0.0.1", secure.ports["a"])
            writer.write(data)
            assert await reader.read() == b""
            writer.close()

    play(secure, story)


def test_commands_speak_tls(tmp_path: Path) -> None:
    secure = Secure(tmp_path, ca="pki/ca.pem", clients="required")
    me = secure.pki.certificate("me")

    async def story() -> None:
        command = [sys.executable, "-m", "onceway"]
        options = ["orders", "--url", secure.url["a"], "--ca", str(secure.pki.ca), "--certificate", str(me)]
        subscribe = [*command, "subscribe", *options, "--count", "2", "--timeout", "50"]
        subscriber = await asyncio.create_subprocess_exec(*subscribe, stdout=subprocess.PIPE)
        publish = [*command, "publish", *options, "--count", "2", "--timeout", "50"]
        publisher = await asyncio.create_subprocess_exec(*publish)
        assert await publisher.wait() == 0
        assert await subscriber.wait() == 0
        failing = await asyncio.create_subprocess_exec(
            *command, "publish", *options[:3], "--ca", str(tmp_path / "none.pem"), stderr=subprocess.PIPE
        )
        _, told = await failing.communicate()
        assert failing.returncode == 2
        assert b"none.pem cannot be read: No such file or directory" in told

    play(secure, story)


def test_files_are_beside_the_topology_file_also_of_routers_that_a_supervisor_starts(tmp_path: Path) -> None:
    pki = Pki(tmp_path / "here" / "pki")
    pki.certificate("a", "127.0.0.1")
    ports = [free_port() for _ in range(4)]
    listeners = dict(zip(("amqp", "amqps", "interrouter", "admin"), ports, strict=True))
    document = {
        "network": "n",
        "tls": {"outside": {"certificate": "pki/${router}.pem"}},
        "routers": {"a": {**listeners, "tls": "outside"}},
    }
    file = tmp_path / "here" / "n.yaml"
    file.write_text(yaml.safe_dump(document))
    command, state = [sys.executable, "-m", "onceway"], ["--state-dir", str(tmp_path / "state")]
    url = f"amqps://127.0.0.1:{listeners['amqps']}"

    async def story() -> None:
        up = await asyncio.create_subprocess_exec(
            *command, "up", "here/n.yaml", *state, cwd=tmp_path, stderr=subprocess.PIPE
        )
        try:
            assert up.stderr is not None
            while b"network n ready" not in (line := await up.stderr.readline()):
                assert line, "it has ended"
            await (await onceway.connect(url, tls=onceway.tls_context(pki.ca))).close()
            pki.certificate("a", "localhost")
            # from another directory, whose own pki it must not take
            reload = await asyncio.create_subprocess_exec(*command, "reload", "n.yaml", *state, cwd=tmp_path / "here")
            assert await reload.wait() == 0
            url_now = url.replace("127.0.0.1", "localhost")
            await (await onceway.connect(url_now, tls=onceway.tls_context(pki.ca))).close()
        finally:
            up.terminate()
            await asyncio.gather(up.stderr.read(), up.wait())

    run(asyncio.wait_for(story(), BOUND_S))


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    made = Pki(tmp_path_factory.mktemp("pki"))
    made.certificate("router", "127.0.0.1")
    made.certificate("other", "127.0.0.1")
    made.revoked()
    (made.directory / "empty.pem").write_text("")
    text = (made.directory / "router.pem").read_text()
    (made.directory / "locked.pem").write_text(text.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY"))
    (made.directory / "torn.pem").write_text(text[: len(text) // 2] + "-----END CERTIFICATE-----\nBEGIN CERTIFICATE")
    return made


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"certificate": "none.pem"}, "tls.x.certificate: .*none.pem cannot be read: No such file or directory"),
        ({"certificate": "."}, "tls.x.certificate: .* cannot be read: Is a directory"),
        ({"certificate": "empty.pem"}, "tls.x.certificate: .*empty.pem holds no CERTIFICATE in PEM form"),
        ({"key": "ca.pem"}, "tls.x.key: .*ca.pem holds no PRIVATE KEY in PEM form"),
        ({"key": "other.pem"}, "tls.x.key: .*other.pem is not the key of .*router.pem"),
        ({"key": "locked.pem"}, "tls.x.key: .*locked.pem is encrypted"),
        ({"certificate": "torn.pem"}, "tls.x: .*torn.pem and .*router.pem cannot be used: "),
        ({"ca": "empty.pem"}, "tls.x.ca: .*empty.pem holds no CERTIFICATE in PEM form"),
        ({"ca": "ca.pem", "revoked": "ca.pem"}, "tls.x.revoked: .*ca.pem holds no X509 CRL in PEM form"),
        ({"ciphers": "NONE-SUCH"}, "tls.x.ciphers: OpenSSL knows none of NONE-SUCH"),
    ],
)
def test_an_unfit_file_is_named(pki: Pki, changed: dict[str, str], message: str) -> None:
    files = {"certificate": "router.pem", "key": "router.pem", **changed}
    values: dict[str, Any] = {key: pki.directory / file for key, file in files.items() if key != "ciphers"}
    with pytest.raises(UsageError, match=message):
        server_context("tls.x", TlsProfile(**values, ciphers=files.get("ciphers", "")))


def test_a_key_that_may_not_be_read_is_named_with_the_remedy(pki: Pki, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the start and on reload alike. Root may read all, so the system's answer is played."""
    router = pki.directory / "router.pem"
    key = pki.directory / "mine.key"
    read = Path.read_text

    def denied(path: Path, **options: Any) -> str:
        if path == key:
            raise PermissionError(13, "Permission denied", str(path))
        return read(path, **options)

    monkeypatch.setattr(Path, "read_text", denied)
    with pytest.raises(UsageError) as caught:
        server_context("tls.x", TlsProfile(router, key))
    assert str(caught.value) == f"tls.x.key: {key} cannot be read: Permission denied{let_read(PermissionError())}"


def shaken(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> tuple[Tls, ssl.SSLObject]:
    """Both sides of a connection, once they have agreed."""
    ways = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours, theirs = Tls(server), client.wrap_bio(ways[0], ways[1], server_hostname=host)
    for _ in range(3):
        with contextlib.suppress(ssl.SSLWantReadError):
            theirs.do_handshake()
        ours.receive(ways[1].read())
        ways[0].write(ours.data_to_send())
    theirs.do_handshake()
    return ours, theirs


def test_clients_are_shown_the_certificate_of_the_host_that_they_ask_for(pki: Pki) -> None:
    pems = {
        name: pki.certificate(name.replace("*", "any"), name)
        for name in ("127.0.0.1", "shop.example.org", "*.example.com")
    }
    names = {name: Pair(pem, pem) for name, pem in pems.items() if name != "127.0.0.1"}
    default = pems["127.0.0.1"]
    context = server_context("tls.x", TlsProfile(default, default, pki.ca, clients="required", names=names))
    me = onceway.tls_context(pki.ca, pki.certificate("me"))
    for host, pem in (
        ("127.0.0.1", default),
        ("shop.example.org", pems["shop.example.org"]),
        ("eu.example.com", pems["*.example.com"]),
    ):
        ours, theirs = shaken(context, me, host)
        assert theirs.getpeercert(binary_form=True) == first_certificate(pem)
        assert ours.end_point == end_point(first_certificate(pem)), "the channel binding is of what was shown"
        assert ours.certificate()["subject"]
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shaken(context, me, "a.eu.example.com")
    refused, _ = shaken(context, onceway.tls_context(pki.ca), "shop.example.org")
    assert "peer did not return a certificate" in refused.failure, "what is asked for does not depend on the name"
    assert {each.file for each in context.validities} == set(pems.values())


def test_ciphers_and_the_least_version_are_those_of_the_profile(pki: Pki) -> None:
    pem, chosen = pki.directory / "router.pem", "ECDHE-ECDSA-AES256-GCM-SHA384"
    client = onceway.tls_context(pki.ca)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    _, theirs = shaken(server_context("tls.x", TlsProfile(pem, pem, ciphers=chosen)), client, "127.0.0.1")
    cipher = theirs.cipher()
    assert cipher[:2] == (chosen, "TLSv1.2")
    client.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
    with pytest.raises(ssl.SSLError, match="HANDSHAKE_FAILURE"):
        shaken(server_context("tls.x", TlsProfile(pem, pem, ciphers=chosen)), client, "127.0.0.1")
    with pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"):
        shaken(server_context("tls.x", TlsProfile(pem, pem, minimum="1.3")), client, "127.0.0.1")
    _, theirs = shaken(server_context("tls.x", TlsProfile(pem, pem)), onceway.tls_context(pki.ca), "127.0.0.1")
    assert theirs.version() == "TLSv1.3"


@pytest.mark.parametrize("days", [3.5, 0.5, -1.0, 36_500.0])
def test_how_long_a_certificate_is_valid_is_known(pki: Pki, days: float) -> None:
    found = validity(pki.certificate("ending", "127.0.0.1", days=days))
    assert found.days_left(time.time()) == pytest.approx(days, abs=0.01)
    assert (time.time() - found.begins) / 86_400 == pytest.approx(10, abs=0.01)


def test_a_key_of_a_client_needs_a_certificate(pki: Pki) -> None:
    with pytest.raises(UsageError, match="a key without a certificate"):
        onceway.tls_context(pki.ca, None, pki.ca)


@pytest.mark.parametrize(
    ("tls", "router", "message"),
    [
        ("", "amqps: 5671, tls: x", 'routers.a.tls: no TLS profile "x"; give it under tls'),
        ("tls: {y: {certificate: c}}\n", "amqps: 5671", "routers.a.amqps: a listener with TLS and no certificate"),
        ("tls: {y: {certificate: c}}\n", "tls: y", "routers.a.tls: no listener has TLS"),
        ("tls: {y: {key: c}}\n", "", "tls.y: certificate is missing"),
        ("tls: {y: {certificate: c, clients: required}}\n", "", "tls.y.clients: clients are required and nobody says"),
        ("tls: {y: {certificate: c, clients: some}}\n", "", 'tls.y.clients: no such choice: "some"'),
        ("tls: {y: {certificate: c, minimum: 1.1}}\n", "", 'tls.y.minimum: no such choice: "1.1"'),
        ("tls: {y: {certificate: c, revoked: r}}\n", "", "tls.y.revoked: nobody's certificates are checked without ca"),
        ("tls: {y: {certificate: c, cert: r}}\n", "", 'tls.y: unknown key "cert"'),
        ("tls: {y: {certificate: c, names: {a b: {certificate: d}}}}\n", "", 'tls.y.names.a b: "a b" is no name'),
        ("tls: {y: {certificate: c, names: {a.b: {key: d}}}}\n", "", "tls.y.names.a.b: certificate is missing"),
        ("", "amqps: 1, tls: x", "routers.a.amqps: 127.0.0.1:1 is taken by routers.a.amqp"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(tls: str, router: str, message: str) -> None:
    comma = ", " if router else ""
    text = f"network: n\n{tls}routers:\n  a: {{amqp: 1, interrouter: 2, admin: 3{comma}{router}}}\n"
    with pytest.raises(ConfigError) as caught:
        loads(text, "t.yaml")
    assert message in str(caught.value)


def test_files_are_relative_to_the_topology_file() -> None:
    text = (
        "network: n\ntls: {y: {certificate: c.pem, key: /k.pem}}\nrouters:\n  a: {amqp: 1, interrouter: 2, admin: 3}\n"
    )
    profile = loads(text, "/etc/onceway/t.yaml").tls_profile("y", "a")
    assert (profile.certificate, profile.key) == (Path("/etc/onceway/c.pem"), Path("/k.pem"))
    profile = loads(text, "t.yaml", "/srv").tls_profile("y", "a")
    assert profile.certificate == Path("/srv/c.pem")
    assert loads(text, "/one/t.yaml").file_digest == loads(text, "/other/t.yaml").file_digest


def test_a_profile_has_the_name_of_the_router_in_its_files() -> None:
    text = (
        'network: n\ntls: {y: {certificate: "pki/${router}.pem"}}\nrouters:\n  a: {amqp: 1, interrouter: 2, admin: 3}\n'
    )
    read = loads(text, "/srv/t.yaml")
    assert [str(read.tls_profile("y", name).key) for name in ("a", "b")] == ["/srv/pki/a.pem", "/srv/pki/b.pem"]
    with pytest.raises(ConfigError, match=r"\$\{host\}.pem\" has a \$ that means nothing; \$\{router\} stands for"):
        loads(text.replace("${router}", "${host}"))


def test_bytes_that_are_no_tls_end_one_connection(tmp_path: Path) -> None:
    secure = Secure(tmp_path)
    chance = random.Random(7)
    hello = Tls(
        server_context("x", TlsProfile(secure.pki.directory / "router.pem", secure.pki.directory / "router.pem"))
    )
    client = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        secure.tls().wrap_bio(*client, server_hostname="127.0.0.1").do_handshake()
    greeting = client[1].read()
    hello.receive(greeting)
    assert hello.data_to_send()
    assert not hello.over

    async def story() -> None:
        async with secure.undisturbed():
            for number in range(60):
                reader, writer = await asyncio.open_connection("127.0.0.1", secure.ports["a"])
                data = bytearray(greeting)
                for _ in range(chance.randint(1, 8)):
                    data[chance.randrange(len(data))] = chance.randrange(256)
                writer.write(bytes(data) if number % 2 else chance.randbytes(chance.randint(1, 400)))
                writer.write_eof()
                async with asyncio.timeout(BOUND_S):
                    while await reader.read(1 << 16):
                        pass
                writer.close()

    play(secure, story)
