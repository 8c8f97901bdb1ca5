"""The public API: its names, and that importing the package costs nothing."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

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


def test_the_names_for_type_checkers_are_those_of_the_table():
    (block,) = [
        node for node in ast.parse(Path(itertime.__file__).read_text()).body if isinstance(node, ast.If)
    ]
    assert ast.unparse(block.test) == "TYPE_CHECKING"
    imported = {
        alias.asname: (node.module, alias.name)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imported == {name: (home, name) for name, home in itertime._HOMES.items()}


def test_type_checkers_know_the_public_names(tmp_path):
    """mypy sees a function's own signature, and refuses names that the package does not have."""
    pytest.importorskip("mypy")
    code = tmp_path / "code.py"
    code.write_text(
        "import itertime\n"
        "reveal_type(itertime.predict)\n"
        "reveal_type(itertime.load_system)\n"
        "itertime.nothing\n"
    )
    root = Path(itertime.__file__).parents[1]
    command = [sys.executable, "-m", "mypy", "--follow-imports=silent", str(code)]
    found = subprocess.run(command, capture_output=True, text=True, cwd=root).stdout
    assert 'note: Revealed type is "def (model: itertime' in found
    assert "-> itertime" in found
    assert "Any" not in found
    assert 'has no attribute "nothing"' in found


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
    """`itertime.predict` is the function, also after an import of the module that defines it."""
    code = "import itertime.prediction; from itertime import predict; print(predict.__name__)"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "predict\n"
    )
