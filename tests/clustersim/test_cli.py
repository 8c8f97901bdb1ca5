"""The command line where a session (`sessions/`) cannot show it: interrupts, faults, what is imported."""

import json
import os
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from itertime.errors import UserError
from tests.places import ROOT
from tests.printed import Call, Done

TRACE = "job_id,submit_s,gpus,duration_s\na,0,8,60\nb,0,8,30\nc,10,4,5\nwide,20,999,5\n"
COMMANDS = (
    "run", "compare", "grid", "demo", "report", "check", "explain", "policies", "trace", "trace import",
    "trace import-table", "trace generate", "trace check",
)  # fmt: skip
HEAVY = (
    "numpy", "pandas", "scipy", "pyarrow", "simpy", "yaml", "jinja2", "distributed",
)  # fmt: skip
RUN = ("run", "trace.csv", "--policy", "fifo", "--cluster", "n1g8")
COMPARE = ("compare", "trace.csv", "--policies", "srtf,fifo", "--baseline=fifo", "--cluster", "n1g8")


@pytest.fixture
def trace(here: Path) -> Path:
    path = here / "trace.csv"
    path.write_text(TRACE)
    return path


@pytest.mark.usefixtures("trace")
@pytest.mark.parametrize("words", [RUN, COMPARE])
def test_no_pointer_to_a_report_that_could_not_be_written(
    call: Call, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    def disk_is_full(path: Path, _: str) -> None:
        raise UserError(f"{path}: cannot be written: No space left on device")

    monkeypatch.setattr("itertime.io.write_text", disk_is_full)
    done = call(*words, "--out", "out")
    assert done.code == 2
    assert "report.html: cannot be written: No space left on device" in done.err
    assert "fifo" in done.out
    assert "Written to" not in done.out


@pytest.mark.usefixtures("trace")
def test_a_page_that_no_browser_opens_is_left_out_in_one_line(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is of all jobs of all runs; `report` tries nevertheless."""
    monkeypatch.setattr("clustersim.commands.output.runs._MOST_REPORTED", 4)
    done = call(*RUN, "--out", "run")
    assert (done.code, done.err, Path("run/report.html").exists()) == (0, "", True)
    done = call(*COMPARE, "--out", "both")
    reason = "not written: a page of 8 jobs is too large for a browser; `clustersim report both` tries"
    assert (done.code, done.err) == (0, f"both/report.html: {reason}\n")
    assert not Path("both/report.html").exists()
    assert "Written to both\n" in done.out
    assert call("report", "both").code == 0
    assert Path("both/report.html").exists()


@pytest.mark.usefixtures("trace")
def test_report_again(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the order of the policies and the baseline of its command."""
    page = Path("out/report.html")
    monkeypatch.setattr(sys, "argv", ["clustersim", *COMPARE, "--out", "out"])
    assert call(*COMPARE, "--out", "out").code == 0
    content = page.read_bytes()
    page.unlink()
    assert call("report", "out") == Done(0, f"{page}\n", "")
    assert page.read_bytes() == content
    assert call("report", "out/srtf").code == 0


def test_policies(call: Call) -> None:
    document = json.loads(call("policies", "--json").out)
    rows = {row["name"]: row for row in document["policies"]}
    assert {"fifo", "fifo-skip", "sjf", "srtf", "edf", "elasticflow", "vtrain-aware"} <= set(rows)
    assert set(rows["fifo"]) == {"name", "planner", "summary"}
    text = " ".join(call("policies").out.split())
    assert all(f"{name} {row['planner']} {row['summary']}" in text for name, row in rows.items())


LONG = "9" * 70_000
FOLDERS = "x/" * 30_000


@pytest.mark.usefixtures("trace")
@pytest.mark.parametrize(
    "words",
    [
        ("run", LONG, "--policy", "fifo"), ("run", "trace.csv", "--policy", FOLDERS), ("check", FOLDERS),
        ("run", "trace.csv", "--policy", "fifo", "--set", f"seed={LONG}"), ("plot", "--seed", LONG, "run"),
        ("run", "trace.csv", "--policy", "fifo", "--seed", f"{LONG}x"),
        ("compare", "trace.csv", "--baseline", LONG),
        ("trace", "generate", "--jobs", "3", "--deadlines", LONG, "-o", "t.csv"),
        ("backtest", "trace.csv", "--time-zone", FOLDERS), ("policies", "show", LONG),
    ],
    ids=lambda words: " ".join(word[:12] for word in words),
)  # fmt: skip
def test_of_an_argument_that_is_too_long_to_read_the_beginning_is_repeated(
    call: Call, words: tuple[str, ...]
) -> None:
    done = call(*words)
    assert done.code in (2, 3)
    assert len(done.err) < 3000


# 130 and 1


@pytest.mark.usefixtures("trace")
@pytest.mark.parametrize(
    ("place", "words"),
    [("engine.simulation.Simulation._decide", RUN), ("bounds.bound_of", ("bound", "trace.csv", "--json"))],
)
def test_faults_and_interrupts(
    call: Call, monkeypatch: pytest.MonkeyPatch, place: str, words: tuple[str, ...]
) -> None:
    def raises(error: BaseException) -> None:
        def broken(*_: object) -> None:
            raise error

        monkeypatch.setattr(f"clustersim.{place}", broken)

    raises(KeyboardInterrupt())
    assert call(*words) == Done(130, "", "error: interrupted\n")
    raises(RuntimeError("a bug"))
    done = call(*words)
    assert (done.code, done.out) == (1, "")
    assert "internal error, please report it: RuntimeError: a bug" in done.err
    assert "Traceback" in done.err


@pytest.mark.skipif(sys.platform == "win32", reason="no process groups")
def test_ctrl_c_ends_a_comparison_quietly(trace: Path) -> None:
    """As in a terminal, the workers get the signal too."""
    policy = trace.with_name("slow.py")
    policy.write_text(
        "import time, sys\n"
        "from clustersim.scheduler import Scheduler\n"
        "class Slow(Scheduler):\n"
        "    def schedule(self, state):\n"
        "        print('begun', file=sys.stderr, flush=True)\n"
        "        time.sleep(60)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-m", "clustersim", "compare", str(trace), "--policies", f"{policy}:Slow,fifo"],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert child.stderr is not None
    assert child.stderr.readline() == "begun\n"
    os.killpg(child.pid, signal.SIGINT)
    out, err = child.communicate(timeout=20)
    assert (child.returncode, out, err) == (130, "", "error: interrupted\n")


# Help


def test_version(call: Call) -> None:
    assert call("--version") == Done(0, f"clustersim {version('clustersim')}\n", "")


def test_help_imports_nothing_heavy() -> None:
    """What makes `--help` slow is what it imports; seconds would depend on the machine."""
    arguments = [["--help"], *([*command.split(), "--help"] for command in COMMANDS)]
    script = (
        "import sys, clustersim.commands.trace\n"
        "assert 'pydantic' not in sys.modules\n"
        "from clustersim.cli import main\n"
        f"for arguments in {arguments!r}:\n"
        "    assert main(arguments) == 0\n"
        f"heavy = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "print('heavy:', heavy, file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stderr == "heavy: []\n"
    assert done.stdout.count("Usage: clustersim") == len(arguments)


@pytest.mark.parametrize(("words", "code"), [(("--help",), 0), (("run", "x"), 2)])
def test_as_a_module(words: tuple[str, ...], code: int) -> None:
    command = [sys.executable, "-m", "clustersim", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert ("compare" in done.stdout) == (code == 0)
