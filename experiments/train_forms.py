"""One process of a small GPT's training in one of four forms, timed: the measured side of a study.

The forms are one process, data parallelism (torch's DistributedDataParallel), a 1F1B pipeline, and tensor
parallelism, all over gloo on CPUs and over NCCL on GPUs. The model is the one that a `ModelSpec` states:
learned positions, layer norms, GELU, biases, dropout, attention that writes its scores, an untied projection.
It trains in 32 bit, with torch's fused Adam and without clipping. Tensor parallelism splits every matrix, the
vocabulary's too, and sums as Megatron-LM does (Shoeybi et al. 2019).

A process of a CPU has one thread. Variables of the environment are torch's: RANK, WORLD_SIZE, MASTER_ADDR,
MASTER_PORT.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional

from experiments.train_gpt import Training
from itertime.profiling import keep_freed_memory

FORMS = ("single", "data", "pipeline", "tensor")
WARM_UP = 2
DROPPED = 0.1
MASKED = -1e4


@dataclass(frozen=True)
class Ranks:
    """The processes of a training: their number, this one's, the form in which they share the work."""

    form: str
    rank: int
    count: int
    device: str

    @property
    def split(self) -> int:
        """The ranks that share every matrix."""
        return self.count if self.form == "tensor" else 1

    def of_form(self, form: str) -> int:
        """The number of ranks in a form, 1 in another."""
        return self.count if self.form == form else 1


@dataclass
class Exchanges:
    """Seconds that this process spends in exchanges, those in which it waits for another one among them.
    Those of DistributedDataParallel run beside its backward pass, and do not count.
    """

    seconds: float = 0.0

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """Count the time of a `with` block."""
        begin = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - begin


EXCHANGES = Exchanges()


def sum_over_ranks(values: Tensor, operation: Any = distributed.ReduceOp.SUM) -> Tensor:
    """The same tensor, with the sum (or the maximum) over all ranks."""
    with EXCHANGES.timed():
        distributed.all_reduce(values, operation)
    return values


