"""Schedules worked out by hand, kept as text: what happens to a few jobs, down to the node.

A file of schedules is YAML, a list of cases. `why` tells how the log follows from the rule.

| key | what |
|---|---|
| `policy`, `params` | a registered policy and its parameters; or `script` |
| `script` | by time, what it does: `start a 4`, `start a on 0x2,1x2`, `stop a`, `resize a 2`, `wake 9`, |
| | `share a 0.5`, `share b 0.5 beside a`, `requeue a 60`, `cancel a why` |
| `packs` | the jobs that a script may run on one GPU |
| `declines` | the jobs that a script declines |
| `cluster` | a shape; or `types`: [nodes, GPUs a node] by GPU type |
| `table` | iterations a second by GPUs, for a model and a global batch; `tables`: by GPU type |
| `parameters` | the parameters of models, which make restarts slow |
| `fails` | by node, the seconds at which it fails and those of its repair |
| `settings`, `files` | in place of these: the settings of `clustersim.run`, and the files that they name |
| `jobs` | the columns of each job |
| `log` | what happened to each job, with its GPUs as NODExGPUS; `nodes`: to nodes |
| `paid` | if true, the log also has the seconds of overhead: `20 restart 0x1 +26` |
| `records` | what its record states, apart from zeros |
| `summary` | metrics of the run, beside `settings`; `window.jobs`: one of its window |
| `refused` | in place of the log: scripts, settings or parameters that are refused, and what each `says` |

A script is asked at each of its times. Runs in which every job finishes are audited.

    python -m tests.schedules FILE...     # write what happens now into the files, and change nothing else
"""

import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import chdir, nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml

import clustersim
from clustersim.audit.folder import check_run
from clustersim.cluster import SharedPlacement
from clustersim.errors import PolicyError
from clustersim.failures import Failures
from clustersim.overheads import Overheads
from clustersim.records import SUBMIT, EventRecord, JobRecord
from clustersim.rundir.csv_out import placement_text
from clustersim.runs import make_policy
from clustersim.scheduler import JobView, Proposal, Scheduler
from clustersim.testing import Outcome, check_outcome, simulate
from tests.builders import Bench, MixedBench, Script, failing
from traces.job import Job

__all__ = ["Case", "cases_of", "check_case", "outcome_of"]

Case = dict[str, Any]
TOLD = (
    "state", "reason", "deadline_met", "gpu_seconds", "overhead_gpu_s", "lost_s", "lost_work_s",
    "lost_work_gpu_s", "wait_s", "isolated_s", "cost_usd", "preemptions", "resizes", "restarts",
    "migrations", "interruptions", "eligible_s", "held_s", "requeues",
)  # fmt: skip
"""The fields of a record that a case may state."""


def cases_of(folder: Path) -> dict[str, Case]:
    """Every case of the files of a folder by its name; what is refused as a case of its own."""
    return {
        f"{file.stem}: {case['case']}{number or ''}": {**case, **refusal}
        for file in sorted(folder.glob("*.yaml"))
        for case in yaml.safe_load(file.read_text(encoding="utf-8"))
        for number, refusal in enumerate(case.get("refused", [{}]), "refused" in case)
    }


def check_case(case: Case, folder: Path) -> None:
    """The log and the records of a case are the stated ones, or it is refused with the stated words."""
    if "refused" in case:
        with pytest.raises(PolicyError) as caught:
            outcome_of(case, folder)
        assert case["says"] in str(caught.value)
        return
    log, records = outcome_of(case, folder)
    assert log == {str(job): text for job, text in (case["log"] or {}).items()}, case.get("why")
    if "records" in case:
        assert records == {str(job): values for job, values in case["records"].items()}, case.get("why")


def outcome_of(case: Case, folder: Path) -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
    """The log and the records of a case."""
    jobs = [job_of(str(name), columns) for name, columns in case["jobs"].items()]
    if "settings" in case:
        for name, text in case.get("files", {}).items():
            (folder / name).write_text(text, encoding="utf-8")
        policy_name: Any = script_class(case) if case["policy"] == "script" else case["policy"]
        with chdir(folder):
            run = clustersim.run(jobs, policy_name, params=case.get("params", {}), **case["settings"])
        assert not [finding.violations for finding in check_run(run) if finding.violations]
        metrics = case.get("summary", {})
        assert {name: _metric(run.summary, name) for name in metrics} == pytest.approx(metrics, rel=1e-7)
        return told(run.events, "paid" in case), stated(run.jobs)
    outcome = _simulated(case, jobs)
    if all(record.state == "finished" for record in outcome.records):
        check_outcome(outcome)
    return told(outcome.events, "paid" in case), stated(outcome.records)


def _metric(summary: Mapping[str, Any], name: str) -> Any:
    group, _, member = name.partition(".")
    return summary[group][member] if member else summary[group]


def _simulated(case: Case, jobs: list[Job]) -> Outcome:
    overheads = Overheads.none().with_values(**case.get("overheads", {}))
    placement = case.get("placement", "pack")
    policy: Scheduler = (
        scripted(case) if case["policy"] == "script" else make_policy(case["policy"], case.get("params", {}))
    )
    if "types" in case:
        groups = [(name, *sizes) for name, sizes in case["types"].items()]
        tables = {name: table_of(rates) for name, rates in case.get("tables", {}).items()}
        mixed = MixedBench(groups, tables, case.get("parameters"), overheads, placement)
        return mixed.run(jobs, policy, case.get("until_s"))
    table = table_of(case.get("table", {}))
    if "parameters" in case:
        return Bench(case["cluster"], table, case["parameters"], overheads, placement).run(jobs, policy)
    failures = Failures.of(case.get("failures", {})) if "failures" in case or "fails" in case else None
    with failing(case["fails"]) if "fails" in case else nullcontext():
        return simulate(
            jobs, policy, case["cluster"], table=table, overheads=overheads, placement=placement,
            until_s=case.get("until_s"), failures=failures, calendar=case.get("calendar", ()),
            seed=case.get("seed", 0),
        )  # fmt: skip


