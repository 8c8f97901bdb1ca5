"""How far the demand of inference services was met."""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum
from typing import Any

import numpy as np

from clustersim.records import SERVED, Run

from .allocations import holdings
from .arrays import Jobs, job_columns
from .tables import jobs_of

__all__ = ["ServiceLevel", "service_levels", "service_summary"]


def service_summary(jobs: Jobs) -> dict[str, Any] | None:
    """What instances of services whose time was over by the end of the run asked for and got; None without
    such an instance.

    instances: their number; demanded_gpu_h = sum of gpus_j x isolated_j / 3600; unmet_gpu_h = the part of it
    during which they had no GPUs; met_ratio = 1 - unmet / demanded.
    """
    columns = job_columns(jobs)
    served = columns.equal("state", SERVED)
    if not served.any():
        return None
    demanded = fsum((columns["gpus"][served] * columns["isolated_s"][served]).tolist())
    unmet = fsum((columns["gpus"][served] * columns["wait_s"][served]).tolist())
    return {
        "instances": int(served.sum()),
        "demanded_gpu_h": demanded / 3600,
        "unmet_gpu_h": unmet / 3600,
        "met_ratio": 1 - unmet / demanded,
    }


@dataclass(frozen=True)
class ServiceLevel:
    """One service: the number of its instances, the GPU-hours that they asked for and did not get, and the
    share of the time with any demand in which all of it was met.
    """

    service: str
    instances: int
    demanded_gpu_h: float
    unmet_gpu_h: float
    satisfied_ratio: float


def service_levels(run: Run) -> list[ServiceLevel]:
    """The services of a run by name. Instances whose time was not over when the run ended are left out."""
    jobs, held = jobs_of(run), holdings(run)
    names = np.array(jobs.values("service"), dtype=object)
    served = np.array([state == SERVED for state in jobs.values("state")], dtype=bool)
    submit_s, finish_s, gpus = jobs["submit_s"], jobs["finish_s"], jobs["gpus"]
    levels = []
    for name in sorted(set(names[served].tolist())):
        rows = np.flatnonzero(served & (names == name))
        held_by_service = np.isin(held.job, rows)
        times = np.concatenate(
            [submit_s[rows], finish_s[rows], held.from_s[held_by_service], held.to_s[held_by_service]]
        )
        needs = np.concatenate([gpus[rows], -gpus[rows]])
        has = np.concatenate([held.gpus[held_by_service], -held.gpus[held_by_service]])
        needed_gpus = np.concatenate([needs, np.zeros(len(has))])
        got = np.concatenate([np.zeros(len(needs)), has])
        order = np.argsort(times, kind="stable")
        steps_s = np.append(np.diff(times[order]), 0.0)
        need, have = np.cumsum(needed_gpus[order]), np.cumsum(got[order])
        active_s = fsum(steps_s[need > 0].tolist())
        met_s = fsum(steps_s[(need > 0) & (have >= need)].tolist())
        demanded, supplied = fsum((need * steps_s).tolist()), fsum((have * steps_s).tolist())
        levels.append(
            ServiceLevel(
                name, len(rows), demanded / 3600, (demanded - supplied) / 3600,
                met_s / active_s if active_s else 1.0,
            )
        )  # fmt: skip
    return levels
