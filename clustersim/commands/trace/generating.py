"""`clustersim trace generate`: synthetic traces."""

from __future__ import annotations

from typing import Annotated

import typer

from itertime.commands.options import MEMORY_HEADROOM

from .options import Arrivals, Cv, Headroom, Load, LoadOf, Output, Rules, RunPlanner, Seed, SystemName
from .output import offered, say, write

__all__ = ["generate"]


def generate(
    output: Output,
    jobs: Annotated[int, typer.Option(min=1, help="Number of jobs.")] = 1000,
    load: Load = 1.0,
    gpus: Annotated[int, typer.Option(min=1, help="GPUs of the cluster that the load refers to.")] = 1024,
    arrivals: Arrivals = "poisson",
    cv: Cv = None,
    sizes: Annotated[
        str, typer.Option(help="GPUs and run times: itp, itp-8h, kalos, exponential, or a YAML file.")
    ] = "itp",
    rules: Rules = "llm-mix",
    deadlines: Annotated[
        str,
        typer.Option(
            help="rules, none, or LOW:HIGH[:SHARE]: a share of jobs, U(LOW, HIGH) run times after submission."
        ),
    ] = "rules",
    planner: RunPlanner = "3d",
    system: SystemName = "dgx-a100-80gb",
    memory_headroom: Headroom = MEMORY_HEADROOM,
    seed: Seed = 0,
    load_of: LoadOf = "trace",
    precisions: Annotated[
        str,
        typer.Option(help="NAME or NAME:WEIGHT,...: precisions of the jobs with a model, drawn by weight."),
    ] = "bf16",
    stated_sigma: Annotated[
        float, typer.Option(help="Users misstate iterations by a log-normal factor of this sigma, median 1.")
    ] = 0.0,
) -> None:
    """Generate a synthetic trace.

    Its recipe, and the load that it offers, are written next to it, to NAME.generate.json.
    """
    from traces.synthetic import Recipe, generate_stored

    recipe = Recipe(
        jobs=jobs,
        load=load,
        gpus=gpus,
        arrivals=arrivals,
        cv=cv,
        sizes=sizes,
        rules=rules,
        deadlines=deadlines,
        planner=planner,
        system=system,
        memory_headroom=memory_headroom,
        seed=seed,
        load_of=load_of,
        precisions=precisions,
        stated_sigma=stated_sigma,
    )
    made, report = generate_stored(recipe)
    beside = write(made, report, output, "generate")
    by = None if rules == "none" else planner
    say(f"{output}: {len(made):,} jobs; {offered(report['demand'], report['load'], gpus, by)}")
    for caution in report["cautions"]:
        say(f"note: {caution}", err=True)
    say(f"recipe: {beside}", err=True)
