"""A network made secure for a demo or a chaos run: an authority of its own, certificates, users, policies.

Each router and each client gets a certificate from OpenSSL's command. In mode `tls` clients check the router's; in mode
`mutual` both sides show one, clients log in with SCRAM as well, and policies let them use one address. Trunks have TLS
in both.
"""

from __future__ import annotations

import secrets
import shutil
import ssl
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import onceway
from onceway.access.users import User, Users, store_users, with_password
from onceway.base import waits
from onceway.base.private import FILE, make_directory, make_file
from onceway.errors import UsageError

MODES: Final = ("plain", "tls", "mutual")


@dataclass(slots=True)
class Secure:
    """Files in `directory`. hosts: the names and addresses by which clients reach routers."""

    directory: Path
    mode: str  # one of MODES but the first
    routers: Sequence[str]
    clients: Sequence[str]
    hosts: Sequence[str] = ("localhost", "127.0.0.1")
    address: str = "orders"
    _passwords: dict[str, str] = field(default_factory=dict, repr=False)

    def make(self) -> None:
        """Writes certificates, users and passwords. UsageError without the command openssl."""
        if shutil.which("openssl") is None:
            raise UsageError("certificates are made with the command openssl: install it, or do without --secure")
        make_directory(self.directory)
        self._certificate("ca")
        for name in self.routers:
            hosts = [f"IP:{host}" if host[-1].isdigit() else f"DNS:{host}" for host in self.hosts]
            self._certificate(name, "subjectAltName=" + ",".join([f"DNS:{name}", *hosts]))
        users: dict[str, User] = {}
        for name in self.clients:
            self._certificate(name)
            password = self._passwords[name] = secrets.token_urlsafe(18)
            users[name] = User(with_password(password))
            path = self.password_file(name)
            make_file(path)
            path.write_text(f"{password}\n")
        store_users(self.directory / "users.json", Users(users))

    def _certificate(self, name: str, extension: str = "") -> None:
        """`name.pem`, with its key; the authority's certificate is beside its key."""
        key, pem = self.directory / f"{name}.key", self.directory / f"{name}.pem"
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc"]
        command += ["-days", "30", "-subj", f"/CN={name}", "-keyout", str(key), "-out", str(pem)]
        if name != "ca":
            command += ["-CA", str(self.ca), "-CAkey", str(self.directory / "ca.key")]
            command += ["-addext", "basicConstraints=critical,CA:FALSE"]
            command += ["-addext", extension] if extension else []
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=waits.OPENSSL.s)
        if done.returncode:
            raise UsageError(f"openssl made no certificate for {name}: {done.stderr.strip()}")
        if name != "ca":
            pem.chmod(FILE)
            pem.write_text(pem.read_text() + key.read_text())

    def secured(self, document: dict[str, Any], ports: Sequence[int]) -> dict[str, Any]:
        """The topology file: clients come to `amqps` where `amqp` was, which gets one of the ports."""
        profile = {"certificate": str(self.directory / "${router}.pem"), "ca": str(self.ca)}
        mutual = self.mode == "mutual"
        routers = {
            name: {
                **{"mqtts" if key == "mqtt" else key: at for key, at in place.items()},
                "amqp": f"127.0.0.1:{port}",
                "amqps": place["amqp"],
                "tls": "clients",
            }
            for (name, place), port in zip(document["routers"].items(), ports, strict=True)
        }
        with_tls: dict[str, Any] = {
            **document,
            "tls": {"clients": {**profile, "clients": "required" if mutual else "off"}, "routers": profile},
            "trunks": {"tls": "routers"},
            "routers": routers,
        }
        if mutual:
            with_tls["sasl"] = {"users": str(self.directory / "users.json"), "certificates": [{"from": "common_name"}]}
            everyone = {"users": list(self.clients), "send": [self.address], "receive": [self.address]}
            with_tls["policies"] = [everyone]
            if "addresses" in document:
                with_tls["addresses"] = [self._owned(each) for each in document["addresses"]]
        return with_tls

    def _owned(self, address: dict[str, Any]) -> dict[str, Any]:
        """With declared subscriptions that are of the client whose container-id they name."""
        if "subscriptions" not in address:
            return address
        return {**address, "subscriptions": [{**each, "user": each["container"]} for each in address["subscriptions"]]}

    @property
    def ca(self) -> Path:
        return self.directory / "ca.pem"

    def certificate(self, client: str) -> Path | None:
        """What the client shows."""
        return self.directory / f"{client}.pem" if self.mode == "mutual" else None

    def password_file(self, client: str) -> Path:
        return self.directory / f"{client}.password"

    def tls(self, client: str) -> ssl.SSLContext:
        return onceway.tls_context(self.ca, self.certificate(client))

    def credentials(self, client: str) -> onceway.Credentials | None:
        return onceway.Credentials(client, self._passwords[client]) if self.mode == "mutual" else None
