"""The command `clustersim`; its sub-commands are in `clustersim.commands`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

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
    simulate,
    trace,
)
from itertime.commandline import new_program, run_app

__all__ = ["app", "main"]

app = new_program(
    "Simulate a multi-tenant GPU cluster that trains large language models, and compare scheduling policies."
)
app.command("demo")(simulate.demo)
app.command("run")(simulate.run)
app.command("compare")(simulate.compare)
app.command("grid")(grid.grid)
app.command("bound")(bound.bound)
app.command("backtest")(backtest.backtest)
app.command("predict-start")(predict_start.predict_start)
app.command("report")(draw.report)
app.command("timeline")(draw.timeline)
app.command("plot")(draw.plot)
app.command("check")(check.check)
app.command("explain")(explain.explain)
trace.app.command("calendar")(calendar.calendar)
app.add_typer(trace.app, name="trace")
app.add_typer(policies.app, name="policies")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code (0, 1, 2, 3, 4, 5 or 130)."""
    return run_app(app, "clustersim", arguments)


if __name__ == "__main__":
    sys.exit(main())
