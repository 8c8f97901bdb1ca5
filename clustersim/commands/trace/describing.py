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
        log_columns = read_columns(trace, None if options == ReadOptions() else options)
        description = described(log_columns, gpus)
    if as_json:
        print_json({"file": trace.name, **description})
        return
    print("\n\n".join(_paragraphs(trace, description)))


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
        results = distances(a, b, seed)
    if as_json:
        jobs = {"a": {"file": first.name, "jobs": len(a)}, "b": {"file": second.name, "jobs": len(b)}}
        print_json({**jobs, "seed": seed, "distances": results})
        return
    say(f"A: {first}: {len(a):,} jobs")
    say(f"B: {second}: {len(b):,} jobs")
    print(f"\n{distance_table(results)}")
    if not results:
        say("the traces have no statistic in common")
        return
    print()
    say("KS: Kolmogorov-Smirnov; TV: total variation; W1: Wasserstein-1 of logarithms")
    say("halves: 95 % of the distances between random halves of A are smaller")
    say("times: A to B over that, of factors their logarithms; large: above 3 times")


def distance_table(results: Sequence[Mapping[str, Any]]) -> str:
    """Distances as a table, in their order."""
    rows = [
        [
            result["name"],
            _SHORT.get(result["statistic"], result["statistic"]),
            f"{result['distance']:.3f}",
            f"{result['baseline']:.3f}",
            *([f"{result['first_to_rest']:.3f}"] if "first_to_rest" in result else []),
            f"{result['times_baseline']:.1f}" if result["times_baseline"] < 1000 else ">1000",
            "large" if result["note"] == "large" else "",
        ]
        for result in results
    ]
    first_column = ["first"] if results and "first_to_rest" in results[0] else []
    return table(["", "", "A to B", "halves", *first_column, "times", ""], rows, keys=2)


def _paragraphs(trace: Path, description: Mapping[str, Any]) -> Iterator[str]:
    head = f"{trace}: {description['jobs']:,} jobs submitted over {span(description['span_s'])}"
    yield f"{head}\n{description['gpu_hours']:,.2f} GPU-hours"
    yield _sizes(description)
    yield _arrivals(description["arrivals"])
    for name in ("tenants", "users", "states"):
        if description[name] and [entry["name"] for entry in description[name]["first"]] != ["default"]:
            yield _named(name, description[name])
    if description["wait"]:
        names = ("mean", *_QUANTILES, "max")
        waits = [["logged waits", *(compact(description["wait"][name]) for name in names)]]
        yield table(["", *names], waits)
    if description["estimates"]:
        yield _estimates(description["estimates"])
    if description["load"]:
        yield _load(description["load"])


def _sizes(description: Mapping[str, Any]) -> str:
    rows = [
        [
            size["gpus"],
            f"{size['jobs']:,}",
            f"{size['share']:.1%}",
            f"{size['share_of_gpu_hours']:.1%}",
            *(compact(size["run_time"][q]) if size["run_time"] else "-" for q in _QUANTILES),
        ]
        for size in [
            *description["sizes"],
            {**description, "gpus": "all", "share_of_gpu_hours": 1.0, "share": 1.0},
        ]
    ]
    heads = ["GPUs", "jobs", "share", "GPU-hours", *_QUANTILES]
    return f"shares of jobs and GPU-hours, quantiles of run times, by GPUs\n{table(heads, rows)}"


