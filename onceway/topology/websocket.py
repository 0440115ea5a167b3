"""`websocket` of a topology file: whose web pages may connect."""

from __future__ import annotations

import re
from typing import Final

from onceway.topology.forms import Text
from onceway.topology.table import Either, ListOf, Row, Section, Table, When

_ORIGIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://(\[[0-9A-Fa-f:.]+\]|[^/\\\s?#@,:\[\]]+)(:[0-9]+)?")


def _read_origin(text: str) -> str:
    """As browsers write them (RFC 6454, 6.2): scheme, host, and a port that is not the scheme's."""
    if text not in ("*", "null") and not _ORIGIN.fullmatch(text):
        raise ValueError(f'"{text}" is no origin', 'write scheme and host, as in https://app.example.org, or "*"')
    return text.lower()


_ONE: Final = 'an origin, such as https://app.example.org, or "*"'

WEBSOCKET: Final = Section(
    "websocket",
    "a mapping such as {origins: [https://app.example.org]}",
    (
        Row(
            "origins",
            Either(
                Text(lambda text: (_read_origin(text),), _ONE),
                ListOf(Text(_read_origin, _ONE), "a list of origins, such as https://app.example.org"),
            ),
            When.NEW_CONNECTIONS,
            "the web pages that may connect to `ws` and `wss`, as browsers name them (`https://app.example.org`), or "
            '`"*"` for all; without it none. Programs that send no `Origin` header may always',
            required=True,
        ),
    ),
)


FORM: Final[Table[tuple[str, ...]]] = Table(WEBSOCKET, lambda given, scope: given.values.get("origins"))
"""The origins."""
