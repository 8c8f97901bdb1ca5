"""Runs as a notebook shows them: tables, figures, reports."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Self, overload

from clustersim.export import Picture, picture
from clustersim.grid import Comparison as Difference
from clustersim.grid import compare_runs, plot_runs
from clustersim.grid.gridfile import NUMERIC_METRICS
from clustersim.records import EventRecord, JobRecord, PlanRecord, Run, Snapshot
from clustersim.report import Page, comparison_table, render_report
from itertime.errors import UnknownName, UserError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Comparison", "Page", "ShownRun"]

_KINDS: dict[str, Any] = {
    "jobs": JobRecord, "events": EventRecord, "snapshots": Snapshot, "plans": PlanRecord
}  # fmt: skip
TABLES = tuple(_KINDS)


@dataclass(frozen=True, repr=False)
class ShownRun(Run):
    """A run that can show itself."""

    @classmethod
    def of(cls, run: Run) -> Self:
        """The same run; its records are shared, not read."""
        return cls(**{field.name: getattr(run, field.name) for field in fields(Run)})

    def to_pandas(self, table: str = "jobs") -> pd.DataFrame:
        """The records of one kind: jobs, events, snapshots or plans; a column for each field."""
        import pandas as pd

        if table not in TABLES:
            raise UnknownName("table", table, TABLES)
        records = list(getattr(self, table))
        names = _field_names(records[0] if records else _KINDS[table])
        return pd.DataFrame({name: [getattr(record, name) for record in records] for name in names})

    def plot(self, kind: str = "utilisation", *, width: str | float | None = None) -> Picture:
        """A figure of the run: jct-cdf, utilisation or gantt. `width`: "column", "text" or inches."""
        return picture([self], kind, width)

    def report(self) -> Page:
        """The page that `clustersim run --out` writes."""
        return Page(render_report([self]))

    def _repr_html_(self) -> str:
        return headline([self], None)


@dataclass(frozen=True, repr=False)
class Comparison(Sequence[ShownRun]):
    """Runs of one trace, in the order in which they were given; `comparison["fifo"]` is the run of a policy.
    `baseline`: the policy that the others are compared with. `skipped`: why policies are left out that cannot
    run with the settings, by name.
    """

    runs: tuple[ShownRun, ...]
    baseline: str | None = None
    skipped: Mapping[str, str] = field(default_factory=dict)

    @overload
    def __getitem__(self, index: int | str) -> ShownRun: ...
    @overload
    def __getitem__(self, index: slice) -> Comparison: ...
    def __getitem__(self, index: int | str | slice) -> ShownRun | Comparison:
        if isinstance(index, slice):
            return Comparison(self.runs[index])
        if isinstance(index, str):
            run_of_policy = {run.policy: run for run in reversed(self.runs)}  # of several seeds, the first
            if index not in run_of_policy:
                raise UnknownName("policy of the comparison", index, list(run_of_policy))
            return run_of_policy[index]
        return self.runs[index]

    def __len__(self) -> int:
        return len(self.runs)

    def __iter__(self) -> Iterator[ShownRun]:
        return iter(self.runs)

    def __repr__(self) -> str:
        names = ", ".join(dict.fromkeys(run.policy for run in self.runs))
        skipped = f"; left out: {', '.join(self.skipped)}" if self.skipped else ""
        return f"<Comparison of {len(self.runs)} runs: {names}{skipped}>"

    def to_pandas(self) -> pd.DataFrame:
        """A row for each run: policy, planner, seed, and every metric of the summary that is a number."""
        import pandas as pd

        rows = [
            {
                "policy": run.policy,
                "planner": run.planner,
                "seed": run.manifest["seed"],
                **{name: v for name, v in run.summary.items() if not isinstance(v, dict | str)},
            }
            for run in self.runs
        ]
        return pd.DataFrame(rows)

    def differences(self, baseline: str | None = None) -> list[Difference]:
        """Paired differences from `baseline` over seeds, with intervals; for several seeds a policy."""
        return compare_runs(self.runs, self._baseline(baseline))

    def plot(
        self, kind: str = "jct-cdf", *, interval: bool = True, width: str | float | None = None
    ) -> Picture:
        """A figure of the runs: jct-cdf, utilisation or gantt; or bars of a metric over the policies.

        `interval`: draw 95 % intervals over seeds. `width`: "column", "text" or inches.
        """
        if kind in NUMERIC_METRICS:
            return plot_runs(self._some(), kind, interval=interval, width=width)
        return picture(self._some(), kind, width)

    def report(self, baseline: str | None = None) -> Page:
        """The page that `clustersim compare --out` writes."""
        return Page(render_report(self._some(), baseline=self._baseline(baseline)))

    def _repr_html_(self) -> str:
        return headline(self.runs, self.baseline) if self.runs else "<p>no runs</p>"

    def _some(self) -> tuple[ShownRun, ...]:
        if not self.runs:
            raise UserError("the comparison holds no run")
        return self.runs

    def _baseline(self, name: str | None) -> str:
        names = [run.policy for run in self._some()]
        baseline = name or self.baseline or names[0]
        if baseline not in names:
            raise UnknownName("policy of the comparison", baseline, names)
        return baseline


def _field_names(record: Any) -> Sequence[str]:
    if is_dataclass(record):
        return [field.name for field in fields(record)]
    names: Sequence[str] = record._fields
    return names


def headline(runs: Sequence[Run], baseline: str | None) -> str:
    """The table that the commands print, as HTML."""
    table = comparison_table(runs, baseline)
    heads = "".join(f'<th scope="col">{html.escape(head)}</th>' for head in table.heads)
    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell).replace(chr(10), '<br>')}</td>" for cell in row) + "</tr>"
        for row in table.rows
    )
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
