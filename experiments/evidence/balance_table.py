"""Prints what samples of different lengths cost by how they are dealt to ranks, and how well they pack; run
it with `--help` for its usage.

The work of a sample of l tokens is the FLOPs of a layer's matrix products and attention, 24 h^2 l + 4 h l^2
forward, h being the width (Narayanan et al. 2021, arXiv 2104.04473, appendix).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from itertime.commandline import run_task
from itertime.costs.balance.drawn_work import drawn_work
from itertime.costs.balance.packing import packs_of
from itertime.costs.balance.slowest import SlowestRank
from itertime.costs.balance.strata import stratified_counts
from itertime.spec import Lengths, PlanOptions, load_lengths

from .arguments import program_parser

__all__ = ["imbalances", "main", "tables"]

PROGRAM = "python -m experiments.evidence.balance_table"
EXAMPLE = f"""\
Example, the tables of docs/balancing.md:

    {PROGRAM} wikipedia-512
"""
MOST_SAMPLES = (1, 2, 3, 4, 8, 16)
WAYS = {
    "as drawn": PlanOptions(batching="unpadded", balance="drawn"),
    "exchanged within a node": PlanOptions(batching="unpadded", balance="exchanged"),
    "stratified": PlanOptions(batching="unpadded", balance="stratified"),
    "stratified and exchanged": PlanOptions(batching="unpadded", balance="stratified-exchanged"),
    "sorted over all ranks": PlanOptions(batching="unpadded", balance="sorted"),
    "packed rows, as drawn": PlanOptions(batching="packed"),
    "padded": PlanOptions(batching="padded"),
}


def imbalances(
    lengths: Lengths, ranks: int, samples: int, node_ranks: int, seq_len: int, hidden: int
) -> dict[str, SlowestRank]:
    """The slowest rank for each way of dealing, over the mean work of a rank without padding.

    Raises UserError for a sample longer than `seq_len`, and where strata are impossible.
    """
    linear, quadratic = 24.0 * hidden**2, 4.0 * hidden
    unit = samples * (linear * lengths.mean + quadratic * lengths.mean_square)
    found = {}
    for name, options in WAYS.items():
        work = drawn_work(lengths, options, ranks, samples, node_ranks, samples, seq_len)
        found[name] = work.slowest(linear / unit, quadratic / unit)
    return found


def tables(lengths: Lengths, ranks: int, samples: int, node_ranks: int, seq_len: int, hidden: int) -> str:
    """Both tables as text; the numbers of samples from each bin of lengths."""
    lines = [
        f"{lengths.name}: {lengths.mean:.1f} tokens on average; {ranks:,} ranks of {samples} samples",
        "",
        f"{'way':26}{'slowest / mean':>16}{'5th-95th percentile':>22}{'error':>9}{'slowest':>9}",
    ]
    for name, slowest in imbalances(lengths, ranks, samples, node_ranks, seq_len, hidden).items():
        spread = f"{slowest.low / slowest.average:.3f}-{slowest.high / slowest.average:.3f}"
        error = f"{slowest.error / slowest.average:.4f}" if slowest.error else "exact"
        lines.append(f"{name:26}{slowest.imbalance:16.3f}{spread:>22}{error:>9}{slowest.mean:9.3f}")
    counts = "/".join(map(str, stratified_counts(lengths, samples, seq_len)))
    lines += ["", f"samples of a rank from each bin of {seq_len // 4} tokens: {counts}", ""]
    lines.append(f"{'samples of a pack, at most':26}{'on average':>16}{'tokens that are no padding':>31}")
    for most in MOST_SAMPLES:
        packs = packs_of(lengths, seq_len, most)
        lines.append(f"{most:<26}{packs.samples:16.2f}{packs.efficiency:31.1%}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns its exit code."""
    parser = program_parser(
        PROGRAM,
        "Print what samples of different lengths cost by how they are dealt to ranks.",
        EXAMPLE,
    )
    parser.add_argument("lengths", help="a shipped distribution, or a table of lengths")
    parser.add_argument("--ranks", type=_count, default=1024, help="default: %(default)s")
    parser.add_argument("--samples", type=_count, default=16, help="of a rank; default: %(default)s")
    parser.add_argument("--node-ranks", type=_count, default=8, help="default: %(default)s")
    parser.add_argument("--seq-len", type=_count, default=512, help="default: %(default)s")
    parser.add_argument("--hidden", type=_count, default=1024, help="width; default: %(default)s")
    given = parser.parse_args(arguments)
    sizes = (given.ranks, given.samples, given.node_ranks, given.seq_len, given.hidden)
    return run_task(lambda: print(tables(load_lengths(given.lengths, given.seq_len), *sizes)))


def _count(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 10**6:
        raise argparse.ArgumentTypeError(f"{text}: must be from 1 to 1,000,000")
    return value


if __name__ == "__main__":
    sys.exit(main())
