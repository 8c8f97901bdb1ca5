"""The public API: its names, and that importing the package costs nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

import itertime

CLASSES = [
    *["Evaluation", "ModelSpec", "PLANNERS", "Plan", "PlanBatch", "PlannedRun", "Planner", "Prediction"],
    *["Profile", "SearchResult", "Site", "Space", "System", "WHOLE"],
]
FUNCTIONS = [
    *[
        "evaluate",
        "list_models",
        "list_profiles",
        "list_systems",
        "load_model",
        "load_profile",
        "load_system",
    ],
    *["make_planner", "predict", "search"],
]
NAMES = [*CLASSES, *FUNCTIONS]


def test_the_public_names_are_these():
    assert itertime.__all__ == NAMES
    assert all(getattr(itertime, name) is not None for name in NAMES)


def test_an_unknown_attribute_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        itertime.nothing  # noqa: B018


def test_importing_the_package_imports_nothing_heavy():
    code = "import sys, itertime; print('numpy' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "False\n"
    )


def test_no_module_takes_the_name_of_a_public_function():
    """`itertime.predict` must be the function, whatever was imported before."""
    code = "import itertime.prediction; from itertime import predict; print(predict.__name__)"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "predict\n"
    )
