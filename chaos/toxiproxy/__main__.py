"""`python -m chaos.toxiproxy [--host H] [--port P]`: serves until SIGTERM; says where it listens on stdout."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from collections.abc import Sequence

from aiohttp import web

from chaos.toxiproxy import application
from onceway.base.loop import on_stop_signals, run
from onceway.host import parent as parent_process


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m chaos.toxiproxy", description="A server of Toxiproxy's HTTP API.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8474, help="0: any that is free")
    parser.add_argument("--seed", type=int, help="of jitter, slices and toxicity")
    parser.add_argument("--parent", type=int, help="die with this process")
    args = parser.parse_args(argv)
    if args.parent is not None:
        parent_process.die_with(args.parent)
    return run(serve(args.host, args.port, random.Random(args.seed)))


async def serve(host: str, port: int, rng: random.Random) -> int:
    stop = asyncio.Event()
    on_stop_signals(stop.set)
    runner = web.AppRunner(application(rng), access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, host, port)
    try:
        await site.start()
    except OSError as error:
        print(f"cannot listen on {host}:{port}: {error.strerror or error}; give another --port", file=sys.stderr)
        return 2
    print(f"listening on {host}:{runner.addresses[0][1]}", flush=True)
    await stop.wait()
    await runner.cleanup()
    return 0


if __name__ == "__main__":
    sys.exit(main())
