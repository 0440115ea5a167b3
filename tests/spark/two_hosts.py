"""Spark's source on two hosts that are not: each has a user, a directory and a network namespace of its own.

    python -m tests.spark.two_hosts DIRECTORY [--faults 9] [--seed 18] [--rate 500] [--kinds change]

Both hosts run `onceway ingest` over one log in an object store; the query runs on one of them, in Spark's local-cluster
mode, so that its executors are processes of their own, and goes on at the other one when its driver is killed.  Table
and checkpoint are in a directory that both may write.  Two routers, the publishers and the store are apart from both.

Faults, drawn from a seed: kill -9 of the driver, its executors, a receiver, all receivers of a host, a router and the
store's server; a receiver is frozen until another one has its lease, and thawed while that one receives; a host is cut
off from everybody.  Or all of it is stopped, a query with receivers of its own changes the number of partitions, and another
fault comes while the log is between the two numbers.  The server that dies is a relay in front of moto, which has
nothing on a disk: what had been stored stays stored, as in any real store, and requests under way are lost before or
after they were carried out.

One run at a time: what a host's user runs is killed, whoever started it.

Then each message has to be in the table once, in the order of its publisher within each partition, and for each key in
the order of the batches.  Needs root.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from amqp10.sections import Message
from chaos.live.netns import NETWORK, Namespaces, command_inside, is_inside, reason_against
from chaos.live.ports import free_port
from onceway.spark.errors import WalError
from onceway.spark.wal import Wal
from tests.live import ROOT, LiveNetwork, wait_until
from tests.spark.networks import PATIENT, Publishing

HUB = f"{NETWORK}.0.254"
USERS = {"east": 64101, "west": 64102}
GROUP = 64100  # may write what is shared
PARTITIONS = 2
PUBLISHERS = 2
WITHIN_S = 120.0
DRAIN_WITHIN_S = 240.0
LEASE = "3s"
ROUND_S = 20.0  # publishers publish for so long, while faults happen one after the other
FAULTS = ("driver", "executor", "receiver", "receivers", "freeze", "router", "store", "cut", "change")
IN_CHANGE = ("driver", "receiver", "thaw", "router", "store", "cut")  # faults while the number of partitions changes
KEYS = 7

RELAY = """
import asyncio, sys
here, there = sys.argv[1].rsplit(":", 1), sys.argv[2].rsplit(":", 1)

async def copy(reader, writer):
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    writer.close()

async def serve(reader, writer):
    try:
        other, onward = await asyncio.open_connection(*there)
    except OSError:
        return writer.close()
    await asyncio.gather(copy(reader, onward), copy(other, writer))

async def main():
    server = await asyncio.start_server(serve, *here)
    print("ready", flush=True)
    await server.serve_forever()

