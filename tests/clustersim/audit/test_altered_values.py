"""Whatever value of a run folder is altered, the audit notices it if it states a fact."""

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
from tests.tables import TABLES

RUNS: dict[str, tuple[int, str, str, dict[str, Any]]] = TABLES["runs whose values are altered"]
"""Runs that together have all kinds of records, by name: a scene's number, its policy, its features and
further settings.
"""

NO_FACTS = TABLES["entries of a manifest that state no fact"]
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
