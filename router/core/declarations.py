"""The subscriptions that topology files declare: this router's own file, and what other routers have said of theirs.

A declared subscription is known to every router from its boot, and never expires (protocol 2.7). Files may differ for a
while, as one router after the other is told of a changed one. What any router declares is in force at all that know of
it, and an address is closed only where all say so (protocol 4.5). This module keeps the statements and compares them;
`router.core.subscription_directory` keeps the entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b

from router.config import AddressConfig, RouterConfig
from router.core.messages import Declaration, DeclaredAddress, Hello, SubscriptionName


def declared_by(config: RouterConfig) -> tuple[DeclaredAddress, ...]:
    """Returns what a file declares: the addresses with declared subscriptions, and those that are closed."""
    found = [
        DeclaredAddress(each.match, each.other_subscriptions == "refuse", tuple(sorted(each.subscriptions)))
        for each in config.addresses
        if (each.subscriptions or each.other_subscriptions == "refuse") and config.address(each.match) == each
    ]
    return tuple(sorted(found))


def digest(value: object) -> int:
    """Returns a number that is the same for the same value, for comparing files (protocol 4.5)."""
    return int.from_bytes(blake2b(repr(value).encode(), digest_size=8).digest(), "big")


def settings_digest(config: RouterConfig) -> int:
    """Returns the digest of the settings that must be the same everywhere (protocol 12.1)."""
    network = (config.heartbeat_s, config.dead_after_s, config.discovery_s, config.proof_after_s)
    return digest((network, [_settings_of(each) for each in (*config.addresses, config.defaults)]))


def _settings_of(address: AddressConfig) -> tuple[object, ...]:
    times = (address.subscription_timeout_s, address.publisher_expires_s)
    queue = address.type == "queue"
    return (address.match, queue, *times, address.no_subscribers, address.max_redeliveries, address.guarantee)


class Declarations:
    """What is declared, by router, and what is in force because of it."""

    def __init__(self, config: RouterConfig, settings_digest: int, clock_us: Callable[[], int]) -> None:
        self._name = config.name
        self._clock_us = clock_us
        self._known: dict[str, Declaration] = {}  # by router; of those out of session the latest that is known
        self._digests: dict[str, tuple[int, int]] = {}  # settings and topology, by router in session
        self._in_force: dict[str, dict[SubscriptionName, None]] = {}
        self._closed: frozenset[str] = frozenset()
        self._own_digests = (0, 0)
        self.own = Declaration(config.name, 0, ())
        self.reconfigure(config, settings_digest, ())

    # ------------------------------------------------------------------------------------------------- what is in force

    def subscriptions(self, address: str) -> dict[SubscriptionName, None]:
        """Returns the declared subscriptions of an address: those that any router declares (protocol 4.5)."""
        return self._in_force.get(address, {})

    def addresses(self) -> list[str]:
        """Returns the addresses with declared subscriptions."""
        return sorted(self._in_force)

    def is_closed(self, address: str) -> bool:
        """Says whether only declared subscriptions may attach: all routers that have said anything say so."""
        return address in self._closed

    def may_attach(self, address: str, name: SubscriptionName) -> bool:
        """Says whether this subscription may attach (protocol 7.8)."""
        return address not in self._closed or name in self.subscriptions(address)

    def _compute(self) -> list[str]:
        """Computes what is in force. Returns the addresses for which that has changed."""
        in_force: dict[str, dict[SubscriptionName, None]] = {}
        open_somewhere: set[str] = set()
        closed = {each.address for each in self.own.addresses if each.closed}
        for said in (self.own, *(self._known[router] for router in sorted(self._known))):
            for each in said.addresses:
                for name in each.subscriptions:
                    in_force.setdefault(each.address, {})[name] = None
            open_somewhere |= closed - {each.address for each in said.addresses if each.closed}
        before, self._in_force = self._in_force, in_force
        was_closed, self._closed = self._closed, frozenset(closed - open_somewhere)
        changed = {each for each in before.keys() | in_force.keys() if before.get(each) != in_force.get(each)}
        return sorted(changed | (was_closed ^ self._closed))

    # -------------------------------------------------------------------------------------------------- what changes it

    def reconfigure(self, config: RouterConfig, settings_digest: int, in_session: Iterable[str]) -> list[str]:
        """This router's file is read, or has changed. Routers that have left it and are out of session count no more.
        Returns the addresses for which something else is in force now."""
        version = max(self._clock_us(), self.own.version + 1)
        self.own = Declaration(self._name, version, declared_by(config))
        self._own_digests = (settings_digest, config.topology_digest)
        counted = {*config.routers, *in_session}
        self._known = {router: said for router, said in self._known.items() if router in counted}
        return self._compute()

    def learn(self, sender: str, hello: Hello, in_session: Iterable[str]) -> list[str]:
        """A HELLO says what its sender declares, and what it knows of others. Returns the addresses for which something
        else is in force now (protocol 4.5)."""
        self._digests[sender] = (hello.settings_digest, hello.topology_digest)
        speak_for_themselves = {self._name, *in_session} - {sender}
        for said in hello.declarations:
            if said.router in speak_for_themselves:
                continue
            known = self._known.get(said.router)
            if said.router == sender or known is None or known.version < said.version:
                self._known[said.router] = said
        return self._compute()

    def session_ended(self, peer: str) -> None:
        """What the peer has declared stays in force; it is not compared any more."""
        self._digests.pop(peer, None)

    def statements(self, peer: str) -> list[Declaration]:
        """Returns what HELLO tells: this router's own declaration, and the latest known of every other. The peer's own
        is among them where it has come from itself in this session, so that it shows what has been read."""
        others = [router for router in sorted(self._known) if router != peer or router in self._digests]
        return [self.own, *(self._known[router] for router in others)]

    @property
    def settings_digest(self) -> int:
        return self._own_digests[0]

    @property
    def topology_digest(self) -> int:
        return self._own_digests[1]

    # ------------------------------------------------------------------------------------------------------ differences

    def differences(self) -> list[dict[str, str]]:
        """Returns where the file of a router in session differs from this router's: `what` is declarations, settings or
        topology; `ours` and `theirs` are digests."""
        ours = (digest(self.own.addresses), *self._own_digests)
        found: list[dict[str, str]] = []
        for router in sorted(self._digests):
            said = self._known.get(router)
            theirs = (digest(said.addresses if said is not None else ()), *self._digests[router])
            for what, one, other in zip(("declarations", "settings", "topology"), ours, theirs, strict=True):
                if one != other and (what != "topology" or (one and other)):  # 0: not known
                    found.append({"router": router, "what": what, "ours": f"{one:016x}", "theirs": f"{other:016x}"})
        return found
