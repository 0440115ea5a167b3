"""SCRAM, both sides, and what a liar on either side achieves."""

from __future__ import annotations

import unicodedata
from base64 import b64encode
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp10.errors import EncodeError, RemoteProtocolError
from amqp10.sasl import Bearer, BearerServer, Challenge, External, ExternalServer, Failure, Step, Success
from amqp10.scram import (
    END_POINT,
    HASHES,
    MOST_NAME,
    MOST_PASSWORD,
    Scram,
    ScramServer,
    Verifier,
    derive,
    parse_verifier,
    prepare,
)

MECHANISMS = list(HASHES)
BINDING = {END_POINT: b"hash of the certificate"}


def verifier(mechanism: str = "SCRAM-SHA-256", password: str = "pencil") -> Verifier:
    return derive(mechanism, password, b"sixteen bytes...", 4096)


def client(mechanism: str = "SCRAM-SHA-256", user: str = "user", password: str = "pencil", **how: object) -> Scram:
    return Scram(mechanism, user, password, lambda: "client-nonce", **how)  # type: ignore[arg-type]


def server(mechanism: str = "SCRAM-SHA-256", bindings: dict[str, bytes] | None = None) -> ScramServer:
    known = verifier(mechanism.removesuffix("-PLUS"))
    return ScramServer(mechanism, lambda user: known, "server-nonce", bindings)


def converse(one: Scram, other: ScramServer) -> Step:
    step = other.step(one.start())
    if isinstance(step, Challenge):
        step = other.step(one.step(step.data))
    if isinstance(step, Success):
        one.finish(step.additional_data)
    return step


def test_the_exchange_of_rfc_7677_has_the_bytes_that_it_says() -> None:
    one = Scram("SCRAM-SHA-256", "user", "pencil", lambda: "rOprNGfwEbeRWgbNEkqO")
    assert one.start() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    first = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    final = (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert one.step(first) == final
    one.finish(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("plus", [False, True])
def test_who_knows_the_password_is_let_in(mechanism: str, plus: bool) -> None:
    name = mechanism + "-PLUS" * plus
    one = client(name, binding=BINDING[END_POINT] if plus else None)
    step = converse(one, server(name, BINDING if plus else None))
    assert isinstance(step, Success)
    assert step.identity == "user"


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_who_does_not_know_the_password_is_refused_without_it_in_the_reason(mechanism: str) -> None:
    step = converse(client(mechanism, password="crayon"), server(mechanism))
    assert step == Failure("wrong user or password for 'user'")


def test_a_binding_to_another_tls_connection_is_refused() -> None:
    one = client("SCRAM-SHA-256-PLUS", binding=b"of the one in between")
    step = converse(one, server("SCRAM-SHA-256-PLUS", BINDING))
    assert isinstance(step, Failure)
    assert "channel binding" in step.reason


def test_a_client_that_was_not_told_of_plus_is_refused_where_it_is_offered() -> None:
    """Somebody in between has taken -PLUS away from the list (RFC 5802, 6)."""
    step = converse(client(could_bind=True), server(bindings=BINDING))
    assert isinstance(step, Failure)
    assert "somebody has changed" in step.reason
    assert isinstance(converse(client(could_bind=True), server()), Success)  # it really is not offered


def test_a_final_message_of_another_exchange_is_refused() -> None:
    one, other = client(), server()
    step = other.step(one.start())
    assert isinstance(step, Challenge)
    final = one.step(step.data)
    later = ScramServer("SCRAM-SHA-256", lambda user: verifier(), "another-nonce")
    later.step(one.start())
    assert later.step(final) == Failure("a nonce that is not of this exchange")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n",
        b"n,,",
        b"n,,n=user",
        b"n,,n=user,r=",
        b"n,,r=nonce,n=user",
        b"n,,m=ext,n=user,r=nonce",
        b"n,,n=us=er,r=nonce",
        b"n,,n=\xff,r=nonce",
        b"n,,n=,r=nonce",
        b"n,,n=user,r=\x00",
        b"z,,n=user,r=nonce",
        b"n,b=x,n=user,r=nonce",
        b"n,a=other,n=user,r=nonce",
        b"p=tls-unique,,n=user,r=nonce",
    ],
)
def test_a_malformed_first_message_is_refused(message: bytes) -> None:
    assert isinstance(server().step(message), Failure)


