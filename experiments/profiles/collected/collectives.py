"""Tables of collectives as they were timed, by size and ranks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from experiments.profiles.measurements import NAMES, measured_range, significant
from itertime.spec import Evidence
from itertime.spec.size_table import SizeTable

__all__ = ["collective_tables"]


def collective_tables(path: Path) -> tuple[dict[str, SizeTable], list[Evidence]]:
    """The collectives of a table of `itertime profile collect`, and their evidence.

    One without every power of two between its smallest and its largest size, among all its numbers of ranks,
    is left out. Times are made to rise with the size: no message takes longer than a larger one, and what
    exceeds that was disturbed.
    """
    table = pd.read_csv(path)
    rows = table.loc[(table["table"] == "collective") & (table.time_us > 0)]
    tables, evidence = {}, []
    for name, operation_rows in rows.groupby("op"):
        times = operation_rows.pivot_table(index="ranks", columns="bytes", values="time_us")
        sizes = np.array(times.columns, dtype=float)
        if len(sizes) < 2 or times.isna().any(axis=None) or (sizes[1:] != 2 * sizes[:-1]).any():
            continue
        rising = np.minimum.accumulate(times.to_numpy()[:, ::-1] * 1e-6, axis=1)[:, ::-1]
        seconds = [[significant(value) for value in row] for row in rising.tolist()]
        ranks = [int(count) for count in times.index]
        tables[str(name)] = SizeTable(ranks, int(sizes[0]), seconds)
        evidence.append(
            Evidence(
                part=str(name),
                kind="measured",
                source=NAMES["torch"],
                rows=len(operation_rows),
                note="as measured",
                measured=measured_range(bytes=sizes, ranks=np.array(ranks, dtype=float)),
            )
        )
    return tables, evidence
