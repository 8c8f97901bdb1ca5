"""The jobs of a log, simulated under a policy that the site may have had."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from clustersim.runs import NO_BOUND, RunConfig, Trace, epoch_of, run_config
from itertime.errors import UserError
from itertime.io import shown

from .logged import Floats, LoggedRun
from .pools import SitePool

__all__ = [
    "INFERRED",
    "Simulated",
    "SimulatedSite",
    "idle_start_up_s",
    "settings_named",
    "simulate",
    "site_words",
]

_LONGEST_START_UP_S = 300.0  # a longer wait with GPUs free is no start-up
_FREE = dict.fromkeys(
    ("launch_s", "launch_gpu_s", "plain_restart_s", "checkpoint_bytes_per_parameter"), 0.0
)  # the preset "none" would also multiply the start-up by 0
INFERRED = "inferred"
"""In parameters of a site: what the log shows of its tenants, `SitePool.limits`."""

_INSTEAD = {
    "cluster": "use --cluster",
    "overheads": "use --start-up",
    "bound": "it compares with the log, not with a bound",
    "until_s": "use --until-s or --before, which leave jobs out of the log",
}
"""Settings that a backtest decides, and what to do instead."""


@dataclass(frozen=True)
class SimulatedSite:
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
    params = "".join(
        f", {key}={value:g}" if isinstance(value, float) else f", {key}={value}"
        for key, value in site["params"].items()
    )
    factor = "" if site["capacity_factor"] == 1 else f", {site['capacity_factor']:g} x capacity"
    return f"{site['policy']}{params}{factor}, start-up {site['start_up_s']:g} s"


@dataclass(frozen=True)
class Simulated:
    """When each job of a log started and ended in the simulation; NaN for jobs that did not. `gpus`: those of
    all `pools`, by name. `eligible_s`: when it was eligible there; None: as in the log.
    """

    start_s: Floats
    end_s: Floats
    gpus: int
    pools: Mapping[str, int]
    eligible_s: Floats | None = None

    def wait_s(self, log: LoggedRun) -> Floats:
        """From when each job was eligible to its start."""
        eligible_s = log.eligible_s if self.eligible_s is None else self.eligible_s
        return np.maximum(self.start_s - eligible_s, 0.0)


def simulate(
    log: LoggedRun,
    pools: Sequence[SitePool],
    site: SimulatedSite,
    settings: Sequence[str] = (),
    seed: int = 0,
) -> Simulated:
    """Run every pool under the site's policy, from an empty cluster.

    `settings`: assignments as of `--set`. Raises UserError for settings that cannot be used, PolicyError if
    the policy breaks a rule.
    """
    setting_texts = settings_named(settings)
    for name, instead in _INSTEAD.items():
        if name in setting_texts:
            raise UserError(f"--set {shown(setting_texts[name])}: a backtest decides that itself; {instead}")
    if "calendar" in setting_texts and (len(pools) > 1 or not pools[0].stated):
        problem = "numbers the nodes of one cluster; state it with --cluster SHAPE, and --pools none"
        raise UserError(f"--set {shown(setting_texts['calendar'])}: {problem}")
    starts_s, ends_s = np.full(len(log.jobs), np.nan), np.full(len(log.jobs), np.nan)
    eligibles_s = log.submit_s.copy()
    sizes = {}
    for pool in pools:
        cluster = pool.scaled(site.capacity)
        sizes[pool.name] = cluster.gpus
        config = RunConfig.make(
            list(settings),
            policy=site.policy,
            params={
                **epoch_of(site.policy, log.zero_s if log.is_dated else None),
                **{key: pool.limits if value == INFERRED else value for key, value in site.params.items()},
            },
            cluster=cluster.shape if not cluster.groups else "n1g1",  # the cluster itself is handed over
            overheads={**_FREE, "scheduling_s": site.start_up_s} if site.start_up_s else None,
            calendar=[] if "calendar" in setting_texts else pool.calendar(cluster),
            quotas={} if "quotas" in setting_texts else _fitting(pool.quotas, cluster.gpus),
            bound=NO_BOUND,
            seed=seed,
        )
        rows = {log.jobs[i].job_id: int(i) for i in pool.rows}
        trace = Trace.of([log.jobs[i] for i in pool.rows])
        for record in run_config(trace, config, cluster=cluster).jobs:
            i = rows[record.job_id]
            if record.eligible_s is not None:
                eligibles_s[i] = record.eligible_s
            if record.start_s is not None:
                starts_s[i] = record.start_s + site.start_up_s
            if record.finish_s is not None:
                ends_s[i] = record.finish_s
    return Simulated(starts_s, ends_s, sum(sizes.values()), sizes, eligibles_s)


def settings_named(settings: Sequence[str]) -> dict[str, str]:
    """Assignments as of `--set`, each by the setting that it is about."""
    return {text.partition("=")[0].partition(".")[0].strip(): text for text in settings}


def _fitting(quotas: Mapping[str, int], gpus: int) -> dict[str, int]:
    return dict(quotas) if sum(quotas.values()) <= gpus else {}


def idle_start_up_s(log: LoggedRun, pools: Sequence[SitePool], known_jobs: int | None = None) -> float:
    """The median wait of the jobs that found room: at their submission none waited, and they fitted beside
    what was in use. 0 if there is no such job, or the median is above five minutes.

    Only the first `known_jobs` jobs count (all, if None).
    """
    known_jobs = len(log.jobs) if known_jobs is None else known_jobs
    waits = [wait for pool in pools for wait in _waits_with_room(log, pool, known_jobs)]
    median = float(np.median(waits)) if waits else 0.0
    return median if median <= _LONGEST_START_UP_S else 0.0


def _waits_with_room(log: LoggedRun, pool: SitePool, known_jobs: int) -> list[float]:
    rows = pool.rows[(pool.rows < known_jobs) & ~np.isnan(log.start_s[pool.rows])]
    steps: list[tuple[float, int, int]] = []  # (time, kind, row): 0 an end, 1 eligible, 2 a start
    for i in rows.tolist():
        start_s = float(log.start_s[i])
        steps += [(start_s + float(log.run_s[i]), 0, i), (float(log.eligible_s[i]), 1, i), (start_s, 2, i)]
    gpus_in_use, waiting, waits = 0, 0, list[float]()
    for _, kind, i in sorted(steps):
        gpus = int(log.gpus[i])
        if kind == 0:
            gpus_in_use -= gpus
        elif kind == 1:
            if not waiting and gpus_in_use + gpus <= pool.cluster.gpus:
                waits.append(float(log.wait_s[i]))
            waiting += 1
        else:
            gpus_in_use += gpus
            waiting -= 1
    return waits
