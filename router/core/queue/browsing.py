"""Browsers of one queue: links that see what waits and take nothing (protocol 16.11).

A message waits at its publisher's router. So a browser's router goes through all routers, one after the other, from
where it has come to there. No other router knows the browser.
"""

from __future__ import annotations

from itertools import count
from typing import Final

from router.core import messages as m
from router.core.ports import BrowserPort
from router.core.queue.distribution import QueueDistribution

MOST: Final = 64  # messages of one answer
MOST_BYTES: Final = 256 << 10  # but for the first message


class Browser:
    """One that is attached here."""

    __slots__ = ("asked", "cursors", "left", "number", "port")

    def __init__(self, port: BrowserPort, number: int) -> None:
        self.port = port
        self.number = number
        self.cursors: dict[str, int] = {}  # router -> up to where its records have been seen
        self.left: list[str] = []  # routers of this round, the present one first
        self.asked = False  # the first of them


class Browsing:
    """The browsers that are attached here, and what is shown to those of all routers."""

    def __init__(self, queue: QueueDistribution) -> None:
        self.queue = queue
        self.address = queue.address
        self.core = queue.core
        self.browsers: dict[BrowserPort, Browser] = {}
        self._numbers = count(1)

    def handlers(self) -> m.Handlers:
        return {m.Browse: self.on_browse, m.Browsed: self.on_browsed}

    def attach(self, port: BrowserPort) -> None:
        self.browsers[port] = Browser(port, next(self._numbers))

    def look(self, port: BrowserPort, *, again: bool) -> None:
        """There may be room for more. again: all routers are asked what has come since they were asked last."""
        browser = self.browsers[port]
        port.send_waiting()
        if again and not browser.left:
            browser.left = sorted(self.core.kinds.everybody(self.address.name))
        self.go_on(browser)

    def go_on(self, browser: Browser) -> None:
        """Asks the next router, if there is room for an answer."""
        while browser.left and not browser.asked:
            router, most = browser.left[0], min(browser.port.room(), MOST)
            if most <= 0:
                return
            if router not in self.core.kinds.everybody(self.address.name):
                del browser.left[0]
                continue
            browser.asked = True
            position = browser.cursors.get(router, 0)
            self.core.post.send_to(router, m.Browse(self.address.name, browser.number, position, most))
        if not browser.left:
            browser.port.seen_all()

    def on_browse(self, sender: str, message: m.Browse) -> None:
        """What is free here from that position on; of one message-format, as all are for the most part."""
        free, records = self.queue.free.positions, self.queue.records
        name, size, last = self.address.name, 0, True
        tags: list[bytes] = []
        payloads: list[bytes] = []
        position, message_format = message.position, 0
        found = (
            (at, run.message_format)
            for start, stop in free.overlap(message.position, records.log.end)
            for run, low, high in records.runs.pieces(start, stop)
            for at in range(run.start + low, run.start + high)
        )
        for at, form in found:
            payload = records.log.payloads(at, at + 1)[0] or b""
            if len(tags) == message.most or (tags and (form != message_format or size + len(payload) > MOST_BYTES)):
                last = False
                break
            message_format = form
            tags += records.log.tags(at, at + 1)
            payloads.append(payload)
            size += len(payload)
            position = at + 1
        answer = m.Browsed(name, message.number, position, last, message_format, tags, payloads)
        self.core.post.send_to(sender, answer)

    def on_browsed(self, sender: str, message: m.Browsed) -> None:
        for browser in list(self.browsers.values()):
            if browser.number == message.number and browser.asked and browser.left[0] == sender:
                browser.asked = False
                browser.cursors[sender] = message.position
                if message.last:
                    del browser.left[0]
                browser.port.show(message.tags, message.payloads, message.message_format)
                self.go_on(browser)

    def router_down(self, router: str) -> None:
        """Its positions mean nothing in another session."""
        for browser in list(self.browsers.values()):
            browser.cursors.pop(router, None)
            if browser.asked and browser.left[0] == router:
                browser.asked = False
                del browser.left[0]
                self.go_on(browser)
