"""Connections of strangers, and which of them goes where there are too many."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Crowd(Generic[T]):
    """Those who have not shown that they may be here, each with the network that it has come from."""

    __slots__ = ("_in_order", "_networks")

    def __init__(self) -> None:
        self._networks: dict[T, str] = {}
        self._in_order: dict[str, dict[T, None]] = {}  # of a network, in arrival order

    def __len__(self) -> int:
        return len(self._networks)

    def __iter__(self) -> Iterator[T]:
        return iter(self._networks)

    def add(self, one: T, address: str) -> None:
        """It has come from this host:port."""
        network = network_of(address)
        self._networks[one] = network
        self._in_order.setdefault(network, {})[one] = None

    def remove(self, one: T) -> None:
        """It has gone, or has shown who it is; it need not be there."""
        network = self._networks.pop(one, None)
        if network is not None:
            others = self._in_order[network]
            del others[one]
            if not others:
                del self._in_order[network]

    @property
    def next_to_go(self) -> T:
        """Of the network that has most, so that no flood drops who comes from elsewhere, the oldest: handshakes are
        short, and in a flood the newest are the most likely to complete. There must be one."""
        most = max(self._in_order, key=lambda network: len(self._in_order[network]))
        return next(iter(self._in_order[most]))


def network_of(address: str) -> str:
    """The host of host:port; of IPv6 the /64, which one customer has as a whole."""
    host = address.rpartition(":")[0]
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return host
    if ip.version == 4:
        return host
    mapped = ip.ipv4_mapped
    return str(mapped) if mapped is not None else str(ipaddress.ip_network((ip, 64), strict=False))
