"""How a model is trained: the degrees of parallelism and the schedule, one plan or many at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from itertime.errors import UserError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from itertime.model import ModelSpec

__all__ = ["RECOMPUTE", "SCHEDULES", "SPLITS", "Plan", "PlanBatch"]

RECOMPUTE = ("none", "selective", "full")
SCHEDULES = ("1f1b", "gpipe")
SPLITS = ("even", "balanced")
_MAX = 10**7


@dataclass(frozen=True)
class Plan:
    """One way to train a model on `gpus` = tp x pp x dp GPUs; ranks are numbered tp first, then dp, then pp.

    `global_batch` and `micro_batch` count sequences. `interleave` is the number of model chunks a stage holds
    (Narayanan et al., SC'21, section 2.2; 1 is plain 1F1B). `recompute`: "full" keeps one input per layer,
    "selective" repeats the attention core only (Korthikanti et al. 2022), "none" keeps everything.
    `zero_stage` shards optimizer states (1), gradients (2) and weights (3, as FSDP does) over `zero_group`
    ranks of the data-parallel group, all of them when it is None. `grad_overlap` hides gradient communication
    behind the last micro-batch's backward pass. `split`: "even" gives every stage the same number of layers;
    "balanced" lets pp not divide the layers, counting the embedding and the vocabulary projection as one
    layer each (DeepSpeed's `type:transformer|embedding` partition).

    >>> Plan(tp=8, pp=2, dp=4, micro_batch=1, global_batch=64).microbatches
    16
    """

    tp: int
    pp: int
    dp: int
    micro_batch: int
    global_batch: int
    interleave: int = 1
    recompute: str = "full"
    zero_stage: int = 0
    zero_group: int | None = None
    sequence_parallel: bool = False
    grad_overlap: bool = False
    schedule: str = "1f1b"
    split: str = "even"
    fp32_gradients: bool = False

    @property
    def gpus(self) -> int:
        return self.tp * self.pp * self.dp

    @property
    def label(self) -> str:
        """The plan in a few words, for tables and logs.

        >>> Plan(tp=8, pp=2, dp=4, micro_batch=1, global_batch=64, interleave=2).label
        'tp8 pp2 dp4 mb1 v2 full'
        """
        words = [f"tp{self.tp}", f"pp{self.pp}", f"dp{self.dp}", f"mb{self.micro_batch}"]
        words += [f"v{self.interleave}"] * (self.interleave > 1) + [f"zero{self.zero_stage}"] * (
            self.zero_stage > 0
        )
        return " ".join([*words, *["sp"] * self.sequence_parallel, self.recompute])

    @property
    def microbatches(self) -> int:
        """Micro-batches that each pipeline runs in one iteration."""
        return self.global_batch // (self.dp * self.micro_batch)

    def broken_rules(self, model: ModelSpec) -> list[str]:
        """Why `model` cannot be trained this way: one sentence a rule, empty when it can."""
        bad_values = self._bad_values()
        return bad_values or [why for broken, why in self._rules(model) if broken]

    def check(self, model: ModelSpec) -> Plan:
        """Returns itself; raises UserError naming every broken rule."""
        broken = self.broken_rules(model)
        if broken:
            raise UserError(f"this plan cannot train {model.name}: " + "; ".join(broken))
        return self

    def _bad_values(self) -> list[str]:
        bad = []
        for name in ("tp", "pp", "dp", "micro_batch", "global_batch", "interleave", "zero_group"):
            value = getattr(self, name)
            if name == "zero_group" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MAX:
                bad.append(f"{name}={value!r}: must be a whole number from 1 to 10^7")
        for name, known in (("recompute", RECOMPUTE), ("schedule", SCHEDULES), ("split", SPLITS)):
            if getattr(self, name) not in known:
                bad.append(f"{name}={getattr(self, name)!r}: must be {', '.join(known[:-1])} or {known[-1]}")
        if self.zero_stage not in (0, 1, 2, 3):
            bad.append(f"zero_stage={self.zero_stage!r}: must be 0, 1, 2 or 3")
        return bad

    def _rules(self, model: ModelSpec) -> list[tuple[bool, str]]:
        tp, pp, dp, v, layers = self.tp, self.pp, self.dp, self.interleave, model.layers
        group = self.zero_group or dp
        return [
            (model.heads % tp != 0, f"tp={tp}: must divide heads={model.heads}"),
            (
                model.kv_heads != model.heads and model.kv_heads % tp != 0 and tp % model.kv_heads != 0,
                f"tp={tp}: must divide kv_heads={model.kv_heads}, or be a multiple of it",
            ),
            (model.ffn_hidden % tp != 0, f"tp={tp}: must divide ffn_hidden={model.ffn_hidden}"),
            (pp > layers, f"pp={pp}: has more stages than the model has layers ({layers})"),
            (
                self.split == "even" and pp <= layers and layers % pp != 0,
                f"pp={pp}: must divide layers={layers}, unless split=balanced",
            ),
            (
                self.global_batch % (dp * self.micro_batch) != 0,
                f"global_batch={self.global_batch}: must be a multiple of "
                f"dp x micro_batch = {dp * self.micro_batch}",
            ),
            (v > 1 and pp == 1, f"interleave={v}: needs pp > 1"),
            (v > 1 and self.schedule != "1f1b", f"interleave={v}: needs schedule=1f1b"),
            (
                v > 1 and layers % (pp * v) != 0,
                f"interleave={v}: pp x interleave = {pp * v} must divide layers={layers}",
            ),
            (
                v > 1 and self.microbatches % pp != 0,
                f"interleave={v}: pp={pp} must divide the {self.microbatches} micro-batches",
            ),
            (
                self.sequence_parallel and model.seq_len % tp != 0,
                f"tp={tp}: must divide seq_len={model.seq_len}",
            ),
            (dp % group != 0, f"zero_group={group}: must divide dp={dp}"),
            (self.zero_stage >= 2 and pp > 1, f"zero_stage={self.zero_stage}: needs pp=1"),
        ]


@dataclass(frozen=True)
class PlanBatch:
    """Many plans of one model as columns: integer arrays of one shape, one element per plan, ready to
    broadcast.

    `recompute` holds indices into RECOMPUTE, `gpipe`, `balanced`, `sequence_parallel` and `grad_overlap`
    booleans.
    """

    tp: NDArray[np.int64]
    pp: NDArray[np.int64]
    dp: NDArray[np.int64]
    micro_batch: NDArray[np.int64]
    global_batch: NDArray[np.int64]
    interleave: NDArray[np.int64]
    recompute: NDArray[np.int64]
    zero_stage: NDArray[np.int64]
    zero_group: NDArray[np.int64]
    sequence_parallel: NDArray[np.bool_]
    grad_overlap: NDArray[np.bool_]
    gpipe: NDArray[np.bool_]
    balanced: NDArray[np.bool_]
    fp32_gradients: NDArray[np.bool_]

    @classmethod
    def of(cls, plans: Sequence[Plan]) -> PlanBatch:
        """The columns of `plans`, in their order."""

        def whole(values: list[int]) -> NDArray[np.int64]:
            return np.array(values, dtype=np.int64)

        return cls(
            tp=whole([plan.tp for plan in plans]),
            pp=whole([plan.pp for plan in plans]),
            dp=whole([plan.dp for plan in plans]),
            micro_batch=whole([plan.micro_batch for plan in plans]),
            global_batch=whole([plan.global_batch for plan in plans]),
            interleave=whole([plan.interleave for plan in plans]),
            recompute=whole([RECOMPUTE.index(plan.recompute) for plan in plans]),
            zero_stage=whole([plan.zero_stage for plan in plans]),
            zero_group=whole([plan.zero_group or plan.dp for plan in plans]),
            sequence_parallel=np.array([plan.sequence_parallel for plan in plans], dtype=bool),
            grad_overlap=np.array([plan.grad_overlap for plan in plans], dtype=bool),
            gpipe=np.array([plan.schedule == "gpipe" for plan in plans], dtype=bool),
            balanced=np.array([plan.split == "balanced" for plan in plans], dtype=bool),
            fp32_gradients=np.array([plan.fp32_gradients for plan in plans], dtype=bool),
        )

    @property
    def gpus(self) -> NDArray[np.int64]:
        return self.tp * self.pp * self.dp

    @property
    def microbatches(self) -> NDArray[np.int64]:
        return self.global_batch // (self.dp * self.micro_batch)

    def __len__(self) -> int:
        return len(self.tp)

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> PlanBatch:
        """The plans at `rows` (indices or a mask)."""
        return PlanBatch(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    def plan(self, row: int) -> Plan:
        """One plan, as a Plan; `zero_group` is None again where it is all of dp."""
        group = int(self.zero_group[row])
        return Plan(
            tp=int(self.tp[row]),
            pp=int(self.pp[row]),
            dp=int(self.dp[row]),
            micro_batch=int(self.micro_batch[row]),
            global_batch=int(self.global_batch[row]),
            interleave=int(self.interleave[row]),
            recompute=RECOMPUTE[self.recompute[row]],
            zero_stage=int(self.zero_stage[row]),
            zero_group=None if group == self.dp[row] else group,
            sequence_parallel=bool(self.sequence_parallel[row]),
            grad_overlap=bool(self.grad_overlap[row]),
            schedule="gpipe" if self.gpipe[row] else "1f1b",
            split="balanced" if self.balanced[row] else "even",
            fp32_gradients=bool(self.fp32_gradients[row]),
        )
