"""Rewrite what programs print in the pages: the demo's and the accuracy table of the README, and the keys of
files in docs/models.md.

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
from pathlib import Path

from clustersim.cli import main as clustersim
from itertime.cli import main as itertime

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("CLUSTERSIM_SHARED", ROOT.parent / "shared"))
SETS = (
    "a100_megatron_deepspeed",
    "published",
    "a100_bigscience",
    "a100_internevo_zero1",
    "a100_llmfoundry_fsdp",
)


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


def accuracy_table(folder: Path) -> str:
    """Zero-shot errors on the measured iteration times in `folder`, one line per file."""
    files = [str(folder / f"{name}.csv") for name in SETS]
    report = json.loads(output_of(itertime, "validate", *files, "--json"))
    lines = [f"{'set':<26}{'rows':>5}{'skipped':>9}{'MAPE %':>8}{'median %':>10}{'bias %':>8}"]
    for name, entry in zip(SETS, report["files"], strict=True):
        lines.append(
            f"{name:<26}{entry['rows']:>5}{len(entry['skipped']):>9}{entry['mape']:>8.1f}"
            f"{entry['median_ape']:>10.1f}{entry['bias']:>8.1f}"
        )
    return "\n".join(lines)


def block(readme: str, name: str) -> str:
    """The text between the fences of the README's block ```text NAME."""
    found = re.search(rf"^```text {name}\n(.*?)\n?```$", readme, re.DOTALL | re.MULTILINE)
    assert found, f"README.md has no block ```text {name}"
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
    subprocess.run([sys.executable, str(ROOT / "docs" / "keys.py")], check=True)
    readme = (ROOT / "README.md").read_text()
    readme = replaced(readme, "accuracy", accuracy_table(SHARED / "data" / "iterations"))
    with tempfile.TemporaryDirectory() as folder:
        readme = replaced(readme, "demo", demo_table("--out", f"{folder}/demo"))
        if options.picture:
            drawing = [sys.executable, str(ROOT / "docs" / "picture.py"), f"{folder}/demo"]
            subprocess.run([*drawing, "-o", str(ROOT / "docs")], check=True)
    (ROOT / "README.md").write_text(readme)


if __name__ == "__main__":
    main()
