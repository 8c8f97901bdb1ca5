"""What if? One trace under other settings: a grid of the settings, with differences to the first values."""

from __future__ import annotations

import html
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from itertime.errors import UserError, quoted

from .call import make_results, plan_grid
from .campaign import CellCounts
from .expand import Scalar, text_of
from .gridfile import Place
from .making import Progress
from .page import difference_rows
from .preflight import GridPlan
from .results import Results

__all__ = ["Variation", "WhatIf", "plan_variation", "what_if"]

_FILES = ("trace", "cluster", "system", "policy", "table", "calendar", "reservations", "site")
"""Settings that may name a file."""
_NAME = re.compile(r"([^:,]+)(.*)", re.DOTALL)


@dataclass(frozen=True)
class Variation:
    """What is varied: policies, the values of each setting (the first is the base), the number of seeds."""

    policies: Sequence[str]
    vary: Mapping[str, Sequence[Scalar]]
    seeds: int = 1
    baseline: str | None = None

    def checked(self, option: str = "vary") -> Variation:
        """The same, unless it names nothing to compare: UserError, which calls the values `option`."""
        if not self.policies:
            raise UserError("what-if: name a policy")
        for name, values in self.vary.items():
            if isinstance(values, str) or not values:
                raise UserError(f"{option} {name}={quoted(values)}: must be a list of values, the base first")
            _refuse_equal(f"{option} {name}", values)
        if len(self.policies) == 1 and all(len(values) < 2 for values in self.vary.values()):
            raise UserError(f"{option}: name a setting and at least two values of it, as in nodes=64,96")
        if self.baseline is not None and self.baseline not in self.policies:
            raise UserError(f"baseline {self.baseline}: is not among {', '.join(self.policies)}")
        return self


@dataclass(frozen=True, repr=False)
class WhatIf(Results):
    """The runs of a what-if, with differences to the run of the first values.

    `home`: the folder of the results, where none was asked for; it is deleted with this object.
    """

    home: TemporaryDirectory[str] | None = None

    def __repr__(self) -> str:
        values = {name: dict.fromkeys(result.axes[name] for result in self) for name in self.axes}
        axes_text = "; ".join(
            f"{name}={', '.join(map(text_of, axis_values))}" for name, axis_values in values.items()
        )
        return f"<WhatIf of {len(self)} runs: {axes_text}>"

    def _repr_html_(self) -> str:
        heads, rows = difference_rows(self.document())
        head = "".join(f'<th scope="col">{html.escape(text)}</th>' for text in heads)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in row) + "</tr>" for row in rows
        )
        base = ", ".join(f"{name}={text_of(value)}" for name, value in (self.baseline or {}).items())
        title = f"<p>Against {html.escape(base)}</p>"
        return f"{title}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def what_if(
    trace: Any,
    policy: str | Sequence[str],
    vary: Mapping[str, Sequence[Scalar]],
    *,
    seeds: int = 1,
    out: str | Path | None = None,
    workers: int | None = None,
    metrics: Sequence[str] | None = None,
    on_progress: Callable[[CellCounts, Progress], None] = lambda counts, progress: None,
    **settings: Any,
) -> WhatIf:
    """Run `trace` (a file, jobs, or a data frame) under all combinations of the values in `vary`, and compare
    each with the first values: the same jobs, and the same seeds.

    `policy`: one, or several. `vary`: values by setting: any of `RunConfig`, `nodes`, a part such as
    `overheads.launch_s`, `policy.guard_s` or `system.nic_gbps`. `seeds`: their number, from 0; several give
    intervals where something is drawn. `out`: a folder that keeps the results and continues. `metrics`: what
    `compare` and the report show. `settings`: those of all runs, also as `{"overheads.launch_s": 10}` by
    `**`. Raises UserError for what cannot be run.
    """
    policies = [policy] if isinstance(policy, str) else list(policy)
    variation = Variation(policies, vary, seeds).checked()
    home = None if out is not None else TemporaryDirectory(prefix="clustersim-what-if-")
    folder = Path(out) if out is not None else Path(home.name) / "results"  # type: ignore[union-attr]
    plan = plan_variation(trace, variation, settings, folder, metrics)
    results = make_results(plan, folder, workers, on_progress)
    if failed := next((result for result in results if result.status == "failed"), None):
        raise UserError(f"what-if: {', '.join(f'{k}={v}' for k, v in failed.axes.items())}: {failed.reason}")
    values = {field.name: getattr(results, field.name) for field in fields(Results)}
    return WhatIf(**values, home=home)


