"""`itertime`: the command line. Each command is a module of `itertime.commands`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from itertime.commandline import new_program, run_app
from itertime.commands.budget import budget, cost
from itertime.commands.calibrate import calibrate
from itertime.commands.catalogue import frameworks_app, lengths, models_app, plan_options, systems_app
from itertime.commands.predict import predict, timeline
from itertime.commands.profile import profile_app
from itertime.commands.search import search
from itertime.commands.train_time import train_time
from itertime.commands.validate import validate

app = new_program(
    "Predict the time of one training iteration of a large language model, and search for the best plan."
)
for command in (predict, search, budget, cost, validate, calibrate, timeline, train_time):
    app.command()(command)
for listing in (plan_options, lengths):
    app.command()(listing)
GROUPS = (
    *(("models", models_app), ("systems", systems_app), ("frameworks", frameworks_app)),
    ("profile", profile_app),
)
for name, group in GROUPS:
    app.add_typer(group, name=name)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code of the contract (0, 1, 2, 3 or 130)."""
    return run_app(app, "itertime", arguments)


if __name__ == "__main__":
    sys.exit(main())
