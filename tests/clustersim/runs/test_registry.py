"""Policies by name, and policies in files."""

from __future__ import annotations

import pickle
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from clustersim.errors import PolicyError
from clustersim.runs import find_policy, list_policies, make_policy
from clustersim.runs.policies import registry
from clustersim.scheduler import Scheduler
from itertime.errors import UnknownName, UserError
from itertime.planning import PLANNERS
from policies.elasticflow import ElasticFlow
from policies.fifo import Fifo

CONTRACT = ("edf", "elasticflow", "fifo", "fifo-skip", "sjf", "srtf", "vtrain-aware")
MINE = """
from dataclasses import dataclass
from clustersim.scheduler import Scheduler

@dataclass
class Helper:
    value: int = 3

class Mine(Scheduler):
    \"\"\"Nothing special.\"\"\"
    planner = "megatron"
    def __init__(self, quantum_s=600.0, *, names=("a",)):
        if quantum_s <= 0:
            raise ValueError(f"quantum_s={quantum_s}: must be positive")
        if quantum_s == 13:
            raise KeyError("unlucky")
        self.quantum_s, self.names = quantum_s, names

class Plain(Scheduler):
    pass

class Anything(Scheduler):
    def __init__(self, *rest, **options):
        pass

NotOne = 3
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


def test_registered_policies() -> None:
    infos = list_policies()
    assert [info.name for info in infos] == sorted(info.name for info in infos)
    assert set(CONTRACT) <= {info.name for info in infos}
    assert all(info.summary and info.planner in PLANNERS for info in infos)
    planners = {info.name: info.planner for info in infos}
    assert (planners["elasticflow"], planners["vtrain-aware"]) == ("data-parallel", "3d")


def test_names() -> None:
    assert find_policy("fifo") is Fifo
    policy = make_policy("elasticflow", {"guard_s": 2.0})
    assert isinstance(policy, ElasticFlow)
    assert policy.guard_s == 2.0


def test_policies_in_files(mine: Path) -> None:
    policy = make_policy(f"{mine}:Mine", {"quantum_s": 5, "names": ["x"]})
    assert (policy.planner, vars(policy)) == ("megatron", {"quantum_s": 5, "names": ["x"]})
    assert isinstance(make_policy(f"{mine}:Plain", {}), Scheduler)


@pytest.mark.parametrize(
    ("name", "params", "text"),
    [
        ("las", {"quantum_s": "x" * 100_000}, "policy las: quantum_s='xxx.*: must be a finite number"),
        ("tiresias", {"order": ["x" * 999] * 999}, "order=.*: must be start or submission"),
        ("tiresias", {"thresholds_gpu_s": "x" * 999}, "thresholds_gpu_s=.*: must be a list of positive"),
        ("drf", {"weights": {"a" * 999: "x" * 999}}, "weights: a{60}='.*: must be a finite number"),
        ("elasticflow", {"admission": "x" * 999}, "admission='.*: must be true or false"),
    ],
)
def test_of_long_values_the_beginning_is_shown(name: str, params: dict[str, Any], text: str) -> None:
    with pytest.raises(UserError, match=text) as caught:
        make_policy(name, params)
    assert len(str(caught.value)) < 1000


def test_third_parties_that_do_not_load(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("theirs", "no_such_package_here:Theirs", registry.GROUP)
    monkeypatch.setattr(registry, "_registered", lambda: {"theirs": entry})
    with pytest.raises(
        PolicyError,
        match=r"policy theirs \(no_such_package_here:Theirs\) does not load: .*ModuleNotFoundError",
    ):
        find_policy("theirs")


def test_errors_survive_the_way_out_of_a_worker() -> None:
    with pytest.raises(UnknownName) as caught:
        find_policy("fif")
    error, twin = caught.value, pickle.loads(pickle.dumps(caught.value))
    assert str(twin) == str(error)
    assert (twin.kind, twin.name, twin.known) == (error.kind, error.name, error.known)
