"""Changed systems and the memory headroom: in speeds, plans, manifests, proofs and replays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clustersim.audit import check_run_folder, replay
from clustersim.cli import main
from clustersim.cluster import Cluster, load_cluster
from clustersim.records import Run
from clustersim.rundir import write_run
from clustersim.runs import RunConfig, run
from clustersim.runs.fingerprints import recipe_hash, systems_hash
from clustersim.speed import speed_for
from itertime import load_profile
from itertime.errors import UserError
from itertime.spec import load_system
from traces import Job, write_trace
from traces.synthetic import Recipe, generate


def config(*settings: str, system: str = "dgx-a100-80gb") -> RunConfig:
    return RunConfig.make(list(settings), policy="fifo", cluster="n8g8", system=system)


def jobs() -> list[Job]:
    models = ("megatron-18.4b", "deepseek-v3")
    return [
        Job(job_id=name, submit_s=60.0 * i, model=models[i], global_batch=256, gpus=64, iterations=10.0)
        for i, name in enumerate("ab")
    ]


def test_a_run_on_a_changed_system_is_slower_and_is_proved(tmp_path: Path) -> None:
    trace, out = tmp_path / "jobs.csv", tmp_path / "out"
    write_trace(jobs(), trace)
    plain = run(trace, config=config())
    settings = config("system.nic_gbps=10", "system.site.launch_us= 50", system="dgx-h100")
    assert settings.system == "dgx-h100,nic_gbps=10,site.launch_us=50"
    changed = run(trace, config=config("system.nic_gbps=10"), out=out)
    assert changed.summary["makespan_s"] > 1.05 * plain.summary["makespan_s"]
    assert not [found for found in check_run_folder(out) if found.violations or found.unproved]
    assert replay(out).violations == ()
    assert '"dgx-a100-80gb,nic_gbps=10"' in (out / "manifest.json").read_text()


def test_a_run_reads_a_file_of_the_user_again_when_it_has_changed(tmp_path: Path) -> None:
    """Shipped systems, and the clusters made of them, are kept for later runs; those of a user are not."""
    system = tmp_path / "mine.yaml"
    system.write_text("extends: dgx-a100-80gb\n")
    runs = [run(jobs(), config=config(system=str(system)))]
    system.write_text("extends: dgx-a100-80gb\nnic_gbps: 10\n")
    runs.append(run(jobs(), config=config(system=str(system))))
    makespans = [finished.summary["makespan_s"] for finished in runs]
    assert makespans[1] > 1.05 * makespans[0]
    hashes = {finished.manifest["systems_sha256"] for finished in runs}
    assert len(hashes) == 2
    assert load_cluster("n8g8", "dgx-a100-80gb") is load_cluster("n8g8", "dgx-a100-80gb")
    for network in (None, "tiers"):
        clusters = [load_cluster("n8g8", str(system), network) for _ in range(2)]
        assert clusters[0] is not clusters[1]


def test_a_job_whose_model_is_refused_is_rejected_with_the_reason(tmp_path: Path) -> None:
    model = tmp_path / "unfused.yaml"
    model.write_text("extends: deepseek-v3\nattention: core\n")
    first, second = jobs()
    found = {
        record.job_id: record
        for record in run([first, replace(second, model=str(model))], config=config()).jobs
    }
    assert found["a"].state == "finished"
    assert found["b"].state == "rejected"
    assert "unfused.yaml cannot be predicted: compressed keys and values" in found["b"].reason


@pytest.mark.parametrize("change", ["nic_gbps={}", "{}=1", "site.launch_us={}", "gpus_per_node={}"])
def test_of_a_long_change_the_beginning_is_shown(change: str) -> None:
    with pytest.raises(UserError, match=r"xxx\.\.\.'?: ") as caught:
        run(jobs(), config=config("system." + change.format("x" * 100_000)))
    assert len(str(caught.value)) < 1500


def test_hashes_cover_every_file_of_a_chain(tmp_path: Path) -> None:
    base, mine = tmp_path / "base.yaml", tmp_path / "mine.yaml"
    base.write_text("extends: dgx-a100-80gb\nnic_gbps: 100\n")
    mine.write_text("extends: base.yaml\n")

    def hashes(system: str) -> tuple[str, str | None]:
        cluster = Cluster.parse("n8g8", system)
        return systems_hash(cluster, speed_for(cluster, "3d")), recipe_hash({"system": system})

    for name in (str(mine), f"{mine},nics_per_node=2"):
        base.write_text("extends: dgx-a100-80gb\nnic_gbps: 100\n")
        before = hashes(name)
        assert hashes(name) == before
        base.write_text("extends: dgx-a100-80gb\nnic_gbps: 200\n")
        assert all(now != then for now, then in zip(hashes(name), before, strict=True))
    assert recipe_hash({"system": "dgx-a100-80gb"}) is None
    with pytest.raises(ValueError, match="unknown system"):
        recipe_hash({"system": "nothing"})


def test_a_cluster_file_names_changed_systems_relative_to_itself(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("extends: dgx-a100-80gb\nnics_per_node: 4\n")
    (tmp_path / "cluster.yaml").write_text(
        "groups: [{name: a, nodes: 4, system: 'mine.yaml,nic_gbps=80'}, "
        "{name: b, gpu_type: h100, nodes: 4, system: 'dgx-h100,nic_gbps=160'}]"
    )
    cluster = load_cluster(str(tmp_path / "cluster.yaml"))
    systems = [load_system(str(pool.system)) for pool in cluster.pools]
    assert [system.nic_bytes_per_s for system in systems] == [10e9, 20e9]
    assert systems[0].nics_per_node == 4


def test_a_folder_with_a_plan_that_cannot_train_its_model_is_a_forgery(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(jobs()[:1], config=config(), out=out)
    for name in ("jobs.csv", "plans.csv"):
        text = (out / name).read_text()
        (out / name).write_text(text.replace("megatron-18.4b", "deepseek-v2"))
    texts = [violation.text for found in check_run_folder(out) for violation in found.violations]
    assert any("cannot train deepseek-v2: tp=2: needs sequence_parallel" in text for text in texts)


pytestmark = pytest.mark.usefixtures("wide_terminal")

CAPACITY_GB = load_profile("a100-80gb").memory_bytes / 1e9
# On 16 A100s the fastest 3d plan of this job needs 99 % of the memory.
TIGHT = [Job("tight", 0.0, model="gpt3-13b", global_batch=128, iterations=10.0, gpus=16)]


def run_with(headroom: float | None, folder: Path, jobs: Sequence[Job] = TIGHT) -> Run:
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
    assert checked(replace(full, manifest=older), tmp_path / "new", capsys)[0] == 4
    older["versions"] = {**older["versions"], "code": "0" * 64}
    assert checked(replace(full, manifest=older), tmp_path / "old", capsys)[0] == 0


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
