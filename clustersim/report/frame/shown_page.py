"""A page that a notebook shows and a file holds."""

from __future__ import annotations

import html
from pathlib import Path

from itertime.io import write_text

__all__ = ["Page"]


class Page:
    """A report. Notebooks show it in a frame; `save` writes the page."""

    def __init__(self, text: str):
        self.text = text

    def save(self, path: str | Path) -> None:
        """Write the page, whole or not at all."""
        write_text(Path(path), self.text)

    def _repr_html_(self) -> str:
        style = "width: 100%; height: 800px; border: 1px solid #ccc"
        return f'<iframe title="Report" srcdoc="{html.escape(self.text)}" style="{style}"></iframe>'

    def __repr__(self) -> str:
        return f"<Page of {len(self.text) / 1e6:.1f} MB; .save(path) writes it>"
