"""Scripted subscribers of every kind of protocol 1: what is handed to their applications, and what these say of it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from amqp10 import ResumedTransfer
from amqp10.errors import DETACH_FORCED, STOLEN
from amqp10.events import Event, LinkAttached
from amqp10.outcomes import Modified, Released
from amqp10.performatives import RCV_FIRST, SND_UNSETTLED, Source, Target
from amqp10.receiver import ReceiverLink
from amqp10.runs import Dispositions, Transfers
from amqp10.types import Symbol, UInt, ULong
from chaos.simulation.world.clients import (
    FOREVER,
    LINK,
    MEMORY,
    PLAIN,
    RECOVERING,
    STATES,
    Client,
    check_body,
    mid_of,
)
from router.config import RouterConfig
from router.names import (
    BORN,
    EPOCH,
    MARKS,
    ONLY_NEW,
    RESUMED,
    SUBSCRIPTION_BROKEN,
    SUBSCRIPTION_EXISTS,
    SUBSCRIPTION_REMOVED,
    SUBSCRIPTION_UNDECLARED,
)

if TYPE_CHECKING:
    from chaos.simulation.world.pipes import Pipe

SOONER_S = 0.5  # a router may learn of a lost link before the client


class Subscriber(Client):
    def __init__(self, name: str = "s0", kind: str = RECOVERING, credit: int = 10, keep: bool = True) -> None:
        super().__init__(name, kind)
        self.credit, self.keep = credit, keep
        self.unsettled: dict[bytes, str] = {}  # tag -> received | accepted | rejected | released
        self.timeout, self.policy, self.durable = FOREVER, "never", 2
        self.link_name, self.renames = LINK, False  # whether each link of its has a name of its own
        self.snd = SND_UNSETTLED
        self.careful = True  # without memory, it drops repeats by tag
        self.filter: dict[str, Any] | None = None  # of its source
        self.takes: int | None = None  # bytes of a message, as its attach says
        self.most = 5  # how often the network delivers again what failed
        self.given: dict[bytes, int] = {}  # tag -> how often it was released
        self.ids: dict[bytes, int] = {}
        self.in_hand: list[tuple[bytes, tuple[str, int]]] = []
        self.returns = False  # when it is turned away
        self.patient = False  # it closes as protocol 15.8 says
        self.only_new = False  # its attaches are those of a second process, which knows nothing of this one
        self.born = 0
        self.confirmed = self.ever = False
        self.resumed: bool | None = None  # what the last answer said
        self.unresumed = 0
        self.marks: set[tuple[int, str]] = set()
        self.done_tags: set[bytes] = set()
        self.words: dict[bytes, str] = {}  # tag -> the outcome that it has sent
        self.mid_of_tag: dict[bytes, tuple[str, int]] = {}
        self.closed_at: set[str] = set()  # routers at which it has closed, and owed a settlement
        self.told_on: Pipe | None = None
        """Where it was last told of a gap, and its router can't know yet that it has read that."""
        self.attached_on: Pipe | None = None  # by the attach that a router has read last, which may be a late one
        self.answered_at = 0.0
        self.granted_s = math.inf  # how long it is waited for, as its last answer said
        self.left_at = 0.0  # when it lost its last link
        self.partings = 0  # sessions between routers that had ended then
        self.unsure: set[tuple[str, int]] = set()  # of what it has accepted and forgotten: routers may not know it

    def attach(self, session: Any) -> None:
        if self.only_new:
            epoch = ULong(self.epoch + 1)
            self._say(session, None, {EPOCH: epoch, BORN: epoch, ONLY_NEW: epoch})
            return
        fresh, self.want_fresh = self.want_fresh or not self.confirmed, False
        properties: dict[str, Any] = {}
        unsettled: dict[bytes, Any] | None = {t: STATES.get(v) for t, v in self.unsettled.items()}
        if self.kind == RECOVERING:
            self.epoch += 1
            if fresh:
                self.born = self.epoch
            properties = {EPOCH: ULong(self.epoch), BORN: ULong(self.born)}
            if fresh and not self.ever:
                unsettled = None
        elif self.kind == MEMORY:
            if fresh:  # without a name for what it was, it begins from nothing
                self.unsettled, self.in_hand = {}, []
                unsettled = {} if self.world.checker.competing else None  # protocol 16.8
                if self.ever:
                    self.world.checker.forgot(self.name)
        else:
            self.unsettled, unsettled, fresh = {}, None, self.renames
            if self.renames:
                self.link_name = f"{LINK} {self.world.numbers[self.name]}"
        if fresh:
            self.confirmed = False
            self.world.checker.closed(self.name)
        self._say(session, unsettled, properties)

    def _say(self, session: Any, unsettled: dict[bytes, Any] | None, properties: dict[str, Any]) -> None:
        self.presented = unsettled is not None
        self.ids = {}
        self.world.checker.new_link(self.name)
        begins = self.kind == RECOVERING and self.born == self.epoch
        if not (begins or self.world.checker.strict or self.is_waited_for()):
            self.world.checker.returns_late(self.name, self.partings)
        self.say_attach(
            session,
            unsettled,
            source=Source(
                address=self.address,
                timeout=UInt(self.timeout),
                expiry_policy=Symbol(self.policy),
                durable=UInt(self.durable),
                filter=self.filter,
            ),
            target=Target(address=self.name),
            snd_settle_mode=self.snd,
            rcv_settle_mode=self.rcv,
            properties={Symbol(k): v for k, v in properties.items()} or None,
            max_message_size=self.takes,
        )

    def new_link(self, session: Any) -> ReceiverLink:
        link: ReceiverLink = session.receiver(self.link_name)
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
        self.resumed = properties.get(RESUMED)
        if self.kind == PLAIN:  # it knows no marks
            self.confirmed = self.confirmed and not (self.resumed is False and self.is_unknown())
            self._was_told(self.resumed is False and bool(properties.get(MARKS)))  # not that it is a new one
        elif self.kind == MEMORY:
            marks = {(int(t[0]), str(t[1])) for t in properties.get(MARKS) or ()}
            if self.confirmed and marks - self.marks and self.told_on is not None:
                self.confirmed = not self.is_unknown()
            elif self.confirmed and marks - self.marks:
                self.told()
                self.confirmed = False
            elif marks and not self.confirmed:  # of a process without memory, every mark is news
                self.world.checker.began_anew(self.name)
            self._was_told(bool(marks - self.marks))
            self.marks |= marks
        if not self.confirmed:
            self.confirmed = self.ever = True
            self.unsure.clear()
            self.world.checker.confirmed(self.name)
        if not self.world.checker.strict:  # else nothing excuses that it misses something
            self.granted_s = float(attach.source.timeout)
            self.world.checker.attached(self.name, self.world.now, self.granted_s)
        self.unresumed = len(self.unsettled)
        self.grant()

    def _was_told(self, of_a_gap: bool) -> None:
        """By the answer to its attach. Another router's answer that says nothing takes nothing back."""
        if of_a_gap:
            self.told_on, self.answered_at = self.pipe, self.world.now

    def is_unknown(self) -> bool:
        """Its attach is answered as that of a subscription that no router knew. Whether it is another one now."""
        checker = self.world.checker
        if checker.strict:
            return checker.unknown(self.name, True, (), self.told_on is not None)
        return checker.unknown(self.name, self.is_waited_for(), self.accepted_for_itself(), self.told_on is not None)

    def is_waited_for(self) -> bool:
        """Whether it has not been away for longer than it was granted."""
        wait_s = self.world.address.subscription_timeout_s if self.policy == "never" else self.granted_s
        return self.world.now - self.left_at < wait_s - SOONER_S

    def told(self) -> None:
        self.world.checker.subscriber_told(self.name, self.accepted_for_itself())

    def accepted_for_itself(self) -> tuple[tuple[str, int], ...]:
        """What it has accepted, while routers may not know that."""
        kept = {self.mid_of_tag[tag] for tag, word in self.unsettled.items() if word in STATES}
        return tuple(sorted(self.unsure | kept))

    def was_read(self, pipe: Pipe, kind: str) -> None:
        """What shows its router that it has read the answer (protocol 7.6.9)."""
        if kind in ("open", "attach"):  # the first attach comes with the open
            self.attached_on = pipe
        elif (
            pipe is self.told_on
            and pipe is self.attached_on
            and self.state == "on"
            and self.world.checker.sees_all(self.name)  # TOLD reaches who is in session
            and not self.world.checker.beside_old  # and knows it
        ):
            proof_after_s = self.world.config.get("proof_after_s", RouterConfig("").proof_after_s)
            unsettled = not pipe.r2c  # else the delivery may be settled, and nobody knows whose it was
            if (kind == "disposition" and unsettled) or self.world.now > self.answered_at + proof_after_s:
                self.told_on = None

    def hang_up(self) -> None:
        if not self.world.checker.strict:
            if self.state == "on":
                self.left_at, self.partings = self.world.now, self.world.checker.partings
            if self.kind == PLAIN:
                self.unsure.update(self.accepted_for_itself())
        super().hang_up()

    def on_transfer(self, delivery_id: int, tag: bytes, payload: bytes) -> None:
        mid = mid_of(payload)
        check_body(payload)
        if mid in self.world.checker.presettled and not self.world.checker.competing:
            self.world.checker.handed(self.name, mid)
            return
        self.ids[tag] = delivery_id
        if tag in self.done_tags and self.kind == PLAIN and self.careful:  # drops repeats by tag
            self.unsettled[tag] = word = self.words.get(tag, "accepted")
            self.say(tag, STATES[word])
            return
        if tag in self.unsettled:
            raise AssertionError(f"G2 {self.name}: unsettled {mid} is delivered as new")
        self.unsettled[tag] = "received"
        self.mid_of_tag[tag] = mid
        self.in_hand.append((tag, mid))
        if self.kind == RECOVERING:  # others' placeholders (protocol 7.6) leave their credit to what comes meanwhile
            assert len(self.in_hand) <= self.credit, f"credit: {self.name} has {len(self.in_hand)} in hand"
        self.world.checker.handed(self.name, mid)

    def on_resumed(self, event: ResumedTransfer) -> None:
        if event.aborted and not event.resume:
            return
        if event.payload is not None:
            check_body(event.payload)
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
            self.unsure.add(self.mid_of_tag[tag])
            del self.ids[tag]
            self.unsettled.pop(tag, None)

    def grant(self) -> None:
        """A window of `credit` undecided new deliveries, and one transfer for each resumption."""
        wanted = max(0, self.credit - len(self.in_hand)) + max(0, self.unresumed)
        # the engine has counted it already, but it is in hand only after its last frame
        if self.link.incomplete_size and wanted:
            wanted -= 1
        if wanted > self.link.credit:
            self.link.grant(wanted)

    def accept(self, index: int = 0) -> None:
        self.last_word(index, "accepted")

    def reject(self, index: int = 0) -> None:
        """Rejected, or modified with undeliverable-here: its last word, but for the latter at a queue (protocol 6.4,
        16.5)."""
        mid = self.in_hand[index][1]
        if index % 2 == 0:
            self.world.checker.rejected(self.name, mid)
            self.last_word(index, "rejected")
        elif self.world.checker.competing:
            self.world.checker.declined(self.name, mid)
            tag, _ = self.in_hand.pop(index)
            self.say_of(tag, "undeliverable")
        else:
            self.world.checker.rejected(self.name, mid)
            self.last_word(index, "undeliverable")

    def last_word(self, index: int, word: str) -> None:
        tag, mid = self.in_hand.pop(index)
        self.world.checker.accepted(self.name, mid)
        self.done_tags.add(tag)
        self.words[tag] = word
        self.say_of(tag, word)

    def say_of(self, tag: bytes, word: str) -> None:
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
        self.world.checker.gave_back(self.name, mid, times // 2 > self.most)
        self.unsettled[tag] = "released"
        self.say(tag, Released() if times % 2 else Modified(delivery_failed=True))
        self.grant()
        self.flush()

    def untold(self) -> bool:
        """Whether it does not close a queue's link yet: it waits for the resumption of something to say its outcome,
        or, if it is patient, for a settlement."""
        waits = any(word in STATES and tag not in self.ids for tag, word in self.unsettled.items())
        return waits or (self.patient and self.owes())

    def owes(self) -> bool:
        """Whether something that it has accepted or rejected is not settled: if it closes now, only its router knows
        (protocol 14, 15.8)."""
        return any(word in ("accepted", "rejected") for word in self.unsettled.values())

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
        # protocol 15: released deliveries are left out of the map, and come again as new
        self.unsettled = {t: v for t, v in self.unsettled.items() if v != "released"}
        if self.kind == PLAIN:
            self.unsettled, self.in_hand = {}, []
            self.world.checker.let_go(self.name)
        elif not self.keep and self.in_hand:
            for tag, _ in self.in_hand:
                self.unsettled.pop(tag, None)
            self.in_hand = []
            self.world.checker.let_go(self.name)

    def turned_away(self, condition: str) -> bool:
        """Whether a topology file says that it must not attach. What it held is nothing to anybody."""
        if condition not in (SUBSCRIPTION_REMOVED, SUBSCRIPTION_UNDECLARED):
            return False
        self.unsettled, self.done_tags, self.marks, self.in_hand = {}, set(), set(), []
        self.want_fresh, self.confirmed, self.ever = True, False, False
        self.world.checker.forgot(self.name)
        return True

    def may_return(self) -> None:
        """A topology file says again that it may attach."""
        self.closed, self.returns = self.closing, True

    def close(self) -> None:
        owes = self.owes()
        accepted = {t: v for t, v in self.unsettled.items() if v in STATES}
        self.unsettled = accepted if self.world.checker.competing else {}  # what is not presented, others get
        self.closing, self.in_hand = True, []
        self.world.checker.closed(self.name)
        if self.pipe is not None and owes:
            self.closed_at.add(self.pipe.router)
        self.detach()

    def on_detached(self, condition: str, info: dict[Any, Any]) -> None:
        if condition == STOLEN:
            self.learn_epoch(info)
        elif condition == SUBSCRIPTION_EXISTS or (
            condition == DETACH_FORCED and (self.kind != RECOVERING or self.state != "on")
        ):
            pass  # and attach again
        elif condition == SUBSCRIPTION_BROKEN:
            if self.closing:
                self.closed, self.unsettled = True, {}
            else:
                self.told()
                self.want_fresh, self.confirmed = True, False
        elif (not condition and self.closing) or self.turned_away(condition):
            self.closed = self.closing or not self.returns
            self.unsettled = {} if self.closed else self.unsettled
        else:
            raise AssertionError(f"{self.name}: detached with {condition}")


class Browser(Subscriber):
    """Sees what waits in a queue: a link with distribution-mode copy (protocol 16.11)."""

    def __init__(self, name: str = "b0", credit: int = 100) -> None:
        super().__init__(name, PLAIN, credit)
        self.seen: list[tuple[str, int]] = []

    def attach(self, session: Any) -> None:
        source = Source(address=self.address, distribution_mode=Symbol("copy"))
        self.say_attach(session, None, source=source, target=Target(address=self.name))

    def on_attached(self, attach: Any) -> None:
        self.state = "on"
        self.link.grant(self.credit)

    def on_transfer(self, delivery_id: int, tag: bytes, payload: bytes) -> None:
        self.seen.append(mid_of(payload))

    def grant(self) -> None:
        """It has had its credit."""
