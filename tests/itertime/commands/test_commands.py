"""The commands: their documents, exit codes and what they print; and what is said of wrong inputs."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from itertime import evaluate, load_model, load_profile, load_system
from itertime.accuracy import errors_on
from itertime.cli import main
from itertime.planning import WHOLE, search, space
from itertime.planning.search import fitting_plans
from itertime.planning.space import candidates
from itertime.prediction import GROUPS, difference, in_words, where_time_goes
from itertime.spec import SHIPPED_SYSTEMS, list_profiles
from itertime.spec.profile import profile_path
from tests.effort import first
from tests.itertime import golden_commands
from tests.itertime.calibration import golden_rows
from tests.refusals import load, refused
from tests.tables import table_rows

SYSTEM, MODEL = load_system("dgx-a100-80gb"), load_model("megatron-18.4b")
SEARCH = ["search", "--model", "megatron-18.4b", "--system", "dgx-a100-80gb", "--global-batch", "256"]
REFUSALS = dict(load(Path(__file__).parents[1] / "refusals"))
SMALL = ["search", "--model", "llama2-7b", "--system", "dgx-a100-80gb", "--global-batch", "32"]


def plans_of(capsys, *more, search=SEARCH):
    assert main([*search, *more, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["plans"]


@pytest.mark.parametrize(("more", "key", "values"), first(5, table_rows("restricted searches")))
def test_every_choice_is_in_the_space_and_can_be_restricted(capsys, more, key, values):
    plans = plans_of(capsys, "--gpus", "8", "--top", "1000", *more.split(), search=SMALL)
    assert {plan[key] for plan in plans} == set(values)
    assert len({tuple(map(str, plan.values())) for plan in plans}) == len(plans)


def test_cost_is_dollars_at_the_price_and_says_what_makes_a_runner_up_dearer(capsys):
    best, *others = plans_of(
        capsys, "--max-gpus", "64", "--objective", "cost", "--price", "2.5", "--top", "9"
    )
    assert best["cost_usd"] == pytest.approx(best["gpus"] * best["iteration_s"] * 2.5 / 3600)
    assert best["worse_by"] == 0
    for plan in others:
        assert plan["worse_by"] == pytest.approx(plan["cost_usd"] - best["cost_usd"])
        assert sum(plan["worse_because"].values()) == pytest.approx(plan["worse_by"])


def test_the_front_is_every_plan_that_none_with_as_few_gpus_beats(capsys):
    front = plans_of(capsys, "--max-gpus", "64", "--pareto")
    plans = candidates(MODEL, 256, SYSTEM, WHOLE, range(1, 65))
    plans = fitting_plans(MODEL, plans, SYSTEM, load_profile(SYSTEM.profile))
    seconds, used = evaluate(MODEL, plans, SYSTEM).iteration_s, plans.gpus
    expected = [
        (int(gpus), seconds[used == gpus].min())
        for gpus in np.unique(used)
        if not (seconds[used < gpus] <= seconds[used == gpus].min()).any()
    ]
    assert [(plan["gpus"], plan["iteration_s"]) for plan in front[::-1]] == expected
    assert len(front) > 5


def test_interleaving_that_gains_little_is_not_chosen_unasked(capsys):
    """Llama-2 7B on 8 H800 (NVIDIA/Megatron-LM, pull request 482): 49.8 GB, measured without interleaving."""
    command = "predict --model llama2-7b --seq-len 2048 --system dgx-h800 --framework te --pp 2 --dp 4"
    command += " --micro-batch 2 --global-batch 2048 --recompute none --zero 1 --fp32-gradients"
    assert main(command.split()) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "--interleave 1; --interleave 2 would be 0.1% faster and take more memory" in words
    assert float(words.partition(" GB of 84.9")[0].split()[-1]) == pytest.approx(49.8, rel=0.15)


def test_large_errors_of_a_framework_are_said(capsys, monkeypatch):
    from itertime.accuracy import errors_by_gpu

    known = errors_on("h100-80gb", "te")
    monkeypatch.setattr(errors_by_gpu, "LARGE_PCT", known.mape_pct)
    where = ["--model", MODEL.name, "--system", "dgx-h100,framework=te", "--global-batch", "64"]
    assert main(["search", *where, "--gpus", "64"]) == 0
    printed = capsys.readouterr().out
    assert max(len(line) for line in printed.partition("warning:")[2].splitlines()) <= 100
    out = " ".join(printed.split())
    error = f"with framework te are unreliable: off by {known.mape_pct:.0f} % on average"
    assert f"warning: predictions on profile h100-80gb {error}" in out


def test_a_space_too_large_to_hold_is_refused(capsys, monkeypatch):
    monkeypatch.setattr(space, "MOST_PLANS", 10_000)
    assert main([*SEARCH, "--max-gpus", "1024"]) == 2
    assert "too many" in capsys.readouterr().err


def test_the_groups_cover_every_part_of_every_kind_of_plan_once():
    names = [name for parts in GROUPS.values() for name in parts]
    assert len(names) == len(set(names))
    for model in (MODEL, load_model("mixtral-8x7b"), load_model("llama2-7b")):
        for found in search(model, 256, SYSTEM, 64, space=WHOLE, top=100).plans:
            assert set(found.prediction.breakdown) <= set(names)
            groups = where_time_goes(found.prediction)
            assert sum(groups.values()) == pytest.approx(found.prediction.iteration_s, rel=1e-12)


def test_parts_too_small_to_matter_are_not_told():
    more = difference({"a": 1.0, "b": 1.0}, {"a": 3.0, "b": 1.001, "c": -1.0})
    assert in_words(more, " s") == "a +2 s, c -1 s"
    assert in_words(difference({}, {}), " s") == ""


NODE = ["--model", "llama3-8b", "--system", "dgx-a100-80gb", "--global-batch", "64"]


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main([*arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_set_in_search_timeline_and_validate(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, write_table: Any
) -> None:
    search = ["search", *NODE, "--gpus", "16", "--top", "1"]
    plain = document(capsys, *search)["plans"][0]
    slow = document(capsys, *search, "--set", "system.site.iteration_overhead_s=1")["plans"][0]
    assert slow["iteration_s"] == pytest.approx(plain["iteration_s"] + 1)
    assert (
        main(["timeline", *NODE, "--dp", "16", "--set", "model.layers=2", "-o", str(tmp_path / "t.json")])
        == 0
    )
    capsys.readouterr()
    table = str(write_table({}))
    system = ["--system", "dgx-a100-80gb"]
    plain = document(capsys, "validate", table, *system)
    slow = document(capsys, "validate", table, *system, "--set", "system.site.iteration_overhead_s=100")
    assert slow["all"]["bias"] > plain["all"]["bias"] + 100


def test_show_lists_every_part_of_every_profile(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "show", "--json"]) == 0
    profiles = json.loads(capsys.readouterr().out)["profiles"]
    assert [profile["name"] for profile in profiles] == list_profiles()
    for profile in profiles:
        parts = load_profile(profile["name"]).evidence
        assert [part["part"] for part in profile["parts"]] == [part.part for part in parts]
        kinds = {part["kind"] for part in profile["parts"]}
        assert "assumed" in kinds
        by_sheets = profile["name"].startswith("v100") or profile["name"] in SHIPPED_SYSTEMS
        assert ("fitted" in kinds) != by_sheets  # of which nothing is fitted


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


def test_help_is_quick():
    start = time.perf_counter()
    run = subprocess.run(
        [sys.executable, "-m", "itertime.cli", "--help"], capture_output=True, text=True, check=True
    )
    assert time.perf_counter() - start < 3  # 0.5 s is the aim; a busy machine is slower
    assert "predict" in run.stdout
    code = "import sys, itertime.cli; print({'numpy', 'scipy', 'pandas', 'pydantic'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"


def test_a_prediction_starts_without_scipy():
    """Importing it takes about as long as all else of a prediction's start."""
    code = "import sys, itertime.prediction; print({'scipy', 'pandas', 'matplotlib'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"


def named(golden: ModuleType) -> list[Any]:
    return [pytest.param(case, id=case["name"]) for file in golden.FILES for case in golden.cases(file)]


@pytest.mark.parametrize("case", named(golden_commands))
def test_a_command_prints_this(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole (`golden/`)."""
    monkeypatch.setenv("COLUMNS", "80")
    golden_commands.assert_prints(golden_commands.printed(case, tmp_path), case["prints"])


@pytest.mark.parametrize("case", named(golden_rows))
def test_a_row_is_taken_for_this(case: dict[str, Any], tmp_path: Path) -> None:
    """Of a measured run, or why it is skipped (`calibration/golden/`)."""
    assert golden_rows.becomes(case, tmp_path) == case["becomes"]


@pytest.mark.parametrize("name", REFUSALS)
def test_a_wrong_input_is_named(name: str, tmp_path: Path) -> None:
    """Word for word (`refusals/`)."""
    said = REFUSALS[name]["inputs"]
    assert refused(REFUSALS[name], tmp_path.resolve()) == (said["raises"], said["says"])
