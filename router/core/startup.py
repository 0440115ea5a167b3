"""How a router that has started finds out what others know: booting, HELLO, recovering (protocol 4).

Attaches are deferred here until the router is booted, and those of unknown publishers that resume until their address
is recovered. Read `router.core.recovery` for when that is, `router.core.declarations` for what files declare.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from router.config import AddressConfig, RouterConfig
from router.core import messages as m

if TYPE_CHECKING:
    from router.core.core import Core


class Startup:
    """From the start of one router until all of its addresses are recovered, and what HELLO says from then on."""

    def __init__(self, core: Core, fresh: bool) -> None:
        self.core = core
        self.fresh = fresh
        self.recovery = core.recovery
        self.declarations, self.times = core.recovery.declarations, core.recovery.times
        self._boot_at = core.now + core.config.discovery_s
        self._differ: list[dict[str, str]] = []  # as logged last

    # ---------------------------------------------------------------------------------------------------------- booting

    def begin(self) -> None:
        """Enters the declared subscriptions, which are known from the boot on (protocol 4.5)."""
        self.core.agenda.due(self._boot_at)
        self._declared(self.declarations.addresses())
        self.check_booted()

    def check_booted(self) -> None:
        """Boots when every router of the topology file has sent HELLO (protocol 4.1)."""
        if not self.times.booted and self.core.members.all_said_hello():
            self.boot()

    def boot(self) -> None:
        self.times.boot(self.core.now)
        self.core.agenda.due(self.times.next_at())
        self._update_established()
        self._check_recovered()
        if self.fresh:
            self._recover_fresh()
        self._take_deferred()

    def _recover_fresh(self) -> None:
        """There is no earlier subscription to wait for, unless others know the address already (protocol 4.4)."""
        members = self.core.members
        known = [each.match for each in self.times.pending if members.is_recovered_elsewhere(each.match)]
        if known:
            text = "started fresh beside routers that are established: learns from them, and waits for {awaited}"
            self.core.owner.log.warning("fresh_learns", text, awaited=self.all_awaited(), addresses=known)
        self.recover([each for each in self.times.pending if each.match not in known])

    def _take_deferred(self) -> None:
        core = self.core
        publishers, subscribers = self.recovery.take_deferred()
        for publisher_port, publisher_attach in publishers.items():
            core.attach_publisher(publisher_port, publisher_attach, core.now)
        for subscriber_port, subscriber_attach in subscribers.items():
            core.attach_subscriber(subscriber_port, subscriber_attach, core.now)

    # ------------------------------------------------------------------------------------------------------- recovering

    def all_awaited(self) -> list[str]:
        """Returns the routers whose HELLO is missing for any address."""
        members = self.core.members
        return sorted({router for entry in self.times.pending for router in members.awaited(entry.match)})

    def _check_recovered(self) -> None:
        """Entries are recovered when a router at which they are, and all in session with such a router, have sent HELLO
        (protocol 4.4)."""
        members = self.core.members
        self.recover(
            entry
            for entry in self.times.pending
            if members.is_recovered_elsewhere(entry.match) and not members.awaited(entry.match)
        )

    def check_awaited(self) -> None:
        """After a HELLO or the end of a session: answers attaches if no HELLO is missing any more (protocol 4.4)."""
        self._check_recovered()
        if self.times.pending:
            for address in list(self.core.addresses.values()):
                address.egress.check_all_answered()

    def recover(self, entries: Iterable[AddressConfig]) -> None:
        """These entries are recovered: others are told, and deferred attaches are answered (protocol 4.4)."""
        core, entries = self.core, list(entries)
        if not self.times.recover(entries):
            return
        if not self.times.booted:
            self.boot()
        self._tell_all()
        self._update_established()
        for address in list(core.addresses.values()):
            address.egress.check_all_answered()
        core.drain()
        self._take_deferred()

    def process_resumed(self, now: float) -> None:
        """This process was suspended while it was in session with others: until they have said what they know now, it
        is like one that has started (protocol 4.6)."""
        core = self.core
        if not core.members.up or not self.times.recovered:
            return
        core.members.doubt_hellos()
        until = now + core.config.dead_after_s + core.config.discovery_s
        self.times.doubt(dict.fromkeys(self.times.recovered, until))
        core.agenda.due(self.times.next_at())
        self._update_established()
        self._tell_all()

    def _why_established(self) -> str:
        if self.times.pending:
            return "every subscription is declared"
        members = self.core.members
        if any(members.is_recovered_elsewhere(entry.match) for entry in self.core.config.reachable):
            return "as others are"
        return "started fresh" if self.fresh else "time is over"

    def _update_established(self) -> None:
        core = self.core
        if self.recovery.look():
            core.owner.log.info("established", "established: {how}", how=self._why_established())
        for address in list(core.addresses.values()):
            was, address.established = address.established, self.recovery.is_established(address.name)
            if address.established and not was:
                address.become_established()

    # ------------------------------------------------------------------------------------------------------------ HELLO

    def tell_who_is_up(self, changed: str) -> None:
        """Sends HELLO again to peers at which not all is known to be recovered: our last HELLO listed the changed
        router, and they may be waiting for it (protocol 4.4)."""
        if self.times.recovered:
            for peer in self.core.members.not_known_recovered():
                if peer != changed:
                    self.send_hello(peer)

    def _tell_all(self) -> None:
        for peer in self.core.members.peers:
            self.send_hello(peer)

    def send_hello(self, peer: str) -> None:
        core, said = self.core, self.declarations
        publishers: list[m.PublisherNews] = []
        subscriptions: list[m.SubscriptionNews] = []
        for address in core.addresses.values():
            publishers += address.publishers.news()
            subscriptions += address.subscriptions.news(peer)
        everything = self.times.all_recovered
        hello = m.Hello(
            core.incarnation,
            everything,
            () if everything else tuple(sorted(self.times.recovered)),
            said.settings_digest,
            said.topology_digest,
            said.statements(peer),
            core.config.routers,
            core.members.up_list(),
            publishers,
            subscriptions,
        )
        core.kinds.tell(peer)
        core.post.send(peer, hello)

    def on_hello(self, sender: str, message: m.Hello) -> None:
        """Learns what files declare, publishers, and subscriptions of addresses that are not recovered from a peer's
        HELLO (protocol 4.3, 4.5)."""
        core = self.core
        doubts = core.members.is_all_recovered(sender) and not message.all_recovered
        first = core.members.hello_received(sender, message, core.now)
        core.roll_call.look()
        core.agenda.all_due(core.now)  # protocol 8.4: timeouts that wait for a complete network may start now
        self._declared(self.declarations.learn(sender, message, core.members.up))
        core.kinds.hello(sender, message, first)
        for publisher in message.publishers:
            if sender in core.kinds.apart(publisher.address):
                continue
            address = core.address(publisher.address)
            address.publishers.repeat_close(sender, publisher)
            address.publishers.learn_of_hello(publisher)
        for topic in core.config.feeding:  # protocol 16.12.4
            if topic in core.addresses:
                core.addresses[topic].records.feeds.look_all()
        for subscription in message.subscriptions:
            if sender in core.kinds.apart(subscription.address):
                continue
            if not self.recovery.is_recovered(subscription.address):
                core.address(subscription.address).subscriptions.learn_of_hello(sender, subscription)
                continue
            former = core.memory.former.named(subscription.address, subscription.name, subscription.born)
            if former is not None:  # else the address is not made for it
                core.address(subscription.address).subscriptions.compare_with_hello(sender, subscription, former)
        if first:
            for each in list(core.addresses.values()):
                each.subscriptions.look_at_doubts()
            self.tell_who_is_up(sender)
        if doubts and self.times.recovered:  # protocol 4.6: it was suspended
            self.send_hello(sender)
        self.check_awaited()
        self.check_booted()
        self._log_differences()

    # --------------------------------------------------------------------------------------------------- topology files

    def _log_differences(self) -> None:
        """Logs once that the file of a router in session differs, and that all agree again (protocol 4.5)."""
        log, before, self._differ = self.core.owner.log, self._differ, self.declarations.differences()
        text = "router {peer} has another topology file: {what} {theirs}, ours {ours}"
        for each in self._differ:
            if each not in before:
                what, ours, theirs = each["what"], each["ours"], each["theirs"]
                log.warning("file_differs", text, peer=each["router"], what=what, ours=ours, theirs=theirs)
        if before and not self._differ:
            log.info("files_agree", "all routers in session have the same topology file")

    def _declared(self, addresses: list[str]) -> None:
        """Something else is declared of these addresses (protocol 4.5, 8.7)."""
        if not addresses:
            return
        for name in addresses:
            self.core.address(name).subscriptions.declared_changed()
        self._update_established()

    def reconfigure(
        self, former: RouterConfig, settings_digest: int, begun_anew: Iterable[str], unknown: Iterable[str]
    ) -> None:
        """The topology file has changed (protocol 4.5, 12.6). Others are told. begun_anew: addresses that this router
        has forgotten, as they are something else now. unknown: entries of which it does not know who is there."""
        core = self.core
        self.times.reconfigure(former, core.config)
        self.times.begin_anew(unknown, core.now)
        changed = self.declarations.reconfigure(core.config, settings_digest, core.members.up)
        declared = {each for each in begun_anew if self.declarations.subscriptions(each)}
        self._declared(sorted(declared.union(changed)))
        self._update_established()
        self._tell_all()
        self.check_awaited()
        self._log_differences()

    # ------------------------------------------------------------------------------------------------------------- time

    def tick(self) -> None:
        now = self.core.now
        if not self.times.booted and now >= self._boot_at:
            self.boot()
        if now >= self.times.next_at():
            self.recover([entry for entry in self.times.pending if now >= self.times.at(entry)])

    def deadlines(self) -> list[float]:
        return [self._boot_at] if not self.times.booted else [self.times.next_at()]

    def recovering_s(self) -> float | None:
        """Returns after how many seconds every address is established at the latest; None if all are, or before the
        router has booted."""
        if not self.times.booted:
            return None
        waiting = [each for each in self.times.pending if not self.declarations.is_closed(each.match)]
        at = max(map(self.times.at, waiting), default=None)
        return None if at is None else round(max(0.0, at - self.core.now), 3)

    def status(self) -> dict[str, object]:
        """Returns what the status page shows: `recovery` says what the addresses of each entry wait for."""
        recovery = [
            {
                "match": entry.match,
                "left_s": round(max(0.0, self.times.at(entry) - self.core.now), 3) if self.times.booted else None,
                "subscription_timeout_s": entry.subscription_timeout_s,
                "established": self.times.booted and self.declarations.is_closed(entry.match),
            }
            for entry in self.times.pending
        ]
        return {
            "booted": self.times.booted,
            "established": self.recovery.established,
            "recovering_s": self.recovering_s(),
            "recovery": recovery,
            "awaited": self.all_awaited(),
            "file_differences": self.declarations.differences(),
        }
