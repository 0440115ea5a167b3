"""Which address a topic name belongs to, and which addresses a topic filter needs (docs/mqtt.md).

A prefix is made of whole levels: `a/b` is a prefix of `a/b` and `a/b/c`, and not of `a/bc`. The longest one wins. `#`
stands for the names without any. A shared subscription is a queue, which gets all of the topic names that its filter
matches (`router.mqtt.sharing`). It knows no session and no QoS. Read `router.mqtt.conversion` next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mqtt import matches, name_fault
from mqtt.topics import MOST_LEVELS, SHARE
from router.config import SHARED
from router.mqtt.remembered import Remembered

DEFAULT: Final = "#"
LONGEST: Final = 1_024  # octets of an address


class TopicMap:
    """The mapping of one router. `prefixes`: prefix or `#` -> address. `shared`: GROUP/FILTER -> queue, where the file
    names it. `retained`: the address of the retained messages, or none."""

    __slots__ = (
        "_by_levels",
        "_deepest",
        "_found",
        "_names",
        "addresses",
        "prefixes",
        "named",
        "retained",
        "shared",
    )

    def __init__(
        self,
        prefixes: Mapping[str, str],
        shared: Mapping[str, str] | None = None,
        retained: str = "",
        room: int = 1 << 20,
    ) -> None:
        """room: octets of topic names whose address is remembered."""
        assert all(prefix == DEFAULT or name_fault(prefix) is None for prefix in prefixes)
        self._by_levels: dict[tuple[str, ...], str] = {
            () if prefix == DEFAULT else tuple(prefix.split("/")): address for prefix, address in prefixes.items()
        }
        self.prefixes = dict(prefixes)
        self._names: dict[str, str] = {}
        for prefix, address in prefixes.items():
            self._names.setdefault(address, address if prefix == DEFAULT else prefix)
        self.shared = {SHARE + text: queue for text, queue in (shared or {}).items()}
        self.named = {queue: text.partition("/")[2] for text, queue in (shared or {}).items()}  # queue -> filter
        self.retained = retained
        self.addresses = (*self._names, retained) if retained else tuple(self._names)
        self._deepest = max(map(len, self._by_levels), default=0)
        self._found: Remembered[str, str] = Remembered(room)  # "": there is none

    @property
    def octets(self) -> int:
        """What is remembered of topic names."""
        return self._found.octets

    def name_of(self, address: str) -> str:
        """Returns the topic name of messages of this address that say none: its first prefix, or the address itself
        where that is `#`. Of a queue: its filter, or where that has a wildcard the queue itself; and where that has it
        as well, the name of the first of its topics which the filter matches."""
        topic_filter = self.filter_of(address)
        if topic_filter is not None:
            for own in (topic_filter, address):
                if name_fault(own) is None:
                    return own
            names = map(self.name_of, self.topics_of(address))
            return next((name for name in names if matches(topic_filter, name)), address)
        return self._names.get(address, address)

    def address_of(self, name: str) -> str | None:
        """Returns the address of a topic name; None where no prefix has one."""
        found = self._found.answers.get(name)
        if found is None:
            found = self._look_up(name) or ""
            self._found.keep(name, found, len(name))
        return found or None

    def filter_of(self, queue: str) -> str | None:
        """Returns the filter of a shared subscription; None: the address is none."""
        if queue.startswith(SHARED):
            return queue.removeprefix(SHARED).partition("/")[2]
        return self.named.get(queue)

    def topics_of(self, queue: str) -> list[str]:
        """Returns the addresses of all names that the filter of a shared subscription matches."""
        topic_filter = self.filter_of(queue)
        return [] if topic_filter is None else self.addresses_of(topic_filter)

    def has(self, address: str, name: str) -> bool:
        """Says whether messages of this address may have this topic name."""
        topic_filter = self.filter_of(address)
        return self.address_of(name) == address if topic_filter is None else matches(topic_filter, name)

    def _look_up(self, name: str) -> str | None:
        levels = tuple(name.split("/", self._deepest))  # what is deeper tells nothing
        for count in range(min(len(levels), self._deepest), -1, -1):
            address = self._by_levels.get(levels[:count])
            if address is not None:
                return address
        return None

    def addresses_of(self, topic_filter: str) -> list[str]:
        """Returns the addresses of all names that a filter matches, each once; none: there is no such name. Of a
        shared subscription it is the queue."""
        if topic_filter.startswith(SHARE):
            queue = self.shared.get(topic_filter) or SHARED + topic_filter.removeprefix(SHARE)
            return [queue] if self.topics_of(queue) and len(queue.encode()) <= LONGEST else []
        levels = tuple(topic_filter.split("/", MOST_LEVELS))
        if len(levels) > MOST_LEVELS:
            return []
        prefixes = [prefix for prefix in self._by_levels if _meet(levels, prefix)]
        found = {
            self._by_levels[prefix]: None
            for prefix in prefixes
            if not any(_hides(levels, longer, prefix) for longer in prefixes)
        }
        return list(found)


def _meet(levels: tuple[str, ...], prefix: tuple[str, ...]) -> bool:
    """Whether the filter matches a name with this prefix."""
    if prefix and prefix[0].startswith("$") and levels[0] in ("+", "#"):  # [MQTT-4.7.2-1]
        return False
    for i, level in enumerate(prefix):
        if i == len(levels):
            return False
        if levels[i] == "#":
            return True
        if levels[i] not in ("+", level):
            return False
    return True


def _hides(levels: tuple[str, ...], longer: tuple[str, ...], prefix: tuple[str, ...]) -> bool:
    """Whether all names of the filter with this prefix have the longer one. A wildcard leaves a level open, and no
    number of prefixes has all that it may be; so one prefix hides another alone or not at all."""
    start, end = len(prefix), len(longer)
    return end > start and longer[:start] == prefix and levels[start:end] == longer[start:]
