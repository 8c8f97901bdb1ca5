"""Command lines that work, by command. `--help` shows them above the options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["EXAMPLES"]

EXAMPLES: Mapping[str, Sequence[tuple[str, str]]] = {
    "demo": [
        ("four policies on 800 generated jobs, with a report", "clustersim demo --out demo-result"),
        ("fewer jobs, other policies", "clustersim demo --jobs 200 --policies fifo,priced"),
    ],
    "run": [
        ("one policy", "clustersim run jobs.csv --policy srtf --cluster n64g8 --out result"),
        ("a policy of your own", "clustersim run jobs.csv --policy mine.py:Priority"),
        ("with failures", "clustersim run jobs.csv --policy fifo --set failures.preset=llama3"),
    ],
    "compare": [
        ("two policies, with a report", "clustersim compare jobs.csv --policies fifo,srtf --out results"),
        ("five seeds each, with intervals", "clustersim compare jobs.csv --policies fifo,srtf --seeds 5 "
         "--set failures.preset=llama3"),
        ("under two values of a setting", "clustersim compare jobs.csv --policies fifo,srtf "
         "--vary overheads.launch_s=10,60"),
    ],
    "what-if": [
        ("more nodes", "clustersim what-if jobs.csv --policy srtf --cluster n64g8 --vary nodes=64,96,128"),
        ("other networks", "clustersim what-if jobs.csv --policy srtf "
         "--vary system.nic_gbps=100,200,400 --out nics"),
    ],
    "grid": [
        ("what would run", "clustersim grid study.yaml --dry-run"),
        ("run it, or continue it", "clustersim grid study.yaml --workers 2"),
        ("on a dask cluster", "clustersim grid study.yaml --scheduler tcp://host:8786"),
    ],
    "bound": [("how good any policy can be", "clustersim bound jobs.csv --cluster n64g8")],
    "backtest": [
        ("a log against its own starts", "clustersim backtest slurm.txt"),
        ("find the policy that explains it", "clustersim backtest slurm.txt --fit --out backtest"),
    ],
    "predict-start": [
        ("a job of Slurm's queue", "clustersim predict-start state.json --job 4711"),
    ],
    "report": [
        ("a comparison", "clustersim report results --baseline fifo"),
        ("a grid, and pages of its runs", "clustersim report study"),
    ],
    "timeline": [("for ui.perfetto.dev", "clustersim timeline results/srtf -o srtf.json.gz")],
    "plot": [
        ("bars of the policies of a comparison", "clustersim plot results -o jct.pdf"),
        ("completion times of their jobs", "clustersim plot results --kind jct-cdf -o cdf.pdf"),
        ("a metric over the load of a grid", "clustersim plot study --metric wait_mean_s -o wait.svg"),
        ("bars with intervals at one load", "clustersim plot study --x policy --where trace.load=1.0"),
    ],
    "check": [
        ("the files of a run", "clustersim check result"),
        ("and simulate it again", "clustersim check result --replay"),
    ],
    "serve": [("watch and start comparisons in a folder", "clustersim serve results")],
    "explain": [("one job", "clustersim explain result --job 100002")],
}  # fmt: skip
