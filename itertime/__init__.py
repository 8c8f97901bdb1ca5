"""Iteration time of 3D-parallel training, from measured operator and collective profiles.

>>> from itertime import Plan, load_model, load_system, predict
>>> plan = Plan(tp=8, pp=1, dp=8, micro_batch=4, global_batch=512)
>>> predict(load_model("megatron-18.4b"), plan, load_system("dgx-a100-80gb")).fits
True
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOME = {
    "Evaluation": "prediction",
    "ModelSpec": "model",
    "PLANNERS": "planner",
    "Plan": "plan",
    "PlanBatch": "planbatch",
    "PlannedRun": "planner",
    "Planner": "planner",
    "Prediction": "prediction",
    "Profile": "profile",
    "SearchResult": "plansearch",
    "Site": "system",
    "Space": "planspace",
    "System": "system",
    "WHOLE": "planspace",
    "evaluate": "prediction",
    "list_models": "model",
    "list_profiles": "profile",
    "list_systems": "system",
    "load_model": "model",
    "load_profile": "profile",
    "load_system": "system",
    "make_planner": "planner",
    "predict": "prediction",
    "search": "plansearch",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    """Names are imported on first use: the commands' --help must not wait for numpy."""
    if name not in _HOME:
        raise AttributeError(f"module 'itertime' has no attribute {name!r}")
    value = getattr(import_module(f"itertime.{_HOME[name]}"), name)
    globals()[name] = value
    return value
