from __future__ import annotations

import pytest

from amqp10.errors import EncodeError, RemoteProtocolError
from amqp10.sasl import (
    Anonymous,
    AnonymousServer,
    Challenge,
    ClientMechanism,
    Failure,
    Plain,
    PlainServer,
    ServerMechanism,
    ServerMechanisms,
    Step,
    Success,
    server_mechanisms,
)

USERS = {"guest": "secret", "ünï": "pässwörd"}


def verify(username: str, password: str) -> bool:
    return USERS.get(username) == password


def converse(client: ClientMechanism, server: ServerMechanism) -> Step:
    step = server.step(client.start())
    for _ in range(10):
        if not isinstance(step, Challenge):
            return step
        step = server.step(client.step(step.data))
    raise AssertionError("no end to it")


@pytest.mark.parametrize(("username", "password"), USERS.items())
def test_plain_lets_in_who_knows_the_password(username: str, password: str) -> None:
    assert converse(Plain(username, password), PlainServer(verify)) == Success(username)


@pytest.mark.parametrize(("username", "password"), [("guest", "hunter2"), ("nobody", "secret")])
def test_plain_refuses_who_does_not_and_does_not_show_the_password(username: str, password: str) -> None:
    step = converse(Plain(username, password), PlainServer(verify))
    assert isinstance(step, Failure)
    assert password not in repr(step)


def test_plain_without_initial_response_is_asked_for_it() -> None:
    server = PlainServer(verify)
    assert server.step(None) == Challenge(b"")
    assert server.step(Plain("guest", "secret").step(b"")) == Success("guest")


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (b"", "malformed"),
        (b"guest", "malformed"),
        (b"\x00guest", "malformed"),
        (b"\x00guest\x00sec\x00ret", "malformed"),
        (b"\x00\x00secret", "without user"),
        (b"\x00guest\x00", "without user or password"),
        (b"\x00\xff\x00secret", "UTF-8"),
        (b"root\x00guest\x00secret", "may not act as 'root'"),
    ],
)
def test_plain_refuses_what_makes_no_sense(response: bytes, reason: str) -> None:
    step = PlainServer(verify).step(response)
    assert isinstance(step, Failure)
    assert reason in step.reason
    assert "secret" not in step.reason


def test_plain_may_name_the_same_user_twice() -> None:
    assert PlainServer(verify).step(b"guest\x00guest\x00secret") == Success("guest")


def test_anonymous_lets_everybody_in() -> None:
    assert converse(Anonymous(), AnonymousServer()) == Success("anonymous")
    assert AnonymousServer().step(None) == Success("anonymous")


def test_mechanisms_are_offered_in_order_and_found_by_name() -> None:
    mechanisms = server_mechanisms(verify=verify)
    assert mechanisms.names == ("PLAIN", "ANONYMOUS")
    assert isinstance(mechanisms.begin("PLAIN"), PlainServer)
    assert isinstance(mechanisms.begin("ANONYMOUS"), AnonymousServer)
    assert mechanisms.begin("plain") is None
    assert mechanisms.begin("EXTERNAL") is None
    assert server_mechanisms().names == ("ANONYMOUS",)
    assert server_mechanisms(verify=verify, anonymous=False).names == ("PLAIN",)


def test_server_without_mechanisms_cannot_be_made() -> None:
    with pytest.raises(EncodeError):
        server_mechanisms(anonymous=False)


@pytest.mark.parametrize(("username", "password"), [("", "x"), ("x", ""), ("a\x00b", "x"), ("a", "x\x00")])
def test_plain_cannot_say_everything(username: str, password: str) -> None:
    with pytest.raises(EncodeError):
        Plain(username, password)


@pytest.mark.parametrize("client", [Anonymous(), Plain("guest", "secret")])
def test_client_answers_no_challenge_that_its_mechanism_does_not_have(client: ClientMechanism) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        client.step(b"who are you?")
    assert caught.value.condition == "amqp:unauthorized-access"


class CountingServer:
    """A mechanism of several steps, as SCRAM will be: each exchange has a state of its own."""

    def __init__(self) -> None:
        self.steps = 0

    def step(self, data: bytes | None) -> Step:
        if data != str(self.steps).encode():
            return Failure("out of step")
        self.steps += 1
        return Success("counter", b"bye") if self.steps == 4 else Challenge(data)


class CountingClient:
    name = "COUNTING"

    def __init__(self) -> None:
        self.count = 0

    def start(self) -> bytes | None:
        self.count = 0
        return b"0"

    def step(self, challenge: bytes) -> bytes:
        self.count += 1
        return str(self.count).encode()

    def finish(self, data: bytes | None) -> None:
        """Nothing is shown."""


def test_mechanism_of_many_steps_fits_the_table_and_starts_afresh_each_time() -> None:
    mechanisms = ServerMechanisms({"COUNTING": CountingServer})
    client = CountingClient()
    for _ in range(2):
        server = mechanisms.begin(client.name)
        assert server is not None
        assert converse(client, server) == Success("counter", b"bye")
