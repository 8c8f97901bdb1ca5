"""`elasticflow` and `vtrain-aware` here and in another environment: decisions, deadlines, completion times.

python benchmarks/reservations.py --trace cluster04.csv --other ../before/.venv/bin/python
python benchmarks/reservations.py --loads 0.6,1,1.5,2.2,3.3,4.4 --seeds 20 --other ../before/.venv/bin/python

Each policy runs the same traces in both environments, without memory headroom, `vtrain-aware` in vTrain's own
space of plans. Decisions are process time inside the policy, without compilation. Of several seeds the table
has means, and of differences the half width of their 95 % interval, paired by seed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean, stdev
from time import process_time
from typing import Any

from clustersim.runs import Trace, find_policy, run
from clustersim.scheduler import Scheduler
from itertime.errors import UserError
from traces.native import write_trace
from traces.synthetic import Recipe, generate

POLICIES = {"elasticflow": ("data-parallel",), "vtrain-aware": ("vtrain", "3d")}
"""The planner of each policy; the second name is that of older versions."""
COLUMNS = ("decisions_s", "deadline_met_ratio", "jct_mean_s")
Figures = dict[str, Any]
T_95 = {10: 2.26, 20: 2.09}  # of Student, two-sided, for so many seeds


def timed(policy: str, seconds: list[float]) -> type[Scheduler]:
    """The policy, with its process time noted in `seconds`."""
    base = find_policy(policy)

    def counted(name: str) -> Any:
        real = getattr(base, name)

        def call(self: Scheduler, *arguments: Any) -> Any:
            began = process_time()
            answer = real(self, *arguments)
            seconds.append(process_time() - began)
            return answer

        return call

    methods = {name: counted(name) for name in ("admit", "schedule")}
    return type(base.__name__, (base,), {**methods, "__doc__": base.__doc__})


def measured(trace: Path, policy: str, cluster: str) -> Figures:
    """The figures of one run in this environment."""
    for planner in POLICIES[policy]:
        seconds: list[float] = []
        try:
            result = run(
                Trace.read(trace), timed(policy, seconds), cluster=cluster, planner=planner, bound="none",
                memory_headroom=0.0,
            )  # fmt: skip
        except UserError:
            if planner == POLICIES[policy][-1]:
                raise
            continue
        compile_s = result.manifest["timings"].get("compile_s", 0.0)
        late = sum(job.deadline_met is False and job.state != "rejected" for job in result.jobs)
        summary = {name: result.summary[name] for name in COLUMNS[1:]}
        return {"decisions_s": sum(seconds) - compile_s, "late": late, **summary}
    raise AssertionError(policy)


def here_and_there(traces: Sequence[Path], policy: str, cluster: str, other: str) -> list[list[Figures]]:
    """The figures of each trace in this environment, and in the one of the interpreter `other`."""
    there = subprocess.run(
        [other, __file__, "--measure", policy, "--cluster", cluster, *map(str, traces)],
        check=True, stdout=subprocess.PIPE, text=True, cwd=tempfile.gettempdir(),
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )  # fmt: skip
    here = [measured(trace, policy, cluster) for trace in traces]
    return [here, [json.loads(line) for line in there.stdout.splitlines()]]


def table_row(name: str, here: Sequence[Figures], there: Sequence[Figures]) -> str:
    """Means here and there, and the difference: a ratio of decisions, else percentage points and percent."""
    cells = [name]
    for column in COLUMNS:
        values = [
            (now[column] or 0.0, before[column] or 0.0) for now, before in zip(here, there, strict=True)
        ]
        now_mean, before_mean = (mean(column_values) for column_values in zip(*values, strict=True))
        if column == "decisions_s":
            cells.append(f"{before_mean:.2f} -> {now_mean:.2f} s (x{now_mean / before_mean:.2f})")
            continue
        shares = column == "deadline_met_ratio"
        scale = 100.0 if shares else 100.0 / before_mean
        differences = [scale * (now - before) for now, before in values]
        spread = 0.0
        if len(values) > 1:
            spread = T_95.get(len(values), 2.0) * stdev(differences) / len(values) ** 0.5
        means = f"{before_mean:,.0f} -> {now_mean:,.0f} s"
        if shares:
            means = f"{100 * before_mean:.1f} -> {100 * now_mean:.1f} %"
        cells.append(f"{means} ({mean(differences):+.2f} ± {spread:.2f})")
    return " | ".join([*cells, str(sum(figures["late"] for figures in here))])


def generated(load: float, seeds: Iterable[int], folder: Path, jobs: int) -> list[Path]:
    """The files of generated traces, a seed each."""
    paths = []
    for seed in seeds:
        recipe = Recipe(
            jobs=jobs, load=load, arrivals="bursty", sizes="itp-8h", rules="llm-mix", deadlines="1:3",
            planner="data-parallel", seed=seed,
        )  # fmt: skip
        paths.append(folder / f"{load:g}-{seed}.csv")
        write_trace(generate(recipe)[0], paths[-1])
    return paths


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--trace", type=Path, action="append", default=[])
    parser.add_argument("--loads", default="", help="of generated traces, for example 0.6,2.2,4.4")
    parser.add_argument("--jobs", type=int, default=200, help="of each generated trace")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--cluster", default="n128g8")
    parser.add_argument("--other", default=sys.executable, help="the interpreter of another environment")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("traces", nargs="*", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.measure:
        for trace in options.traces:
            print(json.dumps(measured(trace, options.measure, options.cluster)), flush=True)
        return
    print("trace, policy | decisions | deadlines met | mean JCT of finished jobs | admitted and late")
    with tempfile.TemporaryDirectory() as folder:
        groups = {path.name: [path.resolve()] for path in options.trace}
        for load in map(float, filter(None, options.loads.split(","))):
            groups[f"load {load:g}"] = generated(load, range(options.seeds), Path(folder), options.jobs)
        for name, traces in groups.items():
            for policy in POLICIES:
                here, there = here_and_there(traces, policy, options.cluster, options.other)
                print(table_row(f"{name}, {policy}", here, there), flush=True)


if __name__ == "__main__":
    main()
