"""The golden set: results that a change of the code alone does not move.

    python -m tests.golden.golden_set                      # compute all of it, and compare
    python -m tests.golden.golden_set runs --only 'fleet'  # entries whose label contains a text
    python -m tests.golden.golden_set --renew              # record what is computed now

| table | an entry is | hashed |
|---|---|---|
| `runs.csv` | a run folder of a scenario | its CSV tables and `summary.json`, byte for byte |
| `predictions.csv` | a prediction | seconds, bytes, MFU, interval and both breakdowns, to the last bit |
| `plans.csv` | the five best plans of a search | plans, seconds, bytes, numbers of plans considered |

Beside the hash each entry has figures, so that a comparison says what moved and by how much. A change that is
meant to move results renews the set in a commit of its own, whose message says which entries moved, by how
much and why. The hashes hold for the versions of `constraints.txt` on x86-64; another BLAS may differ in the
last bits.
"""

import argparse
import csv
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import clustersim
from clustersim.runs import Trace
from itertime import Prediction, predict, search
from itertime.errors import UserError

from .queries import Query, Search, prediction_queries, search_queries
from .scenarios import SCENARIOS, Scenario

__all__ = ["TABLES", "Entry", "entries", "moved", "recorded"]

HERE = Path(__file__).parent
FIGURES = {
    "runs": ("finished", "jct_mean_s", "makespan_s", "events"),
    "predictions": ("iteration_s", "memory_bytes", "mfu"),
    "plans": ("evaluated", "iteration_s", "best"),
}
COUNTS = ("gpus", "tokens", "model_flops", "hardware_flops", "unusable")
TABLES = tuple(FIGURES)
Entry = tuple[str, ...]
"""The hash of an entry, then its figures as text."""


def entries(table: str, only: str = "", every: int = 1) -> Iterator[tuple[str, Callable[[], Entry]]]:
    """The labels of a table and what computes each entry; of those that contain `only` each `every`-th."""
    makers: dict[str, Callable[[], Iterator[tuple[str, Callable[[], Entry]]]]] = {
        "runs": lambda: ((name, _later(_run, scenario)) for name, scenario in SCENARIOS.items()),
        "predictions": lambda: ((label, _later(_prediction, query)) for label, query in prediction_queries()),
        "plans": lambda: ((label, _later(_plans, query)) for label, query in search_queries()),
    }
    for place, (label, compute) in enumerate(makers[table]()):
        if only in label and place % every == 0:
            yield label, compute


def _later(compute: Callable[[Any], Entry], query: Any) -> Callable[[], Entry]:
    return lambda: compute(query)


def _run(scenario: Scenario) -> Entry:
    settings = {"bound": "none", **scenario.settings}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        run = clustersim.run(
            Trace.of(scenario.jobs()), scenario.policy, cluster=scenario.cluster, out=out, **settings
        )
        digest = hashlib.sha256()
        for path in sorted([*out.glob("*.csv"), out / "summary.json"]):
            content = path.read_bytes()
            if path.name == "summary.json":
                summary = {k: v for k, v in json.loads(content).items() if not k.endswith("wall_s")}
                content = json.dumps(summary).encode()
            digest.update(f"{path.name} {len(content)}\n".encode() + content)
        return digest.hexdigest()[:16], *(str(run.summary[name]) for name in FIGURES["runs"])


def _prediction(query: Query) -> Entry:
    model, system, plan = query
    try:
        found = predict(model, plan, system)
    except UserError as error:
        return _hash(str(error)), "refused", "", ""
    return _hash(repr(_content(found))), repr(found.iteration_s), repr(found.memory_bytes), repr(found.mfu)


def _plans(query: Search) -> Entry:
    model, system, gpus, batch, objective, space = query
    try:
        found = search(model, batch, system, gpus, space=space, objective=objective, top=5)
    except UserError as error:
        return _hash(str(error)), "refused", "", ""
    counts = f"{found.evaluated}/{found.feasible}"
    if not found.plans:
        return _hash(counts + found.in_the_way), counts, "", "none fits"
    best = found.plans[0]
    texts = [repr((asdict(each.plan), _content(each.prediction))) for each in found.plans]
    return _hash(counts + "".join(texts)), counts, repr(best.prediction.iteration_s), best.plan.label


def _content(prediction: Prediction) -> dict[str, Any]:
    """What is hashed of a prediction: neither the counts that follow from model, plan and MFU nor words."""
    return {name: value for name, value in asdict(prediction).items() if name not in COUNTS}


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def recorded(table: str) -> dict[str, Entry]:
    """What the set has of a table, by label."""
    with (HERE / f"{table}.csv").open(newline="", encoding="utf-8") as file:
        return {row[0]: tuple(row[1:]) for row in list(csv.reader(file))[1:]}


def moved(table: str, label: str, before: Entry | None, now: Entry) -> str:
    """What moved in an entry, in words; empty if nothing did."""
    if before == now:
        return ""
    if before is None:
        return f"{table}: {label}: is new"
    changes = [
        f"{name} {_change(old, new)}"
        for name, old, new in zip(FIGURES[table], before[1:], now[1:], strict=True)
        if old != new
    ]
    return f"{table}: {label}: {', '.join(changes) or 'other bytes with the same figures'}"


def _change(old: str, new: str) -> str:
    try:
        return f"{old} -> {new} ({float(new) / float(old) - 1:+.3%})"
    except (ValueError, ZeroDivisionError):
        return f"{old} -> {new}"


def main(arguments: list[str] | None = None) -> int:
    os.environ["ITERTIME_CACHE"] = "off"  # a kept curve would hide what moved
    parser = argparse.ArgumentParser(description="Compare results with the golden set, or renew it.")
    parser.add_argument("tables", nargs="*", choices=[*TABLES, []], default=[])
    parser.add_argument("--only", default="", metavar="TEXT", help="entries whose label contains this")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each N-th entry alone")
    parser.add_argument("--renew", action="store_true", help="record what is computed now")
    options = parser.parse_args(arguments)
    differences = 0
    for table in options.tables or TABLES:
        path = HERE / f"{table}.csv"
        before = recorded(table) if path.exists() else {}
        after = dict(before) if options.only or options.every > 1 else {}
        computed = 0
        for label, compute in entries(table, options.only, options.every):
            after[label] = compute()
            computed += 1
            if line := moved(table, label, before.get(label), after[label]):
                differences += 1
                print(line, flush=True)
        for label in before.keys() - after.keys():
            print(f"{table}: {label}: is gone")
            differences += 1
        print(f"{table}: {computed} entries compared", file=sys.stderr, flush=True)
        if options.renew:
            with path.open("w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(["label", "hash", *FIGURES[table]])
                writer.writerows((label, *entry) for label, entry in after.items())
    return 0 if options.renew or not differences else 1


if __name__ == "__main__":
    sys.exit(main())
