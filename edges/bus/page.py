"""The page for browsers: topics, subscribers, queues and failures, as one document without scripts."""

from __future__ import annotations

import time
from collections.abc import Iterable
from html import escape
from typing import Final

from edges.bus.edge import Edge

_HEAD: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta http-equiv="refresh" content="5">
<title>Event bus</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 75em; color-scheme: light dark }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: .3em .8em .3em 0; border-bottom: 1px solid #8884 }
.number { text-align: right; font-variant-numeric: tabular-nums }
.bad { color: #d33; font-weight: 600 }
</style>
"""


async def page(edge: Edge) -> str:
    bus = edge.bus
    why = edge.why_unable()
    state = '<span id="state">works</span>' if why is None else f'<span id="state" class="bad">{escape(why)}</span>'
    topics = [
        (name, topic.name, bus.ends.get(name, 0) - topic.base, len(bus.readers(name)))
        for name, topic in sorted(bus.topics.items())
    ]
    now = time.time()
    subscribers = []
    for each in sorted(bus.subscribers.values(), key=lambda one: (one.name, one.identity)):
        queued = bus.pending(each)
        age = f"{max(0.0, now - await edge.oldest_s(each)):.0f} s" if queued else ""
        failing = f"{each.failures} in a row: {each.reason}" if each.failures else ""
        subscribers.append((each.name, each.callback, ", ".join(each.topics), each.sent, queued, age, failing))
    return (
        f"{_HEAD}<h1>Event bus: {state}</h1>\n<h2>Topics</h2>\n"
        + _table(("Topic", "Publisher", "Events", "Subscribers"), topics)
        + "<h2>Subscribers</h2>\n"
        + _table(("Subscriber", "Call-back", "Topics", "Sent", "Queued", "Oldest", "Failures"), subscribers)
    )


def _table(heads: Iterable[str], rows: Iterable[tuple[str | int, ...]]) -> str:
    lines = ["<table>", "<tr>" + "".join(f"<th>{head}" for head in heads)]
    for row in rows:
        *cells, last = row
        kind = ' class="bad"' if isinstance(last, str) else ' class="number"'
        lines.append("<tr>" + "".join(map(_cell, cells)) + f"<td{kind}>{escape(str(last))}")
    return "\n".join([*lines, "</table>\n"])


def _cell(value: str | int) -> str:
    return f'<td class="number">{value}' if isinstance(value, int) else f"<td>{escape(value)}"
