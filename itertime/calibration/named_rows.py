"""Rows of iteration tables that name a model and a system in place of their figures, and state tokens/s in
place of seconds.

Cells that are empty are filled in. A cell that states what a name or a rate also says must agree with it.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from itertime.errors import TableError, UserError
from itertime.io import names_file, shown
from itertime.spec import ModelSpec, System, load_model, load_system, profile_of

Cells = dict[str, Any]
MODEL_CELLS = ("layers", "hidden", "heads", "vocab", "attention")
"""Cells of which an empty one leaves the model to its name."""
RATES = ("tokens_per_s", "tokens_per_s_per_gpu")
DEGREES = ("tp", "pp", "dp", "cp")
_ROUNDING = 0.01  # by which a published rate may differ from published seconds
_UNSTATED = "recompute"


def complete(row: Cells, path: Path) -> None:
    """Fill in what the names and rates of a row say. `row["spec"]` and `row["node"]` become the named model
    and system, or None; `row["unknown"]` becomes the reason why a name cannot be used, or "".

    A name that is a file, of a framework too, is relative to the folder of `path`, or to the current one.
    Raises TableError, naming file, line and column, for cells that contradict a name or a rate.
    """
    where = f"{path}:{row['line']}"
    row |= {"spec": None, "node": None, "unknown": ""}
    if row["framework"] is not None:
        row["framework"] = _file(row["framework"], path)
    try:
        _complete_model(row, path, where)
        _complete_system(row, path, where)
    except TableError:
        raise
    except UserError as error:
        row["unknown"] = str(error)
        return
    if row["gpus"] is None and all(row[name] for name in ("tp", "pp", "dp")):
        row["gpus"] = math.prod(row[name] or 1 for name in DEGREES)
    for rate in RATES:
        _complete_seconds(row, rate, where)


def _complete_model(row: Cells, path: Path, where: str) -> None:
    if row["model"] is None or all(row[column] is not None for column in MODEL_CELLS):
        return
    spec = load_model(_file(row["model"], path)).with_seq_len(row["seq_len"])
    row["spec"] = spec
    _fill(row, cells_of(spec), f"model={shown(row['model'])}", where)
    if row["recompute"] is None:
        row["recompute"] = "none"
        row["missing"] = f"{row['missing']}, {_UNSTATED}" if row["missing"] else _UNSTATED


def cells_of(model: ModelSpec) -> Cells:
    """The cells of a model's shape, as tables have them."""
    cells: Cells = {column: getattr(model, column) for column in MODEL_CELLS}
    cells |= {"seq_len": model.seq_len, "kv_heads": model.kv_heads, "gated_mlp": model.gated_mlp}
    cells["ffn_hidden"] = model.dense_ffn_hidden or model.ffn_hidden
    if model.lora_rank:
        cells["lora_rank"] = model.lora_rank
    if model.experts > 1:
        cells |= {"experts": model.experts, "experts_per_token": model.experts_per_token}
        cells["moe_ffn_hidden"] = model.ffn_hidden
    return cells


def _complete_system(row: Cells, path: Path, where: str) -> None:
    if row["system"] is None:
        return
    node = load_system(_file(row["system"], path))
    row["node"] = node
    row["gpu"] = row["gpu"] or profile_of(node).gpu.removeprefix("NVIDIA ")
    figures = {"gpus_per_node": node.gpus_per_node, "node_nic_gbps": _gbps(node)}
    _fill(row, figures, f"system={shown(row['system'])}", where)


def _gbps(node: System) -> float:
    return node.nic_bytes_per_s * 8 / 1e9


def _file(name: str, path: Path) -> str:
    """A name as it is, or the path of the file that it names."""
    sibling = path.parent / name
    return str(sibling) if names_file(name) and sibling.is_file() else name


def _fill(row: Cells, figures: Cells, name: str, where: str) -> None:
    """Fill in the empty ones of these cells. TableError for one that says something else."""
    for column, value in figures.items():
        cell = row[column]
        if cell not in (None, value):
            problem = f"{name} has {value}; correct one of them, or leave {column} out"
            raise TableError(f"{where}: {column}={cell}: {problem}")
        row[column] = value


def _complete_seconds(row: Cells, rate: str, where: str) -> None:
    """`iteration_s` from a rate. Tokens are those of the sequences, padded or not."""
    tokens_per_s = row[rate]
    if tokens_per_s is None or row["global_batch"] is None or row["seq_len"] is None:
        return
    gpus = row["gpus"] if rate == "tokens_per_s_per_gpu" else 1
    if gpus is None:
        return
    seconds = row["global_batch"] * row["seq_len"] / (tokens_per_s * gpus)
    measured_s = row["iteration_s"]
    if measured_s is None:
        row["iteration_s"] = seconds
    elif abs(seconds / measured_s - 1) > _ROUNDING:
        work = f"{row['global_batch']} sequences of {row['seq_len']} tokens"
        raise TableError(
            f"{where}: {rate}={tokens_per_s:g}: {work} then take {seconds:.4g} s, and iteration_s or another "
            f"rate says {measured_s:.4g} s; correct one of them, or leave one out"
        )
