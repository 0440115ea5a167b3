"""A bus attacked by raw requests: of strangers, and of a user who has a token and wants what is another's."""

from __future__ import annotations

import gzip
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench.processes import resident_mb
from onceway.access.guesses import DELAY_S, FREE, MOST_OF_PAIR
from tests.edges.bus.world import ROOT_KEY, TRUST, BusProcess, Sink, basic
from tests.live import wait_until

EVENT = b'{"type": "update", "url": "https://example.com/1"}'
CROWD = 300  # connections at once
ALIVE_S = 1.0


def dial(bus: BusProcess, source: str = "127.0.0.1") -> socket.socket:
    plain = socket.create_connection(("127.0.0.1", bus.port), timeout=10, source_address=(source, 0))
    return TRUST.wrap_socket(plain, server_hostname="localhost")


def answers(bus: BusProcess, request: bytes, source: str = "127.0.0.1") -> bytes:
    """All that is said to these bytes until the bus closes the connection, or has said nothing for a second."""
    with dial(bus, source) as connection:
        connection.settimeout(1.0)
        said = b""
        try:
            connection.sendall(request)
            while part := connection.recv(65_536):
                said += part
        except OSError:
            pass
        return said


def head(line: str, *users: str, **headers: object) -> bytes:
    """Of a request with a header Authorization for each of these users."""
    fields = ["Host: localhost", *(f"Authorization: {basic(user)}" for user in users)]
    fields += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join((f"{line} HTTP/1.1", *fields, "", "")).encode()


@pytest.fixture
def other(bus: BusProcess) -> str:
    """The attacker's token."""
    return bus.client("other")


@pytest.fixture
def mine(bus: BusProcess, sink: Sink, topic: str) -> Iterator[str]:
    """Who has a topic and a subscription, and has them still when the attack is over."""
    token = bus.client("mine")
    assert bus.push(token, topic) == 204
    assert bus.subscribe(token, sink, topic) == 204
    before = bus.subscription(token)
    yield token
    after = bus.subscription(token)
    assert {**after, "events": 0} == {**before, "events": 0}
    assert topic in {each["name"] for each in bus.ask("GET", "/topics", ROOT_KEY).json}
    sent = len(sink.events)
    assert bus.push(token, topic) == 204
    sink.wait(sent + 1)


def test_what_is_anothers_is_not_reached_by_its_name(bus: BusProcess, mine: str, other: str, topic: str) -> None:
    attempts = [
        (b"HTTP/1.1 403", "DELETE", f"/topics/{topic}"),
        (b"HTTP/1.1 403", "DELETE", f"/topic/{topic}"),
        (b"HTTP/1.1 403", "POST", f"/topics/{topic}"),
        (b"HTTP/1.1 404", "DELETE", "/subscriber"),
        (b"HTTP/1.1 404", "DELETE", f"/subscriber?token={mine}"),
        (b"HTTP/1.1 404", "DELETE", f"/subscriber/{mine}"),
        (b"HTTP/1.1 404", "GET", "/subscriber"),
        (b"HTTP/1.1 404", "DELETE", f"/subscriber/topics/{topic}"),
        (b"HTTP/1.1 404", "PUT", f"/subscriber/topics/{topic}"),
        (b"HTTP/1.1 401", "DELETE", f"/api_tokens/{mine}"),
        (b"HTTP/1.1 401", "GET", "/api_tokens"),
        (b"HTTP/1.1 404", "GET", "/store?format=1&client=x&life=y"),
    ]
    for code, method, path in attempts:
        body = EVENT if method == "POST" else b""
        tricks = {"Content_Length": len(body), "X_Forwarded_User": mine, "X_HTTP_Method_Override": "DELETE"}
        said = answers(bus, head(f"{method} {path}", other, **tricks, Connection="close") + body)
        assert said.startswith(code), (method, path, said)
        assert mine.encode() not in said


def test_no_path_leads_a_user_to_the_tokens(bus: BusProcess, mine: str, other: str) -> None:
    climbing = ("//api_tokens", "/./api_tokens", "/topics/../api_tokens", "/topics/..%2fapi_tokens", "/%2e/api_tokens")
    spelled = ("/api%5ftokens", "/api_tokens/", "/api_tokens%00", "/api_tokens;x", "/API_TOKENS", "/api_tokens#", "*")
    for path in (*climbing, *spelled, "https://localhost/api_tokens"):
        said = answers(bus, head(f"GET {path}", other, Connection="close"))
        assert said[9:12] in (b"400", b"401", b"404", b"405"), (path, said)
        assert mine.encode() not in said


def test_of_two_users_in_a_request_the_first_one_counts(bus: BusProcess, mine: str, other: str, topic: str) -> None:
    for line, body in ((f"DELETE /topics/{topic}", b""), (f"POST /topics/{topic}", EVENT)):
        request = head(line, other, mine, Content_Length=len(body), Connection="close") + body
        assert answers(bus, request)[9:12] in (b"400", b"403")


def test_a_request_whose_length_can_be_read_in_two_ways_is_refused(bus: BusProcess, mine: str, topic: str) -> None:
    """A proxy that reads it in the other way would let one user's body be another's request."""
    size = len(EVENT)
    lengths = (f"{size}\r\nContent-Length: 0", f"{size}, 0", f"+{size}", "-1", f"0x{size:x}", f"{size}\r\n more: x")
    framings: list[dict[str, object]] = [{"Content_Length": length} for length in lengths]
    framings += [{"Transfer_Encoding": coding} for coding in ("xchunked", "chunked, identity")]
    framings += [{"Content_Length": size, "Transfer_Encoding": "chunked"}]
    framings += [{"Transfer_Encoding ": "chunked"}, {"Content_Length ": size}]
    hidden = head(f"DELETE /topics/{topic}", mine)
    for framing in framings:
        said = answers(bus, head(f"POST /topics/{topic}", mine, **framing) + EVENT + hidden)
        assert said[9:12] == b"400", (framing, said)
        assert said.count(b"\r\nServer: ") == 1, "nothing behind it is looked at"


