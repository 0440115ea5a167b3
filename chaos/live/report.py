"""One HTML file about a run: the verdict, faults against deliveries and latency, recovery, a table per subscriber.

    onceway chaos report DIRECTORY [--out FILE]    the same exit codes as the judge's

Everything comes from the history; the file needs no network, no script and nothing beside it.  timeline.py counts,
drawing.py draws, report.css dresses.
"""

from __future__ import annotations

import math
import shlex
import statistics
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from chaos.judge.history import read
from chaos.judge.judge import judge
from chaos.judge.recovery import Recovery, recoveries
from chaos.judge.verdict import Judgement, PairTally, Some, Verdict
from chaos.live.drawing import LEGEND, clock, draw, duration, kind_class
from chaos.live.schedule_files import find
from chaos.live.timeline import AFTERWARDS_S, Fault, Timeline, Watch, Watcher

NAME = "report.html"
STYLE = Path(__file__).with_name("report.css")  # light and dark by the reader's choice
SHOWN = 12
"""Faults beyond these are folded away."""
GUARANTEES = {
    "G1": "What was accepted, every subscriber accepted",
    "G2": "Nothing was handed twice as new",
    "G3": "Each publisher's messages came in order",
    "G4": "Everything drained after the faults",
    "G5": "Nothing was missed silently",
}


def write_report(directory: str | Path, out: str | Path | None = None, judgement: Judgement | None = None) -> Path:
    """The file's path, report.html in the directory unless told otherwise.  HistoryError as the judge's."""
    directory = Path(directory)
    judgement = judgement or judge(directory)
    watcher = Watcher(judgement.facts.seconds)
    recovered = recoveries(watcher.watch(read(directory)))
    path = Path(out) if out is not None else directory / NAME
    path.write_text(page(directory, judgement, watcher.timeline, recovered), encoding="utf-8")
    return path


def page(directory: Path, judgement: Judgement, found: Timeline, recovered: Sequence[Recovery]) -> str:
    run = judgement.facts.run or {}
    title = f"{run.get('schedule', directory.name)}: {judgement.verdict}"
    parts = [
        "<!doctype html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<style>{STYLE.read_text()}</style></head><body><main>",
        _header(directory, judgement, run),
        _figures(judgement, found, recovered),
        _verdict(judgement),
        _timeline(found),
        _recovery(recovered),
        _subscribers(judgement, found),
        _publishers(judgement),
        _faults(found),
        _rerun(directory, run),
        "<footer>Written by <code>onceway chaos report</code> from the history alone.</footer>",
        "</main></body></html>",
    ]
    return "\n".join(filter(None, parts)) + "\n"


def _header(directory: Path, judgement: Judgement, run: Mapping[str, Any]) -> str:
    facts = [f"{key} {run[key]}" for key in ("seed", "commit") if run.get(key) not in (None, "")]
    topology = run.get("topology")
    if isinstance(topology, Mapping):
        facts.append(f"routers {', '.join(map(str, topology.get('routers', ())))}")
    elif topology:
        facts.append(f"topology {topology}")
    shows = f'<p class="shows">{escape(str(run["shows"]))}</p>' if run.get("shows") else ""
    return (
        f"<header><div><h1>{escape(str(run.get('schedule', directory.name)))}</h1>{shows}"
        f'<p class="soft">{escape(" · ".join(facts))}</p></div>'
        f'<div class="verdict {judgement.verdict}">{judgement.verdict}</div></header>'
    )


def _figures(judgement: Judgement, found: Timeline, recovered: Sequence[Recovery]) -> str:
    ours = [one.delivered_s for one in recovered]
    latencies = found.latencies
    cards = [
        (f"{sum(one.accepted for one in judgement.publishers):,}", "messages accepted"),
        (f"{sum(one.received for one in judgement.pairs):,}", "deliveries"),
        (f"{judgement.facts.faults:,} <small>in {clock(round(judgement.facts.seconds, 1))}</small>", "faults"),
    ]
    if latencies.count:
        cards.append((duration(latencies.percentile(50)), "median latency"))
        cards.append((duration(latencies.percentile(99)), "99th percentile"))
    if ours:
        cards.append((duration(statistics.median(ours)), "median recovery"))
    inside = "".join(f"<div><b>{value}</b><span>{name}</span></div>" for value, name in cards)
    return f'<div class="figures">{inside}</div>'


