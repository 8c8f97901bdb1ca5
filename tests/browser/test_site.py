"""The documentation site: it builds strictly, its reference has every name, and it opens offline."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from clustersim.runs import RunConfig, list_policies
from tests.browser.conftest import visits
from tests.clustersim.report.test_page import contrast
from tests.places import ROOT
from tests.tables import TABLES

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

LOADED = re.compile(
    r"""<(?:script|img|iframe)[^>]+src="(https?:[^"]+)|<link[^>]+rel="(?!canonical)[^>]*href="(https?:[^"]+)"""
)
PLACES = TABLES["pages of the site"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built anew, or $CLUSTERSIM_SITE, which `make docs` has built."""
    pytest.importorskip("mkdocstrings", reason="mkdocstrings is not installed (extra: docs)")
    if "CLUSTERSIM_SITE" in os.environ:
        return Path(os.environ["CLUSTERSIM_SITE"])
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 60
    for page in pages:
        assert not LOADED.findall(page.read_text(encoding="utf-8")), page


def test_the_reference_has_every_name(site: Path) -> None:
    settings = (site / "reference" / "settings.html").read_text(encoding="utf-8")
    assert not [name for name in RunConfig.model_fields if f"<code>{name}</code>" not in settings]
    policies = (site / "reference" / "policies.html").read_text(encoding="utf-8")
    names = [info.name for info in list_policies()]
    assert not [name for name in names if f'<h2 id="{name}"' not in policies]
    commands = (site / "reference" / "commands.html").read_text(encoding="utf-8")
    for name in ("clustersim run", "clustersim trace import", "clustersim policies new", "itertime search"):
        assert f">{name}<" in commands, name
    scheduler = (site / "reference" / "scheduler.html").read_text(encoding="utf-8")
    for name in ("State.look_ahead", "Proposal.run_by", "JobView.oracle_remaining"):
        assert f'id="clustersim.scheduler.{name}"' in scheduler, name


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """The site, served on this machine."""
    handler = partial(Quiet, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:
        """Requests are no news."""


@pytest.fixture
def opened(browser: Browser, address: str) -> Iterator[Callable[..., Page]]:
    """opened(place, width) gives a page of the site; in the end nothing may be wrong, or from elsewhere."""
    with visits(browser, address) as visit:

        def open_page(place: str, width: int) -> Page:
            page = visit(f"{address}/{place}", width, 800)
            page.wait_for_selector("h1")
            return page

        yield open_page


@pytest.mark.parametrize("place", PLACES)
def test_a_page_fits_a_phone(opened: Callable[..., Page], place: str) -> None:
    page = opened(place, 400)
    assert page.evaluate("document.scrollingElement.scrollWidth") <= 400
    assert page.evaluate("document.documentElement.lang") == "en"


def test_the_search_finds_a_page_from_the_keyboard(opened: Callable[..., Page]) -> None:
    page = opened("index.html", 1300)
    page.keyboard.press("f")
    page.keyboard.type("finish-time fairness", delay=20)
    first = "document.querySelector('.md-search-result__link')"
    page.wait_for_function(f"/fairness/i.test({first}?.innerText)")  # the first letters find other pages
    assert page.locator(".md-search-result__link").first.is_visible()
    page.locator(".md-tabs__link", has_text="Reference").wait_for(state="visible")


def test_text_stands_out(opened: Callable[..., Page]) -> None:
    """The body's text and its links have the contrast of WCAG's AA, 4.5."""
    page = opened("quickstart.html", 1300)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        page.wait_for_timeout(300)
        for what in (".md-content p", ".md-content li a", ".md-content pre code", ".md-header__topic"):
            text, ground = page.locator(what).first.evaluate(COLOURS)
            assert contrast(blended(text, ground), blended(ground, ground)) >= 4.5, (what, text, ground)


COLOURS = """element => {
  let behind = element, colour = '';
  while (behind && /, 0\\)$/.test(colour = getComputedStyle(behind).backgroundColor))
    behind = behind.parentElement;
  return [getComputedStyle(element).color, colour];
}"""


def parts_of(colour: str) -> list[float]:
    return [float(each) for each in re.findall(r"[\d.]+", colour)]


def blended(colour: str, ground: str) -> str:
    """A colour of CSS, `rgb(...)` or `rgba(...)`, as it looks on a ground."""
    (*inks, _), (*papers, _) = ([*parts_of(each), 1.0][:4] for each in (colour, ground))
    alpha = ([*parts_of(colour), 1.0])[3]
    mixed = (round(alpha * ink + (1 - alpha) * paper) for ink, paper in zip(inks, papers, strict=True))
    return "#" + "".join(f"{value:02x}" for value in mixed)
