"""How many deliveries consumers here take: each ingress is told its share, in rounds (protocol 16.3)."""

from __future__ import annotations

from router.core import messages as m
from router.core.deliveries import Deliveries
from router.core.intervals import count
from router.core.subscriber import Subscriber
from router.core.subscriber_handshake import NOTHING_NEW


class Grant:
    """Deliveries that one ingress may assign to one consumer: `limit` in this round, of which `used` are assigned.
    stopped: something had to go back, and the round is over."""

    __slots__ = ("limit", "round", "stopped", "used")

    def __init__(self) -> None:
        self.round = 0
        self.limit = 0
        self.used = 0
        self.stopped = False

    def begin(self, number: int) -> None:
        self.round = number
        self.limit = self.used = 0
        self.stopped = False

    @property
    def left(self) -> int:
        return self.limit - self.used


class Credit:
    """One queue's, of the consumers that are attached here."""

    def __init__(self, deliveries: Deliveries) -> None:
        assert deliveries.to_tell is not None
        self.address = deliveries.address
        self.core = deliveries.core
        self.log = deliveries.log
        self.publishers = deliveries.publishers
        self.subscribers = deliveries.subscribers
        self.to_tell = deliveries.to_tell
        self.grants: dict[Subscriber, dict[str, Grant]] = {}  # ingress -> what it was told
        self.proven: dict[Subscriber, None] = {}  # whose maps are true (protocol 16.8)
        self.homes_changed = False  # of publishers
        self.homes: tuple[str, ...] = ()

    def changed(self, consumer: Subscriber) -> None:
        self.to_tell[consumer] = None
        self.core.agenda.touch(self.address)

    def forget(self, consumer: Subscriber) -> None:
        self.grants.pop(consumer, None)
        self.proven.pop(consumer, None)

    def router_down(self, router: str) -> None:
        """Its session is over: what it was told is void."""
        for grants in self.grants.values():
            grants.pop(router, None)

    def is_unproven(self, consumer: Subscriber) -> bool:
        """Says whether its attach may be an old one, read late, whose map is not true any more (protocol 16.8)."""
        return consumer.handshake.brought_map and not consumer.handshake.brought_epoch and consumer not in self.proven

    def room(self, consumer: Subscriber) -> int:
        """Returns how many deliveries it takes beyond those that wait here already."""
        if consumer.handshake.state in NOTHING_NEW or self.is_unproven(consumer):
            return 0
        waiting = count(consumer.owes.overlap(consumer.cursor, self.log.end))
        irregular = consumer.irregular
        waiting += len(irregular.to_resume) + len(irregular.released) + len(irregular.sync_queue)
        return max(0, consumer.port.link_credit() - waiting)

    def tell(self) -> None:
        """Tells ingresses how much consumers take. Each gets its share; where that is nothing, one: what is too much
        comes back (protocol 16.3)."""
        if self.homes_changed:
            self.homes_changed = False
            self.homes = tuple(sorted({each.home for each in self.publishers.values() if each.home is not None}))
            self.to_tell.clear()
            self.to_tell.update(dict.fromkeys(self.subscribers.values()))
        changed = list(self.to_tell)
        self.to_tell.clear()
        for consumer in changed:
            if self.subscribers.get(consumer.name) is not consumer or not consumer.has_link:
                continue
            if self._has_enough(consumer):
                continue
            room = self.room(consumer)
            share = max(1, room // max(1, len(self.homes))) if room else 0
            for home in self.homes:
                grant = self.grant(consumer, home)
                if grant.stopped:
                    continue
                if grant.left < share and (grant.left <= share // 2 or not grant.left):
                    grant.limit = grant.used + share
                    name = self.address.name
                    self.core.post.send_to(home, m.Credit(name, consumer.name, consumer.term, grant.round, grant.limit))

    def _has_enough(self, consumer: Subscriber) -> bool:
        """Says whether no ingress has used half of the largest share that it could be told now."""
        if not self.homes or not consumer.handshake.answered:
            return False
        half, grants = consumer.port.link_credit() // len(self.homes) // 2, self.grants[consumer]
        return all(home in grants and grants[home].left > half for home in self.homes)

    def grant(self, consumer: Subscriber, ingress: str) -> Grant:
        grants = self.grants[consumer]
        if ingress not in grants:
            grants[ingress] = Grant()
            grants[ingress].begin(1)
        return grants[ingress]

    def on_stopped(self, sender: str, message: m.Stopped) -> None:
        """The ingress has read that the round is over, and all that it had assigned in it has come: another begins
        (protocol 16.3)."""
        consumer = self.subscribers.get(message.name)
        if consumer is not None and consumer.term == message.term and consumer.has_link:
            grant = self.grant(consumer, sender)
            if grant.stopped and grant.round == message.round:
                grant.begin(grant.round + 1)
                self.changed(consumer)
