"""Rewrite the tables of keys in docs/models.md and docs/plan-options.md, and the table of settings in
docs/runs.md, from the fields that they describe.

python -m docs.keys
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from docs.website.settings import described_keys, described_settings
from itertime.spec import ModelSpec, PlanOptions, System

DOCS = Path(__file__).parent
PAGES: dict[str, dict[str, Callable[[], str]]] = {
    "models.md": {
        "keys of a model": partial(described_keys, ModelSpec),
        "keys of a system": partial(described_keys, System),
    },
    "plan-options.md": {"keys of the options of a plan": partial(described_keys, PlanOptions)},
    "runs.md": {"settings of a run": described_settings},
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
    for page in PAGES:
        path = DOCS / page
        path.write_text(refreshed(page, path.read_text(encoding="utf-8")), encoding="utf-8")
