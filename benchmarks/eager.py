"""CPU time to issue the kernels of a layer in eager PyTorch (needs torch; extra `profile`).

    python benchmarks/eager.py [--rounds 60]

A Llama layer as training frameworks write it: plain modules, norms and rotary positions of elementary
operations, gradients summed in 32 bit by a hook on every weight. A second layer runs under tensor and
sequence parallelism, with collectives through torch.distributed's "fake" backend, which moves nothing.
A BERT layer as NVIDIA's code of MLPerf has it: attention and norms are functions of Python, as Apex's are
(contrib/fmha/fmha.py, contrib/layer_norm/layer_norm.py); and the same under DistributedDataParallel with a
communication hook that clips each bucket, as Samsung's.
Tensors are so small that only Python, autograd and the dispatcher take time. The output is the least CPU
time of forward and backward of a layer, its share forward, and the time of both for each kernel that
`itertime.costs.layer` counts.

This is a lower bound for a GPU: the CUDA driver's time for a launch comes on top.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.testing._internal.distributed.fake_pg import FakeStore

from itertime import ModelSpec, Plan
from itertime.costs.layer import kernel_counts
from itertime.spec import PlanBatch

LAYERS, RANKS, TOKENS = 20, 4, 16
HIDDEN, HEADS, FFN = 64, 8, 128
ATEN = torch.ops.aten


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


class PackedAttention(torch.autograd.Function):
    """One kernel forward, one backward, on joined queries, keys and values."""

    @staticmethod
    def forward(ctx, qkv):
        q, k, v = qkv.view(1, TOKENS, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed, sums = ATEN._scaled_dot_product_flash_attention_for_cpu(q, k, v)
        ctx.save_for_backward(q, k, v, mixed, sums)
        return mixed.transpose(1, 2).reshape(TOKENS, HIDDEN)

    @staticmethod
    def backward(ctx, gradient):
        q, k, v, mixed, sums = ctx.saved_tensors
        gradient = gradient.view(1, TOKENS, HEADS, -1).transpose(1, 2)
        arguments = gradient, q, k, v, mixed, sums, 0.0, False
        ATEN._scaled_dot_product_flash_attention_for_cpu_backward(*arguments)
        return gradient.new_empty(TOKENS, 3 * HIDDEN)


class FastNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        y, mean, inverse = torch.native_layer_norm(x, (HIDDEN,), weight, bias, 1e-12)
        ctx.save_for_backward(x, weight, bias, mean, inverse)
        return y

    @staticmethod
    def backward(ctx, gradient):
        x, weight, bias, mean, inverse = ctx.saved_tensors
        gradient = gradient.contiguous()
        every = [True, True, True]
        return ATEN.native_layer_norm_backward(gradient, x, [HIDDEN], mean, inverse, weight, bias, every)


class Normed(nn.LayerNorm):
    def forward(self, x):
        return FastNorm.apply(x, self.weight, self.bias)


class BertLayer(nn.Module):
    """Norms after the additions; all samples' tokens are rows."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.up, self.down = nn.Linear(HIDDEN, 4 * HIDDEN), nn.Linear(4 * HIDDEN, HIDDEN)
        self.first, self.second = Normed(HIDDEN), Normed(HIDDEN)

    def forward(self, x):
        mixed = self.out(PackedAttention.apply(self.qkv(x)))
        x = self.first(x + functional.dropout(mixed, 0.1, self.training))
        wide = functional.gelu(self.up(x))
        return self.second(x + functional.dropout(self.down(wide), 0.1, self.training))


class BertLayers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(BertLayer() for _ in range(LAYERS)).bfloat16()

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def clipped(state, bucket):
    """A bucket's communication hook: its norm, the scaling, the sum over ranks."""
    gradients = bucket.buffer()
    gradients.mul_(torch.clamp(1.0 / (gradients.norm() + 1e-6), max=1.0))
    return dist.all_reduce(gradients, async_op=True).get_future().then(lambda _: gradients)


def summed_in_32_bit(weight):
    total = torch.zeros_like(weight, dtype=torch.float32)

    def add(parameter):
        total.add_(parameter.grad)
        parameter.grad = None

    weight.register_post_accumulate_grad_hook(add)


def microseconds(ranks, rounds):
    """Least CPU time of a layer's forward and backward."""
    layers = nn.ModuleList(Layer(ranks) for _ in range(LAYERS))
    for weight in layers.parameters():
        summed_in_32_bit(weight)
    half = HIDDEN // HEADS // 2
    cosine, sine = torch.ones(TOKENS, 1, 1, half), torch.zeros(TOKENS, 1, 1, half)
    cosine, sine = cosine.bfloat16(), sine.bfloat16()

    def run(y):
        for layer in layers:
            y = layer(y, cosine, sine)
        return y

    return least(run, (TOKENS // ranks, 1, HIDDEN), rounds)


def microseconds_of_bert(parallel, rounds):
    """Least CPU time of a layer's forward and backward, alone or under data parallelism."""
    layers = BertLayers()
    if parallel:
        # Of float32, so that a layer's gradients fill a bucket.
        nbytes = 4 * sum(weight.numel() for weight in layers.layers[0].parameters())
        layers = nn.parallel.DistributedDataParallel(layers, bucket_cap_mb=nbytes / 2**20)
        layers.register_comm_hook(None, clipped)
    return least(layers, (TOKENS, HIDDEN), rounds)


def least(run, shape, rounds):
    """Least CPU time of both passes through LAYERS layers, microseconds a layer."""
    found = []
    for _ in range(rounds):
        x = torch.randn(shape, dtype=torch.bfloat16, requires_grad=True)
        started = time.process_time()
        y = run(x)
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
    shape = {"layers": LAYERS, "hidden": HIDDEN, "heads": HEADS, "vocab": 128, "seq_len": TOKENS}
    llama = ModelSpec(
        name="llama", **shape, ffn_hidden=FFN, gated_mlp=True, norm="rmsnorm", positions="rotary",
        biases=False, attention="flash",
    )  # fmt: skip
    bert = ModelSpec(name="bert", **shape, attention="flash", dropout=True)
    print(f"{'':10} {'forward us':>10} {'backward us':>11} {'forward':>8} {'kernels':>8} {'us a kernel':>12}")
    for ranks in (1, RANKS):
        report(f"llama tp {ranks}", llama, ranks, microseconds(ranks, rounds))
    for parallel in (False, True):
        report("bert ddp" if parallel else "bert", bert, 1, microseconds_of_bert(parallel, rounds))


def report(name, model, ranks, measured):
    plan = Plan(ranks, 1, 1, 1, 1, recompute="none", sequence_parallel=ranks > 1)
    count = sum(float(each[0]) for each in kernel_counts(model, PlanBatch.of([plan])))
    forward, backward = measured
    both = forward + backward
    print(
        f"{name:10} {forward:10.0f} {backward:11.0f} {forward / both:8.3f} {count:8.0f} {both / count:12.1f}"
    )


if __name__ == "__main__":
    main()
