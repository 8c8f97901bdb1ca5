"""Making one cell in a process of its own: read or generate its trace, simulate, write its folder."""

from __future__ import annotations

import errno
import json
import shlex
import traceback
from collections.abc import Callable, Mapping
from contextlib import ExitStack, chdir
from dataclasses import asdict, replace
from pathlib import Path
from time import monotonic, process_time
from typing import Any, NotRequired, TypedDict

from clustersim.grid.inputs import Inputs
from clustersim.grid.rows import row_of
from clustersim.grid.store import Store
from clustersim.records import Run
from clustersim.rundir import write_run
from clustersim.runs import RunConfig, Trace, run, summary_of
from itertime.errors import UserError
from traces.synthetic import Recipe

__all__ = ["CellVerdict", "commands", "load_trace", "make_cell", "make_cells", "model_hashes"]


class CellVerdict(TypedDict):
    """The result of one attempt at a cell.

    | status | the cell |
    |---|---|
    | made, present | is in the folder, by this attempt or an earlier one |
    | busy | is being made by another process |
    | failed | could not be made, for `reason` |
    | unwritable | could not be written; no other cell can be either |
    | killed | was lost with its process, by a signal from outside or for lack of memory |
    | unusable | cannot be made by this worker, nor can any other cell of the grid |
    | lost | was lost with the dask scheduler |

    `traceback` and `output` are those of the process that made the cell; `wall_s`, `cpu_s` and `peak_gb` are
    what it took: time on the clock, processor time, resident memory.
    """

    status: str
    reason: NotRequired[str]
    traceback: NotRequired[str]
    output: NotRequired[str]
    wall_s: NotRequired[float]
    cpu_s: NotRequired[float]
    peak_gb: NotRequired[float]


def make_cell(order: Mapping[str, Any], store: Store | None = None) -> CellVerdict:
    """Make the cell of an order (`key`, `inputs`, `hashed`, `store`, `base`) unless it is in the store.

    Never raises: errors are in the verdict.
    """
    return make_cells({**order, "orders": [order]}, store)[0]


def make_cells(batch: Mapping[str, Any], store: Store | None = None) -> list[CellVerdict]:
    """Make the cells of the `orders` of a batch in this process; a verdict for each, in the same order.

    With `keep` "rows" the cells are claimed until their rows are written, in one file. `store`: that of the
    batch, which may have looked for rows before.
    """
    store, rows = store or Store(batch["store"]), list[str]()
    with ExitStack() as claims:
        verdicts = []
        for order in batch["orders"]:
            began, cpu_s = monotonic(), process_time()
            verdict = _attempt({**batch, **order}, store, claims, rows)
            verdict["wall_s"], verdict["cpu_s"] = monotonic() - began, process_time() - cpu_s
            verdicts.append(verdict)
        if rows and (trouble := _verdict_of(lambda: store.write_rows(rows))) is not None:
            return [trouble if verdict["status"] == "made" else verdict for verdict in verdicts]
    return verdicts


def _attempt(order: Mapping[str, Any], store: Store, claims: ExitStack, rows: list[str]) -> CellVerdict:
    """The verdict on one cell. Of a cell that is kept as a row, the row is added to `rows`."""
    made: list[CellVerdict] = []

    def make() -> None:
        with chdir(order["base"]):
            made.append(_make(order, store, claims, rows))

    return _verdict_of(make) or made[0]


def _verdict_of(action: Callable[[], None]) -> CellVerdict | None:
    """None if an action succeeds, else the verdict on its cell."""
    try:
        action()
        return None
    except OSError as error:
        return {"status": "unwritable", "reason": f"{error.filename}: {error.strerror or error}"}
    except UserError as error:
        status = "unwritable" if _out_of_space(error) else "failed"
        return {"status": status, "reason": str(error), "traceback": _traceback_of(error)}
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        return {"status": "failed", "reason": reason, "traceback": _traceback_of(error)}


