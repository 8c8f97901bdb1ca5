"""`clustersim backtest`: a job log simulated, beside what happened."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .help.options import POLICY_OF_SITES, Json, Settings, SiteFile
from .trace import Columns, GpuResources, LogCluster, LogFormatName, TimeUnit

if TYPE_CHECKING:
    from clustersim.backtest import Backtest, LoggedRun, SiteFacts
    from clustersim.cluster import Cluster
    from traces.logs import ReadOptions

__all__ = ["backtest", "named_clusters", "with_site"]

_SHOWN = {"size": 12, "pool": 10, "tenant": 5, "user": 5, "partition": 5, "qos": 5, "gpu_type": 5, "hour": 24}
"""Groups of each kind on the terminal; summary.json has twenty."""
_MOST_TRIALS = 20
_SYSTEM = "dgx-a100-80gb"

Part = Mapping[str, Any]

LogFile = Annotated[Path, typer.Argument(help="Job log with starts, of any format of `trace import`.")]
Policies = Annotated[
    str, typer.Option(help="Policy of the site; with --fit, policies to choose from, by commas.")
]
Fit = Annotated[
    bool, typer.Option("--fit", help="Choose policy, capacity and start-up on the first part of the log.")
]
FitShare = Annotated[float, typer.Option(help="Share of the jobs that are the first part.")]
Phases = Annotated[
    int, typer.Option(help="Runs in which only the phases of a policy's timers differ; the median is shown.")
]
By = Annotated[
    str, typer.Option(help="Show waits by these fields alone: size, tenant, user, partition, qos, ...")
]
Clusters = Annotated[
    list[str] | None,
    typer.Option(help="Shape (n20g8) or YAML file, else inferred; POOL=SHAPE for one pool; repeatable."),
]
Division = Annotated[
    str, typer.Option(help="Field of jobs that do not compete: tenant, partition, qos, gpu_type, none, auto.")
]
GpusPerNode = Annotated[int | None, typer.Option(help="GPUs of a node, where the capacity is inferred.")]
Constant = Annotated[bool, typer.Option("--constant", help="Do not look for times of reduced capacity.")]
StartUp = Annotated[
    float | None, typer.Option(min=0, help="Seconds before each logged start; by default inferred.")
]
Warmup = Annotated[
    float, typer.Option(min=0, help="Jobs submitted in the first seconds are load, and not compared.")
]
TimeZone = Annotated[
    str | None, typer.Option(help="Zone of dates without an offset, such as Asia/Shanghai; else UTC.")
]
TenantColumn = Annotated[str | None, typer.Option(help="Column of the log that names the tenant.")]
Limit = Annotated[int | None, typer.Option(help="Keep at most this number of jobs.")]
FromS = Annotated[float, typer.Option(help="Skip jobs submitted before this time, in seconds of the log.")]
UntilS = Annotated[float, typer.Option(help="Skip jobs submitted at this time or later.")]
Only = Annotated[
    str, typer.Option(help="Keep the jobs of one tenant, partition, ...: FIELD=VALUE, such as tenant=vcvGl.")
]
Since = Annotated[str, typer.Option(help="Keep jobs submitted at this date or later, such as 2020-09-01.")]
Before = Annotated[str, typer.Option(help="Keep jobs submitted before this date.")]
ClusterSystem = Annotated[
    str | None, typer.Option(help=f"System of --cluster, where it is a shape; by default {_SYSTEM}.")
]
OutFolder = Annotated[str | None, typer.Option("--out", "-o", help="Folder for jobs, summary and report.")]
NoReport = Annotated[bool, typer.Option("--no-report", help="Write no report.html.")]


def backtest(
    context: typer.Context,
    log: LogFile,
    policy: Policies = "",
    fit: Fit = False,
    fit_share: FitShare = 0.5,
    phases: Phases = 16,
    cluster: Clusters = None,
    site: SiteFile = None,
    pools: Division = "auto",
    gpus_per_node: GpusPerNode = None,
    constant: Constant = False,
    start_up: StartUp = None,
    warmup: Warmup = 0.0,
    system: ClusterSystem = None,
    settings: Settings = None,
    log_format: LogFormatName = None,
    columns: Columns = None,
    time_unit: TimeUnit = None,
    time_zone: TimeZone = None,
    tenant: TenantColumn = None,
    gpu_resource: GpuResources = None,
    log_cluster: LogCluster = None,
    limit: Limit = None,
    from_s: FromS = 0.0,
    until_s: UntilS = inf,
    only: Only = "",
    since: Since = "",
    before: Before = "",
    by: By = "",
    out: OutFolder = None,
    no_report: NoReport = False,
    json: Json = False,
) -> None:
    """Simulate a log of a real cluster, and compare with what happened.

    The waits, completion times and utilisation that the log states are compared with those of the site's
    policy in the simulator: per job, as distributions, and by size, user, queue and hour.
    """
    from clustersim import backtest as library
    from itertime.commandline import print_json
    from traces.logs import Selection

    folder = _folder(out)
    kinds = _kinds(by)
    _check(context.params)
    clusters, stated_options = _clusters(context.params)
    site_facts = library.SiteFacts(pools, clusters, gpus_per_node, not constant)
    selection = Selection(from_s, until_s, limit)
    logged = library.read_logged(log, _reading(context.params), selection).part(only, since, before)
    if site is not None:
        _compare_names(site, logged)
    result = _backtest(logged, site_facts, stated_options)
    written = [] if folder is None else library.write_backtest(result, folder, report=not no_report)
    if json:
        print_json(result.summary)
        return
    _print(result.summary, kinds)
    if folder is not None:
        print(f"Written to {folder}: {', '.join(written)}")


def _check(options: Mapping[str, Any]) -> None:
    """Raise UserError for options that exclude each other."""
    from itertime.errors import UserError

    system, start_up = options["system"], options["start_up"]
    if system is not None and not options["cluster"]:
        raise UserError(f"--system {system}: is the system of --cluster, which is not given")
    if options["fit"] and start_up is not None:
        raise UserError(f"--start-up {start_up:g}: is chosen by --fit; leave one of them out")


def _reading(options: Mapping[str, Any]) -> ReadOptions:
    """How the options of the command have the log read."""
    from traces.logs import ReadOptions

    return ReadOptions(
        **{name: options[name] for name in ("log_format", "columns", "time_unit", "tenant", "time_zone")},
        gpu_resources=tuple(options["gpu_resource"] or ()),
        cluster=options["log_cluster"],
    )


def _backtest(logged: LoggedRun, site_facts: SiteFacts, options: Mapping[str, Any]) -> Backtest:
    """The backtest that the options of the command ask for."""
    from clustersim import backtest as library

    from .output.terminal import progress_of

    policy_names = _policies(options["policy"])
    trials_of_a_policy = len(library.CAPACITIES) + max(map(len, library.PARAMETERS.values())) + 1
    tried = 2 * (len(policy_names) or len(library.CANDIDATES)) + trials_of_a_policy  # at most
    with progress_of("simulating", tried if options["fit"] else 1) as advance:
        return library.backtest(
            logged,
            site_facts,
            policies=policy_names,
            fitted=options["fit"],
            fit_share=options["fit_share"],
            warmup_s=options["warmup"],
            start_up_s=options["start_up"],
            settings=options["settings"] or [],
            phases=options["phases"],
            on_trial=advance,
        )


def _folder(out: str | None) -> Path | None:
    from itertime.errors import UserError

    if out is None:
        return None
    if not out.strip():
        raise UserError("--out: names no folder; write --out . for this one")
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--out {folder}: is not a folder; choose another place")
    if (folder / "manifest.json").exists():
        raise UserError(f"--out {folder}: holds a run; choose another folder")
    return folder


def _policies(text: str) -> list[str]:
    from itertime.errors import UserError

    names = [name.strip() for name in text.split(",")]
    if text and not all(names):
        raise UserError(f"--policy {text}: has an empty name; write policies separated by single commas")
    return names if text else []


def named_clusters(texts: list[str], system: str) -> dict[str, Cluster]:
    """Clusters by the name of their pool, "" for the only one."""
    from clustersim.cluster import load_cluster
    from itertime.errors import UserError

    clusters: dict[str, Cluster] = {}
    for text in texts:
        pool, equals, shape = text.rpartition("=")
        if equals and not pool:
            raise UserError(f"--cluster {text}: write POOL=SHAPE, or SHAPE")
        if pool in clusters:
            raise UserError(f"--cluster {text}: is the second for {pool or 'the only pool'}; keep one")
        clusters[pool] = load_cluster(shape, system)
    if "" in clusters and len(clusters) > 1:
        raise UserError("--cluster: give one for all, or POOL=SHAPE for each")
    return clusters


def _kinds(text: str) -> list[str]:
    """The groups that --by names; none if it is empty."""
    from itertime.errors import UnknownName

    names = [name.strip() for name in text.split(",")] if text else []
    for name in names:
        if name not in _SHOWN:
            raise UnknownName("group of --by", name, _SHOWN)
    return names


def _clusters(options: Mapping[str, Any]) -> tuple[dict[str, Cluster], Mapping[str, Any]]:
    """The clusters of the pools, and the options with what a site states: its settings, and its policy."""
    clusters = named_clusters(options["cluster"] or [], options["system"] or _SYSTEM)
    if options["site"] is None:
        return clusters, options
    clusters, settings = with_site(options["site"], clusters, options["settings"], all_nodes_up=True)
    policy = options["policy"] or ("" if options["fit"] else POLICY_OF_SITES)
    return clusters, {**options, "settings": settings, "policy": policy}


def _compare_names(site: Path, logged: LoggedRun) -> None:
    """UserError if a site has none of the nodes on which jobs of a log ran; a warning if it lacks some, or
    partitions, QOS or accounts of jobs.
    """
    from clustersim.sites import document_of, hostlist_of, load_site
    from itertime.errors import UserError
    from itertime.io import shown

    from .output.runs import warn_of_missing_names
    from .output.terminal import say

    site_of_log = load_site(site)
    warn_of_missing_names(document_of(site_of_log), logged.jobs)
    logged_nodes = {span.node for spans in logged.on_nodes for span in spans}
    foreign_nodes = sorted(logged_nodes - {node.name for node in site_of_log.nodes})
    if not foreign_nodes:
        return
    names = shown(hostlist_of(foreign_nodes))
    if len(foreign_nodes) == len(logged_nodes):
        problem = f"has none of the nodes on which the jobs of the log ran ({names})"
        raise UserError(f"--site {site}: {problem}; is it the site of another cluster?")
    say(f"warning: --site {site}: lacks nodes on which jobs of the log ran: {names}", err=True)


def with_site(
    site: Path, clusters: Mapping[str, Cluster], settings: list[str] | None, *, all_nodes_up: bool
) -> tuple[dict[str, Cluster], list[str]]:
    """The nodes of a site as the only cluster, and the settings with the site before them.

    `all_nodes_up`: nodes that are down in the file are up, since a log is of earlier days. UserError if
    clusters are stated as well.
    """
    from json import dumps

    from clustersim.runs import RunConfig
    from clustersim.sites import hostlist_of, load_site
    from itertime.errors import UserError

    if clusters:
        raise UserError(f"--site {site}: states the nodes; leave --cluster out")
    settings_of_site = [f"site={dumps(str(site))}"]
    down = [node.name for node in load_site(site).nodes if node.state != "up"] if all_nodes_up else []
    settings_of_site += [f"site.nodes.{hostlist_of(down)}.state=up"] if down else []
    all_settings = [*settings_of_site, *(settings or [])]
    about_site = [text for text in all_settings if text.partition("=")[0].partition(".")[0].strip() == "site"]
    return {"": RunConfig.make(about_site, policy=POLICY_OF_SITES).stated_cluster()}, all_settings


def _print(summary: Part, kinds: list[str]) -> None:
    from clustersim.backtest import site_words

    from .output.terminal import say, say_item

    log, site = summary["log"], summary["site"]
    say(summary["verdict"]["sentence"])
    print()
    jobs = f"{log['jobs']:,} jobs of {log['counts']['rows']:,} rows, {log['with_start']:,} with a start"
    say(f"{log['file']} ({log['format']}): {jobs}")
    for reason, n in list(log["dropped_by_reason"].items())[:5]:
        say(f"  dropped {n:,}: {reason}", indent=4)
    for text in (*log["warnings"], *log["assumptions"], *summary["assumptions"]):
        say_item(text)
    if "fit" in summary:
        _print_trials(summary["fit"])
    print()
    say(f"Site: {site_words(site)}; {site['gpus']:,} GPUs")
    for part, errors in summary["parts"].items():
        _print_part(part, errors)
    _print_use(summary["use"])
    for kind, groups in summary["groups"].items():
        if not kinds or kind in kinds:
            _print_groups(kind, groups)
    for kind in kinds:
        if kind not in summary["groups"]:
            say(f"Waits by {kind.replace('_', ' ')}: all jobs compared are of one group.")
    exclusions = [f"{n:,} {reason}" for reason, n in summary["not_compared"].items() if n]
    if exclusions:
        say(f"Not compared: {'; '.join(exclusions)}.")


def _print_trials(fit: Part) -> None:
    from clustersim.backtest import site_words

    from .output.terminal import plain, print_table, say

    trials = sorted(fit["trials"], key=lambda trial: (trial["fitted_score"] is None, trial["fitted_score"]))
    rows = [[plain(site_words(t)), _ratio(t["fitted_score"]), _ratio(t["judged_score"])] for t in trials]
    base = fit["baseline_score"]
    rows = [*rows[:_MOST_TRIALS], ["(no job waits)", _ratio(base["fitted"]), _ratio(base["judged"])]]
    print()
    say("Trials, best first by the score of the fitted part, which alone decides (0 is exact)")
    print_table(["site", "fitted", "judged"], rows, all_columns=True)


def _print_part(part: str, errors: Part) -> None:
    from .output.terminal import print_table, say

    title = {"all": "Compared", "fitted": "Fitted part", "judged": "Judged part"}[part]
    print(f"\n{title}: {errors['jobs']:,} jobs, score {_ratio(errors['score'])}")
    rows = []
    for metric, name in (("wait", "wait"), ("jct", "JCT")):
        for key, logged in (errors[metric]["logged"] or {}).items():
            simulated = errors[metric]["simulated"][key]
            rows.append(
                [name, key.removesuffix("_s"), _time(logged), _time(simulated), _off(simulated, logged)]
            )
    if not rows:
        return
    print_table(["time", "of jobs", "logged", "simulated", "error"], rows, 2)
    wait = errors["wait"]
    distance_text = f"distance of the distributions {_time(wait['distance_s'])}"
    ranks = f"Spearman {_ratio(wait['spearman'])}, Kendall {_ratio(wait['kendall'])}"
    off = f"bias {_time(wait['bias_s'])}, mean absolute error {_time(wait['absolute_s'])}"
    say(f"Waits: {off}, {distance_text}; {ranks}")


def _print_use(use: Part) -> None:
    from .output.terminal import say

    shares = f"logged {100 * use['logged']:.1f} %, simulated {100 * use['simulated']:.1f} %"
    difference_text = f"{100 * use['mean_difference']:.1f} % apart on average"
    print()
    say(f"GPUs in use while jobs are submitted: {shares}, {difference_text}")


def _print_groups(kind: str, groups: list[Part]) -> None:
    from .output.terminal import plain, print_table

    shown_groups = [group for group in groups if "jobs" in group][: _SHOWN[kind]]
    rows = [
        [
            plain(group["group"]) or "(not stated)",
            f"{group['jobs']:,}",
            _time(group["logged_mean_s"]),
            _time(group["simulated_mean_s"]),
            _off(group["simulated_mean_s"], group["logged_mean_s"]),
            _time(group["logged_p90_s"]),
            _time(group["simulated_p90_s"]),
        ]
        for group in shown_groups
    ]
    note = f" (the {len(shown_groups)} with most jobs)" if len(shown_groups) < len(groups) else ""
    print(f"\nWaits by {kind.replace('_', ' ')}{note}")
    heads = [kind.replace("_", " "), "jobs", "logged mean", "simulated", "error", "logged p90", "simulated"]
    print_table(heads, rows)


def _time(seconds: float) -> str:
    from clustersim.report.numbers import duration

    return f"-{duration(-seconds)}" if seconds < 0 else duration(seconds)


def _off(value: float, base: float) -> str:
    from clustersim.report.numbers import difference

    return difference("time", value, base)


def _ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
