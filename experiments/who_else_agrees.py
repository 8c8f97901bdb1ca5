"""The policies beside the decisions of other people's programs.

    python -m experiments.who_else_agrees ../shared

runs the policies on the inputs in ../shared/reference/peers and writes docs/peers.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from experiments.peers import afs, backfilling, elasticflow, gavel, gavel_runs, tiresias
from experiments.peers.rows import Row, table
from itertime.io import write_text

__all__ = ["PAGE", "page"]

PAGE = Path(__file__).parent.parent / "docs" / "peers.md"
TEMPLATE = Path(__file__).parent / "peers" / "page.template.md"
SCHEDULES = ("here", "there", "input", "equal", "mean JCT", "preemptions, here / there")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="The folder with reference/peers and data.")
    write_text(PAGE, page(parser.parse_args(arguments).folder))


def page(shared: Path) -> str:
    """The text of docs/peers.md."""
    peers = shared / "reference" / "peers"
    schedules = tiresias.rows(peers / "tiresias")
    plain = [row for row in schedules if row.there in tiresias.SAME_RULES]
    plain += backfilling.rows(peers, backfilling.WITHOUT_ESTIMATES, factors=(1,))
    starts = backfilling.rows(peers, backfilling.WITH_ESTIMATES)
    return TEMPLATE.read_text(encoding="utf-8").format(
        plain=table(
            [(*row.cells()[:4], row.cells()[5]) for row in plain],
            "here", "there", "input", "equal", "preemptions, here / there",
        ),
        tiresias=_schedules(schedules, "tiresias"),
        gittins=_schedules(schedules, "gittins"),
        backfilling=table(
            [row.cells()[:-1] for row in starts],
            "here", "there", "input", "equal", "mean wait",
        ),
        afs=table(
            [(*row.cells()[:3], row.what, row.cells()[3]) for row in afs.rows(peers)],
            "here", "there", "input", "what", "equal",
        ),
        gavel=table(
            [program.cells() for program in gavel.programs(peers)],
            "here", "there", "value", "equal", "ours against theirs",
        ),
        gavel_runs=table(
            [row.cells()[:-1] for row in gavel_runs.rows(peers)],
            "here", "there", "input", "near", "mean JCT",
        ),
        elasticflow=table(
            [row.cells() for row in elasticflow.deadlines(shared)],
            "here", "there", "in time, here / there", "near", "mean JCT",
        ),
    )  # fmt: skip


def _schedules(rows: Sequence[Row], here: str) -> str:
    return table([row.cells() for row in rows if row.here == here], *SCHEDULES)


if __name__ == "__main__":
    main()
