"""Draw the README's picture from the folder of a comparison.

clustersim demo --out DIR
python docs/picture.py DIR -o docs/demo.png
"""

import argparse
from pathlib import Path

import matplotlib as mpl
import numpy as np

from clustersim import read_run

mpl.use("Agg")
from matplotlib import pyplot as plt

COLOURS = {"fifo": "#999999", "srtf": "#E69F00", "elasticflow": "#0072B2", "vtrain-aware": "#D55E00"}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    runs = {name: read_run(options.folder / name) for name in COLOURS}
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.4), width_ratios=(1.6, 1), layout="constrained")
    for name, run in runs.items():
        hours = np.sort([job.jct_s / 3600 for job in run.jobs if job.jct_s is not None])
        share = np.arange(1, len(hours) + 1) / len(run.jobs) * 100
        left.step(hours, share, where="post", color=COLOURS[name], label=name, linewidth=2)
    left.set(xscale="log", xlabel="job completion time, hours", ylabel="% of submitted jobs", ylim=(0, 101))
    left.legend(frameon=False)
    met = [100 * run.summary["deadline_met_ratio"] for run in runs.values()]
    bars = right.barh(list(runs), met, color=list(COLOURS.values()))
    right.bar_label(bars, fmt="%.0f", padding=3)
    right.set(xlabel="deadlines met, % of submitted jobs", xlim=(0, 112))
    right.invert_yaxis()
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(options.output, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
