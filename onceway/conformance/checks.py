"""What checks are made of: their table, the stage on which one runs, and how it judges.

A check is a function of a `Stage`. It leads the client through one scene and raises `Failed` where the client does
what the rule forbids, or does not do in time what the rule demands. What must *not* happen is looked for until the
client has answered a question of the router, and for a moment more (`Stage.quiet`).
"""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Final, TypeVar

from amqp10.errors import STOLEN
from amqp10.frames import MIN_MAX_FRAME_SIZE
from amqp10.performatives import Detach, Flow
from onceway.base import waits
from onceway.conformance.child import Child
from onceway.conformance.playing import Attachment, Delivery, Peer, Violation
from router.names import BORN, EPOCH, INCARNATION

T = TypeVar("T")

ADDRESS: Final = "orders"
CLAIMS: Final = {
    "publisher": "`publisher` and `send`",
    "subscriber": "`subscriber`, `accept`, `reject` and `release`",
    "maps": "it presents unsettled maps, with epochs",
    "journal": "it survives `kill -9`",
}
"""The words of the client's first line."""
QUIET_S: Final = 0.25
ECHO_S: Final = 2.0
START_S: Final = 60.0
"""An interpreter may take a while to start: that is not judged by the patience."""
LARGE_FRAMES: Final = 1 << 20
SMALL_FRAMES: Final = MIN_MAX_FRAME_SIZE
AHEAD_US: Final = 1 << 40
"""By which the epoch of a refusal is ahead."""


class Failed(Exception):
    """The client does not keep the rule: what was seen, and what is right."""

    def __init__(self, seen: str, right: str) -> None:
        super().__init__(f"{seen}; right: {right}")


@dataclass(frozen=True, slots=True)
class Check:
    """One rule.

    Attributes:
        name: What is printed, and what `--only` takes.
        rule: Its number in docs/protocol, or a section of docs/wire.md, or of AMQP.
        needs: Claims of the client without which it is skipped.
        text: The rule, in a sentence.
    """

    name: str
    rule: str
    needs: tuple[str, ...]
    text: str
    run: Callable[[Stage], None]


TABLE: Final[dict[str, Check]] = {}


def check(rule: str, *needs: str) -> Callable[[Callable[[Stage], None]], Callable[[Stage], None]]:
    """Enters a function: its name, with hyphens, is the check's, its docstring the rule in a sentence."""

    def enter(function: Callable[[Stage], None]) -> Callable[[Stage], None]:
        name = function.__name__.replace("_", "-")
        role = name.partition("-")[0]
        assert role in ("publisher", "subscriber"), name
        TABLE[name] = Check(name, rule, (role, *needs), " ".join((function.__doc__ or "").split()), function)
        return function

    return enter


def expect(fulfilled: object, seen: str, right: str) -> None:
    """Raises Failed unless it is fulfilled."""
    if not fulfilled:
        raise Failed(seen, right)


def ulong(at: Attachment, name: str) -> int:
    """A link property that has to be a number."""
    value = at.brought(name)
    if not isinstance(value, int):
        raise Failed(f"{name} is {value!r}", "a ulong")
    return value


def expect_modes(at: Attachment) -> None:
    """It asks for the modes of exactly once."""
    modes = at.attach.snd_settle_mode, at.attach.rcv_settle_mode
    expect(modes == (0, 1), f"snd-settle-mode {modes[0]}, rcv-settle-mode {modes[1]}", "unsettled (0), second (1)")


def expect_life(at: Attachment, before: Attachment) -> None:
    """The same publisher in the same incarnation, or the same subscription, with a larger epoch."""
    expect(at.peer.container == before.peer.container, f"container-id {at.peer.container}", before.peer.container)
    expect(at.link.name == before.link.name, f"link name {at.link.name}", before.link.name)
    expect(ulong(at, EPOCH) > ulong(before, EPOCH), f"epoch {ulong(at, EPOCH)}", "above the last one (15.1)")
    kept = BORN if at.link.is_sender else INCARNATION
    was, now = ulong(before, kept), ulong(at, kept)
    expect(now == was, f"{kept.partition(':')[2]} {now}", f"still {was} (15.2)")


