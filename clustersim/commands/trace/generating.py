"""`clustersim trace generate`: synthetic traces."""

from __future__ import annotations

from typing import Annotated

import typer

from clustersim.commands.output.terminal import say
from itertime.commands.options import MEMORY_HEADROOM

from .options import (
    Arrivals,
    ClusterOfLoad,
    Cv,
    DeadlinesToDraw,
    GpusOfLoad,
    Headroom,
    Load,
    LoadOf,
    Noise,
    Output,
    Precisions,
    PresetName,
    RulesToDraw,
    RunPlanner,
    Seed,
    SizesName,
    StatedSigma,
    SystemName,
)
from .output import offered, write

__all__ = ["generate"]


def generate(
    output: Output,
    jobs: Annotated[int, typer.Option(min=1, help="Number of jobs.")] = 1000,
    preset: PresetName = None,
    load: Load = None,
    gpus: GpusOfLoad = None,
    cluster: ClusterOfLoad = None,
    arrivals: Arrivals = None,
    cv: Cv = None,
    sizes: SizesName = None,
    rules: RulesToDraw = None,
    deadlines: DeadlinesToDraw = "rules",
    planner: RunPlanner = "best",
    system: SystemName = "dgx-a100-80gb",
    memory_headroom: Headroom = MEMORY_HEADROOM,
    seed: Seed = 0,
    load_of: LoadOf = "trace",
    precisions: Precisions = "bf16",
    stated_sigma: StatedSigma = 0.0,
    gradient_noise: Noise = "none",
) -> None:
    """Generate a synthetic trace.

    Its recipe, and the load that it offers, are written next to it, to NAME.generate.json.
    """
    from itertime.errors import UserError
    from traces.synthetic import Recipe, generate_stored

    for name, value in {"--arrivals": arrivals, "--cv": cv, "--sizes": sizes}.items():
        if preset is not None and value is not None:
            raise UserError(f"{name} {value}: cannot be combined with --preset, which states it")
    gpus, system = _nodes_of(cluster, gpus, system)
    rules = rules or ("llm-mix" if preset is None else "none")
    recipe = Recipe(
        jobs=jobs,
        load=1.0 if load is None and preset is None else load,
        gpus=gpus,
        arrivals=arrivals or "poisson",
        cv=cv,
        sizes=sizes or "itp",
        rules=rules,
        deadlines=deadlines,
        planner=planner,
        system=system,
        memory_headroom=memory_headroom,
        seed=seed,
        load_of=load_of,
        precisions=precisions,
        stated_sigma=stated_sigma,
        preset=preset,
        gradient_noise=gradient_noise,
    )
    generated_jobs, report = generate_stored(recipe)
    report_path = write(generated_jobs, report, output, "generate")
    by = None if rules == "none" else recipe.planner
    say(f"{output}: {len(generated_jobs):,} jobs; {offered(report['demand'], report['load'], gpus, by)}")
    for caution in report["cautions"]:
        say(f"note: {caution}", err=True)
    say(f"recipe: {report_path}", err=True)


def _nodes_of(cluster: str | None, gpus: int | None, system: str) -> tuple[int, str]:
    """The GPUs that a load refers to, and the system that run times do: those stated, or the GPUs of a
    cluster and the system of its fastest nodes. UserError for both, and for a cluster that cannot be used.
    """
    from clustersim.runs import RunConfig, recipe_values
    from itertime.errors import UserError

    if cluster is None:
        return gpus or 1024, system
    if gpus is not None:
        raise UserError(f"--gpus {gpus}: cannot be combined with --cluster, which states it")
    values = recipe_values(RunConfig.make(policy="fifo", cluster=cluster, system=system))
    return values["gpus"], values.get("system", system)
