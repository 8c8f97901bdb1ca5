"""The command `clustersim`; its sub-commands are in `clustersim.commands`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

from clustersim.commands import (
    backtest,
    bound,
    calendar,
    check,
    draw,
    explain,
    grid,
    policies,
    predict_start,
    serve,
    simulate,
    site,
    trace,
    what_if,
)
from clustersim.commands.help.examples import EXAMPLES
from clustersim.gctuning import collect_less_often
from itertime.commandline import brief, new_program, run_app

__all__ = ["app", "main"]

app = new_program(
    "Simulate a multi-tenant GPU cluster that trains large language models, and compare scheduling policies."
)
_PANELS: Mapping[str, Mapping[str, Callable[..., None]]] = {
    "Simulate": {
        "demo": simulate.demo,
        "run": simulate.run,
        "compare": simulate.compare,
        "what-if": what_if.what_if,
        "grid": grid.grid,
        "bound": bound.bound,
    },
    "Compare with a real cluster": {
        "backtest": backtest.backtest,
        "predict-start": predict_start.predict_start,
    },
    "Look at results": {
        "report": draw.report,
        "timeline": draw.timeline,
        "plot": draw.plot,
        "check": check.check,
        "explain": explain.explain,
        "serve": serve.serve,
    },
}
_SEVERAL_POLICIES = ("compare", "demo")
_OF_RUNS = ("--cluster", "--system", "--set", "--seed", "--out", "--json")
_MAIN_OPTIONS: Mapping[str, Sequence[str]] = {
    "demo": ("--jobs", "--policies", "--seed", "--out", "--notes"),
    "run": ("--policy", "--site", *_OF_RUNS),
    "compare": ("--policies", "--baseline", "--seeds", "--vary", "--cluster", "--set", "--out"),
    "what-if": ("--policy", "--vary", "--seeds", "--by", "--cluster", "--out"),
    "backtest": ("--policy", "--site", "--fit", "--cluster", "--by", "--only", "--out", "--json"),
    "predict-start": ("--job", "--policy", "--site", "--gpus", "--draws", "--cluster", "--json"),
    "bound": ("--cluster", "--system", "--set", "--planner", "--json"),
    "plot": ("--kind", "--output", "--metric", "--x", "--where", "--width"),
    "grid": ("--out", "--workers", "--dry-run", "--json"),
}
"""The options that `--help` shows, for commands with many; `--help-all` shows all."""


def _plural(option: str) -> str:
    """The name of an option of a command that takes several policies, where `run` takes one."""
    return "policies" if option == "policy" else option


for panel, commands in _PANELS.items():
    for name, command in commands.items():
        settings = {"token_normalize_func": _plural} if name in _SEVERAL_POLICIES else None
        kind = brief(_MAIN_OPTIONS.get(name, ()), EXAMPLES.get(name, ()))
        app.command(name, cls=kind, rich_help_panel=panel, context_settings=settings)(command)
trace.app.command(
    "calendar", cls=brief(("--output", "--cluster", "--gpus-per-node", "--least-s", "--format"))
)(calendar.calendar)
app.add_typer(trace.app, name="trace", rich_help_panel="Traces and policies")
app.add_typer(site.app, name="site", rich_help_panel="Compare with a real cluster")
app.add_typer(policies.app, name="policies", rich_help_panel="Traces and policies")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code (0, 1, 2, 3, 4, 5 or 130)."""
    with collect_less_often():  # while modules are imported, too
        return run_app(app, "clustersim", arguments)


if __name__ == "__main__":
    sys.exit(main())
