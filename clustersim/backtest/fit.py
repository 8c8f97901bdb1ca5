"""The site's policy and few of its parameters, chosen by the first part of a log.

The search has four steps, and each keeps the best score so far (`errors.score`) of the jobs of the first
part; ties go to what was tried first.

1. Each policy with its parameters, with the start-up that the log shows.
2. The best one with 0.7, 0.8, 0.9, 1.05 and 1.2 times the inferred capacity, which is a peak: nodes that are
   often out of service make it too large, and a cluster that was never full makes it too small. A cluster
   that the user states stays as it is, and the largest request always fits.
3. Each policy with the best capacity, if that is another one.
4. The best one with other parameters, one at a time, if `PARAMETERS` has some for its policy; then the best
   one without start-up.

Every trial simulates the whole log, so that the jobs after the first part meet the queue that it left. Their
waits, and the times at which they started, take no part in the choice, nor in capacity and start-up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, TypeAlias

from .errors import compared, score
from .logged import LoggedRun
from .pools import SitePool
from .site import INFERRED, Simulated, SimulatedSite, idle_start_up_s, simulate

__all__ = ["CANDIDATES", "CAPACITIES", "PARAMETERS", "Candidates", "Trial", "fit"]

Candidates: TypeAlias = Sequence[tuple[str, dict[str, Any]]]

CANDIDATES: Candidates = (
    ("fifo", {}), ("easy", {}), ("conservative", {}), ("fifo-skip", {}), ("sjf", {}), ("smallest", {}),
    ("quota", {}), ("multifactor", {}), ("multifactor", {"tenant_limits": INFERRED}),
    ("multifactor", {"fair_share_weight": 0, "tenant_limits": INFERRED}),
)  # fmt: skip
"""Policies, with parameters, that a fit tries unless the user names others. Limits of tenants need several
tenants; without fair share, multifactor is easy with such limits.
"""

PARAMETERS: Mapping[str, Sequence[dict[str, Any]]] = {
    "multifactor": (
        {"half_life_s": 86_400}, {"half_life_s": 2_592_000}, {"age_weight": 0}, {"age_weight": 10_000},
        {"size_weight": 1_000},
    ),
}  # fmt: skip
"""Parameters that a fit tries for the best policy, by its name: shorter and longer memory of what a tenant
used, age without weight and as weighty as fair share, large jobs first.
"""

CAPACITIES = (0.7, 0.8, 0.9, 1.05, 1.2)
"""Factors of the inferred capacity that a fit tries."""


@dataclass(frozen=True)
class Trial:
    """A site that was tried, with its scores over the first part and over the rest.

    Only `fitted` decides. It is infinite if no job of that part started in the simulation.
    """

    site: SimulatedSite
    fitted: float
    judged: float | None

    def document(self) -> dict[str, Any]:
        """The trial as JSON."""
        fitted = None if self.fitted == inf else self.fitted
        return self.site.document() | {"fitted_score": fitted, "judged_score": self.judged}


def fit(
    log: LoggedRun,
    pools: Sequence[SitePool],
    rows: tuple[int, int],
    candidates: Candidates = CANDIDATES,
    settings: Sequence[str] = (),
    on_trial: Callable[[int], None] = lambda _: None,
) -> tuple[SimulatedSite, Simulated, list[Trial]]:
    """The best site by the jobs from `rows[0]` to before `rows[1]`, its simulation, and all trials in order.

    Raises what `simulate` raises.
    """
    trials: list[Trial] = []
    best: tuple[Trial, Simulated] | None = None

    several = len({job.tenant for job in log.jobs}) > 1

    def attempt(site: SimulatedSite) -> None:
        nonlocal best
        if any(trial.site == site for trial in trials) or (INFERRED in site.params.values() and not several):
            return
        simulated = simulate(log, pools, site, settings)
        fitted = score(log, simulated, compared(log, simulated, *rows))
        judged = score(log, simulated, compared(log, simulated, rows[1]))
        trials.append(Trial(site, inf if fitted is None else fitted, judged))
        if best is None or trials[-1].fitted < best[0].fitted:
            best = trials[-1], simulated
        on_trial(len(trials))

    start_up_s = idle_start_up_s(log, pools, rows[1])
    for policy, params in candidates:
        attempt(SimulatedSite(policy, params, start_up_s=start_up_s))
    assert best is not None
    if any(not pool.stated for pool in pools):
        best_site = best[0].site
        for factor in CAPACITIES:
            attempt(replace(best_site, capacity=factor))
        if (factor := best[0].site.capacity) != 1:
            for policy, params in candidates:
                attempt(SimulatedSite(policy, params, factor, start_up_s))
    best_site = best[0].site
    for changed in PARAMETERS.get(best_site.policy, ()):
        attempt(replace(best_site, params={**best_site.params, **changed}))
    attempt(replace(best[0].site, start_up_s=0.0))
    return best[0].site, best[1], trials
