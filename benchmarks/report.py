"""Cost of the report of a large comparison: seconds to write, bytes, and seconds until it is drawn.

clustersim trace generate -o big.csv --jobs 10000 --load 1.2 --gpus 1024 --arrivals bursty --seed 1
clustersim compare big.csv --policies fifo-skip,srtf,elasticflow,vtrain-aware --out big
python benchmarks/report.py big [--chromium PATH]

Times are processor times, the least of three: reading the runs and rendering in this process, and drawing
the page in its renderer process (headless Chromium, all threads, until timeline, job table and the charts
near the screen are drawn). Wall time stands beside them; on an idle machine the two are close. Each page is
rendered from new runs, of which nothing has been computed yet. The first page of a process also compiles the
template.
"""

from __future__ import annotations

import argparse
import shutil
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

from clustersim import Run, read_run
from clustersim.commands.output.runs import run_folders
from clustersim.report import render_report

ROUNDS = 3


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--chromium", default=shutil.which("chromium"))
    options = parser.parse_args()
    began = process_time()
    runs = [read_run(home) for home in run_folders(options.folder)]
    print(f"{len(runs)} runs of {len(runs[0].jobs):,} jobs, {sum(len(run.events) for run in runs):,} events")
    print(f"reading    {process_time() - began:5.2f} s")
    first, *seconds = (rendering_s([replace(run) for run in runs]) for _ in range(1 + ROUNDS))
    print(f"rendering  {min(seconds):5.2f} s; the first page {first:.2f} s")
    html = render_report(runs)
    print(f"size       {len(html.encode()) / 1e6:5.2f} MB")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        path.write_text(html, encoding="utf-8")
        cpu_s, wall_s = zip(*(opening_s(path, options.chromium) for _ in range(ROUNDS)), strict=True)
    print(f"opening    {min(cpu_s):5.2f} s of processor time, {min(wall_s):.2f} s of wall time")


def rendering_s(runs: list[Run]) -> float:
    """Processor seconds that a page takes."""
    began = process_time()
    render_report(runs)
    return process_time() - began


def opening_s(path: Path, chromium: str) -> tuple[float, float]:
    """Processor and wall seconds until the page reports that all is drawn."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        page = context.new_page()
        session = context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        began = perf_counter()
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready=all]", state="attached")
        wall_s = perf_counter() - began
        metrics = {m["name"]: m["value"] for m in session.send("Performance.getMetrics")["metrics"]}
        browser.close()
    return metrics["ProcessTime"], wall_s


if __name__ == "__main__":
    main()
