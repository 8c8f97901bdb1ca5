"""The cost of training MT-NLG 530B under every plan of vTrain's design space (Bang et al., MICRO 2024).

    python -m experiments.mt_nlg_cost --out FOLDER

writes `plans.csv` (one row per plan), `summary.md` (the published plans beside the best found) and
`heatmap.png` (with the extra `docs`). Unless `--system` names other nodes, `networks.md` has the same on the
nodes of vTrain's configuration, and `rules.md` these by the rules of vTrain's artifact, too. The program
prints the evaluation's time on stderr. experiments/MT_NLG.md has the results.
"""

from __future__ import annotations

import argparse
import csv
import io
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from experiments.output import draw_if_possible, make_folder
from itertime import Evaluation, PlanBatch, evaluate, load_model, load_system
from itertime.errors import UserError
from itertime.io import write_text
from itertime.planning.space import candidates, divisors, named_space
from itertime.spec import DEFAULT_RULES, RECOMPUTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MODEL, GLOBAL_BATCH = "mt-nlg-530b", 1920
SYSTEM, VTRAIN_SYSTEM = "dgx-a100-80gb", "a100-80gb-800g"  # 1,600 and 800 Gb/s a node
TPS, LARGEST_DP = (4, 8, 16), 32
PUBLISHED = ((8, 8, 35), (8, 10, 35), (8, 12, 35))  # Smith et al. (2022), as vTrain lists them: tp, dp, pp
VTRAIN = (8, 12, 21)  # vTrain's cheaper plan
MEASURED_S = {(8, 8, 35): 60.1, (8, 10, 35): 50.2, (8, 12, 35): 44.4}  # Smith et al. (2022)
PUBLISHED_USD = {(8, 8, 35): 9.01e6, (8, 12, 21): 8.62e6}  # Bang et al. (MICRO 2024), case study 1
PUBLISHED_CHANGES = ("4.3 %", "about 6 %", "4.5 %")
KNOWN = ("none", "full")  # recomputation that the rules of vTrain's artifact know
UNLIMITED = 1e6  # times the NICs of a node, with which sends and exchanges take no time
FEWER_GPUS, LONGER = 0.9, 1.1  # "10 % fewer GPUs" for at most 10 % more time
DAY_S, HOUR_S = 86_400.0, 3_600.0
COLUMNS = (
    *("tp", "dp", "pp", "gpus", "fits", "memory_gb", "iteration_s", "mfu", "training_days", "cost_usd"),
    "on_front",
)


@dataclass(frozen=True)
class Study:
    """Every plan of the space, evaluated. Arrays have one element per plan.

    Training takes `tokens`, all at the full global batch; `price_usd` is the price of a GPU-hour.
    """

    plans: PlanBatch
    evaluation: Evaluation
    seq_len: int
    tokens: float
    price_usd: float
    seconds: float

    @property
    def training_s(self) -> NDArray[np.float64]:
        """Tokens / (global batch x sequence length) iterations, not rounded."""
        return self.evaluation.iteration_s * (self.tokens / (GLOBAL_BATCH * self.seq_len))

    @property
    def cost_usd(self) -> NDArray[np.float64]:
        return self.training_s / HOUR_S * self.plans.gpus * self.price_usd

    @property
    def fits(self) -> NDArray[np.bool_]:
        return self.evaluation.memory.fits

    @cached_property
    def front(self) -> NDArray[np.bool_]:
        """The Pareto front: plans that fit, with no other as fast and cheaper or as cheap and faster."""
        front = np.zeros(len(self.plans), dtype=bool)
        cheapest = math.inf
        for row in np.lexsort((self.cost_usd, self.training_s)):
            if self.fits[row] and self.cost_usd[row] < cheapest:
                front[row], cheapest = True, self.cost_usd[row]
        return front

    def row(self, shape: tuple[int, int, int]) -> int:
        """The row of the plan (tp, dp, pp), which must be in the space."""
        tp, dp, pp = shape
        found = (self.plans.tp == tp) & (self.plans.dp == dp) & (self.plans.pp == pp)
        return int(np.flatnonzero(found)[0])

    def cheapest(self, *, most_gpus: float = math.inf, most_s: float = math.inf) -> int | None:
        """The cheapest plan that fits, within `most_gpus` GPUs and `most_s` seconds of training."""
        allowed = self.fits & (self.plans.gpus <= most_gpus) & (self.training_s <= most_s)
        rows = np.flatnonzero(allowed)
        return int(rows[self.cost_usd[rows].argmin()]) if len(rows) else None


