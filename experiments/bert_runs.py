"""Trainings of BERT as its submitters describe them, for experiments/bert.py: the ideas of Samsung's one by
one, NVIDIA's way from 8 to 4,320 GPUs, and measured rows beside their predictions.

A training becomes a plan and a system as a row of a BERT table does (`itertime.calibration.bert_run`): the
study predicts what `itertime validate` predicts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache

from itertime import Plan, System, load_model, predict
from itertime.calibration import Cells
from itertime.calibration.bert_run import bert_plans, bert_run
from itertime.costs.layer import kernel_counts
from itertime.errors import UserError
from itertime.planning import Steps, TrainTime, train_time
from itertime.spec import PlanBatch, Site, load_framework, parse_options

MODEL = load_model("bert-large-wikipedia")
GPU_NAMES = {"A100": "NVIDIA A100-SXM4-80GB (400W)", "H100": "NVIDIA H100-SXM5-80GB"}
NETWORKS = {"A100": "Compute: 8x ConnectX-6 IB HDR 200Gb/s", "H100": "8x ConnectX-7 IB NDR 400Gb/s"}
STRATIFIED = "unpadded, stratified 4 bins, exchanged in the node"
SORTED, PADDED = "unpadded, all samples sorted and dealt over all ranks", "padded to 512"
PACKED = "packed: pairs in 512 tokens"
GPUS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3072, 4096, 4320)
LARGEST_UNPADDED = 512
LAMB_STEPS = Steps(338.0, 318.0, 358.0, "published: NVIDIA, MLPerf 2.0, 4,096 GPUs", ("NVIDIA",))
"""Steps of LAMB at a batch of 16,384, where the shipped table has no log: middle and range of the runs."""
ONE_STEP = Steps.given(1)
"""For a batch with which the number of steps is not known: only the seconds of one are read."""
_LARGEST_BATCH = 13_888  # with steps of LAMB in the shipped table


@dataclass(frozen=True)
class Submission:
    """A training as its submitter describes it, every GPU with `samples` a step. `train_s`, `step_s`:
    published seconds to train, and of a step; None: none is quoted.
    """

    name: str
    gpus: int
    samples: int
    work: str
    optimizer: str = "LAMB"
    gpu: str = "A100"
    network: str = ""
    source: str = "NVIDIA/"
    train_s: float | None = None
    step_s: float | None = None

    @property
    def batch(self) -> int:
        return self.gpus * self.samples

    @property
    def row(self) -> Cells:
        """The row of a BERT table that describes it. Its time is not read."""
        shape = {"layers": MODEL.layers, "hidden": MODEL.hidden, "heads": MODEL.heads, "vocab": MODEL.vocab}
        said = {"samples_per_gpu_step": self.samples, "grad_accumulation": 1, "global_batch": self.batch}
        return {
            "id": self.name,
            "duplicate_of": None,
            "gpu": GPU_NAMES[self.gpu],
            "gpus": self.gpus,
            "gpus_per_node": 8,
            "node_nic_gbps": None,
            **shape,
            **said,
            "work": self.work,
            "precision": "fp8" if self.gpu == "H100" and self.gpus == 8 else "fp16",
            "optimizer": self.optimizer,
            "cuda_graph": self.work in (PADDED, PACKED),
            "network": self.network or NETWORKS[self.gpu],
            "source": self.source,
            "iteration_s": 1.0,
        }


_FOUR = {"network": "Compute: 4x ConnectX-6 IB HDR 200Gb/s", "source": "Samsung/"}
SUBMISSIONS = (
    Submission("Samsung v1.1", 1024, 16, STRATIFIED, "Adam", **_FOUR, train_s=25.06, step_s=0.115),
    Submission("NVIDIA v1.1", 1024, 3, PADDED, train_s=33.45, step_s=0.037),
    Submission("Azure v1.1", 1024, 3, PADDED, source="Azure/", train_s=39.38),
    Submission("Samsung v2.0", 1024, 16, STRATIFIED, "Adam", **_FOUR, train_s=22.32, step_s=0.107),
    Submission("NVIDIA v2.0", 1024, 4, PACKED, train_s=25.25),
)


def trained(row: Cells, steps: Steps | None = None) -> tuple[TrainTime, float]:
    """The training of a row, its steps those of the table or given; and the seconds of a step as a row states
    them, with their share of evaluations. Of two possible precisions the faster one counts.

    Raises UserError, with the reason, for a row that cannot be expressed.
    """
    run = bert_run(row, Site())
    shipped = replace(run.model, name=MODEL.name, source=MODEL.source) == MODEL
    model = MODEL if shipped else run.model
    found = [
        train_time(model, plan, run.system, steps=steps, profile=run.profile, memory_headroom=0.0)
        for plan in bert_plans(row, run)
    ]
    best = min(found, key=lambda each: each.prediction.iteration_s)
    return best, best.prediction.iteration_s * (1 + run.evaluation)


@cache
def samsungs() -> tuple[Plan, System]:
    row = SUBMISSIONS[0].row
    run = bert_run(row, Site())
    return run.plan, run.system


@dataclass(frozen=True)
class Variant:
    """Samsung's training with other options. `free_step_s`: a step if launches of kernels took no time."""

    balance: str
    clipping: str
    optimizer: str
    step_s: float
    free_step_s: float
    train_s: float

    @property
    def key(self) -> tuple[str, str, str]:
        return self.balance, self.clipping, self.optimizer


