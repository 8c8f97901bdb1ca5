"""The rule that `summary.json` is what the records of a run give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clustersim.analysis import energy_kwh, host_summary, service_summary, summarise, window_summary
from clustersim.audit.evidence import agrees, stated_bound, stated_number, stated_price
from clustersim.audit.history import ClusterHistory, JobHistory, Rule
from clustersim.audit.margins import RELATIVE_OF_SUMS, Margins, margin_of_part
from clustersim.audit.settings import stated_energy
from clustersim.records import Columns, Recorded
from clustersim.runs import IN_SUMMARY, is_of_this_code
from itertime.errors import UserError

__all__ = ["SummaryMatchesRecords"]

_WINDOW, _SERVICES, _HOST, _ENERGY = "window", "services", "host", "energy_kwh"


class SummaryMatchesRecords(Rule):
    """`jobs`, `usage`: columns that hold all records and snapshots at the end of the pass."""

    name = "summary"
    text = "summary.json is what the records give when computed again"

    def __init__(self, history: ClusterHistory, run: Recorded, jobs: Columns, usage: Columns):
        super().__init__(history)
        self._run, self._jobs, self._usage = run, jobs, usage
        self._price, self._bound = stated_price(run.manifest), stated_bound(run.manifest)
        self._window = _stated_window(run.manifest)
        self._same_code = is_of_this_code(run.manifest)
        self._skipped: dict[str, None] = {}
        self._other_version: dict[str, None] = {}

    def on_end(self, unrecorded: Sequence[JobHistory]) -> None:
        cluster, end_s = self._run.cluster, max(self.evidence.end_s or 0.0, self.history.last_s)
        try:
            again: dict[str, Any] = dict(
                summarise(
                    self._jobs, self._usage, cluster,
                    end_s=end_s, events=self.history.event_count, price_usd_per_gpu_h=self._price,
                    bound=self._bound,
                )
            )  # fmt: skip
            if (services := service_summary(self._jobs)) is not None:
                again[_SERVICES] = services
            if (host := host_summary(self._jobs, cluster, end_s, self.evidence.packs)) is not None:
                again[_HOST] = host
            if (energy := stated_energy(self._run.manifest)) is not None:
                self._compare_energy(energy_kwh(self._jobs, cluster, end_s, energy))
            if self.evidence.packs > 1 and self._run.manifest.get("sharing") is None:
                again["packed_without_slowdown"] = self.history.joins.count
            if self._window is not None:
                warmup_s, measure_s = self._window
                again[_WINDOW] = window_summary(
                    self._jobs, self._usage, cluster,
                    warmup_s=warmup_s, measure_s=measure_s, price_usd_per_gpu_h=self._price,
                )  # fmt: skip
        except (ArithmeticError, ValueError) as error:
            self.report(f"the records give no metrics: {error}")
            return
        summary = {name: value for name, value in self._run.summary.items() if name != _ENERGY}
        window, window_again = summary.pop(_WINDOW, None), again.pop(_WINDOW, None)
        manifest = self._run.manifest
        # Former versions, whose manifests do not say what states the price, repeat predictions alone.
        for name in IN_SUMMARY if "price_from" in manifest else ("predictions",):
            if summary.pop(name, None) != manifest.get(name):
                self.report(f"{name} of summary.json is not that of manifest.json")
        for part in (_SERVICES, _HOST):
            self._compare_part(part, summary.pop(part, None), again.pop(part, None))
        self._compare(summary, again, "")
        if isinstance(window, Mapping) and window_again is not None:
            self._compare(window, window_again, f"{_WINDOW}.")
        elif window is not None or window_again is not None:
            self.report("window is in one of summary.json and manifest.json alone")

    def _compare(self, summary: Mapping[str, Any], again: Mapping[str, Any], prefix: str) -> None:
        margins = Margins(
            self._jobs, self._usage, self._run.cluster.gpus, self._price, again, self.evidence.resolution_s,
            in_window=bool(prefix),
        )  # fmt: skip
        self._skipped |= dict.fromkeys(prefix + name for name in margins.skipped)
        for name, value in again.items():
            recorded = summary.get(name, "missing")
            if not self._same_code and recorded != value and (name not in summary or name == "covers"):
                self._other_version[prefix + name] = None
            elif name not in margins.skipped and not margins.allow(name, recorded, value):
                self.report(f"{prefix}{name} is {recorded} in summary.json, {value} by the records")
        for name in summary:
            if name not in again:
                self.report(f"{prefix}{name} is in summary.json, but is no metric")

    def _compare_energy(self, again: float) -> None:
        value = self._run.summary.get(_ENERGY)
        if not isinstance(value, int | float) or not agrees(value, again, relative=RELATIVE_OF_SUMS):
            self.report(f"{_ENERGY} is {value!r:.80} in summary.json, {again} by the records")

    def _compare_part(self, part: str, recorded: object, again: Mapping[str, float | None] | None) -> None:
        if not isinstance(recorded, Mapping) or again is None:
            if recorded is not None or again is not None:
                self.report(f"{part} is {recorded!r:.80} in summary.json, {again} by the records")
            return
        submits_s = self._jobs["submit_s"]
        end_s = max(self.evidence.end_s or 0.0, self.history.last_s)
        run_s = end_s - float(submits_s.min()) if len(submits_s) else 0.0
        error_s = self.evidence.resolution_s
        for name in {**again, **recorded}:
            value, expected = recorded.get(name), again.get(name)
            if isinstance(value, int | float) and expected is not None:
                margin = margin_of_part(name, again, len(self._jobs), run_s, error_s)
                is_equal = agrees(value, expected, margin, relative=RELATIVE_OF_SUMS)
            else:
                is_equal = value is None and expected is None and name in again
            if not is_equal:
                self.report(f"{part}.{name} is {value} in summary.json, {expected} by the records")

    def unproved(self) -> str:
        whys = []
        if self._skipped:
            whys.append(f"{', '.join(self._skipped)}: some jobs or all arrivals took under 1 ms")
        if self._other_version:
            names = ", ".join(self._other_version)
            whys.append(f"another version made the run; its summary lacks or words otherwise {names}")
        return "; ".join(whys)


def _stated_window(manifest: Mapping[str, Any]) -> tuple[float, float | None] | None:
    """(warmup_s, measure_s) of the measurement window that a manifest states; None without one."""
    window = manifest.get(_WINDOW)
    if window is None:
        return None
    if not isinstance(window, Mapping) or set(window) != {"warmup_s", "measure_s"}:
        raise UserError(f"manifest.json: window={window!r:.80}: must state warmup_s and measure_s; run again")
    measure_s = None if window["measure_s"] is None else stated_number(window, "measure_s")
    return stated_number(window, "warmup_s"), measure_s
