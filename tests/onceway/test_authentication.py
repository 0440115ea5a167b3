"""Clients say who they are."""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from cryptography import x509

import onceway
from amqp10.frames import SASL_HEADER
from onceway.access.authentication import user_of
from onceway.access.certificates import end_point
from onceway.access.users import User, Users, load_users, store_users, with_password
from onceway.errors import AuthenticationFailed, ConnectionFailed
from onceway.topology import ConfigError, loads
from onceway.topology.sasl import CertificateRule
from tests.guarded import PASSWORD, Guarded
from tests.pki import Pki
from tests.serving import undisturbed

MECHANISMS = ["SCRAM-SHA-512-PLUS", "SCRAM-SHA-256-PLUS", "SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", None]


def test_each_mechanism_lets_in_who_knows_the_password_and_nobody_else(tmp_path: Path) -> None:
    """Certificates, tokens and each reason: tests/interop/test_logins.py."""
    guarded = Guarded(tmp_path, certificates=[{"from": "email"}])

    async def story() -> None:
        async with undisturbed(*map(guarded.connect, guarded.url[:2])):
            secure, plain = guarded.url[0], guarded.plain[0]
            for mechanism in MECHANISMS:
                async with guarded.connect(secure, mechanism=mechanism) as connection:
                    assert connection.router == "a"
            assert "code 1" in await guarded.refused(secure, "alice", "Wonderland", "PLAIN")
            assert "code 1" in await guarded.refused(secure, "alice", "Wonderland")
            assert "code 1" in await guarded.refused(secure, "bob", PASSWORD)
            async with guarded.connect(plain):
                pass
            why = await guarded.refused(plain, "alice", PASSWORD, "PLAIN")
            assert "the server offers SCRAM-SHA-512, SCRAM-SHA-256: none will do" in why
            assert "none will do" in await guarded.refused(plain, "alice", PASSWORD, "SCRAM-SHA-256-PLUS")
            for url in (secure, plain):
                with pytest.raises(AuthenticationFailed, match="does not offer ANONYMOUS"):
                    await onceway.connect(url, tls=guarded.tls())
            with pytest.raises(AuthenticationFailed, match="the server refused EXTERNAL"):
                await onceway.connect(secure, tls=guarded.tls(), credentials=onceway.Credentials(mechanism="EXTERNAL"))
        log = guarded.log()
        assert "wrong user or password for 'alice'" in log
        assert PASSWORD not in log
        assert "Wonderland" not in log

    guarded.play(story)


def test_a_client_that_speaks_no_tls_to_a_port_with_it_is_told_so(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path)

    async def story() -> None:
        with pytest.raises(
            ConnectionFailed, match="ended the connection without a word: for a port with TLS, write amqps"
        ):
            await onceway.connect(guarded.url[0].replace("amqps", "amqp"), connect_timeout_s=0.5)

    guarded.play(story)


def test_plain_without_tls_and_anonymous_are_there_where_the_file_says_so(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path, mechanisms=["PLAIN", "ANONYMOUS"], plain_without_tls=True)

    async def story() -> None:
        async with guarded.connect(guarded.plain[0]) as connection:
            assert connection.router == "a"
        assert "code 1" in await guarded.refused(guarded.plain[0], "alice", "x")
        async with onceway.connect(guarded.plain[0]) as connection:
            assert connection.router == "a"

    guarded.play(story)


def test_a_reload_brings_new_users_and_sends_away_those_that_are_gone(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path)

    async def story() -> None:
        users = load_users(guarded.users)
        everyone = {**users.by_name, "bob": User(with_password("builder"))}
        assert "code 1" in await guarded.refused(guarded.url[0], "bob", "builder")
        store_users(guarded.users, Users(everyone, users.secret))
        assert guarded.reload() == ""
        lost = asyncio.Event()
        reasons: list[str] = []

        def report(event: onceway.Report) -> None:
            if isinstance(event, onceway.RouterLost):
                reasons.append(event.reason)
                lost.set()

        bob = await onceway.connect(
            guarded.url[0], tls=guarded.tls(), credentials=onceway.Credentials("bob", "builder"), on_report=report
        )
        async with guarded.connect(guarded.url[0]) as alice:
            store_users(guarded.users, users)
            assert guarded.reload() == ""
            await lost.wait()
            assert reasons[0] == "amqp:unauthorized-access: user 'bob' was removed"
            publisher = await alice.publisher("orders")  # she is still there
            assert publisher.guarantee == "exactly-once"
        await bob.close(timeout_s=0)
        guarded.users.write_text("{")
        assert f"sasl.users: {guarded.users} is no file of users: line 1" in guarded.reload()
        async with guarded.connect(guarded.url[0]) as connection:  # as before
            assert connection.router == "a"

    guarded.play(story)


