"""The study of BERT: its inputs, its arithmetic, the order of submissions, and that its page is fresh."""

import csv
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from experiments import bert
from experiments import bert_runs as runs
from itertime import predict
from itertime.calibration import Cells, read_table, validate
from itertime.calibration.bert_run import bert_run
from itertime.planning import Steps
from itertime.spec import Site
from tests.places import ROOT

FOLDER = ROOT / "experiments"
RENEW = (
    "python -m experiments.bert --data ../shared/data/mlperf --out experiments/bert "
    "--page experiments/BERT.md, and read its text again"
)


@pytest.fixture(scope="module")
def rows(shared_dir: Path) -> list[Cells]:
    return read_table(shared_dir / "data" / "mlperf" / bert.FILE)


@pytest.fixture(scope="module")
def compared_and_skipped(rows: list[Cells]) -> tuple[list[runs.Measured], Counter[str]]:
    return runs.measured(rows)


def submission(name: str) -> runs.Submission:
    return next(each for each in runs.SUBMISSIONS if each.name == name)


def test_submissions_are_described_as_their_rows_are(rows: list[Cells]) -> None:
    """The same plan and system as the row of the log, so that a prediction here is that of `validate`."""
    for each in runs.SUBMISSIONS:
        organisation, version = each.name.split()
        start = f"mlperf-{version[1:]}-{organisation}-"
        (row,) = (one for one in rows if one["id"].startswith(start) and one["gpus"] == 1024)
        ours, theirs = bert_run(each.row, Site()), bert_run(row, Site())
        assert ours.plan == theirs.plan
        assert ours.system == replace(theirs.system, name=each.name)
        assert replace(theirs.model, name=runs.MODEL.name, source=runs.MODEL.source) == runs.MODEL
        assert row["time_to_train_s"] == pytest.approx(each.train_s, abs=0.006)


def test_published_ratios_are_those_of_the_published_seconds() -> None:
    for name, said in bert.RATIOS:
        samsung = submission(f"Samsung {name.split()[1]}").train_s or 0.0
        assert (submission(name).train_s or 0.0) / samsung == pytest.approx(said, abs=0.01)


def test_samsung_is_fastest_of_both_rounds_and_met_within_twelve_percent() -> None:
    seconds = {each.name: runs.trained(each.row)[0].seconds for each in runs.SUBMISSIONS}
    assert seconds["Samsung v2.0"] < seconds["NVIDIA v2.0"]
    assert seconds["Samsung v1.1"] < seconds["NVIDIA v1.1"] < seconds["Azure v1.1"]
    for name in ("Samsung v1.1", "Samsung v2.0"):
        assert seconds[name] == pytest.approx(submission(name).train_s, rel=0.12)


def test_a_training_is_its_parts() -> None:
    found, step_s = runs.trained(submission("NVIDIA v1.1").row, Steps.given(900))
    assert found.seconds == pytest.approx(sum(found.parts.values()))
    assert found.parts["steps"] == pytest.approx(900 * found.prediction.iteration_s)
    assert step_s > found.prediction.iteration_s


def test_the_variant_with_every_idea_is_the_submission() -> None:
    own = runs.trained(submission("Samsung v1.1").row)[0]
    assert runs.variant(*runs.ALL).step_s == pytest.approx(own.prediction.iteration_s, rel=1e-12)
    assert runs.variant(*runs.ALL).train_s == pytest.approx(own.seconds, rel=1e-12)
    assert runs.variant(*runs.NONE).key == ("drawn", "before", "lamb")


def test_ideas_change_what_they_say_and_nothing_else() -> None:
    for surroundings in (runs.NONE, runs.ALL):
        for name, (old, new) in runs.gains(surroundings).items():
            changed = [a != b for a, b in zip(old.key, new.key, strict=True)]
            assert any(changed)
            assert sum(changed) == (3 if name == "all together" else 1)


def test_the_signs_of_the_gains() -> None:
    """Published: local presorting, clipping by bucket and Adam each train faster (Kim et al., abstract)."""
    for surroundings in (runs.NONE, runs.ALL):
        found = runs.gains(surroundings)
        for name, (old, new) in found.items():
            assert new.step_s < old.step_s
            assert new.train_s < old.train_s
            if name != "clipping by bucket, not after":
                assert new.free_step_s < old.free_step_s


