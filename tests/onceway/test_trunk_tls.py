"""Routers show each other certificates, and let in only whom theirs names."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import yaml

import onceway
from amqp10.sasl import Challenge, ServerMechanisms, Success
from amqp10.scram import Scram
from onceway.access.network_key import TrunkKey, read_trunk_key
from onceway.access.trunks import certified_names
from onceway.base.loop import run
from onceway.errors import UsageError
from onceway.topology import ConfigError, format_host_port, loads
from tests.live import LiveNetwork
from tests.pki import Pki
from tests.serving import BOUND_S, Served, exchange, serving, until

PROFILE = {"certificate": "pki/${router}.pem", "ca": "pki/ca.pem", "revoked": "pki/revoked.pem"}


class Certified:
    """Three routers in a line whose trunks have TLS."""

    def __init__(self, directory: Path) -> None:
        self.pki = Pki(directory / "pki")
        for name in "abc":
            self.pki.certificate(name, name)
        self.pki.revoked()
        self.network = LiveNetwork(directory, ("a", "b", "c"), [("a", "b"), ("b", "c")])
        self.write("routers")

    def write(self, tls: str | None, profile: dict[str, str] = PROFILE) -> None:
        document = self.network.topology()
        document["tls"] = {"routers": profile}
        if tls is not None:
            document["trunks"] = {"tls": tls}
        self.network.topology_path.write_text(yaml.safe_dump(document, sort_keys=False))

    def log(self, name: str) -> str:
        path = self.network[name].log_path
        return path.read_text() if path.exists() else ""

    async def deliver(self, publisher_at: str, subscriber_at: str, body: bytes) -> None:
        """One message from router to router."""
        async with (
            onceway.connect(self.network.urls(publisher_at)) as here,
            onceway.connect(self.network.urls(subscriber_at)) as there,
        ):
            subscriber = await there.subscriber("orders")
            publisher = await here.publisher("orders")
            await exchange(publisher, subscriber, body)

    def play(self, story: Callable[[dict[str, Served]], Awaitable[None]], *names: str) -> None:
        """With these routers in this process."""

        async def played() -> None:
            async with serving(self.network.topology_path, *names) as routers:
                await story(routers)

        run(asyncio.wait_for(played(), BOUND_S))


def test_messages_go_through_trunks_with_tls_and_certificates_are_renewed_under_them(tmp_path: Path) -> None:
    certified = Certified(tmp_path)

    async def story(routers: dict[str, Served]) -> None:
        await certified.deliver("a", "c", b"x" * 1_000_000)
        old = shutil.copy(tmp_path / "pki" / "c.pem", tmp_path / "old.pem")
        for name in "abc":
            certified.pki.certificate(name, name)
        certified.pki.revoked(Path(old))
        for router in routers.values():
            assert router.reload() == ""
        await certified.deliver("c", "a", b"again")
        for name in "abc":
            assert "session_down" not in certified.log(name)
        await routers["c"].stop()
        routers["c"] = Served(certified.network.topology_path, "c", fresh=False)
        await routers["c"].start()
        await certified.deliver("a", "c", b"with the new certificate")
        await routers["c"].stop()
        shutil.copy(old, tmp_path / "pki" / "c.pem")
        routers["c"] = Served(certified.network.topology_path, "c", fresh=False)
        await routers["c"].start()
        await until(lambda: "certificate revoked" in certified.log("b"), "b refuses the old certificate")
        await certified.deliver("a", "b", b"undisturbed")

    certified.play(story)


def test_the_commands_of_the_page_make_certificates_that_routers_accept(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
    commands = re.findall(r"^\$ ((?:openssl|\(umask 077; cat) .*)$", page, re.M)
    certified = Certified(tmp_path)
    for name in "abc":
        (tmp_path / "pki" / f"{name}.pem").unlink()
        for command in commands if name == "a" else commands[1:]:
            mine = command.replace("pki/a.", f"pki/{name}.").replace("=a", f"={name}").replace(":a", f":{name}")
            subprocess.run(mine, shell=True, cwd=tmp_path, check=True, capture_output=True)
    profile = {"certificate": "pki/${router}.pem", "ca": "pki/routers-ca.pem"}
    certified.write("routers", profile)
    certified.play(lambda _: certified.deliver("a", "c", b"hello"))


@pytest.mark.parametrize("bad", ["a", "c"])  # a connects to b, and b to c
@pytest.mark.parametrize(
    ("fault", "at_good", "at_bad"),
    [
        ("name", "is not who its certificate says: that names 'd'", "is not who its certificate says: that names 'd'"),
        ("authority", "certificate is not accepted: unable to get local issuer", "unknown ca"),
        ("expired", "certificate is not accepted: certificate has expired", "certificate expired"),
        ("plain", "does not speak TLS", "has TLS on its trunks, and this router has not"),
    ],
)
def test_a_router_without_the_right_certificate_is_no_neighbour(
    tmp_path: Path, bad: str, fault: str, at_good: str, at_bad: str
) -> None:
    certified = Certified(tmp_path)
    good = "c" if bad == "a" else "a"

    async def story(routers: dict[str, Served]) -> None:
        if fault == "name":
            certified.pki.certificate(bad, "d")
        elif fault == "authority":
            shutil.copy(Pki(tmp_path / "stranger").certificate(bad, bad), tmp_path / "pki" / f"{bad}.pem")
        elif fault == "expired":
            certified.pki.certificate(bad, bad, days=-1)
        else:
            certified.write("off")
        routers[bad] = Served(certified.network.topology_path, bad, fresh=False)
        await routers[bad].start()
        await until(lambda: at_good in certified.log("b"), f"b says why: {at_good}")
        # OpenSSL does not answer what is no TLS
        told = "connection with neighbour b refused or failed" if (fault, bad) == ("plain", "a") else at_bad
        await until(lambda: told in certified.log(bad), f"{bad} says why: {told}")
        assert "event=session_up" not in certified.log(bad)
        await certified.deliver("b", good, b"undisturbed")
        await certified.deliver(good, "b", b"undisturbed")

    certified.play(story, "b", good)


KEY = "0123456789abcdef0123456789abcdef"


def keyed(tmp_path: Path) -> Certified:
    """The three routers without TLS, with a key."""
    certified = Certified(tmp_path)
    document = certified.network.topology()
    document["trunks"] = {"tls": "off", "key": "network.key"}
    certified.network.topology_path.write_text(yaml.safe_dump(document, sort_keys=False))
    (tmp_path / "network.key").touch(0o600)
    (tmp_path / "network.key").write_text(f"{KEY}\n")
    return certified


def test_routers_with_the_networks_key_are_neighbours(tmp_path: Path) -> None:
    certified = keyed(tmp_path)

    async def story(routers: dict[str, Served]) -> None:
        await certified.deliver("a", "c", b"hello")
        for name in "abc":
            assert KEY not in certified.log(name)
            assert KEY not in repr(routers[name].server.topology)

    certified.play(story)


@pytest.mark.parametrize("bad", ["a", "c"])  # a connects to b, and b to c
@pytest.mark.parametrize("fault", ["other key", "no key"])
def test_a_router_without_the_networks_key_is_no_neighbour(tmp_path: Path, bad: str, fault: str) -> None:
    certified = keyed(tmp_path)
    good = "c" if bad == "a" else "a"
    refuses, refused = {
        ("other key", "a"): ("b", "wrong user or password for 'a'"),
        ("other key", "c"): ("c", "wrong user or password for 'b'"),
        ("no key", "a"): ("b", "the peer's protocol header is"),
        ("no key", "c"): ("c", "the peer's protocol header is"),
    }[fault, bad]

    async def story(routers: dict[str, Served]) -> None:
        if fault == "other key":
            (tmp_path / "network.key").write_text("f" * 32)
        else:
            certified.write("off")
        routers[bad] = Served(certified.network.topology_path, bad, fresh=False)
        await routers[bad].start()
        await until(lambda: refused in certified.log(refuses), f"{refuses} says why")
        told = "b" if refuses != "b" else bad
        await until(
            lambda: re.search("the server refused SCRAM|protocol header is", certified.log(told)), f"{told} says why"
        )
        for name in ("b", bad):
            assert f"session with router {bad if name == 'b' else 'b'} up" not in certified.log(name)
        await certified.deliver("b", good, b"undisturbed")

    certified.play(story, "b", good)


def test_a_router_that_is_not_in_the_file_is_no_neighbour_with_the_key_either(tmp_path: Path) -> None:
    certified = keyed(tmp_path)
    other = tmp_path / "other"
    stranger = LiveNetwork(other, ("b", "aa"), [("b", "aa")])
    stranger.routers["b"].interrouter_port = certified.network["b"].interrouter_port
    document = stranger.topology()
    document["links"] = [{"between": ["b", "aa"], "via": certified.network["b"].interrouter_port}]
    document["trunks"] = {"tls": "off", "key": str(tmp_path / "network.key")}
    stranger.topology_path.write_text(yaml.safe_dump(document, sort_keys=False))

    async def story(routers: dict[str, Served]) -> None:
        routers["aa"] = Served(stranger.topology_path, "aa")
        await routers["aa"].start()
        said = "router 'b' has no neighbour 'aa' in its topology file"
        await until(lambda: said in (other / "aa.log").read_text(), "b says why")
        await certified.deliver("a", "c", b"undisturbed")
        assert "session with router aa up" not in certified.log("b")

    certified.play(story)


def shown(dials: TrunkKey, dialled: str, server: TrunkKey) -> tuple[str, str]:
    """Whom the server sees, and whom the router that dials sees, each empty if it refuses; what one says is passed to
    the other as it is."""
    client = dials.sasl(dialled)
    assert isinstance(client, Scram)
    offer = server.sasl(None)
    assert isinstance(offer, ServerMechanisms)
    mechanism = offer.begin("SCRAM-SHA-256")
    step = mechanism.step(client.start())
    assert isinstance(step, Challenge)
    step = mechanism.step(client.step(step.data))
    if not isinstance(step, Success):
        return "", ""
    client.finish(step.additional_data)
    return step.identity, dialled


def test_answers_of_another_router_or_our_own_are_no_answers_of_the_one_that_was_dialled() -> None:
    """Else whoever sits in between passes a router's questions to another, or back to itself, and is its neighbour."""
    a, b, c = (TrunkKey(name, KEY) for name in "abc")
    assert shown(a, "b", b) == ("a", "b")
    assert shown(a, "b", c) == shown(a, "b", a) == ("", "")
    assert shown(TrunkKey("a", "f" * 32), "b", b) == ("", "")


