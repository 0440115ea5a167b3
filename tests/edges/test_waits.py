"""Edges and their stores do not wait without end for somebody who takes a connection and says nothing."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Iterator
from dataclasses import replace

import pytest

from edges.metadata.client import Client, MetadataError
from edges.store.remote import RemoteStore
from onceway.base import waits


@pytest.fixture
def mute() -> Iterator[int]:
    """The port of somebody who takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


async def test_a_client_of_a_metadata_edge_that_says_nothing_ends(monkeypatch: pytest.MonkeyPatch, mute: int) -> None:
    monkeypatch.setattr(waits, "METADATA_CONNECT", replace(waits.METADATA_CONNECT, bound=0.05))
    with pytest.raises(MetadataError, match=rf"127\.0\.0\.1:{mute}: no answer within 0\.05 s"):
        async with Client(f"127.0.0.1:{mute}", ssl.create_default_context()):
            raise AssertionError


async def test_a_store_that_takes_connections_and_says_nothing_is_told_as_away(
    monkeypatch: pytest.MonkeyPatch, mute: int
) -> None:
    monkeypatch.setattr(waits, "STORE_CONNECT", replace(waits.STORE_CONNECT, bound=0.05))
    told = asyncio.Event()

    class Told(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            assert "waits for the store: no answer within 0.05 s" in record.getMessage()
            told.set()

    handler = Told(logging.WARNING)
    logging.getLogger("onceway").addHandler(handler)
    store = RemoteStore(f"http://127.0.0.1:{mute}")
    try:
        await asyncio.wait_for(told.wait(), 60.0)
    finally:
        logging.getLogger("onceway").removeHandler(handler)
        await store.close()
