"""Tables of measured runs: seconds per iteration, one row a run.

Two kinds, which the names of their columns tell apart. An *iteration table* states a model, a plan and a
system by column; its columns are those of `../shared/data/README.md` and
`../shared/data/modern_gpus/README.md`. A *BERT table* holds steps of MLPerf's BERT under data parallelism
alone, and says how samples become micro-batches; its columns are those of `../shared/data/mlperf/README.md`,
and `bert_run.py` says what they mean. A file that is neither raises TableError with its line.
"""

from __future__ import annotations

import csv
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from itertime.errors import TableError, printable
from itertime.io import check_repeated, shown
from itertime.spec import RECOMPUTE

from .cells import (
    Column,
    count,
    free_text,
    marked,
    nic_gbps,
    number,
    of_node,
    one_of,
    positive,
    power,
    share,
    stage,
    switch,
    whole,
)

__all__ = ["BERT", "Cells", "read_table"]

Cells = dict[str, Any]
BERT = "bert"
"""The kind, in the cell "kind", of the rows of a BERT table."""

_SHARED_COLUMNS = {
    "gpu": Column(free_text),
    "gpus": Column(count),
    "gpus_per_node": Column(of_node),
    "node_nic_gbps": Column(nic_gbps),
    "layers": Column(count),
    "hidden": Column(count),
    "heads": Column(count),
}
"""Columns of both kinds of tables: the machine, and the shape of the model."""
_ITERATION_COLUMNS = {
    "id": Column(free_text),
    "site": Column(free_text, needed=False),
    **_SHARED_COLUMNS,
    "kv_heads": Column(count, needed=False),
    "ffn_hidden": Column(count, needed=False),
    "gated_mlp": Column(switch, needed=False),
    "vocab": Column(count),
    "seq_len": Column(count),
    "attention": Column(one_of("core", "flash")),
    "tp": Column(count),
    "pp": Column(count),
    "dp": Column(count),
    "interleave": Column(count, needed=False),
    "micro_batch": Column(count, needed=False),
    "global_batch": Column(count),
    "zero_stage": Column(stage, needed=False),
    "zero_group": Column(count, needed=False),
    "recompute": Column(one_of(*reversed(RECOMPUTE))),
    "sequence_parallel": Column(switch, needed=False),
    "grad_overlap": Column(switch, needed=False),
    "iteration_s": Column(positive),
    "memory_gb": Column(positive, needed=False),
    "source": Column(free_text, needed=False),
    "note": Column(free_text, needed=False),
    "model": Column(free_text, needed=False),
    "framework": Column(free_text, needed=False),
    "missing": Column(free_text, needed=False),
    "precision": Column(free_text, needed=False),
    "cp": Column(count, needed=False),
    "ep": Column(count, needed=False),
    "etp": Column(count, needed=False),
    "experts": Column(count, needed=False),
    "experts_per_token": Column(count, needed=False),
    "moe_ffn_hidden": Column(count, needed=False),
    "shared_ffn_hidden": Column(count, needed=False),
    "head_dim": Column(count, needed=False),
    "head_dim_v": Column(count, needed=False),
    "lora_rank": Column(whole, needed=False),
    "power_w": Column(power, needed=False),
    "tp_comm_overlap": Column(switch, needed=False),
    "cuda_graphs": Column(free_text, needed=False),
    "cpu_offload_layers": Column(whole, needed=False),
    "recompute_modules": Column(free_text, needed=False),
    "recompute_fraction": Column(share, needed=False),
    "moe_dispatcher": Column(free_text, needed=False),
    "moe_a2a_overlap": Column(switch, needed=False),
    "grad_dtype": Column(free_text, needed=False),
}
"""Columns of an iteration table that say what ran, and how."""
_INFORMATION = frozenset(
    (
        *("release", "recipe", "measured_as"),
        *("tokens_per_s_gpu", "tflops_per_gpu", "model_tflops_gpu", "mfu_bf16"),
        *("license", "repo", "path", "commit"),
    )
)
"""Columns about the source of a row, and figures that follow from its time."""
_BERT_COLUMNS = {
    "id": Column(free_text),
    "duplicate_of": Column(free_text, needed=False),
    **_SHARED_COLUMNS,
    "vocab": Column(count),
    "samples_per_gpu_step": Column(positive),
    "grad_accumulation": Column(count),
    "global_batch": Column(count),
    "work": Column(free_text),
    "tokens_per_gpu_step": Column(positive, needed=False),
    "precision": Column(free_text),
    "optimizer": Column(free_text),
    "cuda_graph": Column(marked, needed=False),
    "step_s": Column(positive),
    "step_s_without_eval": Column(positive, needed=False),
    "fixed_work_fp16": Column(marked, needed=False),
    "framework": Column(free_text, needed=False),
    "network": Column(free_text, needed=False),
    "source": Column(free_text, needed=False),
    "step_cv_over_runs": Column(number, needed=False),
    "steps_to_converge": Column(number, needed=False),
    "time_to_train_s": Column(number, needed=False),
    "startup_s": Column(number, needed=False),
}
"""Columns of a BERT table."""


