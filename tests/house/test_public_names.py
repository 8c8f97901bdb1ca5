"""Which package may import which (docs/design.md), and the public names of the packages."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from tests.places import ROOT

OURS = ("itertime", "traces", "clustersim", "policies", "experiments", "tests")
ALLOWED = {
    "itertime": {"itertime"},
    "traces": {"traces", "itertime"},
    "clustersim": {"clustersim", "traces", "itertime"},
    "policies": {"policies", "clustersim"},
}
SCHEDULER_API = "clustersim.scheduler"
PUBLIC = {
    "clustersim": [
        "Cluster", "JobView", "Overheads", "PolicyError", "Proposal", "Run", "RunConfig", "RunSetup",
        "Scheduler", "Simulation", "State", "UserError", "compare", "read_results", "read_run", "run",
        "run_grid", "what_if", "write_run",
    ],
    "clustersim.scheduler": [
        "Cluster", "Event", "JobCurve", "JobView", "LEAST_LEFT", "PolicyError", "Proposal", "Ranking",
        "Scheduler", "State",
    ],
    "clustersim.testing": [
        "BrokenCase", "CASES", "Case", "Decision", "Outcome", "check_case", "check_outcome",
        "check_parameters", "check_scheduler", "decide", "simulate",
    ],
    "traces": ["Job", "read_trace", "submission_order", "write_trace"],
}  # fmt: skip


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imports(path: Path, root: Path = ROOT) -> Iterator[str]:
    """The absolute name of everything that a file imports, also inside functions, also relative."""
    package = list(path.relative_to(root).with_suffix("").parts)[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            home = ".".join([*base, *([node.module] if node.module else [])])
            yield home
            yield from (f"{home}.{alias.name}" for alias in node.names)
        elif (
            isinstance(node, ast.Call)
            and getattr(node.func, "id", getattr(node.func, "attr", "")) == "import_module"
        ):
            yield from (
                arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
            )


@pytest.mark.parametrize("package", ALLOWED)
def test_packages_import_only_what_they_may(package: str) -> None:
    files = modules(package)
    assert files
    wrong = {
        f"{path.relative_to(ROOT)} imports {name}"
        for path in files
        for name in imports(path)
        if name.split(".")[0] in OURS and name.split(".")[0] not in ALLOWED[package]
    }
    assert not wrong


def test_policies_see_the_scheduler_api_alone() -> None:
    api = {SCHEDULER_API, *(f"{SCHEDULER_API}.{name}" for name in PUBLIC[SCHEDULER_API])}
    wrong = {
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules("policies")
        for name in imports(path)
        if name.split(".")[0] == "clustersim" and name not in api
    }
    assert not wrong


def test_the_engine_knows_no_policy() -> None:
    """Policies reach a run by entry points alone, so no module of the simulator names one."""
    rooms = ("cluster", "failures", "placement", "records", "speed", "jobs", "rundir", "scheduler", "engine")
    engine = [path for room in rooms for path in modules(f"clustersim/{room}")]
    assert len(engine) > 50
    names = {path.stem.replace("_", "-") for path in (ROOT / "policies").glob("*.py")} - {"--init--"}
    for path in engine:
        strings = {n.value for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Constant)}
        assert not strings & names, path


def test_relative_imports_are_seen(tmp_path: Path) -> None:
    """The check itself: a rule that looks at absolute imports alone would let these pass."""
    path = tmp_path / "clustersim" / "commands" / "x.py"
    path.parent.mkdir(parents=True)
    path.write_text(
        "from .. import speed\nfrom ..speed import Speed\nfrom . import output\nimport policies.fifo as f\n"
        "def later():\n    from itertime import predict\n    import_module('policies.srtf')\n"
    )
    assert list(imports(path, tmp_path)) == [
        "clustersim", "clustersim.speed", "clustersim.speed", "clustersim.speed.Speed", "clustersim.commands",
        "clustersim.commands.output", "policies.fifo", "itertime", "itertime.predict", "policies.srtf",
    ]  # fmt: skip


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names(name: str) -> None:
    module = import_module(name)
    assert sorted(module.__all__) == sorted(PUBLIC[name])
    assert all(hasattr(module, public) for public in module.__all__)


def test_type_checkers_see_the_lazy_names_of_clustersim() -> None:
    tree = ast.parse((ROOT / "clustersim" / "__init__.py").read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    stated = {
        alias.asname: f"{'clustersim.' * node.level}{node.module}"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    }
    table = next(
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_HOMES"
    )
    assert stated == ast.literal_eval(table)


@pytest.mark.parametrize("package", ALLOWED)
def test_every_module_states_its_public_names(package: str) -> None:
    missing = []
    for path in modules(package):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assigned = {
            t.id for n in tree.body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)
        }
        defines = any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in tree.body)
        if defines and "__all__" not in assigned:
            missing.append(str(path.relative_to(ROOT)))
    assert not missing