def test_who_has_begun_to_log_in_begins_anew_where_others_may_now(tmp_path: Path) -> None:
    """What is under way knows the users of before: one that is removed would come in and stay."""
    guarded = Guarded(tmp_path)

    async def story() -> None:
        place = urlsplit(guarded.plain[0])
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        writer.write(SASL_HEADER)
        assert await reader.readexactly(len(SASL_HEADER)) == SASL_HEADER
        assert guarded.reload() == ""
        assert await reader.readexactly(4), "the mechanisms, as nothing has changed"
        users = load_users(guarded.users)
        store_users(guarded.users, Users({**users.by_name, "bob": User(with_password("builder"))}, users.secret))
        assert guarded.reload() == ""
        await reader.read()  # to its end
        writer.close()

    guarded.play(story)


def test_files_with_secrets_that_everyone_can_read_are_refused(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path)
    files = [guarded.users, guarded.pki.directory / "router.pem"]

    async def story() -> None:
        for file in files:
            file.chmod(0o644)
            assert f"{file} has secrets, and everyone on this host can read or change it" in guarded.reload()
            file.chmod(0o640)
            assert guarded.reload() == ""

    guarded.play(story)


def test_guessing_gets_slow_and_then_not_even_the_right_password_helps_but_others_behind_the_address_come_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onceway.access.guesses.MOST_DELAY_S", 1.0)
    monkeypatch.setattr("onceway.access.guesses.MOST_OF_PAIR", 8)
    guarded = Guarded(tmp_path)
    user = User(with_password(PASSWORD))
    store_users(guarded.users, Users({"alice": user, "bob": user, "new": user}))

    async def story() -> None:
        url, loop = guarded.url[0], asyncio.get_running_loop()
        async with undisturbed(*map(guarded.connect, guarded.url[:2])):

            async def guess(number: int, mechanism: str | None) -> float:
                began = loop.time()
                with pytest.raises(AuthenticationFailed):
                    await guarded.connect(url, "bob", f"wrong{number}", mechanism)
                return loop.time() - began

            for number in range(4):
                took = await guess(number, "PLAIN" if number % 2 else None)
            assert took >= 0.25
            await asyncio.gather(*(guess(number, None) for number in range(4, 12)))
            assert "code 1" in await guarded.refused(url, "bob", PASSWORD)
            async with guarded.connect(url, "alice"), guarded.connect(url, "new"):
                pass
        log = guarded.log()
        assert "too many failures before, so nothing is looked at for a while" in log

    guarded.play(story)


