"""The connection to one neighbour: who is at the other end, and what goes out as transfers, by credit.

A trunk sends transfers while it has credit; each is a row of packets. Urgent ones may use the last few credits, which
messages may not, so messages do not delay them.

Subclasses turn transfers into bytes: amqp_trunk.py in the product, tests/interrouter/transports.py without AMQP. Read
outgoing.py for the order of packets, network.py for the receiving side.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from interrouter.outgoing import Outgoing
from router.versions import SPOKEN, Versions

if TYPE_CHECKING:
    from amqp10.sasl import ClientMechanism, Offer
    from interrouter.heartbeats import Heartbeats
    from interrouter.session import Session, Sessions
    from interrouter.work import Work

MAX_TRANSFER: Final = 1 << 20
"""Bytes; larger transfers are refused."""
CREDIT: Final = 32
"""Transfers that a neighbour may send before we have read any. With their size it bounds the output that waits."""
RESERVE: Final = 4
"""Credits reserved for urgent packets."""


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


class BaseNetwork(Protocol):
    """The network, as its trunks know it."""

    hello: Hello
    login: Login | None
    sessions: Sessions
    work: Work
    heartbeats: Heartbeats

    def trunk_opened(self, trunk: Trunk, hello: Hello, now: float) -> None: ...
    def trunk_lost(self, trunk: Trunk, reason: str, now: float) -> None: ...
    def fail(self, trunk: Trunk, condition: str, description: str, now: float) -> None: ...
    def transfers(self, trunk: Trunk, payloads: list[bytes], now: float) -> None: ...
    def admits(self, trunk: Trunk) -> bool: ...


class Trunk(ABC):
    """One connection with a neighbour, from its first byte to its end. Made by `Network.connect`."""

    def __init__(self, network: BaseNetwork, *, dialled: str | None, now: float) -> None:
        self.network = network
        self.outgoing = Outgoing(network.sessions)
        self.dialled = dialled
        """The neighbour that we dialled; None if it dialled us."""
        self.neighbour: str | None = None
        """The router at the other end, once it is accepted."""
        self.claimed = "?"
        """The neighbour that it says to be, once it is refused; until then where it is, if the owner says so."""
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

    def accepted(self, hello: Hello, version: int, now: float) -> None:
        """The other end is this neighbour."""
        self.neighbour, self.incarnation, self.version = hello.name, hello.incarnation, version
        self.up = True
        self.last_received = now

    def excuse(self, heard: float) -> None:
        """This process has paused: silence before this time does not count."""
        self.last_received = max(self.last_received, heard)

    def ended(self, reason: str) -> bool:
        """It is over, for this reason unless it was before. Says whether it was up."""
        self.failure = self.failure or reason
        was_up, self.up = self.up, False
        return was_up

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

    def pump(self, now: float) -> None:
        """Send what credit admits."""
        outgoing, room = self.outgoing, self._capacity()
        payloads: list[list[bytes | memoryview]] = []
        while room > 0:
            parts: list[bytes | memoryview] = []
            if room > RESERVE and (outgoing.transit or self.ready):
                outgoing.take_messages(parts, self.ready, now)
            # Taken after the messages, which carry acknowledgements, but put before them in the transfer.
            if self.acks or outgoing.urgent or outgoing.heartbeat or outgoing.opens or outgoing.link_states:
                urgent: list[bytes | memoryview] = []
                outgoing.take_urgent(urgent, self.acks, now)
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
        self.outgoing.check_invariants()
        for session in (*self.ready, *self.acks):
            assert session.closed or session.trunk is self, f"session with {session.peer} takes another trunk"

    def status(self) -> dict[str, Any]:
        return {
            "incarnation": f"{self.incarnation:016x}",
            "up": self.up,
            "version": self.version,
            "dialled": self.dialled is not None,
            "transfers_sent": self.transfers_sent,
            "transfers_received": self.transfers_received,
            "credit": self._capacity(),
            "passing_through_bytes": self.outgoing.transit_bytes,
            "dropped": self.outgoing.dropped,
        }
