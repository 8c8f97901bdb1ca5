"""Iteration time of 3D-parallel training, from measured operator and collective profiles.

>>> from itertime import Plan, load_model, load_system, predict
>>> plan = Plan(tp=8, pp=1, dp=8, micro_batch=4, global_batch=512)
>>> predict(load_model("megatron-18.4b"), plan, load_system("dgx-a100-80gb")).fits
True
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

_HOMES = {
    "Evaluation": "itertime.prediction",
    "ModelSpec": "itertime.model",
    "PLANNERS": "itertime.planner",
    "Plan": "itertime.plan",
    "PlanBatch": "itertime.planbatch",
    "PlannedRun": "itertime.planner",
    "Planner": "itertime.planner",
    "Prediction": "itertime.prediction",
    "Profile": "itertime.profile",
    "SearchResult": "itertime.plansearch",
    "Site": "itertime.system",
    "Space": "itertime.planspace",
    "System": "itertime.system",
    "WHOLE": "itertime.planspace",
    "evaluate": "itertime.prediction",
    "list_models": "itertime.model",
    "list_profiles": "itertime.profile",
    "list_systems": "itertime.system",
    "load_model": "itertime.model",
    "load_profile": "itertime.profile",
    "load_system": "itertime.system",
    "make_planner": "itertime.planner",
    "predict": "itertime.prediction",
    "search": "itertime.plansearch",
}

__all__ = sorted(_HOMES)

if TYPE_CHECKING:
    from itertime.model import ModelSpec as ModelSpec
    from itertime.model import list_models as list_models
    from itertime.model import load_model as load_model
    from itertime.plan import Plan as Plan
    from itertime.planbatch import PlanBatch as PlanBatch
    from itertime.planner import PLANNERS as PLANNERS
    from itertime.planner import PlannedRun as PlannedRun
    from itertime.planner import Planner as Planner
    from itertime.planner import make_planner as make_planner
    from itertime.plansearch import SearchResult as SearchResult
    from itertime.plansearch import search as search
    from itertime.planspace import WHOLE as WHOLE
    from itertime.planspace import Space as Space
    from itertime.prediction import Evaluation as Evaluation
    from itertime.prediction import Prediction as Prediction
    from itertime.prediction import evaluate as evaluate
    from itertime.prediction import predict as predict
    from itertime.profile import Profile as Profile
    from itertime.profile import list_profiles as list_profiles
    from itertime.profile import load_profile as load_profile
    from itertime.system import Site as Site
    from itertime.system import System as System
    from itertime.system import list_systems as list_systems
    from itertime.system import load_system as load_system
else:

    def __getattr__(name: str) -> object:
        """Import on first use, so that the commands' --help does not wait for numpy."""
        if name not in _HOMES:
            raise AttributeError(f"module 'itertime' has no attribute {name!r}")
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