def _arrivals(description: Mapping[str, Any]) -> str:
    if description["gap_cv"] is None:
        return "all jobs are submitted at one time"
    dispersion = [
        f"{value:.3g} per {name}" for name, value in description["dispersion"].items() if value is not None
    ]
    lines = [
        f"arrivals: {description['jobs_per_hour']:,.3g} jobs an hour",
        f"  gaps: mean {compact(description['gap_mean_s'])}, median {compact(description['gap_median_s'])}, "
        f"{description['within_1s']:.0%} below 1 s",
        f"  burstiness (Poisson 1): gaps vary by {description['gap_cv']:.2f}",
        *([f"  dispersion of counts (Poisson 1): {', '.join(dispersion)}"] if dispersion else []),
    ]
    whose = "" if description["calendar"] else " of the trace's clock"
    for name, days in (("hours", [f"{hour:02}" for hour in range(24)]), ("weekdays", list(_DAYS))):
        if description[name]:
            shares, largest = description[name], max(description[name])
            if name == "hours":
                lines.append(f"  share of the submissions by hour of the day{whose}:")
                lines += _hours(shares)
            else:
                days = days if description["calendar"] else [f"day {i + 1}" for i in range(7)]
                lines.append(f"  by day of the week{whose}:")
                lines += [
                    f"    {day:<10}{share:>6.1%} {bar(share / largest)}"
                    for day, share in zip(days, shares, strict=True)
                ]
    return "\n".join(lines)


def _hours(shares: list[float]) -> list[str]:
    largest = max(shares)
    columns = [
        [f"{hour:02}  {shares[hour]:>5.1%} {bar(shares[hour] / largest, 12):<12}" for hour in range(i, i + 8)]
        for i in (0, 8, 16)
    ]
    return ["    " + "   ".join(row).rstrip() for row in zip(*columns, strict=True)]


def _named(kind: str, description: Mapping[str, Any]) -> str:
    rows = [
        [
            entry["name"] or "(not stated)",
            f"{entry['jobs']:,}",
            f"{entry['share']:.1%}",
            f"{entry['share_of_gpu_hours']:.1%}",
        ]
        for entry in description["first"]
    ]
    head = f"{kind}: {description['count']:,}"
    ginis = [
        f"{description[key]:.2f} of {noun}"
        for key, noun in (("gini_jobs", "jobs"), ("gini_gpu_hours", "GPU-hours"))
        if description[key] is not None
    ]
    if kind != "states" and description["count"] > 1 and ginis:
        head += f"; Gini coefficient {', '.join(ginis)}"
    others = description["count"] - len(rows)
    return f"{head}\n{table(['', 'jobs', 'share', 'GPU-hours'], rows)}" + (
        f"\nand {others:,} more" if others else ""
    )


def _estimates(description: Mapping[str, Any]) -> str:
    over = description["over_run_time"]
    share_within = f"{description['run_time_within']:.1%} run within it"
    return (
        f"estimates: {description['jobs']:,} jobs, {share_within}\n"
        f"  estimate over run time: p5 {over['p5']:.3g}, median {over['p50']:.3g}, p95 {over['p95']:.3g}"
    )


def _load(description: Mapping[str, Any]) -> str:
    held = description["held"] or [None] * len(description["offered"])
    rows = [
        [
            span(i * description["period_s"]),
            f"{load:.2f}",
            *([] if gpus is None else [f"{gpus:,.1f}"]),
            bar(load / 2, 38),
        ]
        for i, (load, gpus) in enumerate(zip(description["offered"], held, strict=True))
    ]
    heads = ["from", "load", *([] if description["held"] is None else ["GPUs held"]), ""]
    requested = f"{description['mean_gpus']:,.1f} asked for on average"
    sentence = f"load {description['mean']:.3g} on {description['gpus']:,} GPUs ({requested})"
    lines = table(heads, [[*row[:-1], ""] for row in rows]).splitlines()
    bars = [""] + [row[-1] for row in rows]
    drawn = [f"{line:<40}{drawn}".rstrip() for line, drawn in zip(lines, bars, strict=True)]
    return "\n".join([sentence, *drawn])


def compact(seconds: float) -> str:
    """A time of three digits with its unit.

    >>> compact(90.0), compact(0.25), compact(7200.0)
    ('1.5m', '0.25s', '2h')
    """
    for unit_s, unit in _COMPACT:
        if seconds >= unit_s:
            return f"{seconds / unit_s:.3g}{unit}"
    return f"{seconds:.3g}s"