asyncio.run(main())
"""


def reason_not_to() -> str | None:
    """Why it cannot run here."""
    if os.geteuid() != 0:
        return "only root may act for two users"
    if shutil.which("setpriv") is None:
        return "setpriv not found (Debian: util-linux)"
    for module in ("pyspark", "moto", "obstore"):
        try:
            __import__(module)
        except ImportError:
            return f"{module} is not installed"
    return None if is_inside() else reason_against()


class Network(LiveNetwork):
    """Reached by the hosts at HUB."""

    def topology(self) -> dict[str, Any]:
        document = super().topology()
        document["defaults"] = {"host": "0.0.0.0"}
        for router in self:
            document["routers"][router.name]["interrouter"] = f"127.0.0.1:{router.interrouter_port}"
        return document

    def urls_for_hosts(self) -> str:
        return "amqp://" + ",".join(f"{HUB}:{router.amqp_port}" for router in self)


class Store:
    """moto in this process, and the server in front of it that dies."""

    def __init__(self) -> None:
        from tests.spark.buckets import Server

        self._moto = Server()
        self.port = free_port()
        self.environment = {**self._moto.environment, "AWS_ENDPOINT_URL": f"http://{HUB}:{self.port}"}
        self._relay: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        behind = self._moto.environment["AWS_ENDPOINT_URL"].removeprefix("http://")
        command = [sys.executable, "-c", RELAY, f"0.0.0.0:{self.port}", behind]
        self._relay = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self._relay.stdout.readline() == b"ready\n"

    def kill(self) -> None:
        self._relay.kill()
        self._relay.wait(WITHIN_S)

    def stop(self) -> None:
        self.kill()
        self._moto.stop()


class Host:
    """What one user runs in one namespace."""

    def __init__(
        self, name: str, home: Path, prefix: tuple[str, ...], address: str, environment: dict[str, str]
    ) -> None:
        self.name = name
        self.address = address
        self.home = home
        self.user = USERS[name]
        self._prefix = prefix
        self.environment = environment
        self._logs = home.parent / f"{name}.log"
        home.mkdir(mode=0o700)
        os.chown(home, self.user, GROUP)
        self.receivers: subprocess.Popen[bytes] | None = None
        self.driver: subprocess.Popen[bytes] | None = None

    def run(self, *arguments: str) -> subprocess.Popen[bytes]:
        """A program of this host's user.  It may read everything, as the interpreter may be in root's home, and write
        what is its own or shared."""
        user = ("--pdeathsig", "KILL", "--reuid", str(self.user), "--regid", str(GROUP), "--clear-groups")
        reads = ("--inh-caps", "-all,+dac_read_search", "--ambient-caps", "-all,+dac_read_search")
        command = [*self._prefix, "setpriv", *user, *reads, "sh", "-c", 'umask 002; exec "$@"', "sh", *arguments]
        with self._logs.open("ab") as log:
            return subprocess.Popen(
                command, cwd=self.home, stdout=log, stderr=log, start_new_session=True,
                env={
                    **os.environ, **self.environment, "HOME": str(self.home), "TMPDIR": str(self.home),
                    "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": self.address,
                },
            )  # fmt: skip

    def receive(self, file: Path) -> None:
        self.receivers = self.run(sys.executable, "-m", "onceway", "ingest", "run", str(file))

    def drive(self, file: Path, shared: Path) -> None:
        self.driver = self.run(
            sys.executable, "-m", "tests.spark.two_hosts", "drive", str(file), str(shared), self.address
        )

    def processes(self, mark: str) -> list[int]:
        """Of this user, with this in their command lines."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                own = entry.name.isdecimal() and entry.stat().st_uid == self.user
                if own and mark.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    def signal(self, number: int, *marks: str) -> int:
        """To all of its processes, or those with one of these marks; how many there were."""
        sent = 0
        for pid in {pid for mark in marks or ("",) for pid in self.processes(mark)}:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
                sent += 1
        return sent

    def stop(self) -> None:
        """What they have started dies with them, or soon after."""
        self.signal(signal.SIGKILL)
        for process in (self.receivers, self.driver):
            if process is not None:
                process.wait(WITHIN_S)
        self.signal(signal.SIGKILL)


