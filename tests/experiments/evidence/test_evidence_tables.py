"""The tables of balancing, convergence and frameworks are what the programs print; medians, hostile input."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.evidence import balance_table, build_convergence, fit_frameworks, left_out
from experiments.evidence import choose_plans as plans
from experiments.evidence.balance_table import imbalances
from experiments.evidence.build_convergence import COLUMNS, start_up_table, steps_table
from experiments.evidence.fit_frameworks import (
    FREE,
    HELD_BY_PROFILES,
    Runs,
    fit,
    fitted_frameworks,
    leave_one_out,
)
from itertime.calibration import RunSet, read_table
from itertime.cli import main as itertime
from itertime.errors import UserError
from itertime.planning.convergence import CONVERGENCE, STARTUP, STEPS_SUFFIX
from itertime.spec import Lengths, load_framework, load_lengths
from tests.places import ROOT, TABLES
from tests.tables import table_rows

NUMBER = re.compile(r"\d[\d,]*\.?\d*")


def test_the_page_shows_what_the_program_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers within a unit of their last digit but one; the last bits of sums differ between CPUs."""
    assert balance_table.main(["wikipedia-512"]) == 0
    printed = capsys.readouterr().out
    shown = (ROOT / "docs" / "balancing.md").read_text().split("```text\n")[1].split("```")[0]
    assert NUMBER.sub("#", shown) == NUMBER.sub("#", printed)
    numbers = [[float(each.replace(",", "")) for each in NUMBER.findall(text)] for text in (shown, printed)]
    assert numbers[0] == pytest.approx(numbers[1], rel=1e-3, abs=2e-3)


def test_work_is_over_the_mean_without_padding() -> None:
    found = imbalances(load_lengths("wikipedia-512"), 64, 8, 8, 512, 1024)
    assert found["as drawn"].average == pytest.approx(1)
    assert found["sorted over all ranks"].average == pytest.approx(1)
    assert found["padded"].mean == pytest.approx(2.04, abs=0.01)
    assert 1 < found["packed rows, as drawn"].average < 1.05
    equal = imbalances(Lengths("e", "e", (1, 2, 3, 4), (0.25,) * 4), 4, 4, 2, 4, 64)
    assert equal["stratified"].imbalance == pytest.approx(1)  # one sample of each length


def test_bad_input_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert balance_table.main(["wikipedia-512", "--seq-len", "256"]) == 3
    assert "lengths" in capsys.readouterr().err
    assert balance_table.main(["wikipedia-512", "--samples", "2"]) == 2
    assert "at least one from each of 4 bins" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        balance_table.main(["wikipedia-512", "--ranks", "0"])


def test_the_command_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """Balancing by strata and exchange beats padding, and what is drawn shows as a spread."""
    page = (ROOT / "docs" / "balancing.md").read_text()
    (line,) = [line for line in page.splitlines() if line.startswith("    itertime ")]
    words = line.split()[1:]
    assert itertime([*words, "--json"]) == 0
    balanced = json.loads(capsys.readouterr().out)
    assert itertime([*words[:-2], "--json"]) == 0
    padded = json.loads(capsys.readouterr().out)
    assert balanced["iteration_s"] < 0.8 * padded["iteration_s"]
    low, high = balanced["spread_s"]
    assert low < balanced["iteration_s"] < high
    assert 0 < balanced["breakdown"]["imbalance"] < 0.1 * balanced["iteration_s"]


# Plans that are chosen


SETS = ("a100_bigscience", "a100_internevo_zero1", "a100_megatron_deepspeed")


def four_plans(write_table):
    """Two plans of which one ran twice, a run of another batch, and one of another number of layers."""
    rows = [
        {"id": "a", "tp": "8", "dp": "1", "pp": "1", "gpus": "8", "iteration_s": "10"},
        {"id": "b", "tp": "4", "dp": "2", "pp": "1", "gpus": "8", "iteration_s": "7"},
        {"id": "b2", "tp": "4", "dp": "2", "pp": "1", "gpus": "8", "iteration_s": "9"},
        {"id": "c", "tp": "2", "dp": "4", "pp": "1", "gpus": "8", "iteration_s": "1", "global_batch": "8"},
    ]
    return RunSet.of(list(read_table(write_table(*rows))))


def test_the_plans_of_a_choice_differ_and_their_work_does_not(write_table):
    (choice,) = plans.choices_of(four_plans(write_table), np.array([1.0, 2.0, 2.0, 0.5]))
    assert [plan.tp for plan in choice.plans] == [8, 4]
    assert choice.measured_s.tolist() == [10.0, 8.0]
    assert choice.predicted_s.tolist() == [1.0, 2.0]
    assert choice.regret == pytest.approx(0.25)
    assert replace(choice, predicted_s=np.array([2.0, 1.0])).regret == 0.0
    assert choice.only([0]) is None


