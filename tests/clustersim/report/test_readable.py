"""A reader is given one unit in a sentence or row, words instead of keys, and text that stands out."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import clustersim
from clustersim import Run
from clustersim.report.fairness import by_size
from clustersim.report.sections import covered, deadline_rows
from clustersim.report.verdict import verdict
from tests.places import ROOT
from traces import Job

CSS = (ROOT / "clustersim" / "report" / "templates" / "report.css").read_text()
THEMES = {"dark": CSS.partition("{% endmacro %}")[0], "light": CSS.partition(":root {")[2].partition("}")[0]}


@pytest.fixture(scope="module")
def run() -> Run:
    """One GPU after the other: run times of minutes, waiting of hours."""
    jobs = [
        Job(str(i), float(i), gpus=8, duration_s=600.0 + 900 * i, deadline_s=3000.0 + 20 * i)
        for i in range(12)
    ]
    return clustersim.run(jobs, "fifo", cluster="n1g8")


def units(text: str) -> list[str]:
    return re.findall(r"\d (s|min|h|d)\b", text)


def test_a_sentence_has_one_unit(run: Run) -> None:
    account = verdict([run], None)[0]
    assert len(units(account)) == 4
    assert len(set(units(account))) == 1


def test_a_row_of_waiting_and_completion_has_one_unit(run: Run) -> None:
    early = replace(run, jobs=[replace(job, queue_s=min(job.queue_s or 0.0, 90.0)) for job in run.jobs])
    for members in by_size([run, early]):
        for _, cells in members.rows:
            assert len(set(units(f"{cells[4]} {cells[5]}"))) == 1


def test_a_column_of_lateness_has_one_unit(run: Run) -> None:
    kinder = replace(
        run, policy="other", jobs=[replace(job, deadline_s=(job.finish_s or 0.0) - 40.0) for job in run.jobs]
    )
    cells = [row[4] for _, row in deadline_rows([run, kinder])]
    assert len(cells) == 2
    assert len({unit for cell in cells for unit in units(cell)}) == 1


def test_coverage_is_in_words(run: Run) -> None:
    (text, _), *others = covered([run])
    assert not others
    assert "_" not in text
    assert "*" not in text
    assert text.startswith("JCT, time to the first GPUs, all waiting: the 12 finished of 12 submitted jobs")


def luminance(colour: str) -> float:
    """Relative luminance (WCAG 2.2) of `#rrggbb`."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_by_hand() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("ink", ["ink", "muted", "better", "worse", "link"])
@pytest.mark.parametrize("ground", ["paper", "card", "band"])
def test_text_stands_out(theme: str, ink: str, ground: str) -> None:
    """WCAG 2.2, success criterion 1.4.3: at least 4.5 to 1."""
    colours = dict(re.findall(r"--([a-z0-9_-]+): (#[0-9a-f]{6})", THEMES[theme]))
    assert contrast(colours[ink], colours[ground]) >= 4.5