class _SummedGradient(torch.autograd.Function):
    """The identity, whose gradient is summed over the ranks."""

    @staticmethod
    def forward(_context: Any, values: Tensor) -> Tensor:
        return values

    @staticmethod
    def backward(_context: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return sum_over_ranks(gradient.contiguous())


class _Summed(torch.autograd.Function):
    """The sum over the ranks, whose gradient is the same on all of them."""

    @staticmethod
    def forward(_context: Any, values: Tensor) -> Tensor:
        return sum_over_ranks(values.contiguous())

    @staticmethod
    def backward(_context: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return gradient


class _JointNorm(torch.autograd.Function):
    """The logarithm of a softmax's denominator, of every rank's over its columns."""

    @staticmethod
    def forward(context: Any, own: Tensor) -> Tensor:
        largest = sum_over_ranks(own.clone(), distributed.ReduceOp.MAX)
        joint = largest + sum_over_ranks((own - largest).exp()).log()
        context.save_for_backward((own - joint).exp())
        return joint

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        (share,) = context.saved_tensors
        return gradient * share


class Block(nn.Module):
    """A transformer layer, or a rank's share of its heads and of its MLP."""

    def __init__(self, training: Training, ranks: Ranks):
        super().__init__()
        hidden, split = training.hidden, ranks.split
        self.heads, self.width = training.heads // split, training.hidden // training.heads
        self.ranks = ranks
        self.attention_norm, self.mlp_norm = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.query_key_value = nn.Linear(hidden, 3 * hidden // split)
        self.mlp_up = nn.Linear(hidden, 4 * hidden // split)
        whole = ranks.split == 1 or ranks.rank == 0  # one rank of a sum adds the bias
        self.projection = nn.Linear(hidden // split, hidden, bias=whole)
        self.mlp_down = nn.Linear(4 * hidden // split, hidden, bias=whole)
        mask = torch.full((training.seq_len, training.seq_len), MASKED).triu(1)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, stream: Tensor) -> Tensor:
        branch = self._attention(self._shared(self.attention_norm(stream)))
        stream = stream + functional.dropout(self._joined(branch), DROPPED)
        branch = self.mlp_down(functional.gelu(self.mlp_up(self._shared(self.mlp_norm(stream)))))
        return stream + functional.dropout(self._joined(branch), DROPPED)

    def _attention(self, values: Tensor) -> Tensor:
        batch, seq, _ = values.shape
        joined = self.query_key_value(values).view(batch, seq, self.heads, 3, self.width)
        query, key, value = (
            joined[:, :, :, part].transpose(1, 2).reshape(batch * self.heads, seq, self.width)
            for part in range(3)
        )
        scores = torch.baddbmm(self.mask, query, key.transpose(1, 2), alpha=self.width**-0.5)
        weights = functional.dropout(functional.softmax(scores, -1), DROPPED)
        mixed = torch.bmm(weights, value).view(batch, self.heads, seq, self.width)
        return self.projection(mixed.transpose(1, 2).reshape(batch, seq, self.heads * self.width))

    def _shared(self, values: Tensor) -> Tensor:
        return values if self.ranks.split == 1 else _SummedGradient.apply(values)

    def _joined(self, values: Tensor) -> Tensor:
        return values if self.ranks.split == 1 else _Summed.apply(values)


class Stage(nn.Module):
    """The layers of a pipeline stage, with the embedding on the first and the loss on the last one."""

    def __init__(self, training: Training, ranks: Ranks):
        super().__init__()
        stages = ranks.of_form("pipeline")
        stage = ranks.rank if stages > 1 else 0
        self.is_first, self.is_last = stage == 0, stage == stages - 1
        self.ranks, self.columns = ranks, training.vocab // ranks.split
        if self.is_first:
            self.tokens = nn.Embedding(self.columns, training.hidden)
            self.positions = nn.Parameter(torch.zeros(training.seq_len, training.hidden))
        self.blocks = nn.ModuleList(Block(training, ranks) for _ in range(training.layers // stages))
        if self.is_last:
            self.norm = nn.LayerNorm(training.hidden)
            self.head = nn.Linear(training.hidden, self.columns, bias=False)

    def forward(self, stream: Tensor, labels: Tensor) -> Tensor:
        if self.is_first:
            stream = functional.dropout(self._embedded(stream) + self.positions, DROPPED)
        for block in self.blocks:
            stream = block(stream)
        return self._loss(self.norm(stream), labels.reshape(-1)) if self.is_last else stream

    def _embedded(self, tokens: Tensor) -> Tensor:
        if self.ranks.split == 1:
            return self.tokens(tokens)
        tokens, absent = self._own(tokens)
        return _Summed.apply(self.tokens(tokens).masked_fill(absent.unsqueeze(-1), 0.0))

    def _own(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Indices in the columns of this rank, and which tokens are not among them (their index is 0)."""
        tokens = tokens - self.ranks.rank * self.columns
        absent = (tokens < 0) | (tokens >= self.columns)
        return tokens.masked_fill(absent, 0), absent

    def _loss(self, stream: Tensor, labels: Tensor) -> Tensor:
        if self.ranks.split == 1:
            return functional.cross_entropy(self.head(stream).view(-1, self.columns), labels)
        logits = self.head(_SummedGradient.apply(stream)).view(-1, self.columns)
        labels, absent = self._own(labels)
        of_label = logits.gather(1, labels.unsqueeze(1)).squeeze(1).masked_fill(absent, 0.0)
        return (_JointNorm.apply(logits.logsumexp(-1)) - _Summed.apply(of_label)).mean()


class Trainer:
    """The stage of a process with its optimizer and its part of the batch; `iterate` trains one iteration."""

    def __init__(self, training: Training, ranks: Ranks):
        torch.manual_seed(0)
        self.training, self.ranks = training, ranks
        rows = training.global_batch // ranks.of_form("data")
        with torch.device(ranks.device):
            self.stage: nn.Module = Stage(training, ranks)
            shape = (rows, training.seq_len)
            self.tokens = torch.randint(0, training.vocab, shape).split(training.micro_batch)
            self.labels = torch.randint(0, training.vocab, shape).split(training.micro_batch)
        if ranks.of_form("data") > 1:
            self.stage = nn.parallel.DistributedDataParallel(self.stage, gradient_as_bucket_view=True)
        self.optimizer = torch.optim.Adam(self.stage.parameters(), lr=1e-5, fused=True)
        self.shape = (training.micro_batch, training.seq_len, training.hidden)

    def iterate(self) -> None:
        """One iteration: all micro-batches, and the step."""
        self.optimizer.zero_grad(set_to_none=self.ranks.of_form("data") == 1)
        steps = self._piped if self.ranks.of_form("pipeline") > 1 else self._alone
        steps(len(self.tokens))
        self.optimizer.step()

    def _alone(self, count: int) -> None:
        for place, (tokens, labels) in enumerate(zip(self.tokens, self.labels, strict=True), 1):
            silent: Any = contextlib.nullcontext()
            if self.ranks.of_form("data") > 1 and place < count:
                silent = self.stage.no_sync()  # type: ignore[operator]
            with silent:
                (self.stage(tokens, labels) / count).backward()

    def _piped(self, count: int) -> None:
        """1F1B: a stage's forward passes ahead are as many as there are stages behind it."""
        ahead = min(self.ranks.count - 1 - self.ranks.rank, count)
        held: deque[tuple[Tensor, Tensor]] = deque()
        sends: list[Any] = []
        for place in range(ahead):
            self._forward(place, count, held, sends)
        for place in range(ahead, count):
            self._forward(place, count, held, sends)
            self._backward(held, sends)
        for _ in range(ahead):
            self._backward(held, sends)
        with EXCHANGES.timed():
            for send in sends:
                send.wait()

    def _forward(self, place: int, count: int, held: deque[tuple[Tensor, Tensor]], sends: list[Any]) -> None:
        rank = self.ranks.rank
        entering = self.tokens[place]
        if rank > 0:
            entering = torch.empty(self.shape, device=self.ranks.device)
            with EXCHANGES.timed():
                distributed.recv(entering, rank - 1)
            entering.requires_grad_(True)
        leaving = self.stage(entering, self.labels[place])
        if rank < self.ranks.count - 1:
            sends.append(distributed.isend(leaving.detach(), rank + 1))
        else:
            leaving = leaving / count
        held.append((entering, leaving))

    def _backward(self, held: deque[tuple[Tensor, Tensor]], sends: list[Any]) -> None:
        rank = self.ranks.rank
        entering, leaving = held.popleft()
        gradient = None
        if rank < self.ranks.count - 1:
            gradient = torch.empty(self.shape, device=self.ranks.device)
            with EXCHANGES.timed():
                distributed.recv(gradient, rank + 1)
        leaving.backward(gradient)
        if rank > 0 and entering.grad is not None:
            sends.append(distributed.isend(entering.grad, rank - 1))


def iteration_times(training: Training, ranks: Ranks, iterations: int) -> dict[str, Any]:
    """Wall-clock seconds of so many iterations of all processes, and of each the seconds of this one on a CPU
    and in exchanges.
    """
    trainer = Trainer(training, ranks)
    meet: Callable[[], Any] = distributed.barrier if ranks.count > 1 else lambda: None
    times_s, cpu_s, exchanges_s = [], [], []
    gc.disable()
    for place in range(WARM_UP + iterations):
        meet()
        begin, begin_cpu, EXCHANGES.seconds = time.perf_counter(), time.process_time(), 0.0
        trainer.iterate()
        if ranks.device != "cpu":
            torch.cuda.synchronize()
        own_cpu_s = time.process_time() - begin_cpu
        meet()
        if place >= WARM_UP:
            times_s.append(time.perf_counter() - begin)
            cpu_s.append(own_cpu_s)
            exchanges_s.append(EXCHANGES.seconds)
    return {"times_s": times_s, "cpu_s": cpu_s, "exchanges_s": exchanges_s}


def main() -> None:
    """Train, and print one line of JSON from the first process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("form", choices=FORMS)
    parser.add_argument("training", help="the fields of `Training` as a JSON object")
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--device", default="cpu", choices=("cuda", "cpu"))
    arguments = parser.parse_args()
    rank, count = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    on_gpu = arguments.device == "cuda"
    if not on_gpu:
        torch.set_num_threads(1)
        keep_freed_memory()
    else:
        torch.cuda.set_device(rank)
        torch.backends.cuda.matmul.allow_tf32 = True  # as the study's plans have it
    if count > 1:
        distributed.init_process_group("nccl" if on_gpu else "gloo")
    ranks = Ranks(arguments.form, rank, count, arguments.device)
    training = Training(**json.loads(arguments.training))
    result = iteration_times(training, ranks, arguments.iterations)
    if rank == 0:
        print(json.dumps(result), flush=True)
    if count > 1 and on_gpu:
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
    os._exit(0)  # gloo's threads sometimes abort an interpreter that ends, after the result has been printed
