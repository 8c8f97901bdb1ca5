"""Options that several commands have, alone and in groups (`option_groups`), and the settings of a run that
they make.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from itertime.errors import UserError

from . import completion

if TYPE_CHECKING:
    from clustersim.runs import RunConfig

__all__ = [
    "POLICY_OF_SITES",
    "Baseline",
    "ClusterShape",
    "Force",
    "Json",
    "Measure",
    "ModelPath",
    "NoBound",
    "NoOverheads",
    "NoReport",
    "OutDir",
    "Output",
    "OverheadsPreset",
    "Parquet",
    "PlacementName",
    "PlannerName",
    "PolicyName",
    "PolicyNames",
    "RunOptions",
    "RunOutput",
    "Seed",
    "Settings",
    "SiteFile",
    "SystemName",
    "Table",
    "TraceFile",
    "Until",
    "VarySetting",
    "Warmup",
    "Wide",
    "Workers",
    "config_of",
    "grid_settings",
    "policy_or_that_of_site",
]

POLICY_OF_SITES = "slurm"
_CLUSTER, _WINDOW, _RESULTS = "Cluster and costs", "Window of measurement", "Results"
TraceFile = Annotated[Path, typer.Argument(help="Trace in the native format (CSV or Parquet).")]
ClusterShape = Annotated[
    str,
    typer.Option(
        help="Shape of the cluster (n128g8: 128 nodes of 8 GPUs), or a YAML file.",
        rich_help_panel=_CLUSTER,
    ),
]
SiteFile = Annotated[
    Path | None,
    typer.Option(
        help="Site of Slurm, written by `site slurm`: its nodes, and its rules for the policy slurm.",
        rich_help_panel=_CLUSTER,
    ),
]
SystemName = Annotated[
    str,
    typer.Option(
        help="System of its nodes: a name of itertime, or a YAML file.",
        autocompletion=completion.systems,
        rich_help_panel=_CLUSTER,
    ),
]
PlannerName = Annotated[
    str | None,
    typer.Option(
        help="Planner of all jobs; by default that of the policy.",
        autocompletion=completion.planners,
        rich_help_panel=_CLUSTER,
    ),
]
PlacementName = Annotated[
    str,
    typer.Option(
        help="Placement rule: pack, spread, any, topology or buddy.",
        autocompletion=completion.placements,
        rich_help_panel=_CLUSTER,
    ),
]
NoOverheads = Annotated[
    bool,
    typer.Option("--no-overheads", help="Make starts, restarts and resizes free.", rich_help_panel=_CLUSTER),
]
OverheadsPreset = Annotated[
    str | None,
    typer.Option(
        "--overheads",
        help="Preset of overheads, as mlperf or pretraining; docs/overheads.md lists them.",
        autocompletion=completion.overheads,
        rich_help_panel=_CLUSTER,
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of all random draws.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="NAME=VALUE, as in overheads.launch_s=10 or policy.guard_s=2; repeatable.",
        autocompletion=completion.settings,
    ),
]
Table = Annotated[
    Path | None,
    typer.Option(
        help="Throughput table (CSV): model, global_batch, gpus, iterations_per_s.",
        rich_help_panel=_CLUSTER,
    ),
]
ModelPath = Annotated[
    list[str] | None,
    typer.Option(
        "--model-path",
        help="Folder of model files, which the trace names without ending; repeatable.",
        rich_help_panel=_CLUSTER,
    ),
]
Warmup = Annotated[
    float,
    typer.Option(
        min=0, help="Seconds from the first submission to a window of measurement.", rich_help_panel=_WINDOW
    ),
]
Measure = Annotated[
    float | None,
    typer.Option(
        help="Seconds that the window of measurement lasts; by default to the last submission.",
        rich_help_panel=_WINDOW,
    ),
]
Until = Annotated[
    float | None,
    typer.Option(help="End of the run, in seconds on the trace's clock.", rich_help_panel=_WINDOW),
]
OutDir = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        help="Folder to write: records, metrics, manifest and report.",
        rich_help_panel=_RESULTS,
    ),
]
Force = Annotated[
    bool,
    typer.Option(
        "--force", help="Replace the results that the folder of --out holds.", rich_help_panel=_RESULTS
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.", rich_help_panel=_RESULTS)]
Wide = Annotated[
    bool,
    typer.Option("--wide", help="Show every column, however wide the table.", rich_help_panel=_RESULTS),
]
Notes = Annotated[
    bool,
    typer.Option("--notes", help="Print every note on the results, not three.", rich_help_panel=_RESULTS),
]
Parquet = Annotated[
    bool,
    typer.Option("--parquet", help="Write jobs.parquet instead of jobs.csv.", rich_help_panel=_RESULTS),
]
NoBound = Annotated[
    bool,
    typer.Option(
        "--no-bound",
        help="Do not compute how far the results are from the best possible.",
        rich_help_panel=_RESULTS,
    ),
]
Baseline = Annotated[
    str | None, typer.Option(help="Policy to compare the others with; by default the first.")
]
NoReport = Annotated[
    bool,
    typer.Option(
        "--no-report", help="Write no report.html; `report` makes it later.", rich_help_panel=_RESULTS
    ),
]
PolicyName = Annotated[
    str | None,
    typer.Option(
        "--policy",
        help="A registered policy, or file.py:Class. Needed, unless --site states one: slurm.",
        autocompletion=completion.policy,
    ),
]
PolicyNames = Annotated[
    str,
    typer.Option(
        help="Policies, separated by commas.",
        autocompletion=completion.policies,
    ),
]
Workers = Annotated[int | None, typer.Option(min=1, help="Runs at a time; by default one per processor.")]

VarySetting = Annotated[
    str | None,
    typer.Option(
        "--vary",
        help="NAME=VALUE,VALUE,...: a setting under whose values all policies run.",
        autocompletion=completion.varied,
    ),
]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options that state the cluster, the costs and the settings of a run, all but its policy."""

    cluster: ClusterShape = "n128g8"
    system: SystemName = "dgx-a100-80gb"
    site: SiteFile = None
    planner: PlannerName = None
    placement: PlacementName = "pack"
    no_overheads: NoOverheads = False
    overheads: OverheadsPreset = None
    seed: Seed = 0
    settings: Settings = None
    table: Table = None
    model_path: ModelPath = None
    until: Until = None
    warmup: Warmup = 0.0
    measure: Measure = None
    no_bound: NoBound = False

    def config(self, policy: str, **changes: Any) -> RunConfig:
        """The settings of a run under a policy, some of the options replaced; see `config_of`."""
        return config_of(policy, vars(self) | changes)


