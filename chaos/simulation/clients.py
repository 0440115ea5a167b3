"""Scripted AMQP clients of every kind of PROTOCOL 1, over the real engine, one action at a time.

They do what the page asks of such clients and nothing cleverer, so that a schedule can say what happens when. The
world moves their bytes; the checker hears what their applications see. The library's own client has tests of its own.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from amqp10.connection import Connection
from amqp10.events import (
    ConnectionClosed,
    Dispositions,
    Event,
    LinkAttached,
    LinkDetached,
    LinkFlow,
    ResumedTransfer,
    SessionEnded,
    Transfers,
)
from amqp10.outcomes import Accepted, Modified, Rejected, Released
from amqp10.performatives import RCV_FIRST, RCV_SECOND, SND_MIXED, SND_SETTLED, SND_UNSETTLED, Source, Target
from amqp10.receiver import ReceiverLink
from amqp10.sender import SenderLink
from amqp10.settings import ConnectionSettings
from amqp10.types import Symbol, UInt, ULong
from chaos.simulation.frames import frames_of, kind_of

if TYPE_CHECKING:
    from chaos.simulation.pipes import Pipe
    from chaos.simulation.world import World

ADDRESS = "orders"
FOREVER = 0xFFFFFFFF

RECOVERING = "recovering"  # brings epochs, presents maps
MEMORY = "memory"  # presents maps, brings no epochs
UNIQUE = "unique"  # publisher: neither, promises unique tags
PLAIN = "plain"  # subscriber: neither, drops repeats by tag
# What maps and resumptions say of a delivery by our own word for it; nothing: undecided.
STATES: dict[str, Any] = {
    "accepted": Accepted(), "rejected": Rejected(), "undeliverable": Modified(undeliverable_here=True),
}  # fmt: skip


def body_of(mid: tuple[str, int], size: int = 0) -> bytes:
    """A message with one data section, of so many octets at least."""
    text = f"mid:{mid[0]}:{mid[1]};".encode().ljust(size, b".")
    if len(text) < 256:
        return b"\x00\x53\x75\xa0" + bytes([len(text)]) + text
    return b"\x00\x53\x75\xb0" + len(text).to_bytes(4, "big") + text


def mid_of(payload: bytes) -> tuple[str, int]:
    start = payload.index(b"mid:") + 4
    name, seq = payload[start : payload.index(b";", start)].decode().split(":")
    return name, int(seq)


class Client:
    """What publishers and subscribers share: one connection at a time, one session, one link."""

    closed = False
    closing = False
    part = 0  # entries of its map that it says in one attach (PROTOCOL 7.7); 0: all
    frame: int | None = None  # its max-frame-size
    heard = 0.0  # when it read something last on a link that worked: only that shows that it is known

    def __init__(self, name: str, kind: str) -> None:
        self.name, self.kind = name, kind
        self.epoch = 0
        self.state = "off"  # off | wait | on
        self.conn: Connection | None = None
        self.pipe: Pipe | None = None
        self.link: Any = None
        self.want_fresh = True
        self.rcv = RCV_SECOND
        self.world: World = None  # type: ignore[assignment]  # set by the world
        self.refusals: list[str] = []
        self.parts: list[dict[bytes, Any]] = []  # of its map that are still to be said
        self.arguments: dict[str, Any] = {}  # of its attach

    def connect(self, pipe: Pipe) -> None:
        self.pipe, self.state = pipe, "wait"
        sizes: dict[str, Any] = {} if self.frame is None else {"max_frame_size": self.frame}
        settings = ConnectionSettings(container_id=self.name, idle_timeout_s=None, **sizes)
        self.conn = Connection(settings, server=False, now=self.world.now)
        self.conn.open()
        self.attach(self.conn.begin())
        pipe.send_all(self.conn.data_to_send())

    def attach(self, session: Any) -> None:
        raise NotImplementedError

    def new_link(self, session: Any) -> Any:
        raise NotImplementedError

    def say_attach(self, session: Any, unsettled: dict[bytes, Any] | None, **arguments: Any) -> None:
        """At once, or the first part: each is answered and detached."""
        self.parts, self.arguments = [unsettled or {}], arguments
        if unsettled and self.part and self.kind == RECOVERING:
            entries = [*unsettled.items()]
            self.parts = [dict(entries[i : i + self.part]) for i in range(0, len(entries), self.part)]
        self.say_part(session, None if unsettled is None else self.parts.pop(0))

    def say_part(self, session: Any, unsettled: dict[bytes, Any] | None) -> None:
        if unsettled is None:
            self.parts = []
        self.link = self.new_link(session)
        self.link.attach(unsettled=unsettled, incomplete_unsettled=bool(self.parts), **self.arguments)

    def receive(self, data: bytes) -> None:
        conn = self.conn
        assert conn is not None
        for event in conn.receive_data(data, self.world.now):
            if conn is self.conn:
                self.handle(event)
        if self.state == "on":
            self.heard = self.world.now
        if conn is self.conn:
            self.flush()

    def flush(self) -> None:
        if self.conn is not None and self.pipe is not None:
            self.pipe.send(self.conn.data_to_send())

    def heartbeat(self) -> None:
        assert self.pipe is not None
        self.pipe.send(b"\x00\x00\x00\x08\x02\x00\x00\x00")

    def handle(self, event: Event) -> None:
        if isinstance(event, LinkDetached):
            if event.error is None and not event.closed and self.parts and not self.closing:
                self.say_part(event.link.session, self.parts.pop(0))
                return
            condition = str(event.error.condition) if event.error is not None else ""
            info = dict(event.error.info or {}) if event.error is not None else {}
            self.refusals.append(condition)
            self.on_detached(condition, info)
            self.hang_up()
        elif isinstance(event, (ConnectionClosed, SessionEnded)):
            raise AssertionError(f"{self.name}: unexpected {event}")

    def on_detached(self, condition: str, info: dict[Any, Any]) -> None:
        raise NotImplementedError

    def hang_up(self) -> None:
        """Our end of the connection is gone."""
        pipe, self.pipe, self.conn, self.link, self.state = self.pipe, None, None, None, "off"
        self.parts = []
        if pipe is not None:
            pipe.client_gone()
        self.disconnected()

    def disconnected(self) -> None:
        pass

    def learn_epoch(self, info: dict[Any, Any]) -> None:
        self.epoch = max(self.epoch, int(info.get("onceway:epoch", 0)))


class Publisher(Client):
    def __init__(self, name: str = "p0", kind: str = RECOVERING, total: int = 9) -> None:
        super().__init__(name, kind)
        self.total = total
        self.seq = 0
        self.base = 0  # first sequence number of this incarnation: tags start again, to be reused
        self.unsettled: dict[bytes, list[Any]] = {}  # tag -> [undecided | accepted, mid]
        self.ids: dict[int, bytes] = {}
        self.pending: list[bytes] = []
        self.incarnation = 0
        self.known = False  # has ever had credit
        self.answered = False  # has had an outcome in this incarnation
        self.holding = False  # accepted deliveries are settled one `settle` at a time
        self.snd = SND_UNSETTLED
        self.size = 0  # octets of a message
        self.connections = 0
        self.gives_up_s = math.inf  # of silence, after which what it has sent may be forgotten everywhere

    def attach(self, session: Any) -> None:
        properties: dict[str, Any] = {}
        unsettled: dict[bytes, Any] | None = None
        self.give_up_if_forgotten()
        fresh, self.want_fresh = self.want_fresh, False
        if fresh:
            self.answered = False
            self.unsettled, self.base = ({}, self.seq) if self.kind != UNIQUE else (self.unsettled, self.base)
        if self.kind == RECOVERING:
            self.epoch += 1
            if fresh:
                self.incarnation = self.epoch
            properties = {"onceway:epoch": ULong(self.epoch), "onceway:incarnation": ULong(self.incarnation)}
        elif self.kind == UNIQUE:
            properties = {"onceway:unique-tags": True}
        if self.kind != UNIQUE and not fresh and (self.known or self.kind == RECOVERING):
            unsettled = {t: STATES.get(v[0]) for t, v in self.unsettled.items()}
        self.ids = {}
        self.connections += 1
        self.pending = [t for t, v in self.unsettled.items() if v[0] == "undecided"]
        self.say_attach(
            session,
            unsettled,
            source=Source(address=self.name),
            target=Target(address=ADDRESS),
            snd_settle_mode=self.snd,
            rcv_settle_mode=self.rcv,
            properties={Symbol(k): v for k, v in properties.items()} or None,
        )

    def give_up_if_forgotten(self) -> bool:
        """PROTOCOL 15: after so long a silence what it would send again may be new to everybody."""
        if not self.unsettled or self.world.now - self.heard <= self.gives_up_s:
            return False
        self.world.checker.publisher_told(self.name, "undecided")
        self.abandon()
        self.unsettled, self.want_fresh = {}, True
        return True

    def abandon(self) -> None:
        self.world.checker.abandoned |= {mid for state, mid in self.unsettled.values() if state == "undecided"}

    def new_link(self, session: Any) -> SenderLink:
        link: SenderLink = session.sender("out")
        return link

    def handle(self, event: Event) -> None:
        super().handle(event)
        if isinstance(event, LinkAttached) and self.give_up_if_forgotten():  # it, or the attach, lay unread
            self.hang_up()
            return
        if isinstance(event, LinkFlow) and self.link is not None:
            if self.link.credit > 0:
                self.state, self.known = "on", True
                if self.closing:
                    self.link.detach(None, closed=True)
            self.push()
        elif isinstance(event, Dispositions):
            for i in range(event.first_id, event.last_id + 1):
                self.on_outcome(i, event)

    def on_outcome(self, delivery_id: int, event: Dispositions) -> None:
        tag = self.ids.get(delivery_id)
        entry = self.unsettled.get(tag) if tag is not None else None
        if entry is None or tag is None or event.state is None:
            return
        self.answered = True
        assert self.pipe is not None
        checker, at = self.world.checker, (self.pipe.router, self.pipe.incarnation)
        assert isinstance(event.state, (Accepted, Rejected, Released)), event.state
        if entry[0] == "undecided":
            if isinstance(event.state, Accepted):
                checker.told_accepted(entry[1], at)
                entry[0] = "accepted"
            elif isinstance(event.state, Rejected):
                checker.told_rejected(entry[1], at)
                entry[0] = "rejected"
            else:
                checker.told_released(entry[1])
                entry[0] = "released"
        if event.settled:
            del self.unsettled[tag]
        elif self.kind == UNIQUE:
            self.settle(tag)

    def push(self) -> None:
        while self.pending and self.link is not None and self.link.capacity() > 0 and not self.closing:
            tag = self.pending.pop(0)
            if tag in self.unsettled:
                self._transfer(tag)

    def flush(self) -> None:
        if self.kind == UNIQUE and self.conn is not None and self.pipe is not None:
            # proton answers no echo, and a sender of its has no reason to send a flow
            for frame in frames_of(self.conn.data_to_send()):
                if kind_of(frame) != "flow":
                    self.pipe.send(frame)
        else:
            super().flush()

    def _transfer(self, tag: bytes) -> None:
        first = self.link.send([tag], [body_of(self.unsettled[tag][1], self.size)])
        self.ids[first] = tag

    def sends_settled(self) -> bool:
        """The next one: all, or every third where the link is mixed."""
        return self.snd == SND_SETTLED or (self.snd == SND_MIXED and self.seq % 3 == 2)

    def can_send(self) -> bool:
        return self.state == "on" and not self.pending and not self.closing and self.link.capacity() > 0

    def send(self) -> None:
        """The application sends its next message."""
        assert self.can_send(), f"{self.name} cannot send"
        tag = b"%d" % (self.seq - self.base)
        mid = (self.name, self.seq)
        settled = self.sends_settled()
        self.seq += 1
        if settled:
            self.world.checker.sent_settled(mid, self.connections)
            self.link.send([tag], [body_of(mid, self.size)], settled=True)
            self.flush()
            return
        self.unsettled[tag] = ["undecided", mid]
        self.world.checker.sent(mid)
        self._transfer(tag)
        self.flush()

    def settle(self, tag: bytes) -> None:
        """Forget first, then tell (PROTOCOL 15)."""
        state = STATES[self.unsettled.pop(tag)[0]]
        ids = [i for i, t in self.ids.items() if t == tag]
        if ids:
            self.link.settle(ids[0], ids[0], state)
            del self.ids[ids[0]]
        else:  # 6.6: it will not come again
            self.link.resume(tag, state, None, settled=True)
        self.flush()

    def next_to_settle(self) -> bytes | None:
        if self.state != "on":
            return None
        decided = [tag for tag, value in self.unsettled.items() if value[0] != "undecided"]
        if decided and self.link.capacity() < 1:  # what was sent over another connection takes a transfer
            live = set(self.ids.values())
            decided = [tag for tag in decided if tag in live]
        return decided[0] if decided else None

    def forget(self) -> None:
        """Its process restarts without memory."""
        self.hang_up()
        self.abandon()
        self.want_fresh, self.unsettled, self.known = True, {}, False

    def close(self) -> None:
        self.closing, self.unsettled, self.pending = True, {}, []
        if self.link is not None:
            self.link.detach(None, closed=True)
            self.flush()

    def on_detached(self, condition: str, info: dict[Any, Any]) -> None:
        if condition == "amqp:link:stolen":
            self.learn_epoch(info)
        elif condition in ("onceway:publisher-unknown", "onceway:publisher-expired"):
            # Without epochs it has credit before anything is claimed (5.1), so it may have sent on a connection of
            # which no router had read more than the attach when the next one asked for what was sent.
            unclaimed = self.kind == MEMORY and not self.answered
            self.world.checker.publisher_told(self.name, condition, unclaimed)
            self.want_fresh, self.unsettled = True, {}
        elif not condition and self.closing:
            self.closed = True
        else:
            raise AssertionError(f"{self.name}: detached with {condition}")


class Subscriber(Client):
    def __init__(self, name: str = "s0", kind: str = RECOVERING, credit: int = 10, keep: bool = True) -> None:
        super().__init__(name, kind)
        self.credit, self.keep = credit, keep
        self.unsettled: dict[bytes, str] = {}  # tag -> received | accepted | rejected | released
        self.timeout, self.policy = FOREVER, "never"
        self.most = 5  # how often the network brings what is given back
        self.given: dict[bytes, int] = {}  # tag -> how often it was given back
        self.ids: dict[bytes, int] = {}
        self.in_hand: list[tuple[bytes, tuple[str, int]]] = []
        self.born = 0
        self.confirmed = self.ever = False
        self.unresumed = 0
        self.marks: set[tuple[int, str]] = set()
        self.done_tags: set[bytes] = set()
        self.words: dict[bytes, str] = {}  # what it has said of them
        self.mid_of_tag: dict[bytes, tuple[str, int]] = {}

    def attach(self, session: Any) -> None:
        fresh, self.want_fresh = self.want_fresh or not self.confirmed, False
        properties: dict[str, Any] = {}
        unsettled: dict[bytes, Any] | None = {t: STATES.get(v) for t, v in self.unsettled.items()}
        if self.kind == RECOVERING:
            self.epoch += 1
            if fresh:
                self.born = self.epoch
            properties = {"onceway:epoch": ULong(self.epoch), "onceway:born": ULong(self.born)}
            if fresh and not self.ever:
                unsettled = None
        elif self.kind == MEMORY:
            if fresh:  # without a name for what it was, it begins from nothing
                self.unsettled, self.in_hand, unsettled = {}, [], None
                if self.ever:
                    self.world.checker.forgot(self.name)
        else:
            self.unsettled, unsettled, fresh = {}, None, False
        if fresh:
            self.confirmed = False
            self.world.checker.closed(self.name)
        self.presented = unsettled is not None
        self.ids = {}
        self.say_attach(
            session,
            unsettled,
            source=Source(
                address=ADDRESS, timeout=UInt(self.timeout), expiry_policy=Symbol(self.policy), durable=UInt(2)
            ),
            target=Target(address=self.name),
            snd_settle_mode=SND_UNSETTLED,
            rcv_settle_mode=self.rcv,
            properties={Symbol(k): v for k, v in properties.items()} or None,
        )

    def new_link(self, session: Any) -> ReceiverLink:
        link: ReceiverLink = session.receiver("in")
        return link

    def handle(self, event: Event) -> None:
        super().handle(event)
        if self.link is None:
            return
        if isinstance(event, LinkAttached):
            answer = event.link.remote_attach
            if answer is not None and answer.source is not None and not self.parts:
                self.on_attached(answer)
        elif isinstance(event, Transfers):
            for i, (tag, payload) in enumerate(zip(event.tags, event.payloads, strict=True)):
                self.on_transfer(event.first_id + i, tag, payload)
            self.grant()
        elif isinstance(event, ResumedTransfer):
            self.on_resumed(event)
            self.grant()
        elif isinstance(event, Dispositions) and event.settled:
            for tag in [t for t, i in self.ids.items() if event.first_id <= i <= event.last_id]:
                self.unsettled.pop(tag, None)
                del self.ids[tag]

    def on_attached(self, attach: Any) -> None:
        self.state = "on"
        if self.closing:
            self.link.detach(None, closed=True)
            return
        if self.presented:
            listed = attach.unsettled or {}
            for tag in [t for t in self.unsettled if t not in listed]:
                del self.unsettled[tag]
        properties = attach.properties or {}
        if self.kind != RECOVERING:
            marks = {(int(t[0]), str(t[1])) for t in properties.get("onceway:marks") or ()}
            if self.confirmed and marks - self.marks:
                self.world.checker.subscriber_told(self.name)
                self.confirmed = False
            self.marks |= marks
        if not self.confirmed:
            self.confirmed = self.ever = True
            self.world.checker.confirmed(self.name)
        self.unresumed = len(self.unsettled)
        self.grant()

    def on_transfer(self, delivery_id: int, tag: bytes, payload: bytes) -> None:
        mid = mid_of(payload)
        if mid in self.world.checker.presettled:
            self.world.checker.handed(self.name, mid)
            return
        self.ids[tag] = delivery_id
        if tag in self.done_tags and self.kind == PLAIN:  # contract 17: drops repeats by tag
            self.unsettled[tag] = word = self.words.get(tag, "accepted")
            self.say(tag, STATES[word])
            return
        if tag in self.unsettled:
            raise AssertionError(f"G2 {self.name}: unsettled {mid} is delivered as new")
        self.unsettled[tag] = "received"
        self.mid_of_tag[tag] = mid
        self.in_hand.append((tag, mid))
        if self.kind == RECOVERING:  # others' placeholders (7.6) leave their credit to what comes meanwhile
            assert len(self.in_hand) <= self.credit, f"credit: {self.name} has {len(self.in_hand)} in hand"
        self.world.checker.handed(self.name, mid)

    def on_resumed(self, event: ResumedTransfer) -> None:
        self.unresumed -= 1
        state = self.unsettled.get(event.tag)
        if event.settled:
            self.unsettled.pop(event.tag, None)
        elif state is None:
            raise AssertionError(f"{self.name}: resumption of a delivery that it does not have")
        else:
            self.ids[event.tag] = event.delivery_id
            if state in STATES:
                self.say(event.tag, STATES[state])

    def say(self, tag: bytes, state: Any) -> None:
        """An outcome. In mode first that is all there is to say."""
        first = self.rcv == RCV_FIRST
        self.link.dispose(self.ids[tag], self.ids[tag], state, first)
        if first:
            del self.ids[tag]
            self.unsettled.pop(tag, None)

    def grant(self) -> None:
        """A window of `credit` undecided new deliveries, and one transfer for each resumption."""
        wanted = max(0, self.credit - len(self.in_hand)) + max(0, self.unresumed)
        if self.link.held_size and wanted:  # one is counted already, and not in hand before its last frame
            wanted -= 1
        if wanted > self.link.credit:
            self.link.grant(wanted)

    def accept(self, index: int = 0) -> None:
        self.last_word(index, "accepted")

    def reject(self, index: int = 0) -> None:
        """Rejected, or modified with undeliverable-here: its last word (PROTOCOL 6.4)."""
        self.world.checker.rejected(self.name, self.in_hand[index][1])
        self.last_word(index, "rejected" if index % 2 == 0 else "undeliverable")

    def last_word(self, index: int, word: str) -> None:
        tag, mid = self.in_hand.pop(index)
        self.world.checker.accepted(self.name, mid)
        self.done_tags.add(tag)
        self.words[tag] = word
        if tag in self.unsettled:
            self.unsettled[tag] = word
            if self.state == "on" and tag in self.ids:
                self.say(tag, STATES[word])
        if self.state == "on":
            self.grant()
        self.flush()

    def release(self, index: int = 0) -> None:
        """The application gives a delivery back, to get it again."""
        tag, mid = self.in_hand.pop(index)
        times = self.given[tag] = self.given.get(tag, 0) + 1
        self.world.checker.gave_back(self.name, mid, times > self.most)
        self.unsettled[tag] = "released"
        self.say(tag, Released() if times % 2 else Modified(delivery_failed=True))
        self.grant()
        self.flush()

    def can_release(self, index: int) -> bool:
        return self.state == "on" and not self.closing and self.in_hand[index][0] in self.ids

    def restart(self) -> None:
        """Its process restarts: what it has accepted is on disk, what it had in hand is gone."""
        self.hang_up()
        self.unsettled = {t: v for t, v in self.unsettled.items() if v in STATES}
        self.in_hand = []
        self.world.checker.let_go(self.name)

    def forget(self) -> None:
        """Its process restarts without memory."""
        self.restart()
        self.unsettled, self.done_tags, self.marks = {}, set(), set()
        self.want_fresh, self.confirmed, self.ever = True, False, False
        self.world.checker.forgot(self.name)

    def disconnected(self) -> None:
        # what was given back comes again as new: left out of the map (PROTOCOL 15)
        self.unsettled = {t: v for t, v in self.unsettled.items() if v != "released"}
        if self.kind == PLAIN:
            self.unsettled, self.in_hand = {}, []
            self.world.checker.let_go(self.name)
        elif not self.keep and self.in_hand:
            for tag, _ in self.in_hand:
                self.unsettled.pop(tag, None)
            self.in_hand = []
            self.world.checker.let_go(self.name)

    def close(self) -> None:
        self.closing, self.unsettled, self.in_hand = True, {}, []
        self.world.checker.closed(self.name)
        if self.link is not None:
            self.link.detach(None, closed=True)
            self.flush()

    def on_detached(self, condition: str, info: dict[Any, Any]) -> None:
        if condition == "amqp:link:stolen":
            self.learn_epoch(info)
        elif condition == "amqp:link:detach-forced" and self.kind != RECOVERING:
            pass  # and attach again
        elif condition == "onceway:subscription-broken":
            if self.closing:
                self.closed = True
            else:
                self.world.checker.subscriber_told(self.name)
                self.want_fresh, self.confirmed = True, False
        elif not condition and self.closing:
            self.closed = True
        else:
            raise AssertionError(f"{self.name}: detached with {condition}")
