"""SVG of a run's timeline: faults in a lane per target, above deliveries a second and latency, on one axis of time.

Colours are CSS classes (report.css), so that the drawing follows the page into the dark.  No scripts; `<title>` is what
the pointer shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape

from chaos.live.timeline import Fault, Stretch, Timeline, nice_step

WIDTH, LEFT, RIGHT = 1080, 112, 14
LANE, PANEL, GAP = 18, 150, 34
MINUTES_FROM = 150.0
LANES = 14
"""Targets beyond these share one lane."""
KINDS = {"kill": "kill", "crash": "kill", "restart": "kill", "stop": "stop", "partition": "cut", "cut": "cut"}
"""Kind of fault -> its colour's class; all others are `slow`: they leave the connection."""
KINDS |= dict.fromkeys(("down", "reset", "reset_peer", "timeout", "close", "isolate", "limit_data", "limit"), "cut")
LEGEND = {"kill": "killed", "stop": "stopped", "cut": "cut", "slow": "slowed or disturbed", "down": "router gone"}


def kind_class(kind: str) -> str:
    return KINDS.get(kind, "slow")


def clock(seconds: float, of: float | None = None) -> str:
    """`of`: how long the whole is, so that all times of an axis look alike."""
    if (seconds if of is None else of) < MINUTES_FROM:
        return f"{seconds:g} s"
    hours, rest = divmod(round(seconds), 3600)
    minutes = f"{rest // 60}:{rest % 60:02d}"
    return f"{hours}:{minutes:0>5}" if hours else minutes


def clock_step(seconds: float) -> float:
    """For an axis of about ten ticks; quarters and halves of minutes and hours where it is long."""
    if seconds < MINUTES_FROM:
        return nice_step(seconds, 10)
    steps = (15, 30, 60, 120, 300, 600, 900, 1800, 3600)
    return next((step for step in steps if seconds / step <= 11), nice_step(seconds / 3600, 10) * 3600)


def duration(seconds: float) -> str:
    if seconds < 0.0095:
        return f"{seconds * 1000:.1f} ms"
    return f"{seconds * 1000:.0f} ms" if seconds < 0.9995 else f"{seconds:.2f} s"


def draw(timeline: Timeline) -> str:
    lanes = _lanes(timeline)
    faults_height = LANE * len(lanes)
    flow_top = 8 + faults_height + (GAP if lanes else 14)
    latency_top = flow_top + PANEL + GAP
    height = latency_top + PANEL + 24
    x = _scale(_begin(timeline), max(timeline.seconds, 1e-3), LEFT, WIDTH - RIGHT)
    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="Faults, deliveries and latency over time">']
    parts += _time_axis(timeline, x, 8, latency_top + PANEL)
    parts += _strokes(timeline.faults, x, flow_top, latency_top + PANEL)
    parts += _draw_lanes(timeline, lanes, x)
    parts += _flow(timeline, x, flow_top)
    parts += _latency(timeline, x, latency_top)
    return "\n".join([*parts, "</svg>"])


Scale = Callable[[float], float]


def _scale(low: float, high: float, start: float, end: float) -> Scale:
    return lambda value: start + (min(max(value, low), high) - low) / (high - low) * (end - start)


def _text(x: float, y: float, text: str, style: str = "", anchor: str = "end") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{style}">{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{style}"/>'


def _begin(timeline: Timeline) -> float:
    """The tick before anything happens: routers and clients take seconds to start, longer than a short run itself."""
    moving = (index for index, one in enumerate(timeline.stretches) if one.received or one.accepted)
    firsts = [index * timeline.step_s for index in moving][:1] + [fault.at for fault in timeline.faults]
    step = clock_step(timeline.seconds)
    return math.floor(min(firsts) / step) * step if firsts else 0.0


def _time_axis(timeline: Timeline, x: Scale, top: float, bottom: float) -> list[str]:
    step = clock_step(timeline.seconds)
    parts = []
    for index in range(round(_begin(timeline) / step), int(timeline.seconds / step + 1e-9) + 1):
        at = round(index * step, 9)
        parts.append(_line(x(at), top, x(at), bottom, "grid"))
        parts.append(_text(x(at), bottom + 18, clock(at, timeline.seconds), "tick", "middle"))
    return parts


def _strokes(faults: Sequence[Fault], x: Scale, top: float, bottom: float) -> list[str]:
    """Where faults struck, through all the panels: fainter the more there are."""
    opacity = min(0.5, max(0.1, 6 / max(1, len(faults))))
    return [
        f'<line x1="{x(fault.at):.1f}" y1="{top}" x2="{x(fault.at):.1f}" y2="{bottom}" '
        f'class="stroke {kind_class(fault.kind)}" opacity="{opacity:.2f}"/>'
        for fault in faults
    ]


def _lanes(timeline: Timeline) -> list[str]:
    targets = {f"router {router}" for router, _, _ in timeline.downs} if timeline.faults else set()
    names = sorted({fault.target for fault in timeline.faults} | targets, key=_lane_order)
    return names if len(names) <= LANES else [*names[: LANES - 1], f"{len(names) - LANES + 1} others"]


def _lane_order(target: str) -> tuple[int, str]:
    ranks = ("router", "trunk", "client", "link")
    word = target.split(" ", 1)[0]
    return ranks.index(word) if word in ranks else len(ranks), target


