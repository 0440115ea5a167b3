"""Both kinds of link: name, handle, attach and detach (AMQP 2.6.1 to 2.6.6).

Knows the states of one attachment. The owner decides whether a link is attached or refused. A link that is attached
again is a new Link; the owner's unsettled map is what survives (AMQP 2.6.13, recovery.py). Next: sender.py and
receiver.py for credit and transfers.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Any, Final

from amqp10.endpoints import Channel
from amqp10.errors import FrameTooLarge, LocalProtocolError, RemoteProtocolError
from amqp10.frames import FRAME_HEAD_SIZE
from amqp10.incoming import Incoming
from amqp10.outcomes import DeliveryState, Error
from amqp10.outgoing import Outgoing
from amqp10.performatives import RCV_FIRST, SND_MIXED, Attach, Detach, Flow
from amqp10.recovery import split_unsettled
from amqp10.termini import Coordinator, Source, Target

OCTETS: Final = 2 << 10  # of a link beside its name, about


class LinkState(Enum):
    __hash__ = object.__hash__  # faster than Enum's own, which hashes the name

    NEW = auto()  # ours, nothing sent yet
    ATTACH_SENT = auto()
    ATTACH_RECEIVED = auto()  # the owner has yet to answer
    ATTACHED = auto()
    DETACH_SENT = auto()
    DETACHED = auto()


class Step(Enum):
    __hash__ = object.__hash__

    SEND_ATTACH = auto()
    RECEIVE_ATTACH = auto()
    SEND_DETACH = auto()
    RECEIVE_DETACH = auto()  # answered at once, unless our own detach was sent before


NEW: Final = LinkState.NEW
ATTACH_SENT: Final = LinkState.ATTACH_SENT
ATTACH_RECEIVED: Final = LinkState.ATTACH_RECEIVED
ATTACHED: Final = LinkState.ATTACHED
DETACH_SENT: Final = LinkState.DETACH_SENT
DETACHED: Final = LinkState.DETACHED
SEND_ATTACH, RECEIVE_ATTACH, SEND_DETACH, RECEIVE_DETACH = Step

# AMQP 2.6.3, 2.6.5, 2.6.6. Other steps cannot happen, or the session rejects them by their handle.
TRANSITIONS: dict[tuple[LinkState, Step], LinkState] = {
    (NEW, SEND_ATTACH): ATTACH_SENT,
    (NEW, RECEIVE_ATTACH): ATTACH_RECEIVED,
    (ATTACH_SENT, RECEIVE_ATTACH): ATTACHED,
    (ATTACH_SENT, SEND_DETACH): DETACH_SENT,
    (ATTACH_RECEIVED, SEND_ATTACH): ATTACHED,
    (ATTACH_RECEIVED, RECEIVE_DETACH): DETACHED,
    (ATTACHED, SEND_DETACH): DETACH_SENT,
    (ATTACHED, RECEIVE_DETACH): DETACHED,
    (DETACH_SENT, RECEIVE_ATTACH): DETACH_SENT,  # the peer's attach crossed our attach and detach
    (DETACH_SENT, RECEIVE_DETACH): DETACHED,
}


class LinkSession(Channel):
    """A session as its links know it."""

    incoming: Incoming
    outgoing: Outgoing
    links: list[Link]
    """Attached or attaching links; after the session's end, those that existed then."""
    _flows: dict[Link, bool]  # that data_to_send has to write -> echo

    @property
    def ended(self) -> bool:
        """Nothing more can be sent on it."""
        raise NotImplementedError

    def pause_incoming(self) -> None:
        """Stop renewing the incoming window: the peer stops when it has used it up."""
        self.incoming.paused = True

    def resume_incoming(self) -> None:
        """Renew the incoming window again, at once."""
        if self.incoming.paused:
            self.incoming.paused = False
            self._queue_session_flow()

    def widen_incoming(self) -> None:
        """Bound the incoming window in frames only (`window_bytes`), from the next flow on."""
        self.incoming.widen()

    def _free_handle(self, wish: int = 0) -> int:
        """The one wished for, or the lowest; LocalProtocolError when the peer takes no more."""
        raise NotImplementedError

    def _register(self, link: Link) -> None:
        """Our attach is about to be written."""
        raise NotImplementedError

    def _forget(self, link: Link) -> None:
        """Our detach is about to be written: first write the link's pending output."""
        raise NotImplementedError

    def _link_violated(self, link: Link, violation: RemoteProtocolError, events: list[Any]) -> None:
        """The peer broke a rule of this link."""
        raise NotImplementedError

    def _queue_flow(self, link: Link, echo: bool = False) -> None:
        self._flows[link] = self._flows.get(link, False) or echo
        self._has_output()


