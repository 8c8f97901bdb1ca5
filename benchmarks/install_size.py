"""Megabytes of an installation: a fresh virtual environment, and its largest packages.

    python benchmarks/install_size.py [EXTRA ...]

Installs the repository with the versions of constraints.txt into a temporary folder, as a wheel, with pip's
compiled modules. Sizes are blocks on disk, as `du -sm` counts them; most of them are numba, SciPy and pandas.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
LARGEST = 12


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("extras", nargs="*")
    names = parser.parse_args().extras
    extras = f"[{','.join(names)}]" if names else ""
    with TemporaryDirectory() as folder:
        home = Path(folder) / "venv"
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        source = Path(folder) / "source"  # so that nothing is written into the repository
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(source)], check=True)
        install = ["-m", "pip", "install", "--quiet", "--constraint", str(ROOT / "constraints.txt")]
        subprocess.run([str(home / "bin" / "python"), *install, f"{source}{extras}"], check=True)
        print(f"{megabytes(home):7.0f} MB in all{f', with {extras[1:-1]}' if extras else ''}")
        packages = next(home.glob("lib/python*/site-packages"))
        sizes = {path.name: megabytes(path) for path in packages.iterdir() if path.suffix != ".dist-info"}
        for name in sorted(sizes, key=lambda name: -sizes[name])[:LARGEST]:
            print(f"{sizes[name]:7.0f} MB {name}")


def megabytes(path: Path) -> float:
    """The blocks on disk of a file or a folder, in units of 1,048,576 bytes."""
    files = [path, *path.rglob("*")] if path.is_dir() else [path]
    return sum(file.lstat().st_blocks * 512 for file in files) / 2**20


if __name__ == "__main__":
    main()
