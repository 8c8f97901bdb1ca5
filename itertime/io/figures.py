"""Figures for papers, by matplotlib, which is optional. Equal figures give equal files, byte for byte."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from itertime.errors import UserError

from .files import write_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ENDINGS = ("pdf", "svg", "png")
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6b6f76")
"""The palette of Okabe and Ito, which colour-blind readers can tell apart, without its black and yellow."""

WIDTHS = {"column": 3.4, "text": 7.0}
"""Widths in inches of a column and of the text of a page in the two-column formats of ACM and IEEE."""

_STYLE: dict[str, Any] = {
    "font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True,
    "axes.grid": True, "grid.color": "#e3e6ea", "grid.linewidth": 0.6, "legend.frameon": False,
    "pdf.fonttype": 42, "svg.fonttype": "none", "svg.hashsalt": "clustersim", "lines.linewidth": 1.6,
    "figure.constrained_layout.use": True, "text.usetex": False, "text.parse_math": False,
}  # fmt: skip
_UNDATED: dict[str, dict[str, Any]] = {
    "pdf": {"CreationDate": None, "Producer": None, "Creator": None},
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
}


@contextmanager
def figures() -> Iterator[Any]:
    """A context with matplotlib.pyplot in the project's style, without a screen. UserError if matplotlib is
    not installed.
    """
    try:
        import matplotlib as mpl
    except ImportError:
        raise UserError("plots need matplotlib; install it with: python -m pip install matplotlib") from None
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    style: Any = {**mpl.rcParamsDefault, **_STYLE, "backend": "Agg"}  # the user's matplotlibrc has no effect
    with mpl.rc_context(style):
        try:
            yield plt
        finally:
            plt.close("all")


def figure_size(width: str | float, aspect: float) -> tuple[float, float]:
    """Width and height of a figure in inches, where `width` is a name of `WIDTHS` or a number of inches.

    `aspect`: height over width of a figure as wide as a column; what is wider grows less in height. UserError
    for an unknown name, and for widths not between 1 and 40 inches.
    """
    try:
        inches = WIDTHS[width] if isinstance(width, str) and width in WIDTHS else float(width)
    except ValueError:
        inches = 0.0
    if not 1 <= inches <= 40:
        raise UserError(f"width={width}: must be {', '.join(WIDTHS)} or 1 to 40 inches")
    column = WIDTHS["column"]
    return inches, aspect * min(inches, column) + 0.35 * aspect * max(0.0, inches - column)


def check_ending(path: Path) -> str:
    """The format of a figure, from the ending of its name. UserError for an unknown format."""
    ending = path.suffix.removeprefix(".").lower()
    if ending not in ENDINGS:
        raise UserError(f"{path}: unknown kind of figure; let the name end in .{', .'.join(ENDINGS)}")
    return ending


def save(figure: Figure, path: Path) -> None:
    """Write a figure whole or not at all, without dates, so that equal figures give equal bytes."""
    ending, content = check_ending(path), io.BytesIO()
    figure.savefig(content, format=ending, dpi=200, metadata=_UNDATED[ending])
    write_bytes(path, content.getvalue())
