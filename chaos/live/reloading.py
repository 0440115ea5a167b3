"""The fault `reload`: the topology file changes in one way after another, and running routers are told.

Each change is made to the file as it was at first, so that every second one also takes back the one before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import yaml

from onceway import state, topology
from onceway.operate import control, reload

Document = dict[str, Any]


def _settings(**values: Any) -> Callable[[Document], None]:
    def change(document: Document) -> None:
        document["settings"] = {**(document.get("settings") or {}), **values}

    return change


def _addresses(document: Document) -> None:
    document["addresses"] = [
        *(document.get("addresses") or []),
        {"match": "of-a-reload", "no_subscribers": "accept"},
        {"match": "*", "max_redeliveries": 4, "publisher_timeout": "150s"},
    ]


def _limits(document: Document) -> None:
    document["limits"] = {"connections": 500, "links": 100, "unread_output": "8MiB"}


def _dearer_link(document: Document) -> None:
    document["links"][0]["cost"] = 9


def _without_first_link(document: Document) -> None:
    """Not where the network would fall apart: then nothing changes."""
    if len(document["links"]) >= len(document["routers"]):
        del document["links"][0]


CHANGES: Final[tuple[tuple[str, Callable[[Document], None]], ...]] = (
    ("windows", _settings(window_messages=200, unsettled_window=2000)),
    ("memory", _settings(memory_limit="96MiB")),
    ("timers", _settings(heartbeat="300ms", proof_after="1s")),
    ("addresses", _addresses),
    ("limits", _limits),
    ("the first link's cost", _dearer_link),
    ("without the first link", _without_first_link),
    ("nothing", lambda document: None),
)


class Reloading:
    """`change` makes the next change of the file; `tell` tells a router of it."""

    def __init__(self, path: Path, state_directory: Path) -> None:
        self._path = path
        self._first = path.read_text()
        self._state = state.state_dir(topology.load(path).network, state_directory)
        self._turn = 0

    def change(self) -> str:
        """Returns what it is."""
        name, change = CHANGES[self._turn % len(CHANGES)]
        self._turn += 1
        document = yaml.safe_load(self._first)
        document["links"] = [_as_mapping(link) for link in document.get("links") or []]
        change(document)
        self._path.write_text(yaml.safe_dump(document, sort_keys=False))
        return name

    def tell(self, router: str) -> None:
        """Raises ControlError if the router does not follow the file."""
        given = reload.arguments(topology.load(self._path))
        asyncio.run(control.call(control.socket_path(self._state, router), "POST", reload.PAGE, given))


def _as_mapping(link: Any) -> Any:
    return {"between": link.split(" - ")} if isinstance(link, str) else link
