"""The tables of docs/topology.md and the JSON Schema of topology files, made from the rows.

`python -m onceway.topology.reference docs/topology.md` writes both: each table between its marks in the page,
`<!-- table: settings -->` and `<!-- end -->`, and the schema beside the page. Tests compare them.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any, Final

from onceway.topology.sections import TOP
from onceway.topology.table import Row, Section, sections_of

SCHEMA: Final = "topology.schema.json"
"""The name of the schema beside docs/topology.md."""
MARKED: Final = re.compile(r"(<!-- table: ([a-z ]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def by_title() -> dict[str, Section]:
    """Returns every section of a file by its title."""
    found: dict[str, Section] = {}
    for each in sections_of(TOP):
        found.setdefault(each.title, each)
    return found


def table(section: Section) -> str:
    """Returns the section as a table in Markdown."""
    lines = ["| key | default | meaning | takes effect |", "| --- | --- | --- | --- |"]
    for row in section.rows:
        lines.append(f"| `{row.key}` | {_default(section, row)} | {row.help} | {row.when.words} |")
    return "".join(f"{line}\n" for line in lines)


def _default(section: Section, row: Row) -> str:
    if row.required or row.default:
        return "required" if row.required else row.default
    value = section.default(row)
    return "" if value is None or value in ((), "", {}) else row.form.show(value)


def page(text: str) -> str:
    """Returns the page with its tables as the rows say them. KeyError if it names a section that there is not."""
    sections = by_title()
    return MARKED.sub(lambda match: f"{match[1]}\n{table(sections[match[2]])}\n{match[4]}", text)


def schema() -> dict[str, Any]:
    """Returns the JSON Schema of topology files. What fits together across keys is `onceway check`'s to say."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Topology file of Onceway"}
    return {**head, **TOP.schema()}


def schema_text() -> str:
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


def write(path: Path) -> None:
    path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")
    (path.parent / SCHEMA).write_text(schema_text(), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
