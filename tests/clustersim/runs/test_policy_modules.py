"""Policies in files that import modules beside them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import clustersim
from clustersim.cli import main
from clustersim.errors import PolicyError
from clustersim.runs import find_policy
from traces.job import Job

POLICY = """
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
    for name, text in {"pol": POLICY.format(imports=imports, late=late), **files}.items():
        file = path.joinpath(*name.split("__")).with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return f"{path / 'pol.py'}:Mine"


def order_of(policy: str | type) -> str:
    """The jobs in the order in which they end."""
    run = clustersim.run(JOBS, policy, cluster="n1g8", overheads=None)
    return "".join(job.job_id for job in sorted(run.jobs, key=lambda job: job.finish_s or 0))


@pytest.mark.parametrize(
    ("imports", "late", "files"),
    [
        ("from helper import rank", "pass", {"helper": LAST}),
        ("import helper; rank = helper.rank", "pass", {"helper": LAST}),
        ("import helper as other; rank = other.rank", "pass", {"helper": LAST}),
        ("from helper import *", "pass", {"helper": LAST}),
        ("", "from helper import rank", {"helper": LAST}),
        ("from .helper import rank", "pass", {"helper": LAST}),
        ("import inner.deep; rank = inner.deep.rank", "pass", {"inner__deep": LAST}),
        ("from inner import deep; rank = deep.rank", "pass", {"inner____init__": "", "inner__deep": LAST}),
        ("from inner.deep import rank", "pass", {"inner__deep": "from other import rank", "other": LAST}),
        (
            "from inner.deep import rank",
            "pass",
            {"inner__deep": "from .other import rank", "inner__other": LAST},
        ),
        ("from inner.deep import rank", "pass", {"inner__deep": "from ..other import rank", "other": LAST}),
        ("rank = __import__('helper').rank", "pass", {"helper": LAST}),
        ("from random import Random; rank = lambda job: -job.order", "pass", {"random": "1 / 0"}),
        (
            "from clustersim import run; rank = lambda job: -job.order",
            "pass",
            {"clustersim____init__": "1 / 0"},
        ),
    ],
)
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


def test_every_command_finds_helpers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Named by a path relative to the current folder, in processes of their own too."""
    for folder, text in (("one", FIRST), ("two", LAST)):
        folder_of(tmp_path / folder, "from helper import rank", helper=text)
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("job_id,submit_s,gpus,duration_s\na,0,8,10\nb,0,8,20\n")
    policies = ["one/pol.py:Mine", "two/pol.py:Mine"]
    settings = ["t.csv", "--cluster", "n1g8", "--overheads", "none"]
    found = []
    for i, policy in enumerate(policies):
        capsys.readouterr()
        assert main(["run", *settings, "--policy", policy, "-o", f"r{i}", "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out)["jct_mean_s"])
        assert main(["check", f"r{i}", "--replay", "--policy", policy]) == 0
    assert main(["policies", "check", policies[0]]) == 0
    assert found == [20.0, 25.0]
    capsys.readouterr()
    assert main(["compare", *settings, "--policies", ",".join(policies), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [run["jct_mean_s"] for run in said["runs"]] == [20.0, 25.0]
