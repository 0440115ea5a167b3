"""What an operator may do to a running router: POST requests on its control socket (`onceway.operate.control`).

The commands of `onceway drain` and `onceway admin` send them. Each action takes a JSON object and answers with one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from onceway.operate.control import ControlError, ControlSocket
from onceway.serve.server import DRAIN_S, RouterServer
from onceway.topology.document import suggest
from router.links.publisher_link import PublisherLink
from router.links.subscriber_link import SubscriberLink
from router.router import Router


class Actions:
    """The actions on one router."""

    def __init__(self, server: RouterServer) -> None:
        self._server = server
        self._draining: asyncio.Task[None] | None = None

    def add_to(self, control: ControlSocket) -> None:
        control.add_action("/drain", self.drain)
        control.add_action("/undrain", self.undo_drain)
        control.add_action("/subscription/drop", self.drop_subscription)
        control.add_action("/publisher/forget", self.forget_publisher)
        control.add_action("/link/close", self.close_link)
        control.add_action("/connection/close", self.close_connections)

    async def drain(self, arguments: Mapping[str, Any]) -> Any:
        """Begins to drain, with `timeout_s` seconds of time; `/status` says how far it is."""
        within_s = arguments.get("timeout_s", DRAIN_S)
        if isinstance(within_s, bool) or not isinstance(within_s, int | float) or not 0 < within_s < 1e9:
            raise ControlError("timeout_s is no number of seconds above zero", 400)
        self._check_running()
        self._server.drain(within_s)
        if self._draining is not None:
            self._draining.cancel()
        self._draining = asyncio.create_task(self._server.until_drained(within_s))
        return {}

    async def undo_drain(self, arguments: Mapping[str, Any]) -> Any:
        self._check_running()
        if self._server.router.drain is None:
            raise ControlError(f"router {self._server.name} is not being drained")
        self._server.undo_drain()
        return {}

    async def drop_subscription(self, arguments: Mapping[str, Any]) -> Any:
        """Drops the subscription `container`, `name` of `address`, which must be away or attached here. With `dry_run`
        it says only what that would lose: `owed`, the deliveries that this router keeps for it."""
        address, container, name = _strings(arguments, "address", "container", "name")
        core = self._server.router.core
        directory = core.addresses[address].subscriptions if address in core.addresses else None
        entries = directory.entries if directory is not None else {}
        entry = entries.get((container, name))
        if entry is None or directory is None:
            raise ControlError(_unknown("subscription", address, container, name, entries), 404)
        if entry.declared:
            raise ControlError(
                f"{address}: subscription {container}/{name} is declared in the topology file; remove it there"
            )
        report = directory.status_of(entry)
        if arguments.get("dry_run"):
            return report
        if entry.home not in (None, self._server.name):
            raise ControlError(
                f"{address}: subscription {container}/{name} is attached at router {entry.home}; "
                "drop it on the host of that router, or stop its client first"
            )
        if not directory.address.established:
            raise ControlError(f"router {self._server.name} is recovering; ask another one, or wait until it is ready")
        text = "{address}: the operator drops subscription {container}/{link}"
        self._server.log.warning("subscription_dropped", text, address=address, container=container, link=name)
        self._server.operate(lambda router: directory.drop(entry))
        return report

    async def forget_publisher(self, arguments: Mapping[str, Any]) -> Any:
        """The publisher `container`, `name` of `address`, which must be away, does not come back. With `dry_run` it
        says only what becomes of its deliveries (`PublisherDirectory.status_of`)."""
        address, container, name = _strings(arguments, "address", "container", "name")
        known = self._server.router.core.addresses.get(address)
        entries = known.publishers.named(container, name) if known is not None else []
        if known is None or not entries:
            attached = known.ingress.publishers.values() if known is not None else ()
            names = [(publisher.brought.container, publisher.brought.name) for publisher in attached]
            raise ControlError(_unknown("publisher", address, container, name, names), 404)
        publishers = known.publishers
        homes = [home for entry in entries if (home := publishers.attached_at(entry)) is not None]
        if homes:
            raise ControlError(
                f"{address}: publisher {container}/{name} is attached at router {homes[0]}; "
                f"stop its client, or close its link first: onceway admin link close {address} {container} {name}"
            )
        report = publishers.status_of(entries)
        if arguments.get("dry_run"):
            return report
        if not known.established:
            raise ControlError(f"router {self._server.name} is recovering; ask another one, or wait until it is ready")
        text = "{address}: the operator has publisher {container}/{link} forgotten"
        self._server.log.warning("publisher_forgotten", text, address=address, container=container, link=name)

        def forget(_: Router) -> None:
            for entry in entries:
                publishers.forget(entry)

        self._server.operate(forget)
        return report

    async def close_link(self, arguments: Mapping[str, Any]) -> Any:
        """Detaches the publishers and subscribers `container`, `name` of `address` here; their clients may come back.
        `closed` says how many they were."""
        address, container, name = _strings(arguments, "address", "container", "name")
        ports = [port for connection in self._server.router.connections for port in connection.ports]
        found = [port for port in ports if _names(port) == (address, container, name)]
        if not found:
            names = [_names(port)[1:] for port in ports if port.attach.address == address]
            raise ControlError(_unknown("link", address, container, name, names), 404)

        def close(router: Router) -> None:
            for port in found:
                port.connection.close_link(port, "closed by the operator", router.now)

        text = "{address}: the operator closes link {container}/{link}"
        self._server.log.info("link_closed_by_operator", text, address=address, container=container, link=name)
        self._server.operate(close)
        return {"closed": len(found)}

    async def close_connections(self, arguments: Mapping[str, Any]) -> Any:
        """Closes the connections of `container` here; their client may come back. `closed` says how many they were."""
        (container,) = _strings(arguments, "container")
        connections = list(self._server.router.connections)
        found = [connection for connection in connections if connection.container == container]
        if not found:
            known = sorted({connection.container for connection in connections})
            remedy = suggest(container, known, "connected are")
            raise ControlError(f'no connection of container "{container}"; {remedy}'.rstrip("; "), 404)

        def close(router: Router) -> None:
            for connection in found:
                connection.send_away("closed by the operator")

        self._server.log.info(
            "connection_closed_by_operator",
            "the operator closes {connections} connections",
            container=container,
            connections=len(found),
        )
        self._server.operate(close)
        return {"closed": len(found)}

    def _check_running(self) -> None:
        if self._server.stopping:
            raise ControlError(f"router {self._server.name} is stopping")


def _strings(arguments: Mapping[str, Any], *keys: str) -> list[str]:
    """The values of these arguments. ControlError if one is missing, or no string."""
    for key in keys:
        if not isinstance(arguments.get(key), str):
            raise ControlError(f"{key} is missing, or no string", 400)
    return [arguments[key] for key in keys]


def _names(port: PublisherLink | SubscriberLink) -> tuple[str, str, str]:
    return port.attach.address, port.attach.container, port.attach.name


def _unknown(what: str, address: str, container: str, name: str, known: Iterable[tuple[str, ...]]) -> str:
    remedy = suggest(f"{container}/{name}", sorted({"/".join(one) for one in known}), f"{what}s of {address} are")
    return f'{address}: no {what} "{container}/{name}"; {remedy}'.rstrip("; ")