def test_commands_read_the_password_from_a_file_or_the_environment(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path)
    secret = tmp_path / "secret"
    secret.write_text(f"{PASSWORD}\n")
    common = ["--url", guarded.url[0], "--ca", str(guarded.pki.ca)]

    def command(name: str, *arguments: str, password: str | None = None) -> subprocess.Popen[str]:
        environment = {**os.environ, "ONCEWAY_USER": "alice"}
        if password is not None:
            environment["ONCEWAY_PASSWORD"] = password
        return subprocess.Popen(
            [sys.executable, "-m", "onceway", name, "orders", *common, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )

    async def story() -> None:
        async with guarded.connect(guarded.url[1]) as connection:
            subscriber = await connection.subscriber("orders")
            publishing = command("publish", "--count", "1", password=PASSWORD)
            await (await subscriber.receive()).accept()
            assert await asyncio.to_thread(publishing.wait, 20) == 0
            publishing = command("publish", "--count", "1", "--password-file", str(secret))
            await (await subscriber.receive()).accept()
            assert await asyncio.to_thread(publishing.wait, 20) == 0
            wrong = command("publish", "--count", "1", "--mechanism", "PLAIN", password="x")
            _, told = await asyncio.to_thread(wrong.communicate, None, 20)
            assert wrong.returncode == 1
            assert "does not accept this client: amqp:unauthorized-access: the server refused PLAIN" in told
            nobody = command("publish", "--count", "1")
            _, told = await asyncio.to_thread(nobody.communicate, None, 20)
            assert (nobody.returncode, told) == (
                2,
                "there is no terminal to ask at: give --password-file, - for standard input\n",
            )

    guarded.play(story)


@pytest.mark.parametrize(
    ("sasl", "said"),
    [
        ("{}", "sasl: nobody can say who they are; add users"),
        ("{mechanisms: []}", "sasl.mechanisms: no mechanism; name one at least"),
        ("{mechanisms: [PLAIN]}", "sasl.mechanisms[0]: PLAIN without users; add users: a file that onceway user keeps"),
        ("{mechanisms: [EXTERNAL]}", "EXTERNAL without certificates; add certificates: whose a certificate is"),
        ("{mechanisms: [ANONYMUS]}", 'no such choice: "ANONYMUS"; did you mean "ANONYMOUS"?'),
        ("{users: u, mechanisms: [PLAIN, PLAIN]}", "sasl.mechanisms[1]: PLAIN is given twice"),
        ("{certificates: [{from: email}], plain_without_tls: true}", "PLAIN is not among the mechanisms"),
        ("{certificates: []}", "sasl.certificates: no rule says whose a certificate is"),
        ("{certificates: [{}]}", "sasl.certificates[0]: from is missing"),
        ("{certificates: [{from: email, match: '('}]}", "sasl.certificates[0].match: ( is no regular expression"),
        (r"{certificates: [{from: dns, match: a, user: '\1'}]}", r"user: \1, and match has 0 pairs of brackets"),
        (r"{certificates: [{from: dns, user: '\x'}]}", "is no name; write a name, with"),
        ("{users: ''}", "sasl.users: no file; write the path of one"),
    ],
)
def test_mistakes_in_the_file_are_named(sasl: str, said: str) -> None:
    text = f"network: n\nrouters: {{a: {{amqp: 5672, interrouter: 7671, admin: 8671}}}}\nsasl: {sasl}\n"
    with pytest.raises(ConfigError) as caught:
        loads(text)
    assert said in str(caught.value)


def test_mechanisms_are_those_that_the_file_makes_possible() -> None:
    def mechanisms(sasl: str) -> tuple[str, ...]:
        text = f"network: n\nrouters: {{a: {{amqp: 5672, interrouter: 7671, admin: 8671}}}}\nsasl: {sasl}\n"
        found = loads(text).sasl
        return found.mechanisms

    assert mechanisms("{users: u}") == ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
    assert mechanisms("{certificates: [{from: dns}]}") == ("EXTERNAL",)
    assert mechanisms("{users: u, mechanisms: [ANONYMOUS, SCRAM-SHA-256]}") == ("SCRAM-SHA-256", "ANONYMOUS")


@pytest.mark.parametrize(
    ("rules", "user"),
    [
        ([("common_name", "(.+)", r"\1")], "Alice"),
        ([("dns", "(.*)\\.example\\.org", r"\1")], "host"),
        ([("dns", "nothing", "x"), ("email", "(a)(.*)@.*", r"\2-\1")], "lice-a"),
        ([("uri", ".*", r"\g<0>")], "spiffe://n/alice"),
        ([("dns", "host", "x")], None),
        ([("common_name", "Al(x)?ice", r"\1")], None),
        ([("dns", "host", "anonymous")], None),
        ([("dns", ".*", "anonymous"), ("common_name", ".*", "last")], "last"),
        ([], None),
    ],
)
def test_rules_say_whose_a_certificate_is(rules: list[tuple[str, str, str]], user: str | None) -> None:
    certificate = {
        "subject": ((("countryName", "XX"),), (("commonName", "Alice"),)),
        "subjectAltName": (("DNS", "host.example.org"), ("email", "alice@example.org"), ("URI", "spiffe://n/alice")),
    }
    assert user_of(certificate, [CertificateRule(*rule) for rule in rules]) == user


def test_the_channel_binding_is_the_hash_that_signed_the_certificate(tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    certificate = x509.load_pem_x509_certificate(pki.certificate("x").read_bytes())
    der = ssl.PEM_cert_to_DER_cert(pki.ca.read_text())
    authority = x509.load_pem_x509_certificate(pki.ca.read_bytes())
    assert authority.signature_hash_algorithm is not None
    assert end_point(der) == authority.fingerprint(authority.signature_hash_algorithm)
    assert certificate.signature_hash_algorithm is not None
