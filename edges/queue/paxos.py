"""The queue over a protocol like Paxos (rules 3.x of docs/shared-queue.md): it goes on while a majority is alive.

Each place of a log decides which request gets which element. Whoever the group names leads: it proposes, a majority
accepts, the decision pops the element everywhere. Two leaders at once cost time and break nothing. Messages may be
lost, repeated or late; what must survive the process is a `Keep` and comes before what is sent because of it.

Lamport, Paxos Made Simple (2001). One phase 1 serves all places of the log, as in its section 3.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from edges.queue.elements import Elements
from edges.queue.messages import (
    NOTHING,
    AcceptedAt,
    Ballot,
    Behind,
    Decision,
    Dequeued,
    Element,
    ElementId,
    Keep,
    Message,
    Output,
    Phase1A,
    Phase1B,
    Phase2A,
    Phase2B,
    Promised,
    Record,
    Request,
    Send,
    Serial,
    Value,
)

NO_BALLOT: Final = Ballot(0, "")
RETRY_S: Final = 1.0  # how long an answer is waited for before something is said again


class Paxos:
    """One member of the queue: it asks, accepts, learns and, when the group says so, leads.

    Args:
        name: this member's.
        members: all of them, this one included; a majority of them must be alive.
        life: a number higher than that of every earlier process of this name.
        kept: what earlier processes of this name asked to keep, in that order.

    Attributes:
        room: octets of elements that one message may hold; a larger one has a message of its own. None: any number.
    """

    def __init__(self, name: str, members: Iterable[str], life: int, kept: Iterable[Record] = ()) -> None:
        self.room: int | None = None
        self.name = name
        self.elements = Elements()
        self.leading = False
        self._members = sorted(set(members))
        assert name in self._members
        self._life = life
        self._retry_at = 0.0
        self._enqueued = 0
        self._tickets = 0
        self._waiting: deque[tuple[int, bool]] = deque()  # (ticket, wait), the first has the open request if any has
        self._requests = 0
        self._open: Serial | None = None
        self._promised = NO_BALLOT
        self._accepted: dict[int, AcceptedAt] = {}
        self._decided: dict[int, Value] = {}
        self._applied = 0  # all places of the log before this one
        self._answered: dict[str, Serial] = {}  # member: its latest request that was answered
        self._applied_of: dict[str, int] = {}
        self._pending: dict[str, Request] = {}  # member: its open request
        self._ballot: Ballot | None = None  # the one this member leads with, or tries to
        self._highest = NO_BALLOT  # of all that were seen
        self._promises: dict[str, int | None] | None = None  # up to which place each has told; None after phase 1
        self._latest: dict[int, AcceptedAt] = {}  # of what they have told, with the highest ballot
        self._proposals: dict[int, Value] = {}
        self._votes: dict[int, set[str]] = {}
        self._outputs: list[Output] = []
        self._local: deque[Message] = deque()
        for record in kept:
            self._restore(record)
        self._outputs.clear()

    def outputs(self) -> list[Output]:
        """What to do, in this order; then it is forgotten here."""
        outputs, self._outputs = self._outputs, []
        return outputs

    def enqueue(self, body: bytes) -> Element:
        """Put an element into the queue (rule 1.1)."""
        self._enqueued += 1
        element = Element(ElementId(self.name, self._life, self._enqueued), body)
        self._element(element)
        self._outputs.append(Send(element))
        return element

    def dequeue(self, *, wait: bool) -> int:
        """Ask for an element; arguments and result as of `Lamport.dequeue`."""
        self._tickets += 1
        self._waiting.append((self._tickets, wait))
        self._request()
        return self._tickets

    def receive(self, sender: str, message: Message, now: float) -> None:
        """Another member says this."""
        self._handle(sender, message, now)
        self._say_to_itself(now)

    def lead(self, now: float) -> None:
        """The group names this member: try to lead (rule 3.2)."""
        if not self.leading:
            self.leading = True
            self._campaign(now)
            self._say_to_itself(now)

    def follow(self) -> None:
        """The group names another member."""
        self.leading = False
        self._abandon()

    def tick(self, now: float) -> None:
        """Time has passed: say again what was not answered (rule 3.8)."""
        self._say_to_itself(now)
        if now < self._retry_at:
            return
        self._retry_at = now + RETRY_S
        if self.leading and self._ballot is None:
            self._campaign(now)
        elif self._ballot is not None and self._promises is not None:
            self._send(Phase1A(self._ballot, self._applied))
        for slot in sorted(self._proposals):
            self._send_proposal(slot)
        if self._open is not None:
            self._send_request()
        if self._decided and max(self._decided) >= self._applied:
            self._send(Behind(self._applied))
        self._say_to_itself(now)

    def check_invariants(self) -> None:
        """What must hold after each step."""
        assert self._open is None or self._waiting, "a request is open that nobody waits for"
        assert self._applied not in self._decided, "a decision is not applied"
        assert self._ballot is None or self._ballot.member == self.name, "another member's ballot"
        assert self._ballot is not None or not self._proposals, "proposals without a ballot"

    # asking

    def _element(self, element: Element) -> None:
        if self.elements.add(element):
            self._outputs.append(Keep(element))
            self._request()
            self._serve()

    def _request(self) -> None:
        while self._open is None and self._waiting:
            _, wait = self._waiting[0]
            if not wait and not len(self.elements):
                self._answer(None)
                continue
            self._requests += 1
            self._open = Serial(self._life, self._requests)
            self._send_request()

    def _send_request(self) -> None:
        assert self._open is not None
        self._send(Request(self._open, self._waiting[0][1], self.elements.oldest(), self._applied))

    def _answer(self, element: Element | None) -> None:
        ticket, _ = self._waiting.popleft()
        self._outputs.append(Dequeued(ticket, element))

    # messages

    def _send(self, message: Message) -> None:
        """To all, this member included: it hears itself once it is done with what it is doing."""
        self._local.append(message)
        if not (isinstance(message, (Phase1B, Phase2B)) and message.to == self.name):
            self._outputs.append(Send(message))

    def _say_to_itself(self, now: float) -> None:
        while self._local:
            self._handle(self.name, self._local.popleft(), now)

    def _handle(self, sender: str, message: Message, now: float) -> None:
        match message:
            case Element():
                self._element(message)
            case Request():
                self._on_request(sender, message)
            case Phase1A():
                self._on_phase_1a(sender, message)
            case Phase1B(to=self.name):
                self._on_phase_1b(sender, message, now)
            case Phase2A():
                self._on_phase_2a(sender, message)
            case Phase2B(to=self.name):
                self._on_phase_2b(sender, message, now)
            case Decision():
                self._on_decision(message)
            case Behind(applied):
                if self.leading:
                    self._send_decisions(applied)
            case _:
                pass  # what the group says, and what is for others

    def _on_request(self, sender: str, request: Request) -> None:
        self._note_applied(sender, request.applied)
        if request.serial <= self._answered.get(sender, Serial(0, 0)):
            if self.leading and sender != self.name:
                self._send_decisions(request.applied)
            return
        self._pending[sender] = request
        if request.offer is not None:
            self._element(request.offer)
        self._serve()

    def _send_decisions(self, first: int) -> None:
        for slot in sorted(self._decided):
            if slot >= first:
                self._outputs.append(Send(Decision(slot, self._decided[slot])))

    # accepting

    def _on_phase_1a(self, sender: str, message: Phase1A) -> None:
        self._promise(message.ballot)
        if sender != self.name:
            self._send_decisions(message.first)
        told: list[AcceptedAt] = []
        octets, end = 0, None
        for slot in sorted(slot for slot in self._accepted if slot >= message.first):
            element = self._accepted[slot].value.element
            octets += 0 if element is None else len(element.body)
            if told and self.room is not None and octets > self.room:
                end = slot
                break
            told.append(self._accepted[slot])
        self._send(Phase1B(sender, message.ballot, self._promised, tuple(told), message.first, end))

    def _promise(self, ballot: Ballot) -> None:
        """Refuse lower ballots from now on (rule 3.3); kept, so that no restart forgets it (rule 3.9)."""
        if ballot > self._promised:
            self._promised = ballot
            self._outputs.append(Keep(Promised(ballot)))

    def _on_phase_2a(self, sender: str, message: Phase2A) -> None:
        self._promise(message.ballot)
        if message.ballot == self._promised:
            self._accept(AcceptedAt(message.slot, message.ballot, message.value))
            self._forget_before(min(message.stable, self._applied))
        self._send(Phase2B(sender, message.ballot, message.slot, self._promised, self._applied))

    def _accept(self, accepted: AcceptedAt) -> None:
        if self._accepted.get(accepted.slot) != accepted:
            self._accepted[accepted.slot] = accepted
            self._outputs.append(Keep(accepted))

    def _forget_before(self, stable: int) -> None:
        for places in (self._accepted, self._decided):
            for slot in [slot for slot in places if slot < stable]:
                del places[slot]

    # leading

    def _majority(self) -> int:
        return len(self._members) // 2 + 1

    def _campaign(self, now: float) -> None:
        """Phase 1 with a ballot higher than all that this member has seen (rule 3.2)."""
        self._retry_at = now + RETRY_S
        self._ballot = Ballot(max(self._promised, self._highest).round + 1, self.name)
        self._promises, self._latest = {}, {}
        self._send(Phase1A(self._ballot, self._applied))

    def _abandon(self) -> None:
        self._ballot = None
        self._promises = None
        self._proposals.clear()
        self._votes.clear()

    def _preempted(self, promised: Ballot) -> None:
        """A higher ballot stands against this one: try again later, if the group still says so (rule 3.2)."""
        self._highest = max(self._highest, promised)
        self._abandon()

    def _on_phase_1b(self, sender: str, message: Phase1B, now: float) -> None:
        if message.ballot != self._ballot or self._promises is None:
            return
        if message.promised != message.ballot:
            self._preempted(message.promised)
            return
        told = self._promises.get(sender, 0)
        if told is None or message.first > max(told, self._applied):
            return  # of what is before that it has not told, as another has not
        for at in message.accepted:
            if at.slot not in self._latest or at.ballot > self._latest[at.slot].ballot:
                self._latest[at.slot] = at
        self._promises[sender] = message.end
        if message.end is not None:
            self._send(Phase1A(message.ballot, message.end))
        elif list(self._promises.values()).count(None) >= self._majority():
            self._established()

    def _established(self) -> None:
        """A majority has promised: propose again what may have been decided (rule 3.4), then serve."""
        latest = self._latest
        self._promises = None
        for slot in range(self._applied, max([*latest, *self._decided], default=-1) + 1):
            if slot not in self._decided:
                self._propose(slot, latest[slot].value if slot in latest else NOTHING)
        self._serve()

    def _propose(self, slot: int, value: Value) -> None:
        self._proposals[slot] = value
        self._votes[slot] = set()
        self._send_proposal(slot)

    def _send_proposal(self, slot: int) -> None:
        assert self._ballot is not None
        stable = min(self._applied_of.get(member, 0) for member in self._members)
        self._send(Phase2A(self._ballot, slot, self._proposals[slot], stable))

    def _serve(self) -> None:
        """Propose an element for each request that has none under way (rule 3.5)."""
        if self._ballot is None or self._promises is not None:
            return
        served = {(value.member, value.serial) for value in self._proposals.values()}
        taken = {value.element.id for value in self._proposals.values() if value.element is not None}
        for member, request in list(self._pending.items()):
            if (member, request.serial) in served:
                continue
            element = self.elements.oldest(without=taken)
            if element is None and (request.wait or taken):
                continue
            if element is not None:
                taken.add(element.id)
            slot = max([self._applied - 1, *self._proposals, *self._decided]) + 1
            self._propose(slot, Value(member, request.serial, element))

    def _on_phase_2b(self, sender: str, message: Phase2B, now: float) -> None:
        self._note_applied(sender, message.applied)
        if message.ballot != self._ballot or message.slot not in self._proposals:
            return
        if message.promised != message.ballot:
            self._preempted(message.promised)
            return
        self._votes[message.slot].add(sender)
        if len(self._votes[message.slot]) >= self._majority():
            self._send(Decision(message.slot, self._proposals[message.slot]))

    def _note_applied(self, member: str, applied: int) -> None:
        self._applied_of[member] = max(applied, self._applied_of.get(member, 0))

    # learning

    def _on_decision(self, decision: Decision) -> None:
        if decision.slot < self._applied or decision.slot in self._decided:
            return
        self._decided[decision.slot] = decision.value
        self._outputs.append(Keep(decision))
        while self._applied in self._decided:
            value = self._decided[self._applied]
            self._proposals.pop(self._applied, None)
            self._votes.pop(self._applied, None)
            self._applied += 1
            self._apply(value)
        self._request()
        self._serve()

    def _apply(self, value: Value) -> None:
        """The first decision for a request and for an element counts, all others are void (rule 3.6)."""
        if self._is_void(value):
            return
        self._answered[value.member] = value.serial
        request = self._pending.get(value.member)
        if request is not None and request.serial <= value.serial:
            del self._pending[value.member]
        if value.element is not None:
            self.elements.pop(value.element.id)
        if value.member == self.name and value.serial == self._open:
            self._open = None
            self._answer(value.element)

    def _is_void(self, value: Value) -> bool:
        if value == NOTHING or value.serial <= self._answered.get(value.member, Serial(0, 0)):
            return True
        return value.element is not None and self.elements.is_popped(value.element.id)

    # starting again

    def _restore(self, record: Record) -> None:
        """What was kept, in the order in which it was kept (rule 3.9)."""
        match record:
            case Promised(ballot):
                self._promised = ballot
            case AcceptedAt():
                self._accepted[record.slot] = record
            case Decision():
                self._on_decision(record)
            case Element():
                self._element(record)
