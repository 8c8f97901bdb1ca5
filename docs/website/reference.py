"""The generated pages of the reference, by their place on the site."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from clustersim import cli as clustersim_cli
from itertime import cli as itertime_cli

from .commands import commands_page
from .policies import policies_page
from .settings import files_page, records_page, settings_page

__all__ = ["REFERENCE", "generated"]

SUMMARY = "summary: true\n      show_root_heading: true\n      heading_level: 2"

SCHEDULER = {
    "Scheduler": "the base class of all policies",
    "State": "the cluster and its jobs, as a policy sees them",
    "JobView": "what a policy knows of a job",
    "JobCurve": "speeds and costs of a job at each useful GPU count",
    "JobTable": "the running jobs as vectors, one number a job",
    "Proposal": "which job runs where from now on",
    "Ranking": "the waiting jobs, sorted by a key",
    "Event": "what happened since the last call",
}
PYTHON = {
    "clustersim.notebook.run": "simulate a trace under one policy",
    "clustersim.notebook.compare": "several policies on one trace",
    "clustersim.grid.run_grid": "a grid of runs",
    "clustersim.notebook.ShownRun": "the result of `run`",
    "clustersim.notebook.Comparison": "the result of `compare`",
    "clustersim.grid.Results": "the result of `grid`",
    "itertime.predict": "seconds and memory of one plan",
    "itertime.search": "the best plans on a number of GPUs",
    "itertime.evaluate": "many plans at once",
    "itertime.Plan": "a training plan",
    "traces.read_trace": "the jobs of a file",
    "traces.write_trace": "jobs into a file",
}


def _objects(title: str, text: str, paths: Iterable[tuple[str, str]]) -> str:
    """A page of Python objects: a table of them, then each as mkdocstrings shows it."""
    pairs = list(paths)
    rows = "\n".join(f"| [`{path}`][{path}] | {what} |" for path, what in pairs)
    blocks = "\n\n".join(f"::: {path}\n    options:\n      {SUMMARY}" for path, _ in pairs)
    return f"# {title}\n\n{text}\n\n| name | what |\n|---|---|\n{rows}\n\n{blocks}\n"


def commands() -> str:
    return commands_page(
        "Commands",
        "Every command of `clustersim` and `itertime`, with arguments, options and defaults. The words are "
        "those of `--help`, read from the programs when this page is built.",
        {"clustersim": clustersim_cli.app, "itertime": itertime_cli.app},
    )


def scheduler() -> str:
    return _objects(
        "Scheduler API",
        "What a policy is written with. The [tutorial](../tutorial.md) uses most of it, step by step.",
        ((f"clustersim.scheduler.{name}", what) for name, what in SCHEDULER.items()),
    )


def python() -> str:
    return _objects(
        "Python API",
        "The functions and results that scripts and notebooks use. [Python and notebooks](../python.md) "
        "shows them at work.",
        PYTHON.items(),
    )


REFERENCE: dict[str, Callable[[], str]] = {
    "reference/commands.md": commands,
    "reference/settings.md": settings_page,
    "reference/files.md": files_page,
    "reference/columns.md": records_page,
    "reference/policies.md": policies_page,
    "reference/scheduler.md": scheduler,
    "reference/python.md": python,
}


def generated() -> dict[str, str]:
    """The text of every generated page, by its place."""
    return {place: made() for place, made in REFERENCE.items()}
