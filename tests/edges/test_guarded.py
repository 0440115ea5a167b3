"""The listeners of stores and of metadata edges let in whom the topology file lets in, and tell the others why; attacks
on them are bounded, and disturb nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import httpx
import pytest
import yaml
from proton import SSLDomain
from proton.utils import BlockingConnection

import onceway
from amqp10.frames import AMQP_FRAME, AMQP_HEADER, SASL_FRAME, SASL_HEADER, encode_frame
from amqp10.performatives import Attach, Begin, Detach, Open, SaslInit
from amqp10.termini import Source
from amqp10.types import Symbol
from bench.processes import cpu_seconds, resident_mb
from chaos.live.ports import free_port
from edges.metadata.client import Change, Client, Message, MetadataError
from edges.pipe import Reader, push
from edges.pipe.listener import Listener
from edges.pipe.log import open_log
from edges.pipe.metrics import StoreMetrics, Told
from edges.store import open_store
from onceway.access.guesses import MOST_OF_PAIR
from onceway.access.users import User, Users, load_users, store_users, with_password
from onceway.base.logs import logger
from onceway.errors import OncewayError
from onceway.serve.guard import Guard
from onceway.serve.transport import UNSAID
from router.policies import NOBODY, Identity
from tests.guarded import PASSWORD, Guarded, ended
from tests.live import ROOT, dying_with_us, wait_until
from tests.onceway.test_tokens import AUDIENCE, ISSUER, Issuer
from tests.pki import Pki

WITHIN_S = 1.0
HALF_OPEN = 30
UNREAD = 2 << 20
GROWTH_MB = 64
KINDS = ("pipe", "metadata")
ISSUED = Issuer()


class Edges:
    """A store of the pipe `jobs` and a metadata edge of the address `rooms`, both alice's, with a router.

    bob may publish to both, and read neither; carol may read; dan may read nothing, but act.
    """

    def __init__(self, directory: Path) -> None:
        guarded = self.guarded = Guarded(directory, "a")
        pki, self.path = guarded.pki, guarded.network.topology_path
        others = {name: User(with_password(PASSWORD)) for name in ("bob", "carol", "dan")}
        users = load_users(guarded.users, "users")
        store_users(guarded.users, type(users)({**users.by_name, **others}))
        (directory / "keys.json").write_bytes(ISSUED.jwks())
        for name in ("alice", "bob", "carol", "dan", "nobody", "gone"):
            pki.certificate(name)
        pki.certificate("expired", days=-1)
        self.renew(365)
        (pki.directory / "foreign.pem").write_bytes(Pki(directory / "other").certificate("alice").read_bytes())
        (pki.directory / "stranger.pem").write_bytes(Pki(directory / "stranger").ca.read_bytes())
        document = yaml.safe_load(self.path.read_text())
        document["tls"]["edges"] = {
            **document["tls"]["outside"],
            "certificate": "pki/edge-${router}.pem",
            "revoked": str(pki.revoked(pki.directory / "gone.pem")),
        }
        document["admin"] = {"act": {"users": ["dan"]}}
        document["limits"] = {"half_open": HALF_OPEN, "unread_output": f"{UNREAD}B"}
        document["sasl"]["certificates"] = [{"from": "common_name", "match": "(alice|bob|carol|dan)"}]
        document["sasl"]["tokens"] = {"keys": "keys.json", "issuer": ISSUER, "audience": AUDIENCE}
        document["policies"] = [
            {"users": ["alice"], "send": ["*"], "receive": ["*"]},
            {"users": ["bob"], "send": ["jobs", "rooms"]},
            {"users": ["carol"], "receive": ["jobs", "rooms"]},
        ]
        self.ports = {kind: free_port() for kind in KINDS}
        stores = {"s": self.ports["pipe"]}
        pipe = {"match": "jobs", "type": "pipe", "user": "alice", "stores": stores, "store_tls": "edges"}
        self.metrics_port = free_port()
        document["addresses"] = [{**pipe, "store_metrics": {"s": self.metrics_port}}]
        self.path.write_text(yaml.safe_dump(document, sort_keys=False))
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.slow_s = 0.0

    def renew(self, days: float) -> None:
        for name in ("s", "e"):
            self.guarded.pki.certificate(f"edge-{name}", "127.0.0.1", "localhost", days=days)

    def start(self) -> None:
        self.guarded.network.start()
        routers = ("--url", self.guarded.url[0], "--ca", str(self.guarded.pki.ca), "--user", "alice")
        listen = ("--listen", str(self.ports["metadata"]), "--topology", str(self.path), "--tls", "edges")
        serve = {
            "pipe": ("serve", str(self.path), "--data", str(self.path.parent / "store")),
            "metadata": ("serve", "--name", "e", "--address", "rooms", *listen),
        }
        for kind, words in serve.items():
            self.processes[kind] = subprocess.Popen(
                dying_with_us([sys.executable, "-m", "onceway", kind, *words, *routers]),
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stderr=self.log(kind).open("wb"),
                env={**os.environ, "ONCEWAY_PASSWORD": PASSWORD},
            )
        for kind in KINDS:
            wait_until(lambda kind=kind: "_listening" in self.log(kind).read_text(), f"{kind} listens")

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()
        self.guarded.network.close()

    def log(self, kind: str) -> Path:
        return self.path.parent / f"{kind}.log"

    def tls(self, certificate: str = "", ca: str = "ca") -> ssl.SSLContext:
        directory = self.guarded.pki.directory
        return onceway.tls_context(directory / f"{ca}.pem", directory / f"{certificate}.pem" if certificate else None)

    def metrics(self) -> dict[str, float]:
        """The store's failures of logins."""
        page = httpx.get(f"http://127.0.0.1:{self.metrics_port}/metrics", trust_env=False).text
        pattern = r'onceway_pipe_authentication_failures_total\{store="s",what="(\w+)"\} (\S+)'
        return {what: float(count) for what, count in re.findall(pattern, page)}

    # --- what clients do

    async def read(
        self, host: str, tls: ssl.SSLContext, who: onceway.Credentials | None, port: int = 0, **options: Any
    ) -> str:
        """From the store, with our reader: what it says, as soon as it says something."""
        told: asyncio.Queue[str] = asyncio.Queue()
        url = f"amqps://{host}:{port or self.ports['pipe']}"
        reader = Reader("jobs", stores=url, tls=tls, credentials=who, on_wait=told.put_nowait, **options)
        opened, waits = asyncio.ensure_future(reader.__aenter__()), asyncio.ensure_future(told.get())
        try:
            await asyncio.wait((opened, waits), return_when=asyncio.FIRST_COMPLETED)
            if not opened.done():
                return waits.result()
            try:
                (await opened)
            except OncewayError as error:
                return str(error)
            await reader.__aexit__()
            return "reads"
        finally:
            waits.cancel()
            opened.cancel()
            await asyncio.gather(opened, waits, return_exceptions=True)

    async def watch(self, host: str, tls: ssl.SSLContext | None) -> str:
        try:
            async with Client(f"{host}:{self.ports['metadata']}", tls) as client:
                async for event in client.watch("has Room"):
                    assert isinstance(event, Change)
                    return "reads"
        except MetadataError as error:
            return str(error)
        raise AssertionError

    @contextlib.asynccontextmanager
    async def undisturbed(self) -> AsyncIterator[None]:
        """A reader and a watcher keep their connections; who comes meanwhile is let in before the edges have worked for a
        second; they keep no memory. `slow_s` is how long a good login takes now."""
        pids = [process.pid for process in self.processes.values()]
        before = resident_mb(pids)
        alice = onceway.Credentials(mechanism="EXTERNAL")
        tls = self.tls("alice")
        async with (
            Reader("jobs", stores=f"amqps://127.0.0.1:{self.ports['pipe']}", tls=tls, credentials=alice) as reader,
            Client(f"127.0.0.1:{self.ports['metadata']}", tls) as client,
        ):
            batches, events, room = reader.batches(), client.watch("has Room"), str(uuid4())
            connection = reader._link
            await anext(events)

            async def passes(body: bytes) -> None:
                await push(self.guarded.url[0], "jobs", body, tls=tls, credentials=alice)
                while (await anext(batches))[-1].body != body:
                    pass
                await client.publish(room, body, {"Room": "1"})
                while True:
                    event = await anext(events)
                    if isinstance(event, Message) and event.value == body:
                        return

            await passes(b"before")
            loop = asyncio.get_running_loop()
            began = loop.time()
            assert await self.read("127.0.0.1", tls, alice) == "reads"
            self.slow_s = loop.time() - began
            yield
            began = cpu_seconds(pids)
            assert await self.read("127.0.0.1", tls, alice) == "reads"
            assert await self.watch("127.0.0.1", tls) == "reads"
            await passes(b"after")
            assert cpu_seconds(pids) - began < WITHIN_S  # on a busy machine all takes longer
            assert reader._link is connection
        assert resident_mb(pids) - before < GROWTH_MB


