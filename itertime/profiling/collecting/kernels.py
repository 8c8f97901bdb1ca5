"""The kernels that `itertime profile collect` times, in torch.

Each function returns a preparation, which takes a `Bench`, creates the tensors and returns the function to
run. A kernel that this device or this version of torch lacks raises `Unsupported`: no other kernel takes its
place in silence.

Attention kernels, each asked for by name: torch's backends of scaled dot-product attention, and FA3.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from .bench import Bench, Preparation, Unsupported

FP8_MULTIPLE = 16  # cuBLAS wants every extent of an fp8 product to be a multiple
FP8_MOST = 448.0  # the largest e4m3 number


def needed(owner: Any, *names: str) -> Any:
    """An attribute of torch by its path. Raises `Unsupported` if this version has none."""
    for name in names:
        if not hasattr(owner, name):
            raise Unsupported(f"this version of torch has no {'.'.join(names)}")
        owner = getattr(owner, name)
    return owner


def _tried(run: Callable[[], Any], kernel: str) -> Callable[[], Any]:
    """`run`, once it has run. Raises `Unsupported` if the device refuses, MemoryError if memory is short."""
    try:
        run()
    except (RuntimeError, TypeError, ValueError, AttributeError) as error:
        text = str(error)
        if "out of memory" in text.lower():
            raise MemoryError(text) from error
        raise Unsupported(f"{kernel}: {text.strip().splitlines()[0] if text.strip() else error!r}") from error
    return run


def gemm(layout: str, m: int, n: int, k: int, batch: int) -> Preparation:
    """y[m, n] = a[m, k] b[k, n] with the operands stored as in training.

    Weights are (out, in): forward reads the transposed weight, dx the plain weight, dw the transposed
    gradient. "dw-fp32" adds the product to a gradient in 32 bit, as frameworks that accumulate over
    micro-batches do.
    """

    def prepare(bench: Bench) -> Callable[[], Any]:
        torch = bench.torch
        if layout == "batched":
            a, b = bench.random(batch, m, k), bench.random(batch, k, n)
            return lambda: torch.bmm(a, b)
        a = bench.random(k, m).t() if layout.startswith("dw") else bench.random(m, k)
        b = bench.random(n, k).t() if layout == "forward" else bench.random(k, n)
        if layout != "dw-fp32":
            return lambda: torch.matmul(a, b)
        total = torch.zeros(m, n, device=bench.device, dtype=torch.float32)
        if bench.dtype == torch.float32:
            return lambda: torch.addmm(total, a, b, out=total)
        needed(torch.ops.aten, "addmm", "dtype_out")
        run = torch.ops.aten.addmm.dtype_out
        return _tried(lambda: run(total, a, b, torch.float32, out=total), "addmm of bf16 into fp32")

    return prepare


def fp8_gemm(layout: str, m: int, n: int, k: int) -> Preparation:
    """The same product with operands in fp8 (e4m3; gradients e5m2), one scale per tensor, the result in bf16.

    All layouts read both operands along k, which the hardware needs: the transposed copies that this takes
    are casts (`cast`). Backward products add up in 32 bit at every step (no fast accumulation), as
    Transformer Engine has it.
    """

    def prepare(bench: Bench) -> Callable[[], Any]:
        torch = bench.torch
        scaled = needed(torch, "_scaled_mm")
        e4m3, e5m2 = needed(torch, "float8_e4m3fn"), needed(torch, "float8_e5m2")
        if any(extent % FP8_MULTIPLE for extent in (m, n, k)):
            raise Unsupported(f"fp8 needs multiples of {FP8_MULTIPLE}")
        # The gradient is the left operand of dx = dy w, and the transposed gradient that of dw = x^T dy.
        a = bench.random(m, k).to(e4m3 if layout == "forward" else e5m2)
        b = bench.random(n, k).to(e4m3).t()
        unit_scale = torch.ones((), device=bench.device, dtype=torch.float32)

        def run() -> Any:
            return scaled(
                a,
                b,
                scale_a=unit_scale,
                scale_b=unit_scale,
                out_dtype=torch.bfloat16,
                use_fast_accum=layout == "forward",
            )

        return _tried(run, "fp8 product")

    return prepare


def grouped_gemm(layout: str, m: int, n: int, k: int, groups: int, impl: str) -> Preparation:
    """`groups` products of m rows each: one launch (`impl` "grouped", torch's grouped_mm) or a "loop".

    forward: y_g = x_g w_g^T; dx: dx_g = dy_g w_g, both (m, k) by (k, n) per group; dw: x_g^T dy_g, (m, k) by
    (k, n) where k are the rows of a group.
    """

    def prepare(bench: Bench) -> Callable[[], Any]:
        torch = bench.torch
        rows = k if layout == "dw" else m
        ends = torch.arange(1, groups + 1, device=bench.device, dtype=torch.int32) * rows
        if layout == "dw":
            a, b = bench.random(groups * k, m).t(), bench.random(groups * k, n)
            pairs = [(a[:, g * k : (g + 1) * k], b[g * k : (g + 1) * k]) for g in range(groups)]
        else:
            a = bench.random(groups * m, k)
            b = bench.random(groups, k, n)
            if layout == "forward":
                b = bench.random(groups, n, k).transpose(1, 2)
            pairs = [(a[g * m : (g + 1) * m], b[g]) for g in range(groups)]
        if impl == "loop":
            return lambda: [torch.matmul(rows_of_group, weights) for rows_of_group, weights in pairs]
        functional = torch.nn.functional
        grouped = getattr(functional, "grouped_mm", None) or needed(torch, "_grouped_mm")
        if bench.dtype != torch.bfloat16:
            raise Unsupported("grouped_mm is timed in bf16, on GPUs alone")
        return _tried(lambda: grouped(a, b, offs=ends), "grouped_mm")

    return prepare


def cast(op: str, rows: int, cols: int, impl: str) -> Preparation:
    """bf16 to fp8 (e4m3) with a known scale, and the new largest magnitude, as delayed scaling has it.

    op "fp8" writes the values; "fp8+transpose" a transposed copy too, which backward products on Hopper read.
    """

    def prepare(bench: Bench) -> Callable[[], Any]:
        torch = bench.torch
        e4m3 = needed(torch, "float8_e4m3fn")

        def quantise(x: Any, scale: Any) -> Any:
            values = (x.float() * scale).clamp(-FP8_MOST, FP8_MOST).to(e4m3)
            largest = x.abs().amax()
            return (values, largest) if op == "fp8" else (values, values.t().contiguous(), largest)

        x = bench.random(rows, cols)
        scale = torch.full((), 32.0, device=bench.device, dtype=torch.float32)
        run = _as(impl, quantise, bench)
        return _tried(lambda: run(x, scale), f"cast to fp8, {impl}")

    return prepare


def _as(impl: str, function: Callable[..., Any], bench: Bench) -> Callable[..., Any]:
    """The function eager, or compiled for its exact shapes."""
    if impl == "eager":
        return function
    compiled: Callable[..., Any] = needed(bench.torch, "compile")(function, dynamic=False)
    return compiled


def row_kernel(op: str, rows: int, cols: int, direction: str, impl: str = "eager") -> Preparation:
    """An element-wise kernel, a norm, a softmax or a loss on `rows` rows of `cols` elements."""

    def prepare(bench: Bench) -> Callable[[], Any]:
        function, inputs, leaves = _forward(op, rows, cols, bench, direction == "bwd")
        run = _as(impl, function, bench)
        if impl != "eager":
            _tried(lambda: run(*inputs), "torch.compile")
        if direction == "fwd":
            return lambda: run(*inputs)
        out = run(*inputs)
        grad = bench.torch.randn_like(out)
        autograd = bench.torch.autograd.grad
        if op == "dropout_add":  # the gradients of both branches are added behind it
            return lambda: bench.torch.add(*autograd(out, leaves, grad, retain_graph=True))
        return lambda: autograd(out, leaves, grad, retain_graph=True)

    return prepare


Forward = tuple[Callable[..., Any], list[Any], list[Any]]


def _forward(op: str, rows: int, cols: int, bench: Bench, grad: bool) -> Forward:
    """The forward pass, its arguments, and those whose gradients the backward pass computes."""
    torch = bench.torch
    functional = torch.nn.functional
    if op == "embedding":
        table = bench.random(32000, cols, grad=grad)
        ids = torch.randint(0, 32000, (rows,), device=bench.device)
        return functional.embedding, [ids, table], [table]
    x = bench.random(rows, cols, grad=grad)
    if op in ("add", "silu_mul", "dropout_add"):
        addend = bench.random(rows, cols, grad=grad)
        operands = [x, addend]
        if op == "add":
            return (lambda a, b: a + b), operands, operands
        if op == "dropout_add":
            return (lambda a, b: a + functional.dropout(b, 0.1)), operands, operands
        return (lambda a, b: functional.silu(a) * b), operands, operands
    if op == "rope_qk":
        angles = [bench.random(rows, cols), bench.random(rows, cols)]
        return (lambda a, cos, sin: a * cos + torch.roll(a, cols // 2, -1) * sin), [x, *angles], [x]
    if op == "cross_entropy":
        labels = torch.randint(0, cols, (rows,), device=bench.device)
        return (lambda a, ids: functional.cross_entropy(a.float(), ids)), [x, labels], [x]
    weight, bias = (bench.random(cols, grad=grad) for _ in "wb")
    norms = {"layernorm": [x, weight, bias], "rmsnorm": [x, weight]}
    plain: dict[str, Callable[..., Any]] = {
        "gelu": functional.gelu,
        "softmax": lambda a: functional.softmax(a, -1),
        "dropout": lambda a: functional.dropout(a, 0.1),
        "layernorm": lambda a, w, b: functional.layer_norm(a, (cols,), w, b),
    }
    if op == "rmsnorm":
        norm = needed(functional, "rms_norm")
        return (lambda a, w: norm(a, (cols,), w)), norms[op], norms[op]
    inputs = norms.get(op, [x])
    return plain[op], inputs, inputs


def adam(parameters: int) -> Preparation:
    """One fused step of Adam on 32-bit parameters."""

    def prepare(bench: Bench) -> Callable[[], Any]:
        torch = bench.torch
        weights = torch.randn(parameters, device=bench.device, requires_grad=True)
        weights.grad = torch.randn_like(weights)
        try:
            return torch.optim.Adam([weights], fused=True).step
        except RuntimeError as error:  # torch before 2.4 on a CPU
            raise Unsupported(f"adam: {error}") from None

    return prepare


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
