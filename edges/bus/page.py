"""The page for browsers: topics, subscribers, queues and failures, as one document without scripts.

It loads itself again every 5 s; `/?hold` does not. On a narrow screen each row becomes a block of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from edges.bus.edge import Edge

REFRESH: Final = '<meta http-equiv="refresh" content="5">\n'
_HEAD: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Event bus</title>
<style>
:root { color-scheme: light dark; --page: #f6f7f9; --card: #fff; --ink: #1b2430; --soft: #5c6878; --rule: #e3e7ec;
  --good: #1a7f4b; --bad: #c2293a; --link: #2a6fdb }
@media (prefers-color-scheme: dark) { :root { --page: #0f141b; --card: #171e27; --ink: #e4e9f0; --soft: #9daabb;
  --rule: #29323e; --good: #4fca8b; --bad: #ff7b86; --link: #6ea4f8 } }
* { box-sizing: border-box }
body { margin: 0 auto; padding: 1.5em 1.25em 3em; max-width: 76em; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; font-variant-numeric: tabular-nums }
header { display: flex; flex-wrap: wrap; gap: .3em 1em; align-items: baseline }
h1 { font-size: 1.6em; margin: 0 } h2 { font-size: 1.1em; margin: 0 0 .5em }
a { color: var(--link); margin-left: auto } :focus-visible { outline: 3px solid var(--link); outline-offset: 2px }
#state { font-weight: 600; padding: 0 .8em; border: 1.5px solid; border-radius: 1em; color: var(--good) }
td.bad, dd.bad { font-weight: 600 } td.bad, dd.bad, #state.bad { color: var(--bad) }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5em, 1fr)); gap: .8em; margin: 1em 0 }
.figures > div, section { background: var(--card); border: 1px solid var(--rule); border-radius: .7em;
  padding: .6em 1em }
dt { color: var(--soft); font-size: .87em } dd { font-size: 1.5em; margin: 0 }
section { padding: 1em; margin-top: 1em }
table { border-collapse: collapse; width: 100% }
th { color: var(--soft); font-weight: 500 }
th, td { text-align: left; padding: .35em 1.2em .35em 0; border-bottom: 1px solid var(--rule); vertical-align: top }
td { overflow-wrap: anywhere } td:first-child { font-weight: 600 }
td:first-child, td:last-child { overflow-wrap: normal }
tr:last-child > td { border-bottom: 0 } .number { text-align: right; white-space: nowrap }
@media (max-width: 50em) {
  table, tbody, tr, td { display: block } thead { display: none }
  tr { padding: .5em 0; border-bottom: 1px solid var(--rule) } tr:last-child { border: 0 }
  td, td.number { border: 0; padding: 0; text-align: left; display: grid; grid-template-columns: 7.5em 1fr }
  td::before { content: attr(data-is); color: var(--soft); font-weight: 400 } td:empty { display: none }
}
</style>
"""


async def page(edge: Edge, *, hold: bool = False) -> str:
    """The document; with `hold` it stays as it is."""
    bus = edge.bus
    why = edge.why_unable()
    state = '<span id="state">works</span>' if why is None else f'<span id="state" class="bad">{escape(why)}</span>'
    link = '<a href="/">Update every 5 s</a>' if hold else '<a href="/?hold">Stop updating</a>'
    topics = [
        (name, topic.name, bus.ends.get(name, 0) - topic.base, len(bus.readers(name)))
        for name, topic in sorted(bus.topics.items())
    ]
    now, waiting, oldest_s = time.time(), 0, 0.0
    subscribers = []
    for each in sorted(bus.subscribers.values(), key=lambda one: (not one.failures, one.name, one.identity)):
        queued = bus.pending(each)
        age_s = max(0.0, now - await edge.oldest_s(each)) if queued else 0.0
        waiting, oldest_s = waiting + queued, max(oldest_s, age_s)
        failing = f"{each.failures} in a row: {each.reason}" if each.failures else ""
        place = each.callback if bus.serves(each.identity) else f"{each.callback}, by another edge"
        shown = (each.name, failing, queued, _age(age_s) if queued else "", each.sent, place)
        subscribers.append((*shown, ", ".join(bus.topics_of(each))))
    failures = sum(1 for each in bus.subscribers.values() if each.failures)
    figures = (
        _figure("Topics", len(topics))
        + _figure("Subscribers", len(subscribers))
        + _figure("Events queued", f"{waiting:,}")
        + _figure("Oldest", _age(oldest_s) if waiting else "–")
        + _figure("Failing", failures, ' class="bad"' if failures else "")
    )
    return (
        f"{_HEAD}{'' if hold else REFRESH}<header><h1>Event bus</h1>{state}{link}</header>\n"
        f'<main>\n<dl class="figures">{figures}</dl>\n'
        + _table(
            "Subscribers", ("Subscriber", "Failures", "Queued", "Oldest", "Sent", "Call-back", "Topics"), subscribers
        )
        + _table("Topics", ("Topic", "Publisher", "Events", "Subscribers"), topics)
        + "</main>\n"
    )


def _age(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _figure(name: str, value: object, kind: str = "") -> str:
    return f"<div><dt>{name}<dd{kind}>{value}</div>"


def _table(title: str, heads: Sequence[str], rows: Sequence[Iterable[str | int]]) -> str:
    if not rows:
        return f"<section><h2>{title}</h2>None yet.</section>\n"
    kinds = [_kind(head, isinstance(value, int)) for head, value in zip(heads, rows[0], strict=True)]
    header = "".join(f"<th{kind}>{head}" for head, kind in zip(heads, kinds, strict=True))
    lines = [f"<section><h2>{title}</h2>\n<table>\n<thead><tr>{header}\n<tbody>"]
    for row in rows:
        cells = [f"{value:,}" if isinstance(value, int) else escape(value) for value in row]
        line = (f'<td{kind} data-is="{head}">{cell}' for head, kind, cell in zip(heads, kinds, cells, strict=True))
        lines.append("<tr>" + "".join(line))
    return "\n".join([*lines, "</table></section>\n"])


def _kind(head: str, number: bool) -> str:
    """The attribute of a cell."""
    return ' class="number"' if number else ' class="bad"' if head == "Failures" else ""
