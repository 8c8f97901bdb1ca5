"""Trains a small GPT on one device with torch and times its iterations: the measured side of the study.

The model is the one that a `ModelSpec` states: learned positions, layer norms, GELU, biases, an untied
projection, no dropout. It trains as Megatron-LM's mixed precision does: weights and gradients in 16 bit, Adam
on 32-bit copies of the weights (32 bit alone on a CPU). Nothing is compiled. Only torch is needed, so the
file also runs where clustersim is not installed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

WARM_UP = 5
CLIP_NORM = 1.0


@dataclass(frozen=True)
class Training:
    """One configuration: the shape of the model, and the sequences of a micro-batch and of an iteration."""

    layers: int
    hidden: int
    heads: int
    seq_len: int
    vocab: int
    micro_batch: int
    global_batch: int


class Block(nn.Module):
    """A transformer layer: attention and MLP, each behind a layer norm and added to the stream."""

    def __init__(self, training: Training):
        super().__init__()
        hidden = training.hidden
        self.heads = training.heads
        self.attention_norm, self.mlp_norm = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.query_key_value, self.projection = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.mlp_up, self.mlp_down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, stream: Tensor) -> Tensor:
        batch, seq, hidden = stream.shape
        shape = (batch, seq, 3, self.heads, hidden // self.heads)
        query, key, value = (
            self.query_key_value(self.attention_norm(stream)).view(shape).permute(2, 0, 3, 1, 4)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        stream = stream + self.projection(mixed.transpose(1, 2).reshape(batch, seq, hidden))
        return stream + self.mlp_down(functional.gelu(self.mlp_up(self.mlp_norm(stream))))


class Gpt(nn.Module):
    """The stack of layers between an embedding and a vocabulary projection; `forward` gives the loss."""

    def __init__(self, training: Training):
        super().__init__()
        self.tokens = nn.Embedding(training.vocab, training.hidden)
        self.positions = nn.Parameter(torch.zeros(training.seq_len, training.hidden))
        self.blocks = nn.ModuleList(Block(training) for _ in range(training.layers))
        self.norm = nn.LayerNorm(training.hidden)
        self.head = nn.Linear(training.hidden, training.vocab, bias=False)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        stream = self.tokens(tokens) + self.positions
        for block in self.blocks:
            stream = block(stream)
        logits = self.head(self.norm(stream)).float()
        return functional.cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1))


class MixedPrecisionAdam:
    """Adam on 32-bit copies of 16-bit weights; gradients are copied to 32 bit and clipped by their norm."""

    def __init__(self, weights: list[nn.Parameter], *, fused: bool):
        self.weights = weights
        self.copies = [nn.Parameter(weight.detach().float().clone()) for weight in weights]
        self.adam = torch.optim.Adam(self.copies, lr=1e-5, fused=fused)
        for copy in self.copies:
            copy.grad = torch.zeros_like(copy)

    @torch.no_grad()
    def step(self) -> None:
        gradients = [copy.grad for copy in self.copies if copy.grad is not None]
        torch._foreach_copy_(gradients, [weight.grad for weight in self.weights])
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        torch._foreach_mul_(gradients, (CLIP_NORM / (norm + 1e-6)).clamp(max=1.0))
        self.adam.step()
        torch._foreach_copy_(self.weights, [copy.detach() for copy in self.copies])
        for weight in self.weights:
            weight.grad = None


def iteration_times(training: Training, device: str, seconds: float, most: int) -> dict[str, Any]:
    """Trains for at least `seconds` or `most` iterations, and returns their times in seconds with the bytes
    that torch allocated at most.
    """
    on_gpu = device == "cuda"
    dtype = torch.bfloat16 if on_gpu else torch.float32
    torch.manual_seed(0)
    with torch.device(device):
        model = Gpt(training).to(dtype)
        shape = (training.global_batch, training.seq_len)
        tokens = torch.randint(0, training.vocab, shape)
        labels = torch.randint(0, training.vocab, shape)
    weights = list(model.parameters())
    optimizer = MixedPrecisionAdam(weights, fused=on_gpu)
    starts = range(0, training.global_batch, training.micro_batch)

    def iterate() -> float:
        begin = time.perf_counter()
        for start in starts:
            rows = slice(start, start + training.micro_batch)
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):  # by default torch may take cuDNN's kernel
                (model(tokens[rows], labels[rows]) / len(starts)).backward()
        optimizer.step()
        if on_gpu:
            torch.cuda.synchronize()
        return time.perf_counter() - begin

    for _ in range(WARM_UP):
        iterate()
    begin, times = time.perf_counter(), []
    while len(times) < most and time.perf_counter() - begin < seconds:
        times.append(iterate())
    peak_bytes = torch.cuda.max_memory_allocated() if on_gpu else 0
    return {"median_s": statistics.median(times), "times_s": times, "memory_bytes": peak_bytes}


def main() -> None:
    """One line of JSON for each configuration of the file, as it is measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("configurations", type=Path, help="a JSON list of the fields of `Training`")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--seconds", type=float, default=10.0, help="at least so long for each configuration")
    parser.add_argument("--most", type=int, default=100, help="iterations of each configuration")
    arguments = parser.parse_args()
    if arguments.device == "cpu":
        torch.set_num_threads(1)
    for fields in json.loads(arguments.configurations.read_text()):
        training = Training(**fields)
        try:
            result = iteration_times(training, arguments.device, arguments.seconds, arguments.most)
        except torch.OutOfMemoryError as error:
            result = {"failed": str(error).partition("\n")[0]}
        if arguments.device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        print(json.dumps(asdict(training) | result), flush=True)


if __name__ == "__main__":
    main()
