"""How publishers and deliveries are named everywhere, and what is below or above every name of theirs (protocol 1)."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from router.core.ports import Term

NO_TERM: Final[Term] = (0, "")
"""Below every term: of a publisher that is known by a tag only (protocol 7.2)."""
INCARNATIONS: Final = 1 << 63
"""Incarnations and the numbers of terms are below that, whoever chose them (protocol 1.4)."""

LONG_TAG: Final = 16
PREFIX: Final = 16
"""An outgoing tag begins with the publisher id (8 bytes) and the incarnation (8 bytes)."""


def derive_publisher_id(container: str, name: str, address: str, unique_tags: bool) -> bytes:
    """Returns the 8 bytes that name a publisher everywhere: BLAKE2b of its name, joined by zero bytes
    (protocol 1.2)."""
    name_parts = (container, name, address, "unique" if unique_tags else "")
    return blake2b("\0".join(name_parts).encode(), digest_size=8).digest()


def tag_prefix(publisher_id: bytes, incarnation: int) -> bytes:
    return publisher_id + incarnation.to_bytes(8, "big")


def outgoing_tags(prefix: bytes, tags: list[bytes]) -> list[bytes]:
    """Returns the tags that subscribers see: at most 32 bytes, the same at every router (protocol 1.7)."""
    if len(tags) == 1 and len(tags[0]) <= LONG_TAG:
        return [prefix + tags[0]]
    if max(map(len, tags), default=0) > LONG_TAG:
        tags = [t if len(t) <= LONG_TAG else blake2b(t, digest_size=16).digest() for t in tags]
    return list(map(prefix.__add__, tags))


def refused_epoch(term: Term, incarnation: int) -> int:
    """Returns what the next epoch of a refused publisher must exceed (protocol 5.3): an incarnation began as one of its
    epochs, or was brought without one."""
    return max(term[0], incarnation)


def incarnation_of(tag: bytes) -> int:
    return int.from_bytes(tag[8:16], "big")
