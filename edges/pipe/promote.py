"""Makes a replica the primary: fences the others that can be reached, has the replica read what they have, promotes it.

docs/pipe.md says what is promised when some cannot be reached.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Unpack

from edges.pipe.messages import epoch_of, number_of
from edges.pipe.reader import Reader
from onceway.base.waits import PIPE_ASK, PIPE_PROMOTE
from onceway.client.credentials import Who
from onceway.errors import ConnectionFailed, OncewayError


async def promote(
    topic: str, store: str, places: Mapping[str, str], say: Callable[[str], None], **who: Unpack[Who]
) -> int:
    """Promotes `store`; returns the new epoch.

    Args:
        topic: The pipe.
        store: The name of the store that becomes the primary.
        places: URLs of all stores, by name.
        say: Told what happens, in lines.
        who: What stores are shown, as of `onceway.connect`: the pipe's user, or one who may act.

    Raises:
        ConnectionFailed: The store cannot be reached.
        OncewayError: It refuses.
    """
    known = {store: await _ask(topic, places[store], who, "may-lead")}
    for name in sorted(set(places) - {store}):
        try:
            known[name] = await _ask(topic, places[name], who)
        except ConnectionFailed as error:
            say(f"[{name}] not reached: {error}")
    if not any(each.epoch for each in known.values()):
        raise OncewayError(f"no store that can be reached has all of {topic}; start one that has")
    number = 1 + max(number_of(each.fence) for each in known.values())
    epoch = epoch_of(number, store)
    best, source = (known[store].epoch, known[store].end), ""
    for name in sorted(set(known) - {store}):
        other = await _ask(topic, places[name], who, f"fence {epoch}")
        if other.epoch and (other.epoch, other.end) > best:
            best, source = (other.epoch, other.end), f" {name} {other.end}"
        say(f"[{name}] takes nothing of an epoch before {number}")
    await _ask(topic, places[store], who, f"promote {epoch}{source}", PIPE_PROMOTE.s)
    say(f"[{store}] primary of {topic}, epoch {number}")
    return number


async def _ask(topic: str, url: str, who: Who, command: str | None = None, timeout_s: float | None = None) -> Reader:
    """What a store knows once it has followed the command."""
    timeout_s = timeout_s or PIPE_ASK.s
    async with Reader(topic, stores=url, start="end", command=command, timeout_s=timeout_s, **who) as reader:
        return reader
