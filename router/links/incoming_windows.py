"""The incoming windows of sessions that have a publisher: closed while the router is at its memory limit, or one of the
session's large deliveries is ahead (protocol 6.8, 6.12)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from amqp10.link import LinkSession
from router.core.memory import Memory
from router.links.publisher_link import PublisherLink
from router.reporting import Log

REOPEN_AT: Final = 0.875  # times memory_limit: below it they open again


class IncomingWindows:
    __slots__ = ("_log", "_memory", "_paused", "closed")

    def __init__(self, memory: Memory, log: Log) -> None:
        self._memory = memory
        self._log = log
        self.closed = False  # the payload held here has reached memory_limit
        self._paused: dict[LinkSession, None] = {}  # whose windows are not renewed

    def changed(self, session: LinkSession) -> None:
        """The incoming window of a session that has a publisher is renewed no more, or again: it is not while the
        router is at its memory limit, or one of its large deliveries is ahead (protocol 6.8, 6.12)."""
        ports = [link.context for link in session.links]
        closed = self.closed or any(isinstance(port, PublisherLink) and port.held_back for port in ports)
        if closed and session not in self._paused and not session.ended:
            session.pause_incoming()
            self._paused[session] = None
        elif not closed and session in self._paused:
            del self._paused[session]
            if not session.ended:
                session.resume_incoming()
                connection = session.connection.context
                if connection is not None:
                    connection.output_ready()

    def look(self, limit: int, connections: Iterable[Any]) -> None:
        """limit: memory_limit."""
        payload_bytes = self._memory.payload_bytes
        if not self.closed:
            if payload_bytes >= limit:
                self.closed = True
                text = "memory_limit reached: {payload_bytes} bytes of payload; publishers wait"
                self._log.warning("memory_limit_reached", text, payload_bytes=payload_bytes)
                for connection in connections:
                    for port in connection.ports:
                        if isinstance(port, PublisherLink):
                            self.changed(port.link.session)
        elif payload_bytes < limit * REOPEN_AT:
            self.closed = False
            text = "below memory_limit again: {payload_bytes} bytes of payload"
            self._log.info("memory_limit_over", text, payload_bytes=payload_bytes)
            for session in list(self._paused):
                self.changed(session)

    @property
    def closed_for_memory(self) -> int:
        """Returns how many sessions cannot send because of that."""
        return len(self._paused) if self.closed else 0
