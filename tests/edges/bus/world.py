"""A bus with its router as processes, an independent HTTP client, and a subscriber that is called back over HTTPS."""

from __future__ import annotations

import itertools
import json
import os
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any

import httpx

from chaos.live.ports import free_port
from tests.edges.bus.described import judge
from tests.live import PATIENT, ROOT, LiveNetwork, dying_with_us, wait_until

_HELD = tempfile.TemporaryDirectory(prefix="onceway-bus-")
CERTIFICATE = Path(_HELD.name) / "localhost.pem"  # self-signed, for localhost and 127.0.0.1, with its key
CERTIFICATE.touch(0o600)  # a checkout has another mode
CERTIFICATE.write_bytes(Path(__file__).with_name("localhost.pem").read_bytes())
TRUST = ssl.create_default_context(cafile=str(CERTIFICATE))
ROOT_KEY = "the-root-key"
_NAMES = itertools.count()


@dataclass
class Answer:
    status: int
    headers: httpx.Headers
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def basic(user: str, password: str = "ignored") -> str:
    return f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"


def ask(
    port: int, method: str, path: str, user: str | None = None, body: Any = None, *, tls: bool = True, **headers: str
) -> Answer:
    """One request on a connection of its own."""
    if user is not None:
        headers["Authorization"] = basic(user)
    raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    url = f"http{'s' if tls else ''}://localhost:{port}{path}"
    with httpx.Client(verify=TRUST, timeout=60, trust_env=False) as client:
        response = client.request(method, url, content=raw, headers=headers)
    answer = Answer(response.status_code, response.headers, response.content)
    if tls:
        judge(method, path, raw, answer.status, answer.headers.get("Content-Type", ""), answer.body)
    return answer


@dataclass
class Batch:
    user: str
    header: str
    events: list[dict[str, Any]]
    connection: tuple[str, int]


class Sink:
    """A subscriber's HTTPS server. `answer` is called with each batch and says the status to answer with."""

    def __init__(self, answer: Callable[[Batch], int] = lambda _: 200) -> None:
        self.batches: list[Batch] = []
        self.answer = answer
        sink = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                user = b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
                assert self.headers["Content-Type"] == "application/json"
                batch = Batch(user, self.headers["Onceway-Batch"], json.loads(body), self.client_address)
                status = sink.answer(batch)
                sink.batches.append(batch)
                try:
                    self.send_response(status)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                except ConnectionError:
                    self.close_connection = True

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATE)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"https://localhost:{self._server.server_address[1]}/events"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def events(self) -> list[dict[str, Any]]:
        return [event for batch in list(self.batches) for event in batch.events]

    def wait(self, count: int) -> list[dict[str, Any]]:
        """All events, once so many have come."""
        wait_until(lambda: len(self.events) >= count, f"{count} events are called back, not {len(self.events)}")
        return self.events


