"""Errors of llm-analysis on measured iterations, beside those of itertime on the same rows.

    pip install llm-analysis==0.2.2
    python benchmarks/peers.py [FOLDER]    FOLDER holds `iterations` and `modern_gpus`: ../shared/data

llm-analysis (Cheng Li, 2023, Apache-2.0, https://github.com/cli99/llm-analysis) computes an iteration from
peak rates. It has A100 and H100 of 80 GB; it predicts dense models in 16 bit with tensor, pipeline and data
parallelism, ZeRO and full or selective recomputation. It knows no context parallelism, no interleaving and no
framework. Its authors ask for an efficiency: by default it is 1, the peak; "about 0.5", they say, is what
Megatron-LM reaches. Both are shown. Nothing is calibrated. Rows that it cannot express are left out for both.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from itertime.calibration import MeasuredRun, RunSet, read_table
from itertime.spec import Site

SHARED = Path(os.environ.get("CLUSTERSIM_SHARED", Path(__file__).parents[2] / "shared"))
EFFICIENCIES = (1.0, 0.5)
GPUS = {"a100-80gb": "a100-sxm-80gb", "h100-80gb": "h100-sxm-80gb"}
RECOMPUTE = {"none": "NONE", "selective": "SELECTIVE", "full": "FULL", "early-stop": "FULL"}


@dataclass(frozen=True)
class Peer:
    """The parts of llm-analysis that predict an iteration."""

    analysis: Any
    config: Any

    @classmethod
    def load(cls) -> Peer:
        try:
            from llm_analysis import analysis, config
        except ImportError as error:
            sys.exit(f"{error}: pip install llm-analysis==0.2.2")
        logging.disable(logging.WARNING)
        config.populate_model_and_gpu_configs()
        return cls(analysis, config)

    def seconds(self, run: MeasuredRun, efficiency: float) -> float | None:
        """Seconds of one iteration; None for a run that it cannot express."""
        model, plan, system = run.model, run.plan, run.system
        if run.profile.name not in GPUS or not _expressible(run):
            return None
        config = self.config
        shape = config.ModelConfig(
            name=model.name,
            num_layers=model.layers,
            n_head=model.heads,
            hidden_dim=model.hidden,
            vocab_size=model.vocab,
            max_seq_len=model.seq_len,
            num_key_value_heads=model.kv_heads,
            ffn_embed_dim=model.ffn_hidden,
            expansion_ratio=model.ffn_hidden / model.hidden,
        )
        gpu = config.get_gpu_config_by_name(GPUS[run.profile.name])
        gpu.inter_node_bandwidth_in_GB_per_sec = system.nic_bytes_per_s / 1e9
        degrees = config.ParallelismConfig(
            tp_size=plan.tp,
            pp_size=plan.pp,
            dp_size=plan.dp,
            sp_size=plan.tp if plan.sequence_parallel else 1,
        )
        analysis = self.analysis
        peer = analysis.LLMAnalysis(
            shape, gpu, config.get_dtype_config_by_name("w16a16e16"), degrees, flops_efficiency=efficiency
        )
        found = peer.training(
            batch_size_per_gpu=plan.micro_batch,
            global_batch_size=plan.global_batch,
            seq_len=model.seq_len,
            total_num_tokens=plan.global_batch * model.seq_len,
            activation_recomputation=analysis.ActivationRecomputation[RECOMPUTE[plan.recompute]],
            ds_zero=analysis.DSZeRO(plan.zero_stage),
            flash_attn=model.attention != "core",
            mlp_gated_linear_units=model.gated_mlp,
        )
        return float(found["latency_per_iter"])


def _expressible(run: MeasuredRun) -> bool:
    plan = run.plan
    plain = plan.cp == 1 and plan.interleave == 1 and plan.precision == "bf16" and run.model.experts == 1
    whole = run.model.layers % plan.pp == 0 and run.system.memory_bytes is None
    return plain and whole and plan.recompute in RECOMPUTE and plan.recompute_fraction == 1.0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, default=SHARED / "data")
    folder = parser.parse_args().folder
    logging.getLogger("itertime").setLevel(logging.ERROR)
    peer = Peer.load()
    names = [f"llm-analysis, efficiency {each:g}" for each in EFFICIENCIES]
    print(f"{'MAPE % (bias)':28}{'rows':>6}{'itertime':>16}" + "".join(f"{name:>32}" for name in names))
    paths = [*sorted((folder / "iterations").glob("*.csv"))]
    for path in [*paths, *sorted((folder / "modern_gpus" / "iterations").glob("*_bf16.csv"))]:
        runs = RunSet.of(read_table(path))
        ours = runs.evaluate(Site())[0]
        theirs = [[peer.seconds(run, each) for run in runs.runs] for each in EFFICIENCIES]
        rows = [row for row, seconds in enumerate(theirs[0]) if seconds is not None]
        if rows:
            columns = [ours, *(np.array(each, dtype=float) for each in theirs)]
            errors = [100 * (column[rows] / runs.measured_s[rows] - 1) for column in columns]
            cells = [f"{np.abs(error).mean():.1f} ({error.mean():+.1f})" for error in errors]
            print(f"{path.stem:28}{len(rows):6}{cells[0]:>16}" + "".join(f"{cell:>32}" for cell in cells[1:]))


if __name__ == "__main__":
    main()
