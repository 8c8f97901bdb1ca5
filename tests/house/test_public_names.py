"""The public names of the packages: which they are, that type checkers know the lazy ones, and that importing
a package imports nothing heavy.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tests.places import ROOT

PUBLIC = {
    "clustersim": [
        "Cluster", "JobView", "Overheads", "PolicyError", "Proposal", "Run", "RunConfig", "RunSetup",
        "Scheduler", "Simulation", "State", "UserError", "compare", "read_results", "read_run", "run",
        "run_grid", "what_if", "write_run",
    ],
    "clustersim.scheduler": [
        "Cluster", "Event", "JobCurve", "JobTable", "JobView", "Kernels", "LEAST_LEFT", "PolicyError",
        "Proposal", "Ranking", "Scheduler", "State",
    ],
    "clustersim.testing": [
        "BrokenCase", "CASES", "Case", "Decision", "Outcome", "check_case", "check_outcome",
        "check_parameters", "check_scheduler", "decide", "simulate",
    ],
    "itertime": [
        "Evaluation", "ModelSpec", "PLANNERS", "Plan", "PlanBatch", "PlannedRun", "Planner", "Prediction",
        "Profile", "SearchResult", "Site", "Space", "System", "WHOLE", "evaluate", "list_models",
        "list_profiles", "list_systems", "load_model", "load_profile", "load_system", "make_planner",
        "predict", "search",
    ],
    "traces": ["Job", "read_trace", "submission_order", "write_trace"],
}  # fmt: skip
LAZY = ("clustersim", "itertime")


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names(name: str) -> None:
    module = import_module(name)
    assert sorted(module.__all__) == sorted(PUBLIC[name])
    assert all(getattr(module, public) is not None for public in module.__all__)


@pytest.mark.parametrize("package", LAZY)
def test_type_checkers_see_the_lazy_names(package: str) -> None:
    """What is imported under TYPE_CHECKING is what the package offers."""
    tree = ast.parse((ROOT / package / "__init__.py").read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    assert ast.unparse(block.test) == "TYPE_CHECKING"
    homes = {
        alias.asname: node.module or ""
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    }
    module = import_module(package)
    assert sorted(homes) == sorted(module.__all__)
    assert all(getattr(import_module(homes[name]), name) is getattr(module, name) for name in homes)


@pytest.mark.long
def test_type_checkers_know_the_public_names(tmp_path: Path) -> None:
    """mypy sees a function's own signature, and refuses names that the package does not have."""
    pytest.importorskip("mypy")
    code = tmp_path / "code.py"
    code.write_text("import itertime\nreveal_type(itertime.predict)\nitertime.nothing\n")
    command = [sys.executable, "-m", "mypy", "--follow-imports=silent", str(code)]
    found = subprocess.run(command, capture_output=True, text=True, cwd=ROOT).stdout
    assert 'note: Revealed type is "def (model: itertime' in found
    assert "Any" not in found
    assert 'has no attribute "nothing"' in found


@pytest.mark.parametrize("package", LAZY)
def test_an_unknown_attribute_is_an_attribute_error(package: str) -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        import_module(package).nothing  # noqa: B018


def test_importing_itertime_imports_nothing_heavy_and_its_modules_hide_no_function() -> None:
    code = (
        "import sys, itertime; print('numpy' in sys.modules)\n"
        "import itertime.prediction; from itertime import predict; print(predict.__name__)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown == "False\npredict\n"