def _make(order: Mapping[str, Any], store: Store, claims: ExitStack, rows: list[str]) -> CellVerdict:
    key, inputs, keeps_rows = order["key"], Inputs.of(order["inputs"]), order.get("keep") == "rows"
    with ExitStack() as of_cell:
        if not (claims if keeps_rows else of_cell).enter_context(store.claim(key)):
            return {"status": "busy"}
        if keeps_rows:
            store.rows.refresh(keep_values=False)  # the last holder of the claim may have made it
        if key in store.rows or (store.has(key) and store.damage(key) is None):
            return {"status": "present"}
        trace = load_trace(inputs)
        expected = order["hashed"]["trace"].get("sha256")
        if expected not in (None, trace.sha256):
            raise UserError(f"{trace.path}: was changed while the grid ran; run the grid again")
        if model_hashes(trace) != order["hashed"].get("models", {}):
            raise UserError(f"{trace.path}: its models were changed while the grid ran; run the grid again")
        if keeps_rows:
            rows.append(row_of(key, summary_of(trace, inputs.config, store.bounds)))
            return {"status": "made"}
        result = run(trace, config=inputs.config, shared_bounds=store.bounds)
        with store.making(key, order["hashed"]) as folder:
            write_run(folder, _as_cell(result, inputs))
    return {"status": "made"}


def model_hashes(trace: Trace) -> dict[str, list[str]]:
    """Hashes of the files of the user's models that the jobs name, by name."""
    document = {} if trace.models is None else trace.models.document()
    return {name: [file["sha256"] for file in m["files"]] for name, m in document.items()}


def load_trace(inputs: Inputs) -> Trace:
    """The jobs of a cell, from its file or generated. TableError, UserError if that is impossible."""
    if isinstance(inputs.trace, str):
        path = Path(inputs.trace)
        if path.exists() and not path.is_file():
            raise UserError(f"trace={path}: is no file, and every cell of a grid reads it; save it to one")
        return Trace.read(inputs.trace, inputs.config.table, inputs.config.model_path)
    return Trace.generated(inputs.trace)


def _as_cell(result: Run, inputs: Inputs) -> Run:
    """The run, with a manifest that depends on its inputs alone: no timings, but the command to repeat it."""
    manifest = dict(result.manifest)
    manifest["timings"] = dict.fromkeys(manifest["timings"])
    manifest["command"] = ["clustersim", "run", *_arguments(inputs)]
    if isinstance(inputs.trace, Recipe):
        manifest["trace"] = {**manifest["trace"], "path": "trace.csv"}
    return replace(result, manifest=manifest)


def _arguments(inputs: Inputs) -> list[str]:
    """The arguments of `clustersim run` that repeat a cell, without defaults."""
    config = inputs.config
    words = [inputs.trace if isinstance(inputs.trace, str) else "trace.csv", "--policy", config.policy]
    for name, field in RunConfig.model_fields.items():
        value = getattr(config, name)
        if name == "policy" or value == field.get_default(call_default_factory=True):
            continue
        if name == "overheads" and value is None:
            words.append("--no-overheads")
        elif isinstance(value, Mapping):
            prefix = "policy" if name == "params" else name
            for inner, setting in value.items():
                words += ["--set", f"{prefix}.{inner}={_as_yaml(setting)}"]
        else:
            words += ["--set", f"{name}={_as_yaml(value)}"]
    return words


def _as_yaml(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def commands(inputs: Inputs) -> list[str]:
    """The commands that repeat a cell by hand, in the folder of the grid file."""
    lines = [shlex.join(["clustersim", "run", *_arguments(inputs)])]
    if isinstance(inputs.trace, Recipe):
        words = ["clustersim", "trace", "generate", "-o", "trace.csv"]
        for name, value in asdict(inputs.trace).items():
            words += [f"--{name.replace('_', '-')}", str(value)] if value is not None else []
        lines.insert(0, shlex.join(words))
    return lines


def _out_of_space(error: BaseException | None) -> bool:
    """Whether an error comes from a full disk, so that no other cell can be written either."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return True
        error = error.__cause__ or error.__context__
    return False


def _traceback_of(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))[-20_000:]
