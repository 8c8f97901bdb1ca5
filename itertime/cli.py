"""`itertime`: the command line. Each command is a module of `itertime.commands`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

from itertime.commandline import brief, new_program, run_app
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
_SUBJECT = ("--model", "--system", "--global-batch", "--gpus", "--json")
_PLAN = (*_SUBJECT, "--tp", "--pp", "--dp", "--micro-batch")
_COMMANDS: Mapping[Callable[..., None], tuple[Sequence[str], Sequence[tuple[str, str]]]] = {
    predict: (
        _PLAN,
        [
            ("the fastest plan on 256 GPUs", "itertime predict --model llama3-70b --system dgx-h100 "
             "--gpus 256 --global-batch 512"),
            ("a stated plan", "itertime predict --model megatron-39.1b --system dgx-a100-80gb --tp 8 --pp 2 "
             "--dp 32 --micro-batch 4 --global-batch 1536"),
        ],
    ),
    search: (
        (*_SUBJECT, "--max-gpus", "--objective", "--price", "--explain", "--top"),
        [
            ("the best plans on 1,024 GPUs", "itertime search --model gpt3-175b --system dgx-a100-80gb "
             "--gpus 1024 --global-batch 1536 --explain"),
        ],
    ),
    budget: (
        (*_SUBJECT, "--days", "--tokens-per-parameter"),
        [("the largest model in 30 days", "itertime budget --system dgx-a100-80gb --gpus 3360 "
          "--global-batch 1680 --days 30")],
    ),
    cost: (
        (*_SUBJECT, "--tokens", "--price", "--goodput", "--plot"),
        [("days and dollars, with failures", "itertime cost --model gpt3-175b --system dgx-a100-80gb "
          "--gpus 1024 --global-batch 1536 --tokens 300e9 --goodput llama3")],
    ),
    validate: ((), [("measured runs against predictions", "itertime validate runs.csv")]),
    calibrate: ((), [("a system of your own measurements", "itertime calibrate runs.csv -o site.yaml")]),
    timeline: (
        (*_PLAN, "-o"),
        [("a page of one iteration", "itertime timeline --model megatron-39.1b --system dgx-a100-80gb --tp 8 "
          "--pp 4 --global-batch 16 -o iteration.html")],
    ),
    train_time: (
        (*_PLAN, "--steps"),
        [("a whole training", "itertime train-time --model bert-large-wikipedia --system dgx-a100-80gb "
          "--dp 64 --micro-batch 48 --global-batch 3072 --zero 1 --options optimizer=lamb")],
    ),
}  # fmt: skip
"""The commands, with the options that `--help` shows (all, if none is named) and examples."""
for command, (main_options, examples) in _COMMANDS.items():
    app.command(cls=brief(main_options, examples))(command)
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