def test_what_is_huge_is_refused_and_not_kept(bus: BusProcess, mine: str, topic: str) -> None:
    before = resident_mb([bus.pid])
    push = f"POST /topics/{topic}"
    bomb = gzip.compress(bytes(200 << 20))
    huge = {
        "a header": (b"400", head(push, mine, X="x" * 1_000_000)),
        "many headers": (b"400", head(push, mine, **{f"X{number}": "x" * 1_000 for number in range(3_000)})),
        "a user": (b"400", head(push, "x" * 100_000, Content_Length=0)),
        "a path": (b"400", head(f"GET /{'x' * 1_000_000}", mine)),
        "a body of a length": (b"413", head(push, mine, Content_Length=10 << 30) + bytes(2 << 20)),
        "a body without end": (b"413", head(push, mine, Transfer_Encoding="chunked") + b"100000\r\n" + bytes(1 << 20) + b"\r\n"
                               + b"100000\r\n" + bytes(1 << 20) + b"\r\n"),
        "a body that unpacks": (b"413", head(push, mine, Content_Encoding="gzip", Content_Length=len(bomb)) + bomb),
        "a number": (b"400", head(push, mine, Content_Length=50_000) + b'{"t":' + b"9" * 49_994 + b"}"),
        "a depth": (b"400", head(push, mine, Content_Length=50_000) + b"[" * 50_000),
    }  # fmt: skip
    for what, (code, request) in huge.items():
        said = answers(bus, request)
        assert said[9:12] == code or not said, (what, said)
    assert resident_mb([bus.pid]) - before < 50
    assert "Traceback" not in bus.said(), "nobody fills the log"


def test_strangers_who_say_nothing_or_little_hold_up_nobody(bus: BusProcess, mine: str, topic: str) -> None:
    with ExitStack() as crowd:
        good = crowd.enter_context(dial(bus))
        request = head(f"POST /topics/{topic}", mine, Content_Length=len(EVENT)) + EVENT
        good.sendall(request)
        assert good.recv(4096).startswith(b"HTTP/1.1 204")
        silent = [
            crowd.enter_context(socket.create_connection(("127.0.0.1", bus.port), timeout=10)) for _ in range(CROWD)
        ]
        slow = [crowd.enter_context(dial(bus)) for _ in range(CROWD)]
        for number, each in enumerate(slow):
            each.sendall(request[: 10 + number])
        began = time.monotonic()
        good.sendall(request)
        assert good.recv(4096).startswith(b"HTTP/1.1 204"), "who has shown a token keeps its connection"
        assert bus.push(mine, topic) == 204
        assert time.monotonic() - began < ALIVE_S
        for first in (silent[0], slow[0]):
            first.settimeout(10)
            assert first.recv(1) == b"", "the oldest go"
        descriptors = len([*Path(f"/proc/{bus.pid}/fd").iterdir()])
        assert descriptors < CROWD
    wait_until(lambda: bus.push(mine, topic) == 204, "the bus goes on")


def test_guesses_at_the_root_key_get_slow_and_then_nothing_is_looked_at(bus: BusProcess, other: str) -> None:
    """As with the routers' passwords. Who has a token is not held up, and one that is not there is no guess."""

    def asks(user: str, source: str) -> tuple[bytes, float]:
        """The status, and after how many seconds; from this address."""
        began = time.monotonic()
        said = answers(bus, head("GET /topics", user, Connection="close"), source)
        return said[9:12], time.monotonic() - began

    attacker = "127.0.0.9"
    for token in ("demo", "test"):
        bus.ask("POST", "/api_tokens", ROOT_KEY, {"name": "short", "token": token})
    assert asks("test", attacker)[0].startswith(b"20")
    assert all(asks(f"guess{number}", attacker)[1] < DELAY_S for number in range(FREE))
    assert asks("guess", attacker)[1] >= DELAY_S
    assert [asks(other[:-32] + "0" * 32, attacker)[0] for _ in range(2)] == [b"401"] * 2
    with ThreadPoolExecutor(MOST_OF_PAIR) as threads:
        list(threads.map(lambda _: asks("guess", attacker), range(MOST_OF_PAIR)))
    status, after_s = asks(ROOT_KEY, attacker)
    assert status == b"401"
    assert after_s < 1.0
    assert asks("demo", attacker)[0] == b"401"  # it could be found as the root key could
    assert asks("test", attacker)[0].startswith(b"20")
    assert asks("demo", "127.0.0.1")[0].startswith(b"20")
    assert asks(other, attacker)[0].startswith(b"20")
    assert asks(ROOT_KEY, "127.0.0.1")[0].startswith(b"20")
    counts = [
        bus.metric("onceway_bus_authentication_failures_total", what=what) for what in ("failed", "delayed", "refused")
    ]
    assert counts[0] >= MOST_OF_PAIR
    assert counts[1] == counts[0] - FREE
    assert counts[0] + counts[2] == FREE + 1 + MOST_OF_PAIR + 1 + 1
    assert "client at 127.0.0.9" in bus.said()
