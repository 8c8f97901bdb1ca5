"""CPU time to issue the kernels of a layer in eager PyTorch (needs torch; extra `profile`).

    python benchmarks/eager.py [--rounds 60]

A Llama layer as training frameworks write it: plain modules, norms and rotary positions of elementary
operations, gradients summed in 32 bit by a hook on every weight. A second layer runs under tensor and
sequence parallelism, with collectives through torch.distributed's "fake" backend, which moves nothing. A
layer of BERT has its norms after the additions, biases, and a hook that puts gradients into a bucket.
Tensors are so small that only Python, autograd and the dispatcher take time. The output is the least CPU
time of forward and backward of a layer, in all and for each kernel that `itertime.costs.layer` counts.

This is a lower bound for a GPU: the CUDA driver's time for a launch comes on top.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.testing._internal.distributed.fake_pg import FakeStore

from itertime import ModelSpec, Plan, load_model
from itertime.costs.layer import kernel_counts
from itertime.spec import PlanBatch

LAYERS, RANKS, TOKENS = 20, 4, 16
HIDDEN, HEADS, FFN = 64, 8, 128


class Gather(torch.autograd.Function):
    """Gather the sequence; scatter its gradients (Korthikanti et al. 2022, section 4.2.2)."""

    @staticmethod
    def forward(ctx, x):
        whole = x.new_empty(x.shape[0] * RANKS, *x.shape[1:])
        dist.all_gather_into_tensor(whole, x)
        return whole

    @staticmethod
    def backward(ctx, gradient):
        part = gradient.new_empty(gradient.shape[0] // RANKS, *gradient.shape[1:])
        dist.reduce_scatter_tensor(part, gradient.contiguous())
        return part


class Scatter(torch.autograd.Function):
    """Scatter the sequence; gather its gradients."""

    @staticmethod
    def forward(ctx, x):
        return Gather.backward(ctx, x)

    @staticmethod
    def backward(ctx, gradient):
        return Gather.forward(ctx, gradient.contiguous())


class GatheredLinear(torch.autograd.Function):
    """A matrix applied to the whole sequence, which the backward pass gathers again."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return functional.linear(Gather.forward(ctx, x), weight)

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        whole = Gather.forward(ctx, x)
        flat = gradient.flatten(0, -2)
        return Gather.backward(ctx, gradient @ weight), flat.t() @ whole.flatten(0, -2)


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(HIDDEN, dtype=torch.bfloat16))

    def forward(self, x):
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype)


class Matrix(nn.Module):
    def __init__(self, rows, columns, parallel=""):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, rows, dtype=torch.bfloat16))
        self.parallel = parallel

    def forward(self, x):
        if self.parallel == "column":
            return GatheredLinear.apply(x, self.weight)
        product = functional.linear(x, self.weight)
        return Scatter.apply(product) if self.parallel == "row" else product


def rotated(x, cosine, sine):
    one, other = x.chunk(2, -1)
    return torch.cat((one * cosine - other * sine, one * sine + other * cosine), -1)


