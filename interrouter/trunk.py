"""The connection to one neighbour: what waits for it, in which order it is sent, and how it shares transfers.

A trunk sends transfers while it has credit; each is a row of packets. Urgent packets (heartbeat, link states, opens,
acknowledgements) go first and may use the last few credits, which messages may not, so messages do not delay them.
Packets in transit and packets of our own sessions alternate. Our own are taken from their streams only when there is
credit; packets in transit wait here, up to a limit beyond which they are dropped (their sender notices the loss and
slows down). So memory is bounded however slow the neighbour is.

Subclasses turn transfers into bytes: amqp_trunk.py in the product, tests/interrouter/transports.py without AMQP. Read
network.py for the receiving side.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from interrouter.linkstate import LinkState
from interrouter.packets import HEARTBEAT_PACKET, LinkStatePacket, encode_link_state
from router.versions import SPOKEN, Versions

if TYPE_CHECKING:
    from amqp10.sasl import ClientMechanism, Offer
    from interrouter.network import Network
    from interrouter.session import Session

TRANSFER: Final = 64 * 1024
"""Bytes after which a transfer takes no further packet; a packet may exceed them by its last message. Also bytes of
transfers after which one part of what was received ends."""
MAX_TRANSFER: Final = 1 << 20
"""Bytes; larger transfers are refused."""
CREDIT: Final = 32
"""Transfers that a neighbour may send before we have read any. With their size it bounds the output that waits."""
RESERVE: Final = 4
"""Credits reserved for urgent packets."""
TRANSIT_LIMIT: Final = 8 * 1024 * 1024
URGENT_LIMIT: Final = 4096


@dataclass(frozen=True, slots=True)
class Hello:
    """Which router is at one end of a trunk."""

    network: str
    name: str
    incarnation: int
    versions: Versions = SPOKEN
    """Of the wire between routers, that it speaks."""


class Refused(Exception):
    """The other end may not be our neighbour: an AMQP condition, and a description for the other end."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(condition, description)
        self.condition = condition
        self.description = description


class Login(Protocol):
    """How routers show each other that they belong to the network, before the open."""

    def sasl(self, dialled: str | None) -> Offer | ClientMechanism:
        """For one connection: with the neighbour that we dialled, or, None, with one that dialled us. The identity that
        comes of it is the name of the router that dialled."""


class Trunk(ABC):
    """One connection with a neighbour, from its first byte to its end. Made by `Network.connect`."""

    def __init__(self, network: Network, *, server: bool, dialled: str | None, now: float) -> None:
        self.network = network
        self.server = server
        self.dialled = dialled
        """The neighbour that we dialled; None if it dialled us."""
        self.neighbour: str | None = None
        """The router at the other end, once it is accepted."""
        self.claimed: str | None = None
        """The neighbour that it says to be, once it is refused."""
        self.incarnation = 0
        self.version = 0
        """What both ends speak, once the neighbour is accepted."""
        self.last_received = now
        self.last_sent = now
        self.up = False
        self.certified: frozenset[str] | None = None
        """The routers that the other end may be: the owner sets it to those that its certificate names, and to none
        before it is known. None: it is not asked for a certificate."""
        self.failure: str | None = None
        """Why the trunk was closed or refused, by whichever side."""
        self.ready: dict[Session, None] = {}
        """Our own sessions that have something to send over this trunk, next one first."""
        self.acks: dict[Session, None] = {}
        """Sessions to be acknowledged, if no other packet to them does."""
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
        """Process bytes. Never raises for what a peer does."""

    @abstractmethod
    def receive_eof(self, now: float) -> None:
        """The transport is closed: the neighbour is lost at once."""

    @abstractmethod
    def data_to_send(self) -> bytes: ...

    @property
    @abstractmethod
    def more(self) -> bool:
        """Whether something was received that is not handled: it waits for `Network.flush`, and until then no more
        should be read."""

    @abstractmethod
    def go_on(self, now: float) -> None:
        """Handle the next part of what was received."""

    @abstractmethod
    def renew_credit(self) -> None:
        """`Network.admits` messages again."""

    def buffers_to_send(self) -> Sequence[bytes | memoryview]:
        """The same, for a transport that gathers."""
        data = self.data_to_send()
        return (data,) if data else ()

    @abstractmethod
    def next_deadline(self) -> float | None: ...

    @abstractmethod
    def handle_timer(self, now: float) -> None: ...

    @property
    @abstractmethod
    def closed(self) -> bool:
        """The connection has ended: write what `data_to_send` has left, then close the transport."""

    @abstractmethod
    def close(self, condition: str | None = None, description: str = "") -> None:
        """Close the connection, with an error if a condition is given."""

    @abstractmethod
    def _capacity(self) -> int:
        """How many transfers may be sent now."""

    @abstractmethod
    def _transmit(self, payloads: list[list[bytes | memoryview]]) -> None:
        """Send transfers; each payload is in parts."""

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
        """Send what credit admits."""
        room = self._capacity()
        payloads: list[list[bytes | memoryview]] = []
        while room > 0:
            parts: list[bytes | memoryview] = []
            if room > RESERVE and (self._transit or self.ready):
                self._take_messages(parts, now)
            # Taken after the messages, which carry acknowledgements, but put before them in the transfer.
            if self.acks or self._urgent or self._heartbeat or self._opens or self._link_states:
                urgent: list[bytes | memoryview] = []
                self._take_urgent(urgent, now)
                parts = urgent + parts
            if not parts:
                break
            payloads.append(parts)
            room -= 1
        if payloads:
            self.last_sent = now
            self.transfers_sent += len(payloads)
            self._transmit(payloads)

    def check_invariants(self) -> None:
        assert self._transit_bytes == sum(map(len, self._transit)) <= TRANSIT_LIMIT, "bytes in transit are miscounted"
        assert len(self._urgent) <= URGENT_LIMIT, "too many urgent packets"
        for session in (*self.ready, *self.acks):
            assert session.closed or session.trunk is self, f"session with {session.peer} takes another trunk"

    def status(self) -> dict[str, Any]:
        return {
            "incarnation": f"{self.incarnation:016x}",
            "up": self.up,
            "version": self.version,
            "dialled": not self.server,
            "transfers_sent": self.transfers_sent,
            "transfers_received": self.transfers_received,
            "credit": self._capacity(),
            "passing_through_bytes": self._transit_bytes,
            "dropped": self.dropped,
        }

    def _take_messages(self, parts: list[bytes | memoryview], now: float) -> None:
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

    def _take_urgent(self, parts: list[bytes | memoryview], now: float) -> None:
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
            return  # an OPEN must not overtake the link states that make its destination known
        if self._opens:
            parts += self._opens.values()
            self._opens.clear()
        if self.acks:
            parts += self.network.sessions.ack_packet(self.acks)
        while self._urgent and size < TRANSFER:
            packet = self._urgent.popleft()
            parts.append(packet)
            size += len(packet)
