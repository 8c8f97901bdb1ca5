"""Computes a GPU's profile from tables of measured operators.

    python -m itertime.profile_build ../shared/data/operators --gpu h100-80gb -o profiles/h100-80gb.json

    itertime profile collect -o mine.csv.gz
    python -m itertime.profile_build mine.csv.gz --gpu h100-80gb --base h100-80gb -o mine.json

The first reads a folder of published tables. The last reads what was measured here on one GPU of that type;
collectives, which one GPU cannot measure, come from the base profile. A GPU of another type is described in
a YAML file with the fields of `itertime.profiling.chips.Chip`.

The same tables give the same bytes. The file holds coefficients and small tables of medians, never the
measured rows.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from itertime.atomic import write_text
from itertime.errors import UserError

__all__ = ["build", "main", "render"]

ASSUMED = (
    ("gemm, backward layouts", "the forward formula", "dx = dy w^T and dw = x^T dy: no table measures them"),
    (
        "gemm, batched",
        "the forward formula over all batches' tiles",
        "no table measures strided-batched GEMMs",
    ),
    ("element-wise kernels, backward", "the forward bandwidth of each kind", "no table measures them"),
    ("collectives among more than 8 ranks of a node", "the bus bandwidth among 8", "no table measures them"),
)


def build(folder: Path, gpu: str = "a100-80gb", base: str | None = None) -> dict[str, Any]:
    """The profile as plain values, as it is written; raises `UserError` for tables that it cannot use.

    `folder` holds the tables; or it is a file of `itertime profile collect`, and collectives are taken from
    the profile `base`.
    """
    from itertime.profile import Evidence, load_profile
    from itertime.profiling.attention_slowdown import measure_slowdown
    from itertime.profiling.chips import chip_named
    from itertime.profiling.fit_attention import fit_attention
    from itertime.profiling.fit_collected import fit_collected
    from itertime.profiling.fit_collectives import fit_collectives
    from itertime.profiling.fit_elementwise import fit_elementwise
    from itertime.profiling.fit_gemm import fit_gemm

    chip = chip_named(gpu)
    gemm, gemm_evidence = fit_gemm(folder, chip)
    fit_kernels = fit_collected if folder.is_file() else fit_elementwise
    elementwise, elementwise_evidence = fit_kernels(folder, chip)
    launch_s = elementwise["elementwise"].launch_s
    attention, attention_evidence = fit_attention(folder, chip, launch_s)
    if base is None:
        slowdown, slowdown_evidence = measure_slowdown(folder, chip)
        attention_evidence += slowdown_evidence
    else:
        slowdown = load_profile(base).attention_slowdown
    if base is None:
        collectives, collective_evidence = fit_collectives(folder, chip)
    else:
        collectives = load_profile(base).collectives
        note = "one GPU measures no collective"
        collective_evidence = [
            Evidence(name, "assumed", f"those of the profile {base}", 0, note=note) for name in collectives
        ]
    evidence = [*gemm_evidence, *attention_evidence, *elementwise_evidence, *collective_evidence]
    known = {
        "element-wise kernels, backward" if item.part.endswith("(backward)") else item.part
        for item in evidence
    }
    evidence += [
        Evidence(part, "assumed", source, 0, note=note) for part, source, note in ASSUMED if part not in known
    ]
    return {
        "name": chip.name,
        "gpu": chip.gpu,
        "source": chip.source,
        "peak_flops_per_s": chip.peak_flops_per_s,
        "hbm_bytes_per_s": chip.hbm_bytes_per_s,
        "memory_bytes": chip.memory_bytes,
        "launch_s": launch_s,
        "gemm": dataclasses.asdict(gemm),
        "attention": dataclasses.asdict(attention),
        "attention_slowdown": {name: dataclasses.asdict(one) for name, one in slowdown.items()},
        "elementwise": {kind: dataclasses.asdict(model) for kind, model in elementwise.items()},
        "collectives": {name: _table(table) for name, table in collectives.items()},
        "evidence": [dataclasses.asdict(item) for item in evidence],
    }


def _table(table: Any) -> dict[str, Any]:
    return {"ranks": table.ranks, "first_bytes": table.first_bytes, "time_s": table.time_s}


def render(profile: dict[str, Any]) -> str:
    """JSON with each list of numbers on one line, and numbers without the noise of their arithmetic."""

    def on_one_line(numbers: re.Match[str]) -> str:
        return "[" + ", ".join(numbers[0].strip("[]").replace(",", " ").split()) + "]"

    return re.sub(r"\[[\s\d.,e+-]+\]", on_one_line, json.dumps(_tidy(profile), indent=1)) + "\n"


def _tidy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _tidy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_tidy(item) for item in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m itertime.profile_build", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "folder",
        type=Path,
        help="folder of operator tables (a100_gemm.csv.gz, ...), or a file of `itertime profile collect`",
    )
    parser.add_argument(
        "--gpu",
        default="a100-80gb",
        help="a100-80gb (the default), h100-80gb, or a YAML file that describes one",
    )
    parser.add_argument("--base", help="profile that the collectives are taken from")
    parser.add_argument("-o", "--output", type=Path, required=True, help="profile to write (.json)")
    options = parser.parse_args(arguments)
    try:
        write_text(options.output, render(build(options.folder, options.gpu, options.base)))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
