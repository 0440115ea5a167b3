"""Router URLs: what can be written, and what is said where it cannot be read."""

from __future__ import annotations

import pytest

from onceway.client.urls import RouterUrl, parse_urls
from onceway.errors import UsageError


def test_a_list_may_be_one_string_with_commas_and_leave_out_later_schemes() -> None:
    expected = [RouterUrl("127.0.0.1", 5672), RouterUrl("127.0.0.1", 5673)]
    assert parse_urls("amqp://127.0.0.1:5672,127.0.0.1:5673") == expected
    assert parse_urls("amqp://127.0.0.1:5672,amqp://127.0.0.1:5673") == expected
    assert parse_urls(["amqp://127.0.0.1:5672", "127.0.0.1:5673"]) == expected


def test_the_port_is_5672_unless_said_otherwise() -> None:
    assert parse_urls("amqp://host/") == [RouterUrl("host", 5672)]
    assert parse_urls("amqp://[::1]") == [RouterUrl("::1", 5672)]


def test_user_and_password_are_unquoted_and_shared_by_the_rest_of_the_list() -> None:
    assert parse_urls("amqp://a%40b:p%3Aw@one,two,amqp://three") == [
        RouterUrl("one", 5672, "a@b", "p:w"),
        RouterUrl("two", 5672, "a@b", "p:w"),
        RouterUrl("three", 5672),
    ]


def test_amqps_means_tls_also_for_the_parts_that_follow() -> None:
    assert parse_urls("amqps://a,b:1,amqp://c,d") == [
        RouterUrl("a", 5671, scheme="amqps"),
        RouterUrl("b", 1, scheme="amqps"),
        RouterUrl("c", 5672),
        RouterUrl("d", 5672),
    ]
    assert str(parse_urls("amqps://a")[0]) == "amqps://a:5671"


def test_ws_and_wss_are_websockets_on_the_ports_of_the_web() -> None:
    plain, secure = parse_urls("ws://a,wss://b")
    assert (plain.port, plain.secure, plain.in_websocket) == (80, False, True)
    assert (secure.port, secure.secure, secure.in_websocket) == (443, True, True)
    assert str(secure) == "wss://b:443"


def test_a_url_named_twice_is_tried_once() -> None:
    assert parse_urls("amqp://a,a,b") == [RouterUrl("a", 5672), RouterUrl("b", 5672)]


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