@pytest.fixture(scope="module")
def edges(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edges]:
    edges = Edges(tmp_path_factory.mktemp("guarded"))
    edges.start()
    try:
        yield edges
    finally:
        edges.close()


def play(story: Awaitable[None]) -> None:
    asyncio.run(asyncio.wait_for(story, 60.0))


async def until_said(edges: Edges, kind: str, pattern: str, after: int) -> None:
    """Within a second, and what a login takes, the edge's log says so, behind this many characters."""
    async with asyncio.timeout(WITHIN_S + edges.slow_s):
        while not re.search(pattern, edges.log(kind).read_text()[after:]):  # noqa: ASYNC110 another process
            await asyncio.sleep(0.01)


SCRAM = ("SCRAM-SHA-512-PLUS", "SCRAM-SHA-256-PLUS", "SCRAM-SHA-512", "SCRAM-SHA-256")
# (certificate, authority, host, what the client is told, what the edge logs)
TLS_FAULTS = [
    ("alice", "stranger", "127.0.0.1", "self-signed certificate", UNSAID),
    ("alice", "ca", "127.1", "(Hostname|IP address) mismatch", UNSAID),
    ("expired", "ca", "127.0.0.1", "certificate expired", "no TLS with .*: certificate has expired"),
    ("gone", "ca", "127.0.0.1", "certificate revoked", "no TLS with .*: certificate revoked"),
    ("foreign", "ca", "127.0.0.1", "unknown ca", "no TLS with .*: unable to get local issuer"),
]


