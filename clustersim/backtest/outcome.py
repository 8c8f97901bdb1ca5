"""A backtest from a log to its result: one site, simulated and compared with what happened."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from clustersim.runs import find_policy
from itertime.errors import UserError

from .errors import compared, errors_of, score
from .fit import CANDIDATES, CAPACITIES, Candidates, Trial, fit
from .groups import groups_of
from .logged import LoggedRun, Rows
from .phases import PhasedRuns, in_phases
from .pools import SiteFacts, SitePool, pools_of
from .site import INFERRED, Simulated, SimulatedSite, idle_start_up_s, settings_named
from .use import in_use, mean_difference, mean_use
from .verdict import verdict_of

__all__ = ["Backtest", "backtest", "default_policy"]

_FORMATS_OF_SLURM = ("slurm", "squeue", "scontrol")


@dataclass(frozen=True)
class Backtest:
    """What came out: `summary` as JSON; the simulation, and the part of each job: warm-up, all, or fitted and
    judged.
    """

    log: LoggedRun
    made: Simulated
    pools: Sequence[SitePool]
    parts: Sequence[str]
    summary: Mapping[str, Any] = field(repr=False)


def backtest(
    log: LoggedRun,
    site_facts: SiteFacts | None = None,
    *,
    policies: Sequence[str] = (),
    fitted: bool = False,
    fit_share: float = 0.5,
    warmup_s: float = 0.0,
    start_up_s: float | None = None,
    settings: Sequence[str] = (),
    phases: int = 16,
    on_trial: Callable[[int], None] = lambda _: None,
) -> Backtest:
    """Simulate what a log says, and compare it with what the log says happened.

    `fitted`: choose among `policies` (by default `CANDIDATES`) and few parameters by the first `fit_share` of
    the jobs, and judge by the rest. Else the one policy is simulated, by default `default_policy`, with
    `start_up_s` or what the log shows of it. Where the policy has timers, that many `phases` of them are
    simulated; the result is the run of median score, and their scores against each other are the noise floor.
    Jobs submitted in the first `warmup_s` are load, and are not compared. Raises UserError for options that
    cannot be used, PolicyError if a policy breaks a rule.
    """
    site_facts = site_facts or SiteFacts()
    setting_texts = settings_named(settings)
    if "calendar" in setting_texts:
        site_facts = replace(site_facts, look_for_reduced=False)
    first_row, split = _places(log, fitted, fit_share, warmup_s)
    pools, assumptions = pools_of(log, site_facts, split if fitted else None)
    trials: list[Trial] = []
    if fitted:
        candidates: Candidates = [(name, {}) for name in policies]
        rows_to_fit = first_row, split
        site, chosen, trials = fit(log, pools, rows_to_fit, candidates or CANDIDATES, settings, on_trial)
    else:
        if len(policies) > 1:
            raise UserError(f"--policy {','.join(policies)}: several policies need --fit, which chooses one")
        policy, chosen = policies[0] if policies else default_policy(log), None
        shown_s = _shown_start_up_s(policy, log, pools) if start_up_s is None else start_up_s
        site = SimulatedSite(policy, start_up_s=shown_s)
    main_part, main_places = ("judged", (split, None)) if fitted else ("all", (first_row, None))
    runs = in_phases(log, pools, site, settings, phases, main_places, chosen)
    simulated = runs.median
    parts = {"fitted": (first_row, split), "judged": (split, None)} if fitted else {"all": (first_row, None)}
    rows = {name: compared(log, simulated, *places) for name, places in parts.items()}
    errors = {name: errors_of(log, simulated, part_rows) for name, part_rows in rows.items()}
    summary: dict[str, Any] = {
        "log": {**log.account, "jobs": len(log.jobs), "with_start": int((~np.isnan(log.start_s)).sum())},
        "assumptions": [*assumptions, *_said(log, site, start_up_s is not None, setting_texts)],
        "site": site.document()
        | {"gpus": simulated.gpus, "pools": dict(simulated.pools), "settings": list(settings)},
        **_judged(log, site, runs, errors, main_places),
        "use": _use(log, simulated, site),
        "capacity": {pool.name: _capacity(pool, simulated) for pool in pools},
        "groups": groups_of(log, simulated, rows[main_part], pools),
        "not_compared": _not_compared(log, simulated, first_row),
    }
    if fitted:
        bases = {name: _baseline(log, simulated, part_rows) for name, part_rows in rows.items()}
        summary["fit"] = _fit_document(fit_share, trials, bases)
    return Backtest(log, simulated, pools, _part_labels(len(log.jobs), first_row, split, fitted), summary)


def _judged(
    log: LoggedRun,
    site: SimulatedSite,
    runs: PhasedRuns,
    errors: Mapping[str, Any],
    places: tuple[int, int | None],
) -> dict[str, Any]:
    """The verdict on the last part of a log, between these places, and what it goes by, as JSON."""
    part = list(errors)[-1]
    floor = runs.noise_floor(log, places)
    phases = {"phases": {"scores": list(runs.scores)}} if floor is not None else {}
    return {
        "verdict": verdict_of(log, part, errors[part], floor, _remedy(log, site)),
        "parts": errors,
        **phases,
    }


def _fit_document(share: float, trials: Sequence[Trial], bases: Mapping[str, float | None]) -> dict[str, Any]:
    """What a fit tried, as JSON. `bases`: by part of the log, the score of a simulation without waits."""
    return {
        "share": share,
        "capacity_factors": list(CAPACITIES),
        "trials": [trial.document() for trial in trials],
        "baseline_score": dict(bases),
    }


def default_policy(log: LoggedRun) -> str:
    """The policy of a site of which nothing is stated: easy for a log of Slurm, which backfills by default
    (`SchedulerType=sched/backfill`), else fifo.
    """
    return "easy" if _is_of_slurm(log) else "fifo"


def _is_of_slurm(log: LoggedRun) -> bool:
    return str(log.account["format"]).startswith(_FORMATS_OF_SLURM)


def _remedy(log: LoggedRun, site: SimulatedSite) -> str:
    """What might bring the simulation closer to the log."""
    if _is_of_slurm(log) and site.policy != "slurm":
        return "The rules of this Slurm are not known here: `clustersim site slurm` reads them."
    return ""


def _places(log: LoggedRun, fitted: bool, share: float, warmup_s: float) -> tuple[int, int]:
    """Where the compared jobs begin, and where the judged part does."""
    if warmup_s < 0 or not 0 < share < 1:
        raise UserError(f"--warmup {warmup_s:g}, --fit-share {share:g}: must be from 0, and between 0 and 1")
    first_row = int(np.searchsorted(log.submit_s, warmup_s))
    split = first_row + round((len(log.jobs) - first_row) * share) if fitted else len(log.jobs)
    has_start = ~np.isnan(log.start_s)
    if not has_start[first_row:split].any() or (fitted and not has_start[split:].any()):
        where = "in both parts" if fitted else "after the warm-up"
        raise UserError(f"the log has no job with a logged start {where}; change --fit-share or --warmup")
    return first_row, split


def _part_labels(jobs: int, first_row: int, split: int, fitted: bool) -> list[str]:
    """The part of each job of a log: those before `first_row` warm up, those before `split` are fitted to."""
    labels = ["warm-up"] * first_row + (["fitted"] * (split - first_row) if fitted else [])
    return labels + ["judged" if fitted else "all"] * (jobs - len(labels))


def _has_timers(policy: str) -> bool:
    """Whether the policy itself lets jobs that find room wait."""
    return bool(find_policy(policy).timer_phases(1))


def _shown_start_up_s(policy: str, log: LoggedRun, pools: Sequence[SitePool]) -> float:
    return 0.0 if _has_timers(policy) else idle_start_up_s(log, pools)


def _said(
    log: LoggedRun, site: SimulatedSite, start_up_stated: bool, setting_texts: Mapping[str, str]
) -> Iterator[str]:
    yield "the cluster is empty when the log begins; jobs that ran before it are not in the log"
    yield "jobs are submitted as logged, whatever they waited before; they run for their logged run time"
    start_up_source = "the median wait of jobs that found room (0 if above five minutes)"
    if start_up_stated:
        start_up_source = "as stated"
    elif _has_timers(site.policy):
        start_up_source = "jobs that find room wait for the timers of the policy"
    yield f"start-up {site.start_up_s:g} s before each logged start, with GPUs held: {start_up_source}"
    with_limit = sum(job.estimate_s is not None for job in log.jobs)
    limits = "those of the log" if with_limit else "their run times, as the log has none"
    yield f"estimates of run times, where a policy needs them: {limits} ({with_limit:,} jobs state one)"
    if "calendar" in setting_texts:
        yield f"nodes are out of service as {setting_texts['calendar']} states"
    if "quotas" in setting_texts:
        yield "quotas as stated"
    elif len({job.tenant for job in log.jobs}) > 1:
        yield "quotas, where a policy needs them: each tenant's own peak, in proportion of the capacity"
    if INFERRED in site.params.values():
        yield "no tenant of five jobs or more holds more GPUs than it had at once in the log"
    if not log.is_dated:
        yield "hours are counted from the zero of the log's own clock"


def _use(log: LoggedRun, simulation: Simulated, site: SimulatedSite) -> dict[str, float]:
    """Use of the GPUs from the first to the last submission."""
    until_s = float(log.submit_s[-1])
    has_start = ~np.isnan(log.start_s)
    logged = log.start_s, log.run_s, log.gpus
    held_s = simulation.start_s - site.start_up_s, log.run_s + site.start_up_s
    simulated = np.where(has_start, held_s[0], np.nan), held_s[1], log.gpus
    return {
        "window_s": until_s,
        "logged": mean_use(*logged, 0.0, until_s) / simulation.gpus,
        "simulated": mean_use(*simulated, 0.0, until_s) / simulation.gpus,
        "mean_difference": mean_difference(in_use(*logged), in_use(*simulated), until_s) / simulation.gpus,
    }


def _capacity(pool: SitePool, simulation: Simulated) -> dict[str, Any]:
    """GPUs of a pool in the simulation, and the times at which it had less."""
    return {"gpus": simulation.pools[pool.name], "reduced": [asdict(part) for part in pool.reduced]}


def _not_compared(log: LoggedRun, simulation: Simulated, first_row: int) -> dict[str, int]:
    later = np.arange(len(log.jobs)) >= first_row
    unknown = np.isnan(log.start_s)
    return {
        "warm-up": first_row,
        "no logged start": int((later & unknown).sum()),
        "never started in the simulation": int((later & ~unknown & np.isnan(simulation.start_s)).sum()),
    }


def _baseline(log: LoggedRun, simulation: Simulated, rows: Rows) -> float | None:
    """The score of a simulation in which no job waits."""
    return score(log, Simulated(log.submit_s, log.submit_s, simulation.gpus, simulation.pools), rows)
