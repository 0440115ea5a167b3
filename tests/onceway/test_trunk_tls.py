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
from onceway.loop import run
from onceway.topology import ConfigError, format_host_port, loads
from onceway.trunk_tls import certified_names
from tests.live import LiveNetwork
from tests.pki import Pki
from tests.serving import BOUND_S, Served, serving, until

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
            sent = await publisher.put(body)
            delivery = await subscriber.receive()
            assert delivery.body == body
            await delivery.accept()
            await sent

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
    commands = re.findall(r"^\$ ((?:openssl|cat) .*)$", page, re.M)
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
