"""When a job starts: a distribution over simulations that differ in how long the other jobs run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np

from clustersim.analysis import Wait
from clustersim.backtest.logged import Floats
from clustersim.backtest.pools import SiteFacts
from itertime.errors import UserError
from itertime.io import shown
from traces.logs.log import LoggedJob

from .changes import RequestChange, changes_of
from .request import Request
from .run_times import RunTimes
from .scene import PoolScene, Scene, SitePolicy
from .state import LiveState, end_of
from .summary import assumptions_of, distribution, gain, job_document, policy_document, state_document
from .waiting import caveat_of, wait_in, waits_for

__all__ = ["Forecast", "Options", "predict_start"]

MOST_DRAWS = 100_000


@dataclass(frozen=True)
class Options:
    """How a forecast is made.

    `policy`: the site's. `site_facts`: pools and clusters, as for a backtest. `ratio`: run time over time
    limit where there is no history. `default_limit_s`: the limit of jobs that state none. `draws`:
    simulations. `by_s`: a moment on the log's clock for which the chance of a start is wanted. `arrivals`:
    whether jobs are submitted later, as in the history. `with_changes`: whether to simulate what might bring
    the start forward. UserError for impossible values.
    """

    policy: SitePolicy = field(default_factory=SitePolicy)
    site_facts: SiteFacts = field(default_factory=SiteFacts)
    ratio: float | None = None
    default_limit_s: float | None = None
    draws: int = 200
    seed: int = 0
    by_s: float | None = None
    arrivals: bool = True
    with_changes: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.draws <= MOST_DRAWS:
            raise UserError(f"--draws {self.draws}: must be between 1 and {MOST_DRAWS:,}")
        if self.ratio is not None and not 0 < self.ratio <= 1:
            raise UserError(f"--ratio {self.ratio:g}: must be above 0 and at most 1")
        if self.default_limit_s is not None and self.default_limit_s < 1:
            raise UserError(f"--default-limit {self.default_limit_s:g} s: must be at least a second")
        if self.seed < 0:
            raise UserError(f"--seed {self.seed}: must not be negative")


@dataclass(frozen=True)
class Forecast:
    """`delays_s`: from now to the start, in each draw; infinite where the job does not start. `wait`: its
    wait from now on in the median draw, None if it starts at once. `summary`: all results as JSON.
    """

    job: LoggedJob
    delays_s: Floats
    wait: Wait | None
    summary: dict[str, Any] = field(repr=False)


@dataclass(frozen=True)
class _DrawnForecast:
    """A job as it is or changed: its part of the scene, its run times, the delays of its starts, and the jobs
    that started before it; one of each for each draw.
    """

    label: str
    part: PoolScene
    own_s: Floats
    delays_s: Floats
    earlier: Sequence[Sequence[str]]


def predict_start(
    state: LiveState,
    request: Request,
    history: Sequence[LoggedJob] | None = None,
    options: Options | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Forecast:
    """Predict when a job of a state starts.

    `history`: jobs of a log, of which those that had ended by now show run times and capacity. Without it
    every job runs for the same ratio of its time limit, and there is one draw. `on_progress` gets the number
    of simulations that are done, and of all.

    Raises UserError for what cannot be used, PolicyError if the policy breaks a rule.
    """
    options = options or Options()
    _check(state, history, options)
    job = request.of(state)
    ended = None if history is None else _ended(history, state)
    ratio = 1.0 if options.ratio is None else options.ratio
    run_times = RunTimes.of(ended or (), ratio, options.default_limit_s, state.source["file"])
    draws = 1 if ended is None else options.draws
    site, policy, seed = options.site_facts, options.policy, options.seed
    scene = Scene.of(state, ended or (), run_times, site, policy, draws, seed, options.arrivals)
    history_use = dict(run_times.used.most_common())
    pool = scene.pool_name(job)
    changes = changes_of(scene, job, pool) if options.with_changes else []
    uniforms = np.random.default_rng([options.seed, *b"own"]).random(draws)
    tried = [RequestChange("as it is", job, pool), *changes]

    def done(trial: int, draw: int) -> None:
        on_progress(trial * draws + draw, len(tried) * draws)

    trials = [_trial(scene, change, uniforms, partial(done, k)) for k, change in enumerate(tried)]
    base = trials[0]
    median = int(np.argsort(base.delays_s, kind="stable")[(draws - 1) // 2])
    wait = wait_in(base.part, median, float(base.own_s[median]))
    start, waits = distribution(state, base.delays_s, options.by_s), waits_for(base.part, job, base.earlier)
    summary = {
        "state": state_document(state),
        "job": job_document(scene, job, pool),
        "caveat": caveat_of(job, start["p10_s"], waits, knows_limits=scene.config.site is not None),
        "policy": policy_document(scene),
        "history": ended and _history_document(run_times),
        "draws": draws,
        "seed": options.seed,
        "start": start,
        "waits_for": waits,
        "median_wait": wait and asdict(wait),
        "changes": [_changed(state, base, trial, options.by_s) for trial in trials[1:]],
        "assumptions": list(assumptions_of(scene, history_use, ended is not None, options.ratio)),
    }
    return Forecast(job, base.delays_s, wait, summary)


def _history_document(run_times: RunTimes) -> dict[str, Any]:
    """The past jobs from which run times are drawn, as JSON."""
    drawn_from = dict(run_times.used.most_common())
    return {"jobs": run_times.jobs, "with_limit": run_times.with_limit, "drawn_from": drawn_from}


def _check(state: LiveState, history: Sequence[LoggedJob] | None, options: Options) -> None:
    if history is not None and options.ratio is not None:
        raise UserError(f"--ratio {options.ratio:g}: is drawn from --history; leave one of them out")
    if options.by_s is not None and options.by_s <= state.now_s:
        raise UserError(f"--by {state.moment(options.by_s)}: lies before now, {state.moment(state.now_s)}")


def _changed(
    state: LiveState, base: _DrawnForecast, trial: _DrawnForecast, by_s: float | None
) -> dict[str, Any]:
    """What a change brings, as JSON."""
    gained = gain(base.delays_s, trial.delays_s)
    return {"change": trial.label, **gained, **distribution(state, trial.delays_s, by_s)}


def _ended(history: Sequence[LoggedJob], state: LiveState) -> list[LoggedJob]:
    """The jobs of a history that had ended by now. UserError if there are none."""
    ended = [
        job
        for job in history
        if job.duration_s is not None and (end_s := end_of(job)) is not None and end_s <= state.now_s
    ]
    if not ended:
        raise UserError(
            f"--history: none of its {len(history):,} jobs ended before {state.moment(state.now_s)}"
        )
    return ended


def _trial(
    scene: Scene, change: RequestChange, uniforms: Floats, on_draw: Callable[[int], None]
) -> _DrawnForecast:
    cluster = scene.pools[change.pool].cluster
    if change.job.gpus > cluster.gpus:
        problem = f"asks for {change.job.gpus:,} GPUs, its pool has {cluster.gpus:,} ({cluster.shape})"
        raise UserError(f"job {shown(change.job.job_id)}: {problem}; state a larger one with --cluster")
    part = scene.part(change.job, change.pool)
    own_s = scene.run_times.drawn(change.job, 0.0, uniforms)
    delays_s, earlier = np.empty(len(uniforms)), []
    for draw in range(len(uniforms)):
        done = part.simulate(draw, float(own_s[draw]))
        delays_s[draw] = done.started_s - scene.now_s
        earlier.append(tuple(done.earlier))
        on_draw(draw + 1)
    return _DrawnForecast(change.label, part, own_s, delays_s, earlier)
