"""Notices a delivery-tag that a publisher uses for two unsettled deliveries (AMQP 2.6.12).

Nearly all clients count, and a tag that is greater than all before it is no repeat. So nothing is kept until one comes
that is not; from then on the tags are in a set. It may have tags that are settled by now: a hit is looked at again.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from operator import lt
from typing import Final

from router.core.naming import outgoing_tags

ENOUGH: Final = 1_000  # tags beyond twice the unsettled ones, above which the settled ones are dropped


class UsedTags:
    """Those of one publisher's link without unique tags."""

    __slots__ = ("_greatest", "_limit", "_used")

    def __init__(self) -> None:
        self._greatest = (0, b"")
        self._used: set[bytes] | None = None
        self._limit = 0

    def find_repeat(self, tags: list[bytes], unsettled: Callable[[], list[bytes]]) -> bytes | None:
        """Notes these tags, which do not rise. Returns the first that is a repeat, None if there is none.

        unsettled: those of the unsettled deliveries, without these, as `Publisher.unsettled_tags` has them.
        """
        used = self._renew(unsettled()) if self._used is None else self._used
        tags = outgoing_tags(b"", tags)
        if not used.isdisjoint(tags) or len(set(tags)) < len(tags) or len(used) > self._limit:
            used = self._renew(unsettled())
            for tag in tags:
                if tag in used:
                    return tag
                used.add(tag)
            return None
        used.update(tags)
        return None

    def rise(self, tags: list[bytes]) -> bool:
        """Says whether each is greater than all before it, and notes them then."""
        if self._used is not None:
            return False
        greatest = self._greatest
        if len(tags) > 1 and len(set(map(len, tags))) == 1 and all(map(lt, tags, islice(tags, 1, None))):
            if (len(tags[0]), tags[0]) <= greatest:
                return False
            self._greatest = len(tags[0]), tags[-1]
            return True
        for tag in tags:
            key = len(tag), tag
            if key <= greatest:
                return False
            greatest = key
        self._greatest = greatest
        return True

    def _renew(self, unsettled: list[bytes]) -> set[bytes]:
        self._used = used = set(unsettled)
        self._limit = 2 * len(used) + ENOUGH
        return used
