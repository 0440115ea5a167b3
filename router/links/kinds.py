"""What the messages of a queue say of who gets them and when: their group, their priority (protocol 16.9, 16.10)."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

from amqp10.errors import DecodeError
from amqp10.sections import Glance, group_id
from router.core.queue.free import GROUPS, PLAIN, PRIORITY, Kind


def kinds_of(payloads: list[bytes], priority: bool) -> dict[int, Kind]:
    """Returns the kinds of those messages that are not plain, by index. priority: whether theirs counts. What cannot be
    read is plain. Messages of one publisher often begin alike, and are then compared at once."""
    found: dict[int, Kind] = {}
    begins, kind = b"", PLAIN  # of the last one that was read: up to where it says its kind
    for i, payload in enumerate(payloads):
        if not (begins and payload.startswith(begins)):
            begins, kind = _read(payload, priority)
        if kind is not PLAIN:
            found[i] = kind
    return found


def _read(payload: bytes, priority: bool) -> tuple[bytes, Kind]:
    try:
        group, n = group_id(payload)
        level = Glance(payload).header.priority if priority else PRIORITY
    except DecodeError:
        return b"", PLAIN
    if group is None and level == PRIORITY:
        return payload[:n], PLAIN
    return payload[:n], Kind(level, None if group is None else number_of(group))


@lru_cache(4096)
def number_of(group: str) -> int:
    """Returns the number of the group: many groups share one."""
    return int.from_bytes(blake2b(group.encode(), digest_size=2).digest(), "big") % GROUPS
