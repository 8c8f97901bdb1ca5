"""The examples of docs/fleets.md run, and its cluster file is the one beside it."""

from __future__ import annotations

import csv
import re
import shlex
from pathlib import Path

import pytest
import yaml

from clustersim.cli import app
from itertime.commandline import run_app
from tests.places import ROOT

PAGE = (ROOT / "docs" / "fleets.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_its_cluster_file_is_the_one_beside_it() -> None:
    (shown,) = blocks("yaml")
    assert yaml.safe_load(shown) == yaml.safe_load((ROOT / "docs" / "sites.yaml").read_text(encoding="utf-8"))


def test_its_commands_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = "".join(blocks("sh")).replace("\\\n", " ").replace("docs/", f"{ROOT}/docs/").splitlines()
    assert len(lines) == 5
    for line in lines:
        assert run_app(app, "clustersim", shlex.split(line)[1:]) == 0, line


def test_its_reservations_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = re.search(r"^    # plan\.yaml\n((?:    .*\n)+)", PAGE, re.MULTILINE)
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
