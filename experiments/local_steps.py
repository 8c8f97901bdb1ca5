"""Training over several sites: every step together, or workers that exchange every so many steps.

    python -m experiments.local_steps --out FOLDER

writes `runs.csv` (one row per number of sites, link and method), `summary.md` (three tables) and
`seconds.png` (with the extra `docs`). experiments/LOCAL_STEPS.md has the results.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.output import draw_if_possible, make_folder
from itertime import Plan, PlanBatch, System, load_model, load_profile, load_system, predict
from itertime.costs import Workload
from itertime.costs.exchange.local_steps import entry_bytes, sent_per_iteration, worker_parameters
from itertime.costs.network import all_reduce_between_sites_s
from itertime.errors import UserError
from itertime.io import write_text
from itertime.spec import ModelSpec, PlanOptions, profile_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MODEL, SYSTEM, GPUS, GLOBAL_BATCH, MICRO_BATCH = "llama2-7b", "dgx-h100", 512, 1024, 2
SITES, GBPS = (2, 4, 8), (1, 2, 5, 10, 20, 40, 100, 200, 400)
SHOWN_GBPS = (1, 10, 40, 100, 400)
STEPS = (1, 10, 50, 100, 500)
TOLERATED = 0.05
"""The share by which an iteration over sites may exceed that at one site in the table of needed steps."""
PLAIN, GROUPED = "plain data parallelism", "ZeRO in groups of a site"
COLUMNS = ("sites", "link_gbps", "method", "iteration_s", "outer_sync_s", "sent_gb", "over_one_site", "fits")


@dataclass(frozen=True)
class Run:
    """One way to train over `sites` sites. `sent_gb`: what a site's link carries, a mean over iterations."""

    sites: int
    gbps: float
    method: str
    iteration_s: float
    outer_sync_s: float
    sent_gb: float
    over_one_site: float
    fits: bool


def methods(sites: int) -> dict[str, PlanOptions]:
    """The options of every method with workers, by its name."""
    diloco = PlanOptions(workers=sites, outer="diloco")
    found = {f"DiLoCo, H = {steps}": replace(diloco, local_steps=steps) for steps in STEPS}
    found["DiLoCo, H = 100, 8 bits"] = replace(diloco, local_steps=100, compression="int8")
    des_loc = PlanOptions(workers=sites, local_steps=256, outer="des-loc")
    found["Local Adam, H = 256"] = des_loc
    found["DES-LOC, H = 256, 768, 1536"] = replace(des_loc, momentum_steps=768, variance_steps=1536)
    return found


def base_plan() -> Plan:
    """ZeRO-1 on all GPUs, which neither tensor nor pipeline parallelism divides; gradients overlap."""
    return Plan(1, 1, GPUS, MICRO_BATCH, GLOBAL_BATCH, recompute="none", zero_stage=1, grad_overlap=True)


def linked(system: System, gbps: float) -> System:
    """The system with a link of `gbps` Gb/s at every site, over which its workers exchange."""
    return replace(system, site_link_bytes_per_s=gbps * 1e9 / 8)


def tied(system: System, sites: int, gbps: float) -> System:
    """The system as a tree of switches whose top is the sites' links: for exchanges that know no workers.

    A site is a block of the spine, with as much bandwidth upwards as the link has. Its latency is that of
    the network, so what is computed here is a bound from below.
    """
    nodes = GPUS // sites // system.gpus_per_node
    below = nodes * system.nic_bytes_per_s * system.achieved_network
    return replace(system, nodes_per_spine=nodes, spine_oversubscription=max(below / (gbps * 1e9 / 8), 1.0))


