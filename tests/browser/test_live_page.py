"""The live page in a browser: it starts a comparison, shows it while it runs, and survives a reload."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from time import monotonic
from typing import TYPE_CHECKING

import pytest

import clustersim
from clustersim.runs import compare
from traces import Job

from .conftest import EVIL, low_contrasts, visits

pytest.importorskip("uvicorn", reason="uvicorn is not installed (extra: serve)")

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address that `clustersim serve` prints. Its folder holds a comparison with a hostile job."""
    folder = tmp_path_factory.mktemp("served")
    jobs = [Job(f"job-{i}", 60.0 * i, gpus=4 + 4 * (i % 3), duration_s=900.0) for i in range(40)]
    jobs.append(Job(EVIL, 90.0, tenant=EVIL, gpus=8, duration_s=600.0))
    out = [folder / "both" / "fifo", folder / "both" / "srtf"]
    runs = compare(jobs, ["fifo", "srtf"], cluster="n2g8", workers=1, out=out)
    page = folder / "both" / "report.html"
    page.write_text(clustersim.report.render_report(runs), encoding="utf-8")
    command = [sys.executable, "-m", "clustersim", "serve", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        found = re.search(r"Open (http://\S+)", "".join(server.stdout.readline() for _ in range(2)))
        assert found is not None
        yield found[1]
        server.send_signal(signal.SIGINT)
        assert server.wait(30) == 0


@pytest.fixture
def entered(browser: Browser, served: str) -> Iterator[Callable[..., Page]]:
    """entered(width) opens the page in a new browser; a refused setting is no error."""
    with visits(browser, served.partition("/enter")[0], "status of 400") as visit:

        def open_page(width: int = 1280, dark: bool = False) -> Page:
            page = visit(served, width, dark=dark)
            page.wait_for_selector("html[data-ready=all]", state="attached")
            return page

        yield open_page


def wait(page: Page, holds: Callable[[], bool], what: object) -> None:
    """Wait until it holds. The page's policy forbids the evaluation of text, with which Playwright waits."""
    end = monotonic() + 90
    while not holds():
        assert monotonic() < end, what
        page.wait_for_timeout(20)


def until(page: Page, condition: str) -> None:
    wait(page, lambda: bool(page.evaluate(condition)), condition)


def number(page: Page, name: str) -> str:
    return page.locator("#numbers div", has_text=name).locator("dd").first.inner_text()


def becomes(page: Page, name: str, value: str) -> None:
    """Wait until a number of the page has this value."""
    wait(page, lambda: number(page, name) == value, (name, value))


def shows(page: Page, run: str) -> None:
    """Wait until the page shows this run, with events."""
    until(page, f"document.getElementById('title').textContent === '{run}'")
    until(page, "document.documentElement.dataset.frames > 0")
    wait(page, lambda: number(page, "Events") != "0", "no event")


def test_a_comparison_is_refused_started_and_watched_through_a_reload(entered: Callable[..., Page]) -> None:
    page = entered()
    page.fill("[name=name]", "both")
    page.get_by_role("button", name="Start", exact=True).click()
    refused = page.locator("#refused", has_text="exists already")
    refused.wait_for()
    assert "both" in refused.inner_text()
    page.fill("[name=name]", "fresh")
    page.fill("[name=jobs]", "4000")
    page.fill("[name=cluster]", "n32g8")
    page.select_option("[name=policies]", ["fifo"])
    page.get_by_role("button", name="Start", exact=True).click()
    shows(page, "fresh/fifo")
    assert number(page, "State") in ("running", "complete")  # a fast machine may have finished it
    seen = int(number(page, "Events"))
    page.reload()
    shows(page, "fresh/fifo")
    assert int(number(page, "Events")) >= seen > 0
    page.context.close()  # a killed browser: the run goes on
    page = entered()
    page.locator("#commands li", has_text="fresh: done").wait_for()
    page.locator("#runs").get_by_role("button", name="fresh/fifo").click()
    shows(page, "fresh/fifo")
    # some jobs are too large for the cluster
    wait(page, lambda: 3900 < int(number(page, "Finished")) <= 4000, "finished")
    becomes(page, "State", "complete")
    assert (number(page, "Running"), number(page, "Waiting")) == ("0", "0")


def test_time_is_stepped_through_and_a_job_tells_its_story(entered: Callable[..., Page]) -> None:
    page = entered()
    page.locator("#runs").get_by_role("button", name="both/fifo").click()
    shows(page, "both/fifo")
    becomes(page, "Finished", "41")
    becomes(page, "State", "complete")
    page.locator("#slider").focus()
    page.keyboard.press("Home")
    until(page, "document.getElementById('clock').textContent === '00:00:00'")
    assert number(page, "Running") == "1"
    page.locator("#step").focus()
    page.keyboard.press("Enter")
    until(page, "document.getElementById('clock').textContent === '00:01:00'")
    page.locator("#back").click()
    until(page, "document.getElementById('clock').textContent === '00:00:00'")
    page.locator("#slider").fill(page.evaluate("document.getElementById('slider').max * 0.9 + ''"))
    until(page, "document.getElementById('clock').textContent > '01:00:00'")
    page.locator("#play").click()
    until(page, "document.getElementById('play').textContent === 'Play'")
    assert number(page, "Finished") == "41"
    # The run over time has a line at the instant that is shown, and a click shows another one.
    curves = page.locator("#curves")
    assert curves.locator(".head").all_text_contents() == ["GPUs in use", "running jobs", "waiting jobs"]
    at_end = curves.locator(".marked").get_attribute("d")
    box = curves.locator("> svg").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 40)
    wait(page, lambda: curves.locator(".marked").get_attribute("d") != at_end, "another instant")
    assert 0 < int(number(page, "Finished")) < 41
    page.locator("#live").click()
    # A hostile name is text.
    page.locator("#slider").fill("100")
    page.locator("#waiting, #running").get_by_role("button", name=EVIL).first.click()
    page.locator("#story").wait_for()
    assert EVIL in page.locator("#of-job").inner_text()
    assert "submit" in page.locator("#events").inner_text()
    assert page.locator("#gpus").get_attribute("aria-label")


def test_a_report_opens_in_its_own_origin(entered: Callable[..., Page]) -> None:
    page = entered()
    with page.context.expect_page() as opening:
        page.locator("#reports a", has_text="both").click()
    report = opening.value
    report.wait_for_selector("html[data-ready=all]", state="attached")
    assert report.evaluate("self.origin") == "null"


@pytest.mark.parametrize("dark", [False, True])
def test_the_page_fits_a_phone_and_stands_out(entered: Callable[..., Page], dark: bool) -> None:
    page = entered(400, dark)
    page.locator("#runs").get_by_role("button", name="both/srtf").click()
    until(page, "document.documentElement.dataset.frames > 0")
    assert page.evaluate("document.scrollingElement.scrollWidth") <= 400
    page.locator("#running, #latest").get_by_role("button").first.click()
    page.locator("#story").wait_for()
    assert low_contrasts(page) == {}
