"""The folders that commands read and write, and what they print about runs: tables or JSON on stdout."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clustersim.records import Run
from itertime.commandline import print_json
from itertime.errors import UserError
from traces.job import Job

from .terminal import WIDE, print_table, say

__all__ = [
    "check_folder",
    "has_report",
    "of_sound_records",
    "print_comparison",
    "print_run",
    "run_folders",
    "warn_of_missing_names",
]

MORE = "--wide shows them, --json has every metric"
"""How to see the columns that a table leaves out."""

_MOST_NOTES = 3  # printed, unless all are asked for

_MOST_REPORTED = 200_000  # jobs, of all runs together


def check_folder(folder: Path, runs: Sequence[str] = (), force: bool = False) -> None:
    """UserError if results cannot be written to `folder`, before minutes of simulation.

    `runs`: the names of the run folders that a comparison makes inside. A folder that holds a run is refused
    unless `force` is true. Folders of another comparison are refused even then: they would end up in the
    report of this one. So is the folder of a grid, which would not continue there.
    """
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        raise UserError(f"{folder}: {existing} is not a folder; choose another place with --out")
    if (folder / "grid.json").exists() or (folder / "cells").is_dir():
        raise UserError(f"{folder}: holds a grid; choose an empty folder")
    single = (folder / "manifest.json").exists()
    if runs and single:
        raise UserError(f"{folder}: holds a single run; choose an empty folder for a comparison")
    run_names = {path.parent.name for path in folder.glob("*/manifest.json")}
    if foreign_runs := sorted(run_names - set(runs)):
        raise UserError(f"{folder}: holds {foreign_runs[0]} of another comparison; choose an empty folder")
    if (single or run_names) and not force:
        run_text = "a run" if single else f"the run {min(run_names)}"
        raise UserError(
            f"{folder}: already holds {run_text}; choose another folder, or replace it with --force"
        )
    if not os.access(existing, os.W_OK):
        raise UserError(f"{folder}: {existing} cannot be written; choose another place with --out")


def warn_of_missing_names(site: Mapping[str, Any] | None, jobs: Iterable[Job]) -> None:
    """Say on stderr which partitions, QOS and accounts of jobs a site, as its document, does not have."""
    from clustersim.sites import missing_names, site_of

    if site is not None and (sentence := missing_names(site_of(site), jobs)):
        say(f"warning: {sentence}", err=True)


def run_folders(folder: Path) -> list[Path]:
    """`folder` itself if it holds a run, else the folders of runs inside it. UserError if there are none."""
    if not folder.is_dir():
        raise UserError(f"{folder}: is not a folder")
    if (folder / "manifest.json").exists():
        return [folder]
    homes = sorted(path.parent for path in folder.glob("*/manifest.json"))
    if not homes and (folder / "cells").is_dir():
        raise UserError(f"{folder}: holds a grid; its runs are in {folder / 'cells'}")
    if not homes:
        raise UserError(f"{folder}: holds no run (no manifest.json, neither here nor one folder down)")
    return homes


@contextmanager
def of_sound_records(homes: Sequence[Path]) -> Iterator[None]:
    """For work on records that may contradict each other, as in folders from elsewhere: if the work fails and
    a run breaks a rule, the error is a UserError that says so. Other failures stay what they are.
    """
    try:
        yield
    except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError):
        from clustersim.audit import check_run_folder

        for home in homes:
            for finding in check_run_folder(home):
                for violation in finding.violations:
                    problem = f"its records contradict each other: {finding.rule}: {violation.text:.200}"
                    remedy = f"run the simulation again; all of it: clustersim check {home}"
                    raise UserError(f"{home}: {problem}; {remedy}") from None
        raise


def has_report(runs: Sequence[Run]) -> bool:
    """Whether the runs have few enough jobs for a report that a browser can open."""
    return sum(len(run.jobs) for run in runs) <= _MOST_REPORTED


def print_run(run: Run, json: bool, wide: bool = False, all_notes: bool = False) -> None:
    """What a run says in a line, its headline and notes, or its summary as JSON."""
    from clustersim.report import load_differences

    if json:
        print_json(run.summary)
        for sentence in load_differences([run]):
            say(sentence, err=True)
        return
    width = WIDE if wide else None
    _print_headline([run], None, width)
    _print_pools([run], width)
    _print_notes([run], width, all_notes)


def print_comparison(
    runs: Sequence[Run], baseline: str, json: bool, wide: bool, all_notes: bool, refusals: Mapping[str, str]
) -> None:
    """What a comparison says in a line, its headline and notes, or all summaries as JSON. Several seeds add
    paired differences. `refusals`: why policies were left out.
    """
    from clustersim.grid import compare_runs
    from clustersim.report import load_differences

    from .grids import as_rows, print_differences

    seeds = {run.manifest["seed"] for run in runs}
    differences = compare_runs(runs, baseline) if len(seeds) > 1 else []
    skipped = [{"policy": policy, "reason": reason} for policy, reason in refusals.items()]
    if json:
        print_json(
            {
                "baseline": baseline,
                "runs": [
                    {
                        "policy": r.policy,
                        "planner": r.planner,
                        "seed": r.manifest["seed"],
                        **r.summary,
                        **_paired(r, runs, baseline),
                    }
                    for r in runs
                ],
                **({"comparisons": as_rows(differences)} if differences else {}),
                **({"skipped": skipped} if refusals else {}),
            }
        )
        for sentence in load_differences(runs):
            say(sentence, err=True)
        return
    width = WIDE if wide else None
    _print_headline(runs, baseline, width)
    for policy, reason in refusals.items():
        say(f"Left out: {policy}: {reason}.", width)
    print_differences(differences, {"policy": baseline}, width)
    _print_pools(runs, width)
    _print_notes(runs, width, all_notes, baseline)


def _paired(run: Run, runs: Sequence[Run], baseline: str) -> dict[str, Any]:
    """The mean JCTs of a run and of the baseline over the jobs that both finished, for JSON; empty for the
    baseline.
    """
    from clustersim.report import paired

    pair = paired(run, runs, baseline)
    if pair is None:
        return {}
    means = {"jct_mean_s": pair.variant["jct_mean_s"], "baseline_jct_mean_s": pair.baseline["jct_mean_s"]}
    return {"paired": {"jobs": pair.jobs, **means}}


def _covered(run: Run) -> Mapping[str, int]:
    """The metrics that the headline shows: those of the window, if the run has one."""
    covered: Mapping[str, int] = run.summary.get("window", run.summary)
    return covered


def _by_run(form: str, counts: Mapping[str, int]) -> str:
    """A count for each run. Labels that name a seed hold a comma.

    >>> _by_run("{}", {"fifo": 20, "srtf": 19}), _by_run("{}", {"fifo, seed 0": 20, "fifo, seed 1": 19})
    ('fifo 20, srtf 19', 'fifo, seed 0: 20; fifo, seed 1: 19')
    """
    separator, between = (": ", "; ") if any(", " in label for label in counts) else (" ", ", ")
    return between.join(f"{label}{separator}{form.format(count)}" for label, count in counts.items())


def _print_pools(runs: Sequence[Run], width: int | None) -> None:
    """The use of the clusters of a fleet, and of spot nodes, if the runs have any."""
    from clustersim.report.sections import pool_rows

    rows = pool_rows(runs) if has_report(runs) else []
    if rows:
        heads = ("policy", "nodes", "GPUs", "finished", "mean JCT", "to first GPUs", "allocated", "USD",
                 "reclaims", "lost GPU-h")  # fmt: skip
        cells = [[named_run.label, *cells] for named_run, pools in rows for cells in pools]
        print_table(heads, cells, keys=2, width=width, remedy=MORE)


def _print_headline(runs: Sequence[Run], baseline: str | None, width: int | None) -> None:
    """The answer, what must be known before any number, and the table: its main columns, or all if `width` is
    that of `--wide`.
    """
    from clustersim.report import answer, comparison_table, heads, load_differences, short_table

    say(answer(runs, baseline), width)
    for sentence in filter(None, [*load_differences(runs), " ".join(heads(runs))]):
        say(sentence, width)
    table = (comparison_table if width == WIDE else short_table)(runs, baseline)
    print_table(table.heads, table.rows, least_columns=table.least, width=width, remedy=MORE)


def _print_notes(
    runs: Sequence[Run], width: int | None, all_notes: bool, baseline: str | None = None
) -> None:
    """The first notes, or all, and how to see the others."""
    from clustersim.report.numbers import counted

    sentences = _notes(runs, baseline)
    shown = sentences if all_notes or width == WIDE else sentences[:_MOST_NOTES]
    for sentence in shown:
        say(sentence, width)
    if hidden := len(sentences) - len(shown):
        say(f"--notes: {counted(hidden, 'more note')}; --wide: all columns; --out DIR: a report.", width)


def _notes(runs: Sequence[Run], baseline: str | None) -> list[str]:
    """What a reader must know to judge the numbers, the most important first: which jobs they leave out and
    which knowledge no real scheduler has, then what explains them.
    """
    from clustersim.report import distances, group_runs, named, notes, same_jobs_finished, sizes_given

    labelled_runs = [(named_run.label, named_run.run) for named_run in named(runs)]
    finished = _by_run("{}", {label: _covered(run)["finished"] for label, run in labelled_runs})
    jobs = _covered(runs[0])["jobs"]
    differences = ""
    if baseline is not None and not same_jobs_finished(runs):
        differences = f"; their differences cover the jobs that {baseline} finished, too"
    coverage = f"JCT and waiting cover finished jobs: {finished} of {jobs} submitted{differences}."
    is_whole = all(_covered(run)["finished"] == jobs for _, run in labelled_runs)
    sentences = [] if is_whole else [coverage]
    sentences += _jobs_left_out(labelled_runs)
    knowing = dict.fromkeys(run.policy for run in runs if run.manifest["oracle_used"])
    if knowing:
        names = ", ".join(knowing)
        sentences.append(
            f"True durations from the log were used by {names} (oracle): no real scheduler knows them."
        )
    sentences += notes(runs, read_records=has_report(runs))
    if has_report(runs):  # larger runs keep no records of jobs in memory
        sentences += sizes_given(runs)
    sentences += distances(group_runs(runs))
    unsure = {
        plan.gpu_type or run.cluster.system: None for run in runs for plan in run.plans if plan.low_s is None
    }
    if unsure:
        where = ", ".join(unsure)
        sentences.append(
            f"No interval is known for iteration times on {where}; docs/accuracy.md: how far runs are off."
        )
    return [*sentences, coverage] if is_whole else sentences


def _jobs_left_out(labelled_runs: Sequence[tuple[str, Run]]) -> list[str]:
    """Which jobs were rejected and why, and which did not finish."""
    sentences = []
    runs = [run for _, run in labelled_runs]
    if has_report(runs):
        for label, run in labelled_runs:
            reasons = Counter(job.reason for job in run.jobs if job.state == "rejected")
            for reason, count in reasons.most_common(1):
                other_count = reasons.total() - count
                others_text = f" and {other_count:,} for other reasons" if other_count else ""
                sentences.append(f"Rejected under {label}: {count:,} ({reason}){others_text}.")
    forms = (
        ("unfinished", "{}", "Unfinished when the run ended: {}; `reason` in jobs.csv says why."),
        ("interruptions", "{} times", "Failures of nodes stopped jobs: {}."),
        ("failed", "{}", "Jobs that ended as failed: {}."),
    )
    for metric, form, text in forms:
        if any(run.summary[metric] for run in runs):
            counts = {label: run.summary[metric] for label, run in labelled_runs}
            sentences.append(text.format(_by_run(form, counts)))
    return sentences
