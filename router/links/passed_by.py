"""Messages that subscriptions have not got because their filters could not be asked about them."""

from __future__ import annotations

from typing import Any

from amqp10.errors import RESOURCE_LIMIT_EXCEEDED
from router.border import TOLD
from router.links.limits import FILTERS, Admission
from router.reporting import Log


class PassedBy:
    __slots__ = ("_admission", "_log", "too_dear", "unread")

    def __init__(self, admission: Admission, log: Log) -> None:
        self._admission = admission
        self._log = log
        self.too_dear: dict[Any, str] = {}  # links whose filters take too many steps, and what is said of it
        self.unread = 0  # messages that were passed by

    def note(self, port: Any, why: str, own: bool) -> None:
        """own: the filters are at fault, and the subscription is told; else the message is, and only the log and a
        metric say so."""
        self.unread += 1
        if own:
            self._admission.count_refusal(FILTERS)
            self.too_dear[port] = why
        if self.unread <= TOLD:
            text = "{address}: a message passes {container}/{link} by, unread by its filters: {description}"
            attach = port.attach
            said = {"address": attach.address, "container": attach.container, "link": attach.name, "description": why}
            self._log.warning("filter_failed", text, **said)

    def end_links(self, now: float) -> None:
        dear, self.too_dear = self.too_dear, {}
        for port, why in dear.items():
            if not port.detached:
                port.connection.end_link(port, RESOURCE_LIMIT_EXCEEDED, f"limit filters: {why}", now)
