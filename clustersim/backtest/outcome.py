"""A backtest from a log to its result: one site, simulated and compared with what happened."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from itertime.errors import UserError

from .errors import compared, errors_of, score
from .fit import CANDIDATES, CAPACITIES, Candidates, Trial, fit
from .groups import groups_of
from .logged import LoggedRun, Rows
from .pools import Pool, Wanted, pools_of
from .site import Simulated, Site, idle_start_up_s, simulate
from .use import in_use, mean_difference, mean_use

__all__ = ["Backtest", "backtest"]


@dataclass(frozen=True)
class Backtest:
    """What came out: `summary` as JSON; the simulation, and the part of each job: warm-up, all, or fitted and
    judged.
    """

    log: LoggedRun
    made: Simulated
    pools: Sequence[Pool]
    parts: Sequence[str]
    summary: Mapping[str, Any] = field(repr=False)


def backtest(
    log: LoggedRun,
    wanted: Wanted | None = None,
    *,
    policies: Sequence[str] = (),
    fitted: bool = False,
    fit_share: float = 0.5,
    warmup_s: float = 0.0,
    start_up_s: float | None = None,
    settings: Sequence[str] = (),
    on_trial: Callable[[int], None] = lambda _: None,
) -> Backtest:
    """Simulate what a log says, and compare it with what the log says happened.

    `fitted`: choose among `policies` (by default `CANDIDATES`) and few parameters by the first `fit_share` of
    the jobs, and judge by the rest. Else the one policy (by default fifo) is simulated, with `start_up_s` or
    what the log shows of it. Jobs submitted in the first `warmup_s` are load, and are not compared. Raises
    UserError for options that cannot be used, PolicyError if a policy breaks a rule.
    """
    wanted = wanted or Wanted()
    first, split = _places(log, fitted, fit_share, warmup_s)
    pools, said = pools_of(log, wanted, split if fitted else None)
    trials: list[Trial] = []
    if fitted:
        given: Candidates = [(name, {}) for name in policies]
        site, made, trials = fit(log, pools, (first, split), given or CANDIDATES, settings, on_trial)
    else:
        if len(policies) > 1:
            raise UserError(f"--policy {','.join(policies)}: several policies need --fit, which chooses one")
        shown_s = idle_start_up_s(log, pools) if start_up_s is None else start_up_s
        site = Site(policies[0] if policies else "fifo", start_up_s=shown_s)
        made = simulate(log, pools, site, settings)
    parts = {"fitted": (first, split), "judged": (split, None)} if fitted else {"all": (first, None)}
    rows = {name: compared(log, made, *places) for name, places in parts.items()}
    main = rows["judged" if fitted else "all"]
    summary: dict[str, Any] = {
        "log": {**log.account, "jobs": len(log.jobs), "with_start": int((~np.isnan(log.start_s)).sum())},
        "assumptions": [*said, *_said(log, site, start_up_s is not None)],
        "site": site.document() | {"gpus": made.gpus, "pools": dict(made.pools), "settings": list(settings)},
        "parts": {name: errors_of(log, made, found) for name, found in rows.items()},
        "use": _use(log, made, site),
        "capacity": {pool.name: _capacity(pool, made) for pool in pools},
        "groups": groups_of(log, made, main, pools),
        "not_compared": _not_compared(log, made, first),
    }
    if fitted:
        summary["fit"] = {
            "share": fit_share,
            "capacity_factors": list(CAPACITIES),
            "trials": [trial.document() for trial in trials],
            "baseline_score": {name: _baseline(log, made, found) for name, found in rows.items()},
        }
    labels = ["warm-up"] * first + (["fitted"] * (split - first) if fitted else [])
    labels += ["judged" if fitted else "all"] * (len(log.jobs) - len(labels))
    return Backtest(log, made, pools, labels, summary)


def _places(log: LoggedRun, fitted: bool, share: float, warmup_s: float) -> tuple[int, int]:
    """Where the compared jobs begin, and where the judged part does."""
    if warmup_s < 0 or not 0 < share < 1:
        raise UserError(f"--warmup {warmup_s:g}, --fit-share {share:g}: must be from 0, and between 0 and 1")
    first = int(np.searchsorted(log.submit_s, warmup_s))
    split = first + round((len(log.jobs) - first) * share) if fitted else len(log.jobs)
    known = ~np.isnan(log.start_s)
    if not known[first:split].any() or (fitted and not known[split:].any()):
        where = "in both parts" if fitted else "after the warm-up"
        raise UserError(f"the log has no job with a logged start {where}; change --fit-share or --warmup")
    return first, split


def _said(log: LoggedRun, site: Site, stated: bool) -> Iterator[str]:
    yield "the cluster is empty when the log begins; jobs that ran before it are not in the log"
    yield "jobs are submitted as logged, whatever they waited before; they run for their logged run time"
    what = "as stated" if stated else "the median wait of jobs that found room (0 if above five minutes)"
    yield f"start-up {site.start_up_s:g} s before each logged start, with GPUs held: {what}"
    with_limit = sum(job.estimate_s is not None for job in log.jobs)
    limits = "those of the log" if with_limit else "their run times, as the log has none"
    yield f"estimates of run times, where a policy needs them: {limits} ({with_limit:,} jobs state one)"
    if len({job.tenant for job in log.jobs}) > 1:
        yield "quotas, where a policy needs them: each tenant's own peak, in proportion of the capacity"
    if not log.is_dated:
        yield "hours are counted from the zero of the log's own clock"


def _use(log: LoggedRun, made: Simulated, site: Site) -> dict[str, float]:
    """Use of the GPUs from the first to the last submission."""
    until_s = float(log.submit_s[-1])
    known = ~np.isnan(log.start_s)
    logged = log.start_s, log.run_s, log.gpus
    held_s = made.start_s - site.start_up_s, log.run_s + site.start_up_s
    simulated = np.where(known, held_s[0], np.nan), held_s[1], log.gpus
    return {
        "window_s": until_s,
        "logged": mean_use(*logged, 0.0, until_s) / made.gpus,
        "simulated": mean_use(*simulated, 0.0, until_s) / made.gpus,
        "mean_difference": mean_difference(in_use(*logged), in_use(*simulated), until_s) / made.gpus,
    }


def _capacity(pool: Pool, made: Simulated) -> dict[str, Any]:
    """GPUs of a pool in the simulation, and the times at which it had less."""
    return {"gpus": made.pools[pool.name], "reduced": [asdict(part) for part in pool.reduced]}


def _not_compared(log: LoggedRun, made: Simulated, first: int) -> dict[str, int]:
    later = np.arange(len(log.jobs)) >= first
    unknown = np.isnan(log.start_s)
    return {
        "warm-up": first,
        "no logged start": int((later & unknown).sum()),
        "never started in the simulation": int((later & ~unknown & np.isnan(made.start_s)).sum()),
    }


def _baseline(log: LoggedRun, made: Simulated, rows: Rows) -> float | None:
    """The score of a simulation in which no job waits."""
    return score(log, Simulated(log.submit_s, log.submit_s, made.gpus, made.pools), rows)