def test_regret_over_choices(write_table):
    (choice,) = plans.choices_of(four_plans(write_table), np.array([1.0, 2.0, 2.0, 0.5]))
    found = plans.regret_of([choice, replace(choice, predicted_s=np.array([2.0, 1.0]))])
    assert (found.groups, found.plans) == (2, 4)
    assert (found.mean, found.most) == pytest.approx((12.5, 25.0))
    assert plans.regret_of([]) is None
    text = plans.report({"one": [choice]}, largest=1)
    assert text.splitlines()[-1].endswith("tp8 pp1 dp1 mb4 full +25 % over tp4 pp1 dp2 mb4 full")


def test_pipelines_that_are_not_reproduced_are_left_out(write_table):
    (choice,) = plans.choices_of(four_plans(write_table), np.array([1.0, 2.0, 2.0, 0.5]))
    assert plans.reproduced(choice) is choice
    odd = replace(choice, source="hf-h100")
    assert plans.reproduced(odd).plans == odd.plans
    assert plans.reproduced(replace(odd, plans=tuple(replace(plan, pp=2) for plan in odd.plans))) is None


def files(names):
    paths = [TABLES / f"{name}.csv" for name in names]
    if not all(path.exists() for path in paths):
        pytest.skip(f"{TABLES} is not here")
    return paths


def test_the_plan_predicted_best_is_at_most_three_percent_slower_on_a100():
    found = plans.summary(plans.regrets(files(SETS)))
    assert found["all"].groups >= 19
    assert found["all"].mean <= 3.0


