"""Set clustersim up in this folder, then run the demo or the tests.

python3 quickstart.py demo    compare four policies, and write a report to demo-result
python3 quickstart.py test    run the tests

The virtual environment `.venv` is made on the first call and reused. Nothing outside this folder
changes. After the download, no network is needed.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from subprocess import DEVNULL

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / ("python.exe" if os.name == "nt" else "python")
OLDEST = (3, 11)
RESULT = "demo-result"


def main(arguments):
    if arguments == ["demo"]:
        set_up(".")
        return demo()
    if arguments == ["test"]:
        set_up(".[test]")
        # worksteal: neighbours, which share fixtures, run on the same core
        command = [str(PYTHON), "-m", "pytest", "-n", "2", "--dist", "worksteal"]
        return subprocess.call(command, cwd=str(ROOT))
    print(__doc__, file=sys.stderr)
    return 2


def demo():
    command = [str(PYTHON), "-m", "clustersim", "demo", "--out", RESULT, "--force"]
    code = subprocess.call(command, cwd=str(ROOT))
    if code == 0:
        program = (BIN / "clustersim").relative_to(ROOT)
        print("\nThe report: {}".format(ROOT / RESULT / "report.html"))
        print("What to try next:")
        for words, what in (
            (f"explain {RESULT}/fifo --job 100", "why a job waited"),
            (f"check {RESULT}/fifo", "prove that the run broke no rule"),
            ("demo --load 0.9 --policies easy,las,vtrain-aware", "other loads and policies"),
            ("run jobs.csv --policy vtrain-aware", "your own trace (docs/traces.md)"),
        ):
            print(f"  {program} {words:<53} {what}")
    return code


def set_up(package):
    """Install `package` into the virtual environment, unless it is already there."""
    wanted = fingerprint(package)
    stamp = VENV / ("." + ("clustersim-test" if "[" in package else "clustersim") + ".installed")
    if stamp.exists() and stamp.read_text() == wanted and works():
        return
    size = "1 GB" if "[" in package else "600 MB"
    print(f"Setting up {VENV} (once; some {size} on disk)", file=sys.stderr)
    if not works():
        run([python(), "-m", "venv", "--clear", str(VENV)], "on Debian and Ubuntu, install python3-venv")
    constraints = ["--constraint", str(ROOT / "constraints.txt")]
    install = [str(PYTHON), "-m", "pip", "install", "--quiet", *constraints, "--editable", package]
    run(install, "the first call needs the network (or a package index that pip is configured for)")
    stamp.write_text(wanted)


def works():
    """Whether the virtual environment has a Python that starts. One of a moved folder does not."""
    return PYTHON.exists() and starts(str(PYTHON), "-m", "pip")


def starts(*command):
    """Whether a program tells its version. A shim of pyenv for a Python that is not chosen does not."""
    try:
        return subprocess.call([*command, "--version"], stdout=DEVNULL, stderr=DEVNULL) == 0
    except OSError:
        return False


def fingerprint(package):
    """A digest of what decides an installation: the place, and the stated dependencies."""
    digest = hashlib.sha256((str(ROOT) + package).encode())
    for name in ("pyproject.toml", "constraints.txt"):
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def python():
    """A Python that is new enough: this one, or one on the path."""
    if sys.version_info >= OLDEST:
        return sys.executable
    for minor in range(20, OLDEST[1] - 1, -1):
        found = shutil.which(f"python3.{minor}")
        if found and starts(found):
            return found
    found = ".".join(map(str, sys.version_info[:3]))
    sys.exit("error: Python {}.{} or newer is needed, and this is {}".format(*OLDEST, found))


def run(command, remedy):
    code = subprocess.call(command, cwd=str(ROOT))
    if code:
        sys.exit("error: `{}` failed; {}".format(" ".join(command), remedy))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
