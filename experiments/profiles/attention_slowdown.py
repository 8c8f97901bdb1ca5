"""Measures how much longer earlier flash attention kernels take than FlashAttention-2."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from itertime.spec import Evidence
from itertime.spec.kernels import AttentionSlowdown, SlowdownCurve

from .chips import CHIPS, Chip
from .measurements import mape_pct, measured_range, read_table, significant

__all__ = ["measure_slowdown"]

CHART = "Dao-AILab/flash-attention, chart of forward + backward on A100 (+-0.5 TFLOP/s)"
# "FlashAttention-2 yields around 2x speedup compared to FlashAttention" (Dao 2023, abstract).
AROUND = 2.0


def measure_slowdown(folder: Path, chip: Chip) -> tuple[dict[str, AttentionSlowdown], list[Evidence]]:
    """The factors of "flash1" and "triton", and their evidence.

    The A100's chart measures the first FlashAttention kernel by kernel; other GPUs are assumed to have the
    same factors. The Triton kernel that llm-foundry shipped is in no table; the chart's Triton kernel is a
    different one.
    """
    rows = read_table(folder, f"{CHIPS[0].tables}_attention", ("dir", "impl", "head_dim", "seq", "causal"))
    rows = rows.loc[rows.dir == "fwd+bwd"]
    times = rows.pivot_table(index=["causal", "head_dim"], columns=["impl", "seq"], values="time_us")
    seq = [int(one) for one in times["flash2"].columns]
    factors = times["flash1"] / times["flash2"]
    curves = [
        SlowdownCurve(
            head_dim=int(head_dim), causal=bool(causal), times=[significant(factor) for factor in row]
        )
        for (causal, head_dim), row in zip(factors.index, factors.to_numpy().tolist(), strict=True)
    ]
    around = [SlowdownCurve(head_dim=64, causal=causal, times=[AROUND]) for causal in (False, True)]
    slowdown = {
        "flash1": AttentionSlowdown(seq=seq, curves=curves),
        "triton": AttentionSlowdown(seq=seq[:1], curves=around),
    }
    triton = (times["triton"] / times["flash2"]).to_numpy()
    note = (
        f"{AROUND:g} times FlashAttention-2's time, its paper's figure for the first FlashAttention; "
        f"the chart's own Triton kernel, another one, takes {triton.min():.3g} to {triton.max():.3g}"
    )
    assumed = Evidence(
        part="attention, llm-foundry's Triton kernel",
        kind="assumed",
        source="Dao 2023, abstract",
        rows=0,
        note=note,
    )
    return slowdown, [_flash1(factors.to_numpy(), seq, chip), assumed]


def _flash1(table: np.ndarray, seq: list[int], chip: Chip) -> Evidence:
    part = "attention, the first FlashAttention"
    note = f"{table.min():.3g} to {table.max():.3g} times FlashAttention-2's time"
    if chip is not CHIPS[0]:
        return Evidence(part=part, kind="assumed", source=CHART, rows=0, note=f"{note}, as on the A100")
    return Evidence(
        part=part,
        kind="measured",
        source=CHART,
        rows=table.size,
        error_held_out_pct=mape_pct((table[:, :-2] + table[:, 2:]) / 2, table[:, 1:-1]),
        note=f"{note}; held out: each length, from its neighbours",
        measured=measured_range(head_dim=np.array([64.0, 128.0]), seq=np.array(seq, dtype=float)),
    )
