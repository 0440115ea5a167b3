"""Router URLs: what can be written, and what is said where it cannot be read."""

from __future__ import annotations

import pytest

from onceway.client.urls import RouterUrl, parse_urls
from onceway.errors import UsageError

TWO = [RouterUrl("127.0.0.1", 5672), RouterUrl("127.0.0.1", 5673)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("amqp://127.0.0.1:5672,127.0.0.1:5673", TWO),
        ("amqp://127.0.0.1:5672,amqp://127.0.0.1:5673", TWO),
        (["amqp://127.0.0.1:5672", "127.0.0.1:5673"], TWO),
        ("amqp://host/", [RouterUrl("host", 5672)]),
        ("amqp://[::1]", [RouterUrl("::1", 5672)]),
        ("amqp://a,a,b", [RouterUrl("a", 5672), RouterUrl("b", 5672)]),
        (
            "amqp://a%40b:p%3Aw@one,two,amqp://three",
            [RouterUrl("one", 5672, "a@b", "p:w"), RouterUrl("two", 5672, "a@b", "p:w"), RouterUrl("three", 5672)],
        ),
        ("amqps://a,b:1", [RouterUrl("a", 5671, scheme="amqps"), RouterUrl("b", 1, scheme="amqps")]),
        ("amqps://a,amqp://b,c", [RouterUrl("a", 5671, scheme="amqps"), RouterUrl("b", 5672), RouterUrl("c", 5672)]),
    ],
)
def test_a_list_leaves_out_what_its_parts_share(text: str | list[str], expected: list[RouterUrl]) -> None:
    """Scheme, user and password hold for the parts that follow; each router is tried once."""
    assert parse_urls(text) == expected


def test_amqps_is_written_with_its_port() -> None:
    assert str(parse_urls("amqps://a")[0]) == "amqps://a:5671"


def test_ws_and_wss_are_websockets_on_the_ports_of_the_web() -> None:
    plain, secure = parse_urls("ws://a,wss://b")
    assert (plain.port, plain.secure, plain.in_websocket) == (80, False, True)
    assert (secure.port, secure.secure, secure.in_websocket) == (443, True, True)
    assert str(secure) == "wss://b:443"


def test_a_password_is_never_printed() -> None:
    (url,) = parse_urls("amqp://ann:secret@host:1")
    assert str(url) == "amqp://host:1"
    for wrong in (
        "amqp://ann:sec@ret@host:1/orders",
        "amqps://ann:secret@host:1/orders",
        "amqp://ann:secret@",
        "//a:secret@h:x",
    ):
        with pytest.raises(UsageError) as caught:
            parse_urls(wrong)
        assert "ret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("http://host", "scheme must be amqp"),
        ("amqp://", "no host"),
        ("", "no host"),
        ("amqp://host:port", "[Pp]ort"),
        ("amqp://host/orders", "nothing may follow the port"),
        ("amqp://ann@host", "give user and password"),
    ],
)
def test_what_cannot_be_read_is_said(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_urls(text)


def test_an_empty_list_is_refused() -> None:
    with pytest.raises(UsageError, match="no router URL"):
        parse_urls([])
