"""The README shows what happens: its Python runs, its tables are printed, its commands are those of CI."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from experiments import sample_log
from tests.places import ROOT
from tests.printed import assert_nearly_printed, parts

README = (ROOT / "README.md").read_text()

_spec = importlib.util.spec_from_file_location("refresh", ROOT / "docs" / "refresh.py")
assert _spec is not None
assert _spec.loader is not None
refresh = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(refresh)


def test_python_examples_run(capsys: pytest.CaptureFixture[str]) -> None:
    examples = re.findall(r"^```python\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    assert len(examples) >= 2
    names: dict[str, object] = {}
    for example in examples:
        exec(compile(example, "README.md", "exec"), names)
    assert float(capsys.readouterr().out.split()[0]) > 0


def test_parts_of_a_table() -> None:
    assert parts("FIFO   1,234.5 h  (−2.8 %) 3 ──") == ([2.8], [1234.5, 3.0], "FIFO # h (change) #")


def test_demo_table_is_what_the_demo_prints() -> None:
    assert_nearly_printed(refresh.block(README, "demo"), refresh.demo_table())


def test_no_line_of_the_demo_is_wider_than_a_terminal() -> None:
    assert max(map(len, refresh.block(README, "demo").splitlines())) <= 80


def test_the_what_if_table_is_what_the_command_prints() -> None:
    page = (ROOT / "docs" / "what-if.md").read_text()
    assert parts(refresh.block(page, "what-if")) == parts(refresh.what_if_table())


def test_accuracy_table_is_what_validate_measures(shared_dir: Path) -> None:
    table = refresh.accuracy_table(shared_dir / "data")
    assert refresh.block(README, "accuracy").strip() == table.strip()


def test_commands_of_the_readme_exist() -> None:
    """Every option and subcommand that the README names is one that the command line knows."""
    shell = "\n".join(re.findall(r"^```sh[^\n]*\n(.*?)^```$", README, re.DOTALL | re.MULTILINE))
    uses = re.findall(r"^(clustersim|itertime) (.+?)(?:\s+#.*)?$", shell, re.MULTILINE)
    assert len(uses) >= 8
    for program, words in uses:
        command = refresh.clustersim if program == "clustersim" else refresh.itertime
        parts = words.split()
        depth = 2 if parts[0] == "trace" or parts[:2] in (["policies", "new"], ["policies", "check"]) else 1
        text = refresh.output_of(command, *parts[:depth], "--help")
        for option in re.findall(r"(?<!\S)--?[a-z][a-z-]*", words):
            assert re.search(rf"(?<![\w-]){option}(?![\w-])", text), (program, words, option)


def test_ci_runs_the_readmes_blocks() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    for name in ("demo", "activate", "test"):
        assert re.search(rf"^```sh {name}\n.+?^```$", README, re.DOTALL | re.MULTILINE), name
        assert re.search(rf"(run|readme) {name}\b", script), name
    assert 'run ""' in script  # the unmarked blocks


def test_the_sample_log_is_what_its_program_writes() -> None:
    assert sample_log.FILE.read_text(encoding="utf-8") == sample_log.text()


def test_the_quick_start_refuses_other_words(capfd: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["tests"], ["demo", "now"]):
        assert subprocess.call([sys.executable, str(ROOT / "quickstart.py"), *words]) == 2
        assert "python3 quickstart.py demo" in capfd.readouterr().err


def test_the_quick_start_passes_over_a_python_that_does_not_start(tmp_path: Path) -> None:
    """A version manager keeps a command on the path for each of its Pythons, also for those not chosen."""
    for name, code in (("python3.13", 127), ("python3.12", 0)):
        (tmp_path / name).write_text(f"#!/bin/sh\nexit {code}\n")
        (tmp_path / name).chmod(0o755)
    script = "import quickstart, sys; sys.version_info = (3, 9, 0); print(quickstart.python())"
    found = subprocess.check_output(
        [sys.executable, "-c", script], cwd=ROOT, env={"PATH": str(tmp_path)}, text=True
    )
    assert found == f"{tmp_path / 'python3.12'}\n"
