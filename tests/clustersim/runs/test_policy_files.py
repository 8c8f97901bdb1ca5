"""Policies by name, policies in files, and the files that these depend on."""

from __future__ import annotations

import hashlib
import pickle
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import yaml

import clustersim
from clustersim.errors import PolicyError
from clustersim.runs import code_hash, find_policy, list_policies, make_policy
from clustersim.runs.fingerprints import PARTS, SIMULATOR, hash_of_parts
from clustersim.runs.policies import registry
from clustersim.runs.policies.files import files_of, hash_of_files
from clustersim.scheduler import Scheduler
from itertime.errors import UnknownName, UserError
from itertime.planning import PLANNERS
from tests.house.test_layers import arrows, modules
from traces.job import Job

POLICY = """
import numpy, os.path
import ranks
from helpers.deep import rule
from . import beside
from mine import whole

class Mine:
    def schedule(self, state):
        from late import anything
        weights = open("weights.json")
        importlib.import_module("named.module")
"""
NAMED = {
    "ranks.py", "helpers/__init__.py", "helpers/deep.py", "helpers/more.py", "beside.py", "whole.py",
    "late.py", "weights.json", "named/module.py", "__init__.py",
}  # fmt: skip
OTHERS = {"unused.py", "numpy.txt", "helpers/unused.py", "other.json"}


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    for name in NAMED | OTHERS:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x = 1\n")
    (folder / "helpers" / "deep.py").write_text("from .more import x\nfrom ..ranks import y\n")
    (tmp_path / "outside.py").write_text("x = 1\n")
    file = folder / "policy.py"
    file.write_text(POLICY + "        open('../outside.py')\n")
    return file


def test_imports_and_files_that_the_source_names(policy: Path) -> None:
    """Also within functions, through another module, relative, and of the package that the file lies in."""
    names = [path.relative_to(policy.parent).as_posix() for path in files_of(policy)]
    assert names[0] == "policy.py"
    assert set(names[1:]) == NAMED
    assert names[1:] == sorted(names[1:])


@pytest.mark.parametrize("name", [*sorted(NAMED | OTHERS), "../outside.py"])
def test_named_files_count_and_others_do_not(policy: Path, name: str) -> None:
    hash_of_policy = hash_of_files(policy)
    (policy.parent / name).write_text("x = 2\n")
    assert (hash_of_files(policy) != hash_of_policy) == (name in NAMED)


