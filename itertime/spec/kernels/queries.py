"""What a profile is asked for: one launch of a kernel, or many launches at once.

| query | kernel |
|---|---|
| `Gemm`, `GroupedGemm` | matrix products; those of several experts in one launch |
| `Attention` | one layer's attention, forward or backward |
| `Elementwise` | a kernel that memory bandwidth bounds: norms, activations, additions, the optimizer |
| `Cast` | quantisation of a 16-bit tensor |
| `Collective` | a collective among GPUs of one node |

`Profile.seconds(query)` answers with seconds. The fields that are `ArrayLike` are numbers or NumPy arrays,
which broadcast against one another; the answer has their common shape. Several launches of one kernel are one
query with arrays.

Every query has a `range_key`, the key of `Profile.ranges` under which the measured sizes are stated, and its
`sizes` by the names that these ranges use.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from itertime.arrays import Array

Sizes = dict[str, ArrayLike]


def _of_both_passes(m: ArrayLike, n: ArrayLike, k: ArrayLike) -> tuple[ArrayLike, ArrayLike, ArrayLike]:
    """m, n and k of y = x w, of dx = dy w^T and of dw = x^T dy, stacked on a first axis of three."""
    return np.array([m, m, k]), np.array([n, k, n]), np.array([k, n, m])


class Gemm(NamedTuple):
    """`batch` products y[m, n] = x[m, k] w[k, n] in one launch, with the launch.

    The operands have the given precision, y has 16 bits; casts are not included. The products of the backward
    pass, dx = dy w^T (m, k, n) and dw = x^T dy (k, n, m), and batched products use the same formula; where no
    table measures them, the profile's `parts` say so.

    With "tf32" y has 32 bits. TF32 runs at half the rate of 16 bit on all tensor cores that have it (NVIDIA's
    data sheets from A100 to B200), and every matrix takes twice the bytes. That it reaches the same shares of
    both is assumed.
    """

    m: ArrayLike
    n: ArrayLike
    k: ArrayLike
    batch: ArrayLike = 1
    precision: str = "bf16"

    @classmethod
    def of_both_passes(cls, m: ArrayLike, n: ArrayLike, k: ArrayLike, precision: str = "bf16") -> Gemm:
        """y[m, n] = x[m, k] w[k, n], then dx and dw, on a first axis of three; m, n and k of equal shape."""
        return cls(*_of_both_passes(m, n, k), precision=precision)

    @property
    def range_key(self) -> str:
        return "gemm"

    @property
    def sizes(self) -> Sizes:
        return {"m": self.m, "n": self.n, "k": self.k}


class GroupedGemm(NamedTuple):
    """One launch of a product y[m, n] = x[m, k] w[k, n] for each of `groups` experts.

    `m` is the mean number of rows per expert and may be a fraction. The rows are balanced. A profile without
    a model of grouped products uses that of single products over all groups' tiles.
    """

    m: ArrayLike
    n: ArrayLike
    k: ArrayLike
    groups: ArrayLike
    precision: str = "bf16"

    @classmethod
    def of_both_passes(
        cls, m: ArrayLike, n: ArrayLike, k: ArrayLike, groups: ArrayLike, precision: str = "bf16"
    ) -> GroupedGemm:
        """As `Gemm.of_both_passes`."""
        return cls(*_of_both_passes(m, n, k), groups, precision)

    @property
    def range_key(self) -> str:
        return "grouped_gemm"

    @property
    def sizes(self) -> Sizes:
        return {"n": self.n, "k": self.k, "groups": self.groups}


class AttentionKernel(NamedTuple):
    """Which attention kernel runs, and what it is asked to leave out.

    `name` is "flash" (FlashAttention-2) or another that a profile knows. `value_dim` is the head dim of
    values and outputs, None for that of queries and keys. `window` > 0 is the number of keys, its own
    included, that a query reaches back under a causal mask; 0 is all. `longest` is the number of queries of
    the longest thread block, where a kernel's blocks differ; None asks for no such bound.
    """

    name: str = "flash"
    value_dim: float | None = None
    window: int = 0
    longest: Array | None = None


FLASH = AttentionKernel()


class Attention(NamedTuple):
    """One layer's attention kernel, forward or backward.

    `heads` and `kv_heads` are those on this GPU; sequences are in tokens. Causal attention halves the work,
    which is exact for seq_q = seq_kv. FlashAttention-2 pads the head dim of values and that of queries to the
    larger of the two.

    `kernel.name` is "flash" (FlashAttention-2), one of `Profile.attention_slowdown`, or one of
    `Profile.attention_kernels`. A profile that lacks one of its `NEWER_ATTENTION` answers with
    FlashAttention-2.
    """

    batch: ArrayLike
    heads: ArrayLike
    kv_heads: ArrayLike
    head_dim: ArrayLike
    seq_q: ArrayLike
    seq_kv: ArrayLike
    causal: ArrayLike = True
    backward: bool = False
    kernel: AttentionKernel = FLASH

    @property
    def range_key(self) -> str:
        return "attention" if self.kernel.name == "flash" else f"attention_{self.kernel.name}"

    @property
    def sizes(self) -> Sizes:
        return {"head_dim": self.head_dim, "seq": self.seq_kv}


class Elementwise(NamedTuple):
    """One memory-bound kernel that reads and writes `nbytes` bytes in all; 0 seconds for 0 bytes.

    `kind` is one of `ELEMENTWISE_KINDS`. Bytes count every tensor once, read or written, in 16 bit: 4 per
    element of layernorm, rmsnorm, softmax, gelu, rotary, embedding; 6 per element of the MLP width for swiglu
    and of an addition. `width` is the length of the rows that a norm or softmax reduces, in elements.

    `style` says how the kernel is written: None for the profile's own rates, which do not tell forward from
    backward, or one of `ELEMENTWISE_STYLES`. `backward`, by element, then picks the rate. A profile without
    styles answers with its own rates.
    """

    nbytes: ArrayLike
    kind: str = "elementwise"
    width: float | None = None
    style: str | None = None
    backward: ArrayLike = False

    @property
    def range_key(self) -> str:
        return self.kind

    @property
    def sizes(self) -> Sizes:
        if self.width is None:
            return {"bytes": self.nbytes}
        return {"bytes": self.nbytes, "width": self.width}


class Cast(NamedTuple):
    """Quantisation of a bf16 tensor of so many elements to `precision`, with its scales; no time for "bf16".

    The profile's parts named "cast" say which kernels that counts.
    """

    elements: ArrayLike
    precision: str

    @property
    def range_key(self) -> str:
        return f"cast_{self.precision}"

    @property
    def sizes(self) -> Sizes:
        return {"elements": self.elements}


class Collective(NamedTuple):
    """A collective among `ranks` GPUs of one node.

    `operation` is one of `COLLECTIVES`. `nbytes` is nccl-tests' size: the buffer of one rank, and for
    all_gather and reduce_scatter the gathered whole.
    """

    operation: str
    nbytes: ArrayLike
    ranks: ArrayLike = 2

    @property
    def range_key(self) -> str:
        return self.operation

    @property
    def sizes(self) -> Sizes:
        return {"ranks": self.ranks, "bytes": self.nbytes}


Query = Gemm | GroupedGemm | Attention | Elementwise | Cast | Collective
