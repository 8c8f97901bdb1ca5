"""The documentation site: it builds strictly, its reference has every name, and it opens offline."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from clustersim.runs import RunConfig, list_policies
from tests.places import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

LOADED = re.compile(
    r"""<(?:script|img|iframe)[^>]+src="(https?:[^"]+)|<link[^>]+rel="(?!canonical)[^>]*href="(https?:[^"]+)"""
)
PLACES = (
    "index.html",
    "tutorials/study.html",
    "reference/commands.html",
    "reference/scheduler.html",
    "validation.html",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocstrings", reason="mkdocstrings is not installed (extra: docs)")
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


@pytest.fixture
def opened(browser: Browser) -> Iterator[Page]:
    complaints: list[str] = []
    context = browser.new_context(viewport={"width": 400, "height": 800})
    page = context.new_page()
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "request",
        lambda asked: (
            complaints.append(asked.url) if not asked.url.startswith(("file:", "data:", "blob:")) else None
        ),
    )
    yield page
    context.close()
    assert not complaints


@pytest.mark.parametrize("place", PLACES)
def test_a_page_opens_offline_on_a_phone(site: Path, opened: Page, place: str) -> None:
    opened.goto((site / place).as_uri())
    opened.wait_for_selector("h1")
    width = opened.evaluate("document.scrollingElement.scrollWidth")
    assert width <= 400
