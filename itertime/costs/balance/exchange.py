"""The all-gather by which ranks exchange their samples."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["ARRAYS", "SampleExchange", "exchange_bytes"]

ARRAYS = 4  # token ids, segment ids, attention mask, masked labels
ARRAY_BYTES = 2  # int16


class SampleExchange(NamedTuple):
    """An all-gather: bytes that every rank contributes, and whether it stays among the ranks of a node."""

    bytes_per_rank: int
    in_node: bool


def exchange_bytes(balance: str, samples: int, seq_len: int) -> SampleExchange:
    """The all-gather of one iteration of a rank's `samples` samples, for this `balance`; 0 bytes for none.

    MLPerf's runs gather 4 arrays of int16, samples x seq_len each, padding included: NVIDIA's over all ranks
    (`exchange_padding`), Samsung's among the ranks of a node (`group_exchange_padding`; repositories
    mlcommons/training_results_v1.0 and v1.1). Strata are drawn by the loader of each rank, without traffic.

    >>> exchange_bytes("exchanged", 16, 512)
    SampleExchange(bytes_per_rank=65536, in_node=True)
    """
    if balance in ("drawn", "stratified"):
        return SampleExchange(0, True)
    return SampleExchange(ARRAYS * ARRAY_BYTES * samples * seq_len, balance != "sorted")
