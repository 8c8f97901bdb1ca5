"""Scenes drawn from a number: a policy, jobs, a cluster and settings; how one is run, and what holds for it.

    python -m tests.fuzz.scenes 17           # run scene 17 as the test does, and print what it is made of
    python -m tests.fuzz.scenes 17 --keep F  # the same, with its files in the folder F
    python -m tests.fuzz.scenes --renew      # record the results of all scenes of the default run

The scenes of the default run are also held to their results of before (`scenes.csv`): what a change of the
code alone should leave as it is. A change that is meant to move results renews them, as in `tests/golden`.

Scene n has policy n modulo their number. Its first feature goes round too, one step further with every round
of the policies, so that all policies meet all features; further features are drawn.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from math import fsum
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

import clustersim
from clustersim.audit import check_run_folder, replay
from clustersim.engine import Simulation
from clustersim.engine.fleet import FleetSimulation, Routing
from clustersim.records import MemoryRecorder, Run
from clustersim.rundir.csv_out import EVENTS, csv_text
from clustersim.runs import RunConfig, Trace, find_policy, list_policies, setup_of
from itertime.errors import UserError
from traces.job import Job
from traces.native import write_trace

from .features import FEATURES, TABLE, Scene, new_scene

__all__ = ["BY_DEFAULT", "KNOWN", "POLICIES", "Draw", "check", "drawn", "pairs", "recorded", "routed"]

RESULTS = Path(__file__).with_name("scenes.csv")

POLICIES = [info.name for info in list_policies()]
NEED_PLANS = {"tiers", "contention", "planners"}
INSTEAD_OF_EACH_OTHER = [
    {"fleet", "routing"}, {"tiers", "contention", "placements"}, {"overheads", "shared storage"},
    {"calendar", "removal"}, {"phases", "batches"}, {"parts of gpus", "sharing"}, {"estimates", "predictor"},
]  # fmt: skip
"""Features that state the same thing."""
KNOWN: dict[frozenset[str], str] = {
    frozenset({"sia", "reservations"}): "the last answer is used again after a reservation has ended",
    frozenset({"spot", "removal"}): "the audit draws reclaims of a node that is gone without end",
}
"""Faults of the simulator that are known: features, or a policy and a feature, that no scene has together."""
REFUSED: dict[frozenset[str], str] = {
    frozenset({"routing", "quotas"}): "quotas: holds for one cluster",
    frozenset({"routing", "shared storage"}): "storage_shared: holds for one cluster",
}
"""Features that the simulator refuses together, and what it says."""


DISTURBANCES = (
    "failures", "calendar", "removal", "spot", "reservations", "services", "host demands", "parts of gpus",
)  # fmt: skip
"""The features that keep a job off some nodes of its cluster, or off all of them."""


def refusal(policy: str, features: Iterable[str]) -> str | None:
    """What the simulator says to a policy with these features; None if it runs them."""
    present = {policy, *features}
    scheduler = find_policy(policy)
    if scheduler.one_gpu_type and present & {"gpu types", "fleet"}:
        return "plans with one GPU type, the cluster has"
    if scheduler().packs > 1 and present & {"tiers", "contention"}:
        return "runs jobs on the same GPUs, and no model says"
    return next((text for features, text in REFUSED.items() if features <= present), None)


def go_together(policy: str, features: Iterable[str]) -> bool:
    """Whether a scene may have all of these."""
    present = {policy, *features}
    return not any(len(group & present) > 1 for group in INSTEAD_OF_EACH_OTHER) and not any(
        known <= present for known in KNOWN
    )


@dataclass(frozen=True)
class Draw:
    """A scene before it is made. `number`: of everything random in it."""

    number: int
    policy: str
    features: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.number} {self.policy}: {', '.join(self.features)}"

    def scene(self) -> Scene:
        random = Random(f"scene {self.number}")
        planned = bool(NEED_PLANS & set(self.features)) or random.random() < 0.15
        scene = new_scene(self.policy, random, planned=planned)
        scene.settings |= {"bound": "none", "seed": self.number}
        for name, feature in FEATURES.items():
            if name in self.features:
                feature(scene)
        return scene


def drawn(number: int) -> Draw:
    """Scene `number`, as the module's docstring says."""
    names, random = list(FEATURES), Random(f"features {number}")
    policy = POLICIES[number % len(POLICIES)]
    first = (number + number // len(POLICIES)) % len(names)
    features = next([name] for name in names[first:] + names if go_together(policy, [name]))
    for name in random.sample(names, 3) if refusal(policy, features) is None else ():
        more = [*features, name]
        if name not in features and go_together(policy, more) and refusal(policy, more) is None:
            features = more
    return Draw(number, policy, tuple(features))


def pairs() -> Iterator[Draw]:
    """A scene for every pair of features that go together, with the first policy in turn that runs both."""
    for number, pair in enumerate(combinations(FEATURES, 2)):
        turn = number % len(POLICIES)
        policies = [name for name in POLICIES[turn:] + POLICIES[:turn] if go_together(name, pair)]
        if policies:
            able = [name for name in policies if refusal(name, pair) is None]
            yield Draw(100_000 + number, (able or policies)[0], pair)


def routed() -> Iterator[Draw]:
    """What disturbs the nodes of a fleet with routing, each with three policies, other ones each."""
    able = [name for name in POLICIES if refusal(name, ["routing"]) is None]
    for number, disturbance in enumerate(DISTURBANCES):
        for policy in able[number :: len(able) // 3][:3]:
            yield Draw(200_000 + 100 * number + POLICIES.index(policy), policy, ("routing", disturbance))


def check(draw: Draw, folder: Path) -> str:
    """Run a scene and hold it to the audit and to what every run keeps. Files go to `folder`. Returns a hash
    of its log and its job records, or "refused".

    AssertionError ends with the command that runs the scene again.
    """
    again = f"\n{draw}\npython -m tests.fuzz.scenes {draw.number}"
    scene = draw.scene()
    jobs = [Job(**columns) for columns in scene.jobs]
    settings = {**scene.settings, **_files(scene, folder)}
    write_trace(jobs, folder / "jobs.csv")
    refused = refusal(draw.policy, draw.features)
    if refused is not None:
        with pytest.raises(UserError, match=refused):
            clustersim.run(jobs, draw.policy, **settings)
        return "refused"
    try:
        run = clustersim.run(folder / "jobs.csv", draw.policy, out=folder / "run", **settings)
        violations = [f"{f.rule}: {v.text}" for f in check_run_folder(folder / "run") for v in f.violations]
        assert not violations, "\n".join(violations[:5])
        _check_ends(run, draw)
        _check_gpu_seconds(run)
        _check_order_of_rows(folder, jobs, draw, settings)
        if draw.number % 6 == 0:
            assert not replay(folder / "run").violations, "a replay gives another run"
    except Exception as error:
        raise AssertionError(f"{type(error).__name__}: {error}{again}") from error
    digest = hashlib.sha256()
    for name in ("events.csv", "jobs.csv"):
        digest.update((folder / "run" / name).read_bytes())
    return digest.hexdigest()[:12]


def recorded() -> dict[int, str]:
    """The results of scenes by their number."""
    with RESULTS.open(encoding="utf-8", newline="") as file:
        return {int(row["scene"]): row["result"] for row in csv.DictReader(file)}


def _files(scene: Scene, folder: Path) -> dict[str, Any]:
    """Write the cluster file and the throughput table of a scene. Returns the settings that name them."""
    clusters = [{"name": name, "groups": groups} for name, groups in scene.groups.items()]
    document = {"clusters": clusters} if len(clusters) > 1 else {"groups": clusters[0]["groups"]}
    (folder / "cluster.yaml").write_text(yaml.safe_dump({"network": scene.network, **document}))
    if scene.planned:
        return {"cluster": str(folder / "cluster.yaml")}
    rows = [
        f"{model},{batch},{gpus},{rate * factor!r},{gpu_type}"
        for (model, batch), rates in TABLE.items()
        for gpus, rate in rates.items()
        for gpu_type, factor in (("a100", 1.0), ("h100", 1.7))
    ]
    head = "model,global_batch,gpus,iterations_per_s,gpu_type"
    (folder / "table.csv").write_text("\n".join([head, *rows, ""]))
    return {"cluster": str(folder / "cluster.yaml"), "table": str(folder / "table.csv")}


def _check_ends(run: Run, draw: Draw) -> None:
    """No job waits for ever, unless the run is cut short or nodes are gone for good."""
    allowed = {"finished", "rejected", "served"}
    if {"logged ends", "failures"} & set(draw.features):
        allowed.add("failed")
    if {"until", "removal"} & set(draw.features):
        allowed.add("unfinished")
    odd = [(record.job_id, record.state, record.reason) for record in run.jobs if record.state not in allowed]
    assert not odd, f"jobs that should have ended: {odd}"
    if "until" not in draw.features:
        assert any(record.state in allowed - {"rejected"} for record in run.jobs), "no job has run"


def _check_gpu_seconds(run: Run) -> None:
    """The GPUs in use over time are those that jobs held: the integral of one is the sum of the other."""
    snapshots = list(run.snapshots)
    if not snapshots:
        return
    ends = [*(row.time_s for row in snapshots[1:]), run.manifest["end_s"]]
    in_use = fsum(row.allocated * (end_s - row.time_s) for row, end_s in zip(snapshots, ends, strict=True))
    held = fsum(record.gpu_seconds or 0.0 for record in run.jobs)
    assert in_use == pytest.approx(held, rel=1e-6, abs=0.1), "GPU-seconds in use and held"


def _check_order_of_rows(folder: Path, jobs: list[Job], draw: Draw, settings: dict[str, Any]) -> None:
    """The rows of a trace in another order give the same log; the keys of policies are those at hand."""
    config = RunConfig.make(policy=draw.policy, **settings)
    shuffled = Random(1).sample(jobs, len(jobs))
    trace = Trace.of(shuffled)
    setup = setup_of(config, models=trace.models)
    setup = replace(
        setup, check_all_keys=True, parts=tuple(replace(part, check_all_keys=True) for part in setup.parts)
    )
    recorder = MemoryRecorder(setup.cluster)
    if config.routing is None:
        Simulation(trace.jobs, setup, recorder).run()
    else:
        FleetSimulation(trace.jobs, setup, Routing.of(config.routing), recorder).run()
    before, after = (folder / "run" / "events.csv").read_text(), csv_text(EVENTS, recorder.events)
    for one, other in zip(before.splitlines(), after.splitlines(), strict=False):
        assert one == other, "another order of rows changes an event"
    assert len(before) == len(after), "another order of rows changes how many events there are"


BY_DEFAULT = [drawn(number) for number in range(6 * len(POLICIES))]


def main() -> None:
    parser = argparse.ArgumentParser(description="Run scenes by number.")
    parser.add_argument("numbers", type=int, nargs="*")
    parser.add_argument("--keep", type=Path, help="a folder for the files of the scenes")
    parser.add_argument("--renew", action="store_true", help="record the results of the default run")
    options = parser.parse_args()
    of_pairs = {draw.number: draw for draw in (*pairs(), *routed())}
    scenes = [of_pairs.get(number) or drawn(number) for number in options.numbers]
    rows = []
    for draw in BY_DEFAULT if options.renew else scenes:
        with tempfile.TemporaryDirectory() as temporary:
            home = (options.keep or Path(temporary)) / str(draw.number)
            home.mkdir(parents=True)
            rows.append((draw.number, draw.policy, ", ".join(draw.features), check(draw, home)))
            print(*rows[-1], flush=True)
    if options.renew:
        with RESULTS.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(
                [("scene", "policy", "features", "result"), *rows]
            )


if __name__ == "__main__":
    main()
