"""A browser, where there is one: Playwright drives the system's Chromium."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


LOW_CONTRASTS = Path(__file__).with_name("low_contrasts.js").read_text(encoding="utf-8")


def low_contrasts(page: Page) -> dict[str, str]:
    """The elements with text of less than 4.5:1, each with its ratio."""
    found: dict[str, str] = page.evaluate(LOW_CONTRASTS)
    return found


@contextmanager
def visits(browser: Browser, home: str, forgiven: str = "\0") -> Iterator[Callable[..., Page]]:
    """visit(address, **context) gives a page in a browser of its own. In the end no page may have made an
    error but the `forgiven`, opened a dialog, or asked for what does not lie at `home`.
    """
    complaints: list[str] = []
    contexts = []

    def said(message: Any) -> None:
        if message.type == "error" and forgiven not in message.text:
            complaints.append(message.text)

    def asked(request: Any) -> None:
        if not request.url.startswith((home, "data:", "blob:")):
            complaints.append(request.url)

    def visit(address: str, width: int = 1280, height: int = 900, dark: bool = False, **more: Any) -> Page:
        size: Any = {"width": width, "height": height}
        scheme: Any = "dark" if dark else "light"
        context = browser.new_context(viewport=size, color_scheme=scheme, **more)
        context.set_default_timeout(90_000)  # a busy machine is not a broken page
        contexts.append(context)
        context.on("console", said)
        context.on("request", asked)
        context.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(address)
        return page

    yield visit
    for context in contexts:
        context.close()
    assert not complaints


@pytest.fixture
def opened(browser: Browser, report_file: Path) -> Iterator[Any]:
    """opened(width=, height=, dark=, touch=) gives the page, drawn; in the end nothing may be wrong."""
    with visits(browser, report_file.parent.as_uri()) as visit:

        def open_page(touch: bool = False, **size: Any) -> Page:
            page = visit(report_file.as_uri(), has_touch=touch, offline=True, **size)
            page.wait_for_selector("html[data-ready=all]", state="attached")
            return page

        yield open_page