@cache
def variant(balance: str, clipping: str, optimizer: str) -> Variant:
    """All train at a batch of 16,384: Adam with the steps of Samsung's logs, LAMB with those of NVIDIA's."""
    plan, system = samsungs()
    text = f"batching=unpadded,balance={balance},clipping={clipping},optimizer={optimizer}"
    plan = replace(plan, options=parse_options(text))
    steps = LAMB_STEPS if optimizer == "lamb" else None
    found = train_time(MODEL, plan, system, steps=steps, memory_headroom=0.0)
    free = predict(MODEL, replace(plan, cuda_graphs="full"), system, memory_headroom=0.0)
    return Variant(
        balance, clipping, optimizer, found.prediction.iteration_s, free.iteration_s, found.seconds
    )


IDEAS: tuple[tuple[str, tuple[str, str, str], tuple[str, str, str]], ...] = (
    ("samples exchanged within the node", ("drawn", "", ""), ("exchanged", "", "")),
    ("local presorting", ("drawn", "", ""), ("stratified", "", "")),
    ("presorting and exchange", ("drawn", "", ""), ("stratified-exchanged", "", "")),
    ("clipping by bucket, not before", ("", "before", ""), ("", "bucket", "")),
    ("clipping by bucket, not after", ("", "after", ""), ("", "bucket", "")),
    ("Adam, not LAMB", ("", "", "lamb"), ("", "", "fused-adam")),
    ("all together", ("drawn", "before", "lamb"), ("stratified-exchanged", "bucket", "fused-adam")),
)
"""Each idea: what it replaces and what it puts there, of balance, clipping, optimizer; "" stays as it is."""
NONE, ALL = IDEAS[-1][1:]


def gains(surroundings: tuple[str, str, str]) -> dict[str, tuple[Variant, Variant]]:
    """Each idea without and with it, all else as in `surroundings`."""

    def at(key: tuple[str, str, str]) -> Variant:
        return variant(*(own or other for own, other in zip(key, surroundings, strict=True)))

    return {name: (at(before), at(after)) for name, before, after in IDEAS}


@cache
def step_at(balance: str, layer_ms: float) -> float:
    """Seconds a step of Samsung's training with another balance, if a layer's launches take `layer_ms`."""
    plan, system = samsungs()
    plan = replace(plan, options=replace(plan.options, balance=parse_options(f"balance={balance}").balance))
    launches = replace(system.site, launch_s=system.site.launch_s * layer_ms / launches_ms())
    return predict(MODEL, plan, replace(system, site=launches), memory_headroom=0.0).iteration_s


def launches_ms() -> float:
    """Milliseconds that the launches of a layer take in Samsung's training, as its framework says."""
    plan, system = samsungs()
    framework = load_framework(system.framework)
    factors = framework.kernels, framework.backward_kernels or framework.kernels
    counts = kernel_counts(MODEL, PlanBatch.of([plan]))
    kernels = sum(factor * float(count[0]) for factor, count in zip(factors, counts, strict=True))
    return 1e3 * kernels * system.site.launch_s


@dataclass(frozen=True)
class Point:
    """Predicted seconds; `train_s` is None where the steps of the batch are not known."""

    gpu: str
    work: str
    gpus: int
    batch: int
    steps: float | None
    step_s: float
    train_s: float | None


def batch_of(gpus: int) -> int:
    """Samples of a step: 56 a GPU up to 3,072 in all, as many as submissions had; 4 a GPU beyond 1,024."""
    return min(56 * gpus, 3072) if gpus <= 1024 else 4 * gpus


@cache
def points(gpu: str, work: str) -> tuple[Point, ...]:
    """NVIDIA's way of training from 8 GPUs on, unpadded and eager or packed in one CUDA graph."""
    found = []
    for gpus in GPUS:
        batch = batch_of(gpus)
        if work == SORTED and gpus > LARGEST_UNPADDED:
            continue
        row = Submission(f"{gpus} {gpu}", gpus, batch // gpus, work, gpu=gpu).row
        steps = LAMB_STEPS if batch == 16_384 else ONE_STEP if batch > _LARGEST_BATCH else None
        training, _ = trained(row, steps)
        count, seconds = (None, None) if steps is ONE_STEP else (training.steps.count, training.seconds)
        found.append(Point(gpu, work, gpus, batch, count, training.prediction.iteration_s, seconds))
    return tuple(found)


@dataclass(frozen=True)
class Measured:
    """A row beside its prediction, seconds. `own_s`: with the steps of its own log; `table_s`: with those of
    the table.
    """

    gpu: str
    gpus: int
    step_s: float
    train_s: float
    predicted_step_s: float
    table_s: float
    own_s: float


def measured(rows: Iterable[Cells]) -> tuple[list[Measured], Counter[str]]:
    """The rows of A100 and H100 that can be predicted, and how many others there are, by reason."""
    found, skipped = [], Counter[str]()
    for row in rows:
        gpu = next((name for name in GPU_NAMES if name in row["gpu"]), "")
        if reason := _not_compared(row, gpu):
            skipped[reason] += 1
            continue
        try:
            own, step_s = trained(row, Steps.given(row["steps_to_converge"]))
            table, _ = trained(row)
        except UserError as error:
            skipped[str(error)] += 1
            continue
        seconds = (row["iteration_s"], row["time_to_train_s"], step_s, table.seconds, own.seconds)
        found.append(Measured(gpu, row["gpus"], *seconds))
    return found, skipped


def _not_compared(row: Cells, gpu: str) -> str:
    if not gpu:
        return "neither A100 nor H100"
    if row["duplicate_of"]:
        return "submitted again"
    if row["steps_to_converge"] is None or row["time_to_train_s"] is None:
        return "without steps or time to train"
    return ""
