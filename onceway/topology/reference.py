"""The tables of docs/topology.md and the JSON Schema of topology files, made from the rows.

`scripts/tables.py` writes both into docs/, and `onceway schema` prints the schema.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from onceway.topology.sections import TOP
from onceway.topology.table import Row, Section
from router.json_text import write_json

SCHEMA: Final = "topology.schema.json"
"""The name of the schema beside docs/topology.md."""


def by_title() -> dict[str, Section]:
    """Returns every section of a file by its title."""
    found: dict[str, Section] = {}
    for _, part in TOP.parts():
        if isinstance(part, Section):
            found.setdefault(part.title, part)
    return found


def table(section: Section) -> Iterator[str]:
    """Yields the lines of the section as a table in Markdown."""
    yield "| key | default | meaning | takes effect |"
    yield "| --- | --- | --- | --- |"
    for row in section.rows:
        yield f"| `{row.key}` | {_default(section, row)} | {row.described} | {row.when.words} |"


def _default(section: Section, row: Row) -> str:
    if row.required or row.default:
        return "required" if row.required else row.default
    value = section.default(row)
    return "" if value is None or value in ((), "", {}) else row.form.show(value)


def schema() -> dict[str, Any]:
    """Returns the JSON Schema of topology files. What fits together across keys is `onceway check`'s to say."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Topology file of Onceway"}
    return {**head, **TOP.schema()}


def schema_text() -> str:
    return write_json(schema(), indent=1, ascii_only=False) + "\n"
