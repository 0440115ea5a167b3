"""Topic names, or topic filters, by their levels: the filters that match a name, the names that a filter matches.

One structure serves both directions of MQTT 5, 4.7. What a search costs grows with the levels asked for and with what
is found on the way, not with all that the tree holds. It knows no `$share`; `topics.matches` says the same of one pair.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Generic, TypeVar

from mqtt.topics import MOST_LEVELS

V = TypeVar("V")
_NOTHING: Final[dict[str, Any]] = {}


class Node:
    """A level. value: of what ends here; None: nothing does."""

    __slots__ = ("below", "value")

    def __init__(self) -> None:
        self.below: dict[str, Node] = _NOTHING  # made for the first child: most nodes are leaves
        self.value: Any = None


class TopicTree(Generic[V]):
    """A mapping of topic names, or of topic filters, to values other than None.

    Attributes:
        steps: Nodes that searches have looked at: what tests count in place of time.
    """

    __slots__ = ("_root", "steps")

    def __init__(self) -> None:
        self._root = Node()
        self.steps = 0

    def get(self, text: str) -> V | None:
        """Return the value of this very text, or None."""
        node = self._root
        for level in _levels(text):
            found = node.below.get(level)
            if found is None:
                return None
            node = found
        value: V | None = node.value
        return value

    def put(self, text: str, value: V) -> None:
        """Enter a text, or give it another value."""
        node = self._root
        for level in _levels(text):
            below = node.below.get(level)
            if below is None:
                if node.below is _NOTHING:
                    node.below = {}
                below = node.below[level] = Node()
            node = below
        node.value = value

    def pop(self, text: str) -> V | None:
        """Remove a text, with the levels that nothing else needs; return its value, or None."""
        path: list[tuple[Node, str]] = []
        node = self._root
        for level in _levels(text):
            path.append((node, level))
            found = node.below.get(level)
            if found is None:
                return None
            node = found
        value: V | None = node.value
        node.value = None
        for above, level in reversed(path):
            if node.value is not None or node.below:
                break
            del above.below[level]
            if not above.below:
                above.below = _NOTHING
            node = above
        return value

    def matching(self, name: str) -> list[V]:
        """Return the values of the filters that match a topic name."""
        found: list[V] = []
        nodes = [self._root]
        wild = name[:1] != "$"  # [MQTT-4.7.2-1]: no wildcard in the first level
        for level in _levels(name):
            following: list[Node] = []
            for node in nodes:
                below = node.below
                if not below:
                    continue
                one = below.get(level)
                if one is not None:
                    following.append(one)
                if wild:
                    one = below.get("+")
                    if one is not None:
                        following.append(one)
                    one = below.get("#")
                    if one is not None:
                        found.append(one.value)
            self.steps += len(nodes)
            if not following:
                return found
            nodes = following
            wild = True
        for node in nodes:
            if node.value is not None:
                found.append(node.value)
            one = node.below.get("#")  # "a/#" matches "a" too
            if one is not None:
                found.append(one.value)
        return found

    def matched(self, topic_filter: str) -> Iterator[V | None]:
        """Yield the values of the topic names that a filter matches, and None for a step that finds none.

        It may be left and gone on with. What is entered or removed meanwhile may be missed or found.
        """
        levels = _levels(topic_filter)
        stack: list[tuple[Node, int]] = [(self._root, 0)]
        last = len(levels) - 1
        while stack:
            node, at = stack.pop()
            self.steps += 1
            if at > last:
                yield node.value
                continue
            level = levels[at]
            if level in ("+", "#"):
                following = at if level == "#" else at + 1  # "#" goes on below, and matches its parent
                for text, one in reversed(node.below.items()):  # so that they are found in the order of entering
                    if node is not self._root or text[:1] != "$":  # [MQTT-4.7.2-1]
                        stack.append((one, following))
                yield node.value if level == "#" else None
                continue
            found = node.below.get(level)
            if found is not None:
                stack.append((found, at + 1))
            yield None


def _levels(text: str) -> list[str]:
    """What is behind the last level that a filter may have is one more, of names: no filter looks into it."""
    return text.split("/", MOST_LEVELS)
