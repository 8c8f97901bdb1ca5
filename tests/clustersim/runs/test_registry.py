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
    with pytest.raises(UserError, match=r"mine\.py:Mine: quantum_s=-1: must be positive") as caught:
        make_policy(f"{mine}:Mine", {"quantum_s": -1})
    assert caught.value.exit_code == 2
    with pytest.raises(UnknownName, match=r"'quantum'; did you mean quantum_s"):
        make_policy(f"{mine}:Mine", {"quantum": 1})
    with pytest.raises(UnknownName, match=r"'options'; known: \(none\)"):
        make_policy(f"{mine}:Anything", {"options": 1})
    with pytest.raises(PolicyError, match=r"cannot be made: .*mine\.py:\d+: KeyError: 'unlucky'"):
        make_policy(f"{mine}:Mine", {"quantum_s": 13})


@pytest.mark.parametrize(
    ("suffix", "error", "text"),
    [
        ("", UserError, r"name the class too, as in .*mine\.py:MyScheduler"),
        (":", UserError, r"name the class too, as in .*mine\.py:MyScheduler"),
        (":Min", UnknownName, r"unknown class in .*mine\.py 'Min'; did you mean Mine"),
        (":Helper", UserError, "is not a subclass of clustersim.Scheduler"),
        (":NotOne", UserError, "is not a subclass"),
    ],
)
def test_wrong_classes(mine: Path, suffix: str, error: type[UserError], text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        find_policy(f"{mine}{suffix}")
    assert caught.value.exit_code == 2, "the name is wrong, and no policy broke a rule"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("x = 1\ndef broken(:\n", r"bad\.py:2: "),
        (
            "import no_such_package_here",
            r"does not import: .*bad\.py:1: ModuleNotFoundError: No module named",
        ),
        ("x = 1\n\n1 / 0", r"does not import: .*bad\.py:3: ZeroDivisionError"),
        ("import sys\nsys.exit(0)", r"does not import: .*bad\.py:2: SystemExit: 0"),
        ("\x00", r"bad\.py"),
        ("x = '\xe9'\n", r"bad\.py"),
    ],
)
def test_files_that_do_not_import(tmp_path: Path, source: str, text: str) -> None:
    path = tmp_path / "bad.py"
    path.write_bytes(source.encode("latin-1"))
    with pytest.raises(PolicyError, match=text) as caught:
        find_policy(f"{path}:X")
    assert caught.value.exit_code == 4


REFUSES = """
from clustersim import Scheduler

class Needs(Scheduler):
    "Has a parameter without default."
    def __init__(self, size, other=1):
        self.size = int(size)

class Broken(Scheduler):
    "Raises whatever it is given."
    def __init__(self, size=1):
        raise ValueError("not today")
"""


@pytest.mark.parametrize(
    ("name", "params", "code", "text"),
    [
        ("las", {"quantum_s": "abc"}, 2, "policy las: quantum_s='abc': must be a finite number"),
        ("las", {"quantum": 5}, 2, "unknown parameter of policy las 'quantum'; did you mean quantum_s"),
        ("las", {"quantum_s": "x" * 100_000}, 2, "policy las: quantum_s='xxx.*: must be a finite number"),
        ("tiresias", {"order": ["x" * 999] * 999}, 2, "order=.*: must be start or submission"),
        ("tiresias", {"thresholds_gpu_s": "x" * 999}, 2, "thresholds_gpu_s=.*: must be a list of positive"),
        ("drf", {"weights": {"a" * 999: "x" * 999}}, 2, "weights: a{60}='.*: must be a finite number"),
        ("elasticflow", {"admission": "x" * 999}, 2, "admission='.*: must be true or false"),
        ("Needs", {}, 2, "parameter size is missing; give it, as in --set policy.size=VALUE"),
        ("Needs", {"other": 1}, 2, "parameter size is missing"),
        ("Needs", {"size": "big"}, 2, "invalid literal for int"),
        ("Broken", {}, 4, "not today"),
        ("Broken", {"size": 2}, 4, "not today"),
    ],
)
def test_wrong_values_are_mistakes_of_the_user_and_wrong_constructors_of_the_policy(
    tmp_path: Path, name: str, params: dict[str, Any], code: int, text: str
) -> None:
    (tmp_path / "refuses.py").write_text(REFUSES)
    policy = name if name.islower() else f"{tmp_path / 'refuses.py'}:{name}"
    with pytest.raises(UserError, match=text) as caught:
        make_policy(policy, params)
    assert caught.value.exit_code == code
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
