"""Output of several commands: a plan with its prediction as JSON, notes, wrapped text."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from itertime.prediction import Prediction
    from itertime.spec import ModelSpec, Plan, System

LINE = 80  # characters of a line of words in the output


def wrapped(text: str, indent: int = 2) -> str:
    """Text in lines of at most `LINE` characters, indented from the second line on."""
    return textwrap.fill(
        text, LINE, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )


def error_note(system: System) -> str:
    """A warning of large or unknown errors on a system; "" if they are small or its site is calibrated."""
    from itertime.accuracy import errors_on, measured_relatives

    if system.site.measured_over_predicted is not None:
        return ""
    errors = errors_on(system.profile, system.framework)
    if errors is None:
        relatives = ", ".join(measured_relatives(system.profile))
        interval_note = f"; intervals are those of {relatives}, widened" if relatives else ""
        return (
            f"no measured run on profile {system.profile} is known: how wrong predictions are is unknown"
            f"{interval_note}"
        )
    if not errors.large:
        return ""
    sources = ", ".join(f"{name} {error:.0f} %" for name, error in errors.sources.items())
    software = f" with framework {errors.framework}" if errors.framework else ""
    return (
        f"predictions on profile {system.profile}{software} are unreliable: off by "
        f"{errors.mape_pct:.0f} % on average over {errors.rows:,} measured runs ({sources}), half of which "
        f"took over {errors.median:.2g} times the prediction; "
        "calibrate the site (itertime calibrate), and compare plans by measuring them"
    )


def print_error_note(system: System) -> None:
    """Print the `error_note` of a system, if it has one."""
    if note := error_note(system):
        print(wrapped(f"warning: {note}"))


def rules_text(plan: Plan) -> str:
    """The rules that predict a plan, as the end of an enumeration; "" for the default ones."""
    from itertime.spec import DEFAULT_RULES

    return "" if plan.rules == DEFAULT_RULES else f", rules {plan.rules}"


def rates_text(prediction: Prediction) -> str:
    """A prediction in the units of training logs and benchmarks."""
    return (
        f"{prediction.tokens_per_s:,.0f} tokens/s, {prediction.tokens_per_s_per_gpu:,.0f} tokens/s/GPU, "
        f"{prediction.tflops_per_gpu:,.1f} TFLOP/s/GPU"
    )


def plan_document(model: ModelSpec, plan: Plan, system: System, prediction: Prediction) -> dict[str, Any]:
    """One plan and its prediction, as `--json` prints it. `power_w` is the system's; null: the profile's."""
    from dataclasses import asdict

    from itertime.prediction import RATES
    from itertime.spec import approximations_of

    return {
        "model": model.name,
        "system": system.name,
        "framework": system.framework,
        "power_w": system.power_w,
        **vars(plan),
        "options": asdict(plan.options),
        "plan_options": plan.options.text,
        "gpus": plan.gpus,
        "iteration_s": prediction.iteration_s,
        "interval_s": prediction.interval_s,
        "interval_basis": prediction.interval_basis,
        "spread_s": prediction.spread_s,
        "sampling_error_s": prediction.sampling_error_s,
        "memory_gb": prediction.memory_bytes / 1e9,
        "gpu_memory_gb": prediction.capacity_bytes / 1e9,
        "memory_headroom": prediction.memory_headroom,
        "fits": prediction.fits,
        "reason": prediction.reason,
        **{name: getattr(prediction, name) for name in RATES},
        "extrapolated": list(prediction.extrapolated),
        **({"unusable": list(prediction.unusable)} if prediction.unusable else {}),
        "approximations": list(approximations_of(model)),
        "breakdown": prediction.breakdown,
        "memory_parts_gb": {name: size / 1e9 for name, size in prediction.memory_parts.items()},
    }
