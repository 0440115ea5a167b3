"""Where the bus may call back.

Whoever has a token names an address that the bus's host connects to, and that host reaches more than the client does:
what listens for this machine alone, its network, and the pages of a cloud's metadata. So call-backs go to addresses of
the whole Internet that are not this machine's, unless `--callback-allow` has them. The address that is looked at is
the one of the socket that is connected, whatever a name has meant before.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, Final

from yarl import URL  # aiohttp connects to what it reads in a URL

from onceway.base import waits

Network = IPv4Network | IPv6Network
Address = IPv4Address | IPv6Address

LOOPBACK: Final[tuple[Network, ...]] = (ip_network("127.0.0.0/8"), ip_network("::1/128"))
_TRANSLATED: Final = IPv6Network("64:ff9b::/96")  # RFC 6052: an address of IPv4 is in its last 32 bits
_INTERNET: Final = IPv6Network("2000::/3")  # RFC 4291, 2.4: what else Python takes for global is none of others
_DISCARD: Final = 9


class NotAllowed(OSError):
    """The bus may not call back there."""

    def __init__(self) -> None:
        super().__init__("not a place that the bus may call back: --callback-allow names those inside its network")


def read_network(text: str) -> tuple[Network, ...]:
    """`10.0.0.0/8`, an address, or `localhost`. ValueError if it is none."""
    return LOOPBACK if text.lower() == "localhost" else (ip_network(text, strict=False),)


@dataclass(frozen=True, slots=True)
class Places:
    """Which there are.

    Attributes:
        allow: Networks whose addresses may be called back, wherever they are.
        trial: Call-backs to this machine's loopback address may be taken, too, once they have shown that they are such.
        own: Hosts and ports of the product's listeners, as far as they are known: the bus's and its routers', in any
            form: they are kept as `_place` writes them.
    """

    allow: tuple[Network, ...] = ()
    trial: bool = False
    own: frozenset[tuple[str, int]] = frozenset()

    def __post_init__(self) -> None:
        kept = frozenset(_place(URL.build(scheme="https", host=host, port=port)) for host, port in self.own)
        object.__setattr__(self, "own", kept)

    def check(self, callback: str) -> bool:
        """Looks at a call-back when it is named, as far as that can be done without asking for names. Says whether it
        has to show that it is one. NotAllowed if it may not be called."""
        host, port = _place(URL(callback))
        found = _numeric("127.0.0.1" if f".{host}".endswith(".localhost") else host)
        if found is None:
            if (host, port) in self.own:
                raise NotAllowed
            return False
        if not self.may(found, port):
            raise NotAllowed
        return found.is_loopback and not self._allowed(found)

    def refused(self, callbacks: Iterable[str]) -> list[str]:
        """Those that `check` refuses."""
        found: list[str] = []
        for callback in callbacks:
            try:
                self.check(callback)
            except NotAllowed:
                found.append(callback)
        return found

    def may(self, address: Address, port: int) -> bool:
        """Says whether the bus may connect to that address for a call-back."""
        address = _meant(address)
        if self._allowed(address):
            return True
        if (str(address), port) in self.own:
            return False
        return (self.trial and address.is_loopback) or (_of_the_internet(address) and not _of_this_machine(address))

    def _allowed(self, address: Address) -> bool:
        return any(address.version == each.version and address in each for each in self.allow)

    @property
    def sockets(self) -> Callable[[Any], socket.socket]:
        """Makes the sockets of an HTTP client, for addresses that may be called only."""
        return partial(_socket, self)


def _socket(places: Places, info: tuple[Any, Any, int, str, tuple[Any, ...]]) -> socket.socket:
    family, kind, protocol, _, place = info
    try:
        allowed = places.may(ip_address(place[0].partition("%")[0]), place[1])
    except ValueError:  # a form that the system takes for an address and we do not
        allowed = False
    if not allowed:
        raise NotAllowed
    return socket.socket(family, kind, protocol)


def _place(url: URL) -> tuple[str, int]:
    """Host and port, as one place is always written: names in small letters and as DNS has them, without the dot that
    may end them; an address of IPv4 as such, however it is written."""
    host = (url.raw_host or "").rstrip(".")
    address = _numeric(host)
    return host if address is None else str(address), url.port or 0


def _numeric(host: str) -> Address | None:
    """The address that a host is, also in forms such as `127.1`; None: it is a name."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return None
    return _meant(ip_address(str(found[0][4][0]).partition("%")[0]))


def _meant(address: Address) -> Address:
    """The address of IPv4 that one of IPv6 leads to."""
    if isinstance(address, IPv6Address):
        if address in _TRANSLATED:
            return IPv4Address(int(address) & 0xFFFFFFFF)
        return address.ipv4_mapped or address.sixtofour or address
    return address


def _of_the_internet(address: Address) -> bool:
    if isinstance(address, IPv6Address) and address not in _INTERNET:  # such as 64:ff9b:1::/48, which leads inside
        return False
    return address.is_global and not address.is_multicast


def _of_this_machine(address: Address) -> bool:
    """Says whether the system would speak to that address from itself. Nothing is sent."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            waits.LISTEN(probe).connect((str(address), _DISCARD))
        except OSError:
            return False  # there is no way to it
        return ip_address(probe.getsockname()[0]) == address
