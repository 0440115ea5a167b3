"""The report's looks: one style sheet, light and dark by the reader's choice, nothing loaded from anywhere."""

STYLE = """
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --ink: #1b2430; --soft: #5c6878; --faint: #98a2b0; --rule: #e3e7ec; --grid: #edf0f3;
  --ok: #1a7f4b; --ok-tint: #e4f5ec; --violated: #c2293a; --violated-tint: #fdebec; --unknown: #9a6700;
  --unknown-tint: #fdf3da; --first: #2a6fdb; --second: #12866f; --third: #d9730d; --most: #b4bcc7;
  --kill: #d1344b; --stop: #e0a100; --cut: #8250df; --slow: #1b9aaa; --down: #f3ccd2;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #0f141b; --card: #171e27; --ink: #e4e9f0; --soft: #9daabb; --faint: #6c7989; --rule: #29323e;
    --grid: #212934; --ok: #4fca8b; --ok-tint: #12301f; --violated: #ff7b86; --violated-tint: #3a181d;
    --unknown: #e8b64c; --unknown-tint: #33280e; --first: #6ea4f8; --second: #4cc9ab; --third: #f0a152; --most: #4d5a6a;
    --kill: #ff6b7e; --stop: #f0c04a; --cut: #b48cff; --slow: #4fc4d3; --down: #4a2530;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
}
main { max-width: 1160px; margin: 0 auto; padding: 32px 20px 56px; }
h1 { font-size: 25px; line-height: 1.25; margin: 0; letter-spacing: -0.01em; }
h2 { font-size: 16px; margin: 0 0 12px; }
p { margin: 6px 0 0; }
.soft, .shows { color: var(--soft); }
.shows { max-width: 76ch; }
header { display: flex; gap: 24px; justify-content: space-between; align-items: flex-start; margin-bottom: 20px; }
.verdict {
  flex: none; font-size: 20px; font-weight: 650; padding: 7px 20px; border-radius: 999px;
  border: 1.5px solid currentColor;
}
.verdict.ok { color: var(--ok); background: var(--ok-tint); }
.verdict.violated { color: var(--violated); background: var(--violated-tint); }
.verdict.unknown { color: var(--unknown); background: var(--unknown-tint); }
section, .figures > div {
  background: var(--card); border: 1px solid var(--rule); border-radius: 12px;
}
section { padding: 18px 22px 20px; margin-top: 16px; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(158px, 1fr)); gap: 12px; }
.figures > div { padding: 11px 16px 12px; }
.figures b { display: block; font-size: 22px; font-weight: 620; line-height: 1.3; font-variant-numeric: tabular-nums; }
.figures b small { font-size: 14px; font-weight: 500; color: var(--soft); }
.figures span { color: var(--soft); font-size: 13px; }
.guarantees { display: grid; grid-template-columns: repeat(auto-fit, minmax(190px, 1fr)); gap: 10px; }
.guarantees > div { padding: 9px 13px 10px; border-radius: 9px; font-size: 13px; line-height: 1.4; }
.guarantees b { display: block; font-size: 14px; }
.guarantees .ok { background: var(--ok-tint); } .guarantees .ok b { color: var(--ok); }
.guarantees .violated { background: var(--violated-tint); } .guarantees .violated b { color: var(--violated); }
.guarantees .unknown { background: var(--unknown-tint); } .guarantees .unknown b { color: var(--unknown); }
ul.reasons { list-style: none; margin: 14px 0 0; padding: 0; }
ul.reasons li { display: grid; grid-template-columns: 150px 1fr; gap: 14px; padding: 7px 0;
  border-top: 1px solid var(--rule); }
ul.reasons b { font-weight: 600; }
ul.reasons .violated b { color: var(--violated); } ul.reasons .unknown b { color: var(--unknown); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: 14px; }
th {
  text-align: left; color: var(--soft); font-weight: 500; font-size: 12.5px; padding: 0 10px 6px;
  vertical-align: bottom;
  border-bottom: 1px solid var(--rule); white-space: nowrap;
}
td { padding: 5px 10px; border-bottom: 1px solid var(--grid); white-space: nowrap; }
td:first-child, th:first-child { padding-left: 0; } td:last-child, th:last-child { padding-right: 0; }
.n { text-align: right; }
tr.part td { color: var(--soft); font-size: 13px; } tr.part td:first-child { padding-left: 18px; }
td.zero, tr.part td.zero { color: var(--faint); } td.bad, tr.part td.bad { color: var(--violated); font-weight: 650; }
td.doubt { color: var(--unknown); font-weight: 650; }
tr:last-child td { border-bottom: 0; }
details { margin-top: 12px; } summary { cursor: pointer; color: var(--soft);
  } details[open] summary { margin-bottom: 8px; }
.dot { display: inline-block; width: 9px; height: 9px; border-radius: 2.5px; margin-right: 7px; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 20px; font-size: 13px; color: var(--soft); margin: 0 0 10px; }
.legend .gap { width: 12px; }
code, pre { font: 13px/1.55 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
pre {
  background: var(--page); border: 1px solid var(--rule); border-radius: 8px; padding: 10px 14px; margin: 0;
  overflow-x: auto;
}
svg { display: block; width: 100%; height: auto; min-width: 720px; }
svg text { font: 11.5px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; fill: var(--soft);
  font-variant-numeric: tabular-nums; }
svg .lane { fill: var(--ink); } svg .caption { font-size: 12.5px; font-weight: 600; fill: var(--ink); }
svg .grid { stroke: var(--grid); stroke-width: 1; }
svg .stroke { stroke-width: 1; }
svg .stroke.kill { stroke: var(--kill); } svg .stroke.stop { stroke: var(--stop); }
svg .stroke.cut { stroke: var(--cut); } svg .stroke.slow { stroke: var(--slow); }
svg .fault.kill { fill: var(--kill); } svg .fault.stop { fill: var(--stop); } svg .fault.cut { fill: var(--cut); }
svg .fault.slow { fill: var(--slow); } svg .fault.down { fill: var(--down); } svg .fault.lasting { opacity: 0.75; }
svg .series { fill: none; stroke-width: 1.5; stroke-linejoin: round; stroke-linecap: round; }
svg .series.first { stroke: var(--first); } svg .series.second { stroke: var(--second); }
svg .series.third { stroke: var(--third); } svg .series.most { stroke: var(--most); stroke-width: 1.25; }
svg .area.first { fill: var(--first); opacity: 0.13; }
footer { color: var(--faint); font-size: 12.5px; margin-top: 20px; }
@media (max-width: 640px) { header { flex-direction: column; } ul.reasons li { grid-template-columns: 1fr; gap: 0; } }
@media print { body { background: #fff; } section, .figures > div { break-inside: avoid; } }
"""
