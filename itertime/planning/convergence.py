"""Steps to a target quality, and the seconds before the first of them: tables computed from result logs.

Convergence is an input: nothing here follows from a model. `python -m experiments.evidence.build_convergence`
computes the tables from the logs of MLPerf Training, and each row says of which and how many.
"""

from __future__ import annotations

import csv
import functools
import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from itertime.errors import UserError
from itertime.io import MAX_BYTES, read_text

CONVERGENCE = Path(__file__).parents[1] / "convergence"
STEPS_SUFFIX = "_steps.csv"
STARTUP = "startup.csv"
UPDATE_RULES = {"adam": "adam", "adamw": "adam", "fused-adam": "adam", "lamb": "lamb"}
"""Update rule by optimizer; logs are grouped by rule. Apex's FusedAdam, which the logs call Adam, decouples
weight decay by default (`adam_w_mode`), so the three Adams are one rule.
"""
REMEDY = "give the steps that your training takes: --steps N"


@dataclass(frozen=True)
class StepsRow:
    """The logs of one update rule and global batch: their median `steps`; eight in ten lie from `low` to
    `high`. With fewer than five logs the relative range of batches with more stands in.
    """

    optimizer: str
    global_batch: int
    logs: int
    rounds: str
    organisations: tuple[str, ...]
    low: float
    steps: float
    high: float

    @property
    def words(self) -> str:
        """The logs and their batch, for readers."""
        return f"{_logs(self.logs, self.rounds, self.organisations)} at {self.global_batch:,}"


@dataclass(frozen=True)
class Steps:
    """Steps to the target; eight in ten logs lie from `low` to `high`. `origin`: their source, for readers.
    `organisations`: the submitters of the logs; empty for steps that the user states.
    """

    count: float
    low: float
    high: float
    origin: str
    organisations: tuple[str, ...] = ()

    @classmethod
    def given(cls, count: float, option: str = "steps") -> Steps:
        """Steps that the user states by `option`. Raises UserError unless they are from 1 to 10^12."""
        if not 1 <= count <= 1e12:
            raise UserError(f"{option}={count:g}: must be a number of steps, from 1 to 10^12")
        return cls(count, count, count, "given")


@dataclass(frozen=True)
class StartUp:
    """Seconds from the start of the clock to the first step; eight in ten logs lie from `low_s` to `high_s`.
    `origin`, `organisations`: as those of `Steps`.
    """

    seconds: float
    low_s: float
    high_s: float
    origin: str
    organisations: tuple[str, ...] = ()

    @classmethod
    def given(cls, seconds: float, option: str = "startup") -> StartUp:
        """Seconds that the user states by `option`. Raises UserError below 0 and above 10^9."""
        if not 0 <= seconds <= 1e9:
            raise UserError(f"{option}={seconds:g}: must be seconds, from 0 to 10^9")
        return cls(seconds, seconds, seconds, "given")


@dataclass(frozen=True)
class Convergence:
    """The steps of one model by rule and global batch; the rows of a rule are in rising order."""

    model: str
    rows: tuple[StepsRow, ...]

    def steps(self, optimizer: str, global_batch: int) -> Steps:
        """Steps of plans with this optimizer at a global batch.

        Between the batches of the table, the logarithm of the steps is linear in the logarithm of the batch.
        Raises UserError for an optimizer without logs, and for a batch outside the table: steps stop falling
        with the batch at a size that smaller ones do not reveal (Shallue et al., JMLR 20, 2019, section 4.1).
        """
        rule = UPDATE_RULES.get(optimizer, "")
        rows = [row for row in self.rows if row.optimizer == rule]
        if not rows:
            names = ", ".join(name for name, update_rule in UPDATE_RULES.items() if self._has(update_rule))
            raise UserError(f"optimizer={optimizer}: {self.model} has steps of {names} only; {REMEDY}")
        batches = [row.global_batch for row in rows]
        place = bisect_left(batches, global_batch)
        if place < len(rows) and batches[place] == global_batch:
            return _of_one(rows[place])
        if place in (0, len(rows)):
            smallest, largest = batches[0], batches[-1]
            extent = f"from {smallest:,} to {largest:,}" if smallest < largest else f"at {smallest:,} alone"
            raise UserError(
                f"global_batch={global_batch}: {self.model} with {optimizer} has steps {extent}; "
                f"what lies outside is not known; {REMEDY}"
            )
        return _between(rows[place - 1], rows[place], global_batch)

    def _has(self, rule: str) -> bool:
        return any(row.optimizer == rule for row in self.rows)


