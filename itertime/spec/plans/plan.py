"""Training plans: the degrees of parallelism, the schedule, and the rules that a plan must keep."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from itertime.arrays import Whole
from itertime.errors import UserError, quoted
from itertime.schedule import MOST_PASSES, SPLIT_SCHEDULES
from itertime.spec.model import ModelSpec

from .layout import is_layout, layers_of_chunks, layout_problem
from .option_rules import broken_options
from .options import DEFAULT_OPTIONS, IN_32_BIT, PlanOptions
from .recompute import absent_modules, in_order, modules_of, recompute_code, recompute_problem
from .rules import DEFAULT_RULES, RULES, refusals
from .stack_rules import broken_stacks

Count = int | Whole


@dataclass(frozen=True)
class RemainderChunks:
    """The split "remainder" of a model's layers over chunks; numbers, or arrays of one element a plan.

    The first chunk holds `first` layers, all others `most`. The last chunk that holds layers lacks `lacking`
    of them; the `empty` chunks after it hold none.
    """

    first: Count
    most: Count
    lacking: Count
    empty: Count

    @classmethod
    def of(cls, model: ModelSpec, chunks: Count) -> RemainderChunks:
        most = -(-model.layers // chunks)
        first: Count = np.maximum(most, model.dense_layers)
        full_chunks = -(-(model.layers - first) // most)
        return cls(first, most, first + full_chunks * most - model.layers, chunks - 1 - full_chunks)


PRECISIONS = ("bf16", "fp8", "fp8_block", "mxfp8", "nvfp4", "tf32", "fp32")
CUDA_GRAPHS = ("none", "layers", "full")
DISPATCHERS = ("alltoall", "deepep", "hybridep")
SCHEDULES = ("1f1b", "gpipe", *SPLIT_SCHEDULES)
SPLITS = ("even", "balanced", "compute", "ends", "remainder")
CP_EXCHANGES = ("ring", "gather", "ulysses")
RANK_ORDERS = ("tp-cp-dp-pp", "tp-cp-pp-dp")


_MAX = 10**7
_MAX_BYTES = 10**15
_COUNTS = (
    *("tp", "pp", "dp", "micro_batch", "global_batch", "interleave", "zero_group", "cp", "ep", "etp"),
    "bucket_bytes",
)
_OPTIONAL = ("zero_group", "bucket_bytes", "etp")
CHOICES = {
    "schedule": SCHEDULES,
    "split": SPLITS,
    "cp_exchange": CP_EXCHANGES,
    "rank_order": RANK_ORDERS,
    "precision": PRECISIONS,
    "cuda_graphs": CUDA_GRAPHS,
    "dispatcher": DISPATCHERS,
    "rules": RULES,
}


@dataclass(frozen=True)
class Plan:
    """One way to train a model on `gpus` = tp x cp x pp x dp GPUs, numbered in `rank_order`, tp first.

    | field | meaning |
    |---|---|
    | `global_batch`, `micro_batch` | sequences |
    | `schedule` | order of the passes, see below |
    | `interleave` | model chunks per stage (Narayanan et al., SC'21, section 2.2); 1 is plain 1F1B |
    | `recompute` | what the backward pass computes again, see below |
    | `zero_stage` | what is sharded: optimizer states (1), gradients (2), weights (3, like FSDP) |
    | `zero_group` | number of data-parallel ranks over which ZeRO shards; None means all of them |
    | `grad_overlap` | gradient communication is hidden behind the last micro-batch's backward pass |
    | `split` | how the layers are divided among the stages, see below |
    | `cp` | ranks that share a sequence; for gradients and ZeRO they count as data-parallel ranks |
    | `cp_exchange` | how these exchange keys and values, see below |
    | `ep` | ranks of dp x cp that share the experts of a mixture (GShard, Lepikhin et al. 2021) |
    | `prefetch` | ZeRO-3 gathers the next layer's weights while the current layer computes |
    | `bucket_bytes` | size of a gradient bucket; None: the framework's if overlapped, else all |
    | `precision` | of the matrices of the layers, see below |
    | `etp` | ranks that share each matrix of an expert; None: as `expert_tp` says |
    | `tp_overlap` | matrices hide tensor-parallel communication; None: as the framework does by default |
    | `cuda_graphs` | the launches of which kernels one call replays: none, those of a layer, or all |
    | `dispatcher` | how tokens travel to their experts: NCCL's all-to-all, DeepEP or HybridEP |
    | `ep_overlap` | another micro-batch's computation hides that travel |
    | `recompute_fraction` | share of the layers that repeat what `recompute` says |
    | `offload_layers` | layers of a stage whose activations wait in the CPU's memory |
    | `offload_optimizer` | the CPU keeps the optimizer's states and runs its step |
    | `rules` | by which its seconds follow from the costs of its layers: `rules.py` |
    | `options` | batches, balance, clipping, optimizer, and what saves communication: `PlanOptions` |

    `precision`: norms, router, embedding and projection stay in 16 bit, and so does attention unless the
    options say otherwise. "fp8" has one scale per
    tensor, "fp8_block" one per block (DeepSeek-V3, 2024, section 3.3), "mxfp8" and "nvfp4" one per 32 and 16
    elements (OCP microscaling; NVIDIA Blackwell). "tf32" trains in 32 bit throughout: weights, gradients,
    activations and what is sent; matrix products use the tensor cores' TF32 (NVIDIA A100 whitepaper, 2020).
    "fp32" does too, and its products have 32 bit as well; only profiles of CPUs have times of them.

    `recompute`: "full" keeps one input per layer. "early-stop" does too, but repeats a layer only up to the
    last tensor that the backward pass needs (torch.utils.checkpoint since PyTorch 2.1, unless reentrant).
    "selective" repeats only the attention core (Korthikanti et al. 2022), "elementwise" only norms and
    activations. "none" keeps everything. A list of modules with commas, like "layernorm,moe_act", repeats
    these, by the names of Megatron Core (`spec/plans/recompute.py`).

    `schedule`: "1f1b" and "gpipe" run backward passes whole. "zb-h1", "zb-v" and "dualpipe" let gradients of
    weights wait for bubbles (`schedule/zero_bubble.py`); "zb-v" has two chunks a device, "dualpipe" two
    copies of the model, whose micro-batches enter at either end.

    `split`: "even" gives every stage the same number of layers. "balanced" does not require pp to divide the
    layers, and counts the embedding and the vocabulary projection as one layer each (DeepSpeed's
    `type:transformer|embedding` partition). "compute" gives every stage the same share of the matrices'
    arithmetic, that of the projection included, rounded to whole layers (nanotron). "ends" lets the embedding
    and the projection each take the place of a layer, so the first and the last chunk of the model hold one
    layer fewer than all others (Megatron-LM's `--account-for-embedding-in-pipeline-split` and
    `--account-for-loss-in-pipeline-split`; torchtitan's default). "remainder" gives every chunk as many
    layers as the fullest needs, and the last one what remains; the first one holds all dense layers of a
    mixture, and chunks after the last layer stay empty (Megatron-Bridge's layouts of DeepSeek-V3). A chunk is
    a stage, or one of its `interleave` parts. A list like "7,8,9,8" has the layers of every chunk; so has a
    layout string of Megatron Core (`spec/plans/layout.py`).

    `cp_exchange`: "ring" passes keys and values around while attention works on the blocks already received
    (Liu et al. 2023, Ring Attention). "gather" gathers all of them first (Llama 3, 2024, section 3.3.2).
    "ulysses" gives each rank all tokens of its share of the heads, by all-to-alls before and after attention
    (DeepSpeed-Ulysses, Jacobs et al. 2023).

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
    cp: int = 1
    cp_exchange: str = "ring"
    ep: int = 1
    rank_order: str = "tp-cp-dp-pp"
    prefetch: bool = True
    bucket_bytes: int | None = None
    precision: str = "bf16"
    etp: int | None = None
    tp_overlap: bool | None = None
    cuda_graphs: str = "none"
    dispatcher: str = "alltoall"
    ep_overlap: bool = False
    recompute_fraction: float = 1.0
    offload_layers: int = 0
    offload_optimizer: bool = False
    rules: str = DEFAULT_RULES
    options: PlanOptions = DEFAULT_OPTIONS

    def __post_init__(self) -> None:
        """Whole numbers of numpy become Python's, so that products and JSON of a plan are as exact; modules
        to recompute stand in one order.
        """
        for name in _COUNTS:
            value = getattr(self, name)
            if type(value) is not int and isinstance(value, np.integer):
                object.__setattr__(self, name, int(value))
        if is_layout(self.split) and layers_of_chunks(self.split):
            object.__setattr__(self, "split", ",".join(map(str, layers_of_chunks(self.split))))
        if isinstance(self.recompute, str):
            object.__setattr__(self, "recompute", in_order(self.recompute))

    @property
    def gpus(self) -> int:
        return self.tp * self.cp * self.pp * self.dp

    @property
    def expert_tp(self) -> int:
        """Ranks that share each matrix of an expert: as stated; else as `tp`, or one where `ep` does not
        divide the ranks beside tp (Megatron Core's parallel folding: Megatron-Bridge's recipes of such plans
        set `expert_tensor_parallel_size=1`).

        >>> Plan(tp=2, pp=8, dp=16, micro_batch=1, global_batch=2048, ep=32).expert_tp
        1
        """
        if self.etp is not None:
            return self.etp
        return self.tp if self.dp * self.cp % self.ep == 0 else 1

    @property
    def below_16_bit(self) -> bool:
        """Whether matrices of the layers have fewer than 16 bits."""
        return self.precision not in ("bf16", *IN_32_BIT)

    @property
    def chunk_layers(self) -> tuple[int, ...]:
        """Layers of each chunk where `split` lists them; else ()."""
        return layers_of_chunks(self.split)

    @property
    def label(self) -> str:
        """A short form of the plan, for tables and logs.

        >>> Plan(tp=8, pp=2, dp=4, micro_batch=1, global_batch=64, interleave=2).label
        'tp8 pp2 dp4 mb1 v2 full'
        >>> Plan(tp=2, pp=1, dp=4, micro_batch=1, global_batch=64, ep=8, etp=1, dispatcher="deepep").label
        'tp2 pp1 dp4 mb1 ep8 etp1 deepep full'
        """
        words = [f"tp{self.tp}", f"pp{self.pp}", f"dp{self.dp}", f"mb{self.micro_batch}"]
        words += [f"{name}{value}" for name, value in (("cp", self.cp), ("ep", self.ep)) if value > 1]
        if self.expert_tp != self.tp:
            words.append(f"etp{self.expert_tp}")
        if self.interleave > 1:
            words.append(f"v{self.interleave}")
        if self.split == "ends" or self.chunk_layers:
            words.append(self.split)
        if self.zero_stage > 0:
            words.append(f"zero{self.zero_stage}")
        if self.sequence_parallel:
            words.append("sp")
        if self.precision != "bf16":
            words.append(self.precision)
        words += self._software_words()
        if self.offload_layers:
            words.append(f"offload{self.offload_layers}")
        if self.offload_optimizer:
            words.append("offload-optimizer")
        if self.recompute_fraction != 1:
            words.append(f"part{float(self.recompute_fraction)}")
        if self.rules != DEFAULT_RULES:
            words.append(f"{self.rules}-rules")
        return " ".join([*words, self.recompute, *filter(None, [self.options.text])])

    def _software_words(self) -> list[str]:
        """The words of a label for how kernels are launched and communication travels."""
        words = []
        if self.dispatcher != "alltoall":
            words.append(self.dispatcher)
        if self.ep_overlap:
            words.append("ep-overlap")
        if self.tp_overlap is not None:
            words.append("tp-overlap" if self.tp_overlap else "no-tp-overlap")
        if self.cuda_graphs != "none":
            words.append(f"graphs-{self.cuda_graphs}")
        return words

    @property
    def microbatches(self) -> int:
        """Micro-batches that each pipeline runs in one iteration."""
        return self.global_batch // (self.dp * self.micro_batch)

    def broken_rules(self, model: ModelSpec) -> list[str]:
        """The rules that the plan breaks for `model`, one sentence each; empty if it can train the model."""
        return self.bad_values() or [reason for broken, reason in self._rules(model) if broken]

    def check(self, model: ModelSpec) -> Plan:
        """The plan itself. Raises UserError, naming every broken rule, if it cannot train `model`."""
        broken = self.broken_rules(model)
        if broken:
            raise UserError(f"this plan cannot train {model.name}: " + "; ".join(broken))
        return self

    def bad_values(self) -> list[str]:
        """The values that no plan can have, whatever the model, one sentence each."""
        bad = []
        for name in _COUNTS:
            value = getattr(self, name)
            if type(value) is int and 1 <= value <= _MAX:
                continue  # nearly always
            if name in _OPTIONAL and value is None:
                continue
            largest, text = (_MAX_BYTES, "10^15") if name == "bucket_bytes" else (_MAX, "10^7")
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= largest:
                bad.append(f"{name}={quoted(value)}: must be a whole number from 1 to {text}")
        if problem := recompute_problem(self.recompute):
            bad.append(f"recompute={quoted(self.recompute)}: {problem}")
        for name, choices in CHOICES.items():
            if name == "split" and is_layout(self.split):
                if problem := layout_problem(self.split):
                    bad.append(f"split={quoted(self.split)}: {problem}")
            elif getattr(self, name) not in choices:
                listed = f"{', '.join(choices[:-1])} or {choices[-1]}"
                lists = ", or layers like 7,8,9,8" if name == "split" else ""
                bad.append(f"{name}={quoted(getattr(self, name))}: must be {listed}{lists}")
        share = self.recompute_fraction
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
            bad.append(f"recompute_fraction={quoted(share)}: must be a number from 0 to 1")
        offloaded = self.offload_layers
        if isinstance(offloaded, bool) or not isinstance(offloaded, int) or not 0 <= offloaded <= _MAX:
            bad.append(f"offload_layers={quoted(offloaded)}: must be a whole number from 0 to 10^7")
        if self.zero_stage not in (0, 1, 2, 3):
            bad.append(f"zero_stage={quoted(self.zero_stage)}: must be 0, 1, 2 or 3")
        return bad

    def _rules(self, model: ModelSpec) -> list[tuple[bool, str]]:
        tp, pp, dp, v, layers = self.tp, self.pp, self.dp, self.interleave, model.layers
        ranks = dp * self.cp
        group = self.zero_group or ranks
        return [
            *(rule for kind in model.layer_kinds for rule in self._layer_rules(kind)),
            (pp > layers, f"pp={pp}: has more stages than the model has layers ({layers})"),
            (
                self.split == "even" and pp <= layers and layers % pp != 0,
                f"pp={pp}: must divide layers={layers}, "
                f"unless split={', '.join(SPLITS[1:-1])} or {SPLITS[-1]}",
            ),
            (
                self.global_batch % (dp * self.micro_batch) != 0,
                f"global_batch={self.global_batch}: must be a multiple of "
                f"dp x micro_batch = {dp * self.micro_batch}",
            ),
            (v > 1 and pp == 1, f"interleave={v}: needs pp > 1"),
            (v > 1 and self.split == "compute", f"interleave={v}: needs another split than compute"),
            (
                v > 1 and self.schedule not in ("1f1b", "zb-v"),
                f"interleave={v}: needs schedule=1f1b",
            ),
            *self._schedule_rules(model),
            (
                v > 1 and self.split in ("even", "balanced") and layers % (pp * v) != 0,
                f"interleave={v}: pp x interleave = {pp * v} must divide layers={layers}, "
                "unless split=ends or remainder",
            ),
            *self._chunk_rules(model),
            *self._stack_rules(model),
            (
                model.mtp_layers > 0 and (bool(self.chunk_layers) or self.schedule in ("zb-v", "dualpipe")),
                f"split={self.split}, schedule={self.schedule}: mtp_layers={model.mtp_layers} is modelled on "
                "the last stage of other splits and schedules",
            ),
            (
                v > 1 and self.schedule != "zb-v" and self.microbatches % pp != 0,
                f"interleave={v}: pp={pp} must divide the {self.microbatches} micro-batches",
            ),
            (
                self.sequence_parallel and model.seq_len % tp != 0,
                f"tp={tp}: must divide seq_len={model.seq_len}",
            ),
            (
                ranks % group != 0,
                f"zero_group={group}: must divide dp={dp}" + (f" x cp={self.cp}" if self.cp > 1 else ""),
            ),
            *self._context_and_expert_rules(model),
            (
                self.offload_layers > (layers if self.split == "compute" else -(-layers // pp)),
                f"offload_layers={self.offload_layers}: a stage has no more than {-(-layers // pp)} layers",
            ),
            *(
                (True, f"recompute={self.recompute}: {need}; leave it out")
                for need in absent_modules(model, modules_of(recompute_code(self.recompute)))
            ),
            *((bool(broken), reason) for broken, reason in broken_options(self.options, model, self)),
            *((True, reason) for reason in refusals(self, model)),
        ]

    def _layer_rules(self, model: ModelSpec) -> list[tuple[bool, str]]:
        """Rules on the widths of one kind of layer."""
        tp = self.tp
        states = model.mixer not in ("attention", "none")
        groups = model.state_groups
        return [
            (model.attends and model.heads % tp != 0, f"tp={tp}: must divide heads={model.heads}"),
            (
                states and model.state_shards % tp != 0,
                f"tp={tp}: must divide state_heads={model.state_shards}",
            ),
            (
                states and groups > 0 and groups % tp != 0 and tp % groups != 0,
                f"tp={tp}: must divide state_groups={groups}, or be a multiple of it",
            ),
            (
                states and self.cp > 1,
                f"cp={self.cp}: is not modelled for mixer={model.mixer}, whose state follows the sequence",
            ),
            (
                model.attends
                and model.kv_heads != model.heads
                and model.kv_heads % tp != 0
                and tp % model.kv_heads != 0,
                f"tp={tp}: must divide kv_heads={model.kv_heads}, or be a multiple of it",
            ),
            (
                model.mlp and model.experts == 1 and model.ffn_hidden % tp != 0,
                f"tp={tp}: must divide ffn_hidden={model.ffn_hidden}",
            ),
        ]

    def _stack_rules(self, model: ModelSpec) -> list[tuple[bool, str]]:
        """Rules on the stages of a model whose layers are of several kinds, and on what is beside them."""
        rules = [(bool(broken), reason) for broken, reason in broken_stacks(model, self)]
        if not model.stack or self.pp == 1 or model.layers % (self.pp * self.interleave) or self.chunk_layers:
            return rules
        between = "between the first and the last stage" if self.interleave == 1 else "of all chunks"
        sizes = [pp for pp in range(1, model.layers + 1) if model.has_equal_stages(pp, self.interleave)]
        return [
            *rules,
            (
                self.split not in ("even", "balanced"),
                f"split={self.split}: is not modelled for layers of several kinds; take split=even",
            ),
            (
                not model.has_equal_stages(self.pp, self.interleave),
                f"pp={self.pp}: the layers {between} must be of the same kinds, "
                f"as with pp={', '.join(map(str, sizes))}; or list the layers of every chunk, "
                "as split=12,14,13,13",
            ),
        ]

    def _schedule_rules(self, model: ModelSpec) -> list[tuple[bool, str]]:
        """Rules of the schedules that split backward passes."""
        name, options, m = f"schedule={self.schedule}", self.options, self.microbatches
        if self.schedule in ("1f1b", "gpipe"):
            return []
        both_ways, v_shaped = self.schedule == "dualpipe", self.schedule == "zb-v"
        passes = 3 * m * self.pp * self.interleave
        return [
            (self.pp == 1, f"{name}: needs pp > 1"),
            (v_shaped and self.interleave != 2, f"{name}: needs interleave=2, the two chunks of a device"),
            (
                v_shaped and (self.split != "even" or model.layers % (2 * self.pp) != 0),
                f"{name}: 2 x pp = {2 * self.pp} must divide layers={model.layers}, with split=even",
            ),
            (both_ways and self.pp % 2 != 0, f"{name}: pp={self.pp} must be even; take another pp"),
            (
                both_ways and (m % 2 != 0 or m < 2 * self.pp),
                f"{name}: needs an even number of micro-batches, at least 2 x pp = {2 * self.pp}, not {m}; "
                "take a smaller micro_batch or dp",
            ),
            (self.zero_stage > 1, f"{name}: needs zero_stage=0 or 1; weights stay on their stage"),
            (
                options.compression != "none" or options.clipping in ("before", "bucket"),
                f"{name}: is not modelled with compression, nor with clipping=before or bucket; leave it out",
            ),
            (self.offload_layers > 0, f"{name}: is not modelled with offload_layers; leave it out"),
            (
                bool(model.lengths),
                f"{name}: is not modelled for samples of different lengths; take schedule=1f1b",
            ),
            (
                passes > MOST_PASSES,
                f"{name}: {passes:,} passes are too many to step through; take a larger micro_batch or dp",
            ),
        ]

    def _layout_rules(self, model: ModelSpec, sizes: tuple[int, ...]) -> list[tuple[bool, str]]:
        """Rules of a list of layers."""
        chunks, layers = self.pp * self.interleave, model.layers
        return [
            (
                len(sizes) != chunks,
                f"split={self.split}: has {len(sizes)} chunks, and pp x interleave = {chunks}; "
                "give layers of each chunk",
            ),
            (
                sum(sizes) != layers,
                f"split={self.split}: has {sum(sizes)} layers, not layers={layers}; change a number",
            ),
        ]

    def _chunk_rules(self, model: ModelSpec) -> list[tuple[bool, str]]:
        """Rules on the layers of the first and the last chunk."""
        if sizes := self.chunk_layers:
            return self._layout_rules(model, sizes)
        chunks, layers = self.pp * self.interleave, model.layers
        most, dense = -(-layers // chunks), model.dense_layers
        first = {"even": most, "remainder": dense, "compute": 0}.get(self.split, (layers + 2) // chunks - 1)
        misfit = False
        if self.split == "remainder":
            remains = RemainderChunks.of(model, chunks)
            too_many = remains.empty > (1 if self.interleave == 1 else self.pp - 1)
            misfit = bool(too_many or (remains.empty and remains.lacking))
        return [
            (
                self.split == "ends" and (layers + 2) % chunks != 0,
                f"split=ends: pp x interleave = {chunks} must divide layers + 2 = {layers + 2}",
            ),
            (
                misfit,
                f"split=remainder: with {most} layers a chunk, too few of {chunks} chunks are full",
            ),
            (
                self.pp > 1 and dense > first,
                f"split={self.split}: the first chunk must hold the {dense} dense layers, "
                f"and is only sure to hold {first}",
            ),
        ]

    def _context_and_expert_rules(self, model: ModelSpec) -> list[tuple[bool, str]]:
        cp, ep, etp = self.cp, self.ep, self.expert_tp
        ranks = self.dp * cp * self.tp
        return [
            (cp > 1 and model.attention == "core", f"cp={cp}: needs flash attention, which works in blocks"),
            (
                cp > 1 and model.seq_len % (2 * cp * (self.tp if self.sequence_parallel else 1)) != 0,
                f"cp={cp}: two pieces a rank must divide seq_len={model.seq_len}"
                + (f" on tp={self.tp} ranks" if self.sequence_parallel else ""),
            ),
            *(
                (
                    cp > 1
                    and self.cp_exchange == "ulysses"
                    and math.gcd(kind.heads, kind.kv_heads) % (self.tp * cp) != 0,
                    f"cp_exchange=ulysses: tp x cp = {self.tp * cp} must divide heads={kind.heads} "
                    f"and kv_heads={kind.kv_heads}",
                )
                for kind in model.layer_kinds
            ),
            (ep > 1 and not model.is_mixture, f"ep={ep}: needs a model with experts"),
            (
                model.divisible_experts % ep != 0 and model.is_mixture,
                f"ep={ep}: must divide experts={model.divisible_experts}",
            ),
            (ranks % (ep * etp) != 0, _why_ep(self)),
            (self.etp is not None and not model.is_mixture, f"etp={etp}: needs a model with experts"),
            *(
                (
                    kind.experts > 1 and kind.ffn_hidden % etp != 0,
                    f"etp={etp}: must divide ffn_hidden={kind.ffn_hidden}",
                )
                for kind in model.layer_kinds
            ),
            (
                model.is_mixture and self.tp > 1 and not self.sequence_parallel,
                f"tp={self.tp}: needs sequence_parallel in a model with experts",
            ),
        ]


def _why_ep(plan: Plan) -> str:
    """Why the ranks that share the experts do not make whole groups."""
    ranks = plan.dp * plan.cp * plan.tp
    if plan.etp is None:
        return f"ep={plan.ep}: must divide dp x cp x tp = {ranks}"
    return f"ep={plan.ep}: ep x etp = {plan.ep * plan.etp} must divide dp x cp x tp = {ranks}"
