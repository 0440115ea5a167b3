"""The local cache of a member: what is in the queue as far as it knows, and what has been dequeued.

Both protocols stand on it. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from edges.queue.messages import Element, ElementId


class Elements:
    """The elements that a member holds, oldest first, and the names of all that were dequeued."""

    def __init__(self) -> None:
        self._held: dict[ElementId, Element] = {}
        self._popped_below: dict[tuple[str, int], int] = {}  # (writer, life): all numbers below this are popped
        self._popped: set[ElementId] = set()  # those above it

    def __len__(self) -> int:
        return len(self._held)

    def add(self, element: Element) -> bool:
        """Hold an element, unless it is held already or has been dequeued (rule 1.3).

        Returns:
            Whether it is new.
        """
        if element.id in self._held or self.is_popped(element.id):
            return False
        self._held[element.id] = element
        return True

    def is_popped(self, name: ElementId) -> bool:
        """Whether this element has been dequeued, as far as this member knows."""
        return name.number < self._popped_below.get((name.writer, name.life), 1) or name in self._popped

    def pop(self, name: ElementId) -> None:
        """The element has been dequeued by somebody. It may come later (rule 1.3)."""
        self._held.pop(name, None)
        if self.is_popped(name):
            return
        self._popped.add(name)
        writer = (name.writer, name.life)
        number = self._popped_below.get(writer, 1)
        while (following := ElementId(*writer, number)) in self._popped:
            self._popped.remove(following)
            number += 1
        self._popped_below[writer] = number

    def oldest(self, without: Iterable[ElementId] = ()) -> Element | None:
        """The element that this member has held longest, of those that are not excluded."""
        excluded = set(without)
        return next((element for name, element in self._held.items() if name not in excluded), None)
