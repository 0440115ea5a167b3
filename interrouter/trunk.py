"""The way to one neighbour: what waits for it, in which order it goes, and how it shares transfers.

A trunk sends transfers while the neighbour has given credit; each is a row of packets. Urgent things (heartbeat, link
states, opens, acknowledgements) go first and may use the last few credits, which messages may not, so a large message
starves nothing. Messages alternate between what passes through and our own sessions, a packet at a time. Our own are
fetched from their streams only when there is credit; what passes through waits here, up to a limit beyond which it is
dropped (its sender will notice, and send more slowly). So memory is bounded however slow the neighbour is.

How transfers become bytes is the subclass's: amqp_trunk.py for the product, tests/interrouter/harness.py without AMQP.
Read network.py for what comes in.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from interrouter.linkstate import LinkState
from interrouter.packets import HEARTBEAT_PACKET, LinkStatePacket, encode_link_state

if TYPE_CHECKING:
    from interrouter.network import Network
    from interrouter.session import Session

TRANSFER: Final = 64 * 1024
"""A transfer takes no more packets beyond this size; a packet may exceed it by its last message."""
MAX_TRANSFER: Final = 1 << 20
"""Larger ones are refused."""
CREDIT: Final = 32
"""Transfers that a neighbour may send us before we have read any: with their size this bounds its output and ours."""
RESERVE: Final = 4
"""Credits kept for what is urgent."""
TRANSIT_LIMIT: Final = 8 * 1024 * 1024
URGENT_LIMIT: Final = 4096


@dataclass(frozen=True, slots=True)
class Hello:
    """What the two ends of a trunk tell each other first."""

    network: str
    name: str
    incarnation: int


class Refused(Exception):
    """This trunk cannot be; an AMQP condition and what to tell the other side."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(condition, description)
        self.condition = condition
        self.description = description


class Trunk(ABC):
    """One connection with a neighbour, from its first octet to its end. Made by `Network.connect`."""

    def __init__(self, network: Network, *, server: bool, dialled: str | None, now: float) -> None:
        self.network = network
        self.server = server
        self.dialled = dialled
        """Whom we meant to reach, where we dialled."""
        self.neighbour: str | None = None
        """Who it is, once it has said so and been accepted."""
        self.incarnation = 0
        self.heard = now
        self.spoke = now
        self.up = False
        self.failure: str | None = None
        """Why the trunk was closed or refused, by whichever side."""
        self.ready: dict[Session, None] = {}
        """Our own sessions that have something to send this way, next one first."""
        self.acks: dict[Session, None] = {}
        """Those that are to be acknowledged, if nothing else goes to them."""
        self.transfers_sent = 0
        self.transfers_received = 0
        self.dropped = 0
        self._transit: deque[bytes] = deque()
        self._transit_bytes = 0
        self._transit_turn = True
        self._urgent: deque[bytes] = deque()
        self._opens: dict[tuple[int, int], bytes] = {}
        self._link_states: dict[int, LinkState] = {}
        self._heartbeat = False

    # What a transport does ---------------------------------------------------------------------------------------

    @abstractmethod
    def receive_data(self, data: bytes, now: float) -> None:
        """Whatever came. Never raises for what a peer does."""

    @abstractmethod
    def receive_eof(self, now: float) -> None:
        """The transport is gone: the neighbour counts as lost at once."""

    @abstractmethod
    def data_to_send(self) -> bytes: ...

    @abstractmethod
    def next_deadline(self) -> float | None: ...

    @abstractmethod
    def handle_timer(self, now: float) -> None: ...

    @property
    @abstractmethod
    def closed(self) -> bool:
        """Over: write what `data_to_send` has left, then close the transport."""

    @abstractmethod
    def close(self, condition: str | None = None, description: str = "") -> None:
        """Tell the neighbour, with an error where there is one."""

    @abstractmethod
    def _capacity(self) -> int:
        """How many transfers may be sent now."""

    @abstractmethod
    def _transmit(self, payloads: list[bytes]) -> None: ...

    # What the network queues -------------------------------------------------------------------------------------

    def queue_transit(self, packet: bytes) -> None:
        if self._transit_bytes + len(packet) > TRANSIT_LIMIT:
            self.dropped += 1
            return
        self._transit.append(packet)
        self._transit_bytes += len(packet)

    def queue_urgent(self, packet: bytes) -> None:
        if len(self._urgent) >= URGENT_LIMIT:
            self.dropped += 1
            return
        self._urgent.append(packet)

    def queue_open(self, key: tuple[int, int], packet: bytes) -> None:
        self._opens[key] = packet  # a later one between the same two replaces it

    def queue_link_state(self, state: LinkState) -> None:
        self._link_states[state.incarnation] = state

    def queue_heartbeat(self) -> None:
        self._heartbeat = True

    def pump(self, now: float) -> None:
        """Send what may be sent."""
        room = self._capacity()
        payloads: list[bytes] = []
        while room > 0:
            parts: list[bytes] = []
            if room > RESERVE and (self._transit or self.ready):
                self._take_messages(parts, now)
            # after the messages, which carry acknowledgements, but before them in the transfer
            if self.acks or self._urgent or self._heartbeat or self._opens or self._link_states:
                urgent: list[bytes] = []
                self._take_urgent(urgent, now)
                parts = urgent + parts
            if not parts:
                break
            payloads.append(parts[0] if len(parts) == 1 else b"".join(parts))
            room -= 1
        if payloads:
            self.spoke = now
            self.transfers_sent += len(payloads)
            self._transmit(payloads)

    def status(self) -> dict[str, Any]:
        return {
            "incarnation": self.incarnation,
            "up": self.up,
            "dialled": not self.server,
            "transfers_sent": self.transfers_sent,
            "transfers_received": self.transfers_received,
            "credit": self._capacity(),
            "passing_through_bytes": self._transit_bytes,
            "dropped": self.dropped,
        }

    def _take_messages(self, parts: list[bytes], now: float) -> None:
        size = 0
        transit, ready = self._transit, self.ready
        while size < TRANSFER and (transit or ready):
            if transit and (self._transit_turn or not ready):
                self._transit_turn = False
                packet = transit.popleft()
                self._transit_bytes -= len(packet)
                parts.append(packet)
                size += len(packet)
                continue
            self._transit_turn = True
            own = self.network.sessions.next_packet(ready, now)
            if own is not None:
                parts += own
                for part in own:
                    size += len(part)

    def _take_urgent(self, parts: list[bytes], now: float) -> None:
        if self._heartbeat:
            self._heartbeat = False
            parts.append(HEARTBEAT_PACKET)
        size = 0
        while self._link_states and size < TRANSFER:
            state = self._link_states.pop(next(iter(self._link_states)))
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
        if self._link_states:
            return  # an open must not overtake the states that make its destination known
        if self._opens:
            parts += self._opens.values()
            self._opens.clear()
        if self.acks:
            parts += self.network.sessions.ack_packet(self.acks, now)
        while self._urgent and size < TRANSFER:
            packet = self._urgent.popleft()
            parts.append(packet)
            size += len(packet)