class World:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.shared = directory / "shared"
        self.shared.mkdir()
        os.chown(self.shared, 0, GROUP)
        self.shared.chmod(0o2770)
        directory.chmod(0o755)
        self.namespaces = Namespaces(list(USERS), [])
        self.store = Store()
        os.environ.update(self.store.environment)
        self.network = Network(directory / "network", ("a", "b"), [("a", "b")], settings=PATIENT)
        self.network.start()
        self.file = directory / "lake.yaml"
        self.log = "s3://logs/orders"
        self.partitions = PARTITIONS
        self.in_change: list[str] = []  # faults that are left
        self.hosts = {
            name: Host(
                name, directory / name, self.namespaces.prefix(name), self.namespaces.host(name), self.store.environment
            )
            for name in USERS
        }
        self.active = self.hosts["east"]
        self.done: Counter[str] = Counter()
        self.began = time.monotonic()

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self.began:7.1f} s  {text}", flush=True)

    def configure(self, **options: Any) -> None:
        """What receivers and drivers read when they start."""
        settings = {
            "url": self.network.urls_for_hosts(), "topic": "orders", "subscription": "lake", "walLocation": self.log,
            "walRetention": "1h", "partitions": self.partitions, "leaseTimeout": LEASE, "reader": "lake", **options,
        }  # fmt: skip
        self.file.write_text(yaml.safe_dump(settings))

    def start(self) -> None:
        self.configure(ingest="apart")
        for host in self.hosts.values():
            host.receive(self.file)
        attached = lambda: (slots := self.slots()) and all(map(self.holder, slots))  # noqa: E731
        wait_until(attached, "all partitions are received", WITHIN_S, 0.2)
        known = lambda: self.network["b"].status()["addresses"].get("orders", {}).get("subscriptions", [])  # noqa: E731
        wait_until(lambda: len(known()) == self.partitions, "attached", WITHIN_S, 0.2)
        self.active.drive(self.file, self.shared)
        wait_until((self.shared / "checkpoint" / "offsets").is_dir, "the query runs", WITHIN_S, 0.2)
        self.say(f"received by {[self.holder(slot) for slot in self.slots()]}, the query runs")

    def publish(self, first: int, rows: int) -> list[Publishing]:
        """Both publishers; `ROUND_S` long."""
        return [
            Publishing(
                self.network.urls(), "orders",
                [
                    Message(b"%d %d" % (publisher, number), message_annotations={"x-opt-partition-key": f"k{number % KEYS}"})
                    for number in range(first, first + rows)
                ],
                pace_s=100 * ROUND_S / rows, name=f"publisher {publisher}",
            )
            for publisher in range(PUBLISHERS)
        ]  # fmt: skip

    # -- the log's receivers

    def slots(self) -> list[int]:
        """Those that are received now."""
        try:
            return Wal.open(self.log).slots_of("orders")
        except WalError:  # the store is away, or the log not made yet
            return []

    def holder(self, slot: int) -> int:
        """The process that receives the slot; 0: nobody."""
        try:
            holder = Wal.open(self.log).holder(slot)
        except WalError:
            return 0
        return int(holder.rpartition(":")[2] or 0)

    def host_of(self, pid: int) -> Host:
        user = Path(f"/proc/{pid}").stat().st_uid
        return next(host for host in self.hosts.values() if host.user == user)

    # -- faults

    def fault(self, kind: str, rng: random.Random) -> None:
        began = time.monotonic()
        what = getattr(self, f"_{kind}")(rng)
        self.done[kind] += 1
        self.say(f"{kind}: {what} ({time.monotonic() - began:.1f} s)")

    def _driver(self, rng: random.Random) -> str:
        dead = self.active
        # its executors and Python workers find that out by themselves
        dead.signal(signal.SIGKILL, "tests.spark.two_hosts", "org.apache.spark.deploy.SparkSubmit")
        self.active = next(host for host in self.hosts.values() if host is not dead)
        self._drive()
        return f"killed on {dead.name}, goes on at {self.active.name}"

    def _drive(self) -> None:
        """Until the next driver has done a batch."""
        commits = self.shared / "checkpoint" / "commits"
        before = _latest(commits)
        self.active.drive(self.file, self.shared)

        def goes_on() -> bool:
            driver = self.active.driver
            if driver.poll() is not None:  # a query fails for a store that is away; whatever keeps it running starts it
                self.done["queries started again"] += 1
                self.active.drive(self.file, self.shared)
            return _latest(commits) > before

        wait_until(goes_on, "the next driver has done a batch", WITHIN_S, 0.2)

    def _executor(self, rng: random.Random) -> str:
        return f"{self.active.signal(signal.SIGKILL, 'CoarseGrainedExecutorBackend')} killed"

    def _receiver(self, rng: random.Random) -> str:
        slot, one = self._someone(rng)
        os.kill(one, signal.SIGKILL)
        wait_until(lambda: self.holder(slot) not in (0, one), "another one has the slot", WITHIN_S, 0.1)
        return f"{one} of slot {slot} killed"

    def _receivers(self, rng: random.Random) -> str:
        slot, one = self._someone(rng)
        host = self.host_of(one)
        host.signal(signal.SIGKILL, "-m\0onceway")
        wait_until(lambda: self.holder(slot) not in (0, one), "another host has the slot", WITHIN_S, 0.1)
        host.receivers.wait(WITHIN_S)
        host.receive(self.file)
        return f"all of {host.name} killed"

    def _freeze(self, rng: random.Random) -> str:
        slot, one = self._someone(rng)
        os.kill(one, signal.SIGSTOP)
        try:
            wait_until(lambda: self.holder(slot) not in (0, one), "another one has the slot", WITHIN_S, 0.1)
        finally:
            os.kill(one, signal.SIGCONT)
        return f"{one} of slot {slot} thawed when {self.holder(slot)} had its lease"

    def _router(self, rng: random.Random) -> str:
        name = rng.choice("ab")
        self.network.kill(name)
        self.network.start(name)
        return f"{name} killed and started"

    def _store(self, rng: random.Random) -> str:
        self.store.kill()
        time.sleep(rng.uniform(0.1, 4.0))
        self.store.start()
        return "killed and started"

    def _cut(self, rng: random.Random) -> str:
        host = self.active if self._changing() else self.hosts[rng.choice(list(self.hosts))]
        self.namespaces.cut(host.name)
        time.sleep(rng.uniform(4.0, 12.0))
        self.namespaces.heal(host.name)
        return f"{host.name} was alone"

    def _change(self, rng: random.Random) -> str:
        """2, 3, 2 ... partitions, and a fault in between."""
        for host in self.hosts.values():
            host.stop()
        self.partitions = 5 - self.partitions
        self.configure(ingest="driver", changePartitions=True)
        self.active.drive(self.file, self.shared)
        driver = self.active.driver
        begun = lambda: self._changing() or driver.poll() is not None  # noqa: E731
        assert wait_until(begun, "the log is between two numbers", WITHIN_S, 0.02) is not True, "the query has ended"
        time.sleep(rng.uniform(0.0, 1.5))
        self.in_change = self.in_change or rng.sample(IN_CHANGE, len(IN_CHANGE))
        kind, step = self.in_change.pop(), self._changing()
        what = getattr(self, f"_{kind}")(rng)
        self.done[f"{kind} while {step}"] += 1

        def over() -> bool:
            self.driver_lives()
            return not self._changing()

        wait_until(over, "the number has changed", WITHIN_S, 0.2)
        for host in self.hosts.values():
            host.stop()
        self.start()
        return f"{self.partitions} partitions; while {step or 'nothing was left'}, {kind}: {what}"

    def _changing(self) -> str:
        """How far a change of partitions has come; empty: there is none."""
        wal = Wal.open(self.log)
        return next((str(wal.before[slot].step) for slot in wal.in_change()), "")

    def _thaw(self, rng: random.Random) -> str:
        """The host that changes the number is frozen, and goes on when the other one does it."""
        slot, one = self._someone(rng)
        frozen = self.active
        frozen.signal(signal.SIGSTOP)
        self.active = next(host for host in self.hosts.values() if host is not frozen)
        self.active.drive(self.file, self.shared)
        try:
            wait_until(lambda: self.holder(slot) not in (0, one), "another one has the slot", WITHIN_S, 0.02)
        finally:
            frozen.signal(signal.SIGCONT)
        return f"{frozen.name} thawed when {self.holder(slot)} on {self.active.name} had the lease of slot {slot}"

    def _someone(self, rng: random.Random) -> tuple[int, int]:
        slot = rng.choice(self.slots())
        return slot, int(wait_until(lambda: self.holder(slot), "somebody receives", WITHIN_S, 0.1))

    def driver_lives(self) -> None:
        """Whatever keeps it running starts a query again that has failed, on the same host."""
        driver = self.active.driver
        if driver is not None and driver.poll() is not None:
            self.say(f"the query had failed on {self.active.name}: started again")
            self.done["queries started again"] += 1
            self._drive()

    def close(self) -> None:
        for host in self.hosts.values():
            host.stop()
        self.network.close()
        self.namespaces.close()
        self.store.stop()


