"""The GPU time of runs in which nodes fail. What their commands say is a session."""

from __future__ import annotations

from pathlib import Path

import pytest

import clustersim
from clustersim.analysis import gpu_time

TRACE = "".join(
    ["job_id,submit_s,model,gpus,global_batch,iterations,duration_s,state\n"]
    + [f"m{i},{600 * i},megatron-1.7b,{8 << i % 2},512,{2000 + 500 * i},,\n" for i in range(8)]
    + [f"d{i},{900 * i},,{1 << i % 4},,,{9000 + 700 * i},{'Failed' * (i == 2)}\n" for i in range(6)]
)


@pytest.mark.parametrize("policy", ["fifo", "elasticflow"])
def test_the_gpu_time_of_the_report_is_whole(policy: str, tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text(TRACE)
    run = clustersim.run(
        tmp_path / "trace.csv", policy, cluster="n4g8", seed=3,
        failures={"mtbf_gpu_h": 60, "repair_scale": 0.1, "spare_nodes": 1, "end_as_logged": True},
        overheads={"storage_shared": True, "storage_bytes_per_s": 2e9},
        calendar=[{"at_s": 5000, "maintenance": "0-1", "for_s": 900}],
    )  # fmt: skip
    assert {"node_down", "node_up", "interrupt", "restart", "fail"} <= {event.event for event in run.events}
    assert run.summary["interruptions"] == sum(job.interruptions for job in run.jobs) > 3
    split = gpu_time(run)
    assert split is not None
    assert sum(split.seconds.values()) == pytest.approx(split.total)
    overhead_gpu_s, lost_gpu_s = (
        sum(getattr(job, name) for job in run.jobs) for name in ("overhead_gpu_s", "lost_work_gpu_s")
    )
    assert split.seconds["lost"] == pytest.approx(lost_gpu_s, rel=1e-3)
    assert split.seconds["overhead"] == pytest.approx(overhead_gpu_s, rel=1e-3)
    assert run.summary["lost_gpu_h"] == pytest.approx((overhead_gpu_s + lost_gpu_s) / 3600)
    assert split.seconds["down"] > 0
