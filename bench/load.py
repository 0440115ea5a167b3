"""The load generators of bench/generators: built when first needed, run, and their results read.

A measurement is: start the subscribers, wait until all are attached, note the CPU time of every process of the peer,
run the publishers to their last outcome and the subscribers to their last settlement, and note it again.
"""

from __future__ import annotations

import json
import os
import selectors
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Self

from bench.processes import cpu_seconds, resident_mb
from tests.live import dying_with_us

SOURCES = Path(__file__).parent / "generators"
BUILD = Path(__file__).parent.parent / "build" / "bench"
LIBRARIES = {"amqp": ("qpid-proton", "libqpid-proton11-dev"), "mqtt": ("mosquitto", "libmosquitto-dev")}
TIMEOUT_S = 120


class GeneratorsMissing(Exception):
    """The generators cannot be built; the message says what to install."""


@cache
def built(kind: str) -> Path:
    """The directory with `<kind>_pub` and `<kind>_sub`, newer than their sources.  Kind: amqp or mqtt."""
    library, package = LIBRARIES[kind]
    newest = max(path.stat().st_mtime for path in SOURCES.iterdir())
    BUILD.mkdir(parents=True, exist_ok=True)
    for program in (f"{kind}_pub", f"{kind}_sub"):
        target = BUILD / program
        if target.exists() and target.stat().st_mtime > newest:
            continue
        temporary = target.with_suffix(f".{os.getpid()}")
        command = ["cc", "-O2", "-Wall", str(SOURCES / f"{program}.c"), "-o", str(temporary), f"-l{library}"]
        try:
            made = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise GeneratorsMissing("no C compiler `cc`: sudo apt-get install gcc libc6-dev") from None
        if made.returncode:
            end = "\n".join(made.stderr.splitlines()[-5:])
            raise GeneratorsMissing(
                f"cannot build {program}, which needs lib{library} with its headers: "
                f"sudo apt-get install {package}\n{end}"
            )
        temporary.replace(target)
    return BUILD


@dataclass(frozen=True, slots=True)
class Load:
    """One run.  Each of `topics` has a publisher of `count` messages and `subscribers` that get them all."""

    publish_at: str
    subscribe_at: str
    address: str  # of the first topic; others get a number appended
    kind: str = "amqp"
    qos: int = 2  # MQTT only
    second: bool = False  # rcv-settle-mode second
    topics: int = 1
    subscribers: int = 1
    together: bool = False  # AMQP only: each message goes to one of them
    selector: str = ""  # AMQP only: of each subscriber
    count: int = 100_000
    body: int = 100  # bytes
    window: int = 1_000  # of each publisher: messages without an outcome
    credit: int | None = None  # of each subscriber; None: the window
    rate: float = 0.0  # messages a second of each publisher; 0: as fast as its window allows
    timeout_s: int = TIMEOUT_S
    login: Sequence[str] = ()  # AMQP only: the generators' options for TLS and a user

    def subscribe(self, topic: int = 0) -> list[str]:
        credit = self.window if self.credit is None else self.credit
        options = {"u": self.subscribe_at, "n": self.subscribers, "w": credit, "i": 8}
        more = ["-g"] * self.together + ["-f", self.selector] * bool(self.selector)
        return self._command("sub", topic, options, *more)

    def publish(self, topic: int = 0, *more: str) -> list[str]:
        options = {"u": self.publish_at, "s": self.body, "w": self.window, "r": self.rate}
        return self._command("pub", topic, options, *more)

    def _command(self, role: str, topic: int, options: Mapping[str, object], *more: str) -> list[str]:
        address = f"{self.address}-{topic}" if topic else self.address
        options = {"a": address, "c": self.count, "t": self.timeout_s, "q": self.qos, **options}
        more = (*self.login, *more)
        if self.second:
            more = ("-2", *more)
        program = str(built(self.kind) / f"{self.kind}_{role}")
        return [program, *(text for key, value in options.items() for text in (f"-{key}", str(value))), *more]