def study(model: ModelSpec, system: System) -> list[Run]:
    """Every number of sites, link and method."""
    plan = base_plan()
    one_site = predict(model, plan, system).iteration_s
    runs = []
    for sites in SITES:
        group = GPUS // sites
        grouped = PlanOptions(weight_shards=1, gradient_shards=group, optimizer_shards=group)
        for gbps in GBPS:
            link = linked(system, gbps)
            for name, options in methods(sites).items():
                each = replace(plan, options=options)
                runs.append(_run(model, each, link, (sites, gbps, name), one_site))
            tree = tied(system, sites, gbps)
            for name, options in ((PLAIN, PlanOptions()), (GROUPED, grouped)):
                each = replace(plan, options=options, zero_stage=1 if name == PLAIN else 0)
                runs.append(_run(model, each, tree, (sites, gbps, name), one_site))
    return runs


def _run(model: ModelSpec, plan: Plan, system: System, key: tuple[int, float, str], one_site: float) -> Run:
    found = predict(model, plan, system)
    outer_s = found.breakdown.get("outer_sync", 0.0)
    return Run(
        *key,
        found.iteration_s,
        outer_s,
        sent_gb(model, plan, system, key[0]),
        found.iteration_s / one_site,
        found.fits,
    )


def sent_gb(model: ModelSpec, plan: Plan, system: System, sites: int) -> float:
    """What the link of a site carries one way, GB per iteration. A ring of W sites moves 2 (W-1)/W of the
    buffer over each link, that of P ranks 2 (P-1)/P.
    """
    work = Workload.of(model, PlanBatch.of([plan]), system, profile_of(system))
    size = float((entry_bytes(work) * worker_parameters(work))[0]) / 1e9
    ring = sites if plan.options != PlanOptions() else GPUS
    return 2 * (ring - 1) / ring * size * sent_per_iteration(plan.options)


