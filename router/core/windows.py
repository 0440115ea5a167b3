"""How much the publishers of one address may send, and when their sessions are held back (protocol 6.8, 6.12)."""

from __future__ import annotations

from typing import Final, cast

from router.core.base import BaseAddress
from router.core.ports import SendingPartsPort
from router.core.publisher import NO_SUBSCRIBERS, BaseWindows, Publisher
from router.core.streams import Streams
from router.core.waiting import WaitingPublishers

# Where half of its window is free, a publisher may use one part in so many of its credit before it is told again.
SLACK: Final = 8


class Windows(BaseWindows):
    """`core.agenda.window_changed` says whose has changed; they are told once in a turn."""

    def __init__(self, address: BaseAddress, streams: Streams) -> None:
        self.address = address
        self.core = address.core
        self.streams = streams
        self.records = streams.records
        self.waiting = WaitingPublishers(address)

    def tell(self, publisher: Publisher) -> None:
        """Tells the publisher's link how much may come (protocol 6.8)."""
        window, resending = publisher.window, publisher.resending
        messages, size, reason = self._window(publisher)
        ahead, config = self._is_ahead(publisher), self.core.config
        withheld = bool(reason or ahead) and self._is_credit_withheld(publisher, reason)
        could_not, resending.withheld = resending.withheld, withheld
        if could_not and not withheld and resending.flush_at is not None:
            # protocol 8.5: without credit it could not send again what it has in doubt
            self.streams.expect_until_flush(publisher)
        if reason and not window.reason:
            window.since = self.core.now
        window.reason = reason
        accepts = self.core.may_accept(self.address)
        waits = bool(reason) or (publisher.sent.undone > 0 and not accepts)
        if waits or self.waiting.since:
            self.waiting.note(publisher, waits)
        left = publisher.port.set_window(messages, size, reason)
        ample = 2 * messages >= config.window_messages and 2 * size >= config.window_bytes
        window.slack = left // SLACK if ample and accepts and not (reason or ahead) else 0
        if ahead is not window.held_back:
            window.held_back = ahead
            cast("SendingPartsPort", publisher.port).hold_back(ahead)

    def _window(self, publisher: Publisher) -> tuple[int, int, str]:
        """Returns how many messages and bytes may still be sent, and the reason if none (protocol 6.8)."""
        address, core, sent, held = self.address, self.core, publisher.sent, publisher.held
        if not address.known_subscriptions and address.config.no_subscribers == "hold" and not self.records.feeds:
            return (0, 0, NO_SUBSCRIBERS)
        if core.memory.payload_bytes >= core.config.memory_limit:
            return (0, 0, "memory limit")
        unsettled = publisher.window.most_unsettled - sent.unsettled
        if unsettled <= 0:
            return (0, 0, "unsettled window")
        messages = min(core.config.window_messages - sent.undone - held.count, unsettled)
        size = core.memory.fair_share(core.memory.payload_bytes) - sent.undone_bytes - held.size
        if messages <= 0:
            return (0, 0, "window")
        if size <= 0:
            return (0, 0, "window of bytes")
        return (messages, size, "")

    def _is_ahead(self, publisher: Publisher) -> bool:
        """Says whether its session is to be held back (protocol 6.12). One that is asked for its sign of life may not
        be able to answer then."""
        if publisher.held.parts:
            return not publisher.handshake.is_asked
        records = self.records
        return bool(records.large) and records.ahead(publisher) >= self.core.config.stream_share

    def _is_credit_withheld(self, publisher: Publisher, reason: str) -> bool:
        """Says whether credit is withheld, or without a reason its session held back, for another reason than new
        deliveries of this publisher: subscriptions may accept those only after its flush (protocol 8.5)."""
        sent = publisher.sent
        used = sent.undone or sent.unsettled or publisher.held.count or not reason
        return reason == NO_SUBSCRIBERS or not used or self._is_resending(publisher)

    def _is_resending(self, publisher: Publisher) -> bool:
        """A client sends what it has in doubt, in order, before anything new (protocol 8.5)."""
        return bool(publisher.resending.tags) and not publisher.resending.sent_new
