"""`itertime calibrate`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from itertime.commandline import print_json
from itertime.errors import printable

from .options import Json, option
from .validate import print_skipped


def calibrate(
    files: Annotated[
        list[Path], typer.Argument(help="Iteration tables (CSV) of one site.", show_default=False)
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The system file to write (YAML).", show_default=False)
    ],
    constants: Annotated[
        str | None,
        option(
            "--constants",
            "Names separated by commas, or `auto`: chosen from the runs, separately in every fold. "
            "Default: three that suit the kind of training.",
        ),
    ] = None,
    max_constants: Annotated[
        int, option("--max-constants", "At most this many constants, with `auto`.", min=1)
    ] = 3,
    folds: Annotated[int, option("--folds", "Number of parts that are held out in turn.", min=2)] = 10,
    seed: Annotated[int, option("--seed", "Seed of the random folds.", min=0)] = 0,
    json: Json = False,
) -> None:
    """Fit a site's constants to its measured runs, and report their error on held-out runs."""
    from itertime.calibration import calibrate as run
    from itertime.calibration import report, write_site

    auto = constants == "auto"
    names = None if constants is None or auto else [word.strip() for word in constants.split(",")]
    result = run(files, names, folds, seed, auto, max_constants)
    write_site(result, files, output)
    document = report(result)
    _warn(document)
    if json:
        print_json(document)
    else:
        _print(document, output)


def _warn(document: dict[str, Any]) -> None:
    for kind in document["refused"]:
        errors = document if kind == "time" else document["memory"]
        error = {name: f"{errors[name]['mape']:.1f} %" for name in ("neutral", "in_sample", "held_out")}
        print(
            f"refused: the constants of {kind} that fit best have an error of {error['in_sample']} in sample "
            f"and {error['held_out']} held out, the neutral ones {error['neutral']}; {kind} stays neutral",
            file=sys.stderr,
        )
    for name in document["at_bound"]:
        print(
            f"the fit of {name} ended at its bound, {document['fitted'][name]:g}: "
            "the model lacks something that these runs have",
            file=sys.stderr,
        )
    for name in document["does_not_fit"]:
        print(f"{printable(name)} was measured, but does not fit with these constants", file=sys.stderr)


def _print(document: dict[str, Any], output: Path) -> None:
    print_skipped(document["skipped"])
    print(f"{document['runs']} runs; constants of the site:")
    for name, value in document["constants"].items():
        fitted_value = document["fitted"][name]
        refusal = f"   refused: {fitted_value:.6g}" if fitted_value != value else ""
        print(f"  {name:24} {value:12.6g}{refusal}")
    low, high = document["measured_over_predicted"]
    origin = "with neutral constants" if "time" in document["refused"] else "held out"
    print(f"nine tenths of the site's runs take {low:.2f} to {high:.2f} times the prediction ({origin})")
    print(f"{'error, %':32} {'MAPE':>8} {'median':>8} {'p95':>8} {'bias':>8}")
    _line("neutral constants", document["neutral"])
    _line("in sample", document["in_sample"])
    _line(f"held out, {document['folds']} folds", document["held_out"])
    for name, entry in document["left_out"].items():
        _line(f"held out, one {name} at a time", entry)
    if document["memory"]["in_sample"]:
        _line("memory, neutral constants", document["memory"]["neutral"])
        _line("memory, in sample", document["memory"]["in_sample"])
        _line("memory, held out", document["memory"]["held_out"])
    print(f"written to {output}; use it as --system {output}")


def _line(name: str, entry: dict[str, float]) -> None:
    numbers = " ".join(f"{entry[key]:8.2f}" for key in ("mape", "median_ape", "p95_ape", "bias"))
    print(f"{name:32} {numbers}")