def study(
    *,
    system: str = SYSTEM,
    site: str | None = None,
    recompute: str = "full",
    tokens: float = 270e9,
    price_usd: float = 5.0,
    rules: str = DEFAULT_RULES,
    nics: float = 1.0,
) -> Study:
    """Evaluate tp in `TPS`, dp up to `LARGEST_DP` that divide the global batch, pp that divide the layers.

    Micro-batch 1, 1F1B. `site`: a system file that gives `system` its site constants. `nics`: how many times
    as fast the network of a node is.
    """
    model, machine = load_model(MODEL), load_system(system)
    machine = replace(machine, nic_bytes_per_s=nics * machine.nic_bytes_per_s)
    if site is not None:
        machine = replace(machine, site=load_system(site).site)
    started = time.perf_counter()
    sizes = sorted({tp * dp * pp for tp in TPS for dp in _dps() for pp in divisors(model.layers)})
    space = replace(named_space("vtrain"), tp=TPS, micro_batch=(1,), recompute=(recompute,), rules=rules)
    plans = candidates(model, GLOBAL_BATCH, machine, space, sizes)
    plans = plans.take(plans.dp <= LARGEST_DP)
    found = evaluate(model, plans, machine, memory_headroom=0.0)  # as in the published study
    return Study(plans, found, model.seq_len, tokens, price_usd, time.perf_counter() - started)


def _dps() -> list[int]:
    return [dp for dp in divisors(GLOBAL_BATCH) if dp <= LARGEST_DP]


