"""Two routers that let in users only, with TLS and without."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import onceway
from chaos.live.ports import free_port
from onceway.access.users import User, Users, store_users, with_password
from onceway.base.loop import run
from onceway.errors import AuthenticationFailed
from tests.live import LiveNetwork
from tests.pki import Pki
from tests.serving import Served, serving

BOUND_S = 60.0
PASSWORD = "wonderland"


class Guarded:
    """Two routers that let in alice, with TLS at `url` and without it at `plain`; `routers` may be more, in a
    row."""

    def __init__(self, directory: Path, routers: str = "ab", **sasl: Any) -> None:
        self.pki = Pki(directory / "pki")
        self.pki.certificate("router", "127.0.0.1", "localhost")
        self.users = directory / "users.json"
        store_users(self.users, Users({"alice": User(with_password(PASSWORD), ("ops",))}))
        self.network = LiveNetwork(directory, tuple(routers), list(itertools.pairwise(routers)))
        ports = {name: free_port() for name in routers}
        document = self.network.topology()
        document["tls"] = {"outside": {"certificate": "pki/router.pem", "ca": "pki/ca.pem", "clients": "optional"}}
        document["sasl"] = {"users": "users.json", **sasl}
        for name, port in ports.items():
            document["routers"][name] |= {"amqps": port, "tls": "outside"}
        self.network.topology_path.write_text(yaml.safe_dump(document, sort_keys=False))
        self.routers: dict[str, Served] = {}
        self.url = [f"amqps://127.0.0.1:{port}" for port in ports.values()]
        self.plain = [self.network.routers[name].url for name in routers]

    def tls(self, certificate: Path | None = None) -> ssl.SSLContext:
        return onceway.tls_context(self.pki.ca, certificate)

    def connect(
        self,
        url: str,
        user: str = "alice",
        password: str = PASSWORD,
        mechanism: str | None = None,
        on_report: Callable[[onceway.Report], None] | None = None,
    ) -> onceway.Connection:
        credentials = onceway.Credentials(user, password, mechanism)
        return onceway.connect(
            url, tls=self.tls(), credentials=credentials, connect_timeout_s=10.0, on_report=on_report
        )

    async def refused(self, url: str, user: str, password: str, mechanism: str | None = None) -> str:
        """Why the client is not let in: by the first answer, as none is tried again."""
        reports: list[onceway.Report] = []
        with pytest.raises(AuthenticationFailed) as caught:
            await self.connect(url, user, password, mechanism, on_report=reports.append)
        assert reports == []
        (reason,) = caught.value.reasons.values()
        return reason

    def reload(self) -> str:
        """Both routers of `play`. What is wrong with the files."""
        return "".join(router.reload() for router in self.routers.values())

    def log(self, name: str = "a") -> str:
        return self.network[name].log_path.read_text()

    def play(self, story: Callable[[], Awaitable[None]]) -> None:
        """With the routers in this process."""

        async def played() -> None:
            async with serving(self.network.topology_path) as self.routers:
                await story()

        run(asyncio.wait_for(played(), BOUND_S))


async def ended(connection: socket.socket, within_s: float = 10.0) -> bytes:
    """What a stranger is told until its connection is closed."""
    connection.setblocking(False)
    loop, said = asyncio.get_running_loop(), b""
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(within_s):
            while part := await loop.sock_recv(connection, 65_536):
                said += part
    return said