def stolen(stage: Stage, at: Attachment) -> Attachment:
    """Refuses the attach as stolen; the next one, with an epoch that is above what the refusal has told."""
    known = ulong(at, EPOCH) + AHEAD_US
    at.refuse(STOLEN, {EPOCH: known})
    at = stage.attaching()
    expect(ulong(at, EPOCH) > known, f"epoch {ulong(at, EPOCH)}", f"above {known}")
    return at


def expect_end(stage: Stage) -> None:
    """It gives up, says so, and does not come back."""
    stage.until(
        lambda: any(line.startswith("gave-up") for line in stage.client.lines), "the line `gave-up`", "it says so"
    )
    stage.quiet()
    expect(not stage.attaches(), "it attaches again", "it gives up: the answer will be the same")


def expect_leaving(stage: Stage, at: Attachment) -> None:
    """It detaches without closing, and ends with 0."""
    stage.client.tell("stop")
    stage.until(lambda: stage.client.ended and at.peer.lost, "its end", "it leaves in order and ends")
    closed = [detach for detach in at.frames(Detach) if detach.closed]
    expect(not closed, "detach with closed = true", "closed = false: the network forgets what is closed")
    stage.client.kill()
    code = stage.client.process.returncode
    expect(code == 0, f"exit code {code}", "0")