def plans_csv(done: Study) -> str:
    """One row per plan, in the order of tp, dp, pp, including plans that do not fit."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    plans, found = done.plans, done.evaluation
    for row in np.lexsort((plans.pp, plans.dp, plans.tp)):
        whole = (plans.tp[row], plans.dp[row], plans.pp[row], plans.gpus[row], int(done.fits[row]))
        writer.writerow(
            [
                *whole,
                f"{found.memory.total[row] / 1e9:.3f}",
                f"{found.iteration_s[row]:.6f}",
                f"{found.mfu[row]:.6f}",
                f"{done.training_s[row] / DAY_S:.4f}",
                f"{done.cost_usd[row]:.0f}",
                int(done.front[row]),
            ]
        )
    return text.getvalue()


def summary(done: Study) -> str:
    """The published plans and the best found, as a Markdown table."""
    lines = [
        "| | (tp, dp, pp) | GPUs | iteration, s | MFU | memory, GB | training, days | cost, $M |",
        "|---|---|---|---|---|---|---|---|",
        *(_line(done, "published", done.row(shape)) for shape in PUBLISHED),
        _line(done, "vTrain's find", done.row(VTRAIN)),
    ]
    for shape in PUBLISHED:
        row = done.row(shape)
        seconds, gpus = float(done.training_s[row]), float(done.plans.gpus[row])
        lines.append(_line(done, f"cheapest no slower than {shape}", done.cheapest(most_s=seconds)))
        name = f"cheapest on 10 % fewer GPUs than {shape}, at most 10 % slower"
        found = done.cheapest(most_s=LONGER * seconds, most_gpus=FEWER_GPUS * gpus)
        lines.append(_line(done, name, found))
    return "\n".join(lines) + "\n"


def networks(done: Study, other: Study) -> str:
    """The published plans and vTrain's on 1,600 Gb/s a node, `done`, and on 800, as a Markdown table."""
    lines = [
        "| (tp, dp, pp) | iteration at 1,600 Gb/s, s | at 800 Gb/s | cost at 1,600 Gb/s, $M | at 800 Gb/s |",
        "|---|---|---|---|---|",
    ]
    for shape in (*PUBLISHED, VTRAIN):
        cells = []
        for column in (lambda one: one.evaluation.iteration_s, lambda one: one.cost_usd / 1e6):
            first, second = (float(column(one)[one.row(shape)]) for one in (done, other))
            cells += [f"{first:.2f}", f"{second:.2f} ({second / first - 1:+.1%})"]
        lines.append(f"| {shape} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def rules(wide: Study, own: Study, paper: Study, unlimited: Study) -> str:
    """Seconds, dollars and what vTrain's plan saves as measured, as published, by the rules of vTrain's
    artifact and by those here, as two Markdown tables. `wide`: 1,600 Gb/s by the rules here, `own` 800 Gb/s;
    `paper`: 800 Gb/s by the other rules, `unlimited` by these on a network that takes no time.
    """
    lines = [
        "| (tp, dp, pp) | measured, s | paper's rules, s | here, s "
        "| published, $M | paper's rules, $M | here, $M |",
        "|---|---|---|---|---|---|---|",
    ]
    for shape in (*PUBLISHED, VTRAIN):
        measured, usd = MEASURED_S.get(shape), PUBLISHED_USD.get(shape)
        seconds = [float(done.evaluation.iteration_s[done.row(shape)]) for done in (paper, own)]
        costs = [f"{float(done.cost_usd[done.row(shape)]) / 1e6:.2f}" for done in (paper, own)]
        errors = [f" ({value / measured - 1:+.0%})" if measured else "" for value in seconds]
        cells = [
            f"{measured:.1f}" if measured else "",
            *(f"{value:.2f}{error}" for value, error in zip(seconds, errors, strict=True)),
            f"{usd / 1e6:.2f}" if usd else "",
            *costs,
        ]
        lines.append(f"| {shape} | {' | '.join(cells)} |")
    studies = (paper, unlimited, own, wide)
    lines += [
        "",
        f"| {VTRAIN} beside {PUBLISHED[0]} | published | paper's rules | these, sends and exchanges free "
        "| here | here, 1,600 Gb/s |",
        "|---|---|---|---|---|---|",
    ]
    rows = zip(("saves", "takes longer", "utilisation rises by"), *map(changes, studies), strict=True)
    for (name, *values), published in zip(rows, PUBLISHED_CHANGES, strict=True):
        lines.append(f"| {name} | {published} | " + " | ".join(f"{value:.2%}" for value in values) + " |")
    return "\n".join(lines) + "\n"


def changes(done: Study) -> tuple[float, float, float]:
    """What vTrain's plan saves of the cost of the published one; its longer time, its higher utilisation."""
    before, after = done.row(PUBLISHED[0]), done.row(VTRAIN)
    cost, time_s, mfu = (
        float(values[after] / values[before] - 1)
        for values in (done.cost_usd, done.training_s, done.evaluation.mfu)
    )
    return -cost, time_s, mfu


def _line(done: Study, name: str, row: int | None) -> str:
    if row is None:
        return f"| {name} | none | | | | | | |"
    plans, found = done.plans, done.evaluation
    memory = f"{found.memory.total[row] / 1e9:.1f}" + ("" if done.fits[row] else " (does not fit)")
    numbers = (
        f"({plans.tp[row]}, {plans.dp[row]}, {plans.pp[row]})",
        f"{plans.gpus[row]:,}",
        f"{found.iteration_s[row]:.2f}",
        f"{found.mfu[row]:.1%}",
        memory,
        f"{done.training_s[row] / DAY_S:.1f}",
        f"{done.cost_usd[row] / 1e6:.2f}",
    )
    return f"| {name} | {' | '.join(numbers)} |"


def draw(done: Study, path: Path) -> None:
    """Draw MFU (top) and seconds (bottom) by dp and pp. P: published, V: vTrain's, grey: does not fit."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.colors import LogNorm

    figure, panels = plt.subplots(2, len(TPS), figsize=(15, 8), layout="constrained")
    seconds, mfu = done.evaluation.iteration_s, 100 * done.evaluation.mfu
    scales: tuple[tuple[str, NDArray[np.float64], dict[str, Any]], ...] = (
        ("MFU, %", mfu, {"vmin": mfu[done.fits].min(), "vmax": mfu[done.fits].max()}),
        ("seconds per iteration", seconds, {"norm": LogNorm(*np.quantile(seconds[done.fits], (0, 1)))}),
    )
    for row_of_panels, (label, values, scale) in zip(panels, scales, strict=True):
        for axes, tp in zip(row_of_panels, TPS, strict=True):
            image = _panel(axes, done, tp, values, scale)
        figure.colorbar(image, ax=list(row_of_panels), label=label)
    figure.savefig(path, dpi=80, metadata={"Software": None}, format="png")


def _panel(axes: Axes, done: Study, tp: int, values: NDArray[np.float64], scale: dict[str, Any]) -> Any:
    dps, pps = _dps(), sorted({int(pp) for pp in done.plans.pp})
    grid = np.full((len(pps), len(dps)), np.nan)
    marks = dict.fromkeys(PUBLISHED, "P") | {VTRAIN: "V"}
    for row in np.flatnonzero((done.plans.tp == tp) & done.fits):
        dp, pp = int(done.plans.dp[row]), int(done.plans.pp[row])
        y, x = pps.index(pp), dps.index(dp)
        grid[y, x] = values[row]
        axes.text(x, y, marks.get((tp, dp, pp), ""), ha="center", va="center", color="white", weight="bold")
    image = axes.imshow(grid, aspect="auto", cmap="viridis", origin="lower", **scale)
    axes.set_facecolor("#cccccc")
    axes.set(title=f"tp = {tp}", xlabel="dp", ylabel="pp", xticks=range(len(dps)), yticks=range(len(pps)))
    axes.set_xticklabels([str(dp) for dp in dps])
    axes.set_yticklabels([str(pp) for pp in pps])
    return image


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--system", default=SYSTEM, help="a name or a system file")
    parser.add_argument("--site", help="a system file (`itertime calibrate`) with the site constants to use")
    parser.add_argument("--recompute", default="full", choices=RECOMPUTE)
    parser.add_argument("--tokens", type=_positive, default=270e9)
    parser.add_argument("--price", type=_positive, default=5.0, help="dollars per GPU-hour")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the results")
    options = parser.parse_args(arguments)
    choices = {
        "site": options.site,
        "recompute": options.recompute,
        "tokens": options.tokens,
        "price_usd": options.price,
    }
    try:
        done = study(system=options.system, **choices)
        tables = {"summary.md": summary(done)}
        if options.system == SYSTEM:
            own = study(system=VTRAIN_SYSTEM, **choices)
            tables["networks.md"] = networks(done, own)
            if options.recompute in KNOWN:
                paper, unlimited = (
                    study(system=VTRAIN_SYSTEM, rules="vtrain", nics=nics, **choices)
                    for nics in (1.0, UNLIMITED)
                )
                tables["rules.md"] = rules(done, own, paper, unlimited)
        make_folder(options.out)
        write_text(options.out / "plans.csv", plans_csv(done))
        for name, text in tables.items():
            write_text(options.out / name, text)
        draw_if_possible(options.out / "heatmap.png", lambda path: draw(done, path))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    counts = f"{len(done.plans)} plans, {done.fits.sum()} fit in memory, {done.front.sum()} on the front"
    print(f"{counts}; listed and evaluated in {done.seconds * 1e3:.1f} ms", file=sys.stderr)
    print("\n".join(tables.values()), end="")
    return 0


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text}: must be a number above 0")
    return value


if __name__ == "__main__":
    sys.exit(main())
