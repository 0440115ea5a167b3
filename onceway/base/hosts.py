"""Whether a request of HTTP was sent to a name that its listener has: all front doors of HTTP ask `is_own`.

A page that a browser has loaded from another site can have that site's name mean this listener's address afterwards
(DNS rebinding). The browser then takes what is here for that site's, and lets the page read it. But it still sends the
name, in `Host`. So a name that nobody has given the listener is refused. An address is no name that could come to mean
another one, `localhost` is the browser's own machine, and whoever sends no Host is no browser.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final

from onceway.base.values import address_of

_HOST: Final = re.compile(r"(?:\[([0-9A-Fa-f:.%]+)\]|([^\[\]:/@?#\\,\s]+))(?::[0-9]*)?")  # RFC 9110, 7.2
_AUTHORITY: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)")
LOCAL: Final = "localhost"


def named_in(target: str, hosts: Sequence[str]) -> list[str]:
    """The hosts that a request names: in Host headers, and in a target that is a whole URL (RFC 9112, 3.2.2).

    Args:
        target: As the request's first line has it.
        hosts: What its Host headers say.
    """
    authority = _AUTHORITY.match(target)
    return [*hosts, *([] if authority is None else [authority[1]])]


def is_own(hosts: Sequence[str], names: Collection[str]) -> bool:
    """Says whether a request that names these hosts is for a listener with these names.

    Args:
        hosts: As `named_in` finds them. There should be one; all are looked at.
        names: In small letters. `*.example.org` stands for all names with one label more.
    """
    return all(_is_own(host, names) for host in hosts)


def _is_own(host: str, names: Collection[str]) -> bool:
    found = _HOST.fullmatch(host)
    if found is None:
        return False
    name = (found[1] or found[2]).lower().removesuffix(".")
    return name == LOCAL or name in names or f"*.{name.partition('.')[2]}" in names or address_of(name) is not None


def refusal(hosts: Sequence[str], remedy: str) -> str:
    """What is answered, with status 421: the name, and where it would be given."""
    named = ", ".join(hosts).encode("ascii", "backslashreplace").decode()[:100]
    return f"nobody has given this listener the name {named}: {remedy}"


IN_THE_FILE: Final = (
    "ask for its address, or give it the name in the topology file: `http_hosts: [NAME]`, or in a rendered one with "
    "`onceway render compose --host NAME`"
)
