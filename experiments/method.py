"""The method on one GPU: its kernels timed, a profile computed of them, whole trainings predicted and run.

    python -m experiments.method

The program reads two files that were measured on one H200 within ten minutes, computes the profile of the
first anew, predicts every training of the second, and writes the tables of `experiments/METHOD.md`:

- `method_h200/kernels.csv.gz`, by `itertime profile collect --for MODEL ...`;
- `method_h200/iterations.csv`, by `experiments/train_gpt.py`. `low_s` and `high_s` are the tenth and the
  ninetieth percentile of `iterations` iterations. `attention`: "flash", FlashAttention-2, which the kernels
  hold, or "default", the kernel that torch takes.

No time of an iteration enters a profile, so nothing is fitted to what is predicted.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import pandas as pd

from experiments.output import write_tables
from experiments.profiles.build import build
from itertime.commandline import run_task
from itertime.prediction import Prediction, predict
from itertime.profiling import render
from itertime.spec import ModelSpec, Plan, Profile, load_profile, load_system

HERE = Path(__file__).parent
PAGE, FOLDER = HERE / "METHOD.md", HERE / "method_h200"
KERNELS, ITERATIONS = FOLDER / "kernels.csv.gz", FOLDER / "iterations.csv"
CHIP, SYSTEM = "h200-141gb", "dgx-h200"
NEUTRAL, FRAMEWORKS = "megatron", ("megatron", "compile", "te", "eager")


@dataclass(frozen=True)
class MeasuredTraining:
    """A row of `ITERATIONS`: the model, the batches, and the seconds and bytes that were measured."""

    layers: int
    hidden: int
    heads: int
    seq_len: int
    vocab: int
    micro_batch: int
    global_batch: int
    attention: str
    iterations: int
    median_s: float
    low_s: float
    high_s: float
    memory_bytes: float

    def predicted(self, profile: Profile, framework: str = NEUTRAL) -> Prediction:
        """The same training under a profile and a framework; the neutral one adds nothing to the kernels."""
        model = ModelSpec(
            name=f"gpt-{self.hidden}",
            layers=self.layers,
            hidden=self.hidden,
            heads=self.heads,
            vocab=self.vocab,
            seq_len=self.seq_len,
            attention="flash",
            tied_embeddings=False,
            dropout=False,
        )
        plan = Plan(
            tp=1,
            pp=1,
            dp=1,
            micro_batch=self.micro_batch,
            global_batch=self.global_batch,
            recompute="none",
        )
        return predict(model, plan, replace(load_system(SYSTEM), framework=framework), profile)


def trainings(attention: str) -> list[MeasuredTraining]:
    """The measured trainings with one attention kernel."""
    rows = pd.read_csv(ITERATIONS)
    chosen_rows = rows.loc[rows.attention == attention].to_dict("records")
    return [MeasuredTraining(**{str(name): value for name, value in row.items()}) for row in chosen_rows]


def profiles() -> dict[str, Profile]:
    """The profiles that predict, by their names in the tables.

    What GEMMs take longer in training was fitted to published iterations of many GPUs. The third profile
    leaves it out: it holds nothing but kernels, all but collectives of this GPU.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "h200.json")
        path.write_text(render(build(KERNELS, CHIP, CHIP)), encoding="utf-8")
        collected = load_profile(str(path))
    return {
        "shipped": load_profile(CHIP),
        "own": collected,
        "own kernels alone": replace(collected, gemm_in_training=1.0),
    }


def errors(profile: Profile, attention: str = "flash", framework: str = NEUTRAL) -> list[float]:
    """Predicted over measured seconds, minus 1, of each training."""
    return [
        training.predicted(profile, framework).iteration_s / training.median_s - 1
        for training in trainings(attention)
    ]


def iterations_table() -> Iterator[str]:
    """Seconds measured and predicted, a line for each training."""
    used_profiles = profiles()
    heads = (
        "width, layers, sequence, micro-batch / batch",
        "measured, s",
        *(f"{name}, s" for name in used_profiles),
    )
    yield "| " + " | ".join((*heads, "memory, GB", "predicted, GB")) + " |"
    yield "|" + "---|" * (len(heads) + 2)
    for training in trainings("flash"):
        predictions = [training.predicted(profile) for profile in used_profiles.values()]
        cells = [
            f"{training.hidden}, {training.layers}, {training.seq_len}, "
            f"{training.micro_batch} / {training.global_batch}",
            f"{training.median_s:.4f}",
            *(
                f"{one.iteration_s:.4f} ({one.iteration_s / training.median_s - 1:+.1%})"
                for one in predictions
            ),
            f"{training.memory_bytes / 1e9:.1f}",
            f"{predictions[0].memory_bytes / 1e9:.1f}",
        ]
        yield "| " + " | ".join(cells) + " |"


def errors_table() -> Iterator[str]:
    """Mean absolute errors and biases, a line for each profile and attention kernel."""
    yield "| profile | attention that ran | MAPE | bias | worst |"
    yield "|---|---|---|---|---|"
    for name, profile in profiles().items():
        for attention, words in (("flash", "FlashAttention-2"), ("default", "torch's choice")):
            relative_errors = errors(profile, attention)
            worst = max(relative_errors, key=abs)
            yield f"| {name} | {words} | {_mape_and_bias(relative_errors)} | {worst:+.1%} |"


def frameworks_table() -> Iterator[str]:
    """Mean absolute errors and biases, a line for each framework and profile."""
    yield "| framework | profile | MAPE | bias |"
    yield "|---|---|---|---|"
    for framework in FRAMEWORKS:
        for name, profile in profiles().items():
            relative_errors = errors(profile, framework=framework)
            yield f"| {framework} | {name} | {_mape_and_bias(relative_errors)} |"


def _mape_and_bias(relative_errors: list[float]) -> str:
    return f"{fmean(map(abs, relative_errors)):.1%} | {fmean(relative_errors):+.1%}"


TABLES = {"iterations": iterations_table, "errors": errors_table, "frameworks": frameworks_table}


def main() -> int:
    """Write the tables of the page."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.method",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.parse_args()
    return run_task(lambda: write_tables(PAGE, {name: table() for name, table in TABLES.items()}))


if __name__ == "__main__":
    sys.exit(main())
