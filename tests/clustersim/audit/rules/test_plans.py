"""The rule `plans` of `clustersim check`: jobs run the plans, at the speeds, that itertime gives them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clustersim.audit.folder import check_run
from clustersim.cli import main
from clustersim.records import Exact, Run
from clustersim.rundir import write_run
from clustersim.runs import run
from itertime.io import sha256
from itertime.spec.profile import FOLDER as PROFILES
from itertime.spec.profile import read_profile
from itertime.spec.system import SYSTEMS, variant_of
from traces.job import Job
from traces.native import write_trace

pytestmark = pytest.mark.usefixtures("wide_terminal")

JOBS = [
    Job(f"j{i}", 300.0 * i, model="megatron-1.7b", gpus=8, global_batch=64, iterations=2000.0 + 100 * i,
        deadline_s=300.0 * i + 40_000)
    for i in range(6)
]  # fmt: skip
JOBS += [
    Job("plain", 100.0, gpus=3, duration_s=50.0),
    Job("named", 100.0, model="gpt3-1.3b", gpus=2, duration_s=9.0),
]
SPREAD = [
    Job(f"{i}", 40.0 * i, model="megatron-3.6b", gpus=12 + 4 * (i % 2), global_batch=96, iterations=90.0 + i)
    for i in range(12)
]
LEAVES = (
    "network: {network}\ngroups:\n  - {{name: a, gpu_type: a100, nodes: 8, nodes_per_leaf: 2, "
    "leaf_oversubscription: 8}}\n"
)


@pytest.fixture(scope="module")
def sound() -> Run:
    """Elastic jobs on several numbers of GPUs."""
    made = run(JOBS, "elasticflow", cluster="n2g8")
    assert len(made.plans) >= 2
    return made


def spread(network: str, folder: Path) -> Run:
    """Jobs whose nodes lie under several leaf switches."""
    path = folder / "cluster.yaml"
    path.write_text(LEAVES.format(network=network))
    return run(SPREAD, "srtf", cluster=str(path), placement="spread")


def found(run: Run) -> tuple[list[str], str]:
    """The violations of the rule, and what is not proved."""
    finding = next(finding for finding in check_run(run) if finding.rule == "plans")
    return [violation.text for violation in finding.violations], finding.unproved


# Falsified runs. `write_run` hashes what it writes, so that the hashes give nothing away.


def plan(text: str, **fields: Any) -> Callable[[Run], Run]:
    """The first start names another plan, in all files."""

    def falsify(run: Run) -> Run:
        first = next(e for e in run.events if e.plan)
        events = [e._replace(plan=text) if e is first else e for e in run.events]
        rows = [row._replace(plan=text, **fields) for row in run.plans if row.plan == first.plan]
        return replace(run, events=events, plans=[*run.plans, *rows])

    return falsify


def speeds(factor: float, *kinds: str) -> Callable[[Run], Run]:
    def falsify(run: Run) -> Run:
        events = [
            e._replace(unit_s=Exact(e.unit_s * factor)) if e.event in kinds and e.job_id == "j2" else e
            for e in run.events
        ]
        return replace(run, events=events)

    return falsify


@pytest.mark.parametrize(
    ("network", "kind", "text"),
    [("tiers", "start", "its placement takes "), ("contention", "rate", "its placement takes ")],
)
def test_speeds_that_the_network_does_not_give(network: str, kind: str, text: str, tmp_path: Path) -> None:
    made = spread(network, tmp_path)
    i = next(i for i, e in enumerate(made.events) if e.event == kind)
    faster = list(made.events)
    faster[i] = faster[i]._replace(unit_s=Exact(faster[i].unit_s * 0.9999))
    assert text in found(replace(made, events=faster))[0][0]
    if kind == "rate":
        without = [*made.events[:i], *made.events[i + 1 :]]
        assert text in found(replace(made, events=without))[0][0]


@pytest.mark.parametrize("network", ["tiers", "contention"])
def test_places_that_make_no_sense(network: str, tmp_path: Path) -> None:
    """Other rules report them; this rule does not fail."""
    made = spread(network, tmp_path)
    i = next(i for i, e in enumerate(made.events) if e.event == "start")
    for places in ((), ((0, 1),), ((0, 8), (0, 8)), ((7, 8), (0, 8))):
        events = list(made.events)
        events[i] = events[i]._replace(placement=places)
        assert [f.rule for f in check_run(replace(made, events=events)) if f.violations]


def test_a_run_of_other_code_is_not_held_against_this_one(
    sound: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """If everything is equal, the rule is proved nevertheless."""
    versions = {**sound.manifest["versions"], "code": "0" * 64}
    other = replace(sound, manifest={**sound.manifest, "versions": versions})
    assert found(other) == ([], "")
    violations, unproved = found(speeds(0.5, "start", "restart", "resize", "migrate")(other))
    assert violations == []
    assert "another version" in unproved
    assert "degrees" not in unproved
    assert "uses 512 GPUs of 16" in found(plan("tp8 pp8 dp8 mb1 none")(other))[0][0]
    write_run(tmp_path, plan("tp2 pp2 dp4 mb1 none")(other))
    assert main(["check", str(tmp_path)]) == 0
    assert "not proved: not recomputed" in capsys.readouterr().out


def test_unknown_models(sound: Run) -> None:
    renamed = [replace(j, model="mine" if j.model == "megatron-1.7b" else j.model) for j in sound.jobs]
    rows = [row._replace(model="mine") for row in sound.plans]
    violations, unproved = found(replace(sound, jobs=renamed, plans=rows))
    assert violations == []
    assert "not recomputed: model mine" in unproved


@pytest.mark.parametrize("fields", [{"planner": "best"}, {"planner": 7}, {"table": 5}], ids=str)
def test_a_manifest_that_makes_no_sense(sound: Run, fields: dict[str, Any]) -> None:
    violations, unproved = found(replace(sound, manifest={**sound.manifest, **fields}))
    assert violations == []
    assert unproved.startswith(f"not recomputed: {'unknown planner' if 'planner' in fields else 'table=5'}")


def forget() -> None:
    """Profiles are read again."""
    read_profile.cache_clear()
    variant_of.cache_clear()


def test_a_system_and_a_profile_of_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Either may have changed since the run, which is no violation."""
    text = (SYSTEMS / "dgx-a100-80gb.yaml").read_text()
    assert "profile: a100-80gb" in text
    system, profile, out = tmp_path / "mine.yaml", tmp_path / "mine.json", tmp_path / "run"
    profile.write_text((PROFILES / "a100-80gb.json").read_text().replace('"a100-80gb"', '"my-own"', 1))
    system.write_text(text.replace("profile: a100-80gb", f"profile: {profile}"))
    write_trace(JOBS, tmp_path / "trace.csv")
    made = run(tmp_path / "trace.csv", "srtf", cluster="n2g8", system=str(system), out=out)
    assert made.manifest["profile"] == {"name": "my-own", "sha256": sha256(profile)}
    assert main(["check", str(out), "--replay"]) == 0
    for file, old, new in ((system, "300.0e+9", "200.0e+9"), (profile, '"launch_s": 1', '"launch_s": 7')):
        before = file.read_text()
        assert old in before
        file.write_text(before.replace(old, new, 1))
        capsys.readouterr()
        forget()  # as in another process
        assert main(["check", str(out), "--replay"]) == 2
        printed = capsys.readouterr()
        assert "BROKEN" not in printed.out
        assert f"{system}, or its profile, is not what the run read" in printed.err
        file.write_text(before)
    forget()
    assert main(["check", str(out), "--replay"]) == 0
