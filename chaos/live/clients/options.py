"""What a client process is told, and the messages they all send."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onceway
from onceway.client.credentials import Who

LINK = "chaos"  # the name of every client's link
DEFAULTS: dict[str, Any] = {
    "client": "onceway", "address": "orders", "journal": None, "settle": "second",
    "timeout": 60.0,  # seconds that the network is to wait for it
    "count": None, "duration": None,  # messages to publish, or seconds
    "until": None,  # or when to stop, in seconds of CLOCK_MONOTONIC
    "rate": 1_000.0, "size": 100,  # messages a second, bytes of a body
    "credit": 500, "pause": 0.0,  # of a subscriber; seconds that its application takes for a delivery
    "publishers": (), "subscribers": (),  # the names of all of them: they are a group where the client is queue
    "parent": None,  # dies with this process
    "ca": None,  # of the routers' certificates, where there is TLS
    "certificate": None, "password_file": None,  # of this client, where it shows one and logs in
}  # fmt: skip


def parse(what: str, options: str) -> SimpleNamespace:
    """what: publish or subscribe; options: a JSON object with urls ("amqp://h:p,amqp://h:p", tried in this order),
    name (container-id; goes into every body), history (the file to append to), and what differs from `DEFAULTS`."""
    return SimpleNamespace(what=what, **{**DEFAULTS, **json.loads(options)})


def shown(args: SimpleNamespace) -> Who:
    """What a client of ours shows to routers and edges."""
    password = None if args.password_file is None else Path(args.password_file).read_text().strip()
    return {
        "tls": None if args.ca is None else onceway.tls_context(args.ca, args.certificate),
        "credentials": None if password is None else onceway.Credentials(args.name, password),
    }


def body(publisher: str, number: int, size: int) -> bytes:
    return f"{publisher} {number} ".encode().ljust(size, b".")


def read_body(data: bytes) -> tuple[str, int]:
    publisher, number, _ = data.split(b" ", 2)
    return publisher.decode(), int(number)


def say(word: str) -> None:
    print(word, flush=True)
