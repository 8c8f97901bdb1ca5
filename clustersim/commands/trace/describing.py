"""`clustersim trace describe` and `compare`: traces and logs in numbers, and how far two are apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from clustersim.commands.output.columns import bar, table
from clustersim.commands.output.terminal import say
from itertime.commandline import print_json

from .options import Columns, LogFormatName, TimeUnit, TimeZone
from .output import span

__all__ = ["TraceOrLog", "compare", "describe", "distance_table"]

_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_QUANTILES = ("p5", "p25", "p50", "p75", "p95")
_SHORT = {
    "Kolmogorov-Smirnov": "KS",
    "mean Kolmogorov-Smirnov": "KS, mean",
    "Wasserstein-1, factor": "W1, factor",
    "total variation": "TV",
}
_COMPACT = ((86400.0, "d"), (3600.0, "h"), (60.0, "m"))

TraceOrLog = Annotated[Path, typer.Argument(help="Trace, or a job log of any format that `import` reads.")]


def describe(
    trace: TraceOrLog,
    gpus: Annotated[
        int | None, typer.Option(min=1, help="GPUs of the cluster that the load refers to; else load 1.")
    ] = None,
    log_format: LogFormatName = None,
    columns: Columns = None,
    time_unit: TimeUnit = None,
    time_zone: TimeZone = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Describe a trace or a log: sizes, run times, arrivals, owners, states, estimates and load."""
    from clustersim.gctuning import collect_less_often
    from traces.logs import ReadOptions
    from traces.statistics import describe as described
    from traces.statistics import read_columns

    options = ReadOptions(log_format, columns, time_unit, time_zone=time_zone)
    with collect_less_often():
        read = read_columns(trace, None if options == ReadOptions() else options)
        found = described(read, gpus)
    if as_json:
        print_json({"file": trace.name, **found})
        return
    print("\n\n".join(_paragraphs(trace, found)))


