"""Sessions with all routers that can be reached: beginning, acknowledging, asking, giving up (PROTOCOL 3.2).

A session belongs to one incarnation of each side and to one number of each side; a side takes a new, larger number for
every session it begins. Both say OPEN(own number, the other's as known); whoever reads its own current number in the
other's OPEN is up, and so is whoever gets a packet with the session's token (a hash of both incarnations and numbers):
the other can only know it from us. A side that gives a session up begins the next one with a new number, and an OPEN
with a larger number than the session's ends it here too. So two sides never mean different sessions by one token, and
whatever is still under way of an old one matches nothing.

    no path -> begin: opening -> (OPEN with our number | token) up -> (larger number | silent | no path | reset) over

Knows time as it comes in, and of paths only which trunk a session's packets take. Read stream.py for what a stream
does, trunk.py for who sends when, network.py for what calls this.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from interrouter.events import NetworkEvent, PeerDown, PeerMessage, PeerUp
from interrouter.packets import (
    ACK,
    GAP,
    MORE,
    PROBE,
    STREAM,
    BodyError,
    Entry,
    OpenPacket,
    decode_body,
    encode_stream,
)
from interrouter.paths import Path
from interrouter.stream import IncomingStream, Item, OutgoingStream, StreamError, fragments

if TYPE_CHECKING:
    from interrouter.trunk import Trunk

BATCH: Final = 64 * 1024  # octets of messages in one packet; the last one may exceed it
BATCH_ITEMS: Final = 1024
ACK_SHARE: Final = 16  # at least so many acknowledgements per window


class Session:
    """With one peer incarnation, under one number of ours. A new number is a new Session."""

    __slots__ = (
        "ack_at",
        "announced",
        "candidate",
        "closed",
        "heard",
        "incarnation",
        "incoming",
        "number",
        "out",
        "path",
        "peer",
        "probe_at",
        "probe_due",
        "probe_s",
        "spoke",
        "token",
        "trunk",
        "unacked",
        "up",
    )

    def __init__(self, peer: str, incarnation: int, number: int, window: int, now: float) -> None:
        self.peer = peer
        self.incarnation = incarnation
        self.number = number
        self.candidate = 0
        """The peer's largest number seen in this session; 0: none yet. The peer's number, once up."""
        self.token = 0
        self.up = False
        self.announced = False
        """The owner has taken PeerUp: what it sends from now on is meant for this session."""
        self.closed = False
        self.out = OutgoingStream(window)
        self.incoming = IncomingStream()
        self.trunk: Trunk | None = None
        self.path: Path | None = None
        self.heard = now
        self.spoke = now
        self.unacked = 0
        self.ack_at: float | None = None
        self.probe_at: float | None = None
        self.probe_s = 0.0
        self.probe_due = False


class Sessions:
    """All sessions of one router, and the events they cause."""

    def __init__(
        self,
        incarnation: int,
        send_open: Callable[[OpenPacket], None],
        wake: Callable[[Trunk], None],
        *,
        window: int,
        heartbeat_s: float,
        dead_after_s: float,
        probe_after_s: float,
        ack_delay_s: float,
    ) -> None:
        self.by_peer: dict[str, Session] = {}
        self.resets = 0
        self._incarnation = incarnation
        self._by_incarnation: dict[int, Session] = {}
        self._by_token: dict[int, Session] = {}
        self._send_open = send_open
        self._wake = wake
        self._window = window
        self._ack_bytes = window // ACK_SHARE
        self._heartbeat_s = heartbeat_s
        self._dead_after_s = dead_after_s
        self._probe_after_s = probe_after_s
        self._ack_delay_s = ack_delay_s
        self._number = 0
        self.events: list[NetworkEvent] = []
        """What waits to be taken."""
        self._ups: deque[Session] = deque()  # for each PeerUp that waits to be taken
        self._acks: dict[Session, None] = {}  # to be acknowledged at ack_at, earliest first
        self._next_probe: float | None = None  # no session asks before

    # The owner ---------------------------------------------------------------------------------------------------

    def take_events(self) -> list[NetworkEvent]:
        """Those up to the next PeerUp of a peer that the list tells of already: what the owner sends while it works
        through one list is then never meant for an older session than it gets into."""
        events = self.events
        if not self._ups:
            self.events = []
            return events
        told: set[str] = set()
        for index, event in enumerate(events):
            if event.__class__ is PeerUp:
                if event.peer in told:
                    self.events = events[index:]
                    return events[:index]
                self._ups.popleft().announced = True
            told.add(event.peer)
        self.events = []
        return events

    def send(self, peers: tuple[str, ...], message: bytes, now: float) -> None:
        items = fragments(message)
        size = len(message)
        for peer in peers:
            session = self.by_peer.get(peer)
            if session is not None and session.announced and session.up:
                session.out.put(items, size)
                self._ready(session)

    def reset(self, peer: str, now: float) -> None:
        """Give the session up and begin a new one; what came in it and was not taken is gone."""
        session = self.by_peer.get(peer)
        if session is not None and session.up:
            self.resets += 1
            if session.announced:
                self.events = [e for e in self.events if e.peer != peer or e.__class__ is not PeerMessage]
            self._renew(session, now)

    # Paths -------------------------------------------------------------------------------------------------------

    def reachable(self, peers: Mapping[str, tuple[int, Path, Trunk]], now: float) -> None:
        """Paths as of now: peer -> incarnation, path, trunk of the first hop."""
        for session in list(self.by_peer.values()):
            there = peers.get(session.peer)
            if there is None or there[0] != session.incarnation:
                self._end(session, reachable=False)
        for peer, (incarnation, path, trunk) in peers.items():
            known = self.by_peer.get(peer)
            if known is None:
                self._begin(peer, incarnation, path, trunk, now)
                continue
            if known.trunk is trunk and known.path == path:
                continue
            if known.trunk is not None and known.trunk is not trunk:
                known.trunk.ready.pop(known, None)
                if known in known.trunk.acks:
                    del known.trunk.acks[known]
                    self._acknowledge(known, trunk)
            known.path, known.trunk = path, trunk
            if not known.up:
                self._say_open(known)
            elif known.out.sent:  # what is under way may be lost with the old path
                known.probe_due = True
            self._ready(known)

    # Packets -----------------------------------------------------------------------------------------------------

    def open_received(self, packet: OpenPacket, now: float) -> None:
        session = self._by_incarnation.get(packet.source)
        if session is None or packet.number < session.candidate:
            return  # unknown here: it hears from us when we learn of it
        if session.up:
            if packet.number == session.candidate:
                self._acknowledge(session, session.trunk)  # it may still wait for the token
                return
            self.resets += 1
            session = self._renew(session, now)
        if packet.number > session.candidate:
            self._by_token.pop(session.token, None)
            session.candidate = packet.number
            session.token = _token((self._incarnation, session.number), (session.incarnation, packet.number))
            self._by_token[session.token] = session
        if packet.echo == session.number:
            self._go_up(session, now)
            self._acknowledge(session, session.trunk)
        else:
            self._say_open(session)

    def received(self, entry: Entry, kind: int, payload: bytes, body: int, end: int, now: float) -> None:
        """Our entry of a STREAM or ACK."""
        _, token, first, acknowledged, round_, gap_round, flags = entry
        session = self._by_token.get(token)
        if session is None:
            return
        if not session.up:
            self._go_up(session, now)
        session.heard = now
        try:
            self._acknowledged(session, acknowledged, gap_round, flags, now)
            if kind == STREAM:
                self._stream(session, first, round_, flags, payload, body, end, now)
        except (StreamError, BodyError):
            self.resets += 1
            self._renew(session, now)

    def next_packet(self, ready: dict[Session, None], now: float) -> list[bytes] | None:
        """A STREAM packet of the sessions whose turn it is, as parts; those with nothing left to send leave `ready`."""
        while ready:
            session = next(iter(ready))
            del ready[session]
            if session.closed:
                continue
            if session.probe_due:
                session.probe_due = False
                ready[session] = None
                self._ask_later(session, now)
                return encode_stream(STREAM, [self._entry(session, session.out.position, PROBE, now)], (), ())
            item = session.out.peek()
            if item is None:
                continue
            group = [session]
            if ready:
                group += [s for s in ready if s.out.peek() is item and not s.probe_due]
            return self._batch(group, item, ready, now)
        return None

    def ack_packet(self, sessions: dict[Session, None], now: float) -> list[bytes]:
        """One ACK for these."""
        return encode_stream(ACK, [self._entry(s, 0, 0, now) for s in list(sessions)], (), ())

    # Time --------------------------------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        probe = self._next_probe
        if self._acks:
            ack = next(iter(self._acks)).ack_at
            assert ack is not None
            return ack if probe is None else min(ack, probe)
        return probe

    def tick(self, now: float) -> None:
        for session in list(self._acks):
            assert session.ack_at is not None
            if session.ack_at > now:
                break
            self._acknowledge(session, session.trunk)
        if self._next_probe is not None and now >= self._next_probe:
            waiting = [s for s in self.by_peer.values() if s.probe_at is not None]
            self._next_probe = None
            for session in waiting:
                assert session.probe_at is not None
                if session.probe_at <= now:
                    session.probe_due = True
                    session.probe_s = min(session.probe_s * 2, 8 * self._probe_after_s)
                    session.probe_at = now + session.probe_s
                    self._ready(session)
                self._note_probe(session.probe_at)

    def beat(self, now: float) -> None:
        """Once per heartbeat: say something where nothing was said, give up where nothing was heard."""
        for session in list(self.by_peer.values()):
            if not session.up:
                self._say_open(session)
            elif now >= session.heard + self._dead_after_s:  # exactly as earliest_death has it
                self.resets += 1
                self._renew(session, now)
            elif now - session.spoke >= 0.9 * self._heartbeat_s:
                self._acknowledge(session, session.trunk)

    def stalled(self, heard: float) -> None:
        """We did not run ourselves: nobody is to blame for silence before this time."""
        for session in self.by_peer.values():
            session.heard = max(session.heard, heard)

    def earliest_death(self) -> float | None:
        heard = min([s.heard for s in self.by_peer.values() if s.up], default=None)
        return None if heard is None else heard + self._dead_after_s

    def status(self) -> dict[str, Any]:
        return {
            s.peer: {
                "incarnation": s.incarnation,
                "up": s.up,
                "number": s.number,
                "sent": s.out.position,
                "received": s.incoming.expected,
                "unacknowledged_messages": len(s.out.flight),
                "unacknowledged_bytes": s.out.unacknowledged_bytes,
                "waiting_messages": len(s.out.backlog),
                "waiting_bytes": s.out.backlog_bytes,
                "window_bytes": s.out.window,
                "sent_again": s.out.resent,
            }
            for s in sorted(self.by_peer.values(), key=lambda s: s.peer)
        }

    # Beginning and ending ----------------------------------------------------------------------------------------

    def _begin(self, peer: str, incarnation: int, path: Path, trunk: Trunk, now: float) -> Session:
        self._number += 1
        session = Session(peer, incarnation, self._number, self._window, now)
        session.path, session.trunk = path, trunk
        session.probe_s = self._probe_after_s
        self.by_peer[peer] = self._by_incarnation[incarnation] = session
        self._say_open(session)
        return session

    def _go_up(self, session: Session, now: float) -> None:
        if not session.up:
            session.up = True
            session.heard = now
            self._ups.append(session)
            self.events.append(PeerUp(session.peer, session.incarnation))

    def _renew(self, session: Session, now: float) -> Session:
        """Over; the next one begins with the same incarnation."""
        assert session.path is not None
        assert session.trunk is not None
        self._end(session, reachable=True)
        return self._begin(session.peer, session.incarnation, session.path, session.trunk, now)

    def _end(self, session: Session, *, reachable: bool) -> None:
        session.closed = True
        del self.by_peer[session.peer]
        del self._by_incarnation[session.incarnation]
        self._by_token.pop(session.token, None)
        self._acks.pop(session, None)
        if session.trunk is not None:
            session.trunk.ready.pop(session, None)
            session.trunk.acks.pop(session, None)
        if session.up:
            session.up = False
            self.events.append(PeerDown(session.peer, reachable))

    def _say_open(self, session: Session) -> None:
        self._send_open(OpenPacket(self._incarnation, session.incarnation, session.number, session.candidate))

    # Streams -----------------------------------------------------------------------------------------------------

    def _ready(self, session: Session) -> None:
        trunk = session.trunk
        if trunk is not None and session not in trunk.ready and (session.probe_due or session.out.peek() is not None):
            trunk.ready[session] = None
            self._wake(trunk)

    def _batch(self, group: list[Session], item: Item, ready: dict[Session, None], now: float) -> list[bytes]:
        leader = group[0].out
        outs = [session.out for session in group]
        entries = [self._entry(session, session.out.position, 0, now) for session in group]
        lengths: list[int] = []
        bodies: list[bytes] = []
        size = 0
        following: Item | None = item
        while following is not None:
            body, more = following
            lengths.append(len(body) | MORE if more else len(body))
            bodies.append(body)
            size += len(body)
            for out in outs:
                out.take()
            following = leader.peek()
            if size >= BATCH or len(bodies) >= BATCH_ITEMS:
                break
            if following is not None and (
                size + len(following[0]) > BATCH or any(out.peek() is not following for out in outs)
            ):
                break
        for session in group:
            ready.pop(session, None)
            if session.out.peek() is not None:
                ready[session] = None
            if session.probe_at is None:
                self._ask_later(session, now)
        return encode_stream(STREAM, entries, lengths, bodies)

    def _entry(self, session: Session, first: int, flags: int, now: float) -> Entry:
        """Everything that is said to this session carries its acknowledgement."""
        incoming = session.incoming
        gap = incoming.gap
        if gap is None:
            gap = 0
        else:
            flags |= GAP
            incoming.gap = None
        if session.ack_at is not None:
            session.ack_at = None
            del self._acks[session]
        session.unacked = 0
        session.spoke = now
        if session.trunk is not None:
            session.trunk.acks.pop(session, None)
        return (session.incarnation, session.token, first, incoming.expected, session.out.round, gap, flags)

    def _acknowledged(self, session: Session, upto: int, gap_round: int, flags: int, now: float) -> None:
        out = session.out
        if upto > out.acked and out.acknowledged(upto):
            session.probe_s = self._probe_after_s
            session.probe_at = None
            if out.sent:
                self._ask_later(session, now)
            self._ready(session)
        if flags & GAP and upto == out.acked and out.gap(gap_round):
            session.probe_at = None
            self._ready(session)

    def _stream(
        self, session: Session, first: int, round_: int, flags: int, payload: bytes, body: int, end: int, now: float
    ) -> None:
        incoming = session.incoming
        lengths, offset = decode_body(payload, body, end)
        probe = bool(flags & PROBE)
        if incoming.missing(first, round_, probe):
            if incoming.gap is not None:
                self._acknowledge(session, session.trunk)
            return
        known = incoming.expected - first
        if probe or known >= len(lengths):
            self._acknowledge(session, session.trunk)
        events = self.events
        for index, length in enumerate(lengths):
            stop = offset + (length & ~MORE)
            if index >= known:
                message = incoming.part(payload[offset:stop], length >= MORE)
                if message is not None:
                    events.append(PeerMessage(session.peer, message))
            offset = stop
        session.unacked += end - body
        if session.unacked >= self._ack_bytes:
            self._acknowledge(session, session.trunk)
        elif session.ack_at is None and known < len(lengths):
            session.ack_at = now + self._ack_delay_s
            self._acks[session] = None

    def _acknowledge(self, session: Session, trunk: Trunk | None) -> None:
        """With the next packet to it, or by an ACK at the next flush."""
        if session.ack_at is not None:
            session.ack_at = None
            del self._acks[session]
        if trunk is not None:
            trunk.acks[session] = None
            self._wake(trunk)

    def _ask_later(self, session: Session, now: float) -> None:
        session.probe_at = now + session.probe_s
        self._note_probe(session.probe_at)

    def _note_probe(self, at: float) -> None:
        if self._next_probe is None or at < self._next_probe:
            self._next_probe = at


def _token(one: tuple[int, int], other: tuple[int, int]) -> int:
    """Both sides compute the same from (incarnation, number) of each."""
    text = b"".join(value.to_bytes(8, "big") for pair in sorted((one, other)) for value in pair)
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big")
