"""The memory headroom of a run: planners keep it, the manifest states it, `check` and a replay honour it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clustersim.audit import replay
from clustersim.cli import main
from clustersim.records import Run
from clustersim.rundir import write_run
from clustersim.runs import run
from itertime import load_profile
from itertime.errors import UserError
from traces.job import Job
from traces.native import write_trace
from traces.synthetic import Recipe, generate

pytestmark = pytest.mark.usefixtures("wide_terminal")

CAPACITY_GB = load_profile("a100-80gb").memory_bytes / 1e9
# On 16 A100s the fastest 3d plan of this job needs 99 % of the memory.
JOBS = [Job("tight", 0.0, model="gpt3-13b", global_batch=128, iterations=10.0, gpus=16)]


def run_with(headroom: float | None, folder: Path, jobs: Sequence[Job] = JOBS) -> Run:
    write_trace(jobs, folder / "trace.csv")
    settings = {} if headroom is None else {"memory_headroom": headroom}
    return run(folder / "trace.csv", "fifo", cluster="n2g8", out=folder / "run", **settings)


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The plan fills 99 % of the memory."""
    return run_with(0.0, tmp_path_factory.mktemp("full"))


@pytest.mark.parametrize(("headroom", "kept"), [(None, 0.1), (0.0, 0.0), (0.3, 0.3)])
def test_plans_of_a_run_leave_the_headroom(
    headroom: float | None, kept: float, full: Run, tmp_path: Path
) -> None:
    """It changes the plan and slows the job."""
    done = run_with(headroom, tmp_path)
    (plan,) = done.plans
    assert plan.memory_gb <= (1 - kept) * CAPACITY_GB
    (tight,) = full.plans
    assert tight.memory_gb > 0.9 * CAPACITY_GB
    assert (plan.plan == tight.plan, plan.iteration_s > tight.iteration_s) == (kept == 0, kept > 0)
    assert done.manifest["memory_headroom"] == kept
    assert main(["check", str(tmp_path / "run")]) == 0
    assert replay(tmp_path / "run").violations == ()


def checked(made: Run, folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    write_run(folder, made)
    return main(["check", str(folder)]), "".join(capsys.readouterr())


@pytest.mark.parametrize("stated", [0.1, "lots", True, None, [0.1], 1.0, -1, 10**400])
def test_check_survives_any_headroom(
    stated: Any, full: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A plan that fills 99 % of the memory cannot be of a run that left a tenth free."""
    forged = replace(full, manifest={**full.manifest, "memory_headroom": stated})
    code, said = checked(forged, tmp_path, capsys)
    if stated == 0.1:
        assert (code, "leave the memory headroom of 0.1" in said) == (4, True)
    elif stated == 10**400:
        assert (code, "manifest.json" in said) == (2, True)
    else:
        assert (code in (0, 4), "not recomputed: memory_headroom=" in said) == (True, True)


def test_a_run_of_before_there_was_a_headroom_had_none(
    full: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    older = {name: value for name, value in full.manifest.items() if name != "memory_headroom"}
    assert checked(replace(full, manifest=older), tmp_path, capsys)[0] == 0


def test_work_of_a_generated_trace_is_that_of_plans_with_the_headroom() -> None:
    """iterations = run time / iteration time, and the same run times are drawn for every headroom."""
    recipe = Recipe(jobs=40, sizes="itp", planner="3d", seed=5)
    made = [generate(replace(recipe, memory_headroom=headroom)) for headroom in (0.0, 0.1, 0.2)]
    works = [[job.iterations for job in jobs] for jobs, _ in made]
    assert works[0] != works[1] != works[2]
    assert all(
        more is None or less is None or more <= less for more, less in zip(works[2], works[0], strict=True)
    )
    assert [job.duration_s for job in made[0][0]] == [job.duration_s for job in made[2][0]]
    with pytest.raises(UserError, match="memory_headroom=1"):
        replace(recipe, memory_headroom=1)
