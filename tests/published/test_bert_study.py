"""The study of BERT: its inputs, its arithmetic, the order of submissions, and that its page is fresh."""

from __future__ import annotations

import csv
import sys
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from experiments import output
from experiments.bert import (
    BALANCES,
    CLIPPINGS,
    FILE,
    OPTIMIZERS,
    RATIOS,
    ablation_csv,
    ideas_md,
    launches_md,
    main,
    measured_md,
    own_steps_md,
    renewed,
    scale_md,
    submissions_md,
)
from experiments.bert_runs import (
    ALL,
    GPUS,
    LAMB_STEPS,
    MODEL,
    NONE,
    PACKED,
    SORTED,
    SUBMISSIONS,
    Measured,
    Submission,
    batch_of,
    gains,
    launches_ms,
    measured,
    points,
    step_at,
    trained,
    variant,
)
from itertime import predict
from itertime.calibration import Cells, read_table, validate
from itertime.calibration.bert_run import bert_run
from itertime.errors import TableError
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
    return read_table(shared_dir / "data" / "mlperf" / FILE)


@pytest.fixture(scope="module")
def compared_and_skipped(rows: list[Cells]) -> tuple[list[Measured], Counter[str]]:
    return measured(rows)


@pytest.fixture(scope="module")
def compared(compared_and_skipped: tuple[list[Measured], Counter[str]]) -> list[Measured]:
    return compared_and_skipped[0]


def submission(name: str) -> Submission:
    return next(each for each in SUBMISSIONS if each.name == name)


def test_submissions_are_described_as_their_rows_are(rows: list[Cells]) -> None:
    """The same plan and system as the row of the log, so that a prediction here is that of `validate`."""
    for each in SUBMISSIONS:
        organisation, version = each.name.split()
        start = f"mlperf-{version[1:]}-{organisation}-"
        (row,) = (one for one in rows if one["id"].startswith(start) and one["gpus"] == 1024)
        ours, theirs = bert_run(each.row, Site()), bert_run(row, Site())
        assert ours.plan == theirs.plan
        assert ours.system == replace(theirs.system, name=each.name)
        assert replace(theirs.model, name=MODEL.name, source=MODEL.source) == MODEL
        assert row["time_to_train_s"] == pytest.approx(each.train_s, abs=0.006)


def test_published_ratios_are_those_of_the_published_seconds() -> None:
    for name, said in RATIOS:
        samsung = submission(f"Samsung {name.split()[1]}").train_s or 0.0
        assert (submission(name).train_s or 0.0) / samsung == pytest.approx(said, abs=0.01)


def test_samsungs_seconds_are_within_twelve_percent() -> None:
    for name in ("Samsung v1.1", "Samsung v2.0"):
        one = submission(name)
        assert trained(one.row)[0].seconds == pytest.approx(one.train_s, rel=0.12)


def test_samsung_is_fastest_of_both_rounds() -> None:
    seconds = {each.name: trained(each.row)[0].seconds for each in SUBMISSIONS}
    assert seconds["Samsung v2.0"] < seconds["NVIDIA v2.0"]
    assert seconds["Samsung v1.1"] < seconds["NVIDIA v1.1"] < seconds["Azure v1.1"]


def test_a_training_is_its_parts() -> None:
    found, step_s = trained(submission("NVIDIA v1.1").row, Steps.given(900))
    assert found.seconds == pytest.approx(sum(found.parts.values()))
    assert found.parts["steps"] == pytest.approx(900 * found.prediction.iteration_s)
    assert step_s > found.prediction.iteration_s


def test_the_variant_with_every_idea_is_the_submission() -> None:
    own = trained(submission("Samsung v1.1").row)[0]
    assert variant(*ALL).step_s == pytest.approx(own.prediction.iteration_s, rel=1e-12)
    assert variant(*ALL).train_s == pytest.approx(own.seconds, rel=1e-12)
    assert variant(*NONE).key == ("drawn", "before", "lamb")


def test_ideas_change_what_they_say_and_nothing_else() -> None:
    for surroundings in (NONE, ALL):
        for name, (old, new) in gains(surroundings).items():
            changed = [a != b for a, b in zip(old.key, new.key, strict=True)]
            assert any(changed)
            assert sum(changed) == (3 if name == "all together" else 1)


def test_the_signs_of_the_gains() -> None:
    """Published: local presorting, clipping by bucket and Adam each train faster (Kim et al., abstract)."""
    for surroundings in (NONE, ALL):
        found = gains(surroundings)
        for name, (old, new) in found.items():
            assert new.step_s < old.step_s
            assert new.train_s < old.train_s
            if name != "clipping by bucket, not after":
                assert new.free_step_s < old.free_step_s


def test_launches_hide_what_balancing_saves() -> None:
    """With slow launches it saves next to nothing, with none as much as without launches."""
    saved = [step_at("drawn", each) - step_at("stratified-exchanged", each) for each in (0.0, 2.5, 4.0)]
    assert saved == sorted(saved, reverse=True)
    free = [variant(balance, "bucket", "fused-adam").free_step_s for balance in ("drawn", ALL[0])]
    assert saved[0] == pytest.approx(free[0] - free[1], rel=0.01)
    assert step_at(ALL[0], launches_ms()) == pytest.approx(variant(*ALL).step_s, rel=1e-12)


