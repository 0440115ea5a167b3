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

from collections.abc import Callable, Container, Sequence
from typing import Any, Final, Protocol, TypeVar

from router.core.ports import Places, Refusal, Selection, Unwanted
from router.json_text import write_json
from router.names import INTERNAL_ERROR
from router.reporting import Log
from router.suspects import Suspects, digest_of

T = TypeVar("T")
A = TypeVar("A")

TOLD: Final = 100  # of questions that have failed, with a traceback: the messages that cause them may be many
TELLING: Final = 64  # octets: fewer are what everybody sends, as a heartbeat is
CLIENT, MESSAGE = "client", "message"  # what an error has ended
FAILED: Final = "this router has met an error in what you sent; its log has it"
REFUSED: Final = "what you have sent has ended a router: it is refused for a minute"
UNREADABLE: Final = Refusal(INTERNAL_ERROR, "a router has met an error in this message; its log has it")
MEMORY: Final = 4_096  # octets of what says what is in hand
NAMED: Final = 100  # characters of a name there
IDLE, IN_HAND, ENDED = range(3)  # its first octet


class Core(Protocol):
    """The core, as far as the border sees it."""

    entered: float | None


class Client(Protocol):
    """A connection. `user`: None before it has come in. `named`: for the border, which notes there who this is."""

    user: str | None
    named: tuple[str | None, bytes] | None

    def end_on_error(self, text: str) -> None:
        """Its input has met an error that nobody expects, or is refused: ends it, and tells it so by this text. What it
        was doing may be half done."""

    def said(self) -> dict[str, Any]:
        """Returns who it is, for the log: `client` (its address), `user`, `container`."""


class Border:
    """One router's.

    Attributes:
        failed: How often something was ended, by what it was: the metric `onceway_input_errors_total`.
        memory: Says what is in hand while input is handled. A process may map a file there: `onceway.state.in_hand`.
        suspects: What is refused, as it has ended a router.
    """

    __slots__ = ("_client", "_core", "_given", "_log", "failed", "memory", "suspects")

    def __init__(self, core: Core, log: Log) -> None:
        self._core = core
        self._log = log
        self.failed: dict[str, int] = {CLIENT: 0, MESSAGE: 0}
        self.suspects = Suspects()
        self.memory: Any = bytearray(MEMORY)
        self._client: Client | None = None  # who is named there
        self._given: object = None  # what is in hand

    def input(self, client: Client, handle: Callable[[T, float], None], given: T, now: float) -> None:
        """Handles input of a client: all that comes from one goes through here. `handle` says `Core.entered = None`
        before each part of it that stands for itself."""
        self._core.entered = None
        memory = self.memory
        try:
            if self.suspects.until and self._refuses(client, given, now):
                return
            named = client.named
            if named is None or named[0] is not client.user:
                named = client.named = client.user, _as_document(client, b"")
            memory[1 : 1 + len(named[1])] = named[1]
            memory[0] = IN_HAND
            self._client, self._given = client, given
            handle(given, now)
        except Exception as error:
            if self._core.entered is not None:
                raise
            memory[0] = IDLE
            self.failed[CLIENT] += 1
            text = "client {container} at {client} disconnected: its input met an error that nobody expects"
            self._log.error("input_failed", text, exc=error, **client.said())
            client.end_on_error(FAILED)
        memory[0] = IDLE

    def ended(self) -> None:
        """An error has ended the router: notes what is in hand, with its digest."""
        if self._client is not None and self.memory[0] == IN_HAND:
            given = self._given
            digest = digest_of(given) if isinstance(given, bytes) and len(given) >= TELLING else b""
            document = _as_document(self._client, digest)
            self.memory[1 : 1 + len(document)] = document
            self.memory[0] = ENDED

    def _refuses(self, client: Client, given: object, now: float) -> bool:
        who = client.said()
        if not self.suspects.refuses(given, client.user, who["client"], now):
            return False
        self._log.warning("input_refused", "client at {client} refused: {description}", description=REFUSED, **who)
        client.end_on_error(REFUSED)
        return True

    def ask(self, otherwise: A, question: Callable[..., T], *arguments: Any) -> T | A:
        """Returns the answer to a question about input. otherwise: the answer where it fails."""
        try:
            return question(*arguments)
        except Exception as error:
            self._tell(question, error)
            return otherwise

    def each(
        self, otherwise: A, question: Callable[[bytes, int, bool], T], payloads: list[bytes], message_format: int,
        settled: bool,
    ) -> list[T | A]:  # fmt: skip
        """The answers about several messages: `ask` for each, written out, as a call for each message is dear."""
        found: list[T | A] = []
        for payload in payloads:
            try:
                found.append(question(payload, message_format, settled))
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
            text = "a message is rejected, or a request refused: {what} met an error that nobody expects"
            self._log.error("message_failed", text, what=what, exc=error)


class _Judged:
    """A selection whose errors reject the message that they are about."""

    __slots__ = ("_border", "_selection", "needs")

    def __init__(self, border: Border, selection: Selection) -> None:
        self._border = border
        self._selection = selection
        self.needs = selection.needs

    def places(self, payloads: Sequence[bytes], names: Container[str]) -> Places | None:
        """Implements `Selection`. Where it fails, each subscription is asked."""
        return self._border.ask(None, self._selection.places, payloads, names)

    def unwanted(self, payloads: Sequence[bytes], message_format: int) -> list[Unwanted]:
        """Implements `Selection`."""
        try:
            return self._selection.unwanted(payloads, message_format)
        except Exception as error:
            if len(payloads) == 1:
                self._border._tell(self._selection, error)
                return [(0, 1, UNREADABLE)]
            failure = error
        found: list[Unwanted] = []
        told = self._border.failed[MESSAGE]
        for i, payload in enumerate(payloads):
            found += [(i, i + 1, outcome) for _, _, outcome in self.unwanted([payload], message_format)]
        if self._border.failed[MESSAGE] == told:  # each alone can be judged
            self._border._tell(self._selection, failure)
        return found


def _as_document(client: Client, digest: bytes) -> bytes:
    """Who this is, as it stands in the memory: with its length in front."""
    said = {key: str(value)[:NAMED] for key, value in client.said().items()}
    user = None if client.user is None else client.user[: 3 * NAMED]
    octets = write_json({**said, "user": user, "digest": digest.hex()}).encode()
    return len(octets).to_bytes(2, "big") + octets
