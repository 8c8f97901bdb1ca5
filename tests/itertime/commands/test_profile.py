"""`itertime profile`: what it shows."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from itertime.cli import main
from itertime.spec import list_profiles, load_profile
from itertime.spec.profile import profile_path


def test_show_lists_every_part_of_every_profile(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "show", "--json"]) == 0
    profiles = json.loads(capsys.readouterr().out)["profiles"]
    assert [profile["name"] for profile in profiles] == list_profiles()
    for profile in profiles:
        parts = load_profile(profile["name"]).evidence
        assert [part["part"] for part in profile["parts"]] == [part.part for part in parts]
        kinds = {part["kind"] for part in profile["parts"]}
        assert "assumed" in kinds
        assert ("fitted" in kinds) == (profile["name"] != "v100-32gb")  # of which no table measures anything


def test_show_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "show", "a100-80gb"]) == 0
    out = capsys.readouterr().out
    assert "fitted     21198" in out
    assert "measured: m 512 to 32768" in out
    assert "from the bandwidth of elementwise" in out


def test_check_of_a_sound_and_of_a_broken_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "check", "a100-80gb"]) == 0
    assert "a100-80gb: 0 errors" in capsys.readouterr().out
    values = json.loads(profile_path("a100-80gb").read_text())
    values["hbm_bytes_per_s"] /= 4
    broken = tmp_path / "mine.json"
    broken.write_text(json.dumps(values))
    assert main(["profile", "check", str(broken), "--json"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] is False
    assert any("above the HBM bandwidth" in one["text"] for one in found["findings"])
    wrong = tmp_path / "wrong.json"  # a file is read once
    wrong.write_text(json.dumps(values | {"launch_s": -1}))
    assert main(["profile", "check", str(wrong)]) == 2
    assert f"{wrong}: launch_s" in capsys.readouterr().err


def test_layer_fits_a_terminal_and_sums_up(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["profile", "layer", "a100-80gb", "--model", "gpt3-175b", "--tp", "8", "--recompute", "full"]
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert not [line for line in lines if re.search(r"\.\d+\.", line)]  # two columns as one number
    assert lines[-1].startswith("one layer and micro-batch: ")
    assert main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert sum(one["seconds"] for one in found["kernels"]) == pytest.approx(found["layer_s"], rel=1e-8)
    assert sum(one["share"] for one in found["kernels"]) == pytest.approx(1, rel=1e-8)
    assert {one["pass"] for one in found["kernels"]} == {"forward", "backward", "recompute"}


def test_layer_of_a_users_profile_needs_a_system(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = json.loads(profile_path("a100-80gb").read_text())
    mine = tmp_path / "mine.json"
    mine.write_text(json.dumps(values | {"name": "mine"}))
    arguments = ["profile", "layer", str(mine), "--model", "llama2-7b"]
    assert main(arguments) == 2
    assert "no shipped system has it; give --system" in capsys.readouterr().err
    assert main([*arguments, "--system", "dgx-a100-80gb"]) == 0
    assert "gemm bf16" in capsys.readouterr().out