def test_a_table_of_all_combinations() -> None:
    found = list(csv.DictReader(ablation_csv().splitlines()))
    keys = [(row["balance"], row["clipping"], row["optimizer"]) for row in found]
    assert keys == list(product(BALANCES, CLIPPINGS, OPTIMIZERS))
    assert all(float(row["step_without_launches_s"]) <= float(row["step_s"]) for row in found)


def test_steps_of_lamb_at_the_largest_batch_are_an_input() -> None:
    assert (LAMB_STEPS.low, LAMB_STEPS.count, LAMB_STEPS.high) == (318, 338, 358)
    (largest,) = (point for point in points("A100", PACKED) if point.gpus == 4096)
    assert largest.steps == LAMB_STEPS.count


def test_more_gpus_train_faster_and_unknown_steps_have_no_time() -> None:
    for gpu in ("A100", "H100"):
        for work in (SORTED, PACKED):
            found = points(gpu, work)
            times = [point.train_s for point in found if point.train_s is not None]
            assert times == sorted(times, reverse=True) or work == SORTED
            assert [point.gpus for point in found if point.train_s is None] in ([4320], [])
    assert [batch_of(gpus) for gpus in (8, 64, 1024, 4096)] == [448, 3072, 3072, 16_384]
    assert all(batch_of(gpus) % gpus == 0 for gpus in GPUS)


def test_rows_are_predicted_as_validate_does(
    shared_dir: Path,
    rows: list[Cells],
    compared_and_skipped: tuple[list[Measured], Counter[str]],
) -> None:
    compared, skipped = compared_and_skipped
    found = validate(shared_dir / "data" / "mlperf" / FILE)
    wanted = {(row.measured_s, row.prediction.iteration_s) for row in found.predicted}
    for each in compared:
        assert any(
            each.step_s == step and each.predicted_step_s == pytest.approx(s, rel=1e-12) for step, s in wanted
        )
    assert len(compared) + sum(skipped.values()) == len(rows) == 128


def test_page_and_tables_are_up_to_date() -> None:
    """Regression: the sections of experiments/BERT.md that need no data, and experiments/bert/."""
    page = (FOLDER / "BERT.md").read_text(encoding="utf-8")
    files = {"ideas.md": ideas_md(), "launches.md": launches_md()}
    files |= {"submissions.md": submissions_md(), "scale.md": scale_md()}
    assert renewed(page, files) == page, RENEW
    for name, text in (files | {"ablation.csv": ablation_csv()}).items():
        assert (FOLDER / "bert" / name).read_text(encoding="utf-8") == text, RENEW


def test_page_has_the_errors_of_today(rows: list[Cells], compared: list[Measured]) -> None:
    page = (FOLDER / "BERT.md").read_text(encoding="utf-8")
    files = {"own_steps.md": own_steps_md(rows), "measured.md": measured_md(compared)}
    assert renewed(page, files) == page, RENEW
    for name, text in files.items():
        assert (FOLDER / "bert" / name).read_text(encoding="utf-8") == text, RENEW


def test_a_page_is_renewed_between_its_comments() -> None:
    page = "a\n<!-- x.md -->\n\nold\n\n<!-- end -->\nb\n<!-- y.md -->\n\nkept\n\n<!-- end -->\n"
    new = renewed(page, {"x.md": "new\n", "z.md": "nowhere\n"})
    assert new == page.replace("old", "new")


def test_writes_its_files_without_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    page = tmp_path / "page.md"
    page.write_text("<!-- scale.md -->\n<!-- end -->\n")
    assert main(["--out", str(tmp_path / "all"), "--page", str(page)]) == 0
    names = ["ablation.csv", "ideas.md", "launches.md", "scale.md", "scale.png", "submissions.md"]
    assert sorted(path.name for path in (tmp_path / "all").iterdir()) == names
    written = capsys.readouterr()
    assert "no measured rows: name the folder of bert_iterations.csv with --data" in written.err
    assert (tmp_path / "all" / "scale.md").read_text(encoding="utf-8") in written.out
    assert scale_md() in page.read_text(encoding="utf-8")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(output, "find_spec", lambda name: None)
    assert main(["--out", str(tmp_path / "less")]) == 0
    assert not (tmp_path / "less" / "scale.png").exists()
    assert "scale.png is not drawn: matplotlib is not installed" in capsys.readouterr().err


def test_a_missing_table_is_a_users_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--data", str(tmp_path), "--out", str(tmp_path)]) == TableError.exit_code
    assert FILE in capsys.readouterr().err


def test_predictions_use_the_plan_of_the_row() -> None:
    row = submission("NVIDIA v2.0").row
    run = bert_run(row, Site())
    alone = predict(MODEL, run.plan, run.system, run.profile, memory_headroom=0.0)
    assert trained(row)[0].prediction.iteration_s == alone.iteration_s