def test_the_command(capsys):
    assert plans.main([str(path) for path in files(SETS[:1])]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[1].startswith("a100_bigscience")
    assert "all reproduced" in out


def log(steps: float, batch: int = 100, **more: str) -> dict[str, str]:
    plain = {"optimizer": "LAMB", "round": "1.0", "organisation": "A", "cuda_graph": "", "work": "packed"}
    numbers = {"global_batch": str(batch), "steps_to_converge": str(steps), "gpus": "8", "startup_s": "1"}
    return plain | numbers | more


def test_steps_are_medians_over_logs_and_small_batches_borrow_their_range():
    five = [log(steps) for steps in (80, 90, 100, 110, 120)]
    one = [log(50, 200, optimizer="LAMB (distributed)", round="2.1", organisation="B")]
    table = steps_table([*five, *one])
    assert table[0] == ["lamb", "100", "5", "1.0", "A", "84", "100", "116", "yes"]
    assert table[1] == ["lamb", "200", "1", "2.1", "B", "42", "50", "58", "no"]


def test_both_spellings_of_a_rule_and_of_an_organisation_are_one():
    logs = [log(100), *(log(100, optimizer="LAMB (distributed)", organisation="a") for _ in range(4))]
    (line,) = steps_table(logs)
    assert line[:5] == ["lamb", "100", "5", "1.0", "A"]
    assert len(steps_table([*logs, log(100, optimizer="Adam")])) == 2


def test_start_up_is_by_graph_and_by_gpus_and_a_single_log_joins_the_class_below():
    small = [log(1, startup_s=str(seconds)) for seconds in (1, 2, 3)]
    large = [log(1, gpus="64", startup_s=str(seconds)) for seconds in (10, 11, 12, 13, 14)]
    largest = [log(1, gpus="1024", startup_s="100"), log(1, gpus="1024", startup_s="100", work="unknown")]
    graph = [log(1, cuda_graph="yes", work="unknown", startup_s="-1")]
    table = start_up_table([*small, *large, *largest, *graph])
    assert [line[:3] for line in table] == [["no", "1", "3"], ["no", "9", "6"], ["yes", "1", "1"]]
    assert [line[6] for line in table] == ["2", "12.5", "0"]


def test_the_shipped_tables_are_what_the_program_computes(shared_dir, tmp_path):
    measured = shared_dir / "data" / "mlperf" / "bert_iterations.csv"
    if not measured.is_file():
        pytest.skip(f"no logs of MLPerf at {measured}")
    assert build_convergence.main([str(measured), "-o", str(tmp_path)]) == 0
    for name in (f"bert-large-wikipedia{STEPS_SUFFIX}", STARTUP):
        assert (tmp_path / name).read_text() == (CONVERGENCE / name).read_text()


SOURCE = "mlcommons/training_results_v1.0@abc A/results/x/bert/result_0.txt"
ROW = log(100) | {"id": "x", "duplicate_of": "", "source": SOURCE}


@pytest.mark.parametrize(("changes", "code", "words"), table_rows("a broken table of logs"))
def test_a_broken_table_is_an_error_with_line_key_and_value(tmp_path, capsys, changes, code, words):
    row = ROW | changes
    columns = [name for name in COLUMNS if row[name] is not None]
    path = tmp_path / "t.csv"
    path.write_text(",".join(columns) + "\n" + ",".join(f'"{row[name]}"' for name in columns) + "\n")
    assert build_convergence.main([str(path), "-o", str(tmp_path)]) == code
    assert words in capsys.readouterr().err


# Constants of frameworks


FITTED = ROOT / "itertime" / "residuals" / "frameworks.json"
FITTED_SETS = ("iterations/h100_llmfoundry_fsdp", "modern_gpus/iterations/h100_dgxc_nemo_bf16")


def tables(shared_dir: Path, *names: str) -> list[Path]:
    return [shared_dir / "data" / f"{name}.csv" for name in names]


def shipped() -> list[float]:
    return [
        1.0
        if constant.field == HELD_BY_PROFILES
        else getattr(load_framework(constant.frameworks[0]), constant.field)
        for constant in FREE
    ]


def test_shipped_constants_are_the_fitted_ones() -> None:
    document = json.loads(FITTED.read_text())
    for constant in FREE:
        fitted = document["constants"][constant.name]
        if constant.field == HELD_BY_PROFILES:
            assert fitted == pytest.approx(1, abs=0.01)
            continue
        for name in constant.frameworks:
            assert getattr(load_framework(name), constant.field) == fitted, constant.name
    engine = document["megatron-deepspeed: pipeline_layer_s"]
    assert load_framework("megatron-deepspeed").pipeline_layer_s == pytest.approx(engine, rel=0.01)


def test_a_fit_finds_the_constants_that_made_the_times(shared_dir: Path) -> None:
    """The measured times of every fourth run are replaced by those of known constants."""
    truth = dict(zip([constant.name for constant in FREE], shipped(), strict=True))
    truth |= {"te: elementwise_multiplier": 1.3, "eager: elementwise_multiplier": 2.2}
    values = list(truth.values())
    made = []
    for each in Runs.of(tables(shared_dir, *FITTED_SETS)):
        part = RunSet(each.set.cells[::4], each.set.runs[::4], ())
        seconds = part.evaluate(frameworks=fitted_frameworks(values, sustained=each.sustained))[0]
        cells = tuple(
            row | {"iteration_s": float(found)} for row, found in zip(part.cells, seconds, strict=True)
        )
        made.append(replace(each, set=RunSet(cells, part.runs, ())))
    found = fit(made, shipped())
    for each in made:
        before, after = (
            np.abs(each.errors(fitted_frameworks(one, sustained=each.sustained))).mean()
            for one in (shipped(), found)
        )
        assert after < 0.01 < 0.02 < before, each.file


def test_a_source_left_out_does_not_enter_its_constants(shared_dir: Path) -> None:
    """Times that are ten times too long change the constants of all other sources, not of their own."""
    runs = [
        replace(each, set=RunSet(each.set.cells[::9], each.set.runs[::9], ()))
        for each in Runs.of(tables(shared_dir, *FITTED_SETS))
    ]
    spoilt = []
    for each in runs:
        cells = tuple(
            row | {"iteration_s": row["iteration_s"] * (10 if each.source == "dgxc" else 1)}
            for row in each.set.cells
        )
        spoilt.append(replace(each, set=RunSet(cells, each.set.runs, ())))
    before, after = (leave_one_out(one, shipped()) for one in (runs, spoilt))
    assert after["dgxc"]["constants"] == before["dgxc"]["constants"]
    assert after["llm-foundry"]["constants"] != before["llm-foundry"]["constants"]


def test_sources_left_out_count_alike(shared_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The mean is that of the lines of sources, of which one has four times the rows of the other."""
    files = [f"{shared_dir}/data/iterations/{name}.csv" for name in ("published", "a100_bigscience")]
    assert left_out.main(files) == 0
    _, *sources, mean = (line.split(" | ") for line in capsys.readouterr().out.splitlines())
    assert [cells[:2] for cells in sources] == [["bigscience", "37"], ["selene", "10"]]
    columns = zip(*(map(float, cells[2:]) for cells in sources), strict=True)
    means = [sum(column) / 2 for column in columns]
    assert [float(cell) for cell in mean[2:]] == pytest.approx(means, abs=0.11)


def test_runs_of_other_frameworks_alone_are_refused(shared_dir: Path) -> None:
    with pytest.raises(UserError, match="no run under te, compile, eager"):
        fit(Runs.of(tables(shared_dir, "iterations/published")), shipped())


def test_errors_are_logarithms(shared_dir: Path) -> None:
    (runs,) = Runs.of(tables(shared_dir, "iterations/published"))
    predicted = runs.set.evaluate()[0]
    errors = runs.errors(fitted_frameworks(shipped(), sustained=False))
    assert errors == pytest.approx(np.log(predicted / runs.set.measured_s))


@pytest.mark.long
def test_the_shipped_document_is_what_the_tables_say(shared_dir: Path) -> None:
    data = shared_dir / "data"
    files = [*sorted(data.glob("iterations/*.csv")), *sorted(data.glob("modern_gpus/iterations/*.csv"))]
    found, known = fit_frameworks.document_of(files), json.loads(FITTED.read_text())
    for name, value in known["constants"].items():
        assert math.isclose(found["constants"][name], value, rel_tol=0.02, abs_tol=0.002), name
    for source, entry in known["leave_one_out"].items():
        for file, scores in entry["files"].items():
            mape = found["leave_one_out"][source]["files"][file]["mape"]
            assert mape == pytest.approx(scores["mape"], abs=0.2), (source, file)
