"""The tables of convergence: medians and ranges by hand, hostile input, and that they are what ships."""

from __future__ import annotations

import pytest

from experiments.evidence.build_convergence import COLUMNS, main, start_up_table, steps_table
from itertime.planning.convergence import CONVERGENCE, STARTUP, STEPS_SUFFIX


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


SOURCE = "mlcommons/training_results_v1.0@abc A/results/x/bert/result_0.txt"
ROW = log(100) | {"id": "x", "duplicate_of": "", "source": SOURCE}


@pytest.mark.parametrize(
    ("row", "code", "words"),
    [
        (ROW | {"source": "elsewhere"}, 3, "2: source='elsewhere': must be REPOSITORY"),
        (ROW | {"steps_to_converge": "many"}, 3, "2: steps_to_converge='many': must be a number above 0"),
        (ROW | {"startup_s": "nan"}, 3, "2: startup_s='nan': must be a number"),
        (ROW | {"global_batch": "0"}, 3, "2: global_batch='0': must be a whole number from 1"),
        ({"a": "1", "b": "2"}, 3, "column id is missing"),
        (ROW, 2, "no global batch has 5 logs"),
    ],
)
def test_a_broken_table_is_an_error_with_line_key_and_value(tmp_path, capsys, row, code, words):
    columns = COLUMNS if "id" in row else tuple(row)
    path = tmp_path / "t.csv"
    path.write_text(",".join(columns) + "\n" + ",".join(f'"{row[name]}"' for name in columns) + "\n")
    assert main([str(path), "-o", str(tmp_path)]) == code
    assert words in capsys.readouterr().err
