"""The command of `itertime` that predicts a plan of a run again, and what it predicts now."""

from __future__ import annotations

from collections.abc import Mapping
from math import isclose
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from clustersim.records import PlanRecord
    from clustersim.rundir import StreamedRun

__all__ = ["Replay", "replay_of"]

_ROUNDING = 1e-6  # of seconds in tables


class Replay(NamedTuple):
    """The command line that predicts the iteration of a plan again, the seconds that it predicts, and those
    of the run. They differ where the program, or a file of the user, is another than it was then.
    """

    command: str
    iteration_s: float
    recorded_s: float

    @property
    def differs(self) -> bool:
        """Whether the plan takes other seconds now."""
        return not isclose(self.iteration_s, self.recorded_s, rel_tol=_ROUNDING, abs_tol=_ROUNDING)


def replay_of(run: StreamedRun, plan: PlanRecord) -> Replay | None:
    """How to predict the iteration of a plan of a run again, on its nodes; None where these have no system.

    Raises UserError where a file of the run cannot be loaded any more.
    """
    from clustersim.records import plan_of_label
    from clustersim.speed import node_changes
    from itertime import PlanBatch, evaluate
    from itertime.commands.layout import predict_command
    from itertime.commands.options import Subject, changed_model, system_of
    from itertime.spec import at_depth, depth_of, model_reference

    key, cluster = plan.key, run.cluster
    pool = next(pool for pool in cluster.pools if not key.gpu_type or pool.gpu_type == key.gpu_type)
    spec = plan_of_label(key.plan, plan.global_batch)
    if spec is None or pool.system is None:
        return None
    layers = depth_of(key.model)
    depth = [] if layers is None else [f"model.layers={layers}"]
    subject = Subject(
        model=_model_file(run, at_depth(key.model, None)),
        system=pool.system,
        global_batch=plan.global_batch,
        seq_len=key.seq_len,
        framework=key.framework or None,
        settings=[f"system.{name}={value!r}" for name, value in node_changes(pool).items()] + depth,
    )
    model = changed_model(model_reference(subject.model), subject.seq_len, None, depth)
    system = system_of(pool.system, subject.settings, subject.framework)
    command = predict_command(subject, spec, run.manifest["memory_headroom"])
    seconds = evaluate(model, PlanBatch.of([spec]), system).iteration_s
    return Replay(command, float(seconds[0]), plan.iteration_s)


def _model_file(run: StreamedRun, name: str) -> str:
    """The name of a shipped model, or the file of a user's."""
    models = run.manifest.get("models")
    entry = models.get(name) if isinstance(models, Mapping) else None
    return str(entry["files"][0]["path"]) if entry else name
