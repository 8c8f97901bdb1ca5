"""The command of `itertime` that predicts a plan of a run again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from itertime.errors import UserError

if TYPE_CHECKING:
    from clustersim.cluster import Pool
    from clustersim.records import PlanRecord
    from clustersim.rundir import StreamedRun

__all__ = ["replay_command"]


def replay_command(run: StreamedRun, plan: PlanRecord) -> str:
    """The command line that predicts the iteration of a plan of a run, on its nodes; "" where these have no
    system, or one that cannot be loaded any more.
    """
    from clustersim.records import plan_of_label
    from itertime.commands.layout import predict_command
    from itertime.commands.options import Subject

    key, cluster = plan.key, run.cluster
    pool = next(pool for pool in cluster.pools if not key.gpu_type or pool.gpu_type == key.gpu_type)
    spec = plan_of_label(key.plan, plan.global_batch)
    if spec is None or pool.system is None:
        return ""
    try:
        settings = _settings(pool)
    except UserError:
        return ""
    subject = Subject(
        model=_model_file(run, key.model),
        system=pool.system,
        global_batch=plan.global_batch,
        seq_len=key.seq_len,
        framework=key.framework or None,
        settings=settings,
    )
    return predict_command(subject, spec, run.manifest["memory_headroom"])


def _model_file(run: StreamedRun, name: str) -> str:
    """The name of a shipped model, or the file of a user's."""
    models = run.manifest.get("models")
    entry = models.get(name) if isinstance(models, Mapping) else None
    return str(entry["files"][0]["path"]) if entry else name


def _settings(pool: Pool) -> list[str]:
    """What nodes have that their system states otherwise: a part of its GPUs and NICs, or other NICs."""
    from itertime.spec import load_system

    system = load_system(pool.system or "")
    nic = pool.nic_bytes_per_s or system.nic_bytes_per_s * pool.gpus_per_node / system.gpus_per_node
    values = {"gpus_per_node": pool.gpus_per_node, "nic_bytes_per_s": nic}
    return [f"system.{key}={value!r}" for key, value in values.items() if value != getattr(system, key)]