class Stage:
    """One check's router, client and state directory.

    Attributes:
        frame_size: max-frame-size in the opens of connections from now on.
    """

    def __init__(self, command: Sequence[str], directory: Path, patience_s: float) -> None:
        self.frame_size = LARGE_FRAMES
        self.children: list[Child] = []
        self._command = command
        self._directory = directory
        self._patience_s = patience_s
        self._peers: list[Peer] = []
        self._numbers = count(1)
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._selector.register(self._listener, selectors.EVENT_READ)
        self.url = f"amqp://127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        for child in self.children:
            child.kill()
        for peer in self._peers:
            peer.drop()
        self._selector.close()
        self._listener.close()

    # -- the client

    @property
    def client(self) -> Child:
        return self.children[-1]

    def start(self) -> Child:
        """A life of the client, which has said what it claims."""
        state = self._directory / "state"
        state.mkdir(exist_ok=True)
        child = Child(self._command, self.url, state, self._directory / "stderr")
        self.children.append(child)
        self._selector.register(child.output, selectors.EVENT_READ)
        patience_s = max(self._patience_s, START_S)
        self.until(lambda: child.claims, "the line `client` with what it claims", "its first line", patience_s)
        return child

    def begin(self, role: str) -> Attachment:
        """Starts the client in a role; its first attach, unanswered."""
        self.start().tell(role, ADDRESS)
        return self.attaching()

    def kill(self) -> None:
        """kill -9 of the client, and with it its connections."""
        self._selector.unregister(self.client.output)
        self.client.kill()
        self._drop_all()

    def says(self, line: str) -> None:
        """Waits until the client has said it, in its present life."""
        child = self.client
        self.until(lambda: line in child.lines, f"the line `{line}`", "the client says so")

    def said(self, line: str) -> int:
        """How often it has said it, in all its lives."""
        return sum(child.lines.count(line) for child in self.children)

    def errors(self) -> str:
        """The last line that a client which has ended has written to its stderr, as the end of a sentence."""
        lines = (self._directory / "stderr").read_text(errors="replace").strip().splitlines()
        return f"; its stderr ends with: {lines[-1]}" if lines and self.client.ended else ""

    # -- what is waited for

    def until(self, look: Callable[[], T | None], what: str, right: str, patience_s: float | None = None) -> T:
        """What `look` finds. Raises Failed when it has found nothing for as long as the program is patient."""
        end = monotonic() + (patience_s or self._patience_s)
        while not (found := look()):
            left = end - monotonic()
            if left <= 0 or (self.client.ended and not self._peers_open()):
                ended = "; the client has ended" if self.client.ended else ""
                lines = ", ".join(f"`{line}`" for line in self.client.lines[-3:])
                raise Failed(f"{what} did not come{ended}{f'; its last lines: {lines}' if lines else ''}", right)
            self._step(min(left, 1.0))
        return found

    def quiet(self, at: Attachment | None = None) -> None:
        """Returns when what the client had to say has come: its answer to a question on `at`, and all of a moment."""
        if at is not None and at.link.attached:
            before = len(at.frames(Flow))
            if at.link.is_sender:
                at.sender.flow(echo=True)
            else:
                at.receiver.grant(at.receiver.credit, echo=True)
            # Whether it answers is for other checks: a client of a library that does not has only a little more time.
            end = monotonic() + ECHO_S
            while len(at.frames(Flow)) == before and (left := end - monotonic()) > 0:
                self._step(left)
        end = monotonic() + QUIET_S
        while (left := end - monotonic()) > 0:
            self._step(left)

    def attaching(self) -> Attachment:
        """The next attach of the client that has not been looked at."""

        def look() -> Attachment | None:
            return next((peer.attaching.popleft() for peer in self._peers if peer.attaching), None)

        return self.until(look, "an attach", "the client attaches, and after a loss attaches again")

    def attaches(self) -> int:
        """How many have come that have not been looked at."""
        return sum(len(peer.attaching) for peer in self._peers)

    def deliveries(self, at: Attachment, number: int) -> list[Delivery]:
        """So many transfers of a publisher, at least."""

        def look() -> list[Delivery]:
            found = at.deliveries()
            return found if len(found) >= number else []

        return self.until(look, f"transfer {number} of this attachment", "it sends what it has credit for")

    def send(self, *bodies: str) -> None:
        """Tells the publisher to send."""
        for body in bodies:
            self.client.tell("send", body)

    def lose(self) -> Attachment:
        """The connection is lost; the next attach, on another one."""
        self._drop_all()
        return self.attaching()

    def tag(self) -> bytes:
        """A delivery-tag as routers make them: 20 octets that are no text."""
        return b"\xff\xfe\x00\xe2" * 4 + next(self._numbers).to_bytes(4, "big")

    # -- the wire

    def flush(self) -> None:
        for peer in self._peers:
            if not peer.lost:
                peer.write()

    def _peers_open(self) -> bool:
        return any(not peer.lost for peer in self._peers)

    def _drop_all(self) -> None:
        for peer in self._peers:
            self._forget(peer)
            peer.drop()
        self._peers.clear()

    def _forget(self, peer: Peer) -> None:
        if peer.socket.fileno() >= 0 and peer.socket in self._selector.get_map():
            self._selector.unregister(peer.socket)

    def _step(self, timeout_s: float) -> None:
        self.flush()
        for key, _ in waits.CLIENT_UNDER_TEST(self._selector.select(timeout_s)):
            if key.fileobj is self._listener:
                sock, _ = waits.ACCEPT(self._listener.accept())
                peer = Peer(sock, self.frame_size)
                self._peers.append(peer)
                self._selector.register(sock, selectors.EVENT_READ, peer)
            elif isinstance(key.data, Peer):
                self._read(key.data)
            else:
                self.client.readable()
                if self.client.ended:
                    self._selector.unregister(self.client.output)
        self.flush()

    def _read(self, peer: Peer) -> None:
        try:
            peer.readable()
        except Violation as violation:
            raise Failed(f"it breaks AMQP: {violation}", "the specification") from None
        finally:
            peer.write()
            if peer.lost:
                self._forget(peer)
                peer.socket.close()
