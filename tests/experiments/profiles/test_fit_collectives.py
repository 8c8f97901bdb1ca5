"""Collectives of the GPUs from the H200 on, and what a rack's are assumed to be."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from experiments.profiles.chips import chip_named
from experiments.profiles.fit_collectives import EIGHT_OF, RACK_BUS, RACK_RANKS, fit_collectives
from itertime.spec import Evidence
from itertime.spec.size_table import SizeTable

SOME = dataclasses.replace(chip_named("h100-80gb"), collective_tables=())


def fitted(shared_dir, gpu: str) -> tuple[dict[str, SizeTable], dict[str, Evidence]]:
    tables, evidence = fit_collectives(
        shared_dir / "data" / "operators", dataclasses.replace(SOME, serving_tables=gpu)
    )
    return tables, {item.part: item for item in evidence}


@pytest.mark.parametrize("gpu", ["h200", "b200", "b300", "gb200", "gb300"])
def test_other_versions_of_nccl_confirm_the_tables(shared_dir, gpu: str) -> None:
    tables, evidence = fitted(shared_dir, gpu)
    assert set(tables) == {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"}
    for name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
        assert evidence[name].error_held_out_pct < 5.5
        assert evidence[name].measured["ranks"] == (2.0, 4.0 if gpu in EIGHT_OF else 8.0)
    assert evidence["send_recv"].kind == "assumed"


def test_sizes_are_those_of_a_profile(shared_dir) -> None:
    """nccl-tests on 8 H200: 459 GB/s of bus in a 512 MB all-reduce, 337 in an all-gather of 512 MB in all."""
    tables, _ = fitted(shared_dir, "h200")
    for name, passes, bus in (("all_reduce", 2, 459e9), ("all_gather", 1, 337e9)):
        seconds = tables[name].seconds(2.0**29, 8)
        assert passes * 7 / 8 * 2**29 / seconds == pytest.approx(bus, rel=0.02)


def test_a_rack_carries_what_one_shows(shared_dir) -> None:
    tables, evidence = fitted(shared_dir, "gb300")
    for name, passes in (("all_reduce", 2), ("all_to_all", 1)):
        table = tables[name]
        assert table.ranks == [2, 4, 8, RACK_RANKS]
        nbytes = 2.0**40  # latency counts for nothing
        bus = [passes * (n - 1) / n * nbytes / table.seconds(nbytes, n) for n in (8, RACK_RANKS)]
        assert bus[1] / bus[0] == pytest.approx(RACK_BUS[name], rel=1e-3)
    small = tables["all_gather"].seconds(512, np.array([4, 8, RACK_RANKS]))
    assert (small[2] - small[1]) / (small[1] - small[0]) == pytest.approx(14, rel=0.2)
    rack = evidence["collectives among more than 8 ranks of a node"]
    assert rack.kind == "assumed"
    assert rack.error_in_sample_pct < 13