def test_a_key_is_read_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "network: n\nrouters: {a: {amqp: 5672, interrouter: 7671, admin: 8671}}\ntrunks: {tls: off, key: $K}\n"
    topology = loads(text, str(tmp_path / "n.yaml"))
    with pytest.raises(UsageError, match=r"trunks.key: the environment has no K"):
        read_trunk_key(topology, "a")
    monkeypatch.setenv("K", "short")
    with pytest.raises(UsageError, match="a key of 5 characters can be guessed; openssl rand -hex 32 makes one"):
        read_trunk_key(topology, "a")
    monkeypatch.setenv("K", KEY)
    assert read_trunk_key(topology, "a") is not None
    with pytest.raises(UsageError, match=r"trunks.key: .*none.key cannot be read: No such file"):
        read_trunk_key(loads(text.replace("$K", "none.key"), str(tmp_path / "n.yaml")), "a")
    with pytest.raises(ConfigError, match="is no place of a key"):
        loads(text.replace("$K", "$K/x"))


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("trunks: {}", "trunks: tls is missing"),
        ("trunks: {tls: routes}", 'trunks.tls: no TLS profile "routes"; did you mean "routers"?'),
        (
            "trunks: {tls: bare}",
            "trunks.tls: tls.bare does not say who signs routers' certificates; add ca to tls.bare",
        ),
        ("trunks: {tls: routers, x: 1}", 'unknown key "x"'),
    ],
)
def test_mistakes_in_the_file_are_named(section: str, said: str) -> None:
    text = (
        "network: n\nrouters: {a: {amqp: 5672, interrouter: 7671, admin: 8671}}\n"
        "tls: {bare: {certificate: x.pem}, routers: {certificate: x.pem, ca: ca.pem}}\n"
    )
    with pytest.raises(ConfigError) as caught:
        loads(f"{text}{section}\n")
    assert said in str(caught.value)
    assert loads(f"{text}trunks: {{tls: off}}\n").trunk_tls == ""
    assert loads(f"{text}trunks: {{tls: routers}}\n").trunk_tls == "routers"