@pytest.mark.parametrize("kind", KINDS)
async def test_each_fault_of_a_certificate_is_told_on_both_sides(edges: Edges, kind: str) -> None:
    async with edges.undisturbed():
        for certificate, ca, host, says, logs in TLS_FAULTS:
            loop, after = asyncio.get_running_loop(), len(edges.log(kind).read_text())
            tls, external = edges.tls(certificate, ca), onceway.Credentials(mechanism="EXTERNAL")
            began = loop.time()
            said = await (edges.watch(host, tls) if kind == "metadata" else edges.read(host, tls, external))
            assert re.search(says, said), (certificate, ca, host, said)
            assert loop.time() - began < WITHIN_S + edges.slow_s
            await until_said(edges, kind, logs, after)


async def test_each_mechanism_reads_a_store_and_who_knows_no_secret_does_not(
    edges: Edges, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """At a listener in this process, where failures are answered at once."""
    monkeypatch.setattr("onceway.access.guesses.FREE", 1_000)
    refused = r"refused: wrong user or password for '{}'"
    cases: list[tuple[onceway.Credentials | None, str, str]] = [(None, "does not offer ANONYMOUS", "")]
    for mechanism in (*SCRAM, "PLAIN"):
        cases.append((onceway.Credentials("alice", PASSWORD, mechanism), "reads", ""))
        for user, password in (("alice", "x"), ("eve", PASSWORD)):
            cases.append((onceway.Credentials(user, password, mechanism), "code 1", refused.format(user)))
    cases += [
        (onceway.Credentials(mechanism="EXTERNAL"), "code 1", "EXTERNAL without a certificate that .* has a rule for"),
        (onceway.Credentials(token=ISSUED.token(sub="alice")), "reads", ""),
        (onceway.Credentials(token=ISSUED.token(sub="alice", lasts_s=-60)), "code 1", "Signature has expired"),
        (onceway.Credentials(token=Issuer().token()), "code 1", "Signature verification failed"),
    ]
    log = logger("pipe")
    store = open_store(str(tmp_path / "store"))
    guard = Guard("s", log, str(edges.path), lambda _: "edges")
    logs = {"jobs": await open_log(store, "jobs", "s", "s", log)}
    listener = Listener("s", logs, _ignored, log, guard, {"jobs": "alice"})
    port = await listener.start("127.0.0.1", 0)
    slow_s = WITHIN_S
    for who, says, said_there in cases:
        loop = asyncio.get_running_loop()
        began = loop.time()
        said = await edges.read("127.0.0.1", edges.tls(), who, port=port)
        assert re.search(says, said), (who, said)
        assert re.search(said_there, caplog.text), who
        slow_s = loop.time() - began if says == "reads" else slow_s
        assert loop.time() - began < WITHIN_S + slow_s
        caplog.clear()
    await listener.stop()
    await store.close()


async def test_metrics_of_a_store_are_for_whom_admin_names(edges: Edges, tmp_path: Path) -> None:
    document = yaml.safe_load(edges.path.read_text())
    document["admin"] = {"tls": "outside", "users": ["dan"]}
    path = edges.path.with_name("closed.yaml")
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    guard = Guard("s", logger("pipe"), str(path), lambda _: "edges")
    store = open_store(str(tmp_path / "store"))
    metrics = StoreMetrics(Told("s", store, {}, {}, guard))
    host, port = await metrics.start(("127.0.0.1", 0), guard.admin_tls)
    async with httpx.AsyncClient(verify=edges.tls(), trust_env=False) as client:
        for who, status in ((None, 401), (("dan", "x"), 401), (("bob", PASSWORD), 403), (("dan", PASSWORD), 200)):
            answer = await client.get(f"https://{host}:{port}/metrics", auth=who)
            assert answer.status_code == status
    await metrics.stop()
    await store.close()


async def _ignored(*_: object) -> None:
    raise AssertionError


def test_proton_reads_a_store_with_a_password_and_with_a_certificate(edges: Edges) -> None:
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(str(edges.guarded.pki.ca))
    with_certificate = SSLDomain(SSLDomain.MODE_CLIENT)
    with_certificate.set_trusted_ca_db(str(edges.guarded.pki.ca))
    pem = str(edges.guarded.pki.directory / "carol.pem")
    with_certificate.set_credentials(pem, pem, None)
    url = f"amqps://localhost:{edges.ports['pipe']}"  # proton compares names only, no addresses
    ways: list[dict[str, Any]] = [
        {"ssl_domain": domain, "allowed_mechs": "PLAIN", "user": "alice", "password": PASSWORD},
        {"ssl_domain": with_certificate, "allowed_mechs": "EXTERNAL"},
    ]
    for way in ways:
        connection = BlockingConnection(url, timeout=5.0, **way)
        connection.create_receiver("jobs").close()  # type: ignore[no-untyped-call]
        connection.close()


async def test_policies_say_who_reads_and_who_may_act_says_who_promotes(edges: Edges) -> None:
    """The pipe has one store, so a promotion that is allowed is refused for that."""

    def as_user(name: str, **options: Any) -> Awaitable[str]:
        who = onceway.Credentials(name, PASSWORD)
        return edges.read("127.0.0.1", edges.tls(), who, timeout_s=5.0, **options)

    for name, says in (("alice", "^reads"), ("carol", "^reads"), ("bob", "may not receive from 'jobs': no policy")):
        assert re.search(says, await as_user(name)), name
    assert re.search("has one store", await as_user("alice", command="may-lead"))
    assert re.search("'carol' may not promote", await as_user("carol", command="fence 9"))
    for name, says in (
        ("alice", "^reads"),
        ("carol", "^reads"),
        ("bob", "may not receive from 'rooms': no policy"),
    ):
        assert re.search(says, await edges.watch("127.0.0.1", edges.tls(name))), name
    for certificate in ("", "nobody"):
        assert "show a certificate of a user" in await edges.watch("127.0.0.1", edges.tls(certificate))
    at = f"127.0.0.1:{edges.ports['metadata']}"
    async with Client(at, edges.tls("bob")) as client:
        await client.publish(uuid4(), 1)
        await client.flush()
    refused = {"carol": "'carol' may not send to 'rooms': no policy", "nobody": "show a certificate of a user"}
    for name, says in refused.items():
        async with Client(at, edges.tls(name)) as client:
            await client.publish(uuid4(), 1)
            with pytest.raises(MetadataError, match=says):
                await client.flush()
    assert "for a port with TLS give --ca" in await edges.watch("127.0.0.1", None)


def test_files_are_read_again_and_nobody_who_may_stay_is_disconnected(edges: Edges) -> None:
    users = load_users(edges.guarded.users, "users")
    alice = onceway.Credentials("alice", PASSWORD)

    async def read_again(what: str) -> None:
        before = {kind: len(edges.log(kind).read_text()) for kind in KINDS}
        for process in edges.processes.values():
            process.send_signal(signal.SIGHUP)
        for kind in KINDS:
            await until_said(edges, kind, what, before[kind])

    async def story() -> None:
        async with edges.undisturbed():
            url = f"amqps://127.0.0.1:{edges.ports['pipe']}"
            carol = onceway.Credentials("carol", PASSWORD)
            client = Client(f"127.0.0.1:{edges.ports['metadata']}", edges.tls("carol"))
            async with Reader("jobs", stores=url, tls=edges.tls(), credentials=carol) as reader, client:
                batches, events = reader.batches(), client.watch("has Room")
                while reader.next < reader.end:
                    await anext(batches)
                await anext(events)
                store_users(edges.guarded.users, type(users)({k: v for k, v in users.by_name.items() if k != "carol"}))
                await read_again("follows .*, changes: 1")
                with pytest.raises(MetadataError, match="user 'carol' was removed"):
                    await anext(events)
                with pytest.raises(OncewayError, match="code 1"):  # it has come again
                    async with asyncio.timeout(5.0):
                        await anext(batches)
            edges.renew(-1)
            await read_again("read again .*edge-.*valid until")
            assert "certificate has expired" in await edges.read("127.0.0.1", edges.tls(), alice)
            assert "certificate has expired" in await edges.watch("127.0.0.1", edges.tls("alice"))
            edges.guarded.users.write_text("torn")
            edges.renew(365)
            await read_again("is not followed, nothing changes: .*users")
            assert "certificate has expired" in await edges.watch("127.0.0.1", edges.tls("alice"))
            store_users(edges.guarded.users, users)
            await read_again("read again .*edge-.*valid until")

    try:
        play(story())
    finally:
        edges.renew(365)
        store_users(edges.guarded.users, users)


def test_groups_that_were_changed_hold_for_those_who_are_there(tmp_path: Path) -> None:
    users, file = tmp_path / "users.json", tmp_path / "net.yaml"
    file.write_text(
        "network: n\nsasl: {users: users.json}\nrouters: {a: {amqp: 5672, interrouter: 7671, admin: 8671}}\n"
    )
    known = Users({"alice": User({}, ("ops",)), "bob": User({}, ("ops",))})
    store_users(users, known)
    guard = Guard("s", logger("pipe"), str(file), lambda _: "")
    client: Any = SimpleNamespace(peer="10.0.0.1:1", tls=None, login=None)
    with_token: Any = SimpleNamespace(peer="10.0.0.1:2", tls=None, login=SimpleNamespace(has_token=True))
    assert guard.login(client, lambda _: None, lambda _: None) is not None
    alice, bob = (Identity(name, ("ops",)) for name in ("alice", "bob"))
    assert guard.read_again(0.0)(client, alice) == alice
    stranger = Stranger()
    guard.admission.connected(stranger, 0.0, "10.0.0.1:3")
    store_users(users, Users({"alice": User({}, ("sales",))}, known.secret))
    who_now = guard.read_again(0.0)
    assert who_now(client, alice) == Identity("alice", ("sales",))
    assert who_now(client, bob) is None
    assert who_now(with_token, bob) == bob, "a token holds until it ends"
    assert who_now(client, NOBODY) == NOBODY
    assert stranger.ended, "who has begun to log in begins anew"


class Stranger:
    ended = False

    def receive_eof(self, now: float) -> None:
        self.ended = True


# --- attacks


def open_files(process: subprocess.Popen[bytes]) -> int:
    return len(os.listdir(f"/proc/{process.pid}/fd"))


@pytest.mark.parametrize("kind", KINDS)
async def test_strangers_who_say_nothing_little_or_garbage_take_no_more_than_their_share(
    edges: Edges, kind: str
) -> None:
    record = b"\x16\x03\x01\x40\x00"
    hello = record + b"\x01\xff\xff\xff" + bytes(0x4000 - 4)
    process, at = edges.processes[kind], ("127.0.0.1", edges.ports[kind])
    async with edges.undisturbed():
        before = open_files(process)
        with contextlib.ExitStack() as stack:
            for number in range(10 * HALF_OPEN):
                connection = stack.enter_context(socket.create_connection(at))
                connection.sendall((b"", b"\x16\x03\x01", record)[number % 3])
                await asyncio.sleep(0)
            assert await edges.watch("127.0.0.1", edges.tls("alice")) == "reads"
            assert open_files(process) <= before + HALF_OPEN + 5
        for first in (hello, record + bytes(0x4000), b"\x16\x03\x01\xff\xff" + bytes(0xFFFF), os.urandom(65_536)):
            with socket.create_connection(at) as connection:
                with contextlib.suppress(OSError):  # it is closed meanwhile
                    connection.sendall(first + (record + bytes(0x4000)) * 100)
                assert len(await ended(connection)) < 100


async def test_floods_of_sasl_at_a_store_are_answered_once_each_and_then_refused(edges: Edges) -> None:
    """From an address of its own; each connection sends a thousand tries."""
    init = SaslInit(Symbol("PLAIN"), b"\0alice\0x").encode()
    flood = SASL_HEADER + encode_frame(SASL_FRAME, 0, init) * 1_000

    async def attempt() -> bytes:
        tls = edges.tls()
        tls.check_hostname = False
        with contextlib.suppress(ConnectionError):  # beyond `half_open` the oldest of this address makes room
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", edges.ports["pipe"], ssl=tls, local_addr=("127.0.0.9", 0)
            )
            writer.write(flood)
            return await reader.read()
        return b""

    async with edges.undisturbed():
        after = len(edges.log("pipe").read_text())
        said = [*await asyncio.gather(*(attempt() for _ in range(MOST_OF_PAIR + 5))), await attempt()]
        assert max(map(len, said)) < 1_000
        await until_said(edges, "pipe", "too many failures before, so nothing is looked at", after)
    counted = await asyncio.to_thread(edges.metrics)
    assert counted["refused"] > 0
    assert counted["delayed"] > 0
    assert counted["failed"] >= MOST_OF_PAIR


async def test_who_asks_a_store_and_reads_no_answer_is_not_listened_to(edges: Edges) -> None:
    """50 MB of attaches, each of which is answered, on one connection."""
    begins = [Open("asks"), Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1)]
    attach = Attach("x" * 30_000, 0, role=True, source=Source(address="y"))
    asks = encode_frame(AMQP_FRAME, 0, attach.encode()) + encode_frame(AMQP_FRAME, 0, Detach(0, closed=True).encode())
    before_open = SASL_HEADER + encode_frame(SASL_FRAME, 0, SaslInit(Symbol("EXTERNAL"), b"").encode()) + AMQP_HEADER
    before_open += b"".join(encode_frame(AMQP_FRAME, 0, each.encode()) for each in begins)
    async with edges.undisturbed():
        _, writer = await asyncio.open_connection("127.0.0.1", edges.ports["pipe"], ssl=edges.tls("alice"))
        writer.transport.pause_reading()
        writer.write(before_open)
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < 50_000_000:
                writer.write(asks)
                sent += len(asks)
                async with asyncio.timeout(1.0):
                    await writer.drain()
        assert UNREAD < sent < 50_000_000
        writer.transport.abort()