def runs_csv(runs: Sequence[Run]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for run in runs:
        numbers = (run.iteration_s, run.outer_sync_s, run.sent_gb, run.over_one_site)
        head = (run.sites, run.gbps, run.method)
        writer.writerow([*head, *(f"{number:.6g}" for number in numbers), int(run.fits)])
    return text.getvalue()


def seconds_table(runs: Sequence[Run], sites: int) -> str:
    """Seconds of an iteration over `sites` sites: methods by links, as a Markdown table."""
    lines = [
        f"| {sites} sites | GB a site and iteration | {' | '.join(f'{gbps} Gb/s' for gbps in SHOWN_GBPS)} |",
        f"|---|---|{'---|' * len(SHOWN_GBPS)}",
    ]
    for name in dict.fromkeys(run.method for run in runs):
        row = [run for run in runs if (run.sites, run.method) == (sites, name)]
        cells = [f"{run.iteration_s:.3f}" for run in row if run.gbps in SHOWN_GBPS]
        lines.append(f"| {name} | {row[0].sent_gb:.3g} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def needed_steps(runs: Sequence[Run]) -> str:
    """The fewest steps between DiLoCo's exchanges with an iteration at most `TOLERATED` longer than at one
    site, as a Markdown table.
    """
    lines = [
        f"| link, Gb/s | {' | '.join(f'{sites} sites' for sites in SITES)} |",
        f"|---|{'---|' * len(SITES)}",
    ]
    for gbps in GBPS:
        cells = []
        for sites in SITES:
            (run,) = (
                each for each in runs if (each.sites, each.gbps, each.method) == (sites, gbps, _diloco(1))
            )
            one_site = run.iteration_s / run.over_one_site
            spare = (1 + TOLERATED) * one_site - (run.iteration_s - run.outer_sync_s)
            cells.append(f"{int(np.ceil(run.outer_sync_s / spare)):,}")
        lines.append(f"| {gbps} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def published() -> str:
    """Ratios and seconds of the papers beside those computed here, as a Markdown table."""
    local_adam = PlanOptions(workers=4, local_steps=256, outer="des-loc")
    des_loc = replace(local_adam, momentum_steps=768, variance_steps=1536)
    diloco = PlanOptions(workers=8, local_steps=500, outer="diloco")
    less = {name: 1 / sent_per_iteration(each) for name, each in (("diloco", diloco), ("des-loc", des_loc))}
    eight_bits = 4 / 1 / sent_per_iteration(replace(diloco, local_steps=100))
    ratio = sent_per_iteration(local_adam) / sent_per_iteration(des_loc)
    low, high = (open_diloco_s(gbps) for gbps in (0.935, 0.127))
    lines = [
        "| | published | here |",
        "|---|---|---|",
        f"| DiLoCo, H = 500: less than data parallelism | 500 x | {less['diloco']:.0f} x |",
        f"| DES-LOC, H = 256, 768, 1536: less than data parallelism | 170 x | {less['des-loc']:.1f} x |",
        f"| the same: less than Local Adam | 2 x | {ratio:.1f} x |",
        f"| INTELLECT-1, H = 100, 8 bits instead of 32: less | 400 x | {eight_bits:.0f} x |",
        f"| OpenDiLoCo, 1.1B over 4 sites: one exchange | 300 s | {low:.0f} to {high:.0f} s |",
    ]
    return "\n".join(lines) + "\n"


def open_diloco_s(gbps: float) -> float:
    """Seconds of one exchange of OpenDiLoCo: 1.1B parameters in 16 bit between four sites of eight H100."""
    model, system = load_model("tinyllama-1.1b"), linked(load_system(SYSTEM), gbps)
    options = PlanOptions(workers=4, local_steps=500, outer="diloco", compression="fp16")
    plan = Plan(1, 1, 32, 1, 512, options=options)
    work = Workload.of(model, PlanBatch.of([plan]), system, load_profile(system.profile))
    nbytes = entry_bytes(work) * worker_parameters(work)
    return float(all_reduce_between_sites_s(nbytes, 4, work.plans.gpus, system)[0])


def summary(runs: Sequence[Run]) -> str:
    """All tables of the page, in their order."""
    tables = [*(seconds_table(runs, sites) for sites in SITES), needed_steps(runs), published()]
    return "\n".join(tables)


def _diloco(steps: int) -> str:
    return f"DiLoCo, H = {steps}"


def draw(runs: Sequence[Run], path: Path) -> None:
    """Seconds of an iteration over the bandwidth of a site's link, a panel for every number of sites."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    shades = mpl.colormaps["viridis"](np.linspace(0.05, 0.85, len(STEPS)))
    colours = {PLAIN: "black", GROUPED: "0.5"} | dict(zip(map(_diloco, STEPS), shades, strict=True))
    figure, panels = plt.subplots(1, len(SITES), figsize=(15, 5), layout="constrained", sharey=True)
    for axes, sites in zip(panels, SITES, strict=True):
        _panel(axes, [run for run in runs if run.sites == sites], colours)
        axes.set(title=f"{sites} sites of {GPUS // sites} H100", xlabel="link of a site, Gb/s")
    panels[0].set_ylabel("seconds per iteration")
    panels[-1].legend(fontsize=8)
    figure.savefig(path, dpi=80, metadata={"Software": None}, format="png")


def _panel(axes: Axes, runs: Sequence[Run], colours: Mapping[str, Any]) -> None:
    """Plain methods dashed, DiLoCo with a line for every number of steps."""
    for name, colour in colours.items():
        found = [run for run in runs if run.method == name]
        style = "--" if name in (PLAIN, GROUPED) else "-"
        gbps, seconds = [run.gbps for run in found], [run.iteration_s for run in found]
        axes.plot(gbps, seconds, style, color=colour, label=name)
    one_site = runs[0].iteration_s / runs[0].over_one_site
    axes.axhline(one_site, color="tab:red", linewidth=1, label="one site")
    axes.set(xscale="log", yscale="log")
    axes.grid(visible=True, which="major", alpha=0.3)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default=MODEL, help="a name or a model file")
    parser.add_argument("--system", default=SYSTEM, help="a name or a system file")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the results")
    options = parser.parse_args(arguments)
    try:
        runs = study(load_model(options.model), load_system(options.system))
        make_folder(options.out)
        write_text(options.out / "runs.csv", runs_csv(runs))
        write_text(options.out / "summary.md", summary(runs))
        draw_if_possible(options.out / "seconds.png", lambda path: draw(runs, path))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(summary(runs), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
