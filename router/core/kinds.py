"""Which routers take an address for what this one takes it for: a topic, or a queue (protocol 16.13).

Files change at one router after the other, so for a while an address may be a topic at some routers and a queue at
others. For that address, these are *apart*, as routers that are not in session with each other: no message about it
goes from one to the other. A router whose file changes what an address is has begun anew there, and is apart from each
other router until that one has read so.

Clients do not meet across such a border. So an address is not served to new ones while a router in session is apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from router.config import QueueTable, RouterConfig, is_queue, kinds_of
from router.core import messages as m
from router.core.naming import NO_TERM, derive_publisher_id
from router.core.ports import PublisherAttach, PublisherPort, SubscriberAttach, SubscriberPort, UniqueTags
from router.names import DETACH_FORCED

if TYPE_CHECKING:
    from router.core.base import BaseAddress, BaseCore

MOST_KNOWN: Final = 4_096  # addresses whose routers are at hand
NONE_APART: Final[frozenset[str]] = frozenset()


def word(queue: bool) -> str:
    return "queue" if queue else "topic"


class _Change:
    """This router's file has said something else since `at`. `unread`: the other routers that have not said a HELLO
    since they have read so, and whether this one has told the former file in the session that they are in."""

    def __init__(self, former: QueueTable, at: float, version: int, unread: dict[str, bool]) -> None:
        self.former = former
        self.at = at
        self.version = version  # of what this router has declared since (protocol 4.5)
        self.unread = unread


class Kinds:
    """What addresses are at this router, and at those in session."""

    def __init__(self, core: BaseCore) -> None:
        self.core = core
        self.own = kinds_of(core.config.reachable)
        self._said: dict[str, QueueTable] = {}  # to routers in session; nothing: no queue
        self._told: dict[str, QueueTable] = {}  # by them, which counts from the HELLO behind it
        self._others: dict[str, QueueTable] = {}  # those of routers in session that are not this one's
        self._changes: list[_Change] = []
        self._apart: dict[str, frozenset[str]] = {}
        self.differ = False
        """Whether any router may be apart at any address."""

    # ------------------------------------------------------------------------------------------------- what others have

    def apart(self, address: str) -> frozenset[str]:
        """Returns the routers in session that are apart from this one at that address."""
        if not self.differ:
            return NONE_APART
        found = self._apart.get(address)
        if found is None:
            own, up = is_queue(self.own, address), self.core.members.up
            differing = {each for each, table in self._others.items() if is_queue(table, address) != own}
            for change in self._of(address):
                differing.update(each for each in change.unread if each in up)
            if len(self._apart) >= MOST_KNOWN:
                self._apart.clear()
            found = self._apart[address] = frozenset(differing)
        return found

    def keeper(self, address: str) -> str | None:
        """Returns the router that keeps the maps of this address, too (protocol 16.13)."""
        keeper = self.core.members.keeper
        return None if keeper in self.apart(address) else keeper

    def peers(self, address: str) -> tuple[str, ...]:
        """Returns the routers in session that are not apart at that address."""
        peers, apart = self.core.members.peers, self.apart(address)
        return tuple([each for each in peers if each not in apart]) if apart else peers

    def everybody(self, address: str) -> dict[str, None]:
        """Returns the same, and this router: a barrier waits for their answers (protocol 5.4, 7.2)."""
        apart = self.apart(address)
        return dict.fromkeys([*[each for each in self.core.members.up if each not in apart], self.core.name])

    def _of(self, address: str) -> list[_Change]:
        own = is_queue(self.own, address)
        return [each for each in self._changes if is_queue(each.former, address) != own]

    def tell(self, peer: str) -> None:
        """A HELLO is about to go there."""
        if self.core.speaks(peer) >= m.since(m.Queues) and self.own != self._said.get(peer, ()):
            self._said[peer] = self.own
            self.core.post.send(peer, m.Queues(self.own))

    def told(self, sender: str, message: m.Queues) -> None:
        self._told[sender] = message.entries

    def hello(self, sender: str, message: m.Hello, first: bool) -> None:
        """It has said what addresses are there; first: in this session. Who was apart is not, or the other way round
        (protocol 16.13.2)."""
        core = self.core
        before = [(address, sender in self.apart(address.name)) for address in core.addresses.values()]
        former = self._others.get(sender, self.own)
        table = self._told.get(sender, () if core.speaks(sender) >= m.since(m.Queues) else self.own)
        self._others[sender] = table
        self._apart.clear()
        read = [each.version for each in message.declarations if each.router == core.name]
        done = [
            each
            for each in self._changes
            if sender in each.unread and ((first and not each.unread[sender]) or (read and read[0] >= each.version))
        ]
        for change in done:
            del change.unread[sender]
        self._tidy()
        if not first and table != former:
            core.send_hello(sender)
        for address, was_apart in before:
            is_apart = sender in self.apart(address.name)
            if is_apart and not was_apart:
                address.router_down(sender)
            elif was_apart and not is_apart:
                address.router_up(sender)

    def session_began(self) -> None:
        self._apart.clear()

    def session_ended(self, peer: str) -> None:
        self._told.pop(peer, None)
        self._said.pop(peer, None)
        self._others.pop(peer, None)
        self.differ = bool(self._others or self._changes)
        self._apart.clear()
        for change in self._changes:
            if peer in change.unread:
                change.unread[peer] = False

    def _tidy(self) -> None:
        """Forgets what says nothing: tables that are as ours, and changes that all have read or that are long ago."""
        self._others = {each: table for each, table in self._others.items() if table != self.own}
        members, now, longest_s = self.core.members, self.core.now, self.core.config.recovery_s
        known = {*members.up, *members.missing(members.up)}
        for change in self._changes:
            change.unread = {each: told for each, told in change.unread.items() if each in known}
        self._changes = [
            each
            for each in self._changes
            if any(router in members.up for router in each.unread) or (each.unread and now < each.at + longest_s)
        ]
        self.differ = bool(self._others or self._changes)
        self._apart.clear()

    # ---------------------------------------------------------------------------------------------------------- clients

    def refuses_publisher(self, port: PublisherPort, attach: PublisherAttach) -> bool:
        """Refuses a publisher that may not attach now (protocol 16.13.3)."""
        if not self.differ:
            return False
        unique, found = isinstance(attach.unsettled, UniqueTags), self.core.addresses.get(attach.address)
        publisher_id = derive_publisher_id(attach.container, attach.name, attach.address, unique)
        return self._refuses(port, attach.address, found is not None and publisher_id in found.known_publishers)

    def refuses_subscriber(self, port: SubscriberPort, attach: SubscriberAttach) -> bool:
        """Refuses a subscription that may not attach now (protocol 16.13.3)."""
        if not self.differ:
            return False
        found = self.core.addresses.get(attach.address)
        entry = found.known_subscriptions.get((attach.container, attach.name)) if found is not None else None
        return self._refuses(port, attach.address, entry is not None and entry.term != NO_TERM)

    def _refuses(self, port: PublisherPort | SubscriberPort, address: str, known: bool) -> bool:
        why_not = self._why_not(address, known)
        if why_not:
            port.refuse(DETACH_FORCED, why_not, {})
        return bool(why_not)

    def _why_not(self, address: str, known: bool) -> str:
        """Returns why a client may not attach now; nothing if it may. known: the address knows it."""
        own = is_queue(self.own, address)
        others = sorted(each for each, table in self._others.items() if is_queue(table, address) != own)
        if others and not known:
            return (
                f"{address!r:.80} is a {word(own)} at router {self.core.name}, and a {word(not own)} at "
                f"{', '.join(others)}: attach again when all routers follow the same topology file"
            )
        awaited = self._awaited(address)
        if awaited:
            return (
                f"{address!r:.80} has become a {word(own)} at router {self.core.name}: attach again when it has heard "
                f"from {', '.join(awaited)}"
            )
        return ""

    def _awaited(self, address: str) -> list[str]:
        """Returns the routers in session that may know of clients there, and have not said so (protocol 16.13.5)."""
        up = self.core.members.up
        return sorted({router for change in self._of(address) for router in change.unread if router in up})

    # ------------------------------------------------------------------------------------------------ files that change

    def obstacles(self, config: RouterConfig) -> list[str]:
        """Returns why this router cannot follow a file while it runs, and the remedies (protocol 16.13.6)."""
        core, table = self.core, kinds_of(config.reachable)
        if table == self.own:
            return []
        before = [each for each in core.members.peers if core.speaks(each) < m.since(m.Queues)]
        if before:
            return [
                f"changed queues: router {', '.join(before)} is of a version that cannot change what is a queue while "
                "it runs: update it first, or stop the network and start it with this file"
            ]
        return [
            f"address {address.name!r:.80} is a {word(is_queue(table, address.name))} in this file, and in use as a "
            f"{word(is_queue(self.own, address.name))}: {use}: close them for good or wait until they are forgotten, "
            "or stop the network and start it with this file"
            for address, use in self._in_use(table)
        ]

    def _changing(self, table: QueueTable) -> list[BaseAddress]:
        return [
            each
            for name, each in sorted(self.core.addresses.items())
            if is_queue(table, name) != is_queue(self.own, name)
        ]

    def _in_use(self, table: QueueTable) -> list[tuple[BaseAddress, str]]:
        found = [(address, address.use()) for address in self._changing(table)]
        waiting: list[PublisherAttach | SubscriberAttach] = [
            *self.core.recovery.deferred_publishers.values(),
            *self.core.recovery.deferred_subscribers.values(),
        ]
        for attach in waiting:
            if is_queue(table, attach.address) != is_queue(self.own, attach.address):
                found.append((self.core.address(attach.address), f"{attach.container} {attach.name} is attaching"))
        return [(address, use) for address, use in found if use]

    def unknown(self, table: QueueTable) -> list[str]:
        """Returns the entries of which a file with this table makes something else, and which another router may have
        served as that: who is there is not known here (protocol 16.13.7)."""
        members, own = self.core.members, self.own
        changed = [e.match for e in self.core.config.reachable if is_queue(table, e.match) != is_queue(own, e.match)]
        if changed and members.missing(members.up):
            return changed
        return [e for e in changed if any(is_queue(each, e) != is_queue(own, e) for each in self._others.values())]

    def reconfigure(self) -> tuple[list[str], list[str]]:
        """This router's file has changed. Where that changes what an address is, the router begins anew
        (protocol 16.13.4). Returns the addresses that it has forgotten, and the entries that are `unknown`."""
        core, table = self.core, kinds_of(self.core.config.reachable)
        if table == self.own:
            self._tidy()
            return [], []
        assert not self._in_use(table), "an address that is in use cannot become another one"
        unknown = self.unknown(table)
        changing = self._changing(table)
        for address in changing:
            core.forget(address)
        former, self.own = self.own, table
        others = dict.fromkeys(core.members.peers, True) | dict.fromkeys(core.members.missing(core.members.up), False)
        version = core.recovery.declarations.own.version + 1
        self._changes.append(_Change(former, core.now, version, others))
        self._others = {each: self._others.get(each, former) for each in core.members.peers}
        self._tidy()
        return [each.name for each in changing], unknown

    def check_invariants(self) -> None:
        up = self.core.members.up
        assert self._others.keys() <= up.keys()
        assert self.differ == bool(self._others or self._changes)
        assert self.own == kinds_of(self.core.config.reachable)
        for name, address in self.core.addresses.items():
            apart = self.apart(name)
            homes = {each.home for each in address.known_publishers.values()}
            homes |= {each.home for each in address.known_subscriptions.values()}
            assert not homes & apart, f"{name}: a home that is apart"