def _latest(directory: Path) -> int:
    names = [each.name for each in directory.iterdir()] if directory.is_dir() else []
    return max((int(name) for name in names if name.isdecimal()), default=-1)


# -- the table


def table(lake: Path) -> Iterator[tuple[int, int, int, bytes]]:
    """(batch, partition, offset, value) of each row that Spark's file sink has committed."""
    import pyarrow.parquet as pq

    files: dict[str, int] = {}
    for log in sorted((lake / "_spark_metadata").glob("[0-9]*"), key=lambda log: int(log.stem)):
        for line in log.read_text().splitlines()[1:]:  # of N.compact: all files until then
            files.setdefault(json.loads(line)["path"], int(log.stem))
    for path, batch in files.items():
        read = pq.read_table(path.removeprefix("file://"), columns=["partition", "offset", "value"])
        for row in zip(*(column.to_pylist() for column in read.columns), strict=True):
            yield batch, *row


def judge(lake: Path, rows: int) -> Counter[str]:
    found = sorted(table(lake))
    seen: Counter[bytes] = Counter(value for *_, value in found)
    result = Counter(rows=len(found), lost=PUBLISHERS * rows - len(seen), duplicate=len(found) - len(seen), disorder=0)
    last: dict[tuple[str, int, bytes], int] = {}
    for _, partition, _, value in found:
        publisher, number = value.split()
        for place in (("partition", partition, publisher), ("key", int(number) % KEYS, publisher)):
            result["disorder"] += int(number) <= last.get(place, -1)
            last[place] = int(number)
    return result


