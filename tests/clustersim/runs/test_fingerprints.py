"""What a result depends on: the parts of the program whose hash a manifest states."""

from __future__ import annotations

from pathlib import Path

import pytest

from clustersim.runs import code_hash
from clustersim.runs.fingerprints import PARTS, SIMULATOR, hash_of_parts
from tests.house.test_layers import arrows, modules


def test_the_parts_that_count() -> None:
    """Changes to these parts outdate earlier results. All other packages only look at results."""
    assert list(PARTS) == ["itertime", "traces", "clustersim"]
    assert PARTS["itertime"] == PARTS["traces"] == (".",)
    assert set(SIMULATOR) == {
        "cluster", "overheads", "failures", "placement", "records", "speed", "bounds", "jobs", "rundir",
        "analysis", "scheduler", "engine", "runs", "errors.py", "gctuning.py",
    }  # fmt: skip
    assert len(code_hash()) == 64


def test_the_parts_are_all_that_a_run_imports() -> None:
    seen: set[str] = set()
    waiting = ["clustersim.runs.run"]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += arrows()[name]
    units = {modules()[name].unit for name in seen if name.startswith("clustersim.")}
    assert units == {part.removesuffix(".py") for part in SIMULATOR}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name in ("engine/clock.py", "engine/deep/table.json", "report/page.py", "errors.py", "cli.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("engine/clock.py", True), ("engine/deep/table.json", True), ("errors.py", True),
        ("engine/new.py", True), ("report/page.py", False), ("cli.py", False),
        ("engine/__pycache__/clock.pyc", False),
    ],
)  # fmt: skip
def test_files_of_the_parts_count_and_others_do_not(package: Path, name: str, counts: bool) -> None:
    hash_of_package = hash_of_parts(package, ("engine", "errors.py"))
    (package / name).parent.mkdir(exist_ok=True)
    (package / name).write_text("2")
    assert (hash_of_parts(package, ("engine", "errors.py")) != hash_of_package) == counts


def test_a_part_that_is_missing_is_a_mistake(package: Path) -> None:
    with pytest.raises(AssertionError, match="placement"):
        hash_of_parts(package, ("placement",))
