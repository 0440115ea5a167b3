"""The load generators of the yardstick: found, built once, run, and their one-line results read.

The generators are C programs that live outside this repository (they are for any AMQP or MQTT peer); their directory
comes as an option or in the environment variable YARDSTICK.  A measurement is: start the subscribers, wait for
READY, note the CPU time of every process of the peer, run the publisher to its last settlement, note it again.
CPU seconds of the peer per 100,000 deliveries is the fairest figure on a shared machine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from bench.processes import cpu_seconds, resident_mb

DEFAULT_TIMEOUT_S = 120


class YardstickMissing(SystemExit):
    """Exit status 2: what is missing, and what to do about it."""

    def __init__(self, problem: str) -> None:
        super().__init__(2)
        print(f"bench: {problem}", file=sys.stderr)


def add_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--yardstick",
        metavar="DIR",
        default=os.environ.get("YARDSTICK"),
        help="directory of the load generators' sources or binaries (default: the environment variable YARDSTICK)",
    )


@dataclass(frozen=True, slots=True)
class Load:
    """One run: `subscribers` connections, `count` messages of `body` bytes, `window` unsettled at most."""

    publish_at: str
    subscribe_at: str
    address: str
    kind: str = "amqp"
    subscribers: int = 1
    count: int = 100_000
    body: int = 100
    window: int = 1_000
    credit: int | None = None  # of each subscriber; None: the window
    second: bool = False
    rate: float = 0.0
    timeout_s: int = DEFAULT_TIMEOUT_S


@dataclass(frozen=True, slots=True)
class Result:
    load: Load
    messages_per_s: float
    deliveries_per_s: float
    cpu_s_per_100k: float
    cpu_by_process: dict[str, float]  # CPU seconds per 100,000 deliveries of each named process
    resident_mb: float
    latency_p50_ms: float
    latency_p99_ms: float
    settle_p50_ms: float
    settle_p99_ms: float
    received: int
    lost: int
    duplicate: int
    out_of_order: int
    not_accepted: int

    @property
    def faultless(self) -> bool:
        return not (self.lost or self.duplicate or self.out_of_order or self.not_accepted)

    def as_dict(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in Result.__slots__ if name != "load"}
        load = {name: getattr(self.load, name) for name in Load.__slots__}
        return {**load, **fields}


class Yardstick:
    """The built generators.  `Yardstick(None)` explains itself and exits with 2."""

    def __init__(self, directory: str | None) -> None:
        if not directory:
            raise YardstickMissing("no load generators: set YARDSTICK (or --yardstick) to their directory")
        self.source = Path(directory)
        if all((self.source / name).is_file() for name in ("amqp_pub", "amqp_sub")):
            self.binaries = self.source
        elif (self.source / "Makefile").is_file() and (self.source / "amqp_pub.c").is_file():
            self.binaries = self._build()
        else:
            raise YardstickMissing(f"{self.source} holds neither amqp_pub and amqp_sub nor their sources and Makefile")

    def _build(self) -> Path:
        text = b"".join(path.read_bytes() for path in sorted(self.source.glob("*.[ch]")))
        digest = hashlib.blake2b(text, digest_size=6).hexdigest()
        target = Path(tempfile.gettempdir()) / f"onceway-yardstick-{os.getuid()}-{digest}"
        target.mkdir(exist_ok=True)
        made = subprocess.run(
            ["make", "-C", str(self.source), f"BIN={target}"], capture_output=True, text=True, check=False
        )
        if made.returncode != 0:
            tail = "\n".join(made.stderr.splitlines()[-5:])
            raise YardstickMissing(
                f"building the load generators failed (they need Debian's libqpid-proton11-dev and "
                f"libmosquitto-dev, a C compiler and make):\n{tail}"
            )
        return target

    def command(self, program: str, *arguments: object) -> list[str]:
        return [str(self.binaries / program), *map(str, arguments)]

    def run(self, load: Load, pids: dict[str, Sequence[int]], settle_s: float = 1.0) -> Result:
        """Measure once.  `pids`: the peer's processes by a name for the table (every process that does its work)."""
        second = ["-2"] if load.second and load.kind == "amqp" else []
        credit = load.window if load.credit is None else load.credit
        # fmt: off
        subscribe = self.command(
            f"{load.kind}_sub", "-u", load.subscribe_at, "-a", load.address, "-n", load.subscribers, "-c", load.count,
            "-w", credit, "-t", load.timeout_s, "-i", 8, *second)
        publish = self.command(
            f"{load.kind}_pub", "-u", load.publish_at, "-a", load.address, "-c", load.count, "-s", load.body,
            "-w", load.window, "-t", load.timeout_s, *second, *(["-r", load.rate] if load.rate else []))
        # fmt: on
        with Subscribers(subscribe) as subscribers:
            subscribers.wait_ready()
            time.sleep(settle_s)  # the peer finishes with the attaches before its CPU time is read
            before = {name: cpu_seconds(group) for name, group in pids.items()}
            ran = subprocess.run(publish, stdout=subprocess.PIPE, text=True, timeout=load.timeout_s + 15, check=False)
            pub = last_line(ran.stdout, "the publisher")
            sub = subscribers.result(load.timeout_s + 15)
        after = {name: cpu_seconds(group) for name, group in pids.items()}
        received = max(1, sub["received"])
        used = {name: (after[name] - before[name]) / received * 1e5 for name in pids}
        published_s = max(1e-9, (pub["t_last"] - pub["t_first"]) / 1e9)
        elapsed_s = max(1e-9, (max(pub["t_last"], sub["t_last"]) - pub["t_first"]) / 1e9)
        return Result(
            load=load,
            messages_per_s=pub["accepted"] / published_s,
            deliveries_per_s=sub["received"] / elapsed_s,
            cpu_s_per_100k=sum(used.values()),
            cpu_by_process=used,
            resident_mb=sum(resident_mb(group) for group in pids.values()),
            latency_p50_ms=sub["lat_us"]["p50"] / 1e3,
            latency_p99_ms=sub["lat_us"]["p99"] / 1e3,
            settle_p50_ms=pub["settle_us"]["p50"] / 1e3,
            settle_p99_ms=pub["settle_us"]["p99"] / 1e3,
            received=sub["received"],
            lost=sub["lost"],
            duplicate=sub["dup"],
            out_of_order=sub["out_of_order"],
            not_accepted=pub["count"] - pub["accepted"],
        )


class Subscribers:
    """A running generator of subscribers; killed on the way out if it has not ended."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def wait_ready(self, timeout_s: float = 30.0) -> None:
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(timeout_s) or "READY" not in self.process.stdout.readline():
                raise RuntimeError("the subscribers did not get ready: not every attach was answered")

    def result(self, timeout_s: float) -> dict[str, Any]:
        return last_line(self.process.communicate(timeout=timeout_s)[0], "the subscribers")


def last_line(output: str, who: str) -> dict[str, Any]:
    lines = output.splitlines()
    if not lines:
        raise RuntimeError(f"{who} ended without a result")
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer
