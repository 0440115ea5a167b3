#!/usr/bin/env bash
# uvloop: a task that waits in create_connection is cancelled (a time-out) just as the connection is made. The protocol
# has been told connection_made by then.
#
#   - asyncio closes the transport: the protocol is told connection_lost, is_closing() is true, a write does nothing.
#   - uvloop closes its handle only: connection_lost never comes, is_closing() is false, a write raises RuntimeError.
#
# A protocol that has noted itself somewhere in connection_made is never told to leave.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check uvloop==0.23.0

cat >"$folder/cancelled.py" <<'PYTHON'
import asyncio
import platform

import uvloop


class Client(asyncio.Protocol):
    def __init__(self, task):
        self.task, self.told = task, []

    def connection_made(self, transport):
        self.transport = transport
        self.told.append("connection_made")
        self.task.cancel()

    def connection_lost(self, exc):
        self.told.append("connection_lost")


async def look():
    loop = asyncio.get_running_loop()
    server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    made = []

    async def connect():
        client = Client(asyncio.current_task())
        made.append(client)
        await loop.create_connection(lambda: client, "127.0.0.1", port)

    ended = (await asyncio.gather(loop.create_task(connect()), return_exceptions=True))[0]
    client = made[0]
    for _ in range(100):  # turns of the loop, many more than either needs
        await asyncio.sleep(0)
    closing = client.transport.is_closing()
    try:
        client.transport.write(b"x")
        written = "nothing raised"
    except RuntimeError as error:
        written = type(error).__name__
    server.close()
    return type(ended).__name__, client.told, closing, written


def show(name, factory):
    with asyncio.Runner(loop_factory=factory) as runner:
        ended, told, closing, written = runner.run(look())
    print(f"{name}: {ended}; told {', '.join(told)}; is_closing() {closing}; write: {written}")
    return told, closing, written


print(f"CPython {platform.python_version()}, uvloop {uvloop.__version__}")
theirs = show("asyncio", asyncio.new_event_loop)
uvs = show("uvloop", uvloop.new_event_loop)
assert theirs == (["connection_made", "connection_lost"], True, "nothing raised"), theirs
assert uvs == (["connection_made"], False, "RuntimeError"), uvs
PYTHON
"$folder/venv/bin/python" "$folder/cancelled.py"