def test_the_hash_does_not_depend_on_the_place(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(policy.parent)
    assert hash_of_files("policy.py") == hash_of_files(policy)


@pytest.mark.parametrize(
    "content", [b"", b"x = (", b"\xff\xfe", b"import numpy\n", b"'" + b"(" * 9999 + b"'"]
)
def test_a_policy_of_one_file_has_the_hash_of_that_file(tmp_path: Path, content: bytes) -> None:
    """Also if it is no Python: that is reported where it is imported."""
    file = tmp_path / "policy.py"
    file.write_bytes(content)
    assert hash_of_files(file) == hashlib.sha256(content).hexdigest()


IMPORTING = """
from __future__ import annotations
import random
from dataclasses import dataclass
from clustersim.scheduler import Proposal, Scheduler, State
{imports}

@dataclass
class Note:
    order: int

class Mine(Scheduler):
    def __init__(self, sign: int = 0):
        self.sign = sign
        self.notes: list[Note] = []

    def schedule(self, state: State) -> Proposal:
        {late}
        proposal = state.proposal()
        proposal.run_by(rank)
        self.notes.append(Note(len(state.pending)))
        return proposal
"""
FIRST, LAST = "def rank(job):\n    return 0\n", "def rank(job):\n    return -job.order\n"
JOBS = [Job(name, 0.0, gpus=8, duration_s=10.0) for name in "ab"]


def folder_of(path: Path, imports: str, late: str = "pass", **files: str) -> str:
    """A folder with a policy and `files`; `__` stands for `/`. Returns the policy's name."""
    for name, text in {"pol": IMPORTING.format(imports=imports, late=late), **files}.items():
        file = path.joinpath(*name.split("__")).with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return f"{path / 'pol.py'}:Mine"


def order_of(policy: str | type) -> str:
    """The jobs in the order in which they end."""
    run = clustersim.run(JOBS, policy, cluster="n1g8", overheads=None)
    return "".join(job.job_id for job in sorted(run.jobs, key=lambda job: job.finish_s or 0))


IMPORTS = yaml.safe_load(Path(__file__).with_name("imports.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("imports", "late", "files"), IMPORTS)
def test_a_policy_imports_what_lies_beside_it(
    tmp_path: Path, imports: str, late: str, files: dict[str, str]
) -> None:
    path, modules = [*sys.path], {*sys.modules}
    assert order_of(folder_of(tmp_path, imports, late, **files)) == "ba"
    assert sys.path == path
    added = {name for name in {*sys.modules} - modules if not name.startswith("clustersim_policy_")}
    assert not added & {"helper", "inner", "other", "pol"}
    assert not list(tmp_path.rglob("__pycache__"))


def test_helpers_of_one_name_in_two_folders_do_not_mix(tmp_path: Path) -> None:
    for imports, late in (("from helper import rank", "pass"), ("", "from helper import rank")):
        names = [
            folder_of(tmp_path / folder, imports, late, helper=text)
            for folder, text in (("one", FIRST), ("two", LAST))
        ]
        one, two = map(find_policy, names)
        assert [order_of(one), order_of(two), order_of(one), order_of(two)] == ["ab", "ba", "ab", "ba"]


def test_an_edit_counts_at_once(tmp_path: Path) -> None:
    """Also one that keeps the size of the file, within a second."""
    policy = folder_of(tmp_path, "from helper import rank", helper=LAST)
    assert order_of(policy) == "ba"
    (tmp_path / "helper.py").write_text(LAST.replace("-", "+"))
    assert order_of(policy) == "ab"


def test_an_error_of_a_helper_at_work_is_located_there(tmp_path: Path) -> None:
    policy = folder_of(tmp_path, "from helper import rank", helper="def rank(job):\n    return 1 / 0\n")
    with pytest.raises(PolicyError, match=r"ZeroDivisionError at .*helper\.py:2"):
        order_of(policy)


CONTRACT = ("edf", "elasticflow", "fifo", "fifo-skip", "sjf", "srtf", "vtrain-aware")
SEVERAL = """
from clustersim.scheduler import Scheduler

class Mine(Scheduler):
    planner = "megatron"
    def __init__(self, quantum_s=600.0, *, names=("a",)):
        self.quantum_s, self.names = quantum_s, names

class Plain(Scheduler):
    pass
"""


def test_registered_policies() -> None:
    infos = list_policies()
    assert [info.name for info in infos] == sorted(info.name for info in infos)
    assert set(CONTRACT) <= {info.name for info in infos}
    assert all(info.summary and info.planner in PLANNERS for info in infos)
    planners = {info.name: info.planner for info in infos}
    assert (planners["elasticflow"], planners["vtrain-aware"]) == ("data-parallel", "3d")


def test_policies_in_files(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(SEVERAL)
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


# Fingerprints


def test_the_parts_that_count() -> None:
    """Changes to these parts outdate earlier results. All other packages only look at results."""
    assert list(PARTS) == ["itertime", "traces", "clustersim"]
    assert PARTS["itertime"] == PARTS["traces"] == (".",)
    assert set(SIMULATOR) == {
        "cluster", "overheads", "failures", "placement", "records", "speed", "bounds", "jobs", "rundir",
        "analysis", "scheduler", "engine", "runs", "errors.py", "gctuning.py",
    }  # fmt: skip
    assert len(code_hash()) == 64


def test_the_parts_are_all_that_a_run_imports() -> None:
    seen: set[str] = set()
    waiting = ["clustersim.runs.run"]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += arrows()[name]
    units = {modules()[name].unit for name in seen if name.startswith("clustersim.")}
    assert units == {part.removesuffix(".py") for part in SIMULATOR}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name in ("engine/clock.py", "engine/deep/table.json", "report/page.py", "errors.py", "cli.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("engine/clock.py", True), ("engine/deep/table.json", True), ("errors.py", True),
        ("engine/new.py", True), ("report/page.py", False), ("cli.py", False),
        ("engine/__pycache__/clock.pyc", False),
    ],
)  # fmt: skip
def test_files_of_the_parts_count_and_others_do_not(package: Path, name: str, counts: bool) -> None:
    hash_of_package = hash_of_parts(package, ("engine", "errors.py"))
    (package / name).parent.mkdir(exist_ok=True)
    (package / name).write_text("2")
    assert (hash_of_parts(package, ("engine", "errors.py")) != hash_of_package) == counts


def test_a_part_that_is_missing_is_a_mistake(package: Path) -> None:
    with pytest.raises(AssertionError, match="placement"):
        hash_of_parts(package, ("placement",))
