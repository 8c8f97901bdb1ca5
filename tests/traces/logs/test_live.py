"""Live state by hand: what schedulers print of their jobs, and the jobs that they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from itertime.errors import TableError, UserError
from tests.traces.importing import imported, write
from tests.traces.logs.live_samples import (
    AT,
    SQUEUE,
    kube,
    kube_list,
    owned,
    pod,
    pod_spec,
    scontrol,
    slurm_job,
    slurm_json,
    volcano_job,
    when,
    workload,
)
from traces import Job
from traces.logs.importer import read
from traces.logs.log import Log, LoggedJob, ReadOptions
from traces.logs.source import open_log

NOON = 1714564800.0  # 2024-05-01 12:00 UTC


def state(folder: Path, text: str, **options: Any) -> Log:
    """The jobs as they stand, before those that have not ended get a run time."""
    with open_log(write(folder / "state", text)) as source:
        return read(source, ReadOptions(**options))


def facts(job: LoggedJob) -> tuple[Any, ...]:
    start_s, end_s = job.logged_start_s, job.logged_end_s
    return (
        job.job_id,
        job.state,
        job.submit_s - NOON,
        None if start_s is None else start_s - NOON,
        None if end_s is None else end_s - NOON,
        job.gpus,
        job.duration_s,
        job.estimate_s,
    )


def reasons(log: Log) -> list[str]:
    return [row.reason for row in log.dropped]


def test_squeue_states_who_waits_and_since_when(tmp_path: Path) -> None:
    rows = [
        f"17|vision|ann|gpu|high|RUNNING|{AT}0|{AT}5|{AT}9|1-00:00:00|2|gres:gpu:a100:4|500|None",
        f"18|nlp|bob|gpu|low|PD|{AT}1|{AT}9|N/A|90:00|1|gres/gpu:2|7|(Resources)",
        f"19|nlp|bob|gpu|low|PENDING|{AT}2|N/A|N/A|UNLIMITED|1|N/A|7|Priority",
        f"20|nlp|bob|gpu|low|COMPLETED|{AT}2|{AT}3|{AT}9|5|1|gpu:1|7|None",
        "21|nlp|bob",
        "22|nlp|bob|gpu|low|PENDING|N/A|N/A|N/A|1:00:00|1|gpu:1|7|Priority",
        f"23|nlp|bob|gpu|low|CANCELLED|{AT}2|N/A|{AT}9|5|1|gpu:1|7|None",
    ]
    log = state(tmp_path, SQUEUE + "\n".join(rows))
    assert [facts(job) for job in log.jobs] == [
        ("17", "RUNNING", 0.0, 5.0, None, 8, None, 86400.0),
        ("18", "PENDING", 1.0, None, None, 2, None, 5400.0),
        ("20", "COMPLETED", 2.0, 3.0, 9.0, 1, 6.0, 300.0),
    ]
    first, second = log.jobs[:2]
    assert (first.gpu_type, first.tenant, first.user, first.partition) == ("a100", "vision", "ann", "gpu")
    assert (first.qos, first.priority, first.reason) == ("high", 500, None)
    assert second.reason == "Resources"
    assert reasons(log) == [
        "names no GPU: a job without GPUs",
        "has 3 cells where the header has 14",
        "states no time of submission",
        "ended without having run",
    ]
    assert [row.line for row in log.dropped] == [4, 6, 7, 8]


def test_squeue_in_columns_of_white_space_may_have_reasons_of_several_words(tmp_path: Path) -> None:
    rows = (
        "               JOBID ST         SUBMIT_TIME  TIME_LIMIT TRES_ALLOC          NODELIST(REASON)\n"
        f"                  17  R {AT}0  1-00:00:00 cpu=8,gres/gpu=4 n[1-2]\n"
        f"          18_[2-6:2%1] PD {AT}0       10:00 gres/gpu=1 (ReqNodeNotAvail, Reserved for repair)\n"
    )
    log = state(tmp_path, rows)
    assert [(job.job_id, job.gpus, job.estimate_s) for job in log.jobs] == [
        ("17", 4, 86400.0), ("18_2", 1, 600.0), ("18_4", 1, 600.0), ("18_6", 1, 600.0),
    ]  # fmt: skip
    assert log.jobs[1].reason == "ReqNodeNotAvail, Reserved for repair"


def test_squeue_without_options_is_refused_with_the_command_that_says_more(tmp_path: Path) -> None:
    text = (
        "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n"
        "                17       gpu    train      ann  R       5:00      1 n1\n"
    )
    with pytest.raises(TableError, match=r"missing column SUBMIT_TIME, TRES_ALLOC .*squeue -a --json"):
        state(tmp_path, text)


@pytest.mark.parametrize(
    ("limit", "seconds"),
    [("90", 5400), ("1:30", 90), ("90:00", 5400), ("2:00:05", 7205), ("1-2", 93600), ("1-02:03:04", 93784),
     ("NOT_SET", None)],
)  # fmt: skip
def test_limits_of_slurm(tmp_path: Path, limit: str, seconds: float | None) -> None:
    assert state(tmp_path, scontrol(TimeLimit=limit)).jobs[0].estimate_s == seconds


@pytest.mark.parametrize("limit", ["soon", "1:2:3:4", "1-2:3:4:5", "-1", "0"])
def test_what_is_no_limit_of_slurm(tmp_path: Path, limit: str) -> None:
    log = state(tmp_path, scontrol() + scontrol(JobId="18", TimeLimit=limit))
    assert [row.kind.partition(":")[0] for row in log.dropped] == ["time limit"]


def test_an_array_of_unlisted_tasks_is_dropped_with_the_remedy(tmp_path: Path) -> None:
    row = f"{{}}|v|a|gpu|high|PENDING|{AT}0|N/A|N/A|10:00|1|gpu:1|5|Priority\n"
    log = state(tmp_path, SQUEUE + row.format("5") + row.format("6_[1-3,...]") + row.format("7_[0-999999]"))
    assert reasons(log) == [
        "is an array whose tasks are not listed; squeue -r lists them",
        "is an array of more than 100,000 tasks",
    ]


def test_scontrol_states_jobs_in_records(tmp_path: Path) -> None:
    text = (
        scontrol()
        + scontrol(JobId="18", ArrayJobId="18", ArrayTaskId="1-2%1", JobState="PENDING", Reason="Priority",
                   TimeLimit="UNLIMITED", StartTime="Unknown", EndTime="Unknown")
        + scontrol(JobId="19", JobState="TIMEOUT", EndTime="2024-05-01T12:10:05",
                   AllocTRES="cpu=8,gres/gpu=4,gres/gpu:a100=4")
        + scontrol(JobId="20", ReqTRES="cpu=8", TresPerNode="gres:gpu:2", NumNodes="3-3").replace(
            "\n   ", " ")
        + scontrol(JobId="21", ReqTRES="cpu=8")
    )  # fmt: skip
    log = state(tmp_path, text)
    assert [facts(job) for job in log.jobs] == [
        ("17", "RUNNING", 0.0, 5.0, None, 1, None, 600.0),
        ("18_1", "PENDING", 0.0, None, None, 1, None, None),
        ("18_2", "PENDING", 0.0, None, None, 1, None, None),
        ("19", "TIMEOUT", 0.0, 5.0, 605.0, 4, 600.0, 600.0),
        ("20", "RUNNING", 0.0, 5.0, None, 6, None, 600.0),
    ]
    assert log.jobs[3].gpu_type == "a100"
    assert {job.user for job in log.jobs} == {"ann"}
    assert reasons(log) == ["names no GPU: a job without GPUs"]
    assert log.dropped[0].line == text[: text.index("JobId=21")].count("\n") + 1


def test_json_of_slurm_states_numbers_as_objects_or_as_numbers(tmp_path: Path) -> None:
    never = {"set": False, "infinite": False, "number": 0}
    text = slurm_json(
        slurm_job(tres_alloc_str="cpu=8,gres/gpu=8,gres/gpu:h100=8"),
        slurm_job(job_id=18, job_state="PENDING", state_reason="Resources", start_time=0, end_time=0,
                  time_limit={"set": False, "infinite": True, "number": 0}, submit_time=1714564801),
        slurm_job(job_id=19, array_job_id={"set": True, "number": 18}, array_task_id=4,
                  job_state=["COMPLETED"]),
        slurm_job(job_id=20, array_job_id=18, array_task_string="5-6", job_state=["PENDING"],
                  start_time=never, priority=never),
        slurm_job(job_id=21, submit_time=never),
        7,
        slurm_job(job_id=None),
    )  # fmt: skip
    log = state(tmp_path, text)
    assert [facts(job) for job in log.jobs] == [
        ("17", "RUNNING", 0.0, 5.0, None, 8, None, 600.0),
        ("18", "PENDING", 1.0, None, None, 1, None, None),
        ("18_4", "COMPLETED", 0.0, 5.0, 605.0, 1, 600.0, 600.0),
        ("18_5", "PENDING", 0.0, None, None, 1, None, 600.0),
        ("18_6", "PENDING", 0.0, None, None, 1, None, 600.0),
    ]
    assert [job.reason for job in log.jobs[:2]] == [None, "Resources"]
    assert reasons(log) == [
        "states no time of submission",
        "is not a job: a job is a JSON object",
        "states no job_id",
    ]


def test_json_of_sacct(tmp_path: Path) -> None:
    def job(job_id: int, state: str, end: int, **more: Any) -> dict[str, Any]:
        tres = [
            {"type": "cpu", "name": "", "id": 1, "count": 64},
            {"type": "gres", "name": "gpu", "id": 1001, "count": 8},
            {"type": "gres", "name": "gpu:a100", "id": 1002, "count": 8},
        ]
        limit = {"set": True, "infinite": False, "number": 30}
        times = {"elapsed": 60, "submission": 1714564800, "start": 1714564805, "end": end, "limit": limit}
        return {
            "job_id": job_id, "account": "vision", "user": "ann", "partition": "gpu", "qos": "high",
            "array": {"job_id": 0, "task_id": {"set": False, "infinite": False, "number": 0}, "task": ""},
            "priority": {"set": True, "infinite": False, "number": 7}, "time": times,
            "state": {"current": [state], "reason": "None"}, "tres": {"allocated": tres, "requested": tres},
        } | more  # fmt: skip

    task = {"job_id": 18, "task_id": {"set": True, "infinite": False, "number": 3}, "task": ""}
    text = slurm_json(
        job(17, "COMPLETED", 1714564865),
        job(19, "RUNNING", 0, array=task),
        job(20, "COMPLETED", 1714564865, tres={"allocated": [], "requested": []}),
    )
    log = state(tmp_path, text)
    assert [facts(one) for one in log.jobs] == [
        ("17", "COMPLETED", 0.0, 5.0, 65.0, 8, 60.0, 1800.0),
        ("18_3", "RUNNING", 0.0, 5.0, None, 8, None, 1800.0),
    ]
    assert (log.jobs[0].gpu_type, log.jobs[0].priority, log.jobs[0].user) == ("a100", 7, "ann")
    assert reasons(log) == ["names no GPU: a job without GPUs"]


def test_jobs_that_have_not_ended_run_for_their_limit_or_are_dropped(tmp_path: Path) -> None:
    text = slurm_json(
        slurm_job(),
        slurm_job(job_id=18, time_limit=None, job_state=["PENDING"]),
        slurm_job(job_id=19, job_state=["FAILED"], end_time=1714564865),
    )
    jobs, report = imported(tmp_path, text)
    assert [(job.job_id, job.duration_s, job.logged_start_s) for job in jobs] == [
        ("17", 600.0, 5.0),
        ("19", 60.0, 5.0),
    ]
    assert report["dropped_by_reason"] == {"has not ended, and states no time limit": 1}
    assert report["warnings"] == ["1 jobs had not ended: their run times are their time limits"]


def test_dates_of_slurm_are_of_the_zone_that_the_user_names(tmp_path: Path) -> None:
    log = state(tmp_path, scontrol(), time_zone="Asia/Shanghai", tenant="qos")
    assert (log.jobs[0].submit_s, log.jobs[0].tenant) == (NOON - 8 * 3600, "high")
    assert any("Asia/Shanghai" in text for text in log.assumptions)
    with pytest.raises(UserError, match="unknown tenant of a scontrol log 'queue'; known: account, "):
        state(tmp_path, scontrol(), tenant="queue")


def test_workloads_of_kueue(tmp_path: Path) -> None:
    admitted, finished = when("Admitted", "12:01:00"), when("Finished", "12:11:00", reason="JobFinished")
    assignment = [{"name": "main", "flavors": {"cpu": "any", "nvidia.com/gpu": "h100"},
                   "resourceUsage": {"cpu": "8", "nvidia.com/gpu": "24"}}]  # fmt: skip
    partly = workload("partly", admitted, podSets=[
        {"name": "main", "count": 4, "minCount": 2, "template": {"spec": pod_spec(8)}},
    ])  # fmt: skip
    partly["status"]["admission"] = {"clusterQueue": "team-a", "podSetAssignments": assignment}
    text = kube_list(
        workload("done", when("QuotaReserved", "12:00:30"), admitted, finished),
        partly,
        workload("waits", when("QuotaReserved", "12:00:05", "False", message="insufficient quota"), gpus=8,
                 maximumExecutionTimeSeconds=3600, priority=None),
        workload("stopped", active=False),
        workload("evicted", when("Evicted", "12:05:00"), when("Admitted", "12:05:00", "False")),
        workload("cpu", gpus=None),
        workload("never", finished),
        pod("a", "Running", ("12:01:00", None)),
    )  # fmt: skip
    log = state(tmp_path, text)
    assert [facts(job) for job in log.jobs] == [
        ("team/done", "JobFinished", 0.0, 60.0, 660.0, 1, 600.0, None),
        ("team/partly", "Admitted", 0.0, 60.0, None, 24, None, None),
        ("team/waits", "Pending", 0.0, None, None, 8, None, 3600.0),
        ("team/stopped", "Inactive", 0.0, None, None, 1, None, None),
        ("team/evicted", "Pending", 0.0, None, None, 1, None, None),
    ]
    done, partly_read, waits = log.jobs[:3]
    assert (done.tenant, done.priority, done.min_gpus) == ("q", 5, None)
    assert (partly_read.gpu_type, partly_read.partition, partly_read.min_gpus) == ("h100", "team-a", 16)
    assert (waits.reason, waits.priority) == ("insufficient quota", 0)
    assert reasons(log) == [
        "asks for no GPU",
        "finished without having been admitted",
        "is of kind Pod, not Workload",
    ]
    assert state(tmp_path, text, tenant="namespace").jobs[0].tenant == "team"


def test_one_object_is_a_log_too(tmp_path: Path) -> None:
    text = json.dumps(workload("a", when("Admitted", "12:01:00"), when("Finished", "12:11:00")))
    jobs, report = imported(tmp_path, text)
    assert (report["format"], jobs[0].duration_s) == ("kueue", 600.0)


def test_pods_of_one_controller_are_a_job(tmp_path: Path) -> None:
    """Two pods of a job run at once, one of them is tried again: the job has the GPUs of two pods."""
    text = kube_list(
        pod("a-0", "Succeeded", ("12:01:00", "12:11:00"), 4, **owned("PyTorchJob", "a")),
        pod("web-1", "Running", ("12:01:00", None), 1, **owned("ReplicaSet", "web")),
        pod("web-2", "Running", ("12:01:00", None), 1, **owned("ReplicaSet", "web")),
        pod("a-1", "Failed", ("12:01:00", "12:06:00"), 4, **owned("PyTorchJob", "a")),
        pod("a-2", "Succeeded", ("12:06:00", "12:11:00"), 4, **owned("PyTorchJob", "a")),
        pod("a-launcher", "Succeeded", ("12:00:30", "12:11:00"), None, **owned("PyTorchJob", "a")),
        pod("b-0", "Running", ("12:02:00", None), 8, **owned("Job", "b")),
        pod("b-1", "Pending", (None, None), 8, **owned("Job", "b")),
        pod("c", "Pending", (None, None), 2),
        pod("d", "Failed", (None, None), 2),
        pod("e", "Running", ("12:01:00", None), None),
    )
    log = state(tmp_path, text)
    assert [facts(job) for job in log.jobs] == [
        ("team/PyTorchJob/a", "Succeeded", 0.0, 60.0, 660.0, 8, 600.0, None),
        ("team/web-1", "Running", 0.0, 60.0, None, 1, None, None),
        ("team/web-2", "Running", 0.0, 60.0, None, 1, None, None),
        ("team/Job/b", "Running", 0.0, 120.0, None, 16, None, None),
        ("team/c", "Pending", 0.0, None, None, 2, None, None),
    ]
    assert (log.jobs[0].tenant, log.jobs[4].reason) == ("team", "0/4 nodes are available")
    assert reasons(log) == ["ended, and states no run time", "asks for no GPU"]


def test_gpus_of_a_pod_are_those_of_its_containers_or_of_its_largest_init_container(tmp_path: Path) -> None:
    def container(gpus: Any, how: str = "requests", name: str = "nvidia.com/gpu") -> dict[str, Any]:
        return {"resources": {how: {name: gpus}}}

    specs = {
        "together": {"containers": [container(2), container("1", "limits")]},
        "prepares": {"containers": [container(2)], "initContainers": [container(4), container(1)]},
        "sidecar": {
            "containers": [container(2)],
            "initContainers": [container(1) | {"restartPolicy": "Always"}],
        },
        "slices": {"containers": [container(3, name="nvidia.com/mig-1g.5gb")]},
        "amd": {"containers": [container(8, name="amd.com/gpu")], "activeDeadlineSeconds": 60, "priority": 9},
        "wrong": {"containers": [container("half")]},
        "below": {"containers": [container(-1)]},
    }
    status = {"phase": "Pending"}
    log = state(tmp_path, kube_list(*(kube("v1", "Pod", name, spec, status) for name, spec in specs.items())))
    assert [(job.job_id, job.gpus, job.part_of_gpu) for job in log.jobs] == [
        ("team/together", 3, False),
        ("team/prepares", 4, False),
        ("team/sidecar", 3, False),
        ("team/slices", 3, True),
        ("team/amd", 8, False),
    ]
    assert (log.jobs[4].estimate_s, log.jobs[4].priority) == (60.0, 9)
    assert reasons(log) == [
        "nvidia.com/gpu=half: is not a number; write a plain number such as 3600 or 0.5",
        "nvidia.com/gpu=-1: must not be negative",
    ]


def test_jobs_and_pod_groups_of_volcano(tmp_path: Path) -> None:
    tasks = [
        {"name": "master", "replicas": 1, "template": {"spec": pod_spec(None)}},
        {"name": "worker", "replicas": 4, "template": {"spec": pod_spec(
            8, nodeSelector={"nvidia.com/gpu.product": "H100"})}},
    ]  # fmt: skip
    waits = volcano_job("waits", "Pending", "12:00:02", tasks=tasks, minAvailable=3, runningEstimate="1h30m")
    waits["status"]["state"]["message"] = "queue is full"
    short = volcano_job("short", "Failed", "12:10:00")
    short["status"]["runningDuration"] = "9m30s"
    text = kube_list(
        volcano_job("done", "Completed", "12:11:00", ("Pending", "12:00:01"), ("Running", "12:01:00")),
        waits,
        volcano_job("runs", "Running", "12:03:00"),
        short,
        volcano_job("never", "Aborted", "12:03:00"),
        kube(
            "scheduling.volcano.sh/v1beta1", "PodGroup", "done-1", {"queue": "q"}, {}, **owned("Job", "done")
        ),
    )
    log = state(tmp_path, text)
    assert [facts(job) for job in log.jobs] == [
        ("team/done", "Completed", 0.0, 60.0, 660.0, 1, 600.0, None),
        ("team/waits", "Pending", 0.0, None, None, 32, None, 5400.0),
        ("team/runs", "Running", 0.0, 180.0, None, 1, None, None),
        ("team/short", "Failed", 0.0, 30.0, 600.0, 1, 570.0, None),
    ]
    assert (log.jobs[1].min_gpus, log.jobs[1].gpu_type, log.jobs[1].reason) == (16, "H100", "queue is full")
    assert reasons(log) == [
        "ended without having run",
        "is the pod group of a job, which is listed itself",
    ]


def test_pod_groups_alone_state_their_least_resources(tmp_path: Path) -> None:
    def group(name: str, phase: str, *conditions: Any, resource: str = "nvidia.com/gpu") -> Any:
        spec = {"minMember": 2, "minResources": {"cpu": "9", resource: "16"}, "queue": "q"}
        status = {"phase": phase, "conditions": list(conditions)}
        return kube("scheduling.volcano.sh/v1beta1", "PodGroup", name, spec, status)

    text = kube_list(
        group("a", "Running", when("Scheduled", "12:00:20")),
        group("b", "Inqueue", when("Unschedulable", "12:00:09", message="2/4 tasks")),
        group("c", "Completed"),
        group("d", "Pending", resource="memory"),
    )
    log = state(tmp_path, text)
    assert [facts(job)[:6] for job in log.jobs] == [
        ("team/a", "Running", 0.0, 20.0, None, 16),
        ("team/b", "Inqueue", 0.0, None, None, 16),
    ]
    assert [job.reason for job in log.jobs] == [None, "2/4 tasks"]
    assert reasons(log) == ["has ended, and a pod group does not say when", "asks for no GPU"]


def test_jobs_of_live_state_keep_the_least_gpus_in_the_trace(tmp_path: Path) -> None:
    waits = volcano_job("a", "Pending", "12:00:02", minAvailable=1, runningEstimate="60s", tasks=[
        {"name": "worker", "replicas": 2, "template": {"spec": pod_spec(4)}}])  # fmt: skip
    jobs, _ = imported(tmp_path, kube_list(waits))
    assert jobs == [
        Job("team/a", 0.0, tenant="q", gpus=8, min_gpus=4, duration_s=60.0, state="Pending", estimate_s=60.0)
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"jobs": [{"job_state": "x"}', "a comma or ] is missing between jobs"),
        ('{"jobs": {"job_state": "x"}}', "states no job_id"),
        ('{"meta" {}, "jobs": [{"job_state": 1}]}', "a colon is missing after a key"),
        ('{"meta": {}; "jobs": [{"job_state": 1}]}', "the object does not end"),
        ('{"a": NaN, "jobs": [{"job_state": 1}]}', "NaN is no JSON number"),
        (kube_list(workload("a"))[:-500], "is not JSON"),
        (kube_list(workload("a", gpus=None)), "holds no usable job"),
    ],
    ids=range(7),
)
def test_json_that_is_no_list_of_jobs(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(TableError, match=says):
        imported(tmp_path, text)


def test_the_line_of_an_object_is_told(tmp_path: Path) -> None:
    text = kube_list(workload("a", when("Admitted", "12:01:00")), workload("b", gpus=None))
    log = state(tmp_path, text)
    before = text[: text.index('"name": "b"')]
    assert log.dropped[0].line == before[: before.rindex('"apiVersion"')].count("\n")
    assert log.dropped[0].job_id == "team/b"


def test_times_that_are_no_dates_are_dropped_with_their_names(tmp_path: Path) -> None:
    wrong = workload("b")
    wrong["metadata"]["creationTimestamp"] = "noon"
    nameless = workload("c")
    del nameless["metadata"]["name"]
    log = state(
        tmp_path,
        kube_list(workload("a"), wrong, nameless, 5, kube("kueue.x-k8s.io/v1", "Workload", "d", 5, 5)),
    )
    assert [job.job_id for job in log.jobs] == ["team/a"]
    assert reasons(log)[0].startswith("creationTimestamp=noon: is neither a number of seconds nor a date")
    assert reasons(log)[1:] == ["has no metadata.name", "is of kind None, not Workload", "asks for no GPU"]
