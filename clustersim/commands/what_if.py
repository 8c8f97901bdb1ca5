"""`clustersim what-if`: a trace under other settings, against the first values of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from itertime.errors import UserError

from .help import completion
from .help.options import (
    ClusterShape,
    Json,
    Measure,
    ModelPath,
    NoBound,
    NoOverheads,
    NoReport,
    OutDir,
    OverheadsPreset,
    PlacementName,
    PlannerName,
    PolicyName,
    Seed,
    Settings,
    SystemName,
    Table,
    TraceFile,
    Until,
    Warmup,
    Wide,
    Workers,
    grid_settings,
)

__all__ = ["vary", "what_if"]

Vary = Annotated[
    list[str],
    typer.Option(
        "--vary",
        help="NAME=VALUE,VALUE,...: values of a setting or of `nodes`, the base first; repeatable.",
        autocompletion=completion.varied,
        show_default=False,
    ),
]
Metrics = Annotated[
    str | None, typer.Option(help="Metrics to compare, separated by commas; by default five.")
]


def what_if(
    context: typer.Context,
    trace: TraceFile,
    policy: PolicyName,
    vary_: Vary,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds of each run, counting from --seed.")] = 1,
    metrics: Metrics = None,
    cluster: ClusterShape = "n128g8",
    system: SystemName = "dgx-a100-80gb",
    planner: PlannerName = None,
    placement: PlacementName = "pack",
    no_overheads: NoOverheads = False,
    overheads: OverheadsPreset = None,
    seed: Seed = 0,
    settings: Settings = None,
    table: Table = None,
    model_path: ModelPath = None,
    until: Until = None,
    warmup: Warmup = 0.0,
    measure: Measure = None,
    no_bound: NoBound = False,
    workers: Workers = None,
    out: OutDir = None,
    no_report: NoReport = False,
    wide: Wide = False,
    json: Json = False,
) -> None:
    """Simulate a trace under other settings, and compare each with the first.

    All runs have the same jobs and the same seeds. With several --vary, all combinations run, and each is
    compared with that of the first values. With --out, a folder keeps the runs and a report, and the same
    command continues it. Where something is drawn, --seeds 5 or more gives intervals.
    """
    vary(trace, [policy], vary_, context.params)


def vary(trace: Path, policies: Sequence[str], stated: Sequence[str], options: Mapping[str, Any]) -> None:
    """Run the grid of policies and varied settings, and print and write its results. `options`: those of the
    command, by parameter name.
    """
    from clustersim.grid import Variation, plan_variation

    from .grid import make_grid, show_grid

    variation = Variation(policies, _values(stated), options["seeds"], options.get("baseline"))
    metrics = options.get("metrics")
    chosen = [name.strip() for name in metrics.split(",") if name.strip()] if metrics else None
    out = options.get("out")
    with _folder(out) as folder:
        given = {name: value for name, value in grid_settings(options).items() if name not in variation.vary}
        plan = plan_variation(trace, variation, given, folder, chosen, option="--vary")
        results, failed = make_grid(plan, folder, workers=options.get("workers"))
        no_report = options["no_report"] or out is None
        show_grid(results, failed, no_report=no_report, kept=out is not None, wide=options["wide"],
                  json=options["json"])  # fmt: skip


@contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    """The folder of the results, which is deleted in the end unless it was asked for."""
    if out is not None:
        if (out / "manifest.json").exists():
            raise UserError(f"{out}: holds a run; choose an empty folder, or one of an earlier what-if")
        out.parent.mkdir(parents=True, exist_ok=True)
        yield out
        return
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="clustersim-what-if-") as home:
        yield Path(home) / "results"


def _values(stated: Sequence[str]) -> dict[str, list[Any]]:
    """`NAME=V,V,...` by name, with values in YAML."""
    from itertime.errors import quoted
    from itertime.io import parse_yaml

    found: dict[str, list[Any]] = {}
    for text in stated:
        name, equals, raw = text.partition("=")
        name = name.strip()
        if not equals or not name or not raw.strip():
            raise UserError(f"--vary {quoted(text)}: write NAME=VALUE,VALUE,..., as in nodes=64,96,128")
        if name in found:
            raise UserError(f"--vary {quoted(text)}: {name} is varied twice; name all its values in one")
        try:
            found[name] = [parse_yaml(one) for one in raw.split(",")]
        except ValueError:
            raise UserError(f"--vary {quoted(text)}: a value is not valid YAML") from None
        if any(isinstance(value, list | dict) for value in found[name]):
            raise UserError(f"--vary {quoted(text)}: values are numbers or words; use a grid file for others")
    return found
