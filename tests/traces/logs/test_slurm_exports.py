"""Exports of one time of a real Slurm, by every command, are the same jobs, whatever the order of rows."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.traces.importing import import_log
from traces import Job
from traces.attempts import parse_attempts

RUNS = ("agesize-1", "backfill-1", "fairshare-1", "fifo-1", "limits-1", "preempt-1", "site-1", "tiers-1")
LAST_RUNS = ("sacct.txt", "sacct-steps.txt", "scontrol-jobs-end.txt")
ALL_RUNS = ("sacct-duplicates.txt", "sacct.json", "jobcomp.txt")
NOT_OF_EVERY_EXPORT = ("priority", "depends", "array_id", "array_limit")


def gpu_seconds(job: Job) -> float:
    runs = parse_attempts(job.attempts) if job.attempts else ()
    return job.gpus * (sum(run.run_s for run in runs) if runs else job.duration_s)


def shuffled(path: Path, folder: Path) -> Path:
    """The export with its rows in another order."""
    text, rng = path.read_text(), random.Random(7)
    if path.suffix == ".json":
        content: dict[str, Any] = json.loads(text)
        rng.shuffle(content["jobs"])
        text = json.dumps(content)
    else:
        between = "\n\n" if "scontrol" in path.name else "\n"
        rows = [row.strip("\n") for row in text.split(between) if row.strip()]
        head, rows = (rows[:1], rows[1:]) if path.name.startswith("sacct") else ([], rows)
        rng.shuffle(rows)
        text = between.join([*head, *rows]) + "\n"
    (folder / path.name).write_text(text)
    return folder / path.name


def told(job: Job, file: str) -> str:
    """What every export states of a job; jobcomp has numbers for the ids of tasks."""
    values = {name: getattr(job, name) for name in job.__slots__ if name not in NOT_OF_EVERY_EXPORT}
    return str(values | ({"job_id": ""} if file == "jobcomp.txt" else {}))


@pytest.mark.parametrize("run", RUNS)
def test_every_export_of_a_real_slurm_is_the_same_jobs(run: str, shared_dir: Path, tmp_path: Path) -> None:
    """An export of last runs differs by the jobs that ran before, and says how many they are."""
    folder = shared_dir / "slurm" / "reference" / run
    jobs, _ = import_log(folder / "sacct-duplicates.txt")
    requeued = {job.job_id for job in jobs if job.attempts}
    for file in (*ALL_RUNS, *LAST_RUNS):
        exported_jobs, report = import_log(folder / file)
        assert import_log(shuffled(folder / file, tmp_path))[0] == exported_jobs
        ids = requeued if file in LAST_RUNS else set()
        warned = [text for text in report["warnings"] if f"{len(ids)} jobs were requeued" in text]
        assert len(warned) == bool(ids)
        assert len(exported_jobs) == len(jobs)
        if not ids:
            assert sorted(told(job, file) for job in exported_jobs) == sorted(told(job, file) for job in jobs)
        assert report["gpu_hours"]["all"] * 3600 == pytest.approx(sum(map(gpu_seconds, exported_jobs)))
    if run == "preempt-1":
        assert sum(map(gpu_seconds, jobs)) == 24_230
        assert sum(map(gpu_seconds, import_log(folder / "sacct.txt")[0])) == 21_786
    if run == "site-1":
        assert {job.array_limit for job in jobs if job.array_id} == {2, 20}
        assert {job.job_id: job.depends for job in jobs}["41"] == "afterok:36"
        assert sum(job.eligible_s > job.submit_s for job in jobs) > 10
