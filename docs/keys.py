"""Rewrite the tables of keys in docs/models.md, docs/systems.md and docs/plan-options.md, the table of
settings in docs/runs.md, and those of parameters in docs/sites.md, from what they describe.

python -m docs.keys
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

from clustersim.sites.exports import FOLLOWED, FOLLOWED_OPTIONS, UNMODELLED, UNMODELLED_OPTIONS
from docs.website.settings import described_keys, described_settings
from itertime.profiling import ChipSheet
from itertime.spec import ModelSpec, PlanOptions, System

DOCS = Path(__file__).parent


def followed_parameters() -> str:
    """The parameters of Slurm that the policy `slurm` follows, with their defaults, as a table."""
    rows = [(name, default or "none") for name, default in FOLLOWED.items() if name != "ClusterName"]
    rows += [
        (f"SchedulerParameters={name}", "off" if default is None else str(default))
        for name, default in FOLLOWED_OPTIONS.items()
    ]
    shown = [(name, "none" if default == "(null)" else default) for name, default in rows]
    return "\n".join(["| parameter | default |", "|---|---|", *(f"| `{n}` | {d} |" for n, d in shown)])


def unmodelled_parameters() -> str:
    """The parameters of Slurm that decide schedules and that nothing follows, as a table."""
    rows = [(name, entry.consequence) for name, entry in UNMODELLED.items()]
    rows += [(f"SchedulerParameters={name}", text) for name, text in UNMODELLED_OPTIONS.items()]
    lines = [f"| `{name}` | {text} |" for name, text in rows]
    return "\n".join(["| parameter | what simulations do |", "|---|---|", *lines])


PAGES: dict[str, dict[str, Callable[[], str]]] = {
    "models.md": {
        "keys of a model": partial(described_keys, ModelSpec),
        "keys of a system": partial(described_keys, System),
    },
    "systems.md": {"keys of a sheet": partial(described_keys, ChipSheet)},
    "plan-options.md": {"keys of the options of a plan": partial(described_keys, PlanOptions)},
    "runs.md": {"settings of a run": described_settings},
    "sites.md": {
        "parameters that are followed": followed_parameters,
        "parameters that are not modelled": unmodelled_parameters,
    },
}
"""The tables of a page, by the words in the marks around them."""


def refreshed(name: str, text: str) -> str:
    """The text of a page with every table between its marks made anew."""
    for words, table in PAGES[name].items():
        mark = f"<!-- {words} -->\n"
        assert text.count(mark) == 2, f"docs/{name} must have {mark.strip()} twice, around the table"
        head, _, tail = text.split(mark)
        text = f"{head}{mark}\n{table()}\n\n{mark}{tail}"
    return text


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__.split("\n")[0]).parse_args()
    for page in PAGES:
        path = DOCS / page
        path.write_text(refreshed(page, path.read_text(encoding="utf-8")), encoding="utf-8")
