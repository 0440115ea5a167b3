"""Protocol headers and SASL, one after the other and pipelined."""

from __future__ import annotations

from typing import Any

import pytest

from amqp10 import Connection, ConnectionClosed, ConnectionOpened
from amqp10.errors import DECODE_ERROR, FRAMING_ERROR, ILLEGAL_STATE, NOT_IMPLEMENTED, UNAUTHORIZED_ACCESS
from amqp10.frames import AMQP_HEADER, SASL_HEADER, TLS_HEADER, encode_frame
from amqp10.performatives import Open, SaslChallenge, SaslInit, SaslMechanisms, SaslOutcome, SaslResponse
from amqp10.sasl import (
    Anonymous,
    ClientChoice,
    Failure,
    Pending,
    Plain,
    ServerMechanisms,
    Success,
    server_mechanisms,
)
from amqp10.scram import Scram
from amqp10.settings import BEFORE_LOGIN
from amqp10.types import Symbol
from tests.amqp10.pair import Pair, frames, only, settings


def sasl_server(**fields: Any) -> Connection:
    mechanisms = server_mechanisms(verify=lambda user, password: (user, password) == ("ann", "secret"))
    return Connection(settings("server", sasl=mechanisms, **fields), server=True, now=0.0)


def sasl_frame(performative: Any) -> bytes:
    return encode_frame(1, 0, performative.encode())


# Protocol headers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header", [b"AMQP\x00\x00\x09\x01", TLS_HEADER, b"AMQP\x01\x01\x00\x00", b"AMQP\x00\x01\x00\x01"]
)
def test_an_unknown_version_is_answered_with_ours(header: bytes) -> None:
    server = Connection(settings("server"), server=True, now=0.0)
    error = only(server.receive_data(header, 0.0), ConnectionClosed).error
    assert error.condition == NOT_IMPLEMENTED
    assert server.data_to_send() == AMQP_HEADER
    assert server.closing


def test_something_else_than_amqp_is_answered_with_our_header() -> None:
    server = Connection(settings("server"), server=True, now=0.0)
    error = only(server.receive_data(b"GET / HTTP/1.1\r\n\r\n", 0.0), ConnectionClosed).error
    assert error.condition == FRAMING_ERROR
    assert server.data_to_send() == AMQP_HEADER
    assert server.receive_data(b"more", 0.0) == []


def test_sasl_without_mechanisms_is_answered_with_the_amqp_header() -> None:
    server = Connection(settings("server"), server=True, now=0.0)
    only(server.receive_data(SASL_HEADER, 0.0), ConnectionClosed)
    assert server.data_to_send() == AMQP_HEADER


def test_a_client_tells_of_a_server_with_another_version() -> None:
    client = Connection(settings("client"), server=False, now=0.0)
    client.open()
    client.data_to_send()
    closed = only(client.receive_data(b"AMQP\x00\x00\x09\x01", 0.0), ConnectionClosed)
    assert closed.error.condition == NOT_IMPLEMENTED
    assert client.data_to_send() == b""


# SASL -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("client", "user"), [(Anonymous(), "anonymous"), (Plain("ann", "secret"), "ann")])
@pytest.mark.parametrize("chunk", [None, 1])
def test_sasl_comes_before_open(client: Any, user: str, chunk: int | None) -> None:
    mechanisms = server_mechanisms(verify=lambda name, password: password == "secret")
    pair = Pair(client={"sasl": client}, server={"sasl": mechanisms, "allow_no_sasl": False}, chunk=chunk)
    assert pair.server.handshake.user == user
    assert pair.client.remote_open is not None


def round_trips(client: Connection, server: Connection) -> int:
    """Until the client is open; each side reads all that the other has said, then answers."""
    client.open()
    trips = 0
    while client.remote_open is None:
        trips += 1
        assert trips < 9
        server.receive_data(client.data_to_send(), 0.0)
        client.receive_data(server.data_to_send(), 0.0)
    return trips


