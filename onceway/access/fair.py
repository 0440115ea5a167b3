"""A queue that addresses share: each is served in its turn, however much others have put in."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

from router.links.crowd import network_of

T = TypeVar("T")


class ByAddress(Generic[T]):
    """Items wait by the network that they came from, each once, and are taken round robin. Behind one address they are
    taken in the order in which they came."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, dict[T, None]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def put(self, address: str, item: T) -> None:
        """address: host:port of who has brought it."""
        self._waiting.setdefault(network_of(address), {})[item] = None

    def take(self) -> T:
        """The next one; there must be one."""
        network, items = self._waiting.popitem(last=False)
        item = next(iter(items))
        del items[item]
        if items:
            self._waiting[network] = items
        return item

    def remove(self, address: str, item: T) -> None:
        """It need not be there."""
        network = network_of(address)
        items = self._waiting.get(network)
        if items is not None and item in items:
            del items[item]
            if not items:
                del self._waiting[network]