@dataclass(frozen=True, kw_only=True)
class Output:
    """The options that say what of the results is kept and printed."""

    out: OutDir = None
    no_report: NoReport = False
    wide: Wide = False
    json: Json = False


@dataclass(frozen=True, kw_only=True)
class RunOutput(Output):
    """The same for runs, each of which has a folder."""

    force: Force = False
    notes: Notes = False
    parquet: Parquet = False


def policy_or_that_of_site(policy: str | None, options: RunOptions) -> str:
    """The policy that is named; else that of a site, if one is given. UserError if neither is."""
    if policy is None and options.site is None:
        raise UserError("--policy: is missing; name one, as in --policy fifo, or a site of Slurm with --site")
    return policy or POLICY_OF_SITES


def grid_settings(options: RunOptions) -> dict[str, Any]:
    """The settings of a run as a grid states them: the options that are not the defaults, then `--set`,
    with dotted names. UserError for contradictions and for text that is no setting.
    """
    from clustersim.runs import RunConfig, closures_of
    from itertime.io import parse_yaml

    config = options.config("fifo", settings=[])
    _refuse_second_values(vars(options))
    if options.no_bound:
        _refuse_bound(options.settings)
    plain = config.model_dump(exclude={"policy", "params"}, exclude_defaults=True)
    if config.site is not None:  # nodes that are down follow from the site, whose nodes may be varied
        entries = [entry for entry in config.calendar if entry not in closures_of(config.site)]
        plain = {name: value for name, value in plain.items() if name != "calendar"}
        plain |= {"calendar": entries} if entries else {}
    for text in options.settings or []:
        RunConfig.make(
            [text], policy="fifo", overheads=config.overheads, site=config.site
        )  # names the option
        name, _, raw = text.partition("=")
        plain[name.strip()] = parse_yaml(raw)
    return plain


def config_of(policy: str, options: Mapping[str, Any]) -> RunConfig:
    """The settings of a run under a policy, by the options of its command, given by parameter name.

    UserError for options that contradict each other.
    """
    from clustersim.runs import NO_BOUND, SETTINGS, RunConfig

    assignments, preset = options.get("settings"), options.get("overheads")
    if options.get("no_overheads") and preset is not None:
        raise UserError(f"--overheads {preset}: contradicts --no-overheads; leave one of them out")
    by_setting = {name: options.get(setting.parameter) for name, setting in SETTINGS.items()}
    values: dict[str, Any] = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in by_setting.items()
        if value is not None
    }
    _refuse_second_values(options)
    if options.get("no_overheads"):
        values["overheads"] = None
    elif preset is not None:
        values["overheads"] = {"preset": preset}
    if options.get("no_bound"):
        _refuse_bound(assignments)
        values["bound"] = NO_BOUND
    return RunConfig.make(assignments, **{**values, "policy": policy})


def _refuse_second_values(options: Mapping[str, Any]) -> None:
    """UserError for a setting of `--set` that its own option states, too, unless as by default."""
    from clustersim.runs import SETTINGS, RunConfig

    for text in options.get("settings") or []:
        name = text.partition("=")[0].strip()
        setting = SETTINGS.get(name)
        value = options.get(setting.parameter) if setting else None
        if setting and value is not None and value != RunConfig.model_fields[name].default:
            raise UserError(f"--set {text}: contradicts {setting.option} {value}; leave one of them out")


def _refuse_bound(settings: list[str] | None) -> None:
    """UserError for a setting that states a bound; `--no-bound` is given."""
    for text in settings or []:
        if text.partition("=")[0].strip() == "bound":
            raise UserError(f"--set {text}: contradicts --no-bound; leave one of them out")
