"""What commands say of themselves: help with examples that are valid, completion, and what a policy is."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys

import pytest
import typer

from clustersim.cli import app, main
from clustersim.commands.help import completion
from clustersim.commands.help.examples import EXAMPLES
from clustersim.commands.help.policy_pages import page_of
from clustersim.runs import list_policies, policy_details
from tests.places import ROOT

NAMES = [info.name for info in list_policies()]


def output_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("command", sorted(EXAMPLES))
def test_examples_have_options_that_the_command_has(command: str) -> None:
    group = typer.main.get_command(app)
    parameters = group.commands[command].params  # type: ignore[attr-defined]
    known = {option for parameter in parameters for option in parameter.opts}
    for _, line in EXAMPLES[command]:
        words = shlex.split(line)
        assert words[:2] == ["clustersim", command]
        assert all(word in known for word in words if word.startswith("-")), line


def test_names_are_completed() -> None:
    assert completion.policy("gav") == ["gavel-ftf", "gavel-makespan", "gavel-max-min", "gavel-throughput"]
    assert completion.policies("fifo,el") == ["fifo,elasticflow"]
    assert "fifo,fifo" not in completion.policies("fifo,fi")
    assert completion.planners("3") == ["3d"]
    assert completion.placements("pa") == ["pack"]
    assert "mlperf" in completion.overheads("")
    assert "dgx-h100" in completion.systems("dgx")
    assert "overheads.launch_s=" in completion.settings("overheads.la")
    assert completion.settings("failures.pre") == ["failures.preset="]
    assert "nodes=" in completion.varied("n")


def test_a_shell_gets_the_names_of_policies() -> None:
    words = {"COMP_WORDS": "clustersim compare x.csv --policies fifo,vt", "COMP_CWORD": "4"}
    environment = {**os.environ, **words, "_CLUSTERSIM_COMPLETE": "complete_bash"}
    program = "import sys; from clustersim.cli import main; sys.exit(main())"
    found = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == ["fifo,vtrain-aware"]


@pytest.mark.parametrize("name", NAMES)
def test_a_policy_says_what_it_is(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = output_of(capsys, "policies", "show", name)
    assert max(map(len, text.splitlines())) <= 80
    details = policy_details(name)
    assert f"Planner: {details.planner}" in text
    for parameter in details.parameters:
        assert re.search(rf"^  {parameter.name} \(default", text, re.MULTILINE)
        assert parameter.meaning, (name, parameter.name)
    assert name in (ROOT / page_of(name)).read_text()


def test_the_pages_of_policies_are_those_of_the_table() -> None:
    text = (ROOT / "docs" / "policies.md").read_text()
    rows = re.findall(r"^\| ([a-z, -]+) \| .* \| \[.*?\]\((policies/[\w-]+\.md)", text, re.MULTILINE)
    stated = {name.strip(): f"docs/{page}" for names, page in rows for name in names.split(",")}
    assert stated == {name: page_of(name) for name in NAMES if page_of(name) != "docs/policies.md"}
