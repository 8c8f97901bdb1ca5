"""The pages of the repository, the files they link to, and the place of both on the site.

A page below `docs` keeps its path without `docs/`, and every other page its path in the repository. A link
on the site is therefore the link in the repository, with both of its ends moved.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from .markdown import outside_code, with_lists

__all__ = ["ROOT", "added_files", "place_of", "repository_path", "rewritten"]

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("experiments/*.md", "CHANGELOG.md", "CONTRIBUTING.md")
FILES = "repository"
"""The folder of the site for files of the repository that are no pages."""
_LINK = re.compile(r"(\]\()([^)\s]+)(\))")


def place_of(path: str) -> str:
    """Where a file of the repository is on the site."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.endswith(".md") or path.startswith("experiments/"):
        return path
    return f"{FILES}/{path}"


def repository_path(place: str) -> str:
    """Where a page of the site is in the repository."""
    return place if any(Path(place).match(pattern) for pattern in PAGES) else f"docs/{place}"


def pages() -> list[str]:
    """The paths of all pages that are not below `docs`, where mkdocs finds them itself."""
    return sorted(str(path.relative_to(ROOT)) for pattern in PAGES for path in ROOT.glob(pattern))


def added_files() -> Iterator[tuple[str, Path | str]]:
    """What the site holds beside `docs`: each place, and the file or the text that belongs there."""
    linked = set()
    here = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").rglob("*.md"))]
    for page in [*here, *pages()]:
        linked |= {path for path, _ in _targets(page, (ROOT / page).read_text(encoding="utf-8"))}
    for page in pages():
        yield place_of(page), ROOT / page
    for path in sorted(linked):
        found = ROOT / path
        if found.is_dir():
            yield f"{place_of(path)}/index.md", _listing(found)
            yield from ((place_of(f"{path}/{each.name}"), each) for each in _files(found))
        elif found.is_file() and not path.startswith("docs/") and not path.endswith(".md"):
            yield place_of(path), found


def _files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.iterdir()) if path.is_file()]


def _listing(folder: Path) -> str:
    title = folder.relative_to(ROOT).as_posix()
    names = "\n".join(f"- [{path.name}]({path.name})" for path in _files(folder))
    return f"# {title}\n\nThe files of this folder of the repository:\n\n{names}\n"


def _targets(page: str, text: str) -> Iterator[tuple[str, str]]:
    """The repository paths that a page links to, each with the anchor."""
    for piece, is_prose in outside_code(text):
        if is_prose:
            for match in _LINK.finditer(piece):
                if found := _target(page, match.group(2)):
                    yield found


def _target(page: str, link: str) -> tuple[str, str] | None:
    """The path in the repository and the anchor of a relative link; None for any other link."""
    if link.startswith(("#", "http:", "https:", "mailto:")):
        return None
    path, hash_sign, anchor = link.partition("#")
    return os.path.normpath(posixpath.join(posixpath.dirname(page), path)), hash_sign + anchor


def rewritten(place: str, text: str) -> str:
    """The text of a page as the site wants it: links between the places of the site."""
    page = repository_path(place)

    def moved(match: re.Match[str]) -> str:
        found = _target(page, match.group(2))
        if found is None:
            return match.group(0)
        path, anchor = found
        goal = place_of(path)
        if (ROOT / path).is_dir():
            goal += "/index.md"
        link = posixpath.relpath(goal, posixpath.dirname(place) or ".")
        return f"{match.group(1)}{link}{anchor}{match.group(3)}"

    pieces = (_LINK.sub(moved, piece) if is_prose else piece for piece, is_prose in outside_code(text))
    return with_lists("".join(pieces))
