"""Rewrite the tables of keys in docs/models.md and docs/plan-options.md from the fields they describe.

python docs/keys.py
"""

from pathlib import Path

from itertime.io import keys_of
from itertime.spec import ModelSpec, PlanOptions, System

DOCS = Path(__file__).parent
PAGES: dict[str, dict[str, type]] = {
    "models.md": {"a model": ModelSpec, "a system": System},
    "plan-options.md": {"the options of a plan": PlanOptions},
}
"""What the tables of a page describe, by the words in the marks around them."""


def table(kind: type) -> str:
    """The keys of a file as a Markdown table."""
    rows = ["| key | unit | value | default | meaning |", "|---|---|---|---|---|"]
    for key in keys_of(kind):
        default = "required" if key.default is None else key.default
        rows.append(f"| `{key.name}` | {key.unit} | {key.values} | {default} | {key.text} |")
    return "\n".join(rows)


def refreshed(name: str, text: str) -> str:
    """The text of a page with every table between its marks made anew."""
    for words, kind in PAGES[name].items():
        mark = f"<!-- keys of {words} -->\n"
        assert text.count(mark) == 2, f"docs/{name} must have {mark.strip()} twice, around the table"
        before, _, after = text.split(mark)
        text = f"{before}{mark}\n{table(kind)}\n\n{mark}{after}"
    return text


if __name__ == "__main__":
    for page in PAGES:
        path = DOCS / page
        path.write_text(refreshed(page, path.read_text(encoding="utf-8")), encoding="utf-8")
