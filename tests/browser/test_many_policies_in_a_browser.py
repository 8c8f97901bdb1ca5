"""The report of more policies than a legend can hold: one choice of a policy, names that show curves."""

from pathlib import Path
from typing import Any

import pytest

import clustersim
from clustersim.report import render_report
from tests.browser.conftest import low_contrasts
from traces import Job

POLICIES = ("fifo", "srtf", "sjf", "las", "edf", "easy", "srsf", "smallest", "qssf", "tiresias")


@pytest.fixture(scope="module")
def report_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    jobs = [Job(f"j{i}", 30.0 * i, gpus=4 + 4 * (i % 3), duration_s=200.0 + 90 * (i % 5)) for i in range(20)]
    runs = [clustersim.run(jobs, policy, cluster="n2g8", bound="none") for policy in POLICIES]
    path = tmp_path_factory.mktemp("many") / "report.html"
    path.write_text(render_report(runs), encoding="utf-8")
    return path


def test_ten_policies_on_a_phone(opened: Any) -> None:
    page = opened(width=400)
    assert page.evaluate("document.documentElement.scrollWidth") == 400
    assert low_contrasts(page) == {}

    page.locator("#timeline select").first.select_option("2")  # one choice for all sections
    assert page.locator("#jobs select").first.input_value() == "2"

    chart = page.locator("figure", has=page.locator("#chart-jct"))
    chart.scroll_into_view_if_needed()
    names = chart.locator(".names button[aria-pressed]")
    names.first.wait_for()
    assert names.count() == len(POLICIES)
    hidden = chart.locator('.names button[aria-pressed="false"]')
    assert hidden.count() == len(POLICIES) - 8
    before = chart.locator(".series").count()
    hidden.first.press("Enter")
    assert hidden.count() == len(POLICIES) - 9
    chart.locator(".series").nth(before).wait_for(state="attached")

    page.locator("#results summary", has_text="All columns").click()
    table = page.locator("#results details table").first
    head = table.locator("thead th", has_text="Makespan").first  # heads sort, the largest first
    column = head.evaluate("one => one.cellIndex")
    for order in ("descending", "ascending"):
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == order
        cells = table.locator(f"tbody tr > :nth-child({column + 1})").all()
        values = [float(cell.inner_text().split()[0].replace(",", "")) for cell in cells]
        assert values == sorted(values, reverse=order == "descending")
