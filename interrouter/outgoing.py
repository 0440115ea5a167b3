"""What waits to be sent to one neighbour, and in which order it shares transfers.

Urgent packets (heartbeat, link states, opens, acknowledgements) go first. Packets in transit and packets of our own
sessions alternate. Our own are taken from their streams only when there is credit; packets in transit wait here, up to
a limit beyond which they are dropped (their sender notices the loss and slows down). So memory is bounded however slow
the neighbour is. Read trunk.py.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from interrouter.linkstate import LinkState
from interrouter.packets import HEARTBEAT_PACKET, LinkStatePacket, encode_link_state
from interrouter.session import Session, Sessions

TRANSFER: Final = 64 * 1024
"""Bytes after which a transfer takes no further packet; a packet may exceed them by its last message. Also bytes of
transfers after which one part of what was received ends."""
TRANSIT_LIMIT: Final = 8 * 1024 * 1024
URGENT_LIMIT: Final = 4096


class Outgoing:
    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self.dropped = 0
        self.transit: deque[bytes] = deque()
        self.transit_bytes = 0
        self._transit_turn = True
        self.urgent: deque[bytes] = deque()
        self.opens: dict[tuple[int, int], bytes] = {}
        self.link_states: dict[int, LinkState] = {}
        self.heartbeat = False

    def queue_transit(self, packet: bytes) -> None:
        if self.transit_bytes + len(packet) > TRANSIT_LIMIT:
            self.dropped += 1
            return
        self.transit.append(packet)
        self.transit_bytes += len(packet)

    def queue_urgent(self, packet: bytes) -> None:
        if len(self.urgent) >= URGENT_LIMIT:
            self.dropped += 1
            return
        self.urgent.append(packet)

    def queue_open(self, key: tuple[int, int], packet: bytes) -> None:
        self.opens[key] = packet  # a later one between the same two replaces it

    def queue_link_state(self, state: LinkState) -> None:
        self.link_states[state.incarnation] = state

    def queue_heartbeat(self) -> None:
        self.heartbeat = True

    def take_messages(self, parts: list[bytes | memoryview], ready: dict[Session, None], now: float) -> None:
        """ready: our own sessions that have something to send."""
        size = 0
        transit = self.transit
        while size < TRANSFER and (transit or ready):
            if transit and (self._transit_turn or not ready):
                self._transit_turn = False
                packet = transit.popleft()
                self.transit_bytes -= len(packet)
                parts.append(packet)
                size += len(packet)
                continue
            self._transit_turn = True
            own = self._sessions.next_packet(ready, now)
            if own is not None:
                parts += own
                for part in own:
                    size += len(part)

    def take_urgent(self, parts: list[bytes | memoryview], acks: dict[Session, None], now: float) -> None:
        """acks: our own sessions that are to be acknowledged."""
        if self.heartbeat:
            self.heartbeat = False
            parts.append(HEARTBEAT_PACKET)
        size = 0
        while self.link_states and size < TRANSFER:
            state = self.link_states.pop(next(iter(self.link_states)))
            packet = encode_link_state(
                LinkStatePacket(
                    state.name,
                    state.incarnation,
                    state.sequence,
                    max(0, int((now - state.born) * 1000)),
                    state.links,
                    state.former,
                )
            )
            parts.append(packet)
            size += len(packet)
        if self.link_states:
            return  # an OPEN must not overtake the link states that make its destination known
        if self.opens:
            parts += self.opens.values()
            self.opens.clear()
        if acks:
            parts += self._sessions.ack_packet(acks)
        while self.urgent and size < TRANSFER:
            packet = self.urgent.popleft()
            parts.append(packet)
            size += len(packet)

    def check_invariants(self) -> None:
        assert self.transit_bytes == sum(map(len, self.transit)) <= TRANSIT_LIMIT, "bytes in transit are miscounted"
        assert len(self.urgent) <= URGENT_LIMIT, "too many urgent packets"