@pytest.mark.parametrize(
    "message",
    [None, b"", b"c=biws", b"c=biws,r=nonceserver-nonce", b"c=biws,r=nonceserver-nonce,p=", b"c=biws,r=x,p=AAAA",
     b"c=*,r=nonceserver-nonce,p=AAAA", b"c=biws,r=nonceserver-nonce,p=AAAA"],
)  # fmt: skip
def test_a_malformed_final_message_is_refused(message: bytes | None) -> None:
    other = server()
    assert isinstance(other.step(b"n,,n=user,r=nonce"), Challenge)
    assert isinstance(other.step(message), Failure)


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_no_bytes_make_the_server_fail_otherwise_than_by_refusing(first: bytes, second: bytes) -> None:
    other = server()
    assert not isinstance(other.step(first), Success)
    other = server()
    other.step(b"n,,n=user,r=nonce")
    assert not isinstance(other.step(second), Success)


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"r=client-nonce,s=c2FsdA==,i=4096",  # the server has added nothing
        b"r=other,s=c2FsdA==,i=4096",
        b"r=client-nonce1,s=c2FsdA==,i=1",
        b"r=client-nonce1,s=c2FsdA==,i=1000000000",
        b"r=client-nonce1,s=,i=4096",
        b"r=client-nonce1,s=c2FsdA==",
        b"e=other-error",
    ],
)
def test_a_client_answers_no_server_that_weakens_the_exchange(challenge: bytes) -> None:
    one = client()
    one.start()
    with pytest.raises(RemoteProtocolError) as caught:
        one.step(challenge)
    assert caught.value.condition == "amqp:unauthorized-access"


@pytest.mark.parametrize("shown", [None, b"", b"v=", b"v=" + b64encode(bytes(32)), b"e=invalid-proof"])
def test_a_server_that_does_not_know_the_verifier_is_found_out(shown: bytes | None) -> None:
    one, other = client(), server()
    step = other.step(one.start())
    assert isinstance(step, Challenge)
    one.step(step.data)
    with pytest.raises(RemoteProtocolError):
        one.finish(shown)


def test_a_server_that_accepts_without_an_exchange_is_found_out() -> None:
    one = client()
    one.start()
    with pytest.raises(RemoteProtocolError):
        one.finish(None)


def test_the_servers_last_message_may_come_as_a_challenge() -> None:
    one, other = client(), server()
    step = other.step(one.start())
    assert isinstance(step, Challenge)
    last = other.step(one.step(step.data))
    assert isinstance(last, Success)
    assert last.additional_data is not None
    assert one.step(last.additional_data) == b""
    one.finish(None)


@pytest.mark.parametrize("name", ["a,b=c", "ünï", "=2C"])
def test_names_may_have_commas_and_equals_signs(name: str) -> None:
    step = converse(client(user=name), server())
    assert isinstance(step, Success)
    assert step.identity == name


@pytest.mark.parametrize(
    ("text", "prepared"), [("I\u00adX", "IX"), ("\u2168", "IX"), ("\u00aa", "a"), ("a\u00a0b", "a b")]
)
def test_texts_that_look_the_same_are_the_same(text: str, prepared: str) -> None:
    assert prepare(text) == prepared


@pytest.mark.parametrize("text", ["", "\x07", "\u0627\u0031", "\u00ad", "\ud800"])
def test_texts_that_sasl_does_not_allow_are_refused(text: str) -> None:
    with pytest.raises(EncodeError):
        prepare(text)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_verifier_is_read_back_from_its_text_and_knows_its_password(mechanism: str) -> None:
    made = verifier(mechanism)
    assert parse_verifier(str(made)) == made
    assert made.matches("pencil")
    assert not made.matches("crayon")
    assert not made.matches("\x07")
    assert "pencil" not in repr(made) + str(made)


