"""Take the pictures of the README and of docs/reports.md from the folder of a comparison.

clustersim demo --out DIR
python docs/picture.py DIR -o docs [--chromium PATH]

Writes demo.png (drawn by matplotlib) and, from the report in headless Chromium: report.png and
report-dark.png, its beginning; report-timeline.png, the zoomed timeline; report-story.png, a job's story;
report-phone.png.
"""

import argparse
import shutil
from pathlib import Path

import numpy as np
from playwright.sync_api import Browser, Page, sync_playwright

from clustersim import read_run
from clustersim.export import figures

COLOURS = {"fifo": "#999999", "easy": "#E69F00", "vtrain-aware": "#D55E00", "priced": "#0072B2"}
JOB = "131"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder for the pictures")
    parser.add_argument("--chromium", default=shutil.which("chromium"), help="the browser")
    options = parser.parse_args()
    draw_demo(options.folder, options.output / "demo.png")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=options.chromium, args=["--no-sandbox"])
        take(browser, (options.folder / "report.html").resolve().as_uri(), options.output)
        browser.close()


def draw_demo(folder: Path, path: Path) -> None:
    """Draw completion times and deadlines met under the four policies."""
    runs = {name: read_run(folder / name) for name in COLOURS}
    with figures() as plt:
        figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.4), width_ratios=(1.6, 1))
        for name, run in runs.items():
            hours = np.sort([job.jct_s / 3600 for job in run.jobs if job.jct_s is not None])
            share = np.arange(1, len(hours) + 1) / len(run.jobs) * 100
            left.step(hours, share, where="post", color=COLOURS[name], label=name, linewidth=2)
        left.set(
            xscale="log", xlabel="job completion time, hours", ylabel="% of submitted jobs", ylim=(0, 101)
        )
        left.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        left.legend()
        met = [100 * run.summary["deadline_met_ratio"] for run in runs.values()]
        bars = right.barh(list(runs), met, color=list(COLOURS.values()))
        right.bar_label(bars, fmt="%.0f", padding=3)
        right.set(xlabel="deadlines met, % of submitted jobs", xlim=(0, 112))
        right.grid(visible=False)
        right.invert_yaxis()
        figure.savefig(path, dpi=110, metadata={"Software": None})


def take(browser: Browser, address: str, folder: Path) -> None:
    """Take the pictures of the report."""
    for name, dark in (("report", False), ("report-dark", True)):
        page = opened(browser, address, 1280, 1000, dark=dark)
        page.screenshot(path=folder / f"{name}.png")
    page = opened(browser, address, 1280, 760)
    page.locator("#timeline fieldset").get_by_text("vtrain-aware").click()
    page.evaluate("document.querySelector('#timeline').scrollIntoView({behavior: 'instant'})")
    canvas = page.locator("#gantt-canvas")
    canvas.focus()
    box = canvas.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 130, box["y"] + 190)
    for _ in range(7):
        page.mouse.wheel(0, -120)
    for _ in range(2):
        page.keyboard.press("]")
    page.mouse.move(box["x"] + 620, box["y"] + 190)
    page.wait_for_timeout(300)
    page.screenshot(path=folder / "report-timeline.png")
    page = opened(browser, address, 1000, 800)
    page.get_by_label("Find").fill(JOB)
    page.locator("#jobs-table tbody button").first.click()
    page.wait_for_timeout(300)
    page.screenshot(path=folder / "report-story.png")
    page = opened(browser, address, 390, 844)
    page.screenshot(path=folder / "report-phone.png")


def opened(browser: Browser, address: str, width: int, height: int, *, dark: bool = False) -> Page:
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
    )
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("html[data-ready=all]", state="attached")
    page.wait_for_timeout(500)
    return page


if __name__ == "__main__":
    main()
