"""Settings: what they mean and resolve to; changed systems and estimates: in manifests, proofs, replays."""

from collections.abc import Sequence
from dataclasses import fields, replace
from math import log
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import pytest
import typer
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import clustersim
from clustersim import RunSetup, Simulation
from clustersim.audit import check_run_folder, replay
from clustersim.cli import app, main
from clustersim.cluster import Cluster, load_cluster
from clustersim.commands.help.options import RunOptions
from clustersim.overheads import Overheads
from clustersim.records import MemoryRecorder, Run
from clustersim.rundir import read_run, write_run
from clustersim.runs import SETTINGS, Entry, RunConfig, Trace, run, setup_of
from clustersim.runs.fingerprints import recipe_hash, systems_hash
from clustersim.scheduler import Proposal, Scheduler, State
from clustersim.speed import SpeedOnOneType, speed_for
from itertime import load_profile
from itertime.errors import UserError
from itertime.spec import load_system
from policies.fifo import Fifo
from tests.builders import rigid
from tests.effort import rotated
from traces import Job, write_trace
from traces.estimates import PREDICTORS, Estimates
from traces.synthetic import Recipe, generate


def make(*assignments: str, **values: Any) -> RunConfig:
    return RunConfig.make(list(assignments), **{"policy": "fifo", **values})


def test_defaults() -> None:
    config = make()
    assert (config.cluster, config.system) == ("n128g8", "dgx-a100-80gb")
    assert (config.placement, config.seed, config.planner) == ("pack", 0, None)
    assert (config.overheads, config.params, config.until_s) == ({}, {}, None)


