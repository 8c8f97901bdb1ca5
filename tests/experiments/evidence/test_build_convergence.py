"""The tables of convergence: medians and ranges by hand, hostile input, and that they are what ships."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.evidence.build_convergence import COLUMNS, main, start_up_table, steps_table
from itertime.errors import TableError
from itertime.planning.convergence import CONVERGENCE, STARTUP, STEPS_SUFFIX

SOURCE = "mlcommons/training_results_v{round}@abc {organisation}/results/x/bert/result_0.txt"


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
    assert main([str(measured), "-o", str(tmp_path)]) == 0
    for name in (f"bert-large-wikipedia{STEPS_SUFFIX}", STARTUP):
        assert (tmp_path / name).read_text() == (CONVERGENCE / name).read_text()


def write(path: Path, **cells: str) -> Path:
    plain = log(100) | {"id": "x", "duplicate_of": "", "source": SOURCE.format(round="1.0", organisation="A")}
    row = plain | cells
    path.write_text(",".join(COLUMNS) + "\n" + ",".join(f'"{row[name]}"' for name in COLUMNS) + "\n")
    return path


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ({"source": "elsewhere"}, "2: source='elsewhere': must be REPOSITORY"),
        ({"steps_to_converge": "many"}, "2: steps_to_converge='many': must be a number above 0"),
        ({"startup_s": "nan"}, "2: startup_s='nan': must be a number"),
        ({"global_batch": "0"}, "2: global_batch='0': must be a whole number from 1"),
    ],
)
def test_a_broken_row_is_an_error_with_line_key_and_value(tmp_path, capsys, cells, words):
    path = write(tmp_path / "t.csv", **cells)
    assert main([str(path), "-o", str(tmp_path)]) == TableError("").exit_code
    assert words in capsys.readouterr().err


def test_another_table_is_refused(tmp_path, capsys):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n")
    assert main([str(path), "-o", str(tmp_path)]) == TableError("").exit_code
    assert "column id is missing" in capsys.readouterr().err


def test_too_few_logs_give_no_range(tmp_path, capsys):
    assert main([str(write(tmp_path / "t.csv")), "-o", str(tmp_path)]) == 2
    assert "no global batch has 5 logs" in capsys.readouterr().err