@dataclass(frozen=True)
class _Kind:
    """A kind of table: its name with an article, columns that are read, and columns that are not."""

    name: str
    columns: Mapping[str, Column]
    information: frozenset[str] = frozenset()

    @property
    def needed(self) -> list[str]:
        return [name for name, column in self.columns.items() if column.needed]


_ITERATIONS = _Kind("an iteration table", _ITERATION_COLUMNS, _INFORMATION)
_BERT = _Kind("a BERT table", _BERT_COLUMNS)
_OF_ITERATIONS, _OF_BERT = (
    frozenset(one.needed) - frozenset(other.columns)
    for one, other in ((_ITERATIONS, _BERT), (_BERT, _ITERATIONS))
)
"""Columns that tell the kinds apart: needed in one, unknown in the other."""
_log = logging.getLogger("itertime")
_LONGEST_CELL = 10_000
_MOST_NAMED = 10  # unknown columns in a warning


def read_table(path: str | Path) -> list[Cells]:
    """The rows of a table of measured runs, in order: column -> value, None for an empty cell; "line" -> the
    line of the file.

    A row of a BERT table has the "kind" `BERT`, and its step as "iteration_s". Columns that are not known are
    ignored, and one warning names them. Raises TableError for a file that is not such a table: missing,
    other text, missing or repeated columns, columns of both kinds, ragged rows, cells of the wrong kind,
    repeated ids.
    """
    path = Path(path)
    rows: list[Cells] = []
    seen: dict[str, int] = {}
    kind = _ITERATIONS
    for line, header, cells in _lines(path):
        if not rows:
            kind = _kind_of(path, header)
        row = _row(path, line, kind, header, cells)
        if row["id"] is None:
            raise TableError(f"{path}:{line}: id=: is empty; give every row its own name")
        if row["id"] in seen:
            what = f"id={shown(row['id'])}: is also on line {seen[row['id']]}; rename one"
            raise TableError(f"{path}:{line}: {what}")
        seen[row["id"]] = line
        rows.append(row)
    if not rows:
        raise TableError(f"{path}:1: the table has no rows; add at least one below the header")
    return rows


def _lines(path: Path) -> Iterator[tuple[int, list[str], list[str]]]:
    """(line number, header, cells) of every row that is not blank."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            header = next(reader, [])
            _check_header(path, header)
            for cells in reader:
                if cells:
                    yield reader.line_num, header, cells
    except OSError as error:
        raise TableError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise TableError(f"{path}: is not UTF-8 text; save the table as CSV") from error
    except csv.Error as error:
        raise TableError(
            f"{path}:{reader.line_num}: is not CSV ({error}); quote cells with commas or quotes"
        ) from error


def _kind_of(path: Path, header: list[str]) -> _Kind:
    """The kind of table that has these columns: a BERT table if any of them is one's alone."""
    of_bert = [name for name in header if name in _OF_BERT]
    of_iterations = [name for name in header if name in _OF_ITERATIONS]
    if of_bert and of_iterations:
        raise TableError(
            f"{path}:1: has columns of a BERT table ({', '.join(of_bert[:3])}) beside those of an iteration "
            f"table ({', '.join(of_iterations[:3])}); keep the columns of one kind"
        )
    return _BERT if of_bert else _ITERATIONS


def _check_header(path: Path, header: list[str]) -> None:
    if not header:
        raise TableError(f"{path}:1: the file is empty; the first line must name the columns")
    kind = _kind_of(path, header)
    known = frozenset(kind.columns) | kind.information
    foreign = [shown(name) for name in header if name not in known]
    if foreign:
        more = f" and {len(foreign) - _MOST_NAMED} more" if len(foreign) > _MOST_NAMED else ""
        named = ", ".join(foreign[:_MOST_NAMED]) + more
        what = f"ignored, as no column of these names is known: {named}"
        _log.warning("warning: %s:1: %s; do they change the work of a run?", printable(str(path)), what)
    check_repeated(header, f"{path}:1", kind.columns)
    missing = [name for name in kind.needed if name not in header]
    if missing:
        raise TableError(
            f"{path}:1: column {missing[0]} is missing; {kind.name} needs {', '.join(missing)} too"
        )


def _row(path: Path, line: int, kind: _Kind, header: list[str], cells: list[str]) -> Cells:
    if len(cells) != len(header):
        raise TableError(
            f"{path}:{line}: has {len(cells)} cells where the header has {len(header)}; complete the row"
        )
    row: Cells = dict.fromkeys(kind.columns)
    row["line"] = line
    for name, cell in zip(header, cells, strict=True):
        value = cell.strip()
        if name not in kind.columns or not value:
            continue
        if len(value) > _LONGEST_CELL:
            raise TableError(
                f"{path}:{line}: {name}: has {len(value)} characters; the limit is {_LONGEST_CELL}"
            )
        try:
            row[name] = kind.columns[name].parse(value)
        except ValueError as error:
            raise TableError(f"{path}:{line}: {name}={shown(value)}: {error}") from None
    if kind is _BERT:
        row |= {"kind": BERT, "iteration_s": row["step_s"], "memory_gb": None, "site": None}
    return row
