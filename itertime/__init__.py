"""Iteration time of 3D-parallel training, from measured operator and collective profiles.

>>> from itertime import Plan, load_model, load_system, predict
>>> plan = Plan(tp=8, pp=1, dp=8, micro_batch=4, global_batch=512)
>>> predict(load_model("megatron-18.4b"), plan, load_system("dgx-a100-80gb")).fits
True

| name | what |
|---|---|
| `predict`, `Prediction` | seconds and memory of one plan, part by part, and whether it fits |
| `evaluate`, `Evaluation` | the same for many plans at once, in arrays |
| `search`, `SearchResult` | the best plans on a number of GPUs |
| `Space`, `WHOLE` | the choices of a search; those of the default |
| `make_planner`, `Planner`, `PlannedRun`, `PLANNERS` | plans chosen by a rule, for every number of GPUs |
| `ModelSpec`, `load_model`, `list_models` | what is trained |
| `Plan`, `PlanBatch` | how: one plan, many plans as columns |
| `System`, `Site`, `load_system`, `list_systems` | on what: nodes, links, a site's constants |
| `Profile`, `load_profile`, `list_profiles` | how fast one GPU type runs its kernels |

Why
- There is one implementation, in arrays: `predict` is `evaluate` of one plan, so single and batched results
  are equal.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

_NAMES = {
    "itertime.planning": "PLANNERS PlannedRun Planner SearchResult Space WHOLE make_planner search",
    "itertime.prediction": "Evaluation Prediction evaluate predict",
    "itertime.spec": "ModelSpec Plan PlanBatch Profile Site System list_models list_profiles list_systems "
    "load_model load_profile load_system",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}
__all__ = sorted(_HOMES)

if TYPE_CHECKING:
    from itertime.planning import PLANNERS as PLANNERS
    from itertime.planning import WHOLE as WHOLE
    from itertime.planning import PlannedRun as PlannedRun
    from itertime.planning import Planner as Planner
    from itertime.planning import SearchResult as SearchResult
    from itertime.planning import Space as Space
    from itertime.planning import make_planner as make_planner
    from itertime.planning import search as search
    from itertime.prediction import Evaluation as Evaluation
    from itertime.prediction import Prediction as Prediction
    from itertime.prediction import evaluate as evaluate
    from itertime.prediction import predict as predict
    from itertime.spec import ModelSpec as ModelSpec
    from itertime.spec import Plan as Plan
    from itertime.spec import PlanBatch as PlanBatch
    from itertime.spec import Profile as Profile
    from itertime.spec import Site as Site
    from itertime.spec import System as System
    from itertime.spec import list_models as list_models
    from itertime.spec import list_profiles as list_profiles
    from itertime.spec import list_systems as list_systems
    from itertime.spec import load_model as load_model
    from itertime.spec import load_profile as load_profile
    from itertime.spec import load_system as load_system
else:

    def __dir__() -> list[str]:
        """The public names."""
        return sorted([*__all__, "__version__"])

    def __getattr__(name: str) -> object:
        """Import on first use, so that the commands' --help does not wait for numpy."""
        if name == "__version__":
            return import_module("importlib.metadata").version("clustersim")
        if name not in _HOMES:
            raise AttributeError(f"module 'itertime' has no attribute {name!r}")
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
