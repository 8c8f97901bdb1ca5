"""Writes the shipped systems and profiles of chips that only their data sheets describe (`sheets/`).

Run it as `python -m experiments.profiles.by_sheet`, after `experiments.evidence.fit_chips` has fitted what
chips of a class reach. Equal sheets give equal bytes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from itertime.commandline import run_task
from itertime.io import write_text
from itertime.profiling import chip_figures, new_system
from itertime.spec.profile import FOLDER
from itertime.spec.system import SYSTEMS

__all__ = ["LIKE", "SAME_DIE", "SHEETS", "main", "shipped_texts"]

SHEETS = Path(__file__).with_name("sheets")
LIKE = {"l40s": "a100-pcie"}
"""The system whose nodes a sheet's are like, where it is not `dgx-h100`."""
SAME_DIE = {"mi350x": "mi355x"}
"""Chips without measured iterations, and the one of the same die that has some: both reach the same share."""


def shipped_texts(name: str) -> tuple[str, str]:
    """The texts of the system and of the profile of a sheet. Raises UserError for a wrong sheet."""
    like, figures = LIKE.get(name, "dgx-h100"), chip_figures(SAME_DIE.get(name, name))
    system = new_system(name, like, SHEETS / f"{name}.yaml", profile_name=name, figures=figures)
    return system.system_text, system.profile_text


def main() -> int:
    """Write the files of all sheets. Returns the exit code."""
    return run_task(_write)


def _write() -> None:
    for sheet in sorted(SHEETS.glob("*.yaml")):
        system_text, profile_text = shipped_texts(sheet.stem)
        write_text(FOLDER / f"{sheet.stem}.json", profile_text)
        write_text(SYSTEMS / f"{sheet.stem}.yaml", system_text)


if __name__ == "__main__":
    sys.exit(main())