@dataclass(frozen=True, slots=True)
class Result:
    """What one run measured.  Latency is from publisher to subscriber, settling from transfer to outcome."""

    load: Load
    messages_per_s: float
    deliveries_per_s: float
    cpu_s_per_100k: float  # CPU seconds of the peer per 100,000 deliveries
    cpu_by_process: dict[str, float]
    resident_mb: float
    latency_p50_ms: float
    latency_p99_ms: float  # with several topics: of the worst one
    settle_p50_ms: float
    settle_p99_ms: float
    received: int
    refused_second: int  # links that the peer attached with mode first although second was asked for
    faults: dict[str, int] = field(default_factory=dict)  # only those that occurred: lost, duplicate, ...

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Generator:
    """A generator that is running; killed on the way out if it has not ended."""

    def __init__(self, command: Sequence[str]) -> None:
        self.name = Path(command[0]).name
        self.process = subprocess.Popen(dying_with_us(command), stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def wait_for(self, word: str, timeout_s: float = 60.0) -> None:
        """Until it has printed READY (all subscribers are attached) or HELD (all deliveries are accepted)."""
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(timeout_s) or word not in self.process.stdout.readline():
                raise RuntimeError(f"{self.name} did not print {word} within {timeout_s:g} s")

    def result(self, timeout_s: float) -> dict[str, Any]:
        lines = self.process.communicate(timeout=timeout_s)[0].splitlines()
        if not lines:
            raise RuntimeError(f"{self.name} ended without a result")
        answer: dict[str, Any] = json.loads(lines[-1])
        return answer


def run(load: Load, pids: Mapping[str, Sequence[int]], settle_s: float = 1.0) -> Result:
    """Measures once.  `pids`: all processes of the peer, by the name that they have in `cpu_by_process`."""
    with ExitStack() as stack:
        subscribers = [stack.enter_context(Generator(load.subscribe(topic))) for topic in range(load.topics)]
        for subscriber in subscribers:
            subscriber.wait_for("READY")
        time.sleep(settle_s)  # the peer finishes with the attaches before its CPU time is read
        before = {name: cpu_seconds(group) for name, group in pids.items()}
        publishers = [stack.enter_context(Generator(load.publish(topic))) for topic in range(load.topics)]
        published = [publisher.result(load.timeout_s + 15) for publisher in publishers]
        subscribed = [subscriber.result(load.timeout_s + 15) for subscriber in subscribers]
    after = {name: cpu_seconds(group) for name, group in pids.items()}
    sent, accepted = load.count * load.topics, sum(one["accepted"] for one in published)
    received = sum(one["received"] for one in subscribed)
    used = {name: (after[name] - before[name]) / max(1, received) * 1e5 for name in pids}
    faults = {name: sum(one[name] for one in subscribed) for name in ("lost", "duplicate", "out_of_order")}
    faults["not_accepted"] = sent - accepted
    first_ns = min(one["first_ns"] for one in published)
    last_published_ns = max(one["last_ns"] for one in published)
    last_ns = max([last_published_ns, *(one["last_ns"] for one in subscribed)])
    return Result(
        load=load,
        messages_per_s=accepted / max(1e-9, (last_published_ns - first_ns) / 1e9),
        deliveries_per_s=received / max(1e-9, (last_ns - first_ns) / 1e9),
        cpu_s_per_100k=sum(used.values()),
        cpu_by_process=used,
        resident_mb=sum(resident_mb(group) for group in pids.values()),
        latency_p50_ms=statistics.median(one["p50_us"] for one in subscribed) / 1e3,
        latency_p99_ms=max(one["p99_us"] for one in subscribed) / 1e3,
        settle_p50_ms=statistics.median(one["p50_us"] for one in published) / 1e3,
        settle_p99_ms=max(one["p99_us"] for one in published) / 1e3,
        received=received,
        refused_second=sum(one.get("refused_second", 0) for one in subscribed),
        faults={name: number for name, number in faults.items() if number},
    )
