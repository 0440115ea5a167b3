"""The peers that are measured: private instances on loopback, as child processes, gone when their `with` ends.

Each broker is a `Definition`: where its program is found, how it is configured, and what its addresses look like.
Nothing here touches a service of the machine: data, ports and Erlang's port mapper are the instance's own.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import yaml

from bench.load import Load
from bench.processes import family, resident_mb
from chaos.live.ports import free_port
from onceway.demo.secure import Secure
from tests.live import LiveNetwork, dying_with_us, wait_until

COMPILED = Path(__file__).parent.parent / "build" / "compiled"
"""A copy of this tree with compiled modules, which `make compiled` makes."""

QUEUE = "queue/"
"""With this before it, `run` names a queue, where a peer has queues."""


def in_line(size: int) -> str:
    return {1: "one router", 2: "two routers", 3: "three in line"}.get(size, f"{size} in line")


@dataclass(slots=True)
class Process:
    """One process of a broker; started once the one before it listens."""

    command: list[str]
    port: int  # where it listens when it is ready
    environment: dict[str, str] = field(default_factory=dict)


Configure = Callable[[Path, Path, Sequence[int]], list[Process]]
"""(program, an empty directory, the ports of the instances) -> processes"""


@dataclass(frozen=True, slots=True)
class Definition:
    label: str
    program: str  # looked for on PATH and in the sbin directories, unless a path is given
    remedy: str  # for whoever does not have it
    configure: Configure
    kind: str = "amqp"
    second: bool = False  # whether it has rcv-settle-mode second
    qos: Callable[[Path], int] = lambda program: 2  # MQTT: the highest that it has
    address: str = "bench-{run}"
    network: bool = False  # whether several of them make a network
    queues: bool = False

    def find(self, path: str | None) -> Path | None:
        if path:
            found = shutil.which(path)
        else:
            found = shutil.which(self.program) or shutil.which(self.program, path="/usr/sbin:/usr/local/sbin")
        return Path(found).resolve() if found else None


def _rabbitmq(program: Path, directory: Path, ports: Sequence[int]) -> list[Process]:
    mapper, distribution = free_port(), free_port()
    (directory / "enabled_plugins").write_text("[rabbitmq_amqp1_0].\n")
    (directory / "rabbitmq.conf").write_text(
        f"listeners.tcp.1 = 127.0.0.1:{ports[0]}\namqp1_0.default_user = guest\nlog.file = false\n"
        "log.console = true\nlog.console.level = warning\n"
    )
    files = {"MNESIA_BASE": "mnesia", "LOG_BASE": "log", "CONFIG_FILE": "rabbitmq", "ADVANCED_CONFIG_FILE": "advanced"}
    files |= {"CONF_ENV_FILE": "none", "ENABLED_PLUGINS_FILE": "enabled_plugins", "GENERATED_CONFIG_DIR": "generated"}
    environment = {
        "HOME": str(directory),
        "ERL_EPMD_PORT": str(mapper),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"bench{os.getpid()}@localhost",
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        **{f"RABBITMQ_{name}": str(directory / file) for name, file in files.items()},
    }
    # A port mapper of its own: Erlang would leave one running as a daemon.
    return [
        Process([shutil.which("epmd") or "epmd", "-port", str(mapper)], mapper, environment),
        Process([str(program)], ports[0], environment),
    ]


def _mosquitto(program: Path, directory: Path, ports: Sequence[int]) -> list[Process]:
    # Its defaults allow 20 messages in flight and 100 queued for each client, and drop what is beyond.
    (directory / "mosquitto.conf").write_text(
        f"listener {ports[0]} 127.0.0.1\nallow_anonymous true\npersistence false\n"
        "max_inflight_messages 1000\nmax_queued_messages 0\nlog_type error\n"
    )
    return [Process([str(program), "-c", str(directory / "mosquitto.conf")], ports[0])]


def _nats(program: Path, directory: Path, ports: Sequence[int]) -> list[Process]:
    # MQTT sessions live in JetStream streams, on disk.
    (directory / "nats.conf").write_text(
        f'listen: "127.0.0.1:{free_port()}"\nserver_name: bench\njetstream {{ store_dir: "{directory}" }}\n'
        f'mqtt {{ listen: "127.0.0.1:{ports[0]}", max_ack_pending: 1000 }}\n'
    )
    return [Process([str(program), "-c", str(directory / "nats.conf")], ports[0])]


def _nats_qos(program: Path) -> int:
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    version = re.search(r"v(\d+)\.(\d+)", said)
    return 2 if version and (int(version[1]), int(version[2])) >= (2, 10) else 1


def _skupper(program: Path, directory: Path, ports: Sequence[int]) -> list[Process]:
    modules = program.parent.parent / "lib" / "skupper-router" / "python"
    include = ["-I", str(modules)] if modules.is_dir() else []
    trunks = [free_port() for _ in ports]
    host = {"host": "127.0.0.1"}
    processes = []
    for i, port in enumerate(ports):
        mode = "interior" if len(ports) > 1 else "standalone"
        sections: list[tuple[str, dict[str, object]]] = [
            ("router", {"mode": mode, "id": f"r{i}", "workerThreads": 2}),
            ("listener", {**host, "port": port, "saslMechanisms": "ANONYMOUS", "authenticatePeer": "no"}),
            ("address", {"prefix": "bench", "distribution": "multicast"}),
            ("address", {"prefix": f"bench/{QUEUE.rstrip('/')}", "distribution": "balanced"}),
            ("log", {"module": "DEFAULT", "enable": "warning+"}),
        ]
        if len(ports) > 1:
            sections.append(("listener", {**host, "port": trunks[i], "role": "inter-router"}))
        if i:
            sections.append(("connector", {**host, "port": trunks[i - 1], "role": "inter-router"}))
        config = directory / f"r{i}.conf"
        config.write_text(
            "".join(
                f"{name} {{\n" + "".join(f"  {key}: {value}\n" for key, value in section.items()) + "}\n"
                for name, section in sections
            )
        )
        processes.append(Process([str(program), "-c", str(config), *include], port))
    return processes


DEFINITIONS = {
    "skrouterd": Definition(
        "skupper-router",
        "skrouterd",
        "give the path of an installed skupper-router",
        _skupper,
        second=True,
        address="bench/{run}",  # a prefix ends at a slash
        network=True,
        queues=True,
    ),
    # Through a direct exchange a subscriber has a queue of its own, bound with the address as key.  The shell script
    # on PATH insists on the machine's own account and directories.
    "rabbitmq": Definition(
        "RabbitMQ 3, AMQP 1.0 plugin",
        "/usr/lib/rabbitmq/bin/rabbitmq-server",
        "apt-get install rabbitmq-server",
        _rabbitmq,
        address="/exchange/amq.direct/bench-{run}",
    ),
    "mosquitto": Definition("mosquitto", "mosquitto", "apt-get install mosquitto", _mosquitto, kind="mqtt"),
    "nats": Definition(
        "NATS", "nats-server", "apt-get install nats-server", _nats, kind="mqtt", qos=_nats_qos
    ),
}  # fmt: skip


class Peer:
    """What Onceway and the brokers have in common; `size` of them in line, publishers at the first."""

    label: str
    kind = "amqp"
    second = False
    qos = 2
    size = 1
    queues = False
    filters = False

    def pids(self) -> dict[str, Sequence[int]]:
        raise NotImplementedError

    def urls(self) -> tuple[str, str]:
        """Where publishers and where subscribers connect."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        raise NotImplementedError

    def __exit__(self, *exc: object) -> None:
        raise NotImplementedError

    def load(self, run: object, **more: Any) -> Load:
        """`run` makes an address of its own for each run."""
        return Load(*self.urls(), self.address(run), kind=self.kind, qos=self.qos, second=self.second, **more)

    def address(self, run: object) -> str:
        return f"bench-{run}"

    def resident_mb(self) -> float:
        return resident_mb(pid for group in self.pids().values() for pid in group)


