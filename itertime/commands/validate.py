"""`itertime validate`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from itertime.commandline import print_json
from itertime.errors import printable

from .options import Json, Rules, Settings, option, system_of


def validate(
    files: Annotated[list[Path], typer.Argument(help="Iteration tables (CSV).", show_default=False)],
    system: Annotated[str | None, option("--system", "Apply the site constants of this system.")] = None,
    settings: Settings = None,
    by: Annotated[
        str | None, option("--by", "Errors by framework, precision, gpu, source or batching, too.")
    ] = None,
    rows: Annotated[
        Path | None, option("--rows", "Write measured and predicted values to this file.")
    ] = None,
    rules: Rules = "itertime",
    json: Json = False,
) -> None:
    """Compare predicted with measured seconds, for every row of iteration tables."""
    from itertime.calibration import GROUPINGS, summary, write_rows
    from itertime.calibration import validate as run
    from itertime.errors import TableError, UnknownName, UserError

    for text in settings or ():
        if system is None or not text.startswith("system.site."):
            raise UserError(f"--set {text}: only system.site.KEY=VALUE changes a validation, with --system")
    if by is not None and by not in GROUPINGS:
        raise UnknownName("grouping", by, GROUPINGS)
    site = system_of(system, settings).site if system else None
    results = [run(path, site, rules) for path in files]
    if rows is not None:
        write_rows(results, rows)
    document = {"rules": rules} | summary(results, by)
    if json:
        print_json(document)
    else:
        _print_tables(document, by)
    if not any(result.predicted for result in results):
        count = sum(result.rows for result in results)
        raise TableError(f"all {count} rows were skipped, so nothing was validated; mend them or the options")


def _print_tables(document: dict[str, Any], by: str | None) -> None:
    names = ("rows", "skipped", "MAPE %", "median", "p95", "bias", "R2", "in 90 %")
    print(" ".join([f"{names[0]:>6}", *(f"{name:>8}" for name in names[1:])]), " file")
    for entry in document["files"]:
        _print_errors({**entry, "skipped": len(entry["skipped"])}, entry["file"])
        print_skipped(entry["skipped"])
        _print_assumed(entry["assumed"])
    if len(document["files"]) > 1:
        _print_errors(document["all"], "all")
    for name, entry in document.get("by", {}).items():
        _print_errors({**entry, "skipped": 0}, f"{by} {name}")


def print_skipped(skipped: Sequence[dict[str, str]]) -> None:
    """Print the rows that cannot be expressed on stderr, by reason."""
    _print_reasons("skipped", [(row["id"], row["why"]) for row in skipped])


def _print_assumed(assumed: Sequence[dict[str, Any]]) -> None:
    """Print what predicted rows take for granted on stderr."""
    _print_reasons("assumed", [(row["id"], assumption) for row in assumed for assumption in row["what"]])


def _print_reasons(verb: str, rows: Sequence[tuple[str, str]]) -> None:
    from itertime.io import shown

    reasons: dict[str, list[str]] = {}
    for name, reason in rows:
        reasons.setdefault(printable(reason), []).append(shown(name))
    for reason, ids in reasons.items():
        remainder = f" and {len(ids) - 3} more" if len(ids) > 3 else ""
        print(f"  {len(ids):5} {verb}: {reason} ({', '.join(ids[:3])}{remainder})", file=sys.stderr)


def _print_errors(entry: dict[str, Any], name: str) -> None:
    cells = [f"{entry['rows']:6} {entry['skipped']:8}"]
    digits = {"mape": 2, "median_ape": 2, "p95_ape": 1, "bias": 2, "r2": 4, "coverage": 0}
    for key, width in digits.items():
        cells.append(f"{'-':>8}" if entry[key] is None else f"{entry[key]:8.{width}f}")
    print(" ".join(cells), "", printable(name))
