"""The border of input: on one side an unexpected error ends one client or one message, on the other the router.

What a client sends is first read: decoded, converted, judged. That changes nothing that others depend on, so an error
there ends its connection, with a traceback in the log. Then the core is called, and changes what all depend on. From
there on nothing is caught: a router whose state may be wrong must not decide about deliveries. `Core.entered` says on
which side a handler is: `None` where its input begins, a time once the core has been called.

The core asks questions while it works: whether a filter wants a message, when a message's time is over, what MQTT has
for it. Whoever answers reads and changes nothing, so an error there has an answer as well, which the asker names:
mostly that this message is rejected. `ask`, `each` and `judge` put such questions.

No other place of the router catches what nobody expects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

from router.core.ports import Outcome, Selection, Unwanted
from router.reporting import Log

T = TypeVar("T")
A = TypeVar("A")

TOLD: Final = 100  # of questions that have failed, with a traceback: the messages that cause them may be many
CLIENT, MESSAGE = "client", "message"  # what an error has ended


class Core(Protocol):
    """The core, as far as the border sees it."""

    entered: float | None


class Client(Protocol):
    """A connection."""

    def end_on_error(self) -> None:
        """Its input has met an error that nobody expects: ends it, and tells it so. What it was doing may be half
        done."""

    def said(self) -> dict[str, Any]:
        """Returns who it is, for the log: `client` (its address), `user`, `container`."""


class Border:
    """One router's.

    Attributes:
        failed: How often something was ended, by what it was: the metric `onceway_input_errors_total`.
    """

    __slots__ = ("_core", "_log", "failed")

    def __init__(self, core: Core, log: Log) -> None:
        self._core = core
        self._log = log
        self.failed: dict[str, int] = {CLIENT: 0, MESSAGE: 0}

    def input(self, client: Client, handle: Callable[[T, float], None], given: T, now: float) -> None:
        """Handles input of a client: all that comes from one goes through here. `handle` says `Core.entered = None`
        before each part of it that stands for itself."""
        self._core.entered = None
        try:
            handle(given, now)
        except Exception as error:
            if self._core.entered is not None:
                raise
            self.failed[CLIENT] += 1
            text = "client {container} at {client} disconnected: its input met an error that nobody expects"
            self._log.error("input_failed", text, exc=error, **client.said())
            client.end_on_error()

    def ask(self, otherwise: A, question: Callable[..., T], *arguments: Any) -> T | A:
        """Returns the answer to a question about input. otherwise: the answer where it fails."""
        try:
            return question(*arguments)
        except Exception as error:
            self._tell(question, error)
            return otherwise

    def each(
        self, otherwise: A, question: Callable[[bytes, bytes, int, bool], T], tags: list[bytes], payloads: list[bytes],
        message_format: int, settled: bool,
    ) -> list[T | A]:  # fmt: skip
        """The answers about several messages."""
        found: list[T | A] = []
        for i, payload in enumerate(payloads):
            try:
                found.append(question(tags[i], payload, message_format, settled))
            except Exception as error:
                self._tell(question, error)
                found.append(otherwise)
        return found

    def judge(self, selection: Selection | None) -> Selection | None:
        """Returns the selection; messages that it cannot judge are rejected."""
        return None if selection is None else _Judged(self, selection)

    def _tell(self, question: object, error: Exception) -> None:
        self.failed[MESSAGE] += 1
        if self.failed[MESSAGE] <= TOLD:
            what = getattr(question, "__qualname__", str(question))
            text = "a message is rejected: {what} met an error that nobody expects"
            self._log.error("message_failed", text, what=what, exc=error)


class _Judged:
    """A selection whose errors reject the message that they are about."""

    __slots__ = ("_border", "_selection")

    def __init__(self, border: Border, selection: Selection) -> None:
        self._border = border
        self._selection = selection

    def unwanted(self, payloads: Sequence[bytes], message_format: int) -> list[Unwanted]:
        """Implements `Selection`."""
        try:
            return self._selection.unwanted(payloads, message_format)
        except Exception as error:
            if len(payloads) == 1:
                self._border._tell(self._selection, error)
                return [(0, 1, Outcome.REJECTED)]
            failure = error
        found: list[Unwanted] = []
        told = self._border.failed[MESSAGE]
        for i, payload in enumerate(payloads):
            found += [(i, i + 1, outcome) for _, _, outcome in self.unwanted([payload], message_format)]
        if self._border.failed[MESSAGE] == told:  # each alone can be judged
            self._border._tell(self._selection, failure)
        return found
