"""What of clients' input and output waits in buffers, and who has to go where it is too much (protocol 6.8)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

from router.config import RouterConfig
from router.core.holding import NETWORK, Holding
from router.links.limits import MEMORY, UNREAD, Admission

SMALL_FRAME: Final = 64 << 10  # an incomplete frame up to this size closes no connection


class Buffers:
    """Of all clients of one router, those of MQTT, too."""

    def __init__(self, config: RouterConfig, admission: Admission, clients: Callable[[], Iterable[Any]]) -> None:
        self._admission = admission
        self._clients = clients
        self.unread_bytes = 0  # output in the buffers of paused transports
        self.set_limits(config)
        self.incomplete = Holding(self.incomplete_limit)  # messages and frames whose end has not arrived

    def set_limits(self, config: RouterConfig) -> None:
        self._memory_limit = config.memory_limit
        self.incomplete_limit = max(config.memory_limit, config.max_message_size * 5 // 4)  # one message always fits

    @property
    def incomplete_bytes(self) -> int:
        return self.incomplete.total

    def count_unread(self, connection: Any, size: int, now: float) -> None:
        """The transport of this client holds so many bytes of output."""
        buffered = connection.buffered
        if size > connection.limits.unread_output >= buffered.unread_bytes:
            self._admission.count_refusal(UNREAD)
        self.unread_bytes += buffered.count_unread(size)
        if size and self.unread_bytes > self._memory_limit:
            self._disconnect_slowest_reader(now)

    def _disconnect_slowest_reader(self, now: float) -> None:
        """Unread output has filled the memory limit: of the user with the most of it, drop the connection that has
        most, without an error, as the client would not read it."""
        self._admission.count_refusal(MEMORY)
        by_user: dict[str, list[Any]] = {}
        for each in self._clients():
            by_user.setdefault(each.user or NETWORK, []).append(each)
        theirs = max(by_user.values(), key=lambda theirs: sum(each.buffered.unread_bytes for each in theirs))
        most = max(theirs, key=lambda connection: connection.buffered.unread_bytes)
        most.reads_too_slowly()
        most.receive_eof(now)

    def may_hold_incomplete(self, connection: Any, size: int, now: float) -> bool:
        """A client has sent so many bytes of a packet that is not complete. Returns whether there is room."""
        self.count_incomplete(connection, size)
        if size <= SMALL_FRAME or not self.has_too_much_incomplete(connection, now):
            return True
        self._admission.count_refusal(MEMORY)
        return False

    def count_incomplete(self, connection: Any, size: int) -> None:
        """This connection has so many bytes of what is not complete."""
        connection.buffered.count_incomplete(connection.user or NETWORK, size, self.incomplete)

    def has_too_much_incomplete(self, connection: Any, now: float) -> bool:
        """Says whether what is not complete exceeds the limit, and its user has as much of it as any: what users have
        that have more goes first."""
        incomplete, user = self.incomplete, connection.buffered.incomplete_of
        while incomplete.total > self.incomplete_limit:
            most = max(incomplete.by_user, key=lambda each: incomplete.by_user[each])
            if incomplete.by_user[most] <= incomplete.by_user.get(user, 0):
                return True
            theirs = [each for each in self._clients() if each.buffered.incomplete_of == most]
            before = incomplete.total
            self._admission.count_refusal(MEMORY)
            max(theirs, key=lambda each: each.buffered.incomplete_bytes).drop_incomplete(now)
            if incomplete.total == before:  # many small frames
                return True
        return False

    def check_invariants(self) -> None:
        incomplete: Counter[str] = Counter()
        for each in self._clients():
            incomplete[each.buffered.incomplete_of] += each.buffered.incomplete_bytes
        assert self.incomplete.by_user == +incomplete
        assert self.incomplete.total == incomplete.total()
