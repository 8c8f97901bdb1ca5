"""What mkdocs calls while it builds the site."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from docs.website.pages import added_files, rewritten
from docs.website.reference import REFERENCE, generated

_generated: dict[str, str] = {}


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of the repository outside `docs`, the files that pages link to, and the reference."""
    _generated.update(generated())
    for place, text in _generated.items():
        files.append(File.generated(config, place, content=text))
    for place, source in added_files():
        if files.get_file_from_path(place) is None:
            content = {"content": source} if isinstance(source, str) else {"abs_src_path": str(source)}
            files.append(File.generated(config, place, **content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Point links to the places of the site. The reference is written for the site, and has them already."""
    place = page.file.src_uri
    return markdown if place in REFERENCE or place.endswith("/index.md") else rewritten(place, markdown)