def plan_variation(
    trace: Any, variation: Variation, settings: Mapping[str, Any], folder: Path,
    metrics: Sequence[str] | None = None, option: str = "vary",
) -> GridPlan:  # fmt: skip
    """The plan of the grid of a what-if, whose file lies beside `folder`.

    `option`: what errors call the option that states the values. UserError for what cannot be run.
    """
    grid = _grid_of(trace, variation.checked(option), settings, folder, option)
    if metrics is not None:
        grid["metrics"] = list(metrics)

    def naming(place: Place, text: str) -> str:
        axis = place[1] if place[:1] == ("matrix",) and len(place) > 1 else "policy"
        text = text.removeprefix("setting ")
        if place[:1] == ("metrics",):
            return f"metrics: {text}"
        if axis == "seed":
            return f"{option} seed: state a number of seeds instead, which pairs the runs seed by seed"
        if axis == "policy":
            return text
        return f"{option} {text}" if text.startswith(f"{axis}=") else f"{option} {axis}: {text}"

    return plan_grid(grid, folder, naming)


def _grid_of(
    trace: Any, variation: Variation, settings: Mapping[str, Any], folder: Path, option: str
) -> dict[str, Any]:
    matrix: dict[str, Any] = {}
    run_settings = dict(settings)
    window = {name: run_settings.pop(name) for name in ("warmup_s", "measure_s") if name in run_settings}
    run_settings = {name: value for name, value in run_settings.items() if name != "seed"}
    if len(variation.policies) > 1:
        matrix["policy"] = _axis("policy", variation.policies, folder)
    else:
        run_settings["policy"] = variation.policies[0]
    for name, values in variation.vary.items():
        if name in run_settings:
            raise UserError(
                f"{option} {name}: is also set to {quoted(run_settings[name])}; leave one of them out"
            )
        matrix[name] = _axis(name, values, folder)
    base = {name: next(iter(values)) for name, values in matrix.items()}
    if variation.baseline is not None and "policy" in matrix:
        base = {"policy": variation.baseline}
    seed = settings.get("seed", 0)
    grid: dict[str, Any] = {
        "set": {
            name: _moved(name, value, folder) for name, value in {"trace": trace, **run_settings}.items()
        },
        "matrix": matrix,
        "seeds": [seed + k for k in range(variation.seeds)],
        "baseline": base,
    }
    if window:
        grid["window"] = window
    return grid


def _refuse_equal(name: str, values: Sequence[Scalar]) -> None:
    for i, value in enumerate(values):
        for earlier in values[:i]:
            if isinstance(value, bool) == isinstance(earlier, bool) and value == earlier:
                problem = f"{quoted(earlier)} and {quoted(value)} are the same value"
                raise UserError(f"{name}: {problem}; leave one of them out")


def _axis(name: str, values: Sequence[Scalar], folder: Path) -> Any:
    """The values of an axis. Files keep the names that the user gave them, as labels."""
    moved = [_moved(name, value, folder) for value in values]
    if moved == list(values):
        return moved
    return {str(value): setting for value, setting in zip(values, moved, strict=True)}


def _moved(name: str, value: Any, folder: Path) -> Any:
    """A setting as the file of the grid has it, which lies beside `folder`: paths of files start there."""
    if name not in _FILES or not isinstance(value, str | Path):
        return value
    parts = _NAME.fullmatch(str(value))
    if parts is None or not Path(parts[1]).exists():
        return str(value)
    return f"{os.path.relpath(parts[1], folder.parent)}{parts[2]}"