@pytest.mark.parametrize(
    ("fields", "trips"), [({}, 1), ({"sasl": Anonymous()}, 3), ({"sasl": Anonymous(), "pipelined": True}, 1)]
)
def test_pipelined_a_connection_is_open_after_one_round_trip(fields: dict[str, Any], trips: int) -> None:
    client = Connection(settings("client", **fields), server=False, now=0.0)
    server = sasl_server()
    assert round_trips(client, server) == trips
    assert server.handshake.user == (None if not fields else "anonymous")


@pytest.mark.parametrize("chunk", [1, 7, None])
def test_pipelined_it_is_the_same_connection(chunk: int | None) -> None:
    pair = Pair(client={"sasl": Anonymous(), "pipelined": True}, server={"sasl": server_mechanisms()}, chunk=chunk)
    assert pair.client.remote_open is not None
    session = pair.client.begin()
    pair.pump()
    assert session.remote_begin is not None
    assert pair.sent_by_client.count(SASL_HEADER) == 1
    assert pair.sent_by_client.count(AMQP_HEADER) == 1


def test_pipelined_it_is_told_which_mechanisms_there_are_instead() -> None:
    mechanisms = server_mechanisms(anonymous=False, verify=lambda user, password: True)
    pair = Pair(client={"sasl": Anonymous(), "pipelined": True}, server={"sasl": mechanisms}, open=False)
    pair.client.open()
    at_client, at_server = pair.pump()
    closed = only(at_client, ConnectionClosed)
    assert closed.error.condition == UNAUTHORIZED_ACCESS
    assert "does not offer ANONYMOUS, but PLAIN" in (closed.error.description or "")
    assert "ANONYMOUS" in str(only(at_server, ConnectionClosed).error)


def test_pipelined_it_cannot_be_challenged() -> None:
    client = Connection(settings("client", sasl=Anonymous(), pipelined=True), server=False, now=0.0)
    client.open()
    said = SASL_HEADER + sasl_frame(SaslMechanisms((Symbol("ANONYMOUS"),))) + sasl_frame(SaslChallenge(b"who?"))
    closed = only(client.receive_data(said, 0.0), ConnectionClosed)
    assert closed.error.condition == ILLEGAL_STATE


def test_a_wrong_password_gets_an_outcome_and_no_connection() -> None:
    mechanisms = server_mechanisms(verify=lambda name, password: False)
    pair = Pair(client={"sasl": Plain("ann", "guess")}, server={"sasl": mechanisms}, open=False)
    pair.client.open()
    at_client, at_server = pair.pump()
    for events, local in ((at_client, False), (at_server, True)):
        closed = only(events, ConnectionClosed)
        assert (closed.error.condition, closed.local) == (UNAUTHORIZED_ACCESS, local)
    assert pair.server.handshake.user is None


def test_a_mechanism_that_is_not_offered_is_refused() -> None:
    server = sasl_server()
    server.receive_data(SASL_HEADER, 0.0)
    server.data_to_send()
    only(server.receive_data(sasl_frame(SaslInit("EXTERNAL", b"")), 0.0), ConnectionClosed)
    ((outcome, _),) = frames(server.data_to_send())
    assert outcome == SaslOutcome(1)


def test_a_server_that_insists_on_sasl_answers_the_amqp_header_with_sasls() -> None:
    server = sasl_server(allow_no_sasl=False)
    only(server.receive_data(AMQP_HEADER, 0.0), ConnectionClosed)
    assert server.data_to_send() == SASL_HEADER


def test_a_server_with_sasl_may_also_do_without() -> None:
    server = sasl_server()
    server.receive_data(AMQP_HEADER + encode_frame(0, 0, Open("x").encode()), 0.0)
    assert server.remote_open is not None
    assert server.handshake.user is None


