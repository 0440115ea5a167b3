"""Draws the rows of a trace as a sequence diagram: one SVG file that needs nothing else.

A lifeline for each publisher, router and subscriber; an arrow where something is read, from where it was written
(level, with a number, where that is long ago). Faults are red; the lifelines of dead routers are broken.
"""

from __future__ import annotations

from html import escape

from chaos.simulation.world.trace import LATE, Row, Trace

LEFT, GAP, TOP, ROW = 110, 240, 92, 24
INK = {"message": "#1f5fa8", "frame": "#2f7d4f", "deed": "#444444", "link": "#777777", "fault": "#c22222"}
STYLE = """text{font:12px system-ui,'Segoe UI',Helvetica,Arial,sans-serif}
.halo{paint-order:stroke;stroke:#fff;stroke-width:4px;stroke-linejoin:round}
.name{font-weight:600;font-size:14px}.small{font-size:10px;fill:#888}"""
MOST = 700  # rows; of longer ones the beginning is left out
ROOM = 35  # characters of a label between two lifelines


def diagram(trace: Trace, title: str) -> str:
    names = trace.lifelines()
    x = {name: LEFT + GAP // 2 + GAP * i for i, name in enumerate(names)}
    first = max(0, len(trace.rows) - MOST)
    rows = trace.rows[first:]
    width = LEFT + GAP * max(len(names), 3) + 140
    height = TOP + ROW * (len(rows) + 2)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
        f"<style>{STYLE}</style><defs>",
        *(
            f'<marker id="{kind}" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
            f'<path d="M0 0L8 4L0 8z" fill="{INK[kind]}"/></marker>'
            for kind in ("message", "frame")
        ),
        f'</defs><rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text x="16" y="24" class="name">{escape(title)}</text>',
        f'<text x="16" y="44"><tspan fill="{INK["message"]}">between routers</tspan>  '
        f'<tspan fill="{INK["frame"]}" dx="12">client frames</tspan>  <tspan fill="{INK["deed"]}" dx="12">applications'
        f'</tspan>  <tspan fill="{INK["fault"]}" dx="12">faults</tspan></text>',
    ]
    for name in names:
        out += _lifeline(name, x[name], rows, height, name in trace.world.names)
    for i, row in enumerate(rows):
        out += _row(row, i, first, x, width)
    out.append("</svg>")
    return "\n".join(out) + "\n"


def _y(i: int) -> int:
    return TOP + ROW * (i + 1)


def _lifeline(name: str, x: int, rows: list[Row], height: int, router: bool) -> list[str]:
    fill = "#e8eef7" if router else "#eaf5ee"
    out = [
        f'<rect x="{x - 34}" y="56" width="68" height="26" rx="5" fill="{fill}" stroke="#8899aa"/>',
        f'<text x="{x}" y="74" text-anchor="middle" class="name">{escape(name)}</text>',
    ]
    start, alive = 82, True
    changes = [(i, r.text == "dies") for i, r in enumerate(rows) if r.kind == "fault" and r.source == name]
    for i, dies in [*changes, (len(rows), False)]:
        if dies == alive or i == len(rows):
            end = _y(i) if i < len(rows) else height - ROW
            line = "" if alive else ' stroke-dasharray="2 6"'
            out.append(f'<line x1="{x}" y1="{start}" x2="{x}" y2="{end}" stroke="#aab4c0" stroke-width="1.5"{line}/>')
            start, alive = end, not dies
    return out


def _row(row: Row, i: int, first: int, x: dict[str, int], width: int) -> list[str]:
    y = _y(i)
    out = [f'<text x="12" y="{y + 4}" class="small">{first + i}</text>']
    out.append(f'<text x="46" y="{y + 4}" class="small">{row.time:.4f} s</text>')
    if row.kind == "end":
        held = "held" in row.text
        colour, ground = ("#2f7d4f", "#eaf5ee") if held else ("#c22222", "#fdeaea")
        text = escape(row.text if len(row.text) <= width // 8 else row.text[: width // 8 - 3] + "...")
        out.append(f'<rect x="{LEFT - 6}" y="{y - 11}" width="{width - LEFT - 8}" height="22" fill="{ground}"/>')
        out.append(f'<text x="{LEFT}" y="{y + 4}" fill="{colour}" font-weight="600">{text}</text>')
    elif not row.source:
        out.append(f'<line x1="{LEFT}" y1="{y}" x2="{width - 20}" y2="{y}" stroke="#bbb" stroke-dasharray="6 4"/>')
        out.append(f'<text x="{LEFT + 8}" y="{y + 4}" class="halo" fill="#777">{escape(row.text)}</text>')
    elif row.source == row.sink:
        out += _mark(row, x[row.source], y)
    else:
        out += _arrow(row, i, first, x[row.source], x[row.sink], y)
    return out


def _mark(row: Row, x: int, y: int) -> list[str]:
    ink = INK[row.kind]
    if row.kind == "fault":
        shape = f'<path d="M{x - 6} {y - 6}L{x + 6} {y + 6}M{x + 6} {y - 6}L{x - 6} {y + 6}" stroke="{ink}" '
        shape += 'stroke-width="2.5"/>'
    else:
        shape = f'<circle cx="{x}" cy="{y}" r="4" fill="{ink if row.kind == "deed" else "#fff"}" stroke="{ink}"/>'
    weight = ' font-weight="600"' if row.kind == "fault" else ""
    label = f'<text x="{x + 11}" y="{y + 4}" class="halo" fill="{ink}"{weight}>{escape(row.text)}</text>'
    return [shape, label]


def _arrow(row: Row, i: int, first: int, start: int, end: int, y: int) -> list[str]:
    ink = INK[row.kind]
    ago = first + i - row.sent if row.sent is not None else 0
    top = y if ago > LATE or row.sent is None else _y(max(0, row.sent - first)) + 6
    room = ROOM * max(1, abs(end - start) // GAP)
    text = row.text if len(row.text) <= room else row.text[: room - 3] + "..."
    note = f' <tspan class="small">said after {row.sent}</tspan>' if ago > LATE else ""
    # The label stands beside the arrow's head, where its line is about level with its own row.
    side, anchor = (-12, "end") if end > start else (12, "start")
    whole = escape(str(row))
    return [
        f'<g><title>{whole}</title><line x1="{start}" y1="{min(top, y)}" x2="{end}" y2="{y}" stroke="{ink}" '
        f'stroke-width="1.4" marker-end="url(#{row.kind})"/>',
        f'<text x="{end + side}" y="{y - 5}" text-anchor="{anchor}" class="halo" fill="{ink}">{escape(text)}{note}'
        "</text></g>",
    ]
