"""Attention kernels, each asked for by name: torch's backends of scaled dot-product attention, and FA3."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from .bench import Bench, Preparation, Unsupported
from .kernels import needed

__all__ = ["BACKENDS", "attention"]

# Name in the table -> torch's `SDPBackend`.
BACKENDS = {
    "flash2": "FLASH_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "math": "MATH",
}


def attention(
    batch: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    seq: int,
    causal: bool,
    direction: str,
    impl: str = "flash2",
) -> Preparation:
    """Attention forward ("fwd"), or forward and backward ("fwd+bwd").

    `impl` is one of `BACKENDS`, or "flash3", which the package flash_attn_interface has.
    """

    def prepare(bench: Bench) -> Callable[[], Any]:
        backward = direction != "fwd"
        make = _flash3 if impl == "flash3" else _sdpa
        # FlashAttention-3 has the heads behind the sequence, torch before it.
        shapes = [(batch, seq, count, head_dim) for count in (heads, kv_heads, kv_heads)]
        if impl != "flash3":
            shapes = [(batch, count, seq, head_dim) for count in (heads, kv_heads, kv_heads)]
        q, k, v = (bench.random(*shape, grad=backward) for shape in shapes)
        forward = make(bench, impl, causal, kv_heads != heads)
        try:
            out = forward(q, k, v)
        except (RuntimeError, TypeError, ValueError) as error:
            text = str(error) or repr(error)
            if "out of memory" in text.lower():
                raise MemoryError(text) from error
            raise Unsupported(f"{impl}: {text.strip().splitlines()[0]}") from error
        if not backward:
            return lambda: forward(q, k, v)
        out_grad = bench.torch.randn_like(out)
        grad = bench.torch.autograd.grad
        return lambda: grad(forward(q, k, v), (q, k, v), out_grad)

    return prepare


def _sdpa(bench: Bench, impl: str, causal: bool, grouped: bool) -> Callable[..., Any]:
    sdpa = bench.torch.nn.functional.scaled_dot_product_attention
    try:
        module: Any = importlib.import_module("torch.nn.attention")
    except ImportError:
        raise Unsupported("this version of torch does not let one choose the backend; 2.3 does") from None
    backend = needed(module, "SDPBackend", BACKENDS[impl])
    kernel_choice = needed(module, "sdpa_kernel")
    options: dict[str, Any] = {"enable_gqa": True} if grouped else {}

    def forward(q: Any, k: Any, v: Any) -> Any:
        with kernel_choice([backend]):
            return sdpa(q, k, v, is_causal=causal, **options)

    return forward


def _flash3(bench: Bench, impl: str, causal: bool, grouped: bool) -> Callable[..., Any]:
    try:
        kernel: Any = importlib.import_module("flash_attn_interface").flash_attn_func
    except (ImportError, AttributeError, OSError) as error:
        raise Unsupported(f"flash3: the package flash_attn_interface: {error}") from None

    def forward(q: Any, k: Any, v: Any) -> Any:
        result = kernel(q, k, v, causal=causal)
        return result[0] if isinstance(result, tuple) else result  # some versions add the log-sum-exp

    return forward
