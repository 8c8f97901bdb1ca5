"""`clustersim run`, `compare` and `demo`: simulate, print the results, and write folders and a report."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clustersim.errors import Interrupted
from itertime.commandline import option_groups
from itertime.errors import UserError

from .help.options import (
    Baseline,
    ClusterShape,
    Measure,
    NoBound,
    PolicyName,
    PolicyNames,
    RunOptions,
    RunOutput,
    Seed,
    TraceFile,
    VarySetting,
    Warmup,
    Workers,
    policy_or_that_of_site,
)
from .what_if import vary as vary_settings

if TYPE_CHECKING:
    from clustersim.records import Run
    from clustersim.runs import RunConfig, Trace

__all__ = ["DEMO_POLICIES", "compare", "demo", "run"]

DEMO_POLICIES = "fifo,easy,vtrain-aware,priced"


@option_groups
def run(trace: TraceFile, options: RunOptions, output: RunOutput, policy: PolicyName = None) -> None:
    """Simulate a trace under one policy."""
    from clustersim.runs import Trace
    from clustersim.runs import run as simulate

    from .output.runs import check_folder, print_run, warn_of_missing_names
    from .output.terminal import progress_of

    name = policy_or_that_of_site(policy, options)
    if "," in name and ".py:" not in name:
        raise UserError(
            f"--policy {name}: run takes one policy; "
            f"clustersim compare {trace} --policies {name} takes several"
        )
    config = options.config(name)
    jobs = Trace.read(trace, config.table, config.model_path)
    warn_of_missing_names(config.site, jobs.jobs)
    if output.out is not None:
        check_folder(output.out, force=output.force)
    try:
        with progress_of(f"simulating {name}", len(jobs.jobs)) as advance:
            result = simulate(
                jobs, config=config, out=output.out, parquet=output.parquet, on_progress=advance
            )
    except UserError as error:
        partial = getattr(error, "partial", None)
        if output.out is not None and partial is not None and not output.no_report:
            _report([partial], output.out)
        raise
    except KeyboardInterrupt as interrupt:
        raise Interrupted(output.out if hasattr(interrupt, "partial") else None) from None
    print_run(result, output.json, output.wide, output.notes)
    _finish([result], output)


@option_groups
def compare(
    trace: TraceFile,
    policies: PolicyNames,
    options: RunOptions,
    output: RunOutput,
    baseline: Baseline = None,
    vary: VarySetting = None,
    seeds: Annotated[
        int, typer.Option(min=1, help="Number of seeds for each policy, counting from --seed.")
    ] = 1,
    workers: Workers = None,
) -> None:
    """Simulate a trace under several policies and compare them.

    With --out, every run gets a folder, and the comparison a report. With --vary, the policies run under each
    value of a setting, as a grid, and are compared with the first policy at each value.
    """
    from clustersim.runs import Trace

    from .output.runs import warn_of_missing_names

    names = _policy_names(policies)
    if vary is not None:
        for option, is_given in (("--force", output.force), ("--parquet", output.parquet)):
            if is_given:
                raise UserError(f"{option}: is not for --vary, whose folder is that of a grid; leave it out")
        _check_baseline(baseline, names)
        baseline_name = baseline or names[0]
        vary_settings(
            trace, names, [vary], options, output, seeds=seeds, baseline=baseline_name, workers=workers
        )
        return
    if seeds > 1:
        _refuse_seed(options.settings)
    configs = [
        options.config(name, seed=options.seed + k, settings=_settings_of(name, names, options.settings))
        for name in names
        for k in range(seeds)
    ]
    jobs = Trace.read(trace, configs[0].table, configs[0].model_path)
    warn_of_missing_names(configs[0].site, jobs.jobs)
    _compare(jobs, configs, output, baseline=baseline, workers=workers)


@option_groups
def demo(
    output: RunOutput,
    jobs: Annotated[int, typer.Option(min=1, help="Jobs to generate.")] = 800,
    load: Annotated[
        float,
        typer.Option(min=0.01, help="GPU-seconds requested, over those of the cluster while jobs arrive."),
    ] = 1.2,
    policies: PolicyNames = DEMO_POLICIES,
    cluster: ClusterShape = "n64g8",
    seed: Seed = 0,
    warmup: Warmup = 0.0,
    measure: Measure = None,
    no_bound: NoBound = False,
) -> None:
    """Compare four policies on generated jobs.

    The jobs train large language models, by default on 512 A100s. They are those of
    `trace generate --arrivals bursty --sizes itp-8h --rules llm-mix --deadlines 1:3`.
    """
    from clustersim.jit import uncompiled
    from clustersim.runs import Trace, recipe_values
    from traces.synthetic import Recipe

    options = RunOptions(cluster=cluster, seed=seed, warmup=warmup, measure=measure, no_bound=no_bound)
    configs = [options.config(name) for name in _policy_names(policies)]
    recipe = Recipe(
        jobs=jobs,
        load=load,
        arrivals="bursty",
        sizes="itp-8h",
        rules="llm-mix",
        deadlines="1:3",
        seed=seed,
        **recipe_values(configs[0]),
    )
    with uncompiled():
        _compare(Trace.generated(recipe), configs, output)


def _settings_of(name: str, names: list[str], settings: list[str] | None) -> list[str]:
    """The settings of one of the compared policies: `srtf.x=1` is `policy.x=1` for srtf alone, and
    `mine.py:Mine.x=1` for that class alone (even next to a policy called `mine`).
    """
    own_settings = []
    for text in settings or []:
        addressed = max(
            (policy_name for policy_name in names if text.startswith(f"{policy_name}.")),
            key=len,
            default=None,
        )
        if addressed == name:
            own_settings.append(f"policy.{text.removeprefix(f'{name}.')}")
        elif addressed is None:
            own_settings.append(text)
    return own_settings


def _refuse_seed(settings: list[str] | None) -> None:
    """UserError for a setting that gives all runs one seed."""
    for text in settings or []:
        if text.partition("=")[0].strip() == "seed":
            raise UserError(f"--set {text}: contradicts --seeds; state the first seed with --seed")


def _check_baseline(baseline: str | None, names: list[str]) -> None:
    if baseline is not None and baseline not in names:
        raise UserError(f"--baseline {baseline}: is not among the compared policies {', '.join(names)}")


def _policy_names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise UserError("--policies: name at least one policy, as in --policies fifo,srtf")
    if len(set(names)) < len(names):
        raise UserError(f"--policies {text}: names a policy twice")
    return names


def _compare(
    trace: Trace,
    configs: list[RunConfig],
    output: RunOutput,
    *,
    baseline: str | None = None,
    workers: int | None = None,
) -> None:
    from clustersim.runs import compare as simulate
    from clustersim.runs import suited_configs

    from .output.runs import print_comparison

    names = list(dict.fromkeys(config.policy for config in configs))
    _check_baseline(baseline, names)
    numbers, errors = suited_configs(configs, trace.models)
    configs = [configs[i] for i in numbers]
    refusals = {policy: str(error) for policy, error in errors.items()}
    if baseline in refusals:
        raise UserError(f"--baseline {baseline}: {refusals[baseline]}")
    many = len({config.seed for config in configs}) > 1
    folder_names = [_folder_name(config.policy, config.seed, many) for config in configs]
    with _claimed(output, folder_names) as folders:
        try:
            with _progress(configs, len(trace.jobs)) as advance:
                runs = simulate(
                    trace, configs, workers=workers, out=folders, parquet=output.parquet, on_progress=advance,
                    on_done=lambda i, _: advance(i, len(trace.jobs)),
                )  # fmt: skip
        except KeyboardInterrupt:
            raise Interrupted(output.out) from None
        print_comparison(
            runs, baseline or configs[0].policy, output.json, output.wide, output.notes, refusals
        )
        _finish(runs, output, baseline)


@contextmanager
def _claimed(output: RunOutput, names: list[str]) -> Iterator[list[Path] | None]:
    """The folders of the runs of a comparison, in one that is the comparison's own while it goes on; None
    where nothing is kept. UserError where they cannot be used.
    """
    from clustersim.rundir import claimed

    from .output.runs import check_folder

    out = output.out
    if out is None:
        yield None
        return
    if len(set(names)) < len(names):
        raise UserError(f"--out {out}: two policies would share a folder; rename one of their files")
    check_folder(out, names, output.force)
    with claimed(out):
        check_folder(out, names, output.force)  # another comparison may just have ended
        yield [out / name for name in names]


@contextmanager
def _progress(configs: list[RunConfig], jobs: int) -> Iterator[Callable[[int, int], None]]:
    """A progress bar for each policy, which counts the jobs that have left its runs."""
    from .output.terminal import progress_of_runs

    names = [config.policy for config in configs]
    bars = list(dict.fromkeys(names))
    done = [0] * len(configs)
    with progress_of_runs({name: names.count(name) * jobs for name in bars}) as advance:

        def follow(run: int, jobs_left: int) -> None:
            done[run] = max(done[run], jobs_left)
            of_policy = (n for n, name in zip(done, names, strict=True) if name == names[run])
            advance(bars.index(names[run]), sum(of_policy))

        yield follow


def _finish(runs: list[Run], output: RunOutput, baseline: str | None = None) -> None:
    """Write the report, unless it is not wanted, and print where the results are, if they are kept."""
    from .output.runs import has_report

    out = output.out
    if out is None:
        return
    if not output.no_report:
        _report(runs, out, baseline)
    else:
        (out / "report.html").unlink(missing_ok=True)  # that of earlier results
    if not output.json:
        page = f"; open {out / 'report.html'}" if has_report(runs) and not output.no_report else ""
        print(f"Written to {out}{page}")


def _report(runs: list[Run], out: Path, baseline: str | None = None) -> None:
    from .output.runs import has_report

    if not has_report(runs):
        jobs = sum(len(run.jobs) for run in runs)
        problem = f"not written: a page of {jobs:,} jobs is too large for a browser"
        print(f"{out / 'report.html'}: {problem}; `clustersim report {out}` tries", file=sys.stderr)
        return
    from clustersim.report import render_report
    from itertime.io import write_text

    write_text(out / "report.html", render_report(runs, baseline=baseline))


def _folder_name(policy: str, seed: int, with_seed: bool) -> str:
    """A safe folder name for a policy, whose name may be a path."""
    safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in policy).strip(".")
    return f"{safe}-seed{seed}" if with_seed else safe
