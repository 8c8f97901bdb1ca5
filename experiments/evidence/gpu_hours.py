"""Published GPU-hours of whole trainings beside predicted ones.

Each training is predicted with its published plan, or where none is published with the plan that `search`
finds fastest on its GPUs, and with the goodput of the preset `llama3`. Nothing is fitted to these trainings.
What is published counts all hours of the GPUs, restarts included.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from itertime import ModelSpec, Plan, System, load_model, load_system, predict
from itertime.planning import DOWNTIMES, goodput, search

from .arguments import program_parser

__all__ = ["Training", "main", "predicted_gpu_h"]

PROGRAM = "python -m experiments.evidence.gpu_hours"
EXAMPLE = f"""\
Example:

    {PROGRAM}
"""
_HOUR_S = 3600.0
_PRESET = "llama3"

_DEEPSEEK_PLAN = Plan(
    tp=1,
    pp=16,
    dp=128,
    ep=64,
    split="remainder",
    micro_batch=1,
    global_batch=15_360,
    precision="fp8_block",
    zero_stage=1,
    recompute="layernorm,mla_up_proj,moe_act",
    dispatcher="deepep",
    ep_overlap=True,
)
_SMOLLM_PLAN = Plan(
    tp=2,
    pp=1,
    dp=192,
    micro_batch=3,
    global_batch=576,
    zero_stage=1,
    sequence_parallel=True,
    recompute="none",
)


_OLMO_PLAN = Plan(
    tp=1,
    pp=1,
    dp=512,
    micro_batch=1,
    global_batch=512,
    zero_stage=3,
    grad_overlap=True,
    recompute="none",
)


class Training(NamedTuple):
    """A training: its model, the nodes it ran on, GPUs, sequences of a batch, tokens, published GPU-hours.

    `plan`: as published; None for the plan of `search`.
    """

    name: str
    model: ModelSpec
    system: System
    gpus: int
    global_batch: int
    tokens: float
    published_gpu_h: float
    source: str
    plan: Plan | None = None


def _smollm3() -> ModelSpec:
    """SmolLM3: config.json of HuggingFaceTB/SmolLM3-3B (July 2025)."""
    model = replace(
        load_model("llama3.2-3b"),
        name="smollm3-3b",
        layers=36,
        hidden=2048,
        heads=16,
        kv_heads=4,
        head_dim=128,
        ffn_hidden=11_008,
    )
    return model.with_seq_len(4096)


def _olmo3(layers: int) -> ModelSpec:
    """Olmo 3 7B or 32B: config.json of allenai/Olmo-3-1025-7B and Olmo-3-1125-32B (November 2025), with the
    8,192 tokens of pre-training.
    """
    model = replace(
        load_model("olmo2-7b"),
        name="olmo3-7b",
        window=4096,
        full_attention_every=4,
        parameters_published="",
    )
    if layers == 64:
        model = replace(
            model, name="olmo3-32b", layers=layers, hidden=5120, heads=40, kv_heads=8, ffn_hidden=27_648
        )
    return model.with_seq_len(8192)


def _trainings() -> list[Training]:
    h100, h800 = load_system("dgx-h100"), load_system("dgx-h800")
    compiled = replace(h100, framework="compile")
    olmo = "AI2 on Olmo 3, with restarts, checkpoints and network issues (November 2025); GPUs are assumed"
    card = "model card of Llama 3.1 (July 2024); batch of 4M tokens and GPUs are assumed"
    return [
        Training(
            "Llama 3.1 8B", load_model("llama3.1-8b").with_seq_len(8192), h100, 1024, 512, 15e12, 1.46e6, card
        ),
        Training(
            "Llama 3.1 70B",
            load_model("llama3.1-70b").with_seq_len(8192),
            h100,
            4096,
            512,
            15e12,
            7.0e6,
            card,
        ),
        Training(
            "Llama 3.1 405B",
            load_model("llama3.1-405b").with_seq_len(8192),
            h100,
            16_384,
            2048,
            15.6e12,
            30.84e6,
            "model card of Llama 3.1 (July 2024); The Llama 3 Herd of Models, table 4",
        ),
        Training(
            "DeepSeek-V3",
            load_model("deepseek-v3").with_seq_len(4096),
            h800,
            2048,
            15_360,
            14.8e12,
            2.664e6,
            "DeepSeek-V3 Technical Report (2024), table 1 and section 3.2",
            _DEEPSEEK_PLAN,
        ),
        Training(
            "SmolLM3 3B",
            _smollm3(),
            replace(load_system("p5-48xlarge"), framework="nanotron"),
            384,
            576,
            11.2e12,
            24 * 24 * 384.0,
            "SmolLM3 (Hugging Face, July 2025): 24 days on 384 H100, tp 2, batches of 2.36M tokens",
            _SMOLLM_PLAN,
        ),
        Training("Olmo 3 7B", _olmo3(32), compiled, 512, 512, 5.93e12, 0.234e6, olmo, _OLMO_PLAN),
        Training("Olmo 3 32B", _olmo3(64), compiled, 1024, 1024, 5.5e12, 1.05e6, olmo),
    ]


def predicted_gpu_h(training: Training) -> tuple[float, float, str]:
    """GPU-hours of the iterations of a training, the same over its goodput, and the label of its plan."""
    plan = training.plan
    if plan is None:
        result = search(training.model, training.global_batch, training.system, training.gpus, top=1)
        plan = result.plans[0].plan
    prediction = predict(training.model, plan, training.system)
    hours = training.tokens / prediction.tokens * prediction.iteration_s / _HOUR_S * training.gpus
    share = goodput(
        DOWNTIMES[_PRESET], training.model.parameters, training.gpus, training.system.gpus_per_node
    ).share
    return hours, hours / share, plan.label


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; returns the exit code."""
    parser = program_parser(PROGRAM, (__doc__ or "").split("\n")[0], EXAMPLE)
    parser.parse_args(arguments)
    print("| training | GPUs | published, M GPU-h | iterations | with failures | error | plan |")
    print("|---|---:|---:|---:|---:|---:|---|")
    for training in _trainings():
        iterations_h, total_h, label = predicted_gpu_h(training)
        error = 100 * (total_h / training.published_gpu_h - 1)
        figures = [f"{hours / 1e6:.3f}" for hours in (training.published_gpu_h, iterations_h, total_h)]
        print(f"| {training.name} | {training.gpus:,} | {' | '.join(figures)} | {error:+.1f} % | {label} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
