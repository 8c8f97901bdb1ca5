"""The bundled presets of generated traces, and how far each is from its log.

    python -m experiments.presets ../shared/data [NAME ...]

fits `traces/rules/NAME.preset.yaml` again from the logs below, and writes the tables of
`experiments/PRESETS.md` to it. Presets of logs are fitted as `clustersim trace fit` does. Of Acme there are
published curves and totals only: `_acme` says what is made of them.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from itertime.io import write_text
from traces.fitting import LEVELS, fit_preset, held_out, preset_text
from traces.statistics import read_columns
from traces.synthetic import Preset, Quantiles, QuantileTable, Rhythm, SizeClass
from traces.workload import FOLDER

PAGE = Path(__file__).parent / "PRESETS.md"
ACME_DAYS = 184  # March to August 2023 (Hu et al., NSDI 2024, section 2.3)
HEADING = """\
Computed by: python -m experiments.presets ../shared/data {name}
From: {files}
Licence of the data: {licence}"""


@dataclass(frozen=True)
class Source:
    """Where the numbers of a preset come from: files in the folder of data, their licence, whose they are.

    `system`: the name of one of Acme's clusters; None for a log.
    """

    files: tuple[str, ...]
    licence: str
    whose: str
    system: str | None = None


ACME_FILES = ("traces/derived/acme_digitised_cdfs.json", "traces/acme/cluster_summary.csv")
ACME_LICENCE = "CC-BY-4.0 (AcmeTrace, Hu et al., NSDI 2024)"
SOURCES: Mapping[str, Source] = {
    "itp": Source(
        ("traces/itp_raw/cluster04.csv.gz",),
        "MIT (microsoft/elasticflow-traces)",
        "cluster04 of Microsoft ITP, the largest of seven (with ElasticFlow, ASPLOS 2023): jobs of 600 s or "
        "more on at most 64 GPUs. The log's clock is its own: days of the week are not those of a calendar.",
    ),
    "philly": Source(
        ("traces/philly/philly_jobs_12vc.csv.gz",),
        "CC-BY-4.0 (msr-fiddle/philly-traces, Jeon et al., USENIX ATC 2019), by way of a derived table",
        "Microsoft's Philly in 2017, 12 of its virtual clusters, which are the tenants.",
    ),
    "helios": Source(
        ("clusters/helios/venus_vcvGl_sept.csv",),
        "CC-BY-4.0 (HeliosData, Hu et al., SC 2021)",
        "SenseTime's Helios: the virtual cluster vcvGl of Venus, 20 nodes of 8 GPUs, 1 to 26 September 2020. "
        "The log is one virtual cluster, so the tenants are its users, and its large jobs are not those of "
        "Helios as a whole. It lacks jobs without GPUs and those that had not ended.",
    ),
    "acme-kalos": Source(ACME_FILES, ACME_LICENCE, "Acme's cluster Kalos", "Kalos"),
    "acme-seren": Source(ACME_FILES, ACME_LICENCE, "Acme's cluster Seren", "Seren"),
}


def text_of(name: str, data: Path) -> str:
    """The file of a preset, made from the data."""
    source = SOURCES[name]
    preset = _acme(source, data)[0] if source.system else _fitted(source, data)
    heading = HEADING.format(name=name, files=", ".join(source.files), licence=source.licence)
    return preset_text(preset, heading)


def _fitted(source: Source, data: Path) -> Preset:
    columns = read_columns(data / source.files[0])
    days = columns.span_s / 86_400
    return fit_preset(columns, f"{source.whose} Fitted to {len(columns):,} jobs of {days:.1f} days.")


# Acme

Numbers = NDArray[np.float64]
FINE = (*LEVELS[:-1], 0.9995, 1.0)
KINDS = {"Seren": ("Eval", "SFT", "Pretrain"), "Kalos": ("Eval", "Other", "Pretrain")}
"""The kinds of work whose run times have the form of those of small, of medium and of large jobs."""
MIDDLE, LARGE = 8, 64  # GPUs of the smallest job of these


def _acme(source: Source, data: Path) -> tuple[Preset, list[list[str]]]:
    """A preset of one of Acme's clusters, and its figures beside the published ones.

    The published curves give the shares of jobs and of GPU time by GPUs, and the run times by kind of
    work; a table gives the number of jobs and their total GPU time. Counts with at least 0.2 % of the
    jobs or 1 % of the GPU time are listed, the others go to the nearest one. Run times have the form of the
    curve of the kind of work that is usual on so many GPUs, and are multiplied by what gives each count its
    share of the GPU time. No run time exceeds the longest one published.
    """
    assert source.system is not None
    curves = json.loads((data / source.files[0]).read_text(encoding="utf-8"))["cdf"]
    with (data / source.files[1]).open(encoding="utf-8") as file:
        totals = {row["id"]: row for row in csv.DictReader(file)}[source.system]
    count, most_s = int(totals["gpu_job_num"]), float(totals["max_run_time_gpu"])
    gpu_s = sum(float(totals[f"{how}_gpu_time"]) for how in ("complete", "cancel", "fail"))
    jobs, time = (_by_gpus(curves[f"{source.system} gpunum {what}"]) for what in ("jobs", "gputime"))
    shares = _merged(jobs, time)
    forms = {kind: _table(curves[f"{source.system} duration|{kind}"]) for kind in KINDS[source.system]}
    sizes = []
    for gpus, (share, of_time) in sorted(shares.items()):
        mean_s = of_time * gpu_s / (share * count * gpus)
        small, middle, large = forms.values()
        form = small if gpus < MIDDLE else middle if gpus < LARGE else large
        table = _with_mean(form, mean_s, most_s)
        sizes.append(SizeClass(gpus, float(f"{100 * share:.4g}"), quantiles=Quantiles(table)))
    names = (name.lower() if name != "SFT" else name for name in forms)
    kinds = "{} below {low} GPUs, of {} below {high} and else of {}".format(*names, low=MIDDLE, high=LARGE)
    said = (
        f"{source.whose} (Hu et al., NSDI 2024): {count:,} GPU jobs from March to August 2023, by published "
        "curves and totals, since no log is at hand. GPUs by the curves of jobs and of GPU time; run times "
        f"in the form of the curve of {kinds}, with the mean that gives each count its share of the GPU "
        "time. "
        "Nothing is known of the times of submissions: gaps are exponential at the mean rate, and there are "
        "no tenants, hours or days."
    )
    gaps = tuple((level, float(f"{max(1e-3, -np.log1p(-min(level, 1 - 1e-5))):.4g}")) for level in LEVELS)
    rate = float(f"{count / ACME_DAYS:.4g}")
    preset = Preset(said, tuple(sizes), Rhythm(jobs_per_day=rate, gaps=QuantileTable(gaps)))
    return preset, _beside_published(
        preset, curves[f"{source.system} GPU job duration"], totals, gpu_s / count
    )


def _by_gpus(curve: Sequence[Sequence[float]]) -> dict[int, float]:
    """Share by GPU count, from cumulative per cent. Large counts were read off a picture: those within 0.5 %
    of a multiple of 8 are taken to be it.
    """
    before, found = 0.0, dict[int, float]()
    for stated, percent in curve:
        eights = 8 * round(stated / 8)
        gpus = eights if stated > 64 and abs(eights / stated - 1) <= 0.005 else int(stated)
        found[gpus] = found.get(gpus, 0.0) + (percent - before) / 100
        before = percent
    return found


def _merged(jobs: Mapping[int, float], time: Mapping[int, float]) -> dict[int, tuple[float, float]]:
    """Shares of jobs and of GPU time of the counts that matter, with those of their neighbours.

    A step of the curve of GPU time is that of all listed counts since the step before it, by their GPUs.
    """
    listed = sorted(
        gpus for gpus in jobs if jobs[gpus] >= 0.002 or (jobs[gpus] >= 0.0005 and time.get(gpus, 0) >= 0.01)
    )

    def nearest(gpus: int) -> int:
        return min(listed, key=lambda one: abs(float(np.log(one / gpus))))

    found = {gpus: [0.0, 0.0] for gpus in listed}
    for gpus, share in jobs.items():
        found[nearest(gpus)][0] += share
    before = 0
    for gpus, share in time.items():
        inside = [one for one in listed if before < one <= gpus] or [nearest(gpus)]
        whole = sum(one * jobs[one] for one in inside)
        for one in inside:
            found[one][1] += share * one * jobs[one] / whole
        before = gpus
    return {gpus: (share, of_time) for gpus, (share, of_time) in found.items()}


def _table(percents: Sequence[float]) -> Numbers:
    """Run times in s at the levels `FINE`, from cumulative per cent at 1, 2, 4, ... s."""
    shares = np.maximum.accumulate(np.array(percents)) / 100
    last = int(np.argmax(shares >= 1)) if (shares >= 1).any() else len(shares) - 1
    shares[last], first = 1.0, max(0, int(np.argmax(shares > 0)) - 1)
    known, seconds = shares[first : last + 1], np.log(2.0) * np.arange(first, last + 1)
    known = known + np.arange(len(known)) * 1e-12  # strictly ascending
    return np.exp(np.interp(FINE, known, seconds))


def _with_mean(form: Numbers, mean_s: float, most_s: float) -> tuple[tuple[float, float], ...]:
    """The table of this form and mean, no run time above `most_s`; the factor is found by bisection."""

    def table(factor: float) -> tuple[tuple[float, float], ...]:
        values = np.clip(form * factor, 1.0, most_s)
        return tuple((level, float(f"{value:.4g}")) for level, value in zip(FINE, values, strict=True))

    low, high = 1e-4, 1e6
    for _ in range(80):
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if QuantileTable(table(middle)).expected() > mean_s else (middle, high)
    return table(high)


def _beside_published(
    preset: Preset, percents: Sequence[float], totals: Mapping[str, str], gpu_s: float
) -> list[list[str]]:
    """Rows of: what, published, of the preset."""
    uniforms = (np.arange(2000) + 0.5) / 2000
    runs = [
        (share, np.array([size.run_time.quantile_s(u) for u in uniforms]))
        for share, size in zip(preset.mix.shares, preset.sizes, strict=True)
    ]
    at = 2.0 ** np.arange(len(percents))
    made = sum(share * (run_s[:, None] <= at).mean(axis=0) for share, run_s in runs)
    apart = float(abs(made - np.array(percents) / 100).max())
    mean_s = sum(share * run_s.mean() for share, run_s in runs)
    of_job = sum(
        share * size.gpus * size.run_time.expected_s()
        for share, size in zip(preset.mix.shares, preset.sizes, strict=True)
    )
    gpus = sum(share * size.gpus for share, size in zip(preset.mix.shares, preset.sizes, strict=True))
    return [
        ["GPU-seconds of a job, mean", f"{gpu_s:,.0f}", f"{of_job:,.0f}"],
        ["run time, mean (s)", f"{float(totals['avg_run_time_gpu']):,.0f}", f"{mean_s:,.0f}"],
        ["GPUs, mean", f"{float(totals['avg_gpu_num']):.2f}", f"{gpus:.2f}"],
        ["run times, KS to the published curve", "", f"{apart:.3f}"],
    ]


# Tables


def table_of(name: str, data: Path) -> str:
    """How far a preset is from its source, as a table in Markdown."""
    source = SOURCES[name]
    if source.system:
        return _markdown(["", "published", "preset"], _acme(source, data)[1])
    with TemporaryDirectory() as folder:
        judged = held_out(read_columns(data / source.files[0]), Path(folder))
    jobs = judged["jobs"]
    heads = [
        f"fitted to {jobs['first']:,} jobs, judged by the next {jobs['rest']:,}", "statistic",
        "generated to rest", "first part to rest", "halves of the rest",
    ]  # fmt: skip
    rows = [
        [
            one["name"],
            one["statistic"],
            *(f"{one[key]:.3f}" for key in ("distance", "first_to_rest", "baseline")),
        ]
        for one in judged["distances"]
    ]
    return _markdown(heads, rows)


def _markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def lines() -> Iterator[str]:
        for row in (heads, ["---"] * len(heads), *rows):
            yield "| " + " | ".join(row) + " |"

    return "\n".join(lines()) + "\n"


def with_table(page: str, name: str, table: str) -> str:
    """The page with the table of a preset in its place: below the line that names it."""
    before, mark, rest = page.partition(f"## `{name}`\n\n")
    after = rest.partition("\n\n")[2]
    return f"{before}{mark}{table}\n{after}"


def main(arguments: Sequence[str], say: Callable[[Any], None] = print) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="the folder of the logs")
    parser.add_argument("names", nargs="*", metavar="NAME", help="presets to fit; default: all")
    options = parser.parse_args(arguments)
    data = options.data
    for name in options.names or list(SOURCES):
        write_text(FOLDER / f"{name}.preset.yaml", text_of(name, data))
        write_text(PAGE, with_table(PAGE.read_text(encoding="utf-8"), name, table_of(name, data)))
        say(name)


if __name__ == "__main__":
    main(sys.argv[1:])
