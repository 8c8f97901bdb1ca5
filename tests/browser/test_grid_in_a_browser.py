"""The page of a grid in a browser: charts, tables, links, on a screen and on a phone."""

from pathlib import Path
from typing import Any

import pytest

import clustersim
from clustersim.cli import main
from tests.browser.conftest import low_contrasts
from traces import Job


@pytest.fixture(scope="module")
def report_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two policies on two sizes of a cluster, under two costs of a launch."""
    jobs = [Job(f"j{i}", 120.0 * i, gpus=4 + 4 * (i % 3), duration_s=900.0) for i in range(24)]
    folder = tmp_path_factory.mktemp("grid") / "sizes"
    vary = {"nodes": [2, 3], "overheads.launch_s": [0, 60]}
    clustersim.what_if(jobs, ["fifo", "srtf"], vary, cluster="n2g8", out=folder, workers=2)
    assert main(["report", str(folder), "--pages", "2"]) == 0
    return folder / "report.html"


@pytest.mark.parametrize("width", [1280, 400])
def test_every_chart_is_drawn_and_the_page_fits(opened: Any, width: int) -> None:
    page = opened(width=width, touch=width < 500, dark=width < 500)
    assert not low_contrasts(page)
    charts = page.locator(".chart")
    assert charts.count() >= 10  # effects and lines of four metrics or more
    for i in range(charts.count()):
        charts.nth(i).scroll_into_view_if_needed()
        charts.nth(i).locator(".series").first.wait_for(state="attached")
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_a_policy_has_one_colour_and_runs_have_pages(opened: Any) -> None:
    page = opened()
    colours: dict[str, set[str]] = {}
    script = "one => getComputedStyle(one.previousElementSibling).backgroundColor"
    for cell in page.locator("main .name").all():
        colours.setdefault(cell.text_content() or "", set()).add(cell.evaluate(script))
    assert set(colours) == {"fifo", "srtf"}
    assert all(len(found) == 1 for found in colours.values())
    assert colours["fifo"] != colours["srtf"]
    assert page.locator("#runs tbody tr").count() == 8
    links = page.locator("#runs a")
    assert links.count() == 2
    links.first.click()
    page.wait_for_selector("html[data-ready=all]", state="attached")
    assert "nodes 2" in page.locator("h1").inner_text()