def _of_one(row: StepsRow) -> Steps:
    return Steps(row.steps, row.low, row.high, row.words, row.organisations)


def _between(below: StepsRow, above: StepsRow, global_batch: int) -> Steps:
    share = math.log(global_batch / below.global_batch) / math.log(above.global_batch / below.global_batch)

    def between(lower: float, upper: float) -> float:
        return math.exp((1 - share) * math.log(lower) + share * math.log(upper))

    return Steps(
        between(below.steps, above.steps),
        between(below.low, above.low),
        between(below.high, above.high),
        f"between {below.words} and {above.words}, logarithms linear",
        tuple(sorted({*below.organisations, *above.organisations})),
    )


def _logs(logs: int, rounds: str, organisations: Sequence[str]) -> str:
    """The logs of a row, for readers.

    >>> _logs(2, "1.1 to 2.0", ("Samsung",))
    '2 logs (MLPerf 1.1 to 2.0, Samsung)'
    """
    sources = ", ".join(organisations) if len(organisations) <= 3 else f"{len(organisations)} sources"
    return f"{logs} log{'s' if logs > 1 else ''} (MLPerf {rounds}, {sources})"


def list_convergence() -> tuple[str, ...]:
    """The models that have a table of steps."""
    return tuple(
        sorted(path.name.removesuffix(STEPS_SUFFIX) for path in CONVERGENCE.glob(f"*{STEPS_SUFFIX}"))
    )


def load_convergence(model: str) -> Convergence:
    """The table of a model, by its name. UserError for a model without one."""
    models = list_convergence()
    if model not in models:
        raise UserError(f"model={model}: has no table of steps ({', '.join(models)} has one); {REMEDY}")
    return _convergence(model)


@functools.cache
def _convergence(model: str) -> Convergence:
    rows = [
        StepsRow(
            optimizer=row["optimizer"],
            global_batch=int(row["global_batch"]),
            logs=int(row["logs"]),
            rounds=row["rounds"],
            organisations=tuple(row["organisations"].split("; ")),
            low=float(row["steps_low"]),
            steps=float(row["steps"]),
            high=float(row["steps_high"]),
        )
        for row in _read(CONVERGENCE / f"{model}{STEPS_SUFFIX}")
    ]
    return Convergence(model, tuple(sorted(rows, key=lambda row: (row.optimizer, row.global_batch))))


def start_up(gpus: int, one_graph: bool) -> StartUp:
    """Seconds before the first step on a number of GPUs, from the logs of the row of the shipped table that
    holds it. `one_graph`: whether an iteration is one CUDA graph, captured before the clock starts, so that
    the first step need not load every kernel.
    """
    kind = "yes" if one_graph else "no"
    rows = [row for row in _read(CONVERGENCE / STARTUP) if row["one_graph"] == kind]
    row = next(row for row in reversed(rows) if gpus >= int(row["gpus_from"]) or row is rows[0])
    graph = "one CUDA graph an iteration" if one_graph else "no such graph"
    sources = tuple(row["organisations"].split("; "))
    logs = _logs(int(row["logs"]), row["rounds"], sources)
    seconds, low, high = (float(row[name]) for name in ("startup_s", "startup_low_s", "startup_high_s"))
    return StartUp(
        seconds, low, high, f"{logs} of BERT on {row['gpus_from']} and more GPUs, {graph}", sources
    )


@functools.cache
def _read(path: Path) -> Sequence[dict[str, str]]:
    """The rows of a shipped table, without the lines that say where it comes from."""
    lines = read_text(path, MAX_BYTES).splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))