def _verdict(judgement: Judgement) -> str:
    broken = {name for one in judgement.findings for name in one.guarantee.split()}
    chips = []
    for name, meaning in GUARANTEES.items():
        state, word = ("ok", "held")
        if name in broken:
            state, word = ("violated", "violated")
        elif judgement.verdict is Verdict.UNKNOWN:
            state, word = ("unknown", "not decided")
        chips.append(f'<div class="{state}"><b>{name} {word}</b>{meaning}</div>')
    reasons = "".join(
        f'<li class="{one.verdict}"><b>{one.guarantee} {one.kind}</b><span>{escape(one.text)}</span></li>'
        for one in judgement.findings
    )
    listed = f'<ul class="reasons">{reasons}</ul>' if reasons else ""
    return f'<section><h2>Guarantees</h2><div class="guarantees">{"".join(chips)}</div>{listed}</section>'


def _timeline(found: Timeline) -> str:
    kinds = {kind_class(fault.kind) for fault in found.faults} | ({"down"} if found.downs and found.faults else set())
    legend = [(f"var(--{kind})", text) for kind, text in LEGEND.items() if kind in kinds]
    legend += [("", "")] if legend else []
    legend += [
        ("var(--first)", "deliveries; median latency"),
        ("var(--second)", "accepted"),
        ("var(--third)", "99th percentile"),
        ("var(--most)", "highest"),
    ]
    dots = "".join(
        f'<span><i class="dot" style="background:{colour}"></i>{text}</span>' if text else '<span class="gap"></span>'
        for colour, text in legend
    )
    return (
        f'<section><h2>Faults, deliveries and latency</h2><p class="legend">{dots}</p>'
        f'<div class="wide">{draw(found)}</div></section>'
    )


def _table(head: Sequence[str], rows: Iterable[str]) -> str:
    """A head that begins with `>` stands over numbers."""
    cells = "".join(f'<th class="n">{one[1:]}</th>' if one.startswith(">") else f"<th>{one}</th>" for one in head)
    return f'<div class="wide"><table><thead><tr>{cells}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def _row(*cells: str, style: str = "") -> str:
    """A cell is text, or a whole <td>."""
    inside = "".join(cell if cell.startswith("<td") else f"<td>{cell}</td>" for cell in cells)
    return f'<tr class="{style}">{inside}</tr>' if style else f"<tr>{inside}</tr>"


def _n(value: int | str, style: str = "") -> str:
    shown = f"{value:,}" if isinstance(value, int) else value
    return f'<td class="{f"n {style}".strip()}">{shown}</td>'


def _s(value: float | None) -> str:
    return _n("–", "zero") if not value else _n(duration(value))


def _count(value: int, style: str) -> str:
    return _n(value, style if value else "zero")


def _recovery(recovered: Sequence[Recovery]) -> str:
    if not recovered:
        return ""
    groups: dict[tuple[str, str], list[Recovery]] = {}
    for one in recovered:
        groups.setdefault((one.library, one.role), []).append(one)
    rows = []
    for (library, role), ones in sorted(groups.items()):
        times = sorted(one.delivered_s for one in ones)
        rows.append(
            _row(
                escape(library),
                "publishers" if role == "p" else "subscribers",
                _n(len(times)),
                _s(statistics.median(one.attached_s for one in ones)),
                _s(statistics.median(times)),
                _s(times[math.ceil(0.9 * len(times)) - 1]),
                _s(times[-1]),
            )
        )
    head = ["client", "role", ">kills", ">attached, median", ">first delivery, median", ">90 % within", ">longest"]
    text = "From the kill of a client's router to its first delivery, or outcome, at the router that it went to."
    return f'<section><h2>Recovery from kills</h2>{_table(head, rows)}<p class="soft">{text}</p></section>'


def _subscribers(judgement: Judgement, found: Timeline) -> str:
    rows = []
    for tally in judgement.subscribers:
        client = judgement.clients.get(f"s:{tally.name}")
        watch = found.subscribers.get(tally.name) or Watch()
        pairs = [one for one in judgement.pairs if one.subscriber == tally.name]
        repeats = client is not None and (client.guarantee == "at-least-once" or not client.deduplicates)
        rows.append(
            _row(
                f"<b>{escape(tally.name)}</b>",
                escape(f"{client.client}, {client.guarantee}" if client else "not declared"),
                *_tallied(pairs, repeats),
                _s(watch.latencies.percentile(50)),
                _s(watch.latencies.percentile(99)),
                _s(watch.latencies.most),
                _s(watch.pause_s),
            )
        )
        if len(pairs) > 1:
            blank = "<td></td>" * 4
            rows += [
                _row(f"from {escape(one.publisher)}", "", *_tallied([one], repeats), blank, style="part")
                for one in pairs
            ]
    head = [
        "subscriber", "client", ">due", ">received", ">lost", ">early", ">twice", ">reordered", ">told of",
        ">median", ">99 %", ">highest", ">pause",
    ]  # fmt: skip
    text = (
        "Lost: accepted, never handed over. Early: told accepted, never accepted here. Told of: missed, and "
        "the client rightly said so. Times are latencies, and the longest time without a delivery."
    )
    return f'<section><h2>Subscribers</h2>{_table(head, rows)}<p class="soft">{text}</p></section>'