class Link:
    """One attachment of a link. Made by `session.sender`, `session.receiver`, or by the peer's attach."""

    __slots__ = (
        "_detach_reported",
        "_local_error",
        "_reply_wanted",
        "_state",
        "context",
        "handle",
        "local_attach",
        "name",
        "octets",
        "remote_attach",
        "remote_handle",
        "session",
    )

    is_sender: bool

    def __init__(self, session: LinkSession, name: str) -> None:
        self.session = session
        self.name = name
        self.context: Any = None
        self.local_attach: Attach | None = None
        self.remote_attach: Attach | None = None
        self.octets = 0
        """What it takes, as in `connection.held_size`: from its first attach to the peer's detach."""
        self.handle: int | None = None
        self.remote_handle: int | None = None
        self._state = NEW
        self._local_error: Error | None = None
        self._detach_reported = False
        self._reply_wanted = False  # a flow is due as soon as our attach is sent

    def __repr__(self) -> str:
        kind = "sender" if self.is_sender else "receiver"
        return f"<{kind} {self.name!r} c{self.session.channel} l{self.handle} {self._state.name.lower()}>"

    @property
    def attached(self) -> bool:
        """Both sides have attached, neither has detached, and session and connection exist."""
        return self._state is ATTACHED

    @property
    def detached(self) -> bool:
        """A detach was sent or received, or the session or connection has ended."""
        state = self._state  # of a link that its session knows, DETACHED once the session or connection has ended
        return state is DETACH_SENT or state is DETACHED or (state is NEW and self.session.ended)

    @property
    def snd_settle_mode(self) -> int:
        """The mode in force: the sender's (AMQP 2.7.3), before its attach the one that the receiver asked for."""
        attach = (
            (self.local_attach or self.remote_attach) if self.is_sender else (self.remote_attach or self.local_attach)
        )
        return SND_MIXED if attach is None else attach.snd_settle_mode

    @property
    def rcv_settle_mode(self) -> int:
        """The mode in force: the receiver's (AMQP 2.7.3), before its attach the one that the sender asked for."""
        attach = (
            (self.remote_attach or self.local_attach) if self.is_sender else (self.local_attach or self.remote_attach)
        )
        return RCV_FIRST if attach is None else attach.rcv_settle_mode

    @property
    def remote_max_message_size(self) -> int | None:
        """In bytes; None: no limit (on the wire null or 0, AMQP 2.7.3)."""
        return (self.remote_attach.max_message_size or None) if self.remote_attach is not None else None

    def takes(self, more: int) -> None:
        """The owner keeps so many octets for it, too, or (negative) no more."""
        if self.octets:
            self.octets += more
            self.session.connection.held_size += more

    def attach(
        self,
        *,
        source: Source | None,
        target: Target | Coordinator | None,
        unsettled: Mapping[bytes, DeliveryState | None] | None = None,
        incomplete_unsettled: bool = False,
        properties: Mapping[str, Any] | None = None,
        snd_settle_mode: int | None = None,
        rcv_settle_mode: int | None = None,
        initial_delivery_count: int = 0,
        max_message_size: int | None = None,
        offered_capabilities: Sequence[str] = (),
        desired_capabilities: Sequence[str] = (),
    ) -> None:
        """Send our attach: the first one, or the answer to the peer's.

        Modes None: the peer's, where it has attached, else mixed and first. max_message_size None: on a receiver the
        settings' (a larger message detaches the link), on a sender no limit. FrameTooLarge if the frame would exceed
        the peer's max-frame-size; nothing has been sent then. On a link that has ended nothing happens;
        LocalProtocolError if it is attached already.
        """
        if self.detached:
            return
        attach = self._compose(
            source=source,
            target=target,
            unsettled=unsettled,
            incomplete_unsettled=incomplete_unsettled,
            properties=properties,
            snd_settle_mode=snd_settle_mode,
            rcv_settle_mode=rcv_settle_mode,
            initial_delivery_count=initial_delivery_count,
            max_message_size=max_message_size,
            offered_capabilities=offered_capabilities,
            desired_capabilities=desired_capabilities,
        )
        state = TRANSITIONS.get((self._state, SEND_ATTACH))
        if state is None:
            raise LocalProtocolError(f"{self!r} is attached already")
        attach.handle = self.session._free_handle() if self.handle is None else self.handle
        body = attach.encode()
        room = self.session.connection.remote_max_frame_size
        if self.session.connection.remote_open is not None and len(body) + FRAME_HEAD_SIZE > room:
            raise FrameTooLarge(f"attach of {self.name!r}: {len(body)} bytes, the peer takes frames of {room}")
        self._state = state
        self.handle = attach.handle
        self.local_attach = attach
        self._start(attach, local=True)
        self.session._register(self)
        self.session._write(body)
        if self._reply_wanted:
            self._reply_wanted = False
            self.session._queue_flow(self)

    def split_unsettled(
        self, unsettled: Mapping[bytes, DeliveryState | None], **attach: Any
    ) -> list[dict[bytes, DeliveryState | None]]:
        """The map in parts that each fit into one attach with these arguments (those of `attach`); one if all fits.

        All parts but the last are sent with incomplete_unsettled = True (AMQP 2.7.3), each in an attach of its own,
        with a detach (closed = False) after it."""
        empty = self._compose(**{"initial_delivery_count": 0, **attach, "unsettled": {}, "incomplete_unsettled": True})
        empty.handle = 0xFFFFFFFF
        room = self.session.connection.remote_max_frame_size - FRAME_HEAD_SIZE - len(empty.encode())
        return split_unsettled(unsettled, room - 16)  # 16: list and map headers grow from 1 to 4 bytes

    def refuse(self, condition: str, description: str, info: Mapping[str, Any] | None = None) -> None:
        """Answer the peer's attach with a null terminus, then detach it, closed, with this error (AMQP 2.6.3)."""
        if self._state is ATTACH_RECEIVED:
            self._attach_nothing()
        self.detach(Error(condition, description, dict(info) if info is not None else None), closed=True)

    def detach(self, error: Error | None = None, closed: bool = True) -> None:
        """Send detach; LinkDetached follows with the peer's answer. On a link that has ended nothing happens."""
        if self.detached or self._state is NEW:
            return
        if self._state is ATTACH_RECEIVED:
            self._attach_nothing()
        self._local_error = error
        self._send_detach(error, closed)
        self._state = TRANSITIONS[self._state, SEND_DETACH]

    # For the session --------------------------------------------------------------------------------------------

    def _compose(self, **fields: Any) -> Attach:
        remote = self.remote_attach
        if fields.get("snd_settle_mode") is None:
            fields["snd_settle_mode"] = SND_MIXED if remote is None else remote.snd_settle_mode
        if fields.get("rcv_settle_mode") is None:
            fields["rcv_settle_mode"] = RCV_FIRST if remote is None else remote.rcv_settle_mode
        if fields.get("max_message_size") is None and not self.is_sender:
            fields["max_message_size"] = self.session.connection.settings.max_message_size
        if not self.is_sender:
            fields["initial_delivery_count"] = None  # AMQP 2.7.3: only the sender's attach has it
        for name in ("offered_capabilities", "desired_capabilities"):
            fields[name] = tuple(fields.get(name) or ())
        for name in ("unsettled", "properties"):
            value = fields.get(name)
            fields[name] = None if value is None else dict(value)
        return Attach(name=self.name, handle=0, role=not self.is_sender, **fields)

    def _entered(self) -> None:
        """Its session knows it from now on."""
        self.octets = OCTETS + sys.getsizeof(self.name)
        self.session.connection.held_size += self.octets

    def _left(self) -> None:
        self.session.connection.held_size -= self.octets
        self.octets = 0

    def _attach_nothing(self) -> None:
        """The answer that refuses a link: our own terminus is null (AMQP 2.6.3)."""
        assert self.remote_attach is not None
        source = None if self.is_sender else self.remote_attach.source
        target = self.remote_attach.target if self.is_sender else None
        try:
            self.attach(source=source, target=target)
        except FrameTooLarge:  # the peer's own terminus exceeds its max-frame-size
            self.attach(source=None, target=None)

    def _received_attach(self, attach: Attach) -> None:
        self._state = TRANSITIONS[self._state, RECEIVE_ATTACH]
        self.remote_attach = attach
        self.remote_handle = attach.handle
        self._start(attach, local=False)

    def _received_detach(self, detach: Detach) -> None:
        if self._state is ATTACH_RECEIVED:
            self._attach_nothing()
        if self._state is ATTACHED:
            self._send_detach(None, detach.closed)
        self._state = TRANSITIONS[self._state, RECEIVE_DETACH]
        self._stop()

    def _violated(self, violation: RemoteProtocolError, events: list[Any]) -> None:
        self.session._link_violated(self, violation, events)

    def _send_detach(self, error: Error | None, closed: bool) -> None:
        assert self.handle is not None
        self._stop()
        self.session._forget(self)
        self.session._write(self.session.connection._encode_within_frame(Detach(self.handle, closed, error)))

    def check_invariants(self) -> None:
        """Credit and counts are consistent."""
        raise NotImplementedError

    # Different for the two kinds ------------------------------------------------------------------------

    def _start(self, attach: Attach, *, local: bool) -> None:
        """An attach, ours or the peer's, sets counts and limits."""
        raise NotImplementedError

    def _stop(self) -> None:
        """The link has ended: drop what is in progress."""
        raise NotImplementedError

    def _session_ended(self) -> None:
        """The session or connection has ended."""
        self._state = DETACHED
        self._stop()

    def _received_flow(self, flow: Flow) -> None:
        raise NotImplementedError

    def _flow_fields(self) -> dict[str, Any]:
        """Our side's state for a flow frame (AMQP 2.7.4)."""
        raise NotImplementedError