@pytest.mark.parametrize(
    ("data", "condition"),
    [
        ((600).to_bytes(4, "big") + b"\x02\x01\x00\x00", FRAMING_ERROR),
        (b"\x00\x00\x00\x04\x02\x01\x00\x00", FRAMING_ERROR),
        (b"\x00\x00\x00\x08\x02\x01\x00\x00", FRAMING_ERROR),
        (encode_frame(0, 0, SaslInit("ANONYMOUS").encode()), FRAMING_ERROR),
        (encode_frame(1, 0, b"\x00\x53\x41\xc0"), DECODE_ERROR),
        (encode_frame(1, 0, SaslInit("ANONYMOUS").encode() + b"x"), FRAMING_ERROR),
        (encode_frame(1, 0, SaslResponse(b"").encode()), ILLEGAL_STATE),
        (encode_frame(1, 0, Open("x").encode()), ILLEGAL_STATE),
        (encode_frame(1, 0, SaslMechanisms(("PLAIN",)).encode()), ILLEGAL_STATE),
    ],
)
def test_nonsense_instead_of_sasl_ends_the_connection(data: bytes, condition: str) -> None:
    server = sasl_server()
    server.receive_data(SASL_HEADER, 0.0)
    error = only(server.receive_data(data, 0.0), ConnectionClosed).error
    assert error.condition == condition


# Steps that take time, and mechanisms of which the client takes one ---------------------------------------------------


class SlowServer:
    """Its result comes later."""

    def step(self, data: bytes | None) -> Pending:
        return Pending()


def slow_server(**fields: Any) -> Connection:
    return Connection(settings("server", sasl=ServerMechanisms({"PLAIN": SlowServer}), **fields), server=True, now=0.0)


def test_what_arrives_while_a_step_is_pending_is_read_behind_it() -> None:
    server = slow_server()
    init = sasl_frame(SaslInit(Symbol("PLAIN"), b"\x00ann\x00secret"))
    opening = encode_frame(0, 0, Open("client").encode())
    assert server.receive_data(SASL_HEADER + init + AMQP_HEADER, 0.0) == []
    assert server.receive_data(opening, 0.0) == []
    server.data_to_send()
    events = server.authenticated(Success("ann", groups=("ops",)), 1.0)
    assert type(only(events, ConnectionOpened)) is ConnectionOpened
    assert (server.handshake.user, server.handshake.groups) == ("ann", ("ops",))


def test_a_pending_step_may_fail() -> None:
    server = slow_server()
    server.receive_data(SASL_HEADER + sasl_frame(SaslInit(Symbol("PLAIN"), b"x")), 0.0)
    error = only(server.authenticated(Failure("wrong"), 1.0), ConnectionClosed).error
    assert error.condition == UNAUTHORIZED_ACCESS
    assert server.authenticated(Success("ann"), 1.0) == []


def test_a_client_that_sends_much_while_a_step_is_pending_is_refused() -> None:
    server = slow_server()
    init = sasl_frame(SaslInit(Symbol("PLAIN"), b"x"))
    server.receive_data(SASL_HEADER + init, 0.0)
    assert server.receive_data(bytes(BEFORE_LOGIN - len(init)), 0.0) == []
    only(server.receive_data(b"x", 0.0), ConnectionClosed)
    assert server.authenticated(Success("ann"), 1.0) == []


def test_the_result_of_a_step_that_came_too_late_changes_nothing() -> None:
    server = slow_server(handshake_timeout_s=5.0)
    server.receive_data(SASL_HEADER + sasl_frame(SaslInit(Symbol("PLAIN"), b"x")), 0.0)
    only(server.handle_timer(5.0), ConnectionClosed)
    assert server.authenticated(Success("ann"), 6.0) == []
    assert server.handshake.user is None


def test_a_client_takes_the_first_of_its_mechanisms_that_is_offered() -> None:
    scram = Scram("SCRAM-SHA-512", "ann", "secret", lambda: "nonce")
    choice = ClientChoice([scram, Plain("ann", "secret")])
    pair = Pair(client={"sasl": choice}, server={"sasl": server_mechanisms(verify=lambda user, password: True)})
    assert pair.server.handshake.user == "ann"


def test_a_client_that_is_offered_none_of_its_mechanisms_says_what_is_offered() -> None:
    client = Connection(settings("client", sasl=ClientChoice([Plain("ann", "secret")])), server=False, now=0.0)
    client.open()
    client.data_to_send()
    offered = sasl_frame(SaslMechanisms((Symbol("GSSAPI"),)))
    error = only(client.receive_data(SASL_HEADER + offered, 0.0), ConnectionClosed).error
    assert error is not None
    assert "GSSAPI" in (error.description or "")
    assert client.data_to_send() == b""
