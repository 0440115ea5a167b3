"""Publishers of one address attach here, prove themselves, claim, and go (protocol 5, 8.4).

`router.core.records` keeps what they send, and `router.core.streams` decides which subscriptions get it. One
publisher's state is in `router.core.publisher`.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from router.config import is_dynamic
from router.core import messages as m
from router.core.base import BaseAddress
from router.core.directory import PublisherEntry
from router.core.held import Batch
from router.core.naming import derive_publisher_id, outgoing_tags, refused_epoch, tag_prefix
from router.core.ports import Part, PublisherAttach, PublisherPort, Term, UniqueTags
from router.core.publisher import DETACHED_PORT, BaseIngress, Brought, Publisher
from router.core.publisher_directory import PublisherDirectory
from router.core.publisher_handshake import READY, Action, Input
from router.core.streams import Streams
from router.core.turns import Turns
from router.core.windows import Windows
from router.names import (
    DETACH_FORCED,
    EPOCH,
    GONE,
    INVALID_FIELD,
    MESSAGE_SIZE_EXCEEDED,
    NOT_FOUND,
    PUBLISHER_EXPIRED,
    PUBLISHER_UNKNOWN,
    STOLEN,
)
from router.policies import owner_of

FORGOTTEN: Final = "an operator has had this publisher forgotten"


class Ingress(BaseIngress):
    """Publishers of one address at this router."""

    def __init__(
        self, address: BaseAddress, directory: PublisherDirectory, streams: Streams, turns: Turns, windows: Windows
    ) -> None:
        super().__init__(address.known_subscriptions, windows)
        self.directory = directory
        self.streams = streams
        self.turns = turns
        self.records = streams.records
        self.attached = address.attached
        self.publishers = address.attached.claimed
        self.address = address
        self.core = address.core

    def handlers(self) -> m.Handlers:
        return {m.PubAck: self.on_puback, m.Again: self.on_again}

    # -------------------------------------------------------------------------------------------------------- attaching

    def attach(self, port: PublisherPort, attach: PublisherAttach) -> None:
        """Chooses the term and answers the attach (protocol 5.1), or refuses it (protocol 5.3). Nothing is claimed yet:
        an attach proves nothing."""
        core, address = self.core, self.address
        if is_dynamic(address.name) and not (attach.makes_node or address.known_subscriptions):
            port.refuse(NOT_FOUND, GONE, {})
            return
        unique = isinstance(attach.unsettled, UniqueTags)
        publisher_id = derive_publisher_id(attach.container, attach.name, attach.address, unique)
        known = address.known_publishers.get(publisher_id)
        if attach.epoch is not None and known and known.term >= (attach.epoch, ""):
            self._refuse_stolen(port, refused_epoch(known.term, known.incarnation))
            return
        if attach.epoch is not None and (later := core.memory.map_parts.later(publisher_id, attach.epoch)) is not None:
            self._refuse_stolen(port, later)
            return
        presented = None if isinstance(attach.unsettled, UniqueTags) else attach.unsettled
        if attach.incomplete or core.memory.map_parts:  # protocol 7.7: all parts are one map
            user = owner_of(attach.container)
            parts = core.memory.map_parts
            presented = parts.collect(publisher_id, attach.epoch, presented, attach.incomplete, core.now, user)
            if attach.incomplete:
                port.answer_map_part()
                return
        resumes = bool(presented)  # an empty map resumes nothing: with the old incarnation its tags could be used again
        brought = Brought(attach, resumes=resumes)
        if known and self._was_forgotten(known, brought):
            port.refuse(PUBLISHER_EXPIRED, FORGOTTEN, {})
            return
        if resumes and attach.incarnation is None:
            if not (known and known.real):
                if not core.recovery.is_recovered(address.name):
                    core.recovery.deferred_publishers[port] = attach
                else:
                    port.refuse(PUBLISHER_UNKNOWN, "no router knows this publisher's unsettled deliveries", {})
                return
            if known.expired(core.now):
                port.refuse(PUBLISHER_EXPIRED, "this publisher was away for longer than publisher_timeout", {})
                return
        term = self._choose_term(attach, publisher_id, known.term if known else None)
        publisher = Publisher(self, self.records, port, brought, publisher_id, term)
        publisher.window.most_unsettled = publisher.window.most_unsettled or core.config.unsettled_window
        publisher.timeout_s = address.config.publisher_expires_s
        in_time = known is not None and not known.closed and not known.expired(core.now)
        publisher.handshake.may_be_late = in_time and brought.may_resend
        publisher.handshake.presented = presented or {}
        attach.unsettled = None  # the port keeps the attach
        if resumes:
            address.counters.publishers_resumed += 1
        self._steal(publisher)
        self.attached.begin_proving(publisher)
        core.publishers[port] = publisher
        answered = attach.incarnation  # None: not known before the claim
        if unique:
            answered = 0
        elif answered is None and not resumes:
            answered = publisher.term[0]
        publisher.handshake.asked(core.roll_call.together)
        port.answer(answered, publisher.term, credit=not (resumes and attach.incarnation is None))
        core.agenda.window_changed(publisher)

    def _choose_term(self, attach: PublisherAttach, publisher_id: bytes, known: Term | None) -> Term:
        """Chooses the term before the proof, so that a later attach elsewhere gets a later term (protocol 5.1), and one
        here, too, if the clock has been set back (protocol 1.4)."""
        if attach.term is not None:
            return attach.term
        if attach.epoch is not None:
            return (attach.epoch, "")
        number = self.core.choose_number(known[0] if known else 0)
        for each in self.attached.proving_as(publisher_id):
            number = max(number, each.term[0] + 1)
        return (number, self.core.name)

    def _steal(self, publisher: Publisher) -> None:
        """Drops older local links of the publisher where its attach is certainly the later one: what is read now may
        have been written long ago (protocol 5.1.7)."""
        older = list(self.attached.proving_as(publisher.publisher_id))
        claimed = self.publishers.get(publisher.publisher_id)
        for each in [*older, claimed] if claimed else older:
            known = max(each.incarnation, each.brought.incarnation or 0)
            goes_back = publisher.brought.incarnation is not None and publisher.brought.incarnation < known
            if not goes_back and self._is_surely_later(publisher, each):
                self.drop(each, refused_epoch(publisher.term, each.incarnation))
                self.core.drain()  # protocol 3.3: messages to oneself go before the rest

    def _is_surely_later(self, publisher: Publisher, older: Publisher) -> bool:
        ours, theirs = publisher.connection, older.connection
        ordered = publisher.handshake.brought_epoch and older.handshake.brought_epoch
        if ours is None or theirs is None or (ordered and ours != theirs):
            return ordered and publisher.term > older.term
        return ours >= theirs  # a client attaches on the last connection that it has opened

    def _refuse_stolen(self, port: PublisherPort, epoch: int) -> None:
        port.refuse(STOLEN, "the publisher has attached with a later epoch", {EPOCH: epoch})

    # --------------------------------------------------------------------------------------------------------- claiming

    def receive(self, publisher: Publisher, what: Input) -> None:
        """Goes on in the publisher's handshake: does what its table says."""
        action = publisher.handshake.receive(what)
        if action is Action.CHECK:
            self._claim(publisher)
        elif action is Action.ASK:
            self.ask(publisher)
        elif action is Action.CALL:
            publisher.handshake.call = self.core.roll_call.next
            self.core.roll_call.want(publisher.handshake.call)
        elif action is Action.TELL:
            self._tell_all(publisher)
        elif action is Action.TAKE:
            self._become_ready(publisher)
        elif action is Action.FORWARD_AND_LEAVE or action is Action.FORWARD_AND_CLOSE:
            self._take_held(publisher)
            if not publisher.dropped:
                self.receive(publisher, Input.CLOSED if action is Action.FORWARD_AND_CLOSE else Input.LOST)
        elif action is Action.LEAVE or action is Action.CLOSE:
            self._leave(publisher, closed=action is Action.CLOSE)
        elif action is Action.DROP:
            self._drop_records(publisher)
        elif action is Action.DISCARD:
            self._discard(publisher)

    def proved(self, publisher: Publisher) -> None:
        """The publisher claims in the same step as its sign of life arrives (protocol 5.2).

        A sign of life counts only for JOINs processed before the message that it answers. Since then the publisher may
        have moved to the router where a newer subscription was, and finished there. In that case it is asked again.
        """
        if publisher.handshake.is_proving:
            self.receive(publisher, publisher.handshake.proved())

    def ask(self, publisher: Publisher) -> None:
        """Asks the publisher for a proof (protocol 5.2, 5.7)."""
        publisher.handshake.asked(self.core.roll_call.together)
        publisher.window.slack = 0  # protocol 5.7: what comes may use up the question's limit
        publisher.port.ask()

    def wants_proof(self, publisher: Publisher) -> None:
        self.streams.ask(publisher)

    def called(self, publisher: Publisher, number: int) -> None:
        """All routers have answered (protocol 5.9)."""
        if not publisher.handshake.is_calling:
            self.streams.called(publisher, number)
        elif publisher.handshake.call <= number:
            self.receive(publisher, Input.CALLED)

    def vouching_changed(self, publisher: Publisher) -> None:
        """All routers are together now, so that a proof is worth asking for, or one is missing: then nobody can be
        called, and the publisher itself is asked (protocol 5.9)."""
        if publisher.handshake.is_calling:
            self.receive(publisher, Input.APART)
        else:
            self.streams.ask(publisher)

    def question_answered(self, publisher: Publisher) -> None:
        """The open question is answered: another sign of life, and a later proof (protocol 5.7)."""
        self.proved(publisher)
        self.streams.question_answered(publisher)

    def _claim(self, publisher: Publisher) -> None:
        """The publisher works here from now on, unless something has become known that forbids it (protocol 5.4)."""
        known = self.address.known_publishers.get(publisher.publisher_id)
        publisher.incarnation = publisher.brought.incarnation or 0
        if known and self._was_forgotten(known, publisher.brought):
            self._refuse_claim(publisher, PUBLISHER_EXPIRED, FORGOTTEN)
            return
        if known and (known.term >= publisher.term or self._goes_back(publisher, known)):
            self._detach_stolen(publisher, refused_epoch(known.term, known.incarnation), Input.REFUSED)
            return
        if self._is_too_late(publisher, known):
            self._refuse_claim(publisher, PUBLISHER_EXPIRED, "its sign of life took longer than publisher_timeout")
            return
        older = self.publishers.get(publisher.publisher_id)
        if older:
            self.drop(older, refused_epoch(publisher.term, publisher.incarnation))
            self.core.drain()  # protocol 3.3: messages to oneself go before the rest
            known = self.address.known_publishers.get(publisher.publisher_id)
        incarnation = self._incarnation(publisher, known)
        if incarnation is None:
            self._refuse_claim(publisher, PUBLISHER_UNKNOWN, "no router knows this publisher's unsettled deliveries")
            return
        publisher.incarnation = incarnation
        self.receive(publisher, Input.PASSED)

    def _refuse_claim(self, publisher: Publisher, condition: str, text: str) -> None:
        self.receive(publisher, Input.REFUSED)
        publisher.port.detach(condition, text, {}, True)

    def _tell_all(self, publisher: Publisher) -> None:
        """Its claim is told to all routers (protocol 5.4)."""
        core, address, handshake = self.core, self.address, publisher.handshake
        publisher.prefix = tag_prefix(publisher.publisher_id, publisher.incarnation)
        undecided = [tag for tag, outcome in handshake.presented.items() if outcome is None]
        unique = publisher.brought.unique_tags
        publisher.resending.expect(outgoing_tags(publisher.prefix, undecided), unknown=unique)
        publisher.sent.tags = set() if unique else None
        handshake.presented = {}
        self.attached.stop_proving(publisher)
        self.publishers[publisher.publisher_id] = publisher
        for entry in address.known_subscriptions.values():
            if entry.home is not None:
                self.streams.cover(publisher, entry)
        handshake.missing = core.kinds.everybody(address.name)
        core.post.broadcast(self._pub(publisher, self.streams.expected(publisher)))
        early, handshake.early_tags = handshake.early_tags, []
        for tag in early:
            self.settled_tag(publisher, tag)
        if address.doubts is not None:
            address.doubts.claimed(publisher, address.known_subscriptions.values())

    def _pub(self, publisher: Publisher, expected: m.Expected | None) -> m.Pub:
        name = self.address.name
        incarnation, timeout_s = publisher.incarnation, publisher.timeout_s
        return m.Pub(name, publisher.publisher_id, incarnation, publisher.term, timeout_s, expected)

    def _is_too_late(self, publisher: Publisher, known: PublisherEntry | None) -> bool:
        """Says whether other routers may have settled what the publisher will send again while its sign of life was
        awaited (protocol 5.4). A client that brings an incarnation knows by itself how long it has been away
        (protocol 15)."""
        return publisher.handshake.may_be_late and (known is None or known.expired(self.core.now))

    def _was_forgotten(self, known: PublisherEntry, brought: Brought) -> bool:
        """Says whether an operator has had forgotten what the publisher would go on with. One that begins a later life
        goes on with nothing (protocol 8.4)."""
        if brought.unique_tags:
            return known.is_forgotten(0)
        if brought.incarnation is not None:
            return known.is_forgotten(brought.incarnation)
        return brought.resumes and known.forgotten is not None

    def _goes_back(self, publisher: Publisher, known: PublisherEntry) -> bool:
        """Says whether its incarnation is earlier than the known one, and others would refuse it. It is refused here
        before it takes the link away from a later incarnation (protocol 5.4)."""
        brought = publisher.brought.incarnation is not None
        return brought and self._is_overtaken(publisher, known.term, known.incarnation)

    def _incarnation(self, publisher: Publisher, known: PublisherEntry | None) -> int | None:
        """Returns 0 with unique tags; the one brought; the directory's when it resumes; else the term's number
        (protocol 5.4)."""
        if publisher.brought.unique_tags:
            return 0
        if publisher.brought.incarnation is not None:
            return publisher.brought.incarnation
        if not publisher.brought.resumes:
            return publisher.term[0]
        return known.incarnation if known and known.real else None

    def on_puback(self, sender: str, message: m.PubAck) -> None:
        """A router has noted the claim (protocol 5.4), or knows a later one (protocol 5.6)."""
        publisher = self.publishers.get(message.publisher)
        if message.stale is not None:
            term, incarnation, real = message.stale
            if publisher and publisher.term == message.term and self._is_overtaken(publisher, term, incarnation):
                self.drop(publisher, refused_epoch(term, incarnation))
                self.core.drain()  # protocol 3.3: messages to oneself go before the rest
            self.directory.learn_from_stale(message.publisher, term, incarnation, real)
            return
        if publisher and publisher.term == message.term:
            publisher.handshake.missing.pop(sender, None)
            self.check_ready(publisher)

    def _is_overtaken(self, publisher: Publisher, term: Term, incarnation: int) -> bool:
        return publisher.term < term or publisher.incarnation < incarnation

    def check_ready(self, publisher: Publisher) -> None:
        """When all have answered the claim, the link is ready (protocol 5.4)."""
        if publisher.handshake.claims and not publisher.handshake.missing:
            self.receive(publisher, Input.ACKNOWLEDGED)

    def _become_ready(self, publisher: Publisher) -> None:
        self._take_held(publisher)
        if not publisher.dropped:
            self.core.agenda.window_changed(publisher)
            self.streams.ask(publisher)

    def _take_held(self, publisher: Publisher) -> None:
        """Held transfers are taken; pre-settled ones only, where the link is gone (protocol 6.9)."""
        self.records.feeds.look(publisher)
        self.streams.completion.check(publisher)
        held = publisher.held.take()
        if publisher.handshake.state is READY:
            self.streams.expect_until_flush(publisher)
            publisher.port.ready()
        for batch in held:
            self._take(publisher, batch)
            if publisher.dropped:
                return
        self.take_held_parts(publisher)

    # --------------------------------------------------------------------------------------------------- what they send

    def transfers(self, publisher: Publisher, batch: Batch) -> None:
        """Transfers are taken when the link is ready, and held before that, in order (protocol 5.1, 6.1)."""
        publisher.window.slack -= len(batch.tags)
        if publisher.window.slack <= 0:
            self.core.agenda.window_changed(publisher)
        if publisher.held.parts:  # protocol 6.12.10; the session's window bounds them
            publisher.held.parts.append(batch)
            return
        if publisher.handshake.state is READY:
            self._take(publisher, batch)
            return
        self._note_sign(publisher)
        if publisher.ready:  # no other router had to answer
            self._take(publisher, batch)
        elif not publisher.dropped:  # the credit bounds them
            publisher.held.hold(batch)

    def _note_sign(self, publisher: Publisher) -> None:
        """It has sent something, which is a sign of life unless it is asked for another one (protocol 5.2)."""
        if publisher.handshake.awaits_sign:
            self.proved(publisher)
            self.core.drain()

    def part(self, publisher: Publisher, part: Part) -> None:
        """A part of a large delivery is taken when the link is ready (protocol 6.12), and held before that."""
        self.core.agenda.window_changed(publisher)
        if publisher.handshake.state is not READY:
            self._note_sign(publisher)
        turns = self.turns
        if publisher.dropped:
            return
        if not publisher.ready or publisher.held.parts:
            self._hold_part(publisher, part)
        elif part.first and turns.holder is not publisher:
            self._hold_part(publisher, part)
            turns.want(publisher)
        elif part.first and (publisher.coverage.uncovered or self.records.feeds):
            self.ask_again(publisher)  # it will cover them, or its link will be one that joins (MQTT's topics do)
        elif part.first:
            self._take(publisher, Batch(part.delivery_id, [part.tag], [part.payload], False, 0, begins=True))
        elif part.aborted:
            if publisher.sent.unfinished is not None:
                self.records.publisher_settled(publisher, part.delivery_id, part.delivery_id)
        else:
            self.records.add_part(publisher, part.payload, part.last)
        turns.look()

    def take_held_parts(self, publisher: Publisher) -> None:
        """The link is ready, or it is the publisher's turn."""
        for part in publisher.held.take_parts():
            if publisher.dropped:
                return
            if isinstance(part, Part):
                self.part(publisher, part)
            elif publisher.held.parts:
                publisher.held.parts.append(part)
            else:
                self._take(publisher, part)

    def take_turn(self, publisher: Publisher) -> None:
        """A FLUSH that has waited for what is taken now goes on (protocol 8.5)."""
        self.take_held_parts(publisher)
        self.streams.flush_after_turn(publisher)

    def _hold_part(self, publisher: Publisher, part: Part) -> None:
        """They are bounded by the session's window, but for one that is asked for its sign of life."""
        publisher.held.parts.append(part)
        most = self.core.config.max_message_size
        if sum([len(each.payload) for each in publisher.held.parts if isinstance(each, Part)]) > most:
            port = publisher.port
            self.detach(publisher, False)
            port.detach(MESSAGE_SIZE_EXCEEDED, f"more than {most} bytes before a sign of life", {}, True)

    def on_again(self, sender: str, message: m.Again) -> None:
        """A subscription needs a large delivery again (protocol 6.12)."""
        publisher = self.publishers.get(message.publisher)
        if publisher is not None and publisher.term == message.term and publisher.ready:
            self.ask_again(publisher)

    def ask_again(self, publisher: Publisher) -> None:
        """No router has the payload of a large delivery that is owed: the publisher is to attach again, and to send all
        that is undecided (protocol 6.12)."""
        port = publisher.port
        self.detach(publisher, False)
        text = "a subscription needs a large delivery from its beginning: attach again"
        port.detach(DETACH_FORCED, text, {}, _is_plain(publisher))

    def _take(self, publisher: Publisher, batch: Batch) -> None:
        """Hands transfers on. A tag of two unsettled deliveries detaches the link: subscribers that drop repeats by tag
        would lose the second (protocol 6.1.7)."""
        records, sent = self.records, publisher.sent
        if not (batch.settled or publisher.brought.unique_tags or sent.used_tags.rise(batch.tags)):
            repeat = sent.used_tags.find_repeat(batch.tags, partial(sent.unsettled_tags, records.log))
            if repeat is not None:
                port = publisher.port
                self.detach(publisher, False)
                text = f"delivery-tag {repeat.hex()} is that of another unsettled delivery of this link"
                port.detach(INVALID_FIELD, text, {}, True)
                return
        records.take(publisher, batch)

    def settled_tag(self, publisher: Publisher, tag: bytes) -> None:
        """The publisher says that it will not send an expected tag again (protocol 6.6)."""
        if publisher.handshake.state is not READY:
            self._note_sign(publisher)
            if publisher.handshake.is_proving:
                publisher.handshake.early_tags.append(tag)
                return
        if publisher.dropped:
            return
        outgoing = outgoing_tags(publisher.prefix, [tag])
        expected = publisher.resending.tags.pop(outgoing[0], self) is None
        recorded = not expected and self.records.settled_tag(publisher, outgoing[0])
        if expected or (publisher.resending.unknown and not recorded):
            self.core.post.broadcast(m.SettleTags(self.address.name, publisher.publisher_id, publisher.term, outgoing))
        feeds = self.records.feeds.settled_tag(publisher, outgoing[0])
        self.streams.completion.settled_tag(publisher, tag, outgoing[0], feeds, recorded=recorded)

    # ---------------------------------------------------------------------------------------------------------- routers

    def router_up(self, router: str) -> None:
        """Sends the peer a PUB without expected set; open barriers wait for the peer, too (protocol 4.2)."""
        for publisher in self.publishers.values():
            if publisher.handshake.claims:
                publisher.handshake.missing[router] = None
            self.core.post.send_to(router, self._pub(publisher, None))

    def router_down(self, router: str) -> None:
        """Barriers stop waiting for that router (protocol 8.6)."""
        for publisher in list(self.publishers.values()):
            publisher.handshake.missing.pop(router, None)
            self.check_ready(publisher)

    # ------------------------------------------------------------------------------------------------------- going away

    def detach(self, publisher: Publisher, closed: bool) -> None:
        """The publisher's link is gone; closed: for good (protocol 8.4)."""
        self.core.publishers.pop(publisher.port, None)
        handshake = publisher.handshake
        if handshake.is_proving:
            if not self._detach_claims(publisher, closed):
                self.receive(publisher, Input.LOST)
                return
            publisher.port = DETACHED_PORT
            self.receive(publisher, Input.CLOSED)
            self.core.drain()
            if publisher.dropped:
                return
        publisher.port, publisher.connection = DETACHED_PORT, None
        if handshake.claims and publisher.held.keep_presettled():
            self.receive(publisher, Input.CLOSED_WITH_SETTLED if closed else Input.LOST_WITH_SETTLED)
        else:
            self.receive(publisher, Input.CLOSED if closed else Input.LOST)

    def _detach_claims(self, publisher: Publisher, closed: bool) -> bool:
        """Says whether the detach claims: only a close with an epoch does, as others may have been pipelined
        (protocol 5.2)."""
        return closed and publisher.handshake.brought_epoch

    def _leave(self, publisher: Publisher, *, closed: bool) -> None:
        """Drops its records, and tells all routers that it no longer works here (protocol 8.4)."""
        self.records.feeds.drop(publisher, closed=closed)
        self._drop_records(publisher)
        name, publisher_id, term = self.address.name, publisher.publisher_id, publisher.term
        if closed:
            self.core.post.broadcast(m.PubClose(name, publisher_id, publisher.incarnation, term))
        else:
            self.core.post.broadcast(m.PubDown(name, publisher_id, term))

    def forget(self, publisher_id: bytes, incarnation: int) -> None:
        """The publisher is taken for gone in this incarnation. If it works here all the same, it is told
        (protocol 8.4)."""
        publisher = self.publishers.get(publisher_id)
        if publisher is not None and publisher.incarnation <= incarnation:
            self.core.publishers.pop(publisher.port, None)
            self.receive(publisher, Input.STOLEN)
            publisher.port.detach(PUBLISHER_EXPIRED, FORGOTTEN, {}, True)

    def drop(self, publisher: Publisher, epoch: int) -> None:
        """Detaches a publisher as stolen that works elsewhere, or on another link here (protocol 5.3)."""
        self._detach_stolen(publisher, epoch)
        self.core.post.broadcast(m.PubDown(self.address.name, publisher.publisher_id, publisher.term))

    def _detach_stolen(self, publisher: Publisher, epoch: int, what: Input = Input.STOLEN) -> None:
        port = publisher.port
        self.core.publishers.pop(port, None)
        self.receive(publisher, what)
        port.detach(STOLEN, "the publisher has attached elsewhere", {EPOCH: epoch}, _is_plain(publisher))

    def _discard(self, publisher: Publisher) -> None:
        """Forgets a publisher that has claimed nothing."""
        self.attached.stop_proving(publisher)
        self.core.publishers.pop(publisher.port, None)
        self.core.agenda.touch(self.address)  # the address may be empty now

    def _drop_records(self, publisher: Publisher) -> None:
        """The publisher's unsettled map is now the only authority (protocol 8.4)."""
        # Send SETTLE while the positions are valid: after PUBDOWN these deliveries would stay in doubt.
        self.records.flush()
        self.records.feeds.drop(publisher, closed=False)
        del self.publishers[publisher.publisher_id]
        self.records.drop_all(publisher)
        self.streams.completion.drop(publisher)
        self.turns.drop(publisher)
        self.core.roll_call.check_asked()

    def all_windows_changed(self) -> None:
        for publisher in self.attached.all():
            self.core.agenda.window_changed(publisher)

    def check_invariants(self) -> None:
        self.attached.check_invariants()


def _is_plain(publisher: Publisher) -> bool:
    """Says whether its client would not notice a detach with closed = false (protocol 5.3)."""
    return not (publisher.handshake.brought_epoch or publisher.brought.map)