def job_of(name: str, columns: Mapping[str, Any]) -> Job:
    """A job; its times are floats as those of a trace."""
    return Job(name, **{key: float(value) if key.endswith("_s") else value for key, value in columns.items()})


def table_of(rates: Mapping[str, Any]) -> dict[tuple[str, int], Any]:
    """Rates by "MODEL BATCH" as a throughput table."""
    return {(words[0], int(words[1])): speeds for name, speeds in rates.items() if (words := name.split())}


def scripted(case: Case) -> Script:
    """The policy of a script."""
    lines_at = {float(time_s): lines for time_s, lines in case.get("script", {}).items()}

    def step(time_s: float) -> Callable[[Proposal, Mapping[str, JobView]], None]:
        def act(proposal: Proposal, jobs: Mapping[str, JobView]) -> None:
            proposal.wake_at = min((later_s for later_s in lines_at if later_s > time_s), default=None)
            for line in lines_at[time_s]:
                _act(proposal, jobs, line.split())

        return act

    steps = {time_s: step(time_s) for time_s in lines_at}
    return Script(steps, tuple(case.get("declines", ())))


def script_class(case: Case) -> type[Scheduler]:
    """The policy of a script, for `clustersim.run`."""

    class Scripted(Script):
        def __init__(self) -> None:
            policy = scripted(case)
            super().__init__(policy.steps, policy.declines)

    Scripted.packs = case.get("packs", 1)
    return Scripted


def _act(proposal: Proposal, jobs: Mapping[str, JobView], words: list[str]) -> None:
    verb, name, *rest = words
    if verb == "wake":
        proposal.wake_at = float(name)
        return
    if verb == "share":
        fraction, *beside = rest
        proposal.start_shared(jobs[name], float(fraction), beside=jobs[beside[1]] if beside else None)
        return
    if verb in ("requeue", "cancel"):
        getattr(proposal, verb)(jobs[name], *(map(float, rest) if verb == "requeue" else rest))
        return
    options: dict[str, Any] = {}
    if rest and rest[0].lstrip("-").isdigit():
        options["batch" if verb == "train_with" else "gpus"] = int(rest.pop(0))
    named = dict(zip(rest[::2], rest[1::2], strict=True))
    if "on" in named:
        places = [place.split("x") for place in named["on"].split(",")]
        options["on"] = tuple((int(node), int(count)) for node, count in places)
    if "type" in named:
        options["gpu_type"] = named["type"]
    getattr(proposal, verb)(jobs[name], *([options.pop("batch")] if "batch" in options else []), **options)


def told(events: Iterable[EventRecord], with_overheads: bool = False) -> dict[str, str]:
    """The log by job: `0 start 0x4, 10 preempt`."""
    log: dict[str, list[str]] = {}
    for event in events:
        lines = log.setdefault(event.job_id or "nodes", [])
        if event.event == SUBMIT:
            continue
        if isinstance(event.placement, SharedPlacement):
            place = placement_text(event.placement)
        else:
            place = " ".join(f"{node}x{count}" for node, count in event.placement)
        paid = f" +{rounded(event.overhead_s)}" if with_overheads and event.overhead_s else ""
        lines.append(f"{rounded(event.time_s)} {event.event} {place}".strip() + paid)
    return {name: ", ".join(lines) for name, lines in log.items()}


def stated(records: Iterable[JobRecord]) -> dict[str, dict[str, Any]]:
    """What records state, apart from zeros and that a job has finished."""
    found: dict[str, dict[str, Any]] = {}
    for record in records:
        values = {name: getattr(record, name) for name in TOLD}
        found[record.job_id] = {
            name: value if isinstance(value, str | bool) else rounded(value)
            for name, value in values.items()
            if value is False or value not in (None, 0, "", "finished")
        }
    return found


def rounded(value: float) -> int | float:
    """To a millionth, and without a point if it is whole."""
    short = float(f"{round(value, 6):.12g}")
    return int(short) if short == int(short) else short


def renew(file: Path) -> None:
    """Write the present logs and records into a file."""
    text = file.read_text(encoding="utf-8")
    blocks = re.split(r"(?m)^(?=- case: )", text)[1:]
    for i, case in enumerate(yaml.safe_load(text)):
        if "refused" in case:
            continue
        with tempfile.TemporaryDirectory() as folder:
            parts = dict(zip(("log", "records"), outcome_of(case, Path(folder)), strict=True))
        lines = [blocks[i].partition("  log:\n")[0].rstrip("\n")]
        for key in ("log", "records"):
            if key in case:
                lines += [f"  {key}:", *(f"    {flow(k)}: {flow(v)}" for k, v in parts[key].items())]
        blocks[i] = "\n".join([*lines, ""])
    file.write_text("".join(blocks), encoding="utf-8")


def flow(value: Any) -> str:
    """A value as YAML on one line."""
    text: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10**6)
    return text.strip().removesuffix("...").strip()


if __name__ == "__main__":
    for each in sys.argv[1:]:
        renew(Path(each))
