"""Schedules worked out by hand: what each policy does with a few jobs, down to the node.

The cases lie in `schedules/`, a file for each policy or family. `why` tells how a log follows from the rule.

| key | what |
|---|---|
| `policy`, `params` | a registered policy and its parameters |
| `cluster` | a shape; or `types`: [nodes, GPUs a node] by GPU type |
| `table` | iterations a second by GPUs, for a model and a global batch; `tables`: by GPU type |
| `parameters` | the parameters of models, which make restarts slow |
| `settings` | in place of these four: the settings of `clustersim.run` |
| `jobs` | the columns of each job |
| `log` | what happened to each job, with its GPUs as NODExGPUS; `nodes`: to nodes |

    python -m tests.policies.test_schedules --renew    # write what policies do now into all files
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

import clustersim
from clustersim.cluster import SharedPlacement
from clustersim.failures import Failures
from clustersim.overheads import Overheads
from clustersim.records import SUBMIT, EventRecord
from clustersim.runs import make_policy
from clustersim.testing import check_outcome, simulate
from tests.builders import Bench, MixedBench
from traces.job import Job

FILES = sorted(Path(__file__).parent.glob("schedules/*.yaml"))
Case = dict[str, Any]
Log = dict[str, str]


def cases_of(file: Path) -> list[Case]:
    found: list[Case] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return found


def log_of(case: Case) -> Log:
    """What happens in a case. Runs that the kit can judge are held to its rules, too."""
    jobs = [job_of(str(name), columns) for name, columns in case["jobs"].items()]
    params = case.get("params", {})
    if "settings" in case:
        return told(clustersim.run(jobs, case["policy"], params=params, **case["settings"]).events)
    policy = make_policy(case["policy"], params)
    overheads = Overheads.none().with_values(**case.get("overheads", {}))
    placement = case.get("placement", "pack")
    if "types" in case:
        groups = [(name, *sizes) for name, sizes in case["types"].items()]
        tables = {name: table_of(rates) for name, rates in case.get("tables", {}).items()}
        mixed = MixedBench(groups, tables, case.get("parameters"), overheads, placement)
        return told(mixed.run(jobs, policy, case.get("until_s")).events)
    if "parameters" in case:
        table = table_of(case.get("table", {}))
        bench = Bench(case["cluster"], table, case["parameters"], overheads, placement)
        return told(bench.run(jobs, policy).events)
    failures = Failures.of(case["failures"]) if "failures" in case else None
    outcome = simulate(
        jobs, policy, case["cluster"], table=table_of(case.get("table", {})), overheads=overheads,
        placement=placement, until_s=case.get("until_s"), failures=failures,
        calendar=case.get("calendar", ()), seed=case.get("seed", 0),
    )  # fmt: skip
    if all(record.state in ("finished", "rejected") for record in outcome.records):
        check_outcome(outcome)
    return told(outcome.events)


def job_of(name: str, columns: Mapping[str, Any]) -> Job:
    """A job; its times are floats as those of a trace."""
    return Job(name, **{key: float(value) if key.endswith("_s") else value for key, value in columns.items()})


def table_of(rates: Mapping[str, Any]) -> dict[tuple[str, int], Any]:
    """Rates by "MODEL BATCH" as a throughput table."""
    return {(words[0], int(words[1])): speeds for name, speeds in rates.items() if (words := name.split())}


def told(events: Iterable[EventRecord]) -> Log:
    """The log by job: `0 start 0x4, 10 preempt`."""
    log: dict[str, list[str]] = {}
    for event in events:
        lines = log.setdefault(event.job_id or "nodes", [])
        if event.event == SUBMIT:
            continue
        place = " ".join(f"{node}x{count}" for node, count in event.placement)
        if isinstance(event.placement, SharedPlacement):
            place += f"#{event.placement.number}:{event.placement.parts}"
        lines.append(f"{round(event.time_s, 6):.12g} {event.event} {place}".strip())
    return {name: ", ".join(lines) for name, lines in log.items()}


CASES = [(file, case) for file in FILES for case in cases_of(file)]


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=f"{file.stem}: {case['case']}") for file, case in CASES]
)
def test_a_schedule_is_the_one_worked_out_by_hand(case: Case) -> None:
    expected = {str(name): text for name, text in case["log"].items()}
    assert log_of(case) == expected, case.get("why")


def renew(file: Path) -> None:
    """Write the present logs into a file, and change nothing else in it."""
    blocks = re.split(r"(?m)^(?=- case: )", file.read_text(encoding="utf-8"))[1:]
    for i, case in enumerate(cases_of(file)):
        lines = [f"    {flow(name)}: {flow(text)}" for name, text in log_of(case).items()]
        blocks[i] = "\n".join([blocks[i].partition("  log:")[0] + "  log:", *lines, ""])
    file.write_text("\n".join(blocks), encoding="utf-8")


def flow(value: Any) -> str:
    """A value as YAML on one line."""
    text: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10**6)
    return text.strip().removesuffix("...").strip()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Renew the logs of schedules.")
    parser.add_argument("--renew", action="store_true", required=True)
    parser.parse_args()
    for each in FILES:
        renew(each)
