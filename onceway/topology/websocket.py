"""`websocket` of a topology file: whose web pages may connect."""

from __future__ import annotations

import re
from typing import Final

from onceway.topology.document import Entry

WEBSOCKET_KEYS: Final = ("origins",)
_ORIGIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://(\[[0-9A-Fa-f:.]+\]|[^/\\\s?#@,:\[\]]+)(:[0-9]+)?")


def read_websocket(entry: Entry | None) -> tuple[str, ...]:
    """The origins of web pages that may open WebSockets."""
    if entry is None:
        return ()
    expected = "a mapping such as {origins: [https://app.example.org]}"
    fields = entry.fields(WEBSOCKET_KEYS, expected, required=WEBSOCKET_KEYS) or {}
    if "origins" not in fields:
        return ()
    items = fields["origins"].items("a list of origins, such as https://app.example.org") or []
    origins = [item.scalar(_read_origin, "an origin, such as https://app.example.org") for item in items]
    return tuple(origin for origin in origins if origin is not None)


def _read_origin(text: str) -> str:
    """As browsers write them (RFC 6454, 6.2): scheme, host, and a port that is not the scheme's."""
    if text not in ("*", "null") and not _ORIGIN.fullmatch(text):
        raise ValueError(f'"{text}" is no origin', 'write scheme and host, as in https://app.example.org, or "*"')
    return text.lower()
