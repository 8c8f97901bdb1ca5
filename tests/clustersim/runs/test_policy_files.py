"""The files that a policy in a file of its own depends on."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from clustersim.runs.policies.files import files_of, hash_of_files

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


@pytest.mark.parametrize("name", sorted(NAMED))
def test_a_change_of_a_named_file_changes_the_hash(policy: Path, name: str) -> None:
    before = hash_of_files(policy)
    (policy.parent / name).write_text("x = 2\n")
    assert hash_of_files(policy) != before


@pytest.mark.parametrize("name", [*sorted(OTHERS), "../outside.py"])
def test_other_files_do_not_count(policy: Path, name: str) -> None:
    before = hash_of_files(policy)
    (policy.parent / name).write_text("x = 2\n")
    assert hash_of_files(policy) == before


def test_the_hash_does_not_depend_on_the_place(
    policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
