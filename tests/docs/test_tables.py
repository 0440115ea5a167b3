"""What of the documents is made from tables of the code is as the program writes it."""

from __future__ import annotations

from scripts.tables import ROOT, documents


def test_the_documents_are_as_the_program_writes_them() -> None:
    for path, text in documents():
        assert path.read_text() == text, f"{path.relative_to(ROOT)}: run python scripts/tables.py"
