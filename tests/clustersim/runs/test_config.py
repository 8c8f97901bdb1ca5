"""Settings: what `--set` understands, what they resolve to, and that declarations fit."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim import RunSetup, Simulation
from clustersim.cli import app
from clustersim.cluster import Cluster, load_cluster
from clustersim.commands.help.options import RunOptions
from clustersim.overheads import Overheads
from clustersim.records import MemoryRecorder
from clustersim.runs import SETTINGS, Entry, RunConfig, run, setup_of
from clustersim.scheduler import Scheduler
from clustersim.speed import SpeedOnOneType
from itertime.errors import UserError
from policies.fifo import Fifo
from traces.job import Job


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
    assert (setup.cluster.gpus, setup.planner, setup.placer.name) == (16, "3d", "pack")
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
