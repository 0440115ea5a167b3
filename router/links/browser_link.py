"""A receiving link with distribution-mode copy from a queue: it sees what waits there, and takes nothing (protocol
16.11)."""

from __future__ import annotations

from dataclasses import replace

from amqp10.performatives import SND_SETTLED
from amqp10.runs import Dispositions, LinkFlow
from amqp10.termini import COPY
from router.core.ports import SubscriberAnswer, Term
from router.core.selecting import wanted_of
from router.links.negotiation import answer_properties, answer_source
from router.links.subscriber_link import Loss, SubscriberLink


class BrowserLink(SubscriberLink):
    """The core's BrowserPort. What it gets is settled, as it is nobody's to decide."""

    __slots__ = ("_shown", "_waiting")

    def open(self, now: float) -> None:
        self._shown = False  # all that waited when the client last asked
        self._waiting: list[tuple[list[bytes], list[bytes], int]] = []  # shown by a router, and not sent yet
        remote = self.link.remote_attach
        assert remote is not None
        answer = SubscriberAnswer((0, ""), None, False, expiry_policy="link-detach")
        self.answered = self.connection.attach(
            self.link,
            source=replace(
                answer_source(remote, answer, self.connection.config.address(self.attach.address)),
                distribution_mode=COPY,
            ),
            target=remote.target,
            properties=answer_properties(guarantee="at-most-once"),
            snd_settle_mode=SND_SETTLED,
            rcv_settle_mode=self._modes.rcv,
        )
        if self.answered:
            self.connection.core.attach_browser(self, self.attach.address, now)

    # --- BrowserPort: what the core says

    def room(self) -> int:
        return 0 if self._waiting else self.capacity()

    def show(self, tags: list[bytes], payloads: list[bytes], message_format: int) -> None:
        selection = self.attach.selection
        every = list(range(len(tags)))
        wanted = every if selection is None else wanted_of(selection, payloads, message_format)
        if wanted:
            self._waiting.append(([tags[i] for i in wanted], [payloads[i] for i in wanted], message_format))
        self.send_waiting()

    def send_waiting(self) -> None:
        """As much as there is credit for."""
        while self._waiting and (n := self.capacity()):
            tags, payloads, message_format = self._waiting.pop(0)
            if len(tags) > n:
                self._waiting.insert(0, (tags[n:], payloads[n:], message_format))
            self._wrote(len(tags[:n]))
            self.link.send(tags[:n], payloads[:n], settled=True, message_format=message_format)

    def seen_all(self) -> None:
        self._shown = True

    # --- the engine's events

    def on_flow(self, event: LinkFlow, now: float) -> None:
        if self.detached:
            return
        self._shown = False
        if self.link.drain:
            self.connection.drain(self)
        self.connection.core.browser_looks(self, now)

    def has_room(self, now: float) -> None:
        self.connection.core.browser_looks(self, now, again=False)

    def on_dispositions(self, event: Dispositions, now: float) -> None:
        """Nothing depends on it."""

    def lost(self, end: Loss, now: float) -> Term | None:
        if not self.detached:
            self._mark_detached()
            self.connection.core.detach_browser(self, now)
        return None

    def drained(self) -> bool:
        return super().drained() if self._shown and not self._waiting else self.detached or not self.link.drain
