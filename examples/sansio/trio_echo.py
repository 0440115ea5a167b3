"""The same echo server over trio (`pip install trio`): amqp_echo.py is the protocol, this moves bytes and time.

python examples/sansio/trio_echo.py [PORT]
"""

import math
import signal
import sys
from functools import partial

import trio
from amqp_echo import SETTINGS, Echo

PIECE = 65536
PATIENCE_S = 5.0  # for the last bytes
READING: dict[Echo, trio.CancelScope] = {}


async def serve(stream: trio.SocketStream) -> None:
    echo = Echo(trio.current_time())
    READING[echo] = trio.CancelScope()
    data: bytes | None = None
    try:
        while True:
            output = echo.turn(data, trio.current_time())
            data = None
            if output:  # nothing is read meanwhile: what the client sends would only make more output
                with trio.fail_after(SETTINGS.idle_timeout_s):
                    await stream.send_all(output)
            elif echo.connection.closed:
                return
            else:
                deadline = echo.connection.next_deadline()
                with trio.move_on_at(math.inf if deadline is None else deadline) as READING[echo]:
                    data = await stream.receive_some(PIECE)
    except (trio.BrokenResourceError, trio.TooSlowError):
        return  # lost
    finally:
        del READING[echo]


async def main(port: int) -> None:
    async with trio.open_nursery() as clients:
        async with trio.open_nursery() as listening:
            with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
                listen = partial(trio.serve_tcp, serve, port, host="127.0.0.1", handler_nursery=clients)
                listeners = await listening.start(listen)
                print("listening on", listeners[0].socket.getsockname()[1], flush=True)
                await anext(signals)
            listening.cancel_scope.cancel()
        for echo, reading in READING.items():
            echo.stop()
            reading.cancel()  # so that serve writes what stop has made
        clients.cancel_scope.deadline = trio.current_time() + PATIENCE_S


trio.run(main, int(sys.argv[1]) if len(sys.argv) > 1 else 5672)
