"""What a client process is told, and the messages they all send."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

LINK = "chaos"  # the name of every client's link


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m chaos.clients")
    parser.add_argument("what", choices=["publish", "subscribe"])
    parser.add_argument("--client", choices=["onceway", "proton"], default="onceway")
    parser.add_argument("--urls", required=True, help="amqp://h:p,amqp://h:p, tried in this order")
    parser.add_argument("--address", default="orders")
    parser.add_argument("--name", required=True, help="container-id; goes into every body")
    parser.add_argument("--history", required=True, help="the file to append to")
    parser.add_argument("--journal")
    parser.add_argument("--settle", choices=["second", "first", "presettled"], default="second")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds that the network is to wait for it")
    parser.add_argument("--count", type=int, help="messages to publish")
    parser.add_argument("--duration", type=float, help="seconds to publish, or")
    parser.add_argument("--until", type=float, help="when to stop, in seconds of CLOCK_MONOTONIC")
    parser.add_argument("--rate", type=float, default=1_000.0, help="messages a second")
    parser.add_argument("--size", type=int, default=100, help="octets of a body")
    parser.add_argument("--credit", type=int, default=500)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds that the application takes for a delivery")
    parser.add_argument("--parent", type=int, help="die with this process")
    return parser.parse_args(argv)


def body(publisher: str, number: int, size: int) -> bytes:
    return f"{publisher} {number} ".encode().ljust(size, b".")


def read_body(octets: bytes) -> tuple[str, int]:
    publisher, number, _ = octets.split(b" ", 2)
    return publisher.decode(), int(number)


def say(word: str) -> None:
    print(word, flush=True)
