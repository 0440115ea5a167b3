"""Unsettled maps as clients present them: in parts, by attaches with incomplete-unsettled, all with one epoch (protocol
7.7), and entered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Final, TypeVar, cast

from router.core.holding import ENTRY, Holding
from router.core.irregular import Entered, Irregular, Resume, State
from router.core.naming import PREFIX, derive_publisher_id
from router.core.ports import MapState, PublisherAttach, SubscriberAttach

Tag = bytes
Said = TypeVar("Said")

KEPT_S: Final = 60.0  # so long parts of a map are kept (protocol 7.7)


class MapParts:
    """The parts that have come, by client. Nothing is claimed, joined or inferred from them."""

    __slots__ = ("_due", "_holding", "_parts")

    def __init__(self, due: Callable[[float], None], holding: Holding) -> None:
        """due: told when `expire` is to be called."""
        self._due = due
        self._holding = holding
        self._parts: dict[Hashable, tuple[int, dict[Tag, object], float, str]] = {}

    def __bool__(self) -> bool:
        return bool(self._parts)

    def collect(
        self,
        key: Hashable,
        epoch: int | None,
        part: Mapping[Tag, Said] | None,
        incomplete: bool,
        now: float,
        user: str,
    ) -> Mapping[Tag, Said] | None:
        """Adds a part. The part without the flag gets all of the same epoch as one map. user: whose it is."""
        known = self._forget(key)
        whole: dict[Tag, Said] = {}
        if known is not None and known[0] == epoch:
            whole = cast("dict[Tag, Said]", known[1])
        elif not incomplete:
            return part
        whole.update(part or {})
        if incomplete:
            assert epoch is not None
            self._parts[key] = (epoch, cast("dict[Tag, object]", whole), now + KEPT_S, user)
            self._holding.count(user, ENTRY * len(whole))
            self._due(now + KEPT_S)
        return whole

    def later(self, key: Hashable, epoch: int) -> int | None:
        """Returns the epoch of the client's parts, where it is above this one.

        An attach that was delayed in a buffer must not replace the parts of a later attach: the last of these would
        then be taken for the whole map.
        """
        known = self._parts.get(key)
        return known[0] if known is not None and known[0] > epoch else None

    def expire(self, now: float) -> None:
        """Forgets the parts of clients that have not come back with the rest."""
        for key in [key for key, (_, _, until, _) in self._parts.items() if now >= until]:
            self._forget(key)

    def _forget(self, key: Hashable) -> tuple[int, dict[Tag, object], float, str] | None:
        known = self._parts.pop(key, None)
        if known is not None:
            self._holding.count(known[3], -ENTRY * len(known[1]))
        return known

    def entries(self) -> int:
        return sum(len(part) for _, part, _, _ in self._parts.values())

    def octets_by_user(self) -> Counter[str]:
        held: Counter[str] = Counter()
        for _, part, _, user in self._parts.values():
            held[user] += ENTRY * len(part)
        return held

    def entries_of(self, attach: PublisherAttach | SubscriberAttach) -> int:
        """Returns how many entries of its map have come before."""
        if not self._parts:
            return 0
        key: Hashable = (attach.address, attach.container, attach.name)
        if isinstance(attach, PublisherAttach):
            key = derive_publisher_id(attach.container, attach.name, attach.address, False)
        known = self._parts.get(key)
        return 0 if known is None else len(known[1])

    def deadlines(self) -> list[float]:
        return [until for _, _, until, _ in self._parts.values()]


def enter(presented: Iterable[tuple[bytes, MapState]], *, brought_epoch: bool, into: Entered) -> None:
    """Enters deliveries of a client's map, as accepted or as sent (protocol 7.2). There may be a million, in runs of
    one publisher, so this is done before the core is called, in parts."""
    released, rejected = MapState.RELEASED, MapState.REJECTED
    # protocol 7.6: its payload is missing, or may be incomplete
    missing = [MapState.RECEIVED] if brought_epoch else [MapState.RECEIVED, MapState.UNDECIDED]
    prefix = b""
    entered: dict[bytes, Irregular] = {}
    for tag, state in presented:
        # not a tag of ours; a released delivery is sent again as new
        if len(tag) < PREFIX or state is released:
            continue
        if tag[:PREFIX] != prefix:
            prefix = tag[:PREFIX]
            entered = into.setdefault(prefix, {})
        final = state is MapState.ACCEPTED or state is rejected
        delivery = entered[tag] = Irregular(tag, State.ACCEPTED if final else State.SENT)
        delivery.rejected = state is rejected
        delivery.from_map = True
        delivery.resume = Resume.PLACEHOLDER if state in missing else Resume.PLAIN
