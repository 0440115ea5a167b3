"""The topic filters of sessions, and what of an address they let through (MQTT 5, 4.7, 3.8.3.1).

A message that several filters match is sent once, with the highest of their QoS and all of their subscription
identifiers (3.3.4 leaves the choice). One tree has the filters of all sessions of a router, so a topic name costs the
same however many there are that do not match it. Read `router.mqtt.subscriber` next.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from mqtt import Subscription, TopicTree
from mqtt.topics import is_shared
from router.core.ports import Needs, Outcome, Refusal, Unwanted
from router.json_text import write_json
from router.mqtt.holding import octets_of_filter
from router.mqtt.remembered import Remembered

if TYPE_CHECKING:
    from router.mqtt.messages import Messages


class Filter:
    """One subscription of a session. form: what other routers are told of it."""

    __slots__ = ("addresses", "form", "identifier", "options", "sees")

    def __init__(self, options: Subscription, identifier: int = 0, addresses: tuple[str, ...] = ()) -> None:
        self.options = options
        self.identifier = identifier  # of the subscription; 0: none
        self.addresses = addresses
        self.sees = 0  # how many messages had been entered as retained when it was subscribed, if it gets these
        o = options
        listed = [o.topic_filter, o.qos, o.no_local, o.retain_as_published, o.retain_handling, identifier]
        self.form = write_json(listed, compact=True, ascii_only=False).encode()


class Match(NamedTuple):
    """How a session gets the messages of one topic name."""

    qos: int
    identifiers: tuple[int, ...]
    keeps_retain: bool


Matches = tuple[Match, Match | None]
"""Of one session: of others' messages, and of its own (No Local)."""
MATCH_OCTETS: Final = 200  # that one session's takes where it is remembered


class FilterIndex:
    """The filters of all sessions of a router, but those of shared subscriptions.

    Attributes:
        remembered: Which sessions get the messages of a topic name, until a filter changes.
    """

    __slots__ = ("_tree", "remembered")

    def __init__(self, room: int) -> None:
        self._tree: TopicTree[dict[Filters, Filter]] = TopicTree()
        self.remembered: Remembered[str, dict[Filters, Matches]] = Remembered(room)

    @property
    def steps(self) -> int:
        """How many nodes of the tree have been looked at."""
        return self._tree.steps

    def add(self, session: Filters, one: Filter) -> None:
        text = one.options.topic_filter
        known = self._tree.get(text)
        if known is None:
            self._tree.put(text, {session: one})
        else:
            known[session] = one
        self.remembered.clear()

    def remove(self, session: Filters, text: str) -> None:
        known = self._tree.get(text)
        if known is not None and known.pop(session, None) is not None and not known:
            self._tree.pop(text)
        self.remembered.clear()

    def look_up(self, topic: str) -> dict[Filters, Matches]:
        """Finds which sessions get the messages of a topic name, and remembers it."""
        by_session: dict[Filters, list[Filter]] = {}
        for node in self._tree.matching(topic):
            for session, one in node.items():
                by_session.setdefault(session, []).append(one)
        found: dict[Filters, Matches] = {}
        for session, filters in by_session.items():
            match = _joined(filters)
            own = _joined([one for one in filters if not one.options.no_local])
            assert match is not None
            found[session] = match, own
        self.remembered.keep(topic, found, len(topic) + MATCH_OCTETS * len(found))
        return found

    def of_session(self, session: Filters, topic: str) -> Iterable[Filter]:
        return [node[session] for node in self._tree.matching(topic) if session in node]