class BusProcess:
    """One edge as a process."""

    def __init__(
        self,
        directory: Path,
        urls: str,
        name: str = "a",
        arguments: Sequence[str] = (),
        tls: bool = True,
        store: str | None = None,
    ) -> None:
        self.directory = directory
        self.tls = tls
        self.port = free_port()
        self.http_port = free_port()
        self.log_path = directory / f"bus-{name}.log"
        self._arguments = [
            *("--url", urls, "--name", name),
            *(("--data", str(directory / f"data-{name}")) if store is None else ("--store", store)),
            *("--listen", f"127.0.0.1:{self.port}", "--callback-ca", str(CERTIFICATE), *arguments),
            *("--callback-allow", "localhost"),
        ]
        if tls:
            self._arguments += ["--tls-cert", str(CERTIFICATE), "--http-listen", f"127.0.0.1:{self.http_port}"]
        else:
            self._arguments += ["--plain-http"]
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._starts = 0

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> BusProcess:
        self.spawn()
        self.wait_ready()
        return self

    def wait_ready(self) -> None:
        wait_until(self.ready, f"the bus works\n{self.said()}")

    def spawn(self) -> None:
        self._log = self.log_path.open("ab")
        self._process = subprocess.Popen(
            dying_with_us([sys.executable, "-m", "onceway", "bus", "serve", *self._arguments]),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "ONCEWAY_BUS_ROOT_KEY": ROOT_KEY},
        )
        self._starts += 1

    def ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"the bus has ended\n{self.said()}"
        if self.said().count("listening: ") < self._starts:
            return False
        return self.ask("GET", "/pulse", ROOT_KEY).status == 204

    def said(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        return self._end(signal.SIGTERM)

    def _end(self, number: int) -> int:
        assert self._process is not None
        assert self._log is not None
        self._process.send_signal(number)
        code = self._process.wait(60)
        self._log.close()
        self._process = None
        return code

    def close(self) -> None:
        if self._process is not None:
            self.kill()

    # --- as its clients

    def ask(self, method: str, path: str, user: str | None = None, body: Any = None, **headers: str) -> Answer:
        return ask(self.port, method, path, user, body, tls=self.tls, **headers)

    def client(self, name: str = "client") -> str:
        """The token of a new client."""
        answer = self.ask("POST", "/api_tokens", ROOT_KEY, {"name": name})
        assert answer.status == 201, answer
        return str(answer.json["token"])

    def push(self, token: str, topic: str, number: int = 0, **fields: Any) -> int:
        event = {"type": "update", "url": f"https://example.com/{number}", **fields}
        return self.ask("POST", f"/topics/{topic}", token, event).status

    def subscribe(self, token: str, sink: Sink, *topics: str, **fields: Any) -> int:
        wish = {"topics": topics, "callback": sink.url, "uuid": "its-uuid", "timeout": 0, **fields}
        return self.ask("POST", "/subscription", token, wish).status

    def subscription(self, token: str) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("GET", "/subscriber", token).json
        return found

    def metric(self, name: str, **labels: str) -> float:
        page = self.ask("GET", "/metrics", ROOT_KEY).body.decode()
        for line in page.splitlines():
            head, _, value = line.rpartition(" ")
            if head.partition("{")[0] == name and all(f'{key}="{text}"' in head for key, text in labels.items()):
                return float(value)
        raise AssertionError(f"no {name} {labels} in\n{page}")


SHARED = "shared"  # as a store: the first edge's, for all of them


class BusNetwork(LiveNetwork):
    """Routers and one edge; with `store`, a database or SHARED, several edges."""

    def __init__(
        self,
        directory: Path,
        names: tuple[str, ...] = ("a",),
        arguments: Sequence[str] = (),
        tls: bool = True,
        edges: Sequence[str] = ("a",),
        store: str | None = None,
    ) -> None:
        super().__init__(directory, names, list(itertools.pairwise(names)), (), PATIENT)
        database, first = (None, [*arguments, "--share"]) if store == SHARED else (store, arguments)
        self.bus = BusProcess(directory, self.urls(), edges[0], first, tls, database)
        if store == SHARED:
            database = f"https://localhost:{self.bus.port}"
        others = [BusProcess(directory, self.urls(), name, arguments, tls, database) for name in edges[1:]]
        self.buses = [self.bus, *others]

    def start_all(self) -> BusNetwork:
        self.start()
        for bus in self.buses:
            bus.spawn()
        for bus in self.buses:
            bus.wait_ready()
        return self

    def close(self) -> None:
        for bus in self.buses:
            bus.close()
        super().close()

    def logs(self, lines: int = 40) -> str:
        said = [f"--- {bus.log_path.name}\n" + "\n".join(bus.said().splitlines()[-lines:]) for bus in self.buses]
        return "\n".join([super().logs(lines), *said])


def new_topic() -> str:
    """A name that no other test has."""
    return "topic_" + "".join(chr(ord("a") + int(digit)) for digit in str(next(_NAMES)))
