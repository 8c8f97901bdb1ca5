"""Fits the constants of frameworks to measured iterations, and scores them with each source left out in turn.

What tables of kernels cannot tell is how software puts kernels together. These few constants are fitted to
published runs on all kinds of sites at once, each constant shared by as many runs as it reasonably can be:
first to those of dense models, then those of experts to mixtures. A *source* is an organisation: all files of
its runs are left out together, whatever their precision. Runs on GPUs later than H100 are scored, never
fitted.

The fit minimises squares of log(predicted / measured) with a loss that is linear for large errors. A source
of n rows weighs as much as min(n, 10) rows. A prior, one row a constant, keeps what no run shows where tables
of kernels put it. Run it with `--help` for its usage.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from itertime.calibration import RunSet, read_table, source_of
from itertime.commandline import run_task
from itertime.errors import UserError
from itertime.io import write_text
from itertime.prediction import predict
from itertime.spec import Framework, Plan, list_frameworks, load_framework, load_model, load_system

from .arguments import tables_parser

__all__ = [
    "FREE",
    "Constant",
    "Runs",
    "document_of",
    "fit",
    "fitted_frameworks",
    "leave_one_out",
    "main",
    "pipeline_layer_s",
]

PROGRAM = "python -m experiments.evidence.fit_frameworks"
EXAMPLE = f"""\
Example, which prints the constants, and writes them with the errors of every source left out:

    {PROGRAM} ../shared/data/iterations/*.csv ../shared/data/modern_gpus/iterations/*.csv \\
        -o itertime/residuals/frameworks.json
"""
Array = NDArray[np.float64]
SCATTER = 0.05  # of one plan's iterations between releases of software (median of two published recipes)
MOST_ROWS = 10  # that a source counts for
STEP = 1e-2  # of the standard deviation of a prior
FITTED = ("te", "compile", "eager")
RELATIVES = {
    "te": ("fsdp-te", "megatron-core", "te-ops"),
    "compile": ("jax",),
    "eager": ("huggingface", "deepspeed"),
}
"""Frameworks that have the constants of a fitted one where their files state no others."""
FITTED_GPUS = ("a100", "h100")  # the first part of their profiles' names
MT_NLG = ((8, 60.1), (10, 50.2), (12, 44.4))
"""Replicas and seconds per iteration of MT-NLG 530B on 280, 350 and 420 DGX A100 (Smith et al. 2022, section
2.2), trained with Megatron-DeepSpeed."""


@dataclass(frozen=True)
class Constant:
    """A field of some frameworks that is fitted: bounds, and a prior with its standard deviation.

    A multiplier is fitted as its logarithm. `sustained`: only on chips whose profile has GEMMs at the power
    limit. `experts`: only for mixtures.
    """

    frameworks: tuple[str, ...]
    field: str
    low: float
    high: float
    prior: float
    sd: float
    multiplier: bool = True
    sustained: bool = False
    experts: bool = False

    @property
    def name(self) -> str:
        return f"{' '.join(self.frameworks)}: {self.field}"

    def variable(self, value: float) -> float:
        return float(np.log(value)) if self.multiplier else value

    def value(self, variable: float) -> float:
        return float(np.exp(variable)) if self.multiplier else float(variable)


HELD_BY_PROFILES = "gemm_multiplier"
FREE = (
    Constant(FITTED, "gemm_multiplier", 0.8, 1.3, 1.0, 0.1, sustained=True),
    Constant(("te",), "elementwise_multiplier", 0.4, 2.5, 1.0, 0.3),
    Constant(("compile",), "elementwise_multiplier", 0.4, 2.5, 1.0, 0.3),
    Constant(("eager",), "elementwise_multiplier", 0.4, 2.5, 1.5, 0.3),
    Constant(("te",), "tp_exposed", 0.0, 1.0, 0.35, 0.2, multiplier=False),
    Constant(("compile",), "tp_exposed", 0.0, 1.0, 0.6, 0.2, multiplier=False),
    Constant(FITTED, "contention", 0.0, 1.0, 0.3, 0.2, multiplier=False),
    Constant(FITTED, "power_contention", 0.0, 1.0, 0.3, 0.2, multiplier=False, sustained=True),
    Constant(FITTED, "fp8_multiplier", 0.7, 1.5, 1.0, 0.1),
    Constant(FITTED, "cast_multiplier", 0.3, 3.0, 1.0, 0.3),
    Constant(("te",), "expert_layer_s", 0.0, 0.02, 0.0, 0.01, multiplier=False, experts=True),
)


@dataclass(frozen=True)
class Runs:
    """The runs of one file under one framework, on chips with GEMMs at the power limit or on others."""

    file: str
    source: str
    framework: str
    sustained: bool
    mixture: bool
    fitted: bool
    set: RunSet

    def errors(self, frameworks: Mapping[str, Framework]) -> Array:
        """log(predicted / measured) of every run."""
        return np.log(self.set.evaluate(frameworks=frameworks)[0] / self.set.measured_s)

    @classmethod
    def of(cls, files: Iterable[str | Path]) -> list[Runs]:
        """The runs of these tables, in order. Raises TableError for a malformed file."""
        found = []
        for path in map(Path, files):
            rows = RunSet.of(read_table(path)).on_measured_chips()
            kinds: dict[tuple[str, str, bool, bool, bool], list[int]] = {}
            for row, (cells, run) in enumerate(zip(rows.cells, rows.runs, strict=True)):
                sustained = run.profile.gemm_in_training != 1
                framework = run.system.framework
                fitted = _fitted_like(framework) in FITTED and run.profile.name.startswith(FITTED_GPUS)
                kind = (source_of(cells, path.stem), framework, sustained, run.model.experts > 1, fitted)
                kinds.setdefault(kind, []).append(row)
            for (source, framework, sustained, mixture, fitted), members in kinds.items():
                part = RunSet(
                    cells=tuple(rows.cells[row] for row in members),
                    runs=tuple(rows.runs[row] for row in members),
                    skipped=(),
                )
                found.append(cls(path.stem, source, framework, sustained, mixture, fitted, part))
        return found


def fitted_frameworks(values: Sequence[float], *, sustained: bool) -> dict[str, Framework]:
    """The shipped frameworks with these values of `FREE`; `sustained`: for GPUs whose profile has GEMMs at
    the power limit.
    """
    found = {name: load_framework(name) for name in list_frameworks()}
    for constant, value in zip(FREE, values, strict=True):
        if constant.sustained and not sustained:
            continue
        for name in constant.frameworks:
            shipped = getattr(load_framework(name), constant.field)
            for member in (name, *RELATIVES[name]):
                if getattr(found[member], constant.field) == shipped:
                    changed = {constant.field: value}
                    found[member] = dataclasses.replace(found[member], **changed)  # type: ignore[arg-type]
    return found


def _fitted_like(framework: str) -> str:
    """The framework whose constants one has: `fsdp-te` those of te. Hugging Face's norms are its own."""
    return "te" if framework in RELATIVES["te"] else framework


def _errors(runs: Sequence[Runs], values: Sequence[float]) -> list[Array]:
    both = {kind: fitted_frameworks(values, sustained=kind) for kind in (True, False)}
    return [each.errors(both[each.sustained]) for each in runs]


def fit(runs: Sequence[Runs], start: Sequence[float]) -> list[float]:
    """The values of `FREE` that predict the fitted frameworks' runs best; `start`: values to start from."""
    used = [each for each in runs if each.fitted]
    if not used:
        raise UserError(f"no run under {', '.join(FITTED)} on A100 or H100 is among these files")
    values = [round(value, 5) for value in start]
    for experts in (False, True):
        chosen = [each for each in used if each.mixture is experts]
        free = [place for place, constant in enumerate(FREE) if constant.experts is experts]
        if chosen:
            values = _fit_some(chosen, free, values)
    return values


def _fit_some(runs: Sequence[Runs], free: Sequence[int], values: Sequence[float]) -> list[float]:
    """`values` with those of the constants at the places `free` fitted to these runs."""
    rows: dict[str, int] = {}
    for each in runs:
        rows[each.source] = rows.get(each.source, 0) + len(each.set)
    weights = [np.sqrt(min(rows[each.source], MOST_ROWS) / rows[each.source]) / SCATTER for each in runs]
    constants = [FREE[place] for place in free]
    low, high, prior = (
        np.array([one.variable(getattr(one, name)) for one in constants]) for name in ("low", "high", "prior")
    )
    sd = np.array([one.sd for one in constants])

    def everything(z: Array) -> list[float]:
        found = list(values)
        for place, constant, variable in zip(free, constants, z.tolist(), strict=True):
            found[place] = constant.value(variable)
        return found

    def residuals(z: Array) -> Array:
        errors = _errors(runs, everything(z))
        weighed = [weight * error for weight, error in zip(weights, errors, strict=True)]
        return np.concatenate([*weighed, (z - prior) / sd])

    def slopes(z: Array) -> Array:
        base = _errors(runs, everything(z))
        columns = []
        for place, constant in enumerate(constants):
            step = np.zeros(len(z))
            step[place] = (
                STEP * sd[place] if z[place] + STEP * sd[place] <= high[place] else -STEP * sd[place]
            )
            parts = []
            for each, weight, before in zip(runs, weights, base, strict=True):
                touched = _fitted_like(each.framework) in constant.frameworks and (
                    each.sustained or not constant.sustained
                )
                after = _errors([each], everything(z + step))[0] if touched else before
                parts.append(weight * (after - before) / step[place])
            parts.append(np.eye(len(z))[place] / sd)
            columns.append(np.concatenate(parts))
        return np.stack(columns, axis=1)

    started = np.array([FREE[place].variable(values[place]) for place in free])
    first = np.clip(started, low + 1e-6 * sd, high - 1e-6 * sd)
    limits = {"bounds": (low, high), "x_scale": sd, "max_nfev": 25, "xtol": 1e-4}
    found = least_squares(residuals, first, jac=slopes, loss="soft_l1", f_scale=2.0, **limits)
    return [round(value, 5) for value in everything(found.x)]


def leave_one_out(runs: Sequence[Runs], values: Sequence[float]) -> dict[str, Any]:
    """Errors of the files of every source under constants that its runs did not enter, by source and file.

    `values` are those of all runs, from which the fits start.
    """
    found = {}
    for source in dict.fromkeys(each.source for each in runs):
        own = [each for each in runs if each.source == source]
        fits_some = any(each.fitted for each in own)
        others = [each for each in runs if each.source != source]
        without = fit(others, values) if fits_some else values
        found[source] = {
            "constants": dict(zip([c.name for c in FREE], without, strict=True)) if fits_some else None,
            "files": _scores(own, without),
        }
    return found


def _scores(runs: Sequence[Runs], values: Sequence[float]) -> dict[str, Any]:
    by_file: dict[str, list[Array]] = {}
    for each, errors in zip(runs, _errors(runs, values), strict=True):
        by_file.setdefault(each.file, []).append(np.expm1(errors) * 100)
    return {
        name: {
            "rows": len(found),
            "mape": round(float(np.abs(found).mean()), 2),
            "bias": round(float(found.mean()), 2),
        }
        for name, parts in by_file.items()
        for found in [np.concatenate(parts)]
    }


def pipeline_layer_s() -> float:
    """Seconds per layer and micro-batch that Megatron-DeepSpeed's pipeline engine adds, from MT-NLG's runs.

    The value for which the published iterations are predicted without bias.
    """
    model, system = load_model("mt-nlg-530b"), load_system("dgx-a100-80gb")
    framework = load_framework("megatron-deepspeed")

    def bias(seconds: float) -> float:
        changed = dataclasses.replace(framework, pipeline_layer_s=seconds)
        errors = []
        for dp, measured in MT_NLG:
            plan = Plan(tp=8, pp=35, dp=dp, micro_batch=1, global_batch=1920)
            predicted = predict(model, plan, system, framework=changed).iteration_s
            errors.append(np.log(predicted / measured))
        return float(np.mean(errors))

    found = least_squares(lambda z: [bias(float(z[0]))], [0.01], bounds=(0.0, 0.1))
    return round(float(found.x[0]), 5)


def document_of(files: Sequence[str | Path]) -> dict[str, Any]:
    """The fitted constants, and the errors of every source left out, as they are written."""
    runs = Runs.of(files)
    start = [
        1.0
        if constant.field == HELD_BY_PROFILES
        else getattr(load_framework(constant.frameworks[0]), constant.field)
        for constant in FREE
    ]
    values = fit(runs, start)
    return {
        "unit": "percent, predicted over measured seconds less one",
        "constants": dict(zip([constant.name for constant in FREE], values, strict=True)),
        "megatron-deepspeed: pipeline_layer_s": pipeline_layer_s(),
        "as_fitted": _scores(runs, values),
        "leave_one_out": leave_one_out(runs, values),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns its exit code."""
    parser = tables_parser(
        PROGRAM,
        "Fit the constants of frameworks, and score them with each source left out.",
        EXAMPLE,
    )
    parser.add_argument("-o", "--output", type=Path, help="file to write (.json); default: standard output")
    options = parser.parse_args(arguments)
    return run_task(lambda: _run(options.files, options.output))


def _run(files: Sequence[Path], output: Path | None) -> None:
    text = json.dumps(document_of(files), indent=2) + "\n"
    if output is None:
        print(text, end="")
    else:
        write_text(output, text)


if __name__ == "__main__":
    sys.exit(main())
