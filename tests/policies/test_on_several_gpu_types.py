"""Every registered policy on a cluster of two GPU types: it says that it plans with one, or it keeps every
rule and serves every job.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

import clustersim
from clustersim.audit import check_run_folder
from clustersim.rundir import write_run
from clustersim.runs import find_policy, list_policies
from itertime.errors import UserError
from tests.places import ROOT
from traces.job import Job


def jobs() -> list[Job]:
    random, now, made = Random(4), 0.0, []
    for i in range(30):
        now += random.choice((0.0, random.expovariate(1 / 200)))
        gpus, iterations = random.choice((1, 2, 4, 8, 16)), random.randint(5, 100)
        facts = {"model": "gpt3-1.3b", "global_batch": 64, "gpus": gpus, "iterations": iterations}
        deadline_s = now + random.uniform(300, 20_000) if i % 3 else None
        made.append(Job(str(i), now, f"tenant{i % 3}", deadline_s=deadline_s, **facts))
    return made


@pytest.mark.parametrize("policy", [info.name for info in list_policies()])
def test_a_policy_keeps_every_rule_on_several_gpu_types(policy: str, tmp_path: Path) -> None:
    cluster = tmp_path / "two.yaml"
    cluster.write_text(
        "groups:\n  - {name: a, gpu_type: a100, nodes: 2}\n  - {name: h, gpu_type: h100, nodes: 1}\n"
    )
    if find_policy(policy).one_gpu_type:
        with pytest.raises(UserError, match="plans with one GPU type, the cluster has a100, h100"):
            clustersim.run(jobs(), policy, cluster=str(cluster))
        return
    run = clustersim.run(jobs(), policy, cluster=str(cluster))
    assert {job.state for job in run.jobs} <= {"finished", "rejected"}
    assert sum(job.state == "finished" for job in run.jobs) >= 20
    write_run(tmp_path / "run", run)
    findings = check_run_folder(tmp_path / "run")
    assert not [finding for finding in findings if finding.violations]


def test_the_docs_name_the_policies_that_refuse() -> None:
    text = (ROOT / "docs" / "clusters.md").read_text()
    paragraph = next(part for part in text.split("\n\n") if "`one_gpu_type = True`" in part)
    names = " ".join(paragraph.split()).split(" plan with ")[0]
    refusing = {info.name for info in list_policies() if find_policy(info.name).one_gpu_type}
    assert {name.strip(" `") for name in names.replace(" and ", ",").split(",")} == refusing
