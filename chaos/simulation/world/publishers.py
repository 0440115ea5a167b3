"""Scripted publishers of every kind of protocol 1: what is sent, sent again, told, settled, abandoned."""

from __future__ import annotations

import math
from operator import itemgetter
from typing import Any

from amqp10.errors import DETACH_FORCED, STOLEN
from amqp10.events import Event, LinkAttached, SessionFlow
from amqp10.outcomes import Accepted, Rejected, Released
from amqp10.performatives import SND_MIXED, SND_SETTLED, SND_UNSETTLED, Source, Target
from amqp10.runs import Dispositions, LinkFlow
from amqp10.sender import SenderLink
from amqp10.types import Symbol, ULong
from chaos.simulation.world.clients import MEMORY, RECOVERING, STATES, UNIQUE, Client, body_of
from chaos.simulation.world.pipes import frames_of, kind_of
from router.names import EPOCH, INCARNATION, PUBLISHER_EXPIRED, PUBLISHER_UNKNOWN, UNIQUE_TAGS

STATE = itemgetter(0)  # of an entry of `unsettled`


class Publisher(Client):
    def __init__(self, name: str = "p0", kind: str = RECOVERING, total: int = 9) -> None:
        super().__init__(name, kind)
        self.total = total
        self.seq = 0
        self.first = 0  # number of the first message that it sends on its present connection
        self.base = 0  # first sequence number of this incarnation: tags start again, to be reused
        self.unsettled: dict[bytes, list[Any]] = {}  # tag -> [undecided | accepted, mid]
        self.ids: dict[int, bytes] = {}
        self.pending: list[bytes] = []
        self.incarnation = 0
        self.known = False  # has ever had credit
        self.answered = False  # has had an outcome in this incarnation
        self.holding = False  # accepted deliveries are settled one `settle` at a time
        self.snd = SND_UNSETTLED
        self.size = 0  # bytes of a message
        self.stops = 0  # a larger message is sent in steps of so many bytes; 0: at once
        self.aborts: tuple[int, ...] = ()  # numbers of messages of which only a half is sent
        self.open: tuple[bytes, bytes] | None = None  # tag of the message that is being sent, and the rest of it
        self.ttl_ms: int | None = None
        self.groups = 0  # its messages are in so many groups, which all publishers have
        self.priorities: tuple[int, ...] = (4,)
        self.connections = 0
        self.gives_up_s = math.inf  # seconds of silence after which the network may have forgotten what it has sent
        self.claimed = True  # as far as it knows; only asked if it ever abandons

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
            properties = {EPOCH: ULong(self.epoch), INCARNATION: ULong(self.incarnation)}
        elif self.kind == UNIQUE:
            properties = {UNIQUE_TAGS: True}
        if self.kind != UNIQUE and not fresh and (self.known or self.kind == RECOVERING):
            unsettled = {t: STATES.get(v[0]) for t, v in self.unsettled.items()}
        self.ids = {}
        self.first = self.seq
        self.connections += 1
        self.pending = [t for t, v in self.unsettled.items() if v[0] == "undecided"]
        if self.pending and not self.world.checker.strict:
            self.world.checker.sent_again(*(self.unsettled[tag][1] for tag in self.pending))
        self.claimed = not self.pending or self.gives_up_s == math.inf
        self.say_attach(
            session,
            unsettled,
            source=Source(address=self.name),
            target=Target(address=self.address),
            snd_settle_mode=self.snd,
            rcv_settle_mode=self.rcv,
            properties={Symbol(k): v for k, v in properties.items()} or None,
        )

    def give_up_if_forgotten(self) -> bool:
        """After so long a silence the network may take what is sent again as new (protocol 15): gives it up."""
        if not self.unsettled or self.world.now - self.heard <= self.gives_up_s:
            return False
        self.world.checker.publisher_told(self.name, "undecided")
        self.abandon()
        self.unsettled, self.want_fresh = {}, True
        return True

    def is_known(self) -> bool:
        """An answer and its credit claim nothing (protocol 5.1, 15), so they prove nothing of what was in doubt before.
        An outcome shows that what was sent again was taken."""
        return self.claimed

    def abandon(self) -> None:
        self.world.checker.abandoned |= {mid for state, mid in self.unsettled.values() if state == "undecided"}

    def new_link(self, session: Any) -> SenderLink:
        link: SenderLink = session.sender("out")
        return link

    def handle(self, event: Event) -> None:
        super().handle(event)
        if isinstance(event, LinkAttached) and self.give_up_if_forgotten():  # the answer, or the attach, was read late
            self.hang_up()
            return
        if isinstance(event, LinkFlow) and self.link is not None:
            if self.link.credit > 0:
                self.state, self.known = "on", True
                if self.closing:
                    self.link.detach(None, closed=True)
            self.push()
        elif isinstance(event, SessionFlow) and self.link is not None:
            self.push()
        elif isinstance(event, Dispositions):
            for i in range(event.first_id, event.last_id + 1):
                self.on_outcome(i, event)

    def on_outcome(self, delivery_id: int, event: Dispositions) -> None:
        tag = self.ids.get(delivery_id)
        entry = self.unsettled.get(tag) if tag is not None else None
        if entry is None or tag is None or event.state is None:
            return
        self.answered = self.claimed = True
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
        first = self.link.send([tag], [self.body_of(self.unsettled[tag][1])])
        self.ids[first] = tag

    def body_of(self, mid: tuple[str, int]) -> bytes:
        priority = self.priorities[mid[1] % len(self.priorities)]
        return body_of(mid, self.size, self.ttl_ms, self.group_of(mid[1]), priority)

    def group_of(self, seq: int) -> str | None:
        return f"g{seq % self.groups}" if self.groups else None

    def sends_settled(self) -> bool:
        """Says whether the next message is sent settled: all are, or every third where the link is mixed."""
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
            self.link.send([tag], [self.body_of(mid)], settled=True)
            self.flush()
            return
        self.unsettled[tag] = ["undecided", mid]
        self.world.checker.sent(mid, self.group_of(mid[1]))
        if self.ttl_ms is not None:
            self.world.checker.may_expire[mid] = None
        if 0 < self.stops < self.size:
            self.ids[self.link.begin(tag, b"")] = tag
            self.open = tag, self.body_of(mid)
        else:
            self._transfer(tag)
        self.flush()

    def can_go_on(self) -> bool:
        return self.open is not None and self.link.part_capacity() > 0

    def go_on(self) -> None:
        """Sends more of the message that it is in the middle of, or aborts it."""
        assert self.open is not None
        tag, rest = self.open
        _, mid = self.unsettled.get(tag, (None, None))
        if mid is not None and mid[1] in self.aborts and len(rest) < self.size // 2:
            self.link.abort()
            self.open = None
            del self.unsettled[tag]
        else:
            size = min(self.stops, self.link.part_capacity())
            self.link.add(rest[:size], more=size < len(rest))
            self.open = (tag, rest[size:]) if size < len(rest) else None
        self.flush()

    def disconnected(self) -> None:
        self.open = None

    def settle(self, tag: bytes) -> None:
        """Forget first, then tell (protocol 15)."""
        state = STATES[self.unsettled.pop(tag)[0]]
        ids = [i for i, t in self.ids.items() if t == tag]
        if ids:
            self.link.settle(ids[0], ids[0], state)
            del self.ids[ids[0]]
        else:  # protocol 6.6: it will not come again
            self.link.resume(tag, state, None, settled=True)
        self.flush()

    def settle_next(self) -> None:
        tag = self.next_to_settle()
        assert tag is not None
        self.settle(tag)

    def show(self) -> None:
        """It shows that it is there: a flow with the credit that it has."""
        assert self.conn is not None
        assert self.pipe is not None
        self.link.flow()
        self.pipe.send(self.conn.data_to_send())

    def next_to_settle(self) -> bytes | None:
        states = [*map(STATE, self.unsettled.values())]
        if self.state != "on" or states.count("undecided") == len(states):
            return None
        live = None
        for tag, value in self.unsettled.items():
            if value[0] != "undecided":
                if live is None:
                    if self.link.capacity() > 0:
                        return tag
                    live = set(self.ids.values())  # what was sent over another connection is settled by a transfer
                if tag in live:
                    return tag
        return None

    def forget(self) -> None:
        """Its process restarts without memory."""
        self.hang_up()
        self.abandon()
        self.want_fresh, self.unsettled, self.known = True, {}, False

    def close(self) -> None:
        self.closing, self.unsettled, self.pending = True, {}, []
        self.detach()

    def on_detached(self, condition: str, info: dict[Any, Any]) -> None:
        if condition == STOLEN:
            self.learn_epoch(info)
        elif condition == DETACH_FORCED:
            pass  # and attach again: a large delivery is needed from its beginning
        elif condition in (PUBLISHER_UNKNOWN, PUBLISHER_EXPIRED):
            # Without epochs it has credit before anything is claimed (protocol 5.1), so it may have sent on a
            # connection of which no router had read more than the attach when the next one asked for what was sent.
            unclaimed = self.kind == MEMORY and not self.answered
            self.world.checker.publisher_told(self.name, condition, unclaimed)
            self.want_fresh, self.unsettled = True, {}
        elif not condition and self.closing:
            self.closed = True
        else:
            raise AssertionError(f"{self.name}: detached with {condition}")