def _draw_lanes(timeline: Timeline, lanes: list[str], x: Scale) -> list[str]:
    parts = []
    rows = {name: 8 + LANE * index for index, name in enumerate(lanes)}
    for name, top in rows.items():
        parts.append(_text(LEFT - 8, top + 12.5, _shortened(name), "lane"))
        parts.append(_line(LEFT, top + LANE - 0.5, WIDTH - RIGHT, top + LANE - 0.5, "grid"))
    for router, gone, back in timeline.downs:
        if f"router {router}" in rows:
            top = rows[f"router {router}"]
            end = x(timeline.seconds if back is None else back)
            title = f"router {router} gone at {gone:.3f} s" + (f" for {duration(back - gone)}" if back else "")
            parts.append(_bar(x(gone), end, top + 5, LANE - 10, "down", title))
    for fault in timeline.faults:
        top = rows.get(fault.target, rows[lanes[-1]])
        title = f"{fault.kind} {fault.target} at {fault.at:.3f} s"
        start, style = x(fault.at), kind_class(fault.kind)
        if fault.until is not None and fault.until <= fault.at:
            parts.append(_bar(start - 1.25, start + 1.25, top + 2, LANE - 4, style, title))
        else:
            end = timeline.seconds if fault.until is None else fault.until
            title += f" for {duration(end - fault.at)}" + (", to the end" if fault.until is None else "")
            parts.append(_bar(start, max(x(end), start + 2.5), top + 3, LANE - 6, f"{style} lasting", title))
    return parts


def _shortened(name: str) -> str:
    return name if len(name) <= 17 else name[:16] + "…"


def _bar(start: float, end: float, top: float, height: float, style: str, title: str) -> str:
    width = max(end - start, 1)
    return (
        f'<rect x="{start:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height}" rx="1.25" class="fault {style}">'
        f"<title>{escape(title)}</title></rect>"
    )


def _panel(top: float, caption: str, ticks: Iterable[tuple[float, str]]) -> list[str]:
    parts = [_text(LEFT, top - 10, caption, "caption", "start")]
    for y, label in ticks:
        parts.append(_line(LEFT, y, WIDTH - RIGHT, y, "grid"))
        parts.append(_text(LEFT - 8, y + 4, label, "tick"))
    return parts


def _flow(timeline: Timeline, x: Scale, top: float) -> list[str]:
    step, stretches = timeline.step_s, timeline.stretches
    received = [one.received / step for one in stretches]
    accepted = [one.accepted / step for one in stretches]
    most = max(*received, *accepted, 1.0)
    usual = 2 * sorted(filter(None, received))[int(0.95 * (sum(map(bool, received)) - 1))] if any(received) else most
    peaks = f"; peaks up to {most:,.0f} are cut off" if most > 2 * usual else ""
    unit = nice_step(usual if peaks else most, 4)
    high = math.ceil((usual if peaks else most) / unit - 1e-9) * unit
    y = _scale(0.0, high, top + PANEL, top)
    ticks = [(y(index * unit), f"{index * unit:,.10g}") for index in range(round(high / unit) + 1)]
    parts = _panel(top, f"per second{peaks}", ticks)
    area = " ".join(
        f"{px:.1f},{py:.1f}"
        for index, value in enumerate(received)
        for px, py in ((x(index * step), y(value)), (x((index + 1) * step), y(value)))
    )
    end = x(len(received) * step)
    parts.append(f'<polygon points="{LEFT},{top + PANEL} {area} {end:.1f},{top + PANEL}" class="area first"/>')
    parts.append(f'<polyline points="{area}" class="series first"/>')
    middles = [(x((index + 0.5) * step), y(value)) for index, value in enumerate(accepted)]
    parts.append(_polyline(middles, "series second"))
    return parts


def _polyline(points: Iterable[tuple[float, float]], style: str) -> str:
    return f'<polyline points="{" ".join(f"{px:.1f},{py:.1f}" for px, py in points)}" class="{style}"/>'


def _latency(timeline: Timeline, x: Scale, top: float) -> list[str]:
    """On a logarithmic axis: a failover is a thousand times what is usual."""
    filled = [(index, one) for index, one in enumerate(timeline.stretches) if one.latencies.count]
    if not filled:
        return [
            *_panel(top, "latency: nothing was received", []),
            _line(LEFT, top + PANEL, WIDTH - RIGHT, top + PANEL, "grid"),
        ]
    lowest = min(one.latencies.percentile(50) for _, one in filled)
    low = math.floor(math.log10(max(lowest, 1e-5)))
    high = max(math.ceil(math.log10(max(timeline.latencies.most, 1e-5)) - 1e-9), low + 1)
    y = _scale(low, high, top + PANEL, top)
    parts = _panel(top, "latency", [(y(power), duration_tick(10.0**power)) for power in range(low, high + 1)])
    readings: dict[str, Callable[[Stretch], float]] = {
        "most": lambda one: one.latencies.most,
        "third": lambda one: one.latencies.percentile(99),
        "first": lambda one: one.latencies.percentile(50),
    }
    for style, read in readings.items():
        for run in _runs(filled):
            points = [(x((index + 0.5) * timeline.step_s), y(math.log10(max(read(one), 1e-5)))) for index, one in run]
            if len(points) == 1:
                points.append((points[0][0] + 1.5, points[0][1]))
            parts.append(_polyline(points, f"series {style}"))
    return parts


def _runs(filled: list[tuple[int, Stretch]]) -> list[list[tuple[int, Stretch]]]:
    """Neighbours together: where nothing arrived, nothing is drawn."""
    runs: list[list[tuple[int, Stretch]]] = []
    for index, one in filled:
        if runs and runs[-1][-1][0] == index - 1:
            runs[-1].append((index, one))
        else:
            runs.append([(index, one)])
    return runs


def duration_tick(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:g} s"
    return f"{seconds * 1e3:g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:g} µs"
