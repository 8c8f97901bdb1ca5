"""Terms of the page in a sentence each, shown where the pointer rests on a head of a table."""

from __future__ import annotations

__all__ = ["TERMS"]

TERMS = {
    "paired_jobs": "Jobs that finished under this policy and the baseline: differences of times cover them",
    "jct_mean_s": "Mean time from submission to finish, over finished jobs",
    "jct_over_bound": "Mean JCT over a bound that no policy can beat; 1 is the best possible",
    "jct_p50_s": "Half of the finished jobs took at most this long from submission to finish",
    "jct_p99_s": "99 % of the finished jobs took at most this long from submission to finish",
    "wait_mean_s": "Mean time that finished jobs held no GPU, before and between their runs",
    "wait_p99_s": "99 % of the finished jobs held no GPU for at most this long",
    "queue_mean_s": "Mean time from submission to the first GPUs",
    "makespan_s": "Time from the first submission to the last finish",
    "makespan_over_bound": "Makespan over a bound that no policy can beat; 1 is the best possible",
    "deadline_met_ratio": "Share of the submitted jobs with a deadline that finished in time",
    "deadlines_of_bound": "Deadlines met, as a share of those that any policy could meet at most",
    "rejected": "Jobs that the policy declined, or that can never run here",
    "unfinished": "Jobs that were left when the run ended",
    "offered_load": "GPU time that jobs ask for, over the GPU time of the cluster while jobs arrive",
    "gpu_allocated_arrival_ratio": "Share of GPU time held by jobs while jobs arrive",
    "gpu_allocated_ratio": "Share of GPU time held by jobs until the last finish",
    "gpu_useful_ratio": "Share of GPU time in which jobs made progress: held, less overheads and lost work",
    "disruptions": "Times that running jobs were stopped or changed in size",
    "cost_usd": "Price of the GPUs that jobs held",
    "slowdown": "Time from submission to finish, over the run time alone on the requested GPUs",
    "queueing": "Time from submission to the first GPUs",
    "jct": "Job completion time: from submission to finish",
    "lateness": "How long after its deadline a job finished",
    "mfu": "Model FLOPs utilisation: useful floating-point operations over the peak of the GPUs",
    "bubble": "Share of an iteration in which pipeline stages wait for each other",
    "comm": "Share of an iteration spent in communication that computation does not hide",
    "tp": "Tensor parallelism: GPUs that share each layer",
    "pp": "Pipeline parallelism: stages, one after another",
    "dp": "Data parallelism: copies that train on different samples",
}
