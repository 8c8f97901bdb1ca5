"""The page of a backtest as a reader sees it, in Chromium; the fixture `opened` finds no complaint."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clustersim.backtest import backtest, read_logged, write_backtest
from tests.browser.conftest import EVIL
from tests.clustersim.backtest.logs import jobs_of, logged, written


@pytest.fixture(scope="module")
def report_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a fit, with a hostile name and a long one."""
    home = tmp_path_factory.mktemp("backtest")
    names = {"u0": EVIL, "u1": "u" * 200}
    jobs = [
        replace(job, user=names.get(job.user or "", job.user)) for job in logged(jobs_of(tenants=2), "easy")
    ]
    log = read_logged(written(home, jobs))
    write_backtest(backtest(log, fitted=True, policies=["fifo", "sjf"]), home / "out")
    return home / "out" / "report.html"


@pytest.mark.parametrize("width", [1280, 390])
def test_every_chart_is_drawn_the_page_fits_and_its_list_reaches_sections(opened: Any, width: int) -> None:
    page = opened(width=width, dark=width == 390)
    charts = page.locator(".chart")
    assert charts.count() == 11
    for i in range(charts.count()):
        charts.nth(i).scroll_into_view_if_needed()
        charts.nth(i).locator(".series").first.wait_for(state="attached")
    assert page.locator("#chart-jobs .points circle").count() == 60
    assert page.locator("#chart-wait .series").count() == 2
    assert page.evaluate("document.documentElement.scrollWidth") == width
    for link in page.locator("nav.sections a").all():
        link.click()
        assert page.locator(link.get_attribute("href") or "").is_visible()
    page.get_by_text("jobs with the largest errors").click()
    assert page.get_by_role("region", name="Largest errors").is_visible()
