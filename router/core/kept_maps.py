"""Maps that routers keep: how they are fetched, who keeps them, and when one has been told (protocol 7.9).

The maps of local clients are in `router.core.keeping`.
"""

from __future__ import annotations

from collections.abc import Callable

from router.core import messages as m
from router.core.base import BaseAddress
from router.core.directory import KeptMap, SubscriptionEntry
from router.core.keeping import Attached, KeptLink
from router.core.ports import MapState, SubscriberAttach, Term


class Recall:
    """An attach that waits for its map."""

    def __init__(self, link: KeptLink, attach: SubscriberAttach, missing: dict[str, None]) -> None:
        self.link = link
        self.attach = attach
        self.missing = missing
        self.best: KeptMap | None = None


class Kept:
    """One address's maps."""

    def __init__(self, address: BaseAddress, subscribers: Attached) -> None:
        self.address = address
        self.core = address.core
        self.subscribers = subscribers
        self.links: dict[KeptLink, None] = {}
        self._recalls: dict[KeptLink, Recall] = {}
        self._finishing: list[tuple[dict[tuple[KeptLink, bytes], None], Callable[[], None]]] = []

    def __bool__(self) -> bool:
        return bool(self.links or self._recalls)

    def handlers(self) -> m.Handlers:
        return {
            m.Recall: self.on_recall,
            m.Recalled: self.on_recalled,
            m.Keep: self.on_keep,
            m.Kept: self.on_kept,
        }

    # -------------------------------------------------------------------------------------------------------- attaching

    def recalls(self, port: object, attach: SubscriberAttach) -> bool:
        """Says whether the attach waits for a map that is fetched first (protocol 7.9.2)."""
        if not isinstance(port, KeptLink) or port.recalled:
            return False
        entry = self.address.known_subscriptions.get(port.name)
        if attach.epoch is not None:
            port.term = (attach.epoch, "")
        else:
            known = max(entry.term, entry.recalled_by)[0] if entry else 0
            port.term = (self.core.choose_number(known), self.core.name)
        self.links[port] = None
        port.maps = self
        if attach.born is not None and attach.born == attach.epoch:
            port.enter(None)
            return False
        self._recalls[port] = Recall(port, attach, self.core.kinds.everybody(self.address.name))
        self.core.post.broadcast(m.Recall(self.address.name, port.name, port.term))
        return True

    def on_recall(self, sender: str, message: m.Recall) -> None:
        entry = self.address.known_subscriptions.get(message.name)
        answer = m.Recalled(self.address.name, message.name, message.term, None, 0, [])
        if entry is not None:
            entry.recalled_by = max(entry.recalled_by, message.term)
            if entry.kept is not None:
                answer.kept_term, answer.number = entry.kept.term, entry.kept.number
                answer.items = [(tag, int(state), number) for tag, (state, number) in entry.kept.items.items()]
        else:
            self.core.agenda.touch(self.address)  # the address may be empty
        self.core.post.send_to(sender, answer)

    def on_recalled(self, sender: str, message: m.Recalled) -> None:
        for recall in list(self._recalls.values()):
            link = recall.link
            if link.name == message.name and link.term == message.term and sender in recall.missing:
                del recall.missing[sender]
                if message.kept_term is not None:
                    offered = KeptMap(message.kept_term)
                    offered.number = message.number
                    offered.items = {tag: (MapState(state), number) for tag, state, number in message.items}
                    if recall.best is None or self._is_later(offered, recall.best):
                        recall.best = offered
                self._check(recall)

    def _is_later(self, kept: KeptMap, other: KeptMap) -> bool:
        """Says which of two routers has kept the map last (protocol 7.9.3)."""
        return (kept.term, kept.number) > (other.term, other.number)

    def _check(self, recall: Recall) -> None:
        if recall.missing or self.core.recovery.awaited(self.address.name):
            return
        del self._recalls[recall.link]
        recall.link.enter(recall.best)
        self.address.attach_subscriber(recall.link, recall.attach)

    def check_recalls(self) -> None:
        for recall in list(self._recalls.values()):
            self._check(recall)

    def cancel(self, link: KeptLink) -> None:
        self._recalls.pop(link, None)

    def drop(self, link: object) -> None:
        """The link is gone: what is not settled in a map is not this router's to settle any more."""
        if not isinstance(link, KeptLink):
            return
        self.links.pop(link, None)
        for pending, _ in self._finishing:
            for key in [key for key in pending if key[0] is link]:
                del pending[key]
        self._answer()
        self.core.agenda.touch(self.address)  # the address may be empty now

    # ---------------------------------------------------------------------------------------------------------- keeping

    def on_keep(self, sender: str, message: m.Keep) -> None:
        entry = self.address.known_subscriptions.get(message.name)
        if entry is None or entry.term > message.term or self._is_fetched(entry, message.term):
            return
        kept = entry.kept
        if message.whole:
            kept = KeptMap(message.term)
        elif kept is None or kept.term != message.term:
            return  # another KEEP, whole, is on its way
        kept.change(message.items, message.gone)
        kept.number = message.number
        entry.kept = kept
        self.core.post.send_to(sender, m.Kept(self.address.name, message.name, message.term, message.number))

    def _is_fetched(self, entry: SubscriptionEntry, term: Term) -> bool:
        """Says whether a later attach has fetched the map (protocol 7.9.2)."""
        return entry.recalled_by > term

    def on_kept(self, sender: str, message: m.Kept) -> None:
        for link in self.links:
            if link.name == message.name and link.term == message.term and sender == self.core.members.keeper:
                link.acknowledge(message.number)

    def replaced(self, former: SubscriptionEntry | None, entry: SubscriptionEntry) -> None:
        """The same subscription has another entry."""
        if former is not None:
            entry.kept, entry.recalled_by = former.kept, former.recalled_by

    def flush(self) -> None:
        for link in list(self.links):
            link.flush()

    def when_finished(self, answer: Callable[[], None]) -> None:
        """Calls that when what is settled has left the maps (protocol 7.9.8)."""
        pending = {(link, tag): None for link in self.links for tag in link.unfinished()}
        if pending:
            self._finishing.append((pending, answer))
        else:
            answer()

    def closed(self, link: KeptLink, tag: bytes) -> None:
        for pending, _ in self._finishing:
            pending.pop((link, tag), None)
        self._answer()

    def _answer(self) -> None:
        done = [answer for pending, answer in self._finishing if not pending]
        self._finishing = [each for each in self._finishing if each[0]]
        for answer in done:
            answer()

    def router_up(self, router: str) -> None:
        self._look_at_keeper(router)
        for recall in self._recalls.values():
            recall.missing[router] = None
            self.core.post.send_to(router, m.Recall(self.address.name, recall.link.name, recall.link.term))

    def router_down(self, router: str) -> None:
        self._look_at_keeper(router)
        for recall in list(self._recalls.values()):
            recall.missing.pop(router, None)
            self._check(recall)

    def _look_at_keeper(self, router: str) -> None:
        if router == self.core.members.keeper:
            for link in self.links:
                link.keeper_changed()
