"""A client's socket, and its share of the loop: what it sends cannot keep neighbours, admin or other clients waiting.

One read may cost a thousand times another (a read full of attaches against one of transfers), so reads are measured: a
turn of the loop spends at most `TURN_S` on clients.  Whose octets come later in it keeps them, is read no more, and is
taken in the order of waiting; a client whose reads take long gets smaller ones.  Neighbours' octets, timers and the
admin listener never wait here: a router that its clients keep busy must not be taken for dead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from onceway.transport import READ_SIZE, VIEW, Carrier
from router.client_connection import ClientConnection

if TYPE_CHECKING:
    from onceway.server import RouterServer

TURN_S: Final = 0.01
READ_S: Final = 0.005  # a client whose read takes longer gets half as much the next time
LEAST_READ: Final = 4096
KEPT_MOST: Final = 8 << 20  # octets of those who wait; above it another waits with no more than TOKEN
TOKEN: Final = 512


class Shares:
    """One router's: what is left of this turn, and who waits for the next."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], Any]) -> None:
        self._call_soon = call_soon
        self._asked = False  # for `_next_turn`
        self._waiting: deque[ClientCarrier] = deque()
        self.left_s = TURN_S
        self.kept = 0  # octets

    def __len__(self) -> int:
        return len(self._waiting)

    def spent(self, seconds: float) -> None:
        self.left_s -= seconds
        if self.left_s < TURN_S / 2:  # while little is spent nobody has to ask when turns begin
            self._ask()

    def wait(self, carrier: ClientCarrier, octets: int) -> None:
        self._waiting.append(carrier)
        self.kept += octets
        self._ask()

    def _ask(self) -> None:
        if not self._asked:
            self._asked = True
            self._call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._asked = False
        self.left_s = TURN_S
        while self._waiting and self.left_s > 0:
            self.kept -= self._waiting.popleft().go_on()
        if self._waiting:
            self._ask()


class ClientCarrier(Carrier):
    __slots__ = ("_kept", "_not_read_since", "_shares", "_view")

    def __init__(self, server: RouterServer, shares: Shares) -> None:
        super().__init__(server)
        self._shares = shares
        self._view = VIEW[:LEAST_READ]  # larger ones soon, where they cost little
        self._kept = b""
        self._not_read_since: float | None = None

    # --- asyncio's side

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view if self._shares.kept < KEPT_MOST else VIEW[:TOKEN]

    def buffer_updated(self, nbytes: int) -> None:
        data = bytes(VIEW[:nbytes])
        if self._shares.left_s > 0:
            self._receive(data)
            return
        self._kept = data
        self._shares.wait(self, nbytes)
        self._pause()

    def pause_writing(self) -> None:
        if self.carried is not None:
            self._connection.pause_output()

    def resume_writing(self) -> None:
        if self.carried is not None:
            self._connection.resume_output()
            self._delayed()
            self._resume()
            self._server.after_read()

    # --- the server's side

    def write(self) -> None:
        super().write()
        if self.carried is not None and self._connection.output_paused and self.transport is not None:
            self._connection.output_waits(self.transport.get_write_buffer_size())
            if not self._connection.reads:
                self._pause()

    def go_on(self) -> int:
        """Its turn has come.  How many octets it had kept."""
        data, self._kept = self._kept, b""
        if self.carried is not None and not self.carried.closed:
            self._delayed()
            self._receive(data)
            self._resume()
        return len(data)

    # --- helpers

    @property
    def _connection(self) -> ClientConnection:
        return cast(ClientConnection, self.carried)

    def _receive(self, data: bytes) -> None:
        if self.carried is None:
            return
        began = self._server.time()
        self.carried.receive_data(data, began)
        self._server.after_read()
        spent = self._server.time() - began
        self._shares.spent(spent)
        size = len(self._view)
        if spent > READ_S:
            self._view = VIEW[: max(LEAST_READ, size // 2)]
        elif len(data) == size < READ_SIZE and spent < READ_S / 4:
            self._view = VIEW[: size * 2]

    def _delayed(self) -> None:
        if self._not_read_since is not None:
            self._connection.delayed(self._not_read_since, self._server.time())

    def _pause(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()
            if self._not_read_since is None:
                self._not_read_since = self._server.time()

    def _resume(self) -> None:
        open_ = self.transport is not None and not self.transport.is_closing()
        if open_ and not self._kept and self._connection.reads:
            assert self.transport is not None
            self.transport.resume_reading()
            self._not_read_since = None
