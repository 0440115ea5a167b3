"""Sessions with all reachable routers: begin, acknowledge, probe, end (protocol 3.2).

A session belongs to one incarnation and one number of each side; a side takes a new, larger number for every session
that it begins. Both send OPEN(own number, the other's as known). A side is up when it reads its own current number in
the other's OPEN, or receives a packet with the session's token, a hash of both incarnations and numbers, which the
other can only know from that number. A side that abandons a session begins the next one with a new number, and an OPEN
with a larger number than the session's ends it at the other side too. So both sides mean the same session by a token,
and packets of an old session match none.

The first byte of a number says which version its side speaks, so that both know the version of a session before the
first message (docs/wire-routers.md, Versions).

    no path -> begin: opening -> (OPEN with our number | token) up -> (larger number | silent | no path | reset) ended

Time comes in as `now`; of paths only the first trunk is known here. Read stream.py for the streams, trunk.py for the
order of sending, network.py for the caller.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Protocol

from interrouter.events import NetworkEvent, PeerDown, PeerMessage, PeerUp
from interrouter.linkstate import Path
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
from interrouter.stream import FRAGMENT, IncomingStream, Item, OutgoingStream, Parts, StreamError, fragments
from interrouter.waiting import PART_EVENTS, PART_OCTETS, Waiting
from router.versions import FIRST, Versions

BATCH: Final = 64 * 1024  # bytes of messages in one packet; the last one may exceed it
BATCH_ITEMS: Final = 1024
PROBE_AFTER: Final = 0.4  # heartbeats
ACK_DELAY: Final = 0.1
ACK_SHARE: Final = 16  # acknowledgements per window, at least
COUNT_BITS: Final = 56  # of a session's number; above them is the newest version that its side speaks, less FIRST


class Timers(NamedTuple):
    """How long a router waits for others, and how far it goes ahead of them."""

    heartbeat_s: float = 0.5
    dead_after_s: float = 3.0
    probe_after_s: float | None = None
    """How long a sender waits for an acknowledgement before it sends a PROBE; None: less than a heartbeat."""
    window: int = 4 * 1024 * 1024
    """Octets of one session that may be under way."""


USUAL: Final = Timers()


class FirstHop(Protocol):
    """A trunk, as the sessions that send over it know it. Both are its own sessions: those with something to send, next
    one first, and those to be acknowledged."""

    ready: dict[Session, None]
    acks: dict[Session, None]


class Session:
    """A session with one incarnation of a peer, under one number of ours. A new number is a new Session."""

    __slots__ = ("ack_at", "announced", "began", "candidate", "closed", "silent_since", "incarnation", "incoming",
                 "number", "out", "path", "peer", "probe_at", "probe_due", "probe_s", "token", "trunk", "unacked",
                 "up", "version")  # fmt: skip

    def __init__(self, peer: str, incarnation: int, number: int, window: int, now: float) -> None:
        self.peer = peer
        self.incarnation = incarnation
        self.number = number
        self.candidate = 0
        """The largest number of the peer seen so far, 0 if none; once up, the peer's number in this session."""
        self.token = 0
        self.version = 0
        """Of the wire between routers, in this session; known with the peer's number."""
        self.up = False
        self.announced = False
        """The owner has taken PeerUp: what it sends from now on belongs to this session."""
        self.closed = False
        self.out = OutgoingStream(window)
        self.incoming = IncomingStream()
        self.trunk: FirstHop | None = None
        self.path: Path | None = None
        self.began = now
        self.silent_since = now
        """When the peer was heard last, or when we began to wait for an acknowledgement, whichever came later."""
        self.unacked = 0
        self.ack_at: float | None = None
        self.probe_at: float | None = None
        """When to ask for the acknowledgement that we wait for; None: everything sent is acknowledged."""
        self.probe_s = 0.0
        self.probe_due = False