# -- the run


def rounds(kinds: list[str]) -> Iterator[list[str]]:
    """Two faults each; a change is the first, since publishers publish then."""
    left = kinds[::-1]
    while left:
        one = left.pop()
        yield [one, left.pop()] if left and left[-1] != "change" else [one]


def torture(directory: Path, faults: int, kinds: Sequence[str], seed: int, rate: int) -> int:
    rng = random.Random(seed)
    drawn: list[str] = []
    while len(drawn) < faults:
        drawn += rng.sample(kinds, len(kinds))
    world = World(directory)
    try:
        world.start()
        rows = 0  # of each publisher
        for together in rounds(drawn[:faults]):
            publishings = world.publish(rows, int(rate * ROUND_S))
            rows += int(rate * ROUND_S)
            for kind in together:
                world.fault(kind, rng)
                world.driver_lives()
            for publishing in publishings:
                publishing.join()
            world.say(f"{PUBLISHERS * rows} messages are accepted")

        def all_there() -> bool:
            world.driver_lives()
            return judge(world.shared / "lake", rows)["rows"] >= PUBLISHERS * rows

        wait_until(all_there, "every row is in the table", DRAIN_WITHIN_S, 1.0)
        result = judge(world.shared / "lake", rows)
        world.say(f"{dict(world.done)}")
        world.say(", ".join(f"{count} {what}" for what, count in result.items()))
        return int(bool(result["lost"] or result["duplicate"] or result["disorder"]))
    finally:
        world.close()


def drive(file: str, shared: str, address: str) -> None:
    """The driver on a host."""
    import pyspark

    from onceway.spark.session import session
    from tests.spark.driver import QUICK, lake

    spark_home = Path(os.environ["HOME"], "spark")  # its worker makes directories there
    spark_home.mkdir(exist_ok=True)
    for part in Path(pyspark.__file__).parent.iterdir():
        if part.name in ("jars", "bin", "sbin", "conf", "python") and not (spark_home / part.name).exists():
            (spark_home / part.name).symlink_to(part)
    os.environ["SPARK_HOME"] = str(spark_home)
    where = {
        "spark.driver.host": address,
        "spark.driver.bindAddress": address,
        "spark.master": "local-cluster[1,1,512]",
    }
    where["spark.hadoop.fs.permissions.umask-mode"] = "002"
    memory = {"spark.driver.memory": "512m", "spark.executor.memory": "512m"}
    session("lake", **{**QUICK, **where, **memory, "spark.executor.extraJavaOptions": "-XX:+UseSerialGC"})
    sys.argv = ["lake.py", file, shared, "--every", "1 seconds"]
    lake.main()


def main() -> int:
    if sys.argv[1:2] == ["drive"]:
        drive(*sys.argv[2:])
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--faults", type=int, default=len(FAULTS))
    parser.add_argument("--kinds", nargs="+", choices=FAULTS, default=FAULTS, help="of faults")
    parser.add_argument("--seed", type=int, default=18)
    parser.add_argument("--rate", type=int, default=500, help="messages a second of each publisher")
    args = parser.parse_args()
    if (reason := reason_not_to()) is not None:
        print(reason, file=sys.stderr)
        return 2
    if not is_inside():
        # the users have names here alone: Java and Hadoop ask for them
        etc = args.directory / "etc"
        shutil.copytree("/etc", etc, symlinks=True)
        with (etc / "passwd").open("a") as users:
            users.writelines(
                f"{name}:x:{user}:{GROUP}::{args.directory / name}:/bin/sh\n" for name, user in USERS.items()
            )
        named = ("unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc && exec "$@"', str(etc))
        command, environment = command_inside([*named, sys.executable, "-m", "tests.spark.two_hosts", *sys.argv[1:]])
        return subprocess.run(command, env=environment, check=False).returncode
    print(f"seed {args.seed}, {args.faults} faults", flush=True)
    return torture(args.directory, args.faults, args.kinds, args.seed, args.rate)


if __name__ == "__main__":
    sys.exit(main())
