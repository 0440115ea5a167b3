"""Writes the table of listeners into docs/security.md, from `onceway.topology.listeners`.

`python scripts/listener_table.py`. With --check nothing is written, and the exit code is 1 if the page differs.
"""

from __future__ import annotations

import sys
from pathlib import Path

from onceway.topology.listeners import LISTENERS, Listener

PAGE = Path(__file__).resolve().parent.parent / "docs" / "security.md"
BEGIN, END = "<!-- listeners: python scripts/listener_table.py -->\n", "<!-- end -->\n"


def table() -> str:
    """The rows, as Markdown."""
    head = ("listener", "usual port", "speaks", "TLS", "who must reach it", "since")
    rows = [(f"`{row.key}`", str(row.port), row.name, tls(row), row.reach, row.since) for row in LISTENERS]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, ["---"] * len(head), *rows))


def tls(row: Listener) -> str:
    return "never" if not row.tls else f"always, `{row.tls}`" if row.secure else f"where `{row.tls}` has a profile"


def main() -> int:
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    new = f"{before}{BEGIN}{table()}{END}{after}"
    if "--check" in sys.argv:
        return int(new != text)
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
