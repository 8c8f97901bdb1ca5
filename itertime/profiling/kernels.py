"""The kernels that `itertime profile collect` times, in torch.

Each function returns a preparation, which takes a `Bench`, creates the tensors and returns the function to
run.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from itertime.errors import UserError

__all__ = ["Bench", "adam", "attention", "bench_on", "gemm", "row_kernel"]

Preparation = Callable[["Bench"], Callable[[], Any]]


@dataclass
class Bench:
    """The environment of kernels: torch, the device, the element type (bf16; 32 bit on a CPU)."""

    torch: Any
    device: str
    dtype: Any
    dtype_name: str
    name: str
    source: str
    _trash: Any = field(default=None, repr=False)

    def random(self, *shape: int, grad: bool = False) -> Any:
        return self.torch.randn(*shape, device=self.device, dtype=self.dtype, requires_grad=grad)

    def flush(self, nbytes: int) -> None:
        """Evict the caches by overwriting `nbytes` bytes."""
        if self._trash is None:
            self._trash = self.torch.empty(nbytes, dtype=self.torch.int8, device=self.device)
        self._trash.zero_()


def bench_on(device: str) -> Bench:
    """The bench of a device, "cuda" or "cpu" (one core).

    Raises `UserError` for another device, and if torch or the GPU is missing.
    """
    if device not in ("cuda", "cpu"):
        raise UserError(f"--device {device}: must be cuda or cpu")
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError:
        raise UserError(
            "torch is not installed, and measuring needs it; python -m pip install torch"
        ) from None
    torch.manual_seed(0)
    source = f"torch/{torch.__version__}"
    if device == "cpu":
        torch.set_num_threads(1)  # several threads would add their synchronisation to the times
        return Bench(
            torch=torch, device="cpu", dtype=torch.float32, dtype_name="fp32", name="cpu", source=source
        )
    if not torch.cuda.is_available():
        raise UserError("--device cuda: torch finds no CUDA GPU; use --device cpu for a trial")
    return Bench(
        torch=torch,
        device="cuda",
        dtype=torch.bfloat16,
        dtype_name="bf16",
        name=torch.cuda.get_device_name(),
        source=f"{source}, cuda {torch.version.cuda}",
    )


def gemm(layout: str, m: int, n: int, k: int, batch: int) -> Preparation:
    """y[m, n] = a[m, k] b[k, n] with the operands stored as in training.

    Weights are (out, in): forward reads the transposed weight, dx the plain weight, dw the transposed
    gradient.
    """

    def prepare(bench: Bench) -> Callable[[], Any]:
        if layout == "batched":
            left, right = bench.random(batch, m, k), bench.random(batch, k, n)
            return lambda: bench.torch.bmm(left, right)
        a = bench.random(k, m).t() if layout == "dw" else bench.random(m, k)
        b = bench.random(n, k).t() if layout == "forward" else bench.random(k, n)
        return lambda: bench.torch.matmul(a, b)

    return prepare


def attention(
    batch: int, heads: int, kv_heads: int, head_dim: int, seq: int, causal: bool, direction: str
) -> Preparation:
    """Scaled dot-product attention (torch's flash kernel on a GPU), forward or forward and backward."""

    def prepare(bench: Bench) -> Callable[[], Any]:
        backward = direction != "fwd"
        q = bench.random(batch, heads, seq, head_dim, grad=backward)
        k, v = (bench.random(batch, kv_heads, seq, head_dim, grad=backward) for _ in "kv")
        out_grad = bench.random(batch, heads, seq, head_dim)
        sdpa = bench.torch.nn.functional.scaled_dot_product_attention

        def forward() -> Any:
            return sdpa(q, k, v, is_causal=causal, enable_gqa=kv_heads != heads)

        def both() -> Any:
            return bench.torch.autograd.grad(forward(), (q, k, v), out_grad)

        return both if backward else forward

    return prepare


def row_kernel(op: str, rows: int, cols: int, direction: str) -> Preparation:
    """An element-wise kernel, a norm, a softmax or a loss on `rows` rows of `cols` elements."""

    def prepare(bench: Bench) -> Callable[[], Any]:
        torch = bench.torch
        forward, leaves = _forward(op, rows, cols, bench, direction == "bwd")
        if direction == "fwd":
            return forward
        out = forward()
        grad = torch.ones_like(out)
        return lambda: torch.autograd.grad(out, leaves, grad, retain_graph=True)

    return prepare


def _forward(op: str, rows: int, cols: int, bench: Bench, grad: bool) -> tuple[Callable[[], Any], list[Any]]:
    """The forward pass, and the tensors whose gradients the backward pass computes."""
    torch = bench.torch
    functional = torch.nn.functional
    if op == "embedding":
        table = bench.random(32000, cols, grad=grad)
        ids = torch.randint(0, 32000, (rows,), device=bench.device)
        return lambda: functional.embedding(ids, table), [table]
    x = bench.random(rows, cols, grad=grad)
    if op in ("add", "silu_mul"):
        other = bench.random(rows, cols, grad=grad)
        if op == "add":
            return lambda: x + other, [x, other]
        return lambda: functional.silu(x) * other, [x, other]
    if op == "rope_qk":
        cos, sin = bench.random(rows, cols), bench.random(rows, cols)
        return lambda: x * cos + torch.roll(x, cols // 2, -1) * sin, [x]
    if op == "cross_entropy":
        labels = torch.randint(0, cols, (rows,), device=bench.device)
        return lambda: functional.cross_entropy(x.float(), labels), [x]
    weight, bias = (bench.random(cols, grad=grad) for _ in "wb")
    plain: dict[str, tuple[Callable[[], Any], list[Any]]] = {
        "gelu": (lambda: functional.gelu(x), [x]),
        "softmax": (lambda: functional.softmax(x, -1), [x]),
        "dropout": (lambda: functional.dropout(x, 0.1), [x]),
        "layernorm": (lambda: functional.layer_norm(x, (cols,), weight, bias), [x, weight, bias]),
        "rmsnorm": (lambda: functional.rms_norm(x, (cols,), weight), [x, weight]),
    }
    return plain[op]


def adam(parameters: int) -> Preparation:
    """One step of Adam on 32-bit parameters, fused on a GPU."""

    def prepare(bench: Bench) -> Callable[[], Any]:
        torch = bench.torch
        weights = torch.randn(parameters, device=bench.device, requires_grad=True)
        weights.grad = torch.randn_like(weights)
        return torch.optim.Adam([weights], fused=bench.device == "cuda").step

    return prepare
