"""`itertime profile`: show the evidence behind a GPU's profile, and measure operators for one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from itertime.commandline import new_app, print_json

from .options import Json

if TYPE_CHECKING:
    from itertime.spec import Evidence, Profile

__all__ = ["profile_app"]

QUICK_SECONDS = 0.3
MOST_SECONDS = 600.0

profile_app = new_app("Show the evidence behind a GPU's profile, and measure operators with torch.")


@profile_app.command()
def show(
    name: Annotated[
        str | None,
        typer.Argument(help="A profile's name, or its JSON file; default: all shipped ones."),
    ] = None,
    json: Json = False,
) -> None:
    """Show what is measured, fitted and assumed: sources, rows, errors, and the sizes that were measured."""
    from itertime.spec import list_profiles, load_profile

    profiles = [load_profile(one) for one in ([name] if name else list_profiles())]
    if json:
        print_json({"profiles": [_document(profile) for profile in profiles]})
        return
    for profile in profiles:
        _print(profile)


@profile_app.command()
def collect(
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The table to write (.csv or .csv.gz).", show_default=False)
    ],
    device: Annotated[str, typer.Option("--device", help="cuda or cpu.")] = "cuda",
    grid: Annotated[str, typer.Option("--grid", help="full (hours), quick, or tiny (a trial).")] = "full",
    quick: Annotated[bool, typer.Option("--quick", help="As --grid quick --seconds 0.3.")] = False,
    seconds: Annotated[float, typer.Option("--seconds", help="How long each kernel is timed.")] = 0.5,
    warm_up: Annotated[float, typer.Option("--warm-up", help="How long each runs before that.")] = 0.3,
    burst: Annotated[bool, typer.Option("--burst", help="Single runs on a rested GPU instead.")] = False,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Single runs per kernel.")] = 20,
) -> None:
    """Time this machine's kernels under sustained load, with power; needs the extra `profile` (torch).

    A command that was interrupted goes on when it is repeated.
    """
    from itertime.errors import UserError
    from itertime.profiling import Pace
    from itertime.profiling import collect as run

    for name, value, least in (("--seconds", seconds, 1e-3), ("--warm-up", warm_up, 0.0)):
        if not least <= value <= MOST_SECONDS:
            raise UserError(f"{name}={value:g}: must be from {least:g} to {MOST_SECONDS:g} seconds")
    if quick:
        grid, seconds = "quick", min(seconds, QUICK_SECONDS)
    rows, missing = run(device, grid, Pace(None if burst else seconds, warm_up, repeats), output)
    print(f"{rows} rows written to {output}" + (f", {missing} left out" if missing else ""))


def _document(profile: Profile) -> dict[str, Any]:
    facts = ("name", "gpu", "source", "peak_flops_per_s", "hbm_bytes_per_s", "memory_bytes", "launch_s")
    return {
        **{fact: getattr(profile, fact) for fact in facts},
        "parts": [vars(part) for part in profile.parts()],
    }


def _print(profile: Profile) -> None:
    print(f"{profile.name}: {profile.gpu} ({profile.source})")
    print(f"{'':9} {'rows':>6} {'fit %':>6} {'held out %':>10}  part")
    for part in profile.parts():
        error = [
            "-" if value is None else f"{value:.1f}"
            for value in (part.error_in_sample_pct, part.error_held_out_pct)
        ]
        print(f"{part.kind:9} {part.rows or '-':>6} {error[0]:>6} {error[1]:>10}  {part.part}")
        for line in (_measured(part), f"from {part.source}", part.note):
            if line:
                print(f"{'':37}{line}")
    print()


def _measured(part: Evidence) -> str:
    ranges = [f"{name} {least:g} to {most:g}" for name, (least, most) in part.measured.items()]
    return f"measured: {', '.join(ranges)}" if ranges else ""
