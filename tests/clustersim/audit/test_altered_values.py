"""Whatever value of a run folder is altered, the audit notices it if it states a fact."""

from __future__ import annotations

import shutil
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import clustersim
from clustersim.audit import check_run_folder
from clustersim.runs import SETTINGS
from tests.clustersim.audit.altered import Alteration, alterations, noticed
from tests.fuzz.cases import Case
from tests.fuzz.scenes import Draw

RUNS: dict[str, tuple[int, str, str, dict[str, Any]]] = {
    "failures": (
        35, "srtf", "deadlines, tenants, user estimates, logged ends, host demands, overheads, failures, "
        "reservations",
        {"bound": "auto", "failures": {"mtbf_gpu_h": 0.5, "kinds": {"short": [1, 0.02]}, "retries": 0,
                                       "lemon_share": 0.5, "spare_nodes": 1, "spare_swap_s": 30.0}},
    ),
    "plans": (
        9, "elasticflow", "contention, deadlines, kinds of jobs, wrong statements, planners",
        {"overheads": {"storage_shared": True, "storage_bytes_per_s": 1e9}},
    ),
    "types": (23, "gavel-max-min", "gpu types, parts of gpus, services, phases, sharing, quotas", {}),
    "fleet": (1, "multifactor", "gpu types, routing, tenants, calendar, overheads, placements", {}),
    "rounds": (2, "easy", "rounds, predictor, window, until, step times, variability, spot", {}),
    "batches": (28, "pollux", "batches, planners, estimates, tiers, removal", {}),
}  # fmt: skip
"""Runs that together have all kinds of records, by name: a scene's number, its policy, its features and
further settings.
"""

NO_FACTS = {
    "command": "the words of a command are for readers; the settings state what they meant",
    "timings.wall_s": "no other computer can measure this one",
    "timings.policy_wall_s": "no other computer can measure this one",
    "timings.bound_s": "no other computer can measure this one",
    "versions.code": "another code may give the same run; nothing is then said to differ",
    **{f"versions.{name}": "results hardly depend on it" for name in ("python", "numpy", "scipy", "simpy")},
    "policy_sha256": "another version of a policy may decide alike; a replay says so where it does not",
    "cluster.groups.name": "a label, on which nothing depends",
    "price_usd_per_gpu_h": "systems state prices of their own",
}
"""Entries of a manifest that state nothing about the results of these runs, and why. Besides, a setting may
become another one that gives the same run: then a replay is equal byte for byte, and the folder states what
is true.
"""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The folder of each run by its name, and what its audit leaves open."""

    @cache
    def run_of(name: str) -> tuple[Path, dict[str, str]]:
        folder = tmp_path_factory.mktemp(name)
        number, policy, features, settings = RUNS[name]
        case = Case.of(Draw(number, policy, tuple(features.split(", "))).scene())
        files = case.write(folder)
        clustersim.run(folder / "jobs.csv", case.policy, out=folder / "run", **{**files, **settings})
        findings = check_run_folder(folder / "run")
        assert not [finding for finding in findings if finding.violations]
        return folder / "run", {finding.rule: finding.unproved for finding in findings if finding.unproved}

    return run_of


def test_a_few_altered_values_are_noticed(sound: Any, tmp_path: Path) -> None:
    """The others are `long`."""
    for number, name in enumerate(RUNS):
        folder, left_open = sound(name)
        for alteration in list(alterations(folder))[5 * number :: 61]:
            is_noticed = _is_noticed(alteration, folder, left_open, tmp_path)
            assert is_noticed or _may_go_unnoticed(alteration), f"{name}: {alteration}"


@pytest.mark.long
def test_all_altered_values_are_noticed(sound: Any, tmp_path: Path) -> None:
    outcomes: dict[str, list[bool]] = defaultdict(list)
    for name in RUNS:
        folder, left_open = sound(name)
        for alteration in alterations(folder):
            is_noticed = _is_noticed(alteration, folder, left_open, tmp_path)
            assert is_noticed or _may_go_unnoticed(alteration), f"{name}: {alteration}"
            outcomes[alteration.name].append(is_noticed)
    assert sum(map(len, outcomes.values())) > 2000
    unnoticed = {name for name, results in outcomes.items() if not any(results)}
    assert unnoticed <= {f"manifest.json: {name}" for name in NO_FACTS}


def _is_noticed(alteration: Alteration, sound: Path, left_open: dict[str, str], temporary: Path) -> bool:
    folder = temporary / "altered"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(sound, folder)
    alteration.apply(folder)
    return bool(noticed(folder, left_open))


def _may_go_unnoticed(alteration: Alteration) -> bool:
    _, _, name = alteration.name.partition("manifest.json: ")
    return name in NO_FACTS or name.partition(".")[0] in {*SETTINGS, "cluster"}