@pytest.mark.parametrize("host", ["10.0.0.1", "b.example", "::2"])
def test_a_trunk_that_others_reach_has_tls_or_the_file_allows_it(host: str) -> None:
    text = (
        "network: n\nrouters:\n  a: {amqp: 1, interrouter: 2, admin: 3}\n"
        f"  b: {{amqp: 4, interrouter: '{format_host_port((host, 5))}', admin: 6}}\nlinks: [a - b]\n"
    )
    with pytest.raises(ConfigError, match=r"trunks: is not given, .*: b \(.*\); add trunks: {tls: PROFILE}"):
        loads(text)
    assert loads(f"{text}trunks: {{tls: off}}\n").trunk_tls == ""
    assert loads(f"{text}tls: {{x: {{certificate: c, ca: d}}}}\ntrunks: {{tls: x}}\n").trunk_tls == "x"
    for this_machine in ("127.0.0.1", "localhost", "127.9.9.9"):
        assert loads(text.replace(f"[{host}]" if ":" in host else host, this_machine)).trunk_tls is None
    assert loads(text.replace("links: [a - b]\n", "").replace("  a: {amqp: 1, interrouter: 2, admin: 3}\n", ""))


def test_the_names_of_a_certificate() -> None:
    common = {"subject": ((("commonName", "a"),),)}
    assert certified_names(common) == {"a"}
    assert certified_names({**common, "subjectAltName": (("DNS", "b"), ("DNS", "c"), ("email", "d"))}) == {"b", "c"}
    assert certified_names({**common, "subjectAltName": (("email", "d"),)}) == set()
    assert certified_names({}) == set()