class Sessions:
    """All sessions of one router, and the events they cause."""

    def __init__(
        self,
        incarnation: int,
        versions: Versions,
        send_open: Callable[[OpenPacket], None],
        wake: Callable[[Any], None],
        timers: Timers,
    ) -> None:
        self.by_peer: dict[str, Session] = {}
        self.resets = 0
        self._incarnation = incarnation
        self._by_incarnation: dict[int, Session] = {}
        self._by_token: dict[int, Session] = {}
        self._send_open = send_open
        self._schedule = wake
        self._window = timers.window
        self._ack_bytes = timers.window // ACK_SHARE
        self.set_timers(timers.heartbeat_s, timers.dead_after_s)
        if timers.probe_after_s is not None:
            self._probe_after_s = timers.probe_after_s
        self._versions = versions
        self._number = (versions.newest - FIRST) << COUNT_BITS
        self.events: list[NetworkEvent] = []
        """Those since the owner has taken some."""
        self.waiting = Waiting()
        """Earlier ones that it has not taken, as they are more than a part."""
        self._octets = 0  # of the messages in `events`, with their lengths
        self._ups: deque[Session] = deque()  # for each PeerUp in `events` and `waiting`
        self._acks: dict[Session, None] = {}  # to be acknowledged at ack_at, earliest first
        self._next_probe: float | None = None  # no session probes before

    def set_timers(self, heartbeat_s: float, dead_after_s: float) -> None:
        self._dead_after_s = dead_after_s
        self._probe_after_s = PROBE_AFTER * heartbeat_s
        self._ack_delay_s = ACK_DELAY * heartbeat_s

    # The owner ---------------------------------------------------------------------------------------------------

    @property
    def backlog(self) -> int:
        """Octets of messages that the owner has not taken."""
        return self._octets + self.waiting.octets

    def take_events(self) -> list[NetworkEvent]:
        """Events up to the next PeerUp of a peer that is in the list already: so what the owner sends while it handles
        one list always belongs to the session that it means. More than a part are taken in several."""
        events = self.events
        if self.waiting.by_peer or len(events) > PART_EVENTS or self._octets > PART_OCTETS:
            return self._take_part()
        self._octets = 0
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

    def _take_part(self) -> list[NetworkEvent]:
        self.waiting.put(self.events)
        self.events = []
        self._octets = 0
        part = self.waiting.take()
        if self._ups:
            for event in part:
                if event.__class__ is PeerUp:
                    session = next(session for session in self._ups if session.peer == event.peer)
                    self._ups.remove(session)
                    session.announced = True
        return part

    def send(self, peers: tuple[str, ...], message: Parts) -> None:
        if isinstance(message, bytes) and len(message) <= FRAGMENT:
            items: list[Item] = [(message, False)]
            size = len(message)
        else:
            items = fragments(message)
            size = sum([len(body) for body, _ in items])
        for peer in peers:
            session = self.by_peer.get(peer)
            if session is not None and session.announced and session.up:
                session.out.put(items, size)
                if session.trunk is not None and session not in session.trunk.ready:
                    self._ready(session)

    def reset(self, peer: str, now: float) -> None:
        """End the session and begin a new one; messages of it that have not been taken are lost."""
        session = self.by_peer.get(peer)
        if session is not None and session.up:
            self.resets += 1
            if session.announced:
                self.events = [e for e in self.events if e.peer != peer or e.__class__ is not PeerMessage]
                self.waiting.drop_messages(peer)
            self._restart(session, now)

    # Paths -------------------------------------------------------------------------------------------------------

    def reachable(self, peers: Mapping[str, tuple[int, Path, FirstHop]], now: float) -> None:
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
                self._queue_open(known)
            elif known.out.sent:  # what is under way may have been lost with the old path
                known.probe_due = True
            self._ready(known)

    # Packets -----------------------------------------------------------------------------------------------------

    def open_received(self, packet: OpenPacket, now: float) -> None:
        session = self._by_incarnation.get(packet.source)
        if session is None or packet.number < session.candidate:
            return  # unknown here: we send it an OPEN when we learn of it
        theirs = FIRST + (packet.number >> COUNT_BITS)
        if theirs < self._versions.oldest:
            return  # there is nothing that both speak
        if session.up:
            if packet.number == session.candidate:
                self._acknowledge(session, session.trunk)  # it may not have received the token
                return
            self.resets += 1
            session = self._restart(session, now)
        if packet.number > session.candidate:
            self._by_token.pop(session.token, None)
            session.candidate = packet.number
            session.version = min(theirs, self._versions.newest)
            session.token = _token((self._incarnation, session.number), (session.incarnation, packet.number))
            self._by_token[session.token] = session
        if packet.echo == session.number:
            self._mark_up(session, now)
            self._acknowledge(session, session.trunk)
        else:
            self._queue_open(session)

    def received(self, entry: Entry, kind: int, payload: bytes, body: int, end: int, now: float) -> None:
        """Our entry of a STREAM or ACK."""
        session = self._by_token.get(entry[1])
        if session is None:
            return
        if not session.up:
            self._mark_up(session, now)
        session.silent_since = now
        try:
            self._acknowledged(session, entry, now)
            if kind == STREAM:
                self._stream_received(session, entry, payload, body, end, now)
        except (StreamError, BodyError):
            self.resets += 1
            self._restart(session, now)

    def next_packet(self, ready: dict[Session, None], now: float) -> list[bytes | memoryview] | None:
        """The next STREAM packet, in parts, of the first session in `ready` and those that send the same. Sessions with
        nothing left to send leave `ready`."""
        while ready:
            session = next(iter(ready))
            del ready[session]
            if session.closed:
                continue
            if session.probe_due:
                session.probe_due = False
                ready[session] = None
                self._schedule_probe(session, now)
                return encode_stream(STREAM, [self._entry(session, session.out.position, PROBE)], (), ())
            item = session.out.peek()
            if item is None:
                continue
            group = [session]
            if ready:
                group += [s for s in ready if s.out.next_is(item) and not s.probe_due]
            return self._batch(group, item, ready, now)
        return None

    def ack_packet(self, sessions: dict[Session, None]) -> list[bytes | memoryview]:
        """One ACK packet for these sessions."""
        return encode_stream(ACK, [self._entry(s, 0, 0) for s in list(sessions)], (), ())

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

    def heartbeat(self, now: float) -> None:
        """Once per heartbeat: opens are repeated, and sessions end whose peer does not acknowledge (protocol 3.2.2)."""
        for session in list(self.by_peer.values()):
            if not session.up:
                self._queue_open(session)
            elif session.probe_at is not None and now >= session.silent_since + self._dead_after_s:  # see next_silence
                self.resets += 1
                self._restart(session, now)

    def process_resumed(self, heard: float) -> None:
        """This process had paused: silence before this time does not count."""
        for session in self.by_peer.values():
            session.silent_since = max(session.silent_since, heard)

    def next_silence(self) -> float | None:
        waiting = [s.silent_since for s in self.by_peer.values() if s.up and s.probe_at is not None]
        return min(waiting) + self._dead_after_s if waiting else None

    def status(self) -> dict[str, Any]:
        return {
            s.peer: {
                "incarnation": f"{s.incarnation:016x}",
                "up": s.up,
                "version": s.version or None,
                "number": s.number & (1 << COUNT_BITS) - 1,
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

    def check_invariants(self) -> None:
        for peer, session in self.by_peer.items():
            assert session.peer == peer, f"session with {session.peer} is registered for {peer}"
            assert not session.closed, f"session with {peer} has ended and is registered"
            assert self._by_incarnation.get(session.incarnation) is session
            assert not session.up or self._by_token.get(session.token) is session, f"{peer} is up without a token"
            assert (session.ack_at is not None) == (session in self._acks), f"acknowledgement to {peer} is not due"
            assert not session.announced or session.up, f"{peer} is announced and not up"
            session.out.check_invariants()
            session.incoming.check_invariants()
        assert len(self.by_peer) == len(self._by_incarnation), "sessions by peer and by incarnation differ"
        self.waiting.check_invariants()

    def check_against(self, other: Sessions) -> None:
        """What must hold between the two ends of a session: acknowledged <= received <= sent, in both directions."""
        ours, theirs = self._by_incarnation.get(other._incarnation), other._by_incarnation.get(self._incarnation)
        if ours is None or theirs is None or ours.token != theirs.token:
            return
        for sender, receiver in ((ours, theirs), (theirs, ours)):
            out, received = sender.out, receiver.incoming.expected
            text = f"{out.acked} acknowledged, {received} received, {out.acked + len(out.flight)} sent to {sender.peer}"
            assert out.acked <= received <= out.acked + len(out.flight), text

    # Beginning and ending ----------------------------------------------------------------------------------------

    def _begin(self, peer: str, incarnation: int, path: Path, trunk: FirstHop, now: float) -> Session:
        self._number += 1
        session = Session(peer, incarnation, self._number, self._window, now)
        session.path, session.trunk = path, trunk
        session.probe_s = self._probe_after_s
        self.by_peer[peer] = self._by_incarnation[incarnation] = session
        self._queue_open(session)
        return session

    def _mark_up(self, session: Session, now: float) -> None:
        if not session.up:
            session.up = True
            session.silent_since = now
            self._ups.append(session)
            self.events.append(PeerUp(session.peer, session.incarnation, session.began, session.version))

    def _restart(self, session: Session, now: float) -> Session:
        """End the session and begin the next with the same incarnation."""
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

    def _queue_open(self, session: Session) -> None:
        self._send_open(OpenPacket(self._incarnation, session.incarnation, session.number, session.candidate))

    # Streams -----------------------------------------------------------------------------------------------------

    def _ready(self, session: Session) -> None:
        trunk = session.trunk
        if trunk is not None and session not in trunk.ready and (session.probe_due or session.out.peek() is not None):
            trunk.ready[session] = None
            self._schedule(trunk)

    def _batch(
        self, group: list[Session], item: Item, ready: dict[Session, None], now: float
    ) -> list[bytes | memoryview]:
        leader = group[0].out
        entries: list[Entry] = []
        others: list[OutgoingStream] = []  # than the leader
        for session in group:
            if entries:
                others.append(session.out)
            entries.append(self._entry(session, session.out.position, 0))
        lengths: list[int] = []
        bodies: list[bytes | memoryview] = []
        size = 0
        following: Item | None = item
        while following is not None:
            body, more = following
            lengths.append(len(body) | MORE if more else len(body))
            bodies.append(body)
            size += len(body)
            for out in others:
                out.take()
            following = leader.take()
            if size >= BATCH or len(bodies) >= BATCH_ITEMS:
                break
            if following is not None and (
                size + len(following[0]) > BATCH or (others and not all(out.next_is(following) for out in others))
            ):
                break
        for session in group:
            ready.pop(session, None)
            if session.out.peek() is not None:
                ready[session] = None
            if session.probe_at is None:
                session.silent_since = now
                self._schedule_probe(session, now)
        return encode_stream(STREAM, entries, lengths, bodies)

    def _entry(self, session: Session, first: int, flags: int) -> Entry:
        """The entry of a packet to this session; it always carries the acknowledgement."""
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
        if session.trunk is not None:
            session.trunk.acks.pop(session, None)
        return (session.incarnation, session.token, first, incoming.expected, session.out.round, gap, flags)

    def _acknowledged(self, session: Session, entry: Entry, now: float) -> None:
        _, _, _, upto, _, gap_round, flags = entry
        out = session.out
        if upto > out.acked and out.acknowledged(upto):
            session.probe_s = self._probe_after_s
            session.probe_at = None
            if out.sent:
                self._schedule_probe(session, now)
            self._ready(session)
        if flags & GAP and upto == out.acked and out.gap(gap_round):
            session.probe_at = None
            self._ready(session)

    def _stream_received(self, session: Session, entry: Entry, payload: bytes, body: int, end: int, now: float) -> None:
        _, _, first, _, round_, _, flags = entry
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
                message = incoming.receive(payload, offset, stop, length >= MORE)
                if message is not None:
                    events.append(PeerMessage(session.peer, message))
            offset = stop
        self._octets += end - body
        session.unacked += end - body
        if session.unacked >= self._ack_bytes:
            self._acknowledge(session, session.trunk)
        elif session.ack_at is None and known < len(lengths):
            session.ack_at = now + self._ack_delay_s
            self._acks[session] = None

    def _acknowledge(self, session: Session, trunk: FirstHop | None) -> None:
        """Acknowledge with the next packet to this session, or by an ACK at the next flush."""
        if session.ack_at is not None:
            session.ack_at = None
            del self._acks[session]
        if trunk is not None:
            trunk.acks[session] = None
            self._schedule(trunk)

    def _schedule_probe(self, session: Session, now: float) -> None:
        session.probe_at = now + session.probe_s
        self._note_probe(session.probe_at)

    def _note_probe(self, at: float) -> None:
        if self._next_probe is None or at < self._next_probe:
            self._next_probe = at


def _token(one: tuple[int, int], other: tuple[int, int]) -> int:
    """The session's token, the same at both sides, from (incarnation, number) of each."""
    text = b"".join(value.to_bytes(8, "big") for pair in sorted((one, other)) for value in pair)
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big")
