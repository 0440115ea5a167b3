"""The queue over Lamport's mutual exclusion (rules 2.x of docs/shared-queue.md).

All members are known and all must be there. One that is dead or cut off stops the dequeues of the others, because they
cannot tell which it is; somebody who knows may declare it dead. `paxos` goes on with a majority. Channels are FIFO and
reliable: that is what the network's ordered exactly-once topics are.

Lamport, Time, Clocks, and the Ordering of Events in a Distributed System (1978). As Ricart and Agrawala do (1981), an
acknowledgement is deferred instead of a release being sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from edges.queue.elements import Elements
from edges.queue.messages import Ack, Dequeue, Dequeued, Element, ElementId, Leave, Message, Output, Pop, Send


class Lamport:
    """One member of the queue.

    Args:
        name: this member's.
        members: all of them, this one included.
        life: a number that no earlier process of this name has used.
    """

    def __init__(self, name: str, members: Iterable[str], life: int) -> None:
        self.name = name
        self.elements = Elements()
        self._others = sorted({*members} - {name})
        self._life = life
        self._enqueued = 0
        self._tickets = 0
        self._waiting: deque[tuple[int, bool]] = deque()  # (ticket, wait), the first has the open request if any has
        self._clock = 0
        self._open: int | None = None  # the time of this member's request
        self._acks: set[str] = set()
        self._deferred: dict[str, int] = {}  # member: the time of its request
        self._outputs: list[Output] = []

    def outputs(self) -> list[Output]:
        """What to do, in this order; then it is forgotten here."""
        outputs, self._outputs = self._outputs, []
        return outputs

    def enqueue(self, body: bytes) -> Element:
        """Put an element into the queue (rule 1.1)."""
        self._enqueued += 1
        element = Element(ElementId(self.name, self._life, self._enqueued), body)
        self._outputs.append(Send(element))
        self._element(element)
        return element

    def dequeue(self, *, wait: bool) -> int:
        """Ask for an element.

        Args:
            wait: whether to wait until there is one; otherwise the answer is None where the local cache is empty.

        Returns:
            The ticket under which `Dequeued` answers.
        """
        self._tickets += 1
        self._waiting.append((self._tickets, wait))
        self._request()
        return self._tickets

    def receive(self, sender: str, message: Message, now: float) -> None:
        """Another member says this. Messages of one sender come in the order of sending, on each address."""
        match message:
            case Element():
                self._element(message)
            case Dequeue(time):
                self._tick_clock(time)
                if self._open is not None and (self._open, self.name) < (time, sender):
                    self._defer(sender, time)
                else:
                    self._ack(sender, time)
            case Ack(to, request_time, time):
                self._tick_clock(time)
                if to == self.name and request_time == self._open:
                    self._acks.add(sender)
                    self._enter_if_granted()
            case Pop(element, time):
                self._tick_clock(time)
                self.elements.pop(element)
            case Leave():
                self.declare_dead(sender)  # whatever it popped was heard before
            case _:
                pass  # what the group says

    def tick(self, now: float) -> None:
        """Nothing here depends on time: nobody is suspected (rule 2.6)."""

    def declare_dead(self, member: str) -> None:
        """Somebody who knows says that this member has stopped for good (rule 2.6)."""
        if member in self._others:
            self._others.remove(member)
            self._acks.discard(member)
            self._deferred.pop(member, None)
            self._enter_if_granted()

    def check_invariants(self) -> None:
        """What must hold after each step."""
        assert self._open is None or self._waiting, "a request is open that nobody waits for"
        assert self._open is not None or not self._deferred, "an acknowledgement is deferred without a reason"
        assert self._acks <= set(self._others)

    def _element(self, element: Element) -> None:
        if self.elements.add(element):
            self._request()

    def _tick_clock(self, time: int) -> None:
        self._clock = max(self._clock, time) + 1

    def _send(self, message: Message) -> None:
        self._outputs.append(Send(message))

    def _request(self) -> None:
        """Open a request for the first that waits, if there is something to be had."""
        while self._open is None and self._waiting:
            _, wait = self._waiting[0]
            if not len(self.elements):
                if wait:
                    return
                self._answer(None)
                continue
            self._clock += 1
            self._open = self._clock
            self._acks = set()
            self._send(Dequeue(self._open))
            self._enter_if_granted()

    def _defer(self, member: str, request_time: int) -> None:
        """This member's own request is older: the other waits until it has been served (rule 2.3)."""
        self._deferred[member] = request_time

    def _ack(self, member: str, request_time: int) -> None:
        self._clock += 1
        self._send(Ack(member, request_time, self._clock))

    def _enter_if_granted(self) -> None:
        """All others have acknowledged: this member has control, takes an element and gives control away at once."""
        if self._open is None or len(self._acks) < len(self._others):
            return
        element = self.elements.oldest()
        self._leave_control(element)
        if element is not None or not self._waiting[0][1]:
            self._answer(element)
        self._request()

    def _leave_control(self, element: Element | None) -> None:
        """POP goes out before the acknowledgements that release control: channels are FIFO (rule 2.4)."""
        self._pop(element)
        self._release()

    def _pop(self, element: Element | None) -> None:
        if element is not None:
            self.elements.pop(element.id)
            self._clock += 1
            self._send(Pop(element.id, self._clock))

    def _release(self) -> None:
        self._open = None
        deferred, self._deferred = self._deferred, {}
        for member, request_time in deferred.items():
            self._ack(member, request_time)

    def _answer(self, element: Element | None) -> None:
        ticket, _ = self._waiting.popleft()
        self._outputs.append(Dequeued(ticket, element))