class Filters:
    """One session's. named: what it publishes has this for its publisher (No Local)."""

    __slots__ = ("_by_address", "_index", "_octets", "_shared", "by_text", "named", "octets")

    def __init__(self, index: FilterIndex, named: str) -> None:
        self.named = named
        self.by_text: dict[str, Filter] = {}
        self.octets = 0  # of all, as `router.mqtt.holding` has it
        self._index = index
        self._by_address: dict[str, dict[str, Filter]] = {}
        self._octets: dict[str, int] = {}  # of the forms, by address
        self._shared: dict[str, Match | None] = {}  # of the addresses above

    def add(self, one: Filter) -> bool:
        """Enters a filter, in place of one with the same text. Returns whether there was one."""
        text = one.options.topic_filter
        # nothing is called between the first change and the last: where a call fails, `clear` finds what is entered
        octets, form, shared = octets_of_filter(one), len(one.form) + 1, is_shared(text)
        known = self.remove(text)
        self.by_text[text] = one
        self.octets += octets
        for address in one.addresses:
            self._by_address.setdefault(address, {})[text] = one
            self._octets[address] = self._octets.get(address, 0) + form
            self._shared.pop(address, None)
        if not shared:
            self._index.add(self, one)
        return known is not None

    def remove(self, text: str) -> Filter | None:
        """Removes a filter and returns it; None: there is no such one."""
        known = self.by_text.pop(text, None)
        if known is None:
            return None
        self.octets -= octets_of_filter(known)
        for address in known.addresses:
            of_address = self._by_address[address]
            del of_address[text]
            self._octets[address] -= len(known.form) + 1
            self._shared.pop(address, None)
            if not of_address:
                del self._by_address[address], self._octets[address]
        if not is_shared(text):
            self._index.remove(self, text)
        return known

    def clear(self) -> None:
        """The session is over."""
        for text in list(self.by_text):
            self.remove(text)

    def addresses(self, texts: Iterable[str] | None = None) -> set[str]:
        """Returns the addresses that these filters need, by default all."""
        if texts is None:
            return set(self._by_address)
        filters = [self.by_text[t] for t in texts if t in self.by_text]
        return {address for one in filters for address in one.addresses}

    def needs(self, address: str) -> bool:
        return address in self._by_address

    def of(self, address: str) -> Iterable[Filter]:
        """Returns the filters that need this address."""
        return self._by_address.get(address, {}).values()

    def octets_with(self, one: Filter, address: str) -> int:
        """Returns how many octets the forms of an address would have with one more filter."""
        known = self._by_address.get(address, {}).get(one.options.topic_filter)
        return self._octets.get(address, 0) + len(one.form) + 1 - (len(known.form) + 1 if known is not None else 0)

    def match(self, topic: str, own: bool) -> Match | None:
        """Returns how the session gets a message; None: it does not. own: the session itself has published it."""
        found = self._index.remembered.answers.get(topic)
        if found is None:
            found = self._index.look_up(topic)
        matches = found.get(self)
        return None if matches is None else matches[1] if own else matches[0]

    def matching(self, topic: str) -> Iterable[Filter]:
        """Returns the filters that match a topic name, but those of shared subscriptions."""
        return self._index.of_session(self, topic)

    def shared(self, queue: str) -> Match | None:
        """Returns how the session gets the messages of a shared subscription; None: it is no member."""
        if queue not in self._shared and queue in self._by_address:
            self._shared[queue] = _joined(self._by_address[queue].values())
        return self._shared.get(queue)


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

    __slots__ = ("_address", "_filters", "_messages", "needs")

    def __init__(self, filters: Filters, messages: Messages, address: str) -> None:
        self.needs: Needs | None = None
        self._filters = filters
        self._messages = messages
        self._address = address

    def places(self, payloads: Sequence[bytes], names: Container[str]) -> None:
        """Implements `Selection`: nobody here needs a value."""

    def unwanted(self, payloads: Sequence[bytes], message_format: int) -> list[Unwanted]:
        """Implements `Selection`. What MQTT has no form for counts as rejected."""
        read, match, address = self._messages.read, self._filters.match, self._address
        found: list[Unwanted] = []
        for i, payload in enumerate(payloads):
            message = read(payload, message_format, address)
            if isinstance(message, Refusal):
                found.append((i, i + 1, message))
            elif match(message.publish.topic, False) is None:
                found.append((i, i + 1, Outcome.ACCEPTED))
        return found