@pytest.mark.parametrize(
    "text",
    ["", "md5$1:a$b:c", "SCRAM-SHA-256$4096:c2FsdA==$AAAA:AAAA", "SCRAM-SHA-256$1:c2FsdA==$AAAA:AAAA",
     str(verifier()).replace("4096", "x"), str(verifier()) + "$"],
)  # fmt: skip
def test_what_is_no_verifier_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_verifier(text)


# EXTERNAL and OAUTHBEARER -----------------------------------------------------------------------------------------------


def test_external_takes_who_tls_has_shown_and_nobody_else() -> None:
    assert ExternalServer("ann").step(None) == Challenge(b"")
    assert ExternalServer("ann").step(External().start()) == Success("ann")
    assert ExternalServer("ann").step(b"ann") == Success("ann")
    assert isinstance(ExternalServer("ann").step(b"bob"), Failure)


def bearer() -> BearerServer:
    return BearerServer(lambda token: Success("ann", groups=("ops",)) if token == "good" else Failure("expired"))


def test_a_bearer_of_a_good_token_is_let_in_with_its_groups() -> None:
    assert bearer().step(Bearer(lambda: "good").start()) == Success("ann", groups=("ops",))
    assert bearer().step(b"n,a=ann,\x01auth=Bearer good\x01\x01") == Success("ann", groups=("ops",))


def test_a_bearer_of_another_token_is_told_so_and_refused() -> None:
    one, other = Bearer(lambda: "bad"), bearer()
    step = other.step(one.start())
    assert step == Challenge(b'{"status":"invalid_token"}')
    assert other.step(one.step(step.data)) == Failure("expired")


@pytest.mark.parametrize(
    "message",
    [b"", b"n,,", b"n,,\x01auth=Bearer good", b"n,,\x01\x01", b"n,,\x01auth=Basic good\x01\x01",
     b"p=x,,\x01auth=Bearer good\x01\x01", b"n,,\x01auth=Bearer \xff\x01\x01"],
)  # fmt: skip
def test_a_malformed_bearers_message_is_refused(message: bytes) -> None:
    assert isinstance(bearer().step(message), Failure)


def test_a_bearer_may_not_act_as_another() -> None:
    other = bearer()
    assert isinstance(other.step(b"n,a=bob,\x01auth=Bearer good\x01\x01"), Challenge)
    assert isinstance(other.step(b"\x01"), Failure)


SLOW = "a" + "\u0300" * 16_383 + "\u0316" * 16_383  # combining marks in the wrong order: sorting them takes seconds


def test_a_text_is_bounded_before_it_is_normalized_and_what_it_becomes_is_too(monkeypatch: pytest.MonkeyPatch) -> None:
    normalized: list[int] = []
    normalize = unicodedata.normalize

    def counting(form: Literal["NFKC"], text: str) -> str:
        normalized.append(len(text.encode()))
        return normalize(form, text)

    monkeypatch.setattr("amqp10.scram.unicodedata.normalize", counting)
    with pytest.raises(EncodeError, match="more than 255 bytes"):
        prepare(SLOW)
    with pytest.raises(EncodeError, match="more than 1024 bytes"):
        derive("SCRAM-SHA-256", SLOW, b"salt", 4096)
    assert normalized == []
    with pytest.raises(EncodeError, match="more than 255 bytes"):
        prepare("\ufdfa" * 85)  # each becomes 18 characters
    assert normalized == [MOST_NAME]
    assert prepare("a" * MOST_NAME) == "a" * MOST_NAME
    assert derive("SCRAM-SHA-256", "a" * MOST_PASSWORD, b"salt", 4096)


def test_a_name_or_a_password_that_is_too_long_is_refused() -> None:
    step = server().step(b"n,,n=" + SLOW.encode() + b",r=x")
    assert isinstance(step, Failure)
    assert "more than 255 bytes" in step.reason
    assert not verifier().matches(SLOW)