def compare(
    first: TraceOrLog,
    second: TraceOrLog,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random halves.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Say how far two traces or logs, A and B, are apart, beside how far two halves of A are."""
    from clustersim.gctuning import collect_less_often
    from traces.statistics import distances, read_columns

    with collect_less_often():
        a, b = read_columns(first), read_columns(second)
        found = distances(a, b, seed)
    if as_json:
        jobs = {"a": {"file": first.name, "jobs": len(a)}, "b": {"file": second.name, "jobs": len(b)}}
        print_json({**jobs, "seed": seed, "distances": found})
        return
    say(f"A: {first}: {len(a):,} jobs")
    say(f"B: {second}: {len(b):,} jobs")
    print(f"\n{distance_table(found)}")
    if not found:
        say("the traces have no statistic in common")
        return
    print()
    say("KS: Kolmogorov-Smirnov; TV: total variation; W1: Wasserstein-1 of logarithms")
    say("halves: 95 % of the distances between random halves of A are smaller")
    say("times: A to B over that, of factors their logarithms; large: above 3 times")


def distance_table(found: Sequence[Mapping[str, Any]]) -> str:
    """Distances as a table, in their order."""
    rows = [
        [
            one["name"],
            _SHORT.get(one["statistic"], one["statistic"]),
            f"{one['distance']:.3f}",
            f"{one['baseline']:.3f}",
            *([f"{one['first_to_rest']:.3f}"] if "first_to_rest" in one else []),
            f"{one['times_baseline']:.1f}" if one["times_baseline"] < 1000 else ">1000",
            "large" if one["note"] == "large" else "",
        ]
        for one in found
    ]
    first = ["first"] if found and "first_to_rest" in found[0] else []
    return table(["", "", "A to B", "halves", *first, "times", ""], rows, keys=2)


def _paragraphs(trace: Path, found: Mapping[str, Any]) -> Iterator[str]:
    head = f"{trace}: {found['jobs']:,} jobs submitted over {span(found['span_s'])}"
    yield f"{head}\n{found['gpu_hours']:,.2f} GPU-hours"
    yield _sizes(found)
    yield _arrivals(found["arrivals"])
    for name in ("tenants", "users", "states"):
        if found[name] and [one["name"] for one in found[name]["first"]] != ["default"]:
            yield _named(name, found[name])
    if found["wait"]:
        names = ("mean", *_QUANTILES, "max")
        waits = [["logged waits", *(compact(found["wait"][name]) for name in names)]]
        yield table(["", *names], waits)
    if found["estimates"]:
        yield _estimates(found["estimates"])
    if found["load"]:
        yield _load(found["load"])


def _sizes(found: Mapping[str, Any]) -> str:
    rows = [
        [
            size["gpus"],
            f"{size['jobs']:,}",
            f"{size['share']:.1%}",
            f"{size['share_of_gpu_hours']:.1%}",
            *(compact(size["run_time"][q]) if size["run_time"] else "-" for q in _QUANTILES),
        ]
        for size in [*found["sizes"], {**found, "gpus": "all", "share_of_gpu_hours": 1.0, "share": 1.0}]
    ]
    heads = ["GPUs", "jobs", "share", "GPU-hours", *_QUANTILES]
    return f"shares of jobs and GPU-hours, quantiles of run times, by GPUs\n{table(heads, rows)}"


def _arrivals(found: Mapping[str, Any]) -> str:
    if found["gap_cv"] is None:
        return "all jobs are submitted at one time"
    dispersion = [
        f"{value:.3g} per {name}" for name, value in found["dispersion"].items() if value is not None
    ]
    lines = [
        f"arrivals: {found['jobs_per_hour']:,.3g} jobs an hour",
        f"  gaps: mean {compact(found['gap_mean_s'])}, median {compact(found['gap_median_s'])}, "
        f"{found['within_1s']:.0%} below 1 s",
        f"  burstiness (Poisson 1): gaps vary by {found['gap_cv']:.2f}",
        *([f"  dispersion of counts (Poisson 1): {', '.join(dispersion)}"] if dispersion else []),
    ]
    whose = "" if found["calendar"] else " of the trace's clock"
    for name, days in (("hours", [f"{hour:02}" for hour in range(24)]), ("weekdays", list(_DAYS))):
        if found[name]:
            shares, most = found[name], max(found[name])
            if name == "hours":
                lines.append(f"  share of the submissions by hour of the day{whose}:")
                lines += _hours(shares)
            else:
                days = days if found["calendar"] else [f"day {i + 1}" for i in range(7)]
                lines.append(f"  by day of the week{whose}:")
                lines += [
                    f"    {day:<10}{share:>6.1%} {bar(share / most)}"
                    for day, share in zip(days, shares, strict=True)
                ]
    return "\n".join(lines)


def _hours(shares: list[float]) -> list[str]:
    most = max(shares)
    columns = [
        [f"{hour:02}  {shares[hour]:>5.1%} {bar(shares[hour] / most, 12):<12}" for hour in range(i, i + 8)]
        for i in (0, 8, 16)
    ]
    return ["    " + "   ".join(row).rstrip() for row in zip(*columns, strict=True)]


def _named(kind: str, found: Mapping[str, Any]) -> str:
    rows = [
        [
            one["name"] or "(not stated)",
            f"{one['jobs']:,}",
            f"{one['share']:.1%}",
            f"{one['share_of_gpu_hours']:.1%}",
        ]
        for one in found["first"]
    ]
    head = f"{kind}: {found['count']:,}"
    ginis = [
        f"{found[key]:.2f} of {what}"
        for key, what in (("gini_jobs", "jobs"), ("gini_gpu_hours", "GPU-hours"))
        if found[key] is not None
    ]
    if kind != "states" and found["count"] > 1 and ginis:
        head += f"; Gini coefficient {', '.join(ginis)}"
    rest = found["count"] - len(rows)
    return f"{head}\n{table(['', 'jobs', 'share', 'GPU-hours'], rows)}" + (
        f"\nand {rest:,} more" if rest else ""
    )


def _estimates(found: Mapping[str, Any]) -> str:
    over = found["over_run_time"]
    within = f"{found['run_time_within']:.1%} run within it"
    return (
        f"estimates: {found['jobs']:,} jobs, {within}\n"
        f"  estimate over run time: p5 {over['p5']:.3g}, median {over['p50']:.3g}, p95 {over['p95']:.3g}"
    )


def _load(found: Mapping[str, Any]) -> str:
    held = found["held"] or [None] * len(found["offered"])
    rows = [
        [
            span(i * found["period_s"]),
            f"{load:.2f}",
            *([] if gpus is None else [f"{gpus:,.1f}"]),
            bar(load / 2, 38),
        ]
        for i, (load, gpus) in enumerate(zip(found["offered"], held, strict=True))
    ]
    heads = ["from", "load", *([] if found["held"] is None else ["GPUs held"]), ""]
    said = (
        f"load {found['mean']:.3g} on {found['gpus']:,} GPUs ({found['mean_gpus']:,.1f} asked for on average)"
    )
    lines = table(heads, [[*row[:-1], ""] for row in rows]).splitlines()
    bars = [""] + [row[-1] for row in rows]
    drawn = [f"{line:<40}{drawn}".rstrip() for line, drawn in zip(lines, bars, strict=True)]
    return "\n".join([said, *drawn])


def compact(seconds: float) -> str:
    """A time of three digits with its unit.

    >>> compact(90.0), compact(0.25), compact(7200.0)
    ('1.5m', '0.25s', '2h')
    """
    for unit_s, unit in _COMPACT:
        if seconds >= unit_s:
            return f"{seconds / unit_s:.3g}{unit}"
    return f"{seconds:.3g}s"
