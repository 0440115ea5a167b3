"""Pages of the documentation site that live elsewhere in the repository: mkdocs calls these hooks (mkdocs.yml).

The README, the changelog and others stay where people look for them; the site shows them as pages of its own. Links
between them and docs/ are written for readers of the repository, and turned here into links of the site.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
    "bench/README.md": "measurements.md",
    "examples/README.md": "examples.md",
}
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s:]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for source, page in PAGES.items():
        if (ROOT / source).exists():
            text = (ROOT / source).read_text(encoding="utf-8")
            files.append(File.generated(config, page, content=_relinked(text, source, page, files)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    if page.file.src_uri in PAGES.values():
        return markdown
    return _relinked(markdown, f"docs/{page.file.src_uri}", page.file.src_uri, files)


def _relinked(text: str, source: str, page: str, files: Files) -> str:
    """Links from `source` as links from `page`; only the text of those that lead to what is no page of the site."""

    def relink(match: re.Match[str]) -> str:
        image, words, target = match.groups()
        path, _, anchor = target.partition("#")
        if not path:
            return match.group(0)
        in_repository = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        shown = PAGES.get(in_repository) or in_repository.removeprefix("docs/")
        on_site = in_repository in PAGES or (in_repository.startswith("docs/") and (ROOT / in_repository).exists())
        if not on_site:
            return match.group(0) if not (ROOT / in_repository).exists() else words  # mkdocs tells of dead links
        link = posixpath.relpath(shown, posixpath.dirname(page) or ".")
        return f"{image}[{words}]({link}{'#' + anchor if anchor else ''})"

    return LINK.sub(relink, text)
