"""A batch's manifest: which staged files count, and the number of each of their messages.

The document lists topics with the number of their first message, and files with the runs of each (`staging`); numbers
go on from file to file, and from run to run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from onceway.spark.staging import Run, StagedFile

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Manifest:
    """One decided batch."""

    name: str
    files: tuple[StagedFile, ...]
    firsts: dict[str, int]  # topic -> number of its first message

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    def runs(self, directory: Path) -> dict[str, list[Run]]:
        """By topic, in the order of partitions and rows."""
        found: dict[str, list[Run]] = {}
        following = dict(self.firsts)
        for file in self.files:
            for index, (topic, rows) in enumerate(file.runs):
                found.setdefault(topic, []).append(Run(following[topic], rows, directory / file.name, index))
                following[topic] += rows
        return found

    def ends(self) -> dict[str, int]:
        ends = dict(self.firsts)
        for file in self.files:
            for topic, rows in file.runs:
                ends[topic] += rows
        return ends

    def document(self, outbox: str) -> dict[str, Any]:
        """outbox: the uuid of the one that it belongs to."""
        topics = list(self.firsts)
        following = dict(self.firsts)
        files = []
        for file in self.files:
            firsts = {topic: following[topic] for topic, _ in file.runs}
            for topic, rows in file.runs:
                following[topic] += rows
            runs = [[topics.index(topic), rows] for topic, rows in file.runs]
            files.append({"name": file.name, "size": file.size, "rows": file.rows, "first": firsts, "runs": runs})
        return {
            "version": VERSION,
            "outbox": outbox,
            "batch": self.name,
            "topics": [{"topic": topic, "first": self.firsts[topic]} for topic in topics],
            "files": files,
        }

    @classmethod
    def of(cls, name: str, document: Mapping[str, Any]) -> Manifest:
        topics = [entry["topic"] for entry in document["topics"]]
        files = tuple(
            StagedFile(file["name"], file["size"], tuple((topics[index], rows) for index, rows in file["runs"]))
            for file in document["files"]
        )
        return cls(name, files, {entry["topic"]: entry["first"] for entry in document["topics"]})
