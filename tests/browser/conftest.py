"""A browser, where there is one: Playwright drives the system's Chromium."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import clustersim
from clustersim.report import render_report
from traces import Job

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>"
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Headless Chromium: $CHROMIUM, or the one on the path. Skips where there is none."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed (extra: browser)"
    )
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("no Chromium on the path, nor in $CHROMIUM (Debian: apt-get install chromium)")
    with playwright.sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def report_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of two policies on a small cluster: LLM jobs and others, a hostile name among them."""
    models = ["gpt3-1.3b", "llama2-7b", "gpt3-6.7b"]
    jobs = [
        Job(
            f"job-{i}", 120.0 * i, tenant=f"team-{i % 3}", model=models[i % 3], global_batch=512,
            iterations=60 + 5 * i, gpus=8 << i % 3, deadline_s=120.0 * i + 9000,
        )
        for i in range(40)
    ]  # fmt: skip
    jobs += [
        Job(f"small-{i}", 60.0 * i, tenant="team-0", gpus=1 + i % 4, duration_s=900.0) for i in range(40)
    ]
    jobs.append(Job(EVIL, 0.0, tenant=EVIL, gpus=4, duration_s=600.0))
    jobs.append(Job("too-large", 5.0, gpus=999, duration_s=60.0))
    runs = [clustersim.run(jobs, policy, cluster="n8g8") for policy in ("fifo", "srtf")]
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(render_report(runs), encoding="utf-8")
    return path


@pytest.fixture
def opened(browser: Browser, report_file: Path) -> Iterator[Any]:
    """opened(width=, height=, dark=, touch=) gives the page, drawn; in the end nothing may be wrong."""
    complaints: list[str] = []
    contexts = []

    def open_page(width: int = 1280, height: int = 900, dark: bool = False, touch: bool = False) -> Page:
        scheme = "dark" if dark else "light"
        size: Any = {"width": width, "height": height}
        context = browser.new_context(viewport=size, color_scheme=scheme, has_touch=touch, offline=True)
        context.set_default_timeout(90_000)  # a busy machine is not a broken page
        contexts.append(context)
        page = context.new_page()
        page.on(
            "console", lambda message: complaints.append(message.text) if message.type == "error" else None
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: (complaints.append(f"dialog {dialog.message}"), dialog.dismiss()))
        page.on(
            "request", lambda request: complaints.append(request.url) if request.url[:5] == "http:" else None
        )
        page.goto(report_file.as_uri())
        page.wait_for_selector("html[data-ready=all]", state="attached")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not complaints
