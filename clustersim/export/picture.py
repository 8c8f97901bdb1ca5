"""Figures for notebooks: shown where they are the value of a cell, and written on demand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clustersim.records import Run
from itertime.errors import UnknownName
from itertime.io.figures import figures, save

from .run_figures import KINDS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Picture", "drawn", "picture"]


class Picture:
    """A figure. Notebooks show it; `save` writes it as .pdf, .svg or .png; `figure` is matplotlib's."""

    def __init__(self, figure: Figure, png: bytes):
        self.figure, self._png = figure, png

    def save(self, path: str | Path) -> None:
        """Write the figure, in the format of the path's ending. UserError for an unknown one."""
        with figures():
            save(self.figure, Path(path))

    def _repr_png_(self) -> bytes:
        return self._png

    def __repr__(self) -> str:
        width, height = self.figure.get_size_inches()
        return f"<Picture of {width:g} x {height:g} inches; .save(path) writes it>"


def picture(runs: Sequence[Run], kind: str, width: str | float | None = None) -> Picture:
    """A figure of runs by its name in `KINDS`, in its usual width unless one is stated (`figure_size`).

    UnknownName, UserError without matplotlib.
    """
    if kind not in KINDS:
        raise UnknownName("kind of plot", kind, list(KINDS))
    settings = {} if width is None else {"width": width}
    return drawn(lambda plt: KINDS[kind](plt, runs, **settings))


def drawn(draw: Callable[[Any], Figure]) -> Picture:
    """The figure that `draw` makes with matplotlib's pyplot."""
    with figures() as plt:
        figure, content = draw(plt), BytesIO()
        figure.savefig(content, format="png", dpi=150)
    return Picture(figure, content.getvalue())
