"""What a job takes if it has the cluster for itself."""

from __future__ import annotations

import numpy as np

from .columns import Columns, Floats

__all__ = ["alone_s"]


def alone_s(columns: Columns) -> Floats:
    """The least JCT of each job, in seconds: min over its options o of launch_s(o) + work / rate(o).

    *Proof.* Call an allocation useful if it adds to the job's work. Let o be the fastest option of the useful
    allocations. The work alone takes at least work / rate(o). Each useful allocation also pays its launch or
    more, so one of them pays launch_s(o). The two times do not overlap. A job without work is done when an
    allocation has paid its launch.
    """
    least = np.empty(len(columns))
    for kind in columns.kinds:
        unit_s = 1.0 / kind.rate
        best = np.full(len(kind.jobs), np.inf)
        work = columns.work[kind.jobs]
        for option in range(len(unit_s)):
            np.minimum(best, kind.launch_s[option] + work * unit_s[option], out=best)
        least[kind.jobs] = best
    return least
