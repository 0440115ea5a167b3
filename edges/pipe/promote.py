"""Makes a replica the primary: fences the others that can be reached, has the replica read what they have, promotes it.

docs/pipe.md says what is promised when some cannot be reached.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from edges.pipe.reader import Reader
from onceway.errors import ConnectionFailed

ANSWER_S: Final = 5.0
PROMOTE_S: Final = 120.0  # it may have to read the whole pipe from another store


async def promote(topic: str, store: str, places: Mapping[str, str], say: Callable[[str], None]) -> int:
    """Promotes `store`; returns the new epoch.

    Args:
        topic: The pipe.
        store: The name of the store that becomes the primary.
        places: URLs of all stores, by name.
        say: Told what happens, in lines.

    Raises:
        ConnectionFailed: The store cannot be reached.
        OncewayError: It refuses.
    """
    epoch, _ = await _ask(topic, places[store])
    others: list[str] = []
    for name in sorted(set(places) - {store}):
        try:
            known, _ = await _ask(topic, places[name])
        except ConnectionFailed as error:
            say(f"[{name}] not reached: {error}")
            continue
        epoch = max(epoch, known)
        others.append(name)
    epoch += 1
    end = 0
    for name in others:
        end = max(end, (await _ask(topic, places[name], f"fence {epoch}"))[1])
        say(f"[{name}] takes nothing of an epoch before {epoch}")
    await _ask(topic, places[store], f"promote {epoch} {end}", PROMOTE_S)
    say(f"[{store}] primary of {topic}, epoch {epoch}")
    return epoch


async def _ask(topic: str, url: str, command: str | None = None, timeout_s: float = ANSWER_S) -> tuple[int, int]:
    """(fence, end of the pipe) of a store, once it has followed the command."""
    async with Reader(topic, stores=url, start="end", command=command, timeout_s=timeout_s) as reader:
        return reader.fence, reader.end
