"""The peers that are measured: private instances, on loopback, as child processes, gone when the `with` ends.

RabbitMQ and mosquitto are Debian's; neither touches a service of the machine (own data directory, ports, Erlang
port mapper).  `missing()` of each says what would have to be installed.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

from bench.processes import family
from chaos.ports import free_port
from tests.live import LiveNetwork, dying_with_us, wait_until

_RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


class Peer(Protocol):
    label: str
    kind: str  # amqp, mqtt
    second: bool  # rcv-settle-mode second, where the peer has it

    @property
    def publish_at(self) -> str: ...

    @property
    def subscribe_at(self) -> str: ...

    def address(self, run: int) -> str: ...

    def pids(self) -> dict[str, Sequence[int]]: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...


def listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class _Child:
    """One server process with a log in the peer's directory."""

    def __init__(self, directory: Path, name: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.log_path = directory / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, command: list[str], environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                dying_with_us(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
            )
        return self.process

    def wait_listening(self, port: int, timeout_s: float) -> None:
        def up() -> bool:
            assert self.process is not None
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.log_path.stem} ended early:\n{self.log_path.read_text()[-2000:]}")
            return listening(port)

        wait_until(up, f"{self.log_path.stem} listens on {port}", timeout_s)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(10)


class RabbitMQ:
    """RabbitMQ with its AMQP 1.0 plugin, on a fanout exchange: each subscriber has a queue of its own."""

    label = "RabbitMQ amqp1_0"
    kind = "amqp"
    second = False  # the plugin has no rcv-settle-mode second

    def __init__(self, directory: Path) -> None:
        self.port, self._dist, self._epmd_port = free_port(), free_port(), free_port()
        self._server, self._epmd = _Child(directory, "rabbitmq"), _Child(directory, "epmd")
        self.directory = directory

    @staticmethod
    def missing() -> str | None:
        return None if _RABBITMQ.exists() else "Debian's rabbitmq-server is not installed"

    @property
    def publish_at(self) -> str:
        return f"127.0.0.1:{self.port}"

    subscribe_at = publish_at

    def address(self, run: int) -> str:
        return "/exchange/amq.fanout/bench"

    def pids(self) -> dict[str, Sequence[int]]:
        assert self._server.process is not None
        return {"rabbitmq": family(self._server.process.pid)}

    def __enter__(self) -> Self:
        d = self.directory
        (d / "enabled_plugins").write_text("[rabbitmq_amqp1_0].\n")
        (d / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self.port}\namqp1_0.default_user = guest\nlog.file = false\n"
            "log.console = true\nlog.console.level = warning\n"
        )
        environment = {
            "HOME": str(d),
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"bench{os.getpid()}@localhost",
            "RABBITMQ_DIST_PORT": str(self._dist),
            "RABBITMQ_MNESIA_BASE": str(d / "mnesia"),
            "RABBITMQ_LOG_BASE": str(d / "log"),
            "RABBITMQ_CONFIG_FILE": str(d / "rabbitmq"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(d / "advanced"),
            "RABBITMQ_CONF_ENV_FILE": str(d / "none"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(d / "enabled_plugins"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(d / "generated"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }
        # Our own port mapper: Erlang would leave one running as a daemon.
        self._epmd.start([shutil.which("epmd") or "epmd", "-port", str(self._epmd_port)], environment)
        self._epmd.wait_listening(self._epmd_port, 10)
        self._server.start([str(_RABBITMQ)], environment)
        self._server.wait_listening(self.port, 60)
        return self

    def __exit__(self, *exc: object) -> None:
        assert self._server.process is not None
        children = family(self._server.process.pid) if self._server.process.poll() is None else []
        self._server.stop()
        for pid in children[1:]:  # the shell's beam.smp, should the shell have gone first
            try:
                os.kill(pid, 15)
            except ProcessLookupError:
                continue
        self._epmd.stop()


class Mosquitto:
    """mosquitto, MQTT QoS 2 on both sides."""

    label = "mosquitto QoS 2"
    kind = "mqtt"
    second = False

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self._server = _Child(directory, "mosquitto")
        self.directory = directory

    @staticmethod
    def missing() -> str | None:
        return None if Mosquitto._program() else "Debian's mosquitto is not installed"

    @staticmethod
    def _program() -> str | None:
        return shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")

    @property
    def publish_at(self) -> str:
        return f"127.0.0.1:{self.port}"

    subscribe_at = publish_at

    def address(self, run: int) -> str:
        return f"bench/{run}"

    def pids(self) -> dict[str, Sequence[int]]:
        assert self._server.process is not None
        return {"mosquitto": [self._server.process.pid]}

    def __enter__(self) -> Self:
        config = self.directory / "mosquitto.conf"
        # Its defaults allow 20 messages in flight and 100 queued per client, and drop beyond that.
        config.write_text(
            f"listener {self.port} 127.0.0.1\nallow_anonymous true\npersistence false\n"
            "max_inflight_messages 1000\nmax_queued_messages 0\nlog_type error\n"
        )
        program = self._program()
        assert program is not None
        self._server.start([program, "-c", str(config)])
        self._server.wait_listening(self.port, 20)
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.stop()


class Onceway:
    """`routers` in line: the publisher at the first, the subscribers at the last."""

    family = "Onceway"
    kind = "amqp"

    def __init__(
        self,
        directory: Path,
        routers: int = 1,
        *,
        second: bool = True,
        settings: Mapping[str, Any] | None = None,
        addresses: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.second = second
        count = {1: "one router", 2: "two routers", 3: "three in line"}.get(routers, f"{routers} in line")
        self.label = f"Onceway, {count}" + ("" if second else ", mode first")
        names = tuple("abcdefgh"[:routers])
        links = tuple((names[i], names[i + 1]) for i in range(routers - 1))
        self.network = LiveNetwork(directory, names, links, addresses=addresses, settings=settings or {})

    @staticmethod
    def missing() -> str | None:
        return None

    @property
    def publish_at(self) -> str:
        return self.network[self.network.names[0]].address

    @property
    def subscribe_at(self) -> str:
        return self.network[self.network.names[-1]].address

    def address(self, run: int) -> str:
        return f"bench-{run}"

    def pids(self) -> dict[str, Sequence[int]]:
        return {router.name: [router.pid] for router in self.network}

    def __enter__(self) -> Self:
        self.network.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.network.close()
