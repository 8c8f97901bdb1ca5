"""Computes the shipped table of sample lengths of MLPerf's Wikipedia data from the histogram of the data set;
run it with `--help` for its usage.

The table has classes of lengths of about equal probability, with the mean length and the share of each. A
length that alone has the probability of a class or more, here 512, is a class of its own, so its share is
exact. Lengths within a class have shares that are linear in the length (`itertime.spec.lengths`), which keeps
the mean and nearly the mean square.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from itertime.commandline import run_task
from itertime.io import write_text
from itertime.spec import Lengths, load_lengths
from itertime.spec.lengths import LENGTHS

from .arguments import program_parser

__all__ = ["CLASSES", "class_table", "main"]

PROGRAM = "python -m experiments.evidence.build_lengths"
EXAMPLE = f"""\
Example, which rewrites the shipped table:

    {PROGRAM} ../shared/data/mlperf/wikipedia_length_histogram_512.csv
"""
CLASSES = 64
"""Classes that the shipped table would have if no length were a class of its own."""
HEAD = (
    "# Classes of sample lengths of about equal probability: first and last length, mean length, share.",
    f"# Computed by {PROGRAM} from the histogram of MLPerf's Wikipedia data at 512 tokens:",
    "# graphcore/examples @ 2d8b5653, tutorials/blogs_code/packedBERT/histograms.py (MIT).",
)


def class_table(lengths: Lengths, classes: int = CLASSES) -> str:
    """The table `first,last,mean,share` as text.

    A class ends where it reaches the share 1 / `classes`. It ends earlier before a length of at least that
    share, and where its mean would be too far from its middle for linear shares.
    """
    rows: list[list[int]] = [[]]
    share_of = dict(zip(lengths.tokens, lengths.shares, strict=True))
    for tokens in range(lengths.tokens[0], lengths.longest + 1):
        share, here = share_of.get(tokens, 0.0), rows[-1]
        full = sum(share_of.get(t, 0.0) for t in here) + share / 2 > 1 / classes
        if here and (full or share >= 1 / classes or not _linear([*here, tokens], share_of)):
            rows.append([])
        rows[-1].append(tokens)
    lines = [*HEAD, "first,last,mean,share"]
    for row in rows:
        mean, share = _mean(row, share_of)
        lines.append(f"{row[0]},{row[-1]},{mean:.7g},{share:.9f}")
    return "\n".join(lines) + "\n"


def _mean(row: Sequence[int], share_of: dict[int, float]) -> tuple[float, float]:
    """Mean length of a class, and its share."""
    shares = np.array([share_of.get(t, 0.0) for t in row])
    return float(np.average(row, weights=shares) if shares.sum() else np.mean(row)), float(shares.sum())


def _linear(row: Sequence[int], share_of: dict[int, float]) -> bool:
    """Whether shares that are linear in the length can have the mean of a class."""
    mean = _mean(row, share_of)[0]
    return abs(mean - (row[0] + row[-1]) / 2) <= 0.99 * (len(row) + 1) / 6


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns its exit code."""
    parser = program_parser(
        PROGRAM,
        "Compute the shipped table of lengths from a histogram (columns tokens,sequences).",
        EXAMPLE,
    )
    parser.add_argument("histogram", type=Path)
    parser.add_argument("--classes", type=int, default=CLASSES, help="default: %(default)s")
    default = LENGTHS / "wikipedia-512.csv"
    parser.add_argument("-o", "--output", type=Path, default=default, help="default: the shipped file")
    options = parser.parse_args(arguments)
    return run_task(
        lambda: write_text(options.output, class_table(load_lengths(str(options.histogram)), options.classes))
    )


if __name__ == "__main__":
    sys.exit(main())
