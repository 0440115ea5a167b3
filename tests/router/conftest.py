"""A router's links with a core that only notes."""

from __future__ import annotations

from typing import Any

import pytest

from router.config import RouterConfig
from tests.builds import COMPILED, STAND_INS
from tests.router.links import Clients, NotingCore, make


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> Clients:
    if COMPILED:
        pytest.skip(STAND_INS)
    monkeypatch.setattr("router.router.Core", NotingCore)
    return make(RouterConfig("a"))


@pytest.fixture
def core(clients: Clients) -> Any:
    return clients.router.core
