"""azure-servicebus and azure-eventhub by their public API (programs/azure_public.py), which `make interop` installs."""

from __future__ import annotations

from pathlib import Path

import pytest
from proton import Message

from tests.interop.raw import Subscriber, publish, unique
from tests.interop.test_clients import installed
from tests.live import LiveNetwork
from tests.running import PROGRAMS, Program

__all__ = ["installed"]

PACKAGES = {"eventhub": "azure", "servicebus": "azure", "servicebus715": "python"}
"""And where they are installed."""
every_package = pytest.mark.parametrize("package", PACKAGES)
TEXTS = [f"message {number}" for number in range(6)]


def does(installed: Path, package: str, what: str, at: str, address: str) -> Program:
    python = installed / PACKAGES[package] / "bin" / "python"
    name = package.removesuffix("715")
    return Program([str(python), str(PROGRAMS / "azure_public.py"), name, what, at, address, str(len(TEXTS))])


def body(payload: bytes) -> str:
    message = Message()
    message.decode(payload)
    return bytes(message.body).decode()


@every_package
def test_public_api_sends(installed: Path, package: str, three_routers: LiveNetwork) -> None:
    address = unique(package)
    with (
        Subscriber(three_routers["c"].address, address) as subscriber,
        does(installed, package, "send", three_routers["a"].address, address) as sending,
    ):
        assert [body(each.payload) for each in subscriber.wait(len(TEXTS))] == TEXTS
        assert sending.rest() == ["accepted"] * len(TEXTS)


@every_package
def test_public_api_receives(installed: Path, package: str, three_routers: LiveNetwork) -> None:
    address = unique(package)
    with does(installed, package, "receive", three_routers["c"].address, address) as receiving:
        bodies = [Message(body=text.encode(), inferred=True).encode() for text in TEXTS]
        assert publish(three_routers["a"].address, address, bodies) == ["accepted"] * len(TEXTS)
        assert receiving.rest() == TEXTS
