"""An installed wheel has every file that the packages read, and set-up files agree with each other."""

import fnmatch
import re
import tomllib
from pathlib import Path

import yaml

from tests.places import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PATTERNS = PROJECT["tool"]["setuptools"]["package-data"]
NOT_SHIPPED = ("traces/samples/",)
"""Read by the README's commands in a clone alone."""


def data_files(package: str) -> list[str]:
    """The files of a package that are no modules."""
    found = (path for path in sorted((ROOT / package).rglob("*")) if path.is_file())
    names = [str(path.relative_to(ROOT)) for path in found if "__pycache__" not in path.parts]
    return [name for name in names if not name.endswith(".py") and not name.startswith(NOT_SHIPPED)]


def test_the_wheel_holds_every_data_file() -> None:
    for package in ("clustersim", "itertime", "traces", "policies"):
        patterns = [f"{package}/{pattern}" for pattern in PATTERNS.get(package, ())]
        missing = [
            name for name in data_files(package) if not any(fnmatch.fnmatch(name, each) for each in patterns)
        ]
        assert not missing


def test_the_workflow_runs_the_scripts() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    lines = [step.get("run", "") for job in workflow["jobs"].values() for step in job["steps"]]
    for script in (".ci/run", ".ci/lowest"):
        assert script in lines
        assert (ROOT / script).stat().st_mode & 0o100


def test_versions_agree() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["version"] == PROJECT["project"]["version"]
    assert cited["license"] == PROJECT["project"]["license"]


def test_the_container_installs_what_the_constraints_state() -> None:
    lines = (ROOT / "Containerfile").read_text(encoding="utf-8")
    assert "python:3.11-slim" in lines
    assert "--constraint /dist/constraints.txt" in lines
    assert Path(ROOT / "constraints.txt").exists()


def test_every_dependency_of_ci_is_pinned() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {line.partition("==")[0].lower() for line in lines}
    assert all(re.fullmatch(r"[\w.-]+==[\w.!+]+", line) for line in lines), "names and versions alone"
    extras = {**PROJECT["project"]["optional-dependencies"]}
    for extra in ("profile", "bench"):  # measured on other machines; CI does not install them
        del extras[extra]
    stated = [*PROJECT["project"]["dependencies"], *(one for several in extras.values() for one in several)]
    names = {re.match(r"[\w.-]+", one)[0].lower() for one in stated}  # type: ignore[index]
    assert not names - pinned
