"""Input that has ended a router is refused for a minute, here and at the routers that are told of it (protocol 3.4.6).

A suspect is known by a digest of the octets, and by who has sent them: the user, or the host where nobody says who they
are. The same input is refused, whoever sends it; and as it is seldom the same to the octet, so is all that the same
sender sends. Nobody chooses what another one is known by: neither does a container-id count, nor a user who has not
been let in.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final, NamedTuple

from router.policies import ANONYMOUS

REFUSED_S: Final = 60.0
MOST: Final = 100  # that are remembered; of more the latest
DIGEST: Final = 16  # octets


class Suspect(NamedTuple):
    """digest: of the octets; empty: they were none. sender: as of `sender_of`."""

    digest: bytes
    sender: str


def digest_of(octets: bytes) -> bytes:
    return blake2b(octets, digest_size=DIGEST).digest()


def sender_of(user: str | None, address: str) -> str:
    """user: None before it has come in. address: host:port."""
    return f"user {user}" if user is not None and user != ANONYMOUS else f"host {address.rpartition(':')[0]}"


class Suspects:
    """Those of one router.

    Attributes:
        until: When each is forgotten.
        refused: How often one was refused.
    """

    __slots__ = ("_own", "refused", "until")

    def __init__(self) -> None:
        self.until: dict[Suspect, float] = {}
        self.refused = 0
        self._own: Suspect | None = None  # what has ended this router's last life

    def add_own(self, suspect: Suspect, now: float) -> None:
        """This one has ended this router's last life."""
        self._own = suspect
        self.add(suspect, now + REFUSED_S)

    def own(self, now: float) -> tuple[Suspect, float] | None:
        """Returns what others are told of, and for how long."""
        left_s = self.until.get(self._own, 0.0) - now if self._own is not None else 0.0
        return (self._own, left_s) if self._own is not None and left_s > 0 else None

    def add(self, suspect: Suspect, until: float) -> None:
        self.until.pop(suspect, None)
        if len(self.until) >= MOST:
            del self.until[next(iter(self.until))]
        self.until[suspect] = until

    def refuses(self, given: object, user: str | None, address: str, now: float) -> bool:
        """Says whether this input is refused. given: what is to be handled; octets have a digest."""
        for suspect in [each for each, until in self.until.items() if until <= now]:
            del self.until[suspect]
        if not self.until:
            return False
        sender = sender_of(user, address)
        digest = digest_of(given) if isinstance(given, bytes) else None
        refused = any(sender == each.sender or digest == each.digest for each in self.until)
        self.refused += refused
        return refused
