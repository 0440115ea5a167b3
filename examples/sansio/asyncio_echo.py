"""An AMQP echo server over asyncio: amqp_echo.py is the protocol, this moves bytes and time.

python examples/sansio/asyncio_echo.py [PORT]
"""

import asyncio
import signal
import sys

from amqp_echo import Echo

PATIENCE_S = 5.0  # for the last bytes


class Client(asyncio.Protocol):
    def __init__(self, clients: dict["Client", None]) -> None:
        self.loop = asyncio.get_running_loop()
        self.clients = clients
        self.ended = self.loop.create_future()
        self.timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self.echo = Echo(self.loop.time())
        self.clients[self] = None
        self.turn(None)

    def data_received(self, data: bytes) -> None:
        self.turn(data)

    def eof_received(self) -> None:
        self.turn(b"")

    def connection_lost(self, error: Exception | None) -> None:
        self.turn(b"")
        self.timer.cancel()
        del self.clients[self]
        self.ended.set_result(None)

    def pause_writing(self) -> None:  # what the client sends would only make more output; it is idle if this lasts
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        self.transport.resume_reading()

    def stop(self) -> None:
        self.echo.stop()
        self.turn(None)

    def turn(self, data: bytes | None) -> None:
        self.transport.write(self.echo.turn(data, self.loop.time()))
        if self.timer is not None:
            self.timer.cancel()
        if self.echo.connection.closed:
            self.transport.close()  # when all is written
            self.timer = self.loop.call_later(PATIENCE_S, self.transport.abort)
        else:
            deadline = self.echo.connection.next_deadline()
            self.timer = None if deadline is None else self.loop.call_at(deadline, self.turn, None)


async def main(port: int) -> None:
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    clients: dict[Client, None] = {}
    server = await loop.create_server(lambda: Client(clients), "127.0.0.1", port)
    print("listening on", server.sockets[0].getsockname()[1], flush=True)
    await stopped.wait()
    server.close()
    running = [*clients]
    for client in running:
        client.stop()
    await asyncio.gather(*(client.ended for client in running))


asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 5672))
