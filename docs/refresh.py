"""Rewrite what programs print in the pages: the demo's and the accuracy table of the README, the table in
docs/what-if.md, the keys of files in docs/models.md, and what the commands of the tutorials print.

python docs/refresh.py            rewrites all (and needs ../shared/data for the accuracy table)
python docs/refresh.py --picture  also takes the pictures again (needs matplotlib, playwright and chromium)
"""

import argparse
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from clustersim.cli import main as clustersim
from itertime.cli import main as itertime

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("CLUSTERSIM_SHARED", ROOT.parent / "shared"))
FOLDERS = ("iterations", "modern_gpus/iterations")
GROUPS = {
    "A100, 7 sites": ("a100_*", "published"),
    "H100 bf16, 5 sites": ("h100_llmfoundry_fsdp", "h100_[!l]*_bf16"),
    "H100 fp8, 5 sites": ("h100_*_fp8",),
    "H100, mixtures, 3 sites": ("h100_*_moe_*",),
    "B200 to GB300, 2 sites": ("blackwell_dgxc_nemo", "blackwell_megatron_bridge"),
    "the same, mixtures": ("blackwell_*_moe",),
    "H100, 879 runs of nanotron": ("h100_ultrascale",),
}
"""Patterns of the tables that each line of the README counts. Mixtures count in their own line alone."""


def output_of(command, *arguments: str) -> str:
    """The stdout of a command, which must succeed."""
    with contextlib.redirect_stdout(io.StringIO()) as text:
        code = command(arguments)
    assert code == 0, (arguments, code)
    return text.getvalue()


def demo_table(*arguments: str) -> str:
    """The output of the README's demo, without trailing spaces and empty lines."""
    lines = [line.rstrip() for line in output_of(clustersim, "demo", *arguments).splitlines()]
    return "\n".join(line for line in lines if line and not line.startswith("Written"))


def what_if_table() -> str:
    """What the command in docs/what-if.md prints."""
    page = (ROOT / "docs" / "what-if.md").read_text()
    importing, asking = re.findall(r"^    clustersim (.+)$", page, re.MULTILINE)[:2]
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        words = [str(ROOT / word) if word.startswith("traces/") else word for word in importing.split()]
        with contextlib.chdir(folder):
            output_of(clustersim, *words)
            text = output_of(clustersim, *asking.split())
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip())


def tables_of(folder: Path, patterns: Sequence[str]) -> list[Path]:
    """The iteration tables of these names below `folder`; those of mixtures only by a pattern with `_moe`."""
    found = [
        path
        for pattern in patterns
        for each in FOLDERS
        for path in sorted((folder / each).glob(f"{pattern}.csv"))
        if ("_moe" in pattern) == ("_moe" in path.stem)
    ]
    return list(dict.fromkeys(found))


def accuracy_table(folder: Path) -> str:
    """Errors on the measured iteration times below `folder`, without constants of a site, by group."""
    lines = [f"{'':<27}{'rows':>5}{'answered':>10}{'MAPE %':>8}{'median %':>10}{'bias %':>8}"]
    for name, patterns in GROUPS.items():
        files = [str(path) for path in tables_of(folder, patterns)]
        entry = json.loads(output_of(itertime, "validate", *files, "--json"))["all"]
        lines.append(
            f"{name:<27}{entry['rows']:>5}{entry['rows'] - entry['skipped']:>10}{entry['mape']:>8.1f}"
            f"{entry['median_ape']:>10.1f}{entry['bias']:>8.1f}"
        )
    return "\n".join(lines)


def block(readme: str, name: str) -> str:
    """The text between the fences of a page's block ```text NAME."""
    found = re.search(rf"^```text {name}\n(.*?)\n?```$", readme, re.DOTALL | re.MULTILINE)
    assert found, f"the page has no block ```text {name}"
    return found.group(1)


def replaced(readme: str, name: str, text: str) -> str:
    return readme.replace(f"```text {name}\n{block(readme, name)}", f"```text {name}\n{text}\n", 1).replace(
        "\n\n```\n", "\n```\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--picture", action="store_true")
    options = parser.parse_args()
    subprocess.run([sys.executable, "-m", "docs.keys"], check=True, cwd=ROOT)
    for page in sorted((ROOT / "docs" / "tutorials").glob("*.md")):
        subprocess.run([sys.executable, "-m", "docs.website.examples", str(page)], check=True, cwd=ROOT)
    readme = (ROOT / "README.md").read_text()
    readme = replaced(readme, "accuracy", accuracy_table(SHARED / "data"))
    with tempfile.TemporaryDirectory() as folder:
        readme = replaced(readme, "demo", demo_table("--out", f"{folder}/demo"))
        if options.picture:
            drawing = [sys.executable, str(ROOT / "docs" / "picture.py"), f"{folder}/demo"]
            subprocess.run([*drawing, "-o", str(ROOT / "docs")], check=True)
    (ROOT / "README.md").write_text(readme)
    page = ROOT / "docs" / "what-if.md"
    page.write_text(replaced(page.read_text(), "what-if", what_if_table()))


if __name__ == "__main__":
    main()
