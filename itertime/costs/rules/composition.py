"""Which function composes an iteration, by the name of the rules (`itertime/spec/plans/rules.py`)."""

from __future__ import annotations

from collections.abc import Callable

from itertime.costs import stage
from itertime.costs.partition import Workload
from itertime.costs.stage import StageCosts

from . import vtrain

_COMPOSITIONS: dict[str, Callable[[Workload], StageCosts]] = {
    "itertime": stage.stage_costs,
    "vtrain": vtrain.stage_costs,
}


def stage_costs(workload: Workload) -> StageCosts:
    """All parts of an iteration's time by the rules of the plans; what remains is the order in which the
    stages run.
    """
    return _COMPOSITIONS[workload.plans.rules](workload)
