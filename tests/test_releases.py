"""The trees of former releases come from the history, and where there is none, that is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.releases import RELEASES, NoHistory, extract, release


@pytest.mark.parametrize("name", RELEASES)
def test_a_release_is_its_whole_tree(name: str, tmp_path: Path) -> None:
    tree = release(name, tmp_path / name)
    assert (tree / "onceway" / "__main__.py").is_file()
    assert (tree / "docs" / "wire-routers.md").is_file()


def test_where_there_is_no_history_the_remedy_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoHistory, match=r"not a git repository.*git fetch --unshallow"):
        extract("v0.9.0", tmp_path / "tree", tmp_path)