class Broker(Peer):
    def __init__(self, definition: Definition, program: Path, directory: Path, size: int = 1) -> None:
        directory.mkdir(parents=True)
        self.definition, self.directory, self.size = definition, directory, size
        self.kind, self.second, self.qos = definition.kind, definition.second, definition.qos(program)
        self.label = definition.label
        self.queues = definition.queues
        if definition.kind == "mqtt":
            self.label += f", QoS {self.qos}"
        elif definition.network:
            self.label += f", {in_line(size)}"
        self.ports = [free_port() for _ in range(size)]
        self.processes = definition.configure(program, directory, self.ports)
        self.running: list[subprocess.Popen[bytes]] = []

    def urls(self) -> tuple[str, str]:
        return f"127.0.0.1:{self.ports[0]}", f"127.0.0.1:{self.ports[-1]}"

    def address(self, run: object) -> str:
        return self.definition.address.format(run=run)

    def pids(self) -> dict[str, Sequence[int]]:
        served = zip(self.processes, self.running, strict=True)
        return {f"{process.port}": family(child.pid) for process, child in served}

    def __enter__(self) -> Self:
        try:
            for process in self.processes:
                self._start(process)
        except BaseException:
            self.__exit__()
            raise
        return self

    def restart(self) -> None:
        """Starts the processes again, after they have been killed."""
        self.running.clear()
        for process in self.processes:
            self._start(process)

    def _start(self, process: Process) -> None:
        log_path = self.directory / f"{process.port}.log"
        with log_path.open("wb") as log:
            child = subprocess.Popen(
                dying_with_us(process.command),
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **process.environment},
            )
        self.running.append(child)

        def listening() -> bool:
            if child.poll() is not None:
                raise RuntimeError(f"{process.command[0]} ended early:\n{log_path.read_text()[-500:]}")
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", process.port)) == 0

        wait_until(listening, f"{process.command[0]} listens on {process.port}", 60)

    def __exit__(self, *exc: object) -> None:
        for child in reversed(self.running):
            descendants = family(child.pid)[1:] if child.poll() is None else []
            child.terminate()
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait(10)
            for pid in descendants:  # a server whose shell script went first
                try:
                    os.kill(pid, 15)
                except ProcessLookupError:
                    continue


