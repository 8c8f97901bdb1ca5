"""The README and the pages do what they say: their commands and Python run, and print what is shown.

CI runs the commands of all pages in a fresh clone. Here their options exist, and what takes long is `long`.
"""

import csv
import doctest
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from clustersim.cli import app, main
from docs.website.examples import run_page
from docs.website.page_commands import Command, commands_of, missing_options, pages_with_commands
from itertime.commandline import run_app
from tests.places import ROOT
from tests.printed import assert_nearly_printed, parts

DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text(encoding="utf-8")
SLOW_PAGES = {"slurm", "study", "capacity", "many-machines", "write-a-policy", "export", "first-comparison"}
PAGES = [
    *(DOCS / f"{name}.md" for name in ("quickstart", "tutorial")),
    *(page for folder in ("tutorials", "how-to") for page in sorted((DOCS / folder).glob("*.md"))),
]

_spec = importlib.util.spec_from_file_location("refresh", DOCS / "refresh.py")
assert _spec is not None
assert _spec.loader is not None
refresh = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(refresh)


def slow(name: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.long] if name in SLOW_PAGES else []


@pytest.fixture(scope="module")
def curves(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for curves of plans, which pages share as commands of a user do."""
    return tmp_path_factory.mktemp("curves")


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, curves: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.symlink(ROOT / "traces", tmp_path / "traces")  # the sample log, where a clone has it
    monkeypatch.setenv("ITERTIME_CACHE", str(curves))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem, marks=slow(path.stem)) for path in PAGES])
def test_blocks_of_a_page_run(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if path.stem == "tutorial":  # its commands are run on a trace of the reader
        text = re.sub(r"^```sh\n.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    found = list(run_page(text, path.name))
    assert found
    for _, shown, printed in found:
        if shown is not None:
            assert_nearly_printed(shown, printed)


@pytest.mark.parametrize("page", pages_with_commands())
def test_commands_of_a_page_have_the_options_that_it_names(page: str) -> None:
    """CI also runs them: `python -m docs.website.page_commands`."""
    commands = [command for command in commands_of(page) if command.treatment in ("run", "parse", "options")]
    assert {str(command): missing for command in commands if (missing := missing_options(command))} == {}


def test_a_command_with_an_option_or_a_name_that_does_not_exist_is_found() -> None:
    wrong = {
        "clustersim run jobs.csv --policies fifo --polcy fifo": ["--policies", "--polcy"],
        "itertime predcit --model llama3-8b": ["predcit"],
    }
    assert {text: missing_options(Command("README.md", 1, text, "run")) for text in wrong} == wrong


FORMAT_EXAMPLES = dict(
    re.findall(
        r"^\| `([a-z-]+)` \| `(.*\.\./shared/.*)` \|$", (DOCS / "formats.md").read_text(), re.MULTILINE
    )
)


@pytest.mark.parametrize("name", FORMAT_EXAMPLES)
def test_an_example_imports_a_log_of_its_format(name: str, shared_dir: Path) -> None:
    command = shlex.split(FORMAT_EXAMPLES[name].replace("../shared", str(shared_dir)))
    assert main(command[1:]) == 0
    assert json.loads(Path("jobs.import.json").read_text())["format"] == name


def test_reservations_of_the_page_on_fleets_are_read() -> None:
    shown = re.search(r"^    # plan\.yaml\n((?:    .*\n)+)", (DOCS / "fleets.md").read_text(), re.MULTILINE)
    assert shown is not None
    Path("plan.yaml").write_text(shown[1], encoding="utf-8")
    other = "job_id,submit_s,gpus,duration_s,estimate_s,tenant\nother,0,80,900000,900000,red\n"
    Path("jobs.csv").write_text(other, encoding="utf-8")
    command = "run jobs.csv --policy easy --cluster n10g8 --set reservations=plan.yaml --out out"
    assert run_app(app, "clustersim", command.split()) == 0
    with Path("out/jobs.csv").open(encoding="utf-8") as file:
        (job,) = csv.DictReader(file)
    after_the_last = 700000 + 3 * 604800 + 7200
    assert float(job["start_s"]) == after_the_last  # before, it would end after the next begins


def test_the_page_on_traces_shows_what_python_and_the_check_print(capsys: pytest.CaptureFixture[str]) -> None:
    page = DOCS / "traces.md"
    result = doctest.testfile(str(page), module_relative=False)
    assert (result.failed, result.attempted) == (0, 3)
    rows = [f"{i},{i},8,gpt3-13b,64,5" for i in range(6)]
    rows[1] = "1,1,0,gpt3-13b,64,5"
    rows[5] = "5,5,8,gpt3-31b,64,5"
    Path("jobs.csv").write_text("\n".join(["job_id,submit_s,gpus,model,global_batch,iterations", *rows]))
    capsys.readouterr()
    assert main(["trace", "check", "jobs.csv"]) == 3
    shown = page.read_text().split("    $ clustersim trace check jobs.csv\n")[1].split("\n\n")[0]
    assert capsys.readouterr().err.splitlines() == [line.strip() for line in shown.splitlines()]


def test_python_examples_of_the_readme_run(capsys: pytest.CaptureFixture[str]) -> None:
    examples = re.findall(r"^```python\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    assert len(examples) >= 2
    names: dict[str, object] = {}
    for example in examples:
        exec(compile(example, "README.md", "exec"), names)
    assert float(capsys.readouterr().out.split()[0]) > 0


def test_parts_of_a_table() -> None:
    assert parts("FIFO   1,234.5 h  (−2.8 %) 3 ──") == ([2.8], [1234.5, 3.0], "FIFO # h (change) #")


@pytest.mark.long
def test_tables_of_pages_are_what_commands_print(shared_dir: Path) -> None:
    assert_nearly_printed(refresh.block(README, "demo"), refresh.demo_table())
    table = refresh.accuracy_table(shared_dir / "data")
    assert refresh.block(README, "accuracy").strip() == table.strip()
    page = (DOCS / "what-if.md").read_text()
    assert parts(refresh.block(page, "what-if")) == parts(refresh.what_if_table())


def test_no_line_of_the_demo_is_wider_than_a_terminal() -> None:
    assert max(map(len, refresh.block(README, "demo").splitlines())) <= 80


def test_ci_runs_the_marked_blocks_of_the_readme_and_the_commands_of_all_pages() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    for name in ("demo", "activate", "test"):
        assert re.search(rf"^```sh {name}\n.+?^```$", README, re.DOTALL | re.MULTILINE), name
        assert re.search(rf"(run|readme) {name}\b", script), name
    assert "docs.website.page_commands" in script


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
