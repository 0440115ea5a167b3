"""The topic filters of one session, and what of an address they let through (MQTT 5, 4.7, 3.8.3.1).

A message that several filters match is sent once, with the highest of their QoS and all of their subscription
identifiers (3.3.4 leaves the choice). Read `router.mqtt.subscriber` next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from mqtt import Subscription, matches
from mqtt.topics import is_shared
from router.core.ports import Outcome, Unwanted
from router.mqtt.conversion import Unfit

if TYPE_CHECKING:
    from router.mqtt.messages import Messages

KEPT: Final = 1_024  # topic names whose answer is kept


@dataclass(frozen=True, slots=True)
class Filter:
    """One subscription of the session."""

    options: Subscription
    identifier: int = 0  # of the subscription; 0: none
    addresses: tuple[str, ...] = ()


class Match(NamedTuple):
    """How a session gets the messages of one topic name."""

    qos: int
    identifiers: tuple[int, ...]
    keeps_retain: bool


class Filters:
    """One session's."""

    __slots__ = ("_matches", "_shared", "by_text")

    def __init__(self) -> None:
        self.by_text: dict[str, Filter] = {}
        self._matches: dict[tuple[str, bool], Match | None] = {}
        self._shared: dict[str, Match | None] = {}

    def add(self, one: Filter) -> bool:
        """Enters a filter, in place of one with the same text. Returns whether there was one."""
        known = self.by_text.pop(one.options.topic_filter, None)
        self.by_text[one.options.topic_filter] = one
        self._matches.clear()
        self._shared.clear()
        return known is not None

    def remove(self, text: str) -> Filter | None:
        """Removes a filter and returns it; None: there is no such one."""
        self._matches.clear()
        self._shared.clear()
        return self.by_text.pop(text, None)

    def addresses(self, texts: Iterable[str] | None = None) -> set[str]:
        """Returns the addresses that these filters need, by default all."""
        filters = self.by_text.values() if texts is None else [self.by_text[t] for t in texts if t in self.by_text]
        return {address for one in filters for address in one.addresses}

    def match(self, topic: str, own: bool) -> Match | None:
        """Returns how the session gets a message; None: it does not. own: the session itself has published it."""
        key = topic, own
        if key in self._matches:
            return self._matches[key]
        found = _joined(
            one
            for text, one in self.by_text.items()
            if not (own and one.options.no_local) and not is_shared(text) and matches(text, topic)
        )
        if len(self._matches) >= KEPT:
            self._matches.clear()
        self._matches[key] = found
        return found

    def shared(self, queue: str) -> Match | None:
        """Returns how the session gets the messages of a shared subscription; None: it is no member."""
        if queue not in self._shared:
            self._shared[queue] = _joined(one for one in self.by_text.values() if queue in one.addresses)
        return self._shared[queue]


def _joined(found: Iterable[Filter]) -> Match | None:
    filters = list(found)
    if not filters:
        return None
    identifiers = dict.fromkeys(one.identifier for one in filters if one.identifier)
    return Match(
        max(one.options.qos for one in filters),
        tuple(identifiers),
        any(one.options.retain_as_published for one in filters),
    )


class Wanted:
    """What a session gets of one address: the core's Selection. Filters may change; what was judged stays so."""

    __slots__ = ("_address", "_filters", "_messages")

    def __init__(self, filters: Filters, messages: Messages, address: str) -> None:
        self._filters = filters
        self._messages = messages
        self._address = address

    def unwanted(self, payloads: Sequence[bytes], message_format: int) -> list[Unwanted]:
        """Implements `Selection`. What MQTT has no form for counts as rejected."""
        read, match, address = self._messages.read, self._filters.match, self._address
        found: list[Unwanted] = []
        for i, payload in enumerate(payloads):
            message = read(payload, message_format, address)
            if isinstance(message, Unfit):
                found.append((i, i + 1, Outcome.REJECTED))
            elif match(message.publish.topic, False) is None:
                found.append((i, i + 1, Outcome.ACCEPTED))
        return found