class Onceway(Peer):
    second = queues = filters = True

    def __init__(
        self,
        directory: Path,
        size: int = 1,
        *,
        settings: Mapping[str, Any] | None = None,
        addresses: Sequence[Mapping[str, Any]] = (),
        security: str = "plain",  # one of MODES
        compiled: bool = False,
    ) -> None:
        self.size = size
        kind = "Onceway compiled" if compiled else "Onceway"
        self.label = f"{kind}, {in_line(size)}{'' if security == 'plain' else f', {security}'}"
        names = tuple("abcdefgh"[:size])
        links = tuple((names[i], names[i + 1]) for i in range(size - 1))
        self.network = LiveNetwork(
            directory,
            names,
            links,
            addresses=[{"match": f"bench-{QUEUE}*", "type": "queue"}, *addresses],
            settings=settings or {},
            environment={"PYTHONPATH": str(COMPILED), "PYTHONSAFEPATH": "1"} if compiled else {},
        )
        self.ports = [router.amqp_port for router in self.network]
        self.login: tuple[str, ...] = ()
        if security != "plain":
            self._secure(Secure(directory / "pki", security, names, ["bench"], address="bench*"))

    def _secure(self, secure: Secure) -> None:
        """Clients come through TLS; with mode `mutual` they show a certificate and log in, and a policy lets them."""
        secure.make()
        self.ports = [free_port() for _ in self.ports]
        document = self.network.topology()
        document["routers"] = {
            name: {**place, "amqp": port}
            for (name, place), port in zip(document["routers"].items(), self.ports, strict=True)
        }
        document = secure.secured(document, [router.amqp_port for router in self.network])
        self.network.topology_path.write_text(yaml.safe_dump(document, sort_keys=False))
        self.login = ("-A", str(secure.ca))
        certificate = secure.certificate("bench")
        if certificate is not None:
            self.login += ("-C", str(certificate), "-U", "bench", "-P", str(secure.password_file("bench")))

    def urls(self) -> tuple[str, str]:
        return f"127.0.0.1:{self.ports[0]}", f"127.0.0.1:{self.ports[-1]}"

    def load(self, run: object, **more: Any) -> Load:
        return super().load(run, login=self.login, **more)

    def pids(self) -> dict[str, Sequence[int]]:
        return {router.name: [router.pid] for router in self.network}

    def __enter__(self) -> Self:
        self.network.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.network.close()


class OncewayMqtt(Onceway):
    """One router's MQTT listener."""

    kind = "mqtt"
    second = False

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, addresses=[{"match": "*", "no_subscribers": "accept"}])
        self.label = f"Onceway, MQTT QoS {self.qos}"
        self.port = free_port()
        document = self.network.topology()
        document["mqtt"] = {"topics": {"#": "bench"}}
        for router in document["routers"].values():
            router["mqtt"] = self.port
        self.network.topology_path.write_text(yaml.safe_dump(document, sort_keys=False))

    def urls(self) -> tuple[str, str]:
        return (f"127.0.0.1:{self.port}",) * 2
