"""Fits all element-wise kernels to the measurements of `itertime profile collect`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from experiments.profiles.chips import Chip
from experiments.profiles.fit_elementwise import (
    LARGE_BYTES,
    MEASURED,
    SMALL_BYTES,
    Kind,
    elementwise_rows,
    fit_kind,
    kind_model,
)
from experiments.profiles.measurements import NAMES, mape_pct, measured_range, missed_pct
from itertime.spec import Evidence
from itertime.spec.kernels import ElementwiseModel
from itertime.spec.profile import UNUSABLE_PCT

__all__ = ["COLLECTED", "fit_collected"]

FEWEST = 2  # rows outside the sizes that a fit leaves out
COLLECTED = {
    "elementwise": "add",
    "swiglu": "silu_mul",
    "rotary": "rope_qk",
    **{kind: kind for kind in ("gelu", "layernorm", "softmax", "rmsnorm", "embedding")},
    **{kind: kind for kind in ("dropout", "adam", "cross_entropy")},
}


def fit_collected(
    folder: Path, chip: Chip, base: dict[str, ElementwiseModel], base_name: str
) -> tuple[dict[str, ElementwiseModel], list[Evidence]]:
    """A model of every kind and the evidence; backward kernels check the forward bandwidths.

    A kind with fewer than `FEWEST` rows has the model of `base`, which is the profile `base_name`.
    """
    rows = elementwise_rows(folder, chip)
    models: dict[str, ElementwiseModel] = {}
    evidence = []
    forward, backward = (rows.loc[rows.dir == direction] for direction in ("fwd", "bwd"))
    for name, op in COLLECTED.items():
        fitted = forward.loc[
            (forward.op == op) & ~forward.bytes.between(SMALL_BYTES, LARGE_BYTES, inclusive="neither")
        ]
        if len(fitted) < FEWEST:
            models[name] = base[name]
            source = f"those of the profile {base_name}"
            evidence.append(Evidence(part=name, kind="assumed", source=source, rows=0, note="not collected"))
            continue
        widths = MEASURED[name].by_width if name in MEASURED else ()
        kind = Kind(fitted=(("torch", (op,)),), bytes_per_element="as the table counts them", by_width=widths)
        fit, kind_evidence = fit_kind(name, kind, forward)
        missed = missed_pct(kind_evidence)
        if missed > UNUSABLE_PCT:
            models[name] = base[name]
            source = f"that of the profile {base_name} stands in"
            note = f"its fit misses its rows by {missed:.0f} %"
            evidence.append(Evidence(part=name, kind="unusable", source=source, rows=0, note=note))
            continue
        models[name] = kind_model(fit, kind, chip, fit["launch_us_torch"] * 1e-6)
        evidence += kind_evidence
        checked = backward.loc[(backward.op == op) & (backward.bytes >= LARGE_BYTES)]
        if len(checked):
            moved = checked.bytes.to_numpy(dtype=float)
            rates = np.array([models[name].rate(width) for width in checked.cols])
            predicted = moved / rates + models[name].launch_s
            evidence.append(
                Evidence(
                    part=f"{name} (backward)",
                    kind="measured",
                    source=NAMES["torch"],
                    rows=len(checked),
                    error_held_out_pct=mape_pct(predicted, checked.time_us.to_numpy(dtype=float) * 1e-6),
                    note="the forward bandwidth; none of these rows was fitted",
                    measured=measured_range(bytes=moved),
                )
            )
    return models, evidence