class Layer(nn.Module):
    """Sequence first; under tensor parallelism each rank has its share of the heads and of the MLP."""

    def __init__(self, ranks):
        super().__init__()
        column, row = ("column", "row") if ranks > 1 else ("", "")
        self.heads = HEADS // ranks
        self.before, self.between = Norm(), Norm()
        self.qkv = Matrix(HIDDEN, 3 * HIDDEN // ranks, column)
        self.out = Matrix(HIDDEN // ranks, HIDDEN, row)
        self.up = Matrix(HIDDEN, 2 * FFN // ranks, column)
        self.down = Matrix(FFN // ranks, HIDDEN, row)

    def forward(self, x, cosine, sine):
        qkv = self.qkv(self.before(x))
        q, k, v = qkv.view(TOKENS, 1, self.heads, -1).chunk(3, -1)
        q, k = rotated(q, cosine, sine), rotated(k, cosine, sine)
        q, k, v = (each.permute(1, 2, 0, 3) for each in (q, k, v))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.permute(2, 0, 1, 3).reshape(TOKENS, 1, -1))
        gate, up = self.up(self.between(x)).chunk(2, -1)
        return x + self.down(functional.silu(gate) * up)


class EncoderLayer(nn.Module):
    """A layer of BERT on one rank."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.up, self.down = nn.Linear(HIDDEN, 4 * HIDDEN), nn.Linear(4 * HIDDEN, HIDDEN)
        self.between, self.after = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.dropped = nn.Dropout(0.1)

    def forward(self, x):
        q, k, v = self.qkv(x).view(TOKENS, 1, 3, HEADS, -1).permute(2, 1, 3, 0, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v).permute(2, 0, 1, 3)
        x = self.between(x + self.dropped(self.out(mixed.reshape(TOKENS, 1, -1))))
        return self.after(x + self.dropped(self.down(functional.gelu(self.up(x)))))


def put_into_a_bucket(weight):
    bucket = torch.zeros_like(weight)

    def copy(parameter):
        bucket.copy_(parameter.grad)
        parameter.grad = None

    weight.register_post_accumulate_grad_hook(copy)


def summed_in_32_bit(weight):
    total = torch.zeros_like(weight, dtype=torch.float32)

    def add(parameter):
        total.add_(parameter.grad)
        parameter.grad = None

    weight.register_post_accumulate_grad_hook(add)


def of_llama(ranks, rounds):
    """As `microseconds`, of a Llama layer."""
    layers = nn.ModuleList(Layer(ranks) for _ in range(LAYERS))
    for weight in layers.parameters():
        summed_in_32_bit(weight)
    half = HIDDEN // HEADS // 2
    cosine, sine = torch.ones(TOKENS, 1, 1, half), torch.zeros(TOKENS, 1, 1, half)
    return microseconds(layers, ranks, rounds, cosine.bfloat16(), sine.bfloat16())


def of_bert(rounds):
    """As `microseconds`, of a layer of BERT."""
    layers = nn.ModuleList(EncoderLayer().bfloat16() for _ in range(LAYERS))
    for weight in layers.parameters():
        put_into_a_bucket(weight)
    return microseconds(layers, 1, rounds)


def microseconds(layers, ranks, rounds, *positions):
    """Least CPU time of a layer's forward and backward."""
    found = []
    for _ in range(rounds):
        x = torch.randn(TOKENS // ranks, 1, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
        started = time.process_time()
        y = x
        for layer in layers:
            y = layer(y, *positions)
        middle = time.process_time()
        y.sum().backward()
        found.append((middle - started, time.process_time() - middle))
    return np.min(found, axis=0) / LAYERS * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=60)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    model = ModelSpec(
        name="llama", layers=LAYERS, hidden=HIDDEN, heads=HEADS, vocab=128, seq_len=TOKENS, ffn_hidden=FFN,
        gated_mlp=True, norm="rmsnorm", positions="rotary", biases=False, attention="flash",
    )  # fmt: skip
    print(f"{'':10} {'forward us':>10} {'backward us':>11} {'kernels':>8} {'us a kernel':>12}")
    bert = replace(load_model("bert-large"), attention="flash")
    alone = Plan(1, 1, 1, 1, 1, recompute="none")
    _print("bert", bert, alone, *of_bert(rounds))
    for ranks in (1, RANKS):
        plan = Plan(ranks, 1, 1, 1, 1, recompute="none", sequence_parallel=ranks > 1)
        _print(f"tp {ranks}", model, plan, *of_llama(ranks, rounds))


def _print(name, model, plan, forward, backward):
    count = sum(float(each[0]) for each in kernel_counts(model, PlanBatch.of([plan])))
    each = (forward + backward) / count
    print(f"{name:10} {forward:10.0f} {backward:11.0f} {count:8.0f} {each:12.1f}")


if __name__ == "__main__":
    main()