def test_launches_hide_what_balancing_saves() -> None:
    """With slow launches it saves next to nothing, with none as much as without launches."""
    saved = [
        runs.step_at("drawn", each) - runs.step_at("stratified-exchanged", each) for each in (0.0, 2.5, 4.0)
    ]
    assert saved == sorted(saved, reverse=True)
    free = [runs.variant(balance, "bucket", "fused-adam").free_step_s for balance in ("drawn", runs.ALL[0])]
    assert saved[0] == pytest.approx(free[0] - free[1], rel=0.01)
    assert runs.step_at(runs.ALL[0], runs.launches_ms()) == pytest.approx(
        runs.variant(*runs.ALL).step_s, rel=1e-12
    )


def test_a_table_of_all_combinations() -> None:
    found = list(csv.DictReader(bert.ablation_csv().splitlines()))
    keys = [(row["balance"], row["clipping"], row["optimizer"]) for row in found]
    assert keys == list(product(bert.BALANCES, bert.CLIPPINGS, bert.OPTIMIZERS))
    assert all(float(row["step_without_launches_s"]) <= float(row["step_s"]) for row in found)


def test_steps_of_lamb_at_the_largest_batch_are_an_input() -> None:
    assert (runs.LAMB_STEPS.low, runs.LAMB_STEPS.count, runs.LAMB_STEPS.high) == (318, 338, 358)
    (largest,) = (point for point in runs.points("A100", runs.PACKED) if point.gpus == 4096)
    assert largest.steps == runs.LAMB_STEPS.count


def test_more_gpus_train_faster_and_unknown_steps_have_no_time() -> None:
    for gpu in ("A100", "H100"):
        for work in (runs.SORTED, runs.PACKED):
            found = runs.points(gpu, work)
            times = [point.train_s for point in found if point.train_s is not None]
            assert times == sorted(times, reverse=True) or work == runs.SORTED
            assert [point.gpus for point in found if point.train_s is None] in ([4320], [])
    assert [runs.batch_of(gpus) for gpus in (8, 64, 1024, 4096)] == [448, 3072, 3072, 16_384]
    assert all(runs.batch_of(gpus) % gpus == 0 for gpus in runs.GPUS)


def test_rows_are_predicted_as_validate_does(
    shared_dir: Path,
    rows: list[Cells],
    compared_and_skipped: tuple[list[runs.Measured], Counter[str]],
) -> None:
    compared, skipped = compared_and_skipped
    found = validate(shared_dir / "data" / "mlperf" / bert.FILE)
    wanted = {(row.measured_s, row.prediction.iteration_s) for row in found.predicted}
    for each in compared:
        assert any(
            each.step_s == step and each.predicted_step_s == pytest.approx(s, rel=1e-12) for step, s in wanted
        )
    assert len(compared) + sum(skipped.values()) == len(rows) == 128


def test_page_and_tables_are_up_to_date() -> None:
    """Regression: the sections of experiments/BERT.md that need no data, and experiments/bert/."""
    page = (FOLDER / "BERT.md").read_text(encoding="utf-8")
    files = {"ideas.md": bert.ideas_md(), "launches.md": bert.launches_md()}
    files |= {"submissions.md": bert.submissions_md(), "scale.md": bert.scale_md()}
    assert bert.renewed(page, files) == page, RENEW
    for name, text in (files | {"ablation.csv": bert.ablation_csv()}).items():
        assert (FOLDER / "bert" / name).read_text(encoding="utf-8") == text, RENEW


def test_page_has_the_errors_of_today(
    rows: list[Cells], compared_and_skipped: tuple[list[runs.Measured], Counter[str]]
) -> None:
    compared, _ = compared_and_skipped
    page = (FOLDER / "BERT.md").read_text(encoding="utf-8")
    files = {"own_steps.md": bert.own_steps_md(rows), "measured.md": bert.measured_md(compared)}
    assert bert.renewed(page, files) == page, RENEW
    for name, text in files.items():
        assert (FOLDER / "bert" / name).read_text(encoding="utf-8") == text, RENEW


def test_a_page_is_renewed_between_its_comments() -> None:
    page = "a\n<!-- x.md -->\n\nold\n\n<!-- end -->\nb\n<!-- y.md -->\n\nkept\n\n<!-- end -->\n"
    new = bert.renewed(page, {"x.md": "new\n", "z.md": "nowhere\n"})
    assert new == page.replace("old", "new")


def test_predictions_use_the_plan_of_the_row() -> None:
    row = submission("NVIDIA v2.0").row
    run = bert_run(row, Site())
    alone = predict(runs.MODEL, run.plan, run.system, run.profile, memory_headroom=0.0)
    assert runs.trained(row)[0].prediction.iteration_s == alone.iteration_s