ASSIGNMENTS = yaml.safe_load(Path(__file__).with_name("assignments.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("assignments", "field", "value"), ASSIGNMENTS)
def test_assignments_add_up_and_the_last_counts(assignments: list[str], field: str, value: Any) -> None:
    stated = getattr(make(*assignments), field)
    assert (stated, type(stated)) == (value, type(value))


@given(st.text(max_size=40))
@settings(deadline=None)
def test_arbitrary_text_ends_in_a_config_or_one_clear_error(text: str) -> None:
    try:
        config = make(text)
    except UserError:
        return
    assert isinstance(config, RunConfig)


def test_numbers_as_people_write_them(tmp_path: Path) -> None:
    """YAML 1.1 takes 1e3 for text."""
    assert RunConfig.make(["policy.guard_s=1e3"], policy="elasticflow").params == {"guard_s": 1000.0}
    within = RunConfig.make(["policy.x=[100, 1e9, -1.5E-3, {a: .5e1}, 1e, e9, '1e9']"], policy="mine").params
    assert within == {"x": [100, 1e9, -1.5e-3, {"a": 5.0}, "1e", "e9", "1e9"]}
    (tmp_path / "plan.yaml").write_text("calendar: [{at_s: 1e3, remove: 1}]\n")
    assert RunConfig.make([f"calendar={tmp_path}/plan.yaml"], policy="fifo").calendar[0]["at_s"] == 1000.0


def test_every_setting_resolves_to_a_field_of_its_own() -> None:
    resolved = [setting.field for setting in SETTINGS.values() if setting.field]
    assert len(resolved) == len(set(resolved))
    assert set(resolved) < {field.name for field in fields(RunSetup)}


@pytest.mark.parametrize("command", ["run", "compare"])
def test_every_option_is_one_of_the_command(command: str) -> None:
    group = typer.main.get_command(app)
    options = {option for parameter in group.commands[command].params for option in parameter.opts}  # type: ignore[attr-defined]
    declared = {option for setting in SETTINGS.values() for option in (setting.option, setting.off_option)}
    assert declared - options <= {"", "--policy"}


def test_options_have_the_defaults_of_their_settings() -> None:
    options = vars(RunOptions())
    for name, setting in SETTINGS.items():
        if options.get(setting.parameter) is not None:
            assert options[setting.parameter] == RunConfig.model_fields[name].default, name


def test_policies_have_what_settings_leave_to_them() -> None:
    assert all(hasattr(Scheduler, name) for name, setting in SETTINGS.items() if setting.of_policy)


def test_a_manifest_has_the_entries_that_are_declared() -> None:
    stated = {
        "sharing": {"slowdown": 1.5},
        "variability": {"sigma": 0.1},
        "reservations": [{"at_s": 0, "for_s": 9, "nodes": "0", "tenants": ["a"]}],
    }
    manifests = [
        run([Job("a", 0.0, gpus=8, duration_s=60.0)], "fifo", cluster="n2g8", bound="none", **more).manifest
        for more in ({}, stated)
    ]
    for name, setting in SETTINGS.items():
        shown = [name in manifest for manifest in manifests]
        expected = {
            Entry.NEEDED: [True, True],
            Entry.ALWAYS: [True, True],
            Entry.IF_STATED: [False, name in stated],
            Entry.NO: [name in ("policy", "cluster", "bound")] * 2,
        }
        assert shown == expected[setting.entry], name
    assert manifests[1]["variability"] == {"sigma": 0.1, "classes": {}, "factors": {}}


CLUSTER = Cluster.parse("n1g8")


def test_three_parts_are_enough() -> None:
    setup = RunSetup(cluster=CLUSTER, scheduler=Fifo(), speed=SpeedOnOneType(CLUSTER, None))
    assert setup.overheads == Overheads()
    assert setup.placer.name == "pack"
    recorder = MemoryRecorder(CLUSTER)
    ran = Simulation([Job("a", 5.0, gpus=8, duration_s=60.0)], setup, recorder).run()
    assert ran is recorder
    assert recorder.jobs[0].finish_s == recorder.end_s


def test_settings_are_resolved_once() -> None:
    config = RunConfig.make(
        policy="srtf", cluster="n2g8", overheads=None, quotas={"a": 16}, failures={}, until_s=9.0, seed=3
    )
    setup = setup_of(config)
    assert (setup.cluster.gpus, setup.planner, setup.placer.name) == (16, "best", "pack")
    assert setup.overheads == Overheads.none()
    assert setup.failures is not None
    assert (setup.quotas, setup.until_s, setup.seed) == ({"a": 16}, 9.0, 3)
    other = setup_of(config, Fifo, CLUSTER.parse("n4g8"))
    assert (type(other.scheduler), other.cluster.gpus) == (Fifo, 32)


def test_a_policy_for_one_gpu_type_refuses_a_mixed_cluster(tmp_path: Path) -> None:
    path = tmp_path / "mixed.yaml"
    path.write_text(
        "groups:\n  - {name: old, gpu_type: v100, nodes: 2}\n  - {name: new, gpu_type: a100, nodes: 4}\n"
    )
    cluster = load_cluster(str(path), "dgx-a100-80gb", None)
    scheduler = setup_of(RunConfig(policy="edf-admission", cluster="n2g8")).scheduler
    with pytest.raises(UserError, match="plans with one GPU type, the cluster has"):
        RunSetup(cluster=cluster, scheduler=scheduler, speed=SpeedOnOneType(CLUSTER, None))
    small = "{name: small, gpu_type: v100, nodes: 4, gpus_per_node: 2}"
    path.write_text(f"groups:\n  - {{name: large, gpu_type: v100, nodes: 2}}\n  - {small}\n")
    with pytest.raises(
        UserError, match="Hived plans with nodes of one size, those of v100 have 8 and 2 GPUs"
    ):
        setup_of(RunConfig(policy="hived", cluster=str(path)))


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
        return systems_hash(cluster, speed_for(cluster, "vtrain")), recipe_hash({"system": system})

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
    run(jobs()[:1], config=config("planner=vtrain"), out=out)
    for name in ("jobs.csv", "plans.csv"):
        text = (out / name).read_text()
        (out / name).write_text(text.replace("megatron-18.4b", "deepseek-v2"))
    texts = [violation.text for found in check_run_folder(out) for violation in found.violations]
    assert any("cannot train deepseek-v2: tp=2: needs sequence_parallel" in text for text in texts)


pytestmark = pytest.mark.usefixtures("wide_terminal")

CAPACITY_GB = load_profile("a100-80gb").memory_bytes / 1e9
# On 16 A100s the fastest vtrain plan of this job needs 99 % of the memory.
TIGHT = [Job("tight", 0.0, model="gpt3-13b", global_batch=128, iterations=10.0, gpus=16)]


def run_with(headroom: float | None, folder: Path, jobs: Sequence[Job] = TIGHT) -> Run:
    write_trace(jobs, folder / "trace.csv")
    settings = {} if headroom is None else {"memory_headroom": headroom}
    return run(folder / "trace.csv", "fifo", cluster="n2g8", planner="vtrain", out=folder / "run", **settings)


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The plan fills 99 % of the memory."""
    return run_with(0.0, tmp_path_factory.mktemp("full"))


@pytest.mark.parametrize(("headroom", "kept"), [(None, 0.07), (0.0, 0.0), (0.3, 0.3)])
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
    recipe = Recipe(jobs=40, sizes="itp", planner="vtrain", seed=5)
    made = [generate(replace(recipe, memory_headroom=headroom)) for headroom in (0.0, 0.1, 0.2)]
    works = [[job.iterations for job in jobs] for jobs, _ in made]
    assert works[0] != works[1] != works[2]
    assert all(
        more is None or less is None or more <= less for more, less in zip(works[2], works[0], strict=True)
    )
    assert [job.duration_s for job in made[0][0]] == [job.duration_s for job in made[2][0]]
    with pytest.raises(UserError, match="memory_headroom=1"):
        replace(recipe, memory_headroom=1)


TABLE = "model,global_batch,gpus,iterations_per_s\nm,8,1,1\nm,8,2,1.9\nm,8,4,3.4\nm,8,8,6\n"


def made_up(count: int) -> list[Job]:
    """Jobs of 1 to 8 GPUs, every fifth of a duration, every third with a deadline."""
    random, now, jobs = Random(3), 0.0, []
    for i in range(count):
        now += random.expovariate(1 / 60)
        gpus, run_s = random.choice((1, 2, 4, 8)), random.uniform(60, 900)
        deadline_s = now + run_s * random.uniform(1, 4) if i % 3 == 0 else None
        job = Job(f"j{i}", now, gpus=gpus, duration_s=run_s, deadline_s=deadline_s)
        if i % 5:
            job = replace(job, model="m", global_batch=8, iterations=run_s)
        jobs.append(job)
    return jobs


@pytest.fixture
def table(tmp_path: Path) -> str:
    (tmp_path / "table.csv").write_text(TABLE)
    return str(tmp_path / "table.csv")


def simulated(jobs: list[Job], table: str, policy: str = "srtf", **settings: Any) -> Run:
    return clustersim.run(jobs, policy, cluster="n2g8", table=table, **settings)


@pytest.mark.parametrize("policy", ["srtf", "vtrain-aware"])
def test_sigma_0_equals_no_setting_byte_for_byte(policy: str, table: str, tmp_path: Path) -> None:
    jobs = made_up(40)
    simulated(jobs, table, policy, out=tmp_path / "none")
    simulated(jobs, table, policy, out=tmp_path / "zero", estimates={"sigma": 0})
    for name in ("jobs.csv", "events.csv", "usage.csv", "plans.csv", "summary.json"):
        assert (tmp_path / "none" / name).read_bytes() == (tmp_path / "zero" / name).read_bytes()


@pytest.mark.parametrize("policy", ["srtf", "vtrain-aware", "conservative"])
def test_the_setting_draws_what_the_column_says(policy: str, table: str) -> None:
    jobs, settings = made_up(40), {"estimates": {"sigma": 1.0}}
    column = [Estimates(1.0).applied_to(job, 5) for job in jobs]
    drawn = simulated(jobs, table, policy, seed=5, **settings)
    assert drawn.events == simulated(column, table, policy, seed=5).events
    assert drawn.events == simulated(column, table, policy, seed=6, **settings).events, "theirs stay"
    assert drawn.events != simulated(jobs, table, policy, seed=5).events
    assert drawn.events != simulated(jobs, table, policy, seed=6, **settings).events
    assert drawn.manifest["estimates"] == {"sigma": 1.0}


@pytest.mark.parametrize(("scale", "limits"), [(0.5, (100.0, 150.0, 80.0)), (2.0, (240.0, 600.0, 80.0))])
def test_scaled_limits_stop_no_job_that_was_not_stopped(scale: float, limits: tuple[float, ...]) -> None:
    """Jobs of 100 s by limits of 120 and 300 s, and one that its limit of 80 s stops."""
    jobs = [
        Job(f"{i}", 0.0, gpus=1, duration_s=100.0, time_limit_s=limit)
        for i, limit in enumerate((120.0, 300.0, 80.0))
    ]
    scaled_jobs = [Estimates.of({"scale": scale}).applied_to(job, 0) for job in jobs]
    assert tuple(job.time_limit_s for job in scaled_jobs) == limits
    runs = [clustersim.run(jobs, "fifo", cluster="n1g8", estimates={"scale": s}) for s in (1.0, scale)]
    assert runs[0].events == runs[1].events
    assert (runs[0].manifest["estimates"], runs[1].manifest["estimates"]["scale"]) == ({"sigma": 0.0}, scale)


def test_a_generated_trace_with_the_column_is_the_run_with_the_setting() -> None:
    recipe = Recipe(jobs=12, gpus=64, load=2.0, seed=3, deadlines="none")
    column = Trace.generated(replace(recipe, stated_sigma=0.5))
    ran = clustersim.run(column, "srtf", cluster="n8g8", seed=3)
    drawn = clustersim.run(Trace.generated(recipe), "srtf", cluster="n8g8", seed=3, estimates={"sigma": 0.5})
    assert ran.events == drawn.events


def test_folders_of_versions_without_the_setting_are_replayed(table: str, tmp_path: Path) -> None:
    write_trace(made_up(5), tmp_path / "t.csv")
    clustersim.run(tmp_path / "t.csv", "srtf", cluster="n2g8", table=table, out=tmp_path / "run")
    run = read_run(tmp_path / "run")
    manifest = {name: value for name, value in run.manifest.items() if name != "estimates"}
    write_run(tmp_path / "run", replace(run, manifest=manifest))
    assert not replay(tmp_path / "run").violations


HISTORY = {"predictor": "history"}


def jobs_of_users(seed: int, count: int = 60) -> list[Job]:
    random, now, jobs = Random(seed), 0.0, []
    for i in range(count):
        now += random.expovariate(1 / 40)
        user, gpus = random.choice("abc"), random.choice((1, 2, 4))
        run_s = 10 ** ("abc".index(user) + random.uniform(1, 1.3))
        jobs.append(rigid(f"j{i}", now, gpus, run_s, user=user))
    return jobs


class Watched(Fifo):
    """fifo that notes what it sees of each job on submission: {job: seconds}."""

    seen: dict[str, float] = {}  # noqa: RUF012

    def schedule(self, state: State) -> Proposal:
        for event in state.events:
            if event.kind == "submitted" and event.job is not None:
                assert event.job.estimate_s == event.job.remaining(), "to the last bit"
                self.seen[event.job.id] = event.job.remaining()
        return super().schedule(state)


def seen(jobs: list[Job]) -> dict[str, float]:
    Watched.seen.clear()
    clustersim.run(jobs, Watched, cluster="n1g8", overheads=None, estimates=HISTORY)
    return dict(Watched.seen)


@pytest.mark.parametrize("seed", range(3))
def test_a_prediction_depends_on_what_ended_before_alone(seed: int) -> None:
    """Every job that is submitted in the second half, or ends in it, takes another time: predictions of the
    first half stay. The job in the middle then sees a change of what had ended, and only that.
    """
    jobs = jobs_of_users(seed)
    run = clustersim.run(jobs, "fifo", cluster="n1g8", overheads=None)
    middle_s = jobs[30].submit_s
    over = {record.job_id for record in run.jobs if (record.finish_s or 0) > middle_s}
    longer = [
        replace(job, duration_s=(job.duration_s or 0) * 3) if job.job_id in over else job for job in jobs
    ]
    before, after = seen(jobs), seen(longer)
    early = [job.job_id for job in jobs if job.submit_s <= middle_s]
    assert [before[name] for name in early] == [after[name] for name in early]
    assert before != after


@pytest.mark.parametrize(
    ("policy", "predictor"), rotated(["sjf", "srtf", "srsf", "easy", "conservative", "qssf"], PREDICTORS)
)
def test_policies_do_without_the_oracle(policy: str, predictor: str) -> None:
    run = clustersim.run(
        jobs_of_users(0), policy, cluster="n1g8", overheads=None, estimates={"predictor": predictor}
    )
    assert run.manifest["oracle_used"] is False
    assert {record.state for record in run.jobs} == {"finished"}
    assert run.summary["predictions"]["jobs"] == 60


def test_the_errors_stated_are_those_of_what_policies_saw() -> None:
    jobs = jobs_of_users(1)
    found = seen(jobs)
    errors = [abs(log(found[job.job_id] / (job.duration_s or 0))) for job in jobs]
    stated = clustersim.run(jobs, "fifo", cluster="n1g8", overheads=None, estimates=HISTORY).summary
    assert stated["predictions"]["median_abs_log_error"] == pytest.approx(median(errors))
    assert stated["predictions"]["within_factor_2"] == sum(e <= log(2) for e in errors) / len(errors)
    assert stated["predictions"]["within_factor_2"] > 0.5, "users differ by 10, and within one by 2"
