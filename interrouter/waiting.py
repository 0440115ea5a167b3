"""What other routers have sent and the owner has not taken yet, where that is more than one part (session.py).

A read may bring 10,000 messages, and each is work for the owner. So it takes them in parts, round robin by router: a
router that sends little does not wait for all that another one has sent. The order of one router's events is kept.

Knows no sessions and no trunks. Read events.py for what waits here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from interrouter.events import NetworkEvent, PeerMessage, PeerUp
from interrouter.stream import ITEM_OVERHEAD

PART_EVENTS: Final = 64
"""Events of one part, at most."""
PART_OCTETS: Final = 256 * 1024
"""Octets of messages after which a part takes no further one; the last one may exceed them."""


class Waiting:
    __slots__ = ("by_peer", "octets")

    def __init__(self) -> None:
        self.by_peer: dict[str, deque[NetworkEvent]] = {}
        """Router -> its events, never none; next router first."""
        self.octets = 0
        """Of the messages among them, each with ITEM_OVERHEAD: empty ones are work, too."""

    def put(self, events: Iterable[NetworkEvent]) -> None:
        for event in events:
            self.octets += _octets(event)
            queue = self.by_peer.get(event.peer)
            if queue is None:
                queue = self.by_peer[event.peer] = deque()
            queue.append(event)

    def take(self) -> list[NetworkEvent]:
        """One part. It has events of one session of each router only, as `Network.take_events` promises: a PeerUp that
        comes behind another event of its router waits for the next part."""
        part: list[NetworkEvent] = []
        told: dict[str, None] = {}
        stopped: dict[str, deque[NetworkEvent]] = {}
        size = 0
        by_peer = self.by_peer
        while by_peer and len(part) < PART_EVENTS and size < PART_OCTETS:
            peer = next(iter(by_peer))
            queue = by_peer.pop(peer)
            if queue[0].__class__ is PeerUp and peer in told:
                stopped[peer] = queue
                continue
            told[peer] = None
            event = queue.popleft()
            part.append(event)
            octets = _octets(event)
            size += octets
            self.octets -= octets
            if queue:
                by_peer[peer] = queue
        if stopped:
            self.by_peer = {**stopped, **by_peer}
        return part

    def drop_messages(self, peer: str) -> None:
        """The session with this router is reset: its messages are lost."""
        queue = self.by_peer.pop(peer, None)
        if queue is None:
            return
        self.octets -= sum([_octets(event) for event in queue])
        self.put([event for event in queue if event.__class__ is not PeerMessage])

    def check_invariants(self) -> None:
        assert all(self.by_peer.values()), "a router waits with nothing"
        octets = sum([_octets(event) for queue in self.by_peer.values() for event in queue])
        assert self.octets == octets, f"{self.octets} octets are counted, {octets} wait"


def _octets(event: NetworkEvent) -> int:
    if not isinstance(event, PeerMessage):
        return 0
    data = event.data
    return ITEM_OVERHEAD + (len(data) if isinstance(data, bytes) else sum([len(part) for part in data]))
