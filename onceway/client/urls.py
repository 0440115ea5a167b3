"""Router URLs: `amqp://[user:password@]host[:port]`, or `amqps://` for TLS, separated by commas or as a list. `ws://`
and `wss://` are the same in a WebSocket."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import unquote, urlsplit

from onceway.errors import UsageError

DEFAULT_PORT = 5672  # IANA's
DEFAULT_TLS_PORT = 5671
DEFAULT_PORTS = {"amqp": DEFAULT_PORT, "amqps": DEFAULT_TLS_PORT, "ws": 80, "wss": 443}
_PASSWORD = re.compile(r"(//[^/@:]*:).*@")  # up to the last @: one that is not quoted may be part of it


@dataclass(frozen=True, slots=True)
class RouterUrl:
    """A router's address, and user and password for it."""

    host: str
    port: int
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    scheme: str = "amqp"

    @property
    def secure(self) -> bool:
        """Through TLS."""
        return self.scheme in ("amqps", "wss")

    @property
    def in_websocket(self) -> bool:
        return self.scheme in ("ws", "wss")

    def __str__(self) -> str:
        """Without user and password, as in messages and logs."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def has_password(urls: str) -> bool:
    """Whether one of these URLs, of any scheme, has a password in it."""
    return any(
        _PASSWORD.search(part if "://" in part else f"//{part}") or re.search("[?&]password=", part)
        for part in urls.split(",")
    )


def parse_urls(urls: str | Sequence[str]) -> list[RouterUrl]:
    """All of them, each once, in order.

    Later parts of a list may leave out scheme and user, and share those of the part before.  UsageError names the part
    that cannot be read.
    """
    parts = urls.split(",") if isinstance(urls, str) else [part for url in urls for part in url.split(",")]
    parsed: dict[RouterUrl, None] = {}
    user: str | None = None
    password: str | None = None
    scheme = "amqp"
    for part in parts:
        url = _parse(part.strip() if "://" in part else f"{scheme}://{part.strip()}")
        if "://" not in part and url.user is None and user is not None:
            url = replace(url, user=user, password=password)
        user, password, scheme = url.user, url.password, url.scheme
        parsed[url] = None
    if not parsed:
        raise UsageError("no router URL: give one such as amqp://127.0.0.1:5672")
    return list(parsed)


def _parse(text: str) -> RouterUrl:
    shown = _PASSWORD.sub(r"\1...@", text)
    try:
        split = urlsplit(text)
        port = split.port
    except ValueError as error:
        raise UsageError(f"router URL {shown!r}: {error}") from error
    if split.scheme not in DEFAULT_PORTS:
        raise UsageError(
            f"router URL {shown!r}: the scheme must be amqp, amqps, ws or wss, as in amqp://127.0.0.1:5672"
        )
    if not split.hostname:
        raise UsageError(f"router URL {shown!r}: no host, as in amqp://127.0.0.1:5672")
    if split.path not in ("", "/") or split.query or split.fragment:
        raise UsageError(f"router URL {shown!r}: nothing may follow the port; addresses are given to publisher()")
    user = unquote(split.username) if split.username else None
    password = unquote(split.password) if split.password else None
    if port is None:
        port = DEFAULT_PORTS[split.scheme]
    url = RouterUrl(split.hostname, port, user, password, split.scheme)
    if (user is None) != (password is None):
        raise UsageError(f"router URL {str(url)!r}: give user and password")
    return url
