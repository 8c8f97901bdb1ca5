"""The jobs of a log, simulated under a policy that the site may have had."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from clustersim.runs import NO_BOUND, RunConfig, Trace, run_config
from itertime.errors import UserError
from itertime.io import shown

from .logged import Floats, LoggedRun
from .pools import Pool

__all__ = ["Simulated", "Site", "idle_start_up_s", "simulate", "site_words"]

_LONGEST_START_UP_S = 300.0  # a longer wait with GPUs free is no start-up
_FREE = dict.fromkeys(
    ("launch_s", "launch_gpu_s", "plain_restart_s", "checkpoint_bytes_per_parameter"), 0.0
)  # the preset "none" would also multiply the start-up by 0
_OPTIONS = {"cluster": "--cluster", "overheads": "--start-up"}  # what replaces settings


@dataclass(frozen=True)
class Site:
    """What a simulation assumes: the policy and its parameters, a factor of the inferred capacity, and the
    seconds from a decision to the logged start, in which the job holds its GPUs.
    """

    policy: str
    params: Mapping[str, Any] = field(default_factory=dict)
    capacity: float = 1.0
    start_up_s: float = 0.0

    def document(self) -> dict[str, Any]:
        """The site as JSON."""
        return {
            "policy": self.policy,
            "params": dict(self.params),
            "capacity_factor": self.capacity,
            "start_up_s": self.start_up_s,
        }


def site_words(site: Mapping[str, Any]) -> str:
    """A site on one line, from its JSON."""
    params = "".join(f", {key}={value}" for key, value in site["params"].items())
    factor = "" if site["capacity_factor"] == 1 else f", {site['capacity_factor']:g} x the inferred capacity"
    return f"{site['policy']}{params}{factor}, start-up {site['start_up_s']:g} s"


@dataclass(frozen=True)
class Simulated:
    """When each job of a log started and ended in the simulation; NaN for jobs that did not. `gpus`: those of
    all `pools`, by name.
    """

    start_s: Floats
    end_s: Floats
    gpus: int
    pools: Mapping[str, int]


def simulate(
    log: LoggedRun, pools: Sequence[Pool], site: Site, settings: Sequence[str] = (), seed: int = 0
) -> Simulated:
    """Run every pool under the site's policy, from an empty cluster.

    `settings`: assignments as of `--set`. Raises UserError for settings that cannot be used, PolicyError if
    the policy breaks a rule.
    """
    for text in settings:
        name = text.partition("=")[0].partition(".")[0].strip()
        if name in _OPTIONS:
            raise UserError(f"--set {shown(text)}: a backtest decides that itself; use {_OPTIONS[name]}")
    starts_s, ends_s = np.full(len(log.jobs), np.nan), np.full(len(log.jobs), np.nan)
    sizes = {}
    for pool in pools:
        cluster = pool.scaled(site.capacity)
        sizes[pool.name] = cluster.gpus
        config = RunConfig.make(
            list(settings),
            policy=site.policy,
            params=dict(site.params),
            cluster=cluster.shape if not cluster.groups else "n1g1",  # the cluster itself is handed over
            overheads={**_FREE, "scheduling_s": site.start_up_s} if site.start_up_s else None,
            calendar=pool.calendar(cluster),
            quotas=_fitting(pool.quotas, cluster.gpus),
            bound=NO_BOUND,
            seed=seed,
        )
        rows = {log.jobs[i].job_id: int(i) for i in pool.rows}
        trace = Trace.of([log.jobs[i] for i in pool.rows])
        for record in run_config(trace, config, cluster=cluster).jobs:
            i = rows[record.job_id]
            if record.start_s is not None:
                starts_s[i] = record.start_s + site.start_up_s
            if record.finish_s is not None:
                ends_s[i] = record.finish_s
    return Simulated(starts_s, ends_s, sum(sizes.values()), sizes)


def _fitting(quotas: Mapping[str, int], gpus: int) -> dict[str, int]:
    return dict(quotas) if sum(quotas.values()) <= gpus else {}


def idle_start_up_s(log: LoggedRun, pools: Sequence[Pool], known: int | None = None) -> float:
    """The median wait of the jobs that found room: at their submission none waited, and they fitted beside
    what was in use. 0 if there is no such job, or the median is above five minutes.

    Only the first `known` jobs count (all, if None).
    """
    known = len(log.jobs) if known is None else known
    waits = [wait for pool in pools for wait in _waits_with_room(log, pool, known)]
    median = float(np.median(waits)) if waits else 0.0
    return median if median <= _LONGEST_START_UP_S else 0.0


def _waits_with_room(log: LoggedRun, pool: Pool, known: int) -> list[float]:
    rows = pool.rows[(pool.rows < known) & ~np.isnan(log.start_s[pool.rows])]
    steps: list[tuple[float, int, int]] = []  # (time, kind, row): 0 an end, 1 a submission, 2 a start
    for i in rows.tolist():
        start_s = float(log.start_s[i])
        steps += [(start_s + float(log.run_s[i]), 0, i), (float(log.submit_s[i]), 1, i), (start_s, 2, i)]
    used, waiting, found = 0, 0, list[float]()
    for _, kind, i in sorted(steps):
        gpus = int(log.gpus[i])
        if kind == 0:
            used -= gpus
        elif kind == 1:
            if not waiting and used + gpus <= pool.cluster.gpus:
                found.append(float(log.wait_s[i]))
            waiting += 1
        else:
            used += gpus
            waiting -= 1
    return found
