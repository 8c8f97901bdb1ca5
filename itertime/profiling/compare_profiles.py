"""Two profiles kernel by kernel, at shapes of training."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from itertime.spec import (
    Attention,
    AttentionKernel,
    Cast,
    Collective,
    Elementwise,
    Gemm,
    GroupedGemm,
    Profile,
)

# (n, k) of Llama 3 8B and 70B on 8 ranks or fewer (Llama 3, 2024, table 3): QKV, projection, MLP.
LAYERS = ((6144, 4096), (4096, 4096), (14336, 4096), (4096, 14336), (10240, 8192), (8192, 3584))
TOKENS = (2048, 8192)
EXPERTS = ((8, 1024, 4096, 14336), (32, 256, 1536, 4096))  # groups, rows of each, n, k
SEQUENCES = (2048, 8192)
LARGE_BYTES, WIDTH = 2.0**28, 4096
MESSAGES = (2.0**20, 2.0**26, 2.0**29)


class Difference(NamedTuple):
    """One kernel under both profiles, seconds; None where a profile has no model of it."""

    group: str
    kernel: str
    first_s: float | None
    second_s: float | None

    @property
    def ratio(self) -> float | None:
        """The second profile's time over the first's."""
        if self.first_s is None or self.second_s is None:
            return None
        return self.second_s / self.first_s


def compare_profiles(first: Profile, second: Profile) -> list[Difference]:
    """Every kernel of the list, in its order."""
    tables = [dict(_times(profile)) for profile in (first, second)]
    keys = list(dict.fromkeys([*tables[0], *tables[1]]))
    return [Difference(*key, tables[0].get(key), tables[1].get(key)) for key in keys]


def mean_ratios(differences: list[Difference]) -> dict[str, float]:
    """The geometric mean of the ratios of each group that both profiles have."""
    groups = dict.fromkeys(difference.group for difference in differences)
    ratios = {
        group: [
            difference.ratio for difference in differences if difference.group == group and difference.ratio
        ]
        for group in groups
    }
    return {group: float(np.exp(np.mean(np.log(members)))) for group, members in ratios.items() if members}


def _times(profile: Profile) -> Iterator[tuple[tuple[str, str], float]]:
    for precision, m, (n, k) in itertools.product(profile.precisions, TOKENS, LAYERS):
        for name, (rows, columns, depth) in (("y", (m, n, k)), ("dx", (m, k, n)), ("dw", (n, k, m))):
            key = f"gemm {precision}", f"{name} {rows} x {columns} x {depth}"
            yield key, float(profile.seconds(Gemm(rows, columns, depth, precision=precision)))
    for precision, (groups, m, n, k) in itertools.product(profile.precisions, EXPERTS):
        key = f"grouped gemm {precision}", f"{groups} x ({m} x {n} x {k})"
        yield key, float(profile.seconds(GroupedGemm(m, n, k, groups, precision)))
    for kernel, seq, backward in itertools.product(
        ("flash", *profile.attention_kernels), SEQUENCES, (False, True)
    ):
        shape = (1, 32, 8, 128, seq, seq, True, backward)
        name = f"{'backward' if backward else 'forward'} 32/8 heads of 128, {seq} tokens"
        yield (
            (f"attention {kernel}", name),
            float(profile.seconds(Attention(*shape, kernel=AttentionKernel(kernel)))),
        )
    for style in (None, *profile.elementwise_styles):
        for kind in profile.elementwise:
            group = "memory-bound" if style is None else f"memory-bound {style}"
            key = group, f"{kind}, {LARGE_BYTES / 2**20:g} MiB"
            yield key, float(profile.seconds(Elementwise(LARGE_BYTES, kind, WIDTH, style)))
    for precision in profile.casts:
        yield ("casts", f"to {precision}, 64 Mi elements"), float(profile.seconds(Cast(2.0**26, precision)))
    for operation, size in itertools.product(profile.collectives, MESSAGES):
        ranks = 2 if operation == "send_recv" else 8
        key = "collectives", f"{operation} among {ranks}, {size / 2**20:g} MiB"
        yield key, float(profile.seconds(Collective(operation, size, ranks)))