def _tallied(pairs: Sequence[PairTally], repeats: bool) -> list[str]:
    def total(*kinds: str) -> int:
        counts: list[Some] = [getattr(one, kind) for one in pairs for kind in kinds]
        return sum(one.count for one in counts)

    return [
        _n(sum(one.due for one in pairs)),
        _n(sum(one.received for one in pairs)),
        _count(total("lost", "silent"), "bad"),
        _count(total("early"), "bad"),
        _count(total("duplicated", "phantom"), "" if repeats else "bad"),
        _count(total("reordered"), "bad"),
        _count(total("excused"), ""),
    ]


def _publishers(judgement: Judgement) -> str:
    rows = []
    for tally in judgement.publishers:
        client = judgement.clients.get(f"p:{tally.name}")
        rows.append(
            _row(
                f"<b>{escape(tally.name)}</b>",
                escape(f"{client.client}, {client.guarantee}" if client else "not declared"),
                _n(tally.sent),
                _n(tally.accepted),
                _count(tally.unresolved.count, "doubt"),
                _count(tally.told, ""),
            )
        )
    head = ["publisher", "client", ">sent", ">accepted", ">without outcome", ">told of a gap"]
    return f"<section><h2>Publishers</h2>{_table(head, rows)}</section>"


def _faults(found: Timeline) -> str:
    if not found.faults:
        return ""
    rows = [_fault_row(index, fault) for index, fault in enumerate(found.faults, 1)]
    head = ["", "fault", "target", ">at", ">lasted", "next delivery", "longest pause"]
    table = _table(head, rows[:SHOWN])
    if len(rows) > SHOWN:
        more = _table(head, rows[SHOWN:])
        table += f"<details><summary>{len(rows) - SHOWN:,} more</summary>{more}</details>"
    text = (
        "Next delivery: from the fault to the first one afterwards, of a killed router's own subscribers to the first "
        f"one at the next router. Longest pause: until the fault was over for {AFTERWARDS_S:g} s, or the next one came."
    )
    return f'<section><h2>Faults</h2>{table}<p class="soft">{text}</p></section>'


def _fault_row(index: int, fault: Fault) -> str:
    lasted = (
        "to the end" if fault.until is None else duration(fault.until - fault.at) if fault.until > fault.at else "–"
    )
    return _row(
        f'<td class="n zero">{index}</td>',
        f'<i class="dot" style="background:var(--{kind_class(fault.kind)})"></i>{escape(fault.kind)}',
        escape(fault.target),
        _n(f"{fault.at:.3f} s"),
        _n(lasted, "zero" if lasted == "–" else ""),
        escape(times_text(fault.recovered, none=fault.waiting)),
        escape(times_text({name: pause for name, pause in fault.pauses.items() if pause})),
    )


def times_text(times: Mapping[str, float], none: Iterable[str] = ()) -> str:
    """`s1 3 ms, s0 1.20 s; s2 none`: the slowest last; many are summed up."""
    ordered = sorted(times.items(), key=lambda one: (one[1], one[0]))
    if len(ordered) > 4:
        text = f"median {duration(statistics.median(times.values()))}, {ordered[-1][0]} {duration(ordered[-1][1])}"
    else:
        text = ", ".join(f"{name} {duration(time)}" for name, time in ordered)
    missing = ", ".join(sorted(none))
    return "; ".join(filter(None, [text, f"{missing} none" if missing else ""])) or "–"


def _rerun(directory: Path, run: Mapping[str, Any]) -> str:
    lines = []
    if "schedule" in run and "seed" in run:
        lines.append(f"onceway chaos run {_schedule(directory, str(run['schedule']))} --seed {run['seed']}")
    lines.append(f"onceway chaos judge {shlex.quote(str(directory))}")
    return f"<section><h2>Again</h2><pre>{escape(chr(10).join(lines))}</pre></section>"


def _schedule(directory: Path, name: str) -> str:
    """Its name, where the library has it as it was run; else the run's own copy."""
    copy, shipped = directory / "schedule.yaml", find(name)
    if copy.exists() and not (shipped.is_file() and shipped.read_bytes() == copy.read_bytes()):
        return shlex.quote(str(copy))
    return name
