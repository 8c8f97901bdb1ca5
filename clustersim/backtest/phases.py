"""A site simulated in several phases of its policy's timers, which no log states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from clustersim.runs import find_policy
from itertime.errors import UserError

from .errors import compared, score
from .logged import LoggedRun
from .pools import SitePool
from .site import Simulated, SimulatedSite, simulate

__all__ = ["PhasedRuns", "in_phases"]

_MOST_PHASES = 1000


@dataclass(frozen=True)
class PhasedRuns:
    """The simulations of a site by phase, with their scores over the part that is judged. A policy without
    timers has one.
    """

    simulations: Sequence[Simulated]
    scores: Sequence[float | None]

    @property
    def median(self) -> Simulated:
        """The simulation of the median score, the lower one of two."""
        order = sorted(
            range(len(self.scores)), key=lambda i: (self.scores[i] is None, self.scores[i] or 0.0, i)
        )
        return self.simulations[order[(len(order) - 1) // 2]]

    def noise_floor(self, log: LoggedRun, rows: tuple[int, int | None]) -> float | None:
        """The median score of the simulations, each against the next one as if that were the log; None of a
        single one.
        """
        if len(self.simulations) < 2:
            return None
        scores = []
        successors = [*self.simulations[1:], self.simulations[0]]
        for simulated, successor in zip(self.simulations, successors, strict=True):
            as_logged = replace(log, start_s=successor.start_s)
            value = score(as_logged, simulated, compared(as_logged, simulated, *rows))
            if value is not None:
                scores.append(value)
        return float(np.median(scores)) if scores else None


def in_phases(
    log: LoggedRun,
    pools: Sequence[SitePool],
    site: SimulatedSite,
    settings: Sequence[str],
    phases: int,
    rows: tuple[int, int | None],
    simulated: Simulated | None = None,
) -> PhasedRuns:
    """The site in up to `phases` phases of its policy's timers. `rows`: where the judged part begins, ends.
    `simulated`: the site as it is, if that was simulated already.

    Raises what `simulate` raises, and UserError for an impossible number of phases.
    """
    if not 1 <= phases <= _MOST_PHASES:
        raise UserError(f"--phases {phases}: must be between 1 and {_MOST_PHASES}")
    variants = find_policy(site.policy).timer_phases(phases) if phases > 1 else []
    if variants:
        simulations = [
            simulate(log, pools, replace(site, params={**site.params, **variant}), settings)
            for variant in variants
        ]
    else:
        simulations = [simulated or simulate(log, pools, site, settings)]
    return PhasedRuns(simulations, [score(log, run, compared(log, run, *rows)) for run in simulations])
