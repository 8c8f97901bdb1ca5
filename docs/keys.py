"""Rewrite the tables of keys in docs/models.md from the fields of `ModelSpec` and `System`.

python docs/keys.py
"""

from pathlib import Path

from itertime.io import keys_of
from itertime.spec import ModelSpec, System

PAGE = Path(__file__).parent / "models.md"
KINDS = {"model": ModelSpec, "system": System}


def table(kind: type) -> str:
    """The keys of a file as a Markdown table."""
    rows = ["| key | unit | value | default | meaning |", "|---|---|---|---|---|"]
    for key in keys_of(kind):
        default = "required" if key.default is None else key.default
        rows.append(f"| `{key.name}` | {key.unit} | {key.values} | {default} | {key.text} |")
    return "\n".join(rows)


def refreshed(page: str) -> str:
    """The page with every table between its marks made anew."""
    for name, kind in KINDS.items():
        mark = f"<!-- keys of a {name} -->\n"
        assert page.count(mark) == 2, f"docs/models.md must have {mark.strip()} twice, around the table"
        before, _, after = page.split(mark)
        page = f"{before}{mark}\n{table(kind)}\n\n{mark}{after}"
    return page


if __name__ == "__main__":
    PAGE.write_text(refreshed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
