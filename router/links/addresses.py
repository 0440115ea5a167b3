"""Which address a client of AMQP means by what it says (protocol 1.13). Clients of MQTT do not come here."""

from __future__ import annotations

from router.config import RouterConfig
from router.core.core import Core
from router.core.naming import derive_publisher_id
from router.core.ports import Term
from router.versions import STRIPS


class Names:
    """One router's, as its file is now."""

    __slots__ = ("_config", "_core")

    def __init__(self, core: Core, config: RouterConfig) -> None:
        self._core = core
        self._config = config

    def meant(self, said: str, container: str = "", link: str | None = None, sends: bool = True) -> str:
        """Returns the address. link: of the attach that says it, a publisher's if it sends; None: a message does."""
        left = self._config.left_of(said)
        if left == said:
            return said
        if link is not None:
            known = self._term(container, link, said, sends)
            known_as_left = self._term(container, link, left, sends)
            if known is not None or known_as_left is not None:
                return said if known is not None and (known_as_left is None or known > known_as_left) else left
        return said if self._beside_others() else left

    def _term(self, container: str, link: str, address: str, sends: bool) -> Term | None:
        """Returns the term under which the directory has this client there."""
        found = self._core.addresses.get(address)
        if found is None:
            return None
        if not sends:
            entry = found.known_subscriptions.get((container, link))
            return None if entry is None else entry.term
        ids = [derive_publisher_id(container, link, address, unique) for unique in (False, True)]
        known = found.known_publishers
        return max([known[each].term for each in ids if each in known], default=None)

    def _beside_others(self) -> bool:
        """Says whether a router in session takes addresses as they are said."""
        return any(version < STRIPS for version in self._core.members.speaks.values())
