"""Help, tables on terminals of any width, and what commands of traces and grids write."""

import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import typer

import itertime.cli
from clustersim.analysis import paired_difference
from clustersim.cli import app, main
from clustersim.commands.help import completion
from clustersim.commands.help.examples import EXAMPLES
from clustersim.commands.help.policy_pages import page_of
from clustersim.commands.output import terminal
from clustersim.commands.output.grids import print_differences
from clustersim.grid import Comparison
from clustersim.runs import list_policies, policy_details
from itertime.commandline import run_app
from itertime.errors import printable
from itertime.io import sha256
from tests.places import ROOT
from tests.printed import Call
from tests.tables import TABLES
from traces import read_trace

NAMES = [info.name for info in list_policies()]


def output_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("command", sorted(EXAMPLES))
def test_examples_have_options_that_the_command_has(command: str) -> None:
    group = typer.main.get_command(app)
    parameters = group.commands[command].params  # type: ignore[attr-defined]
    known = {option for parameter in parameters for option in parameter.opts}
    for _, line in EXAMPLES[command]:
        words = shlex.split(line)
        assert words[:2] == ["clustersim", command]
        assert all(word in known for word in words if word.startswith("-")), line


def _commands(group: Any, *words: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, *words, name)
        else:
            yield (*words, name), command


@pytest.mark.parametrize("program", [app, itertime.cli.app], ids=["clustersim", "itertime"])
def test_help_is_a_screen_and_all_options_are_behind_another_word(
    program: typer.Typer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown_count = option_count = 0
    for words, command in _commands(typer.main.get_command(program)):
        pages = {}
        for option, width in (("--help", "80"), ("--help-all", "250")):
            monkeypatch.setenv("COLUMNS", width)
            assert run_app(program, "program", [*words, option]) == 0
            pages[option] = capsys.readouterr().out
        names = [p.opts[0] for p in command.params if p.opts[0].startswith("-")]
        assert len(pages["--help"].splitlines()) <= 50, words
        assert all(re.search(rf"{name}(?![\w-])", pages["--help-all"]) for name in names), words
        examples = re.findall(rf"^ +(?:clustersim|itertime) {' '.join(words)} .*", pages["--help-all"], re.M)
        required = [set(p.opts) for p in command.params if p.required and p.opts[0].startswith("-")]
        assert all(options & set(line.split()) for line in examples for options in required), words
        option_count += len(names)
        shown_count += sum(bool(re.search(rf"│ .*{name}(?![\w-])", pages["--help"])) for name in names)
    assert shown_count < 0.65 * option_count


def test_names_are_completed() -> None:
    assert completion.policy("gav") == ["gavel-ftf", "gavel-makespan", "gavel-max-min", "gavel-throughput"]
    assert completion.policies("fifo,el") == ["fifo,elasticflow"]
    assert "fifo,fifo" not in completion.policies("fifo,fi")
    assert completion.planners("b") == ["best"]
    assert completion.placements("pa") == ["pack"]
    assert "mlperf" in completion.overheads("")
    assert "dgx-h100" in completion.systems("dgx")
    assert "overheads.launch_s=" in completion.settings("overheads.la")
    assert completion.settings("failures.pre") == ["failures.preset="]
    assert "nodes=" in completion.varied("n")


def test_a_shell_gets_the_names_of_policies() -> None:
    words = {"COMP_WORDS": "clustersim compare x.csv --policies fifo,vt", "COMP_CWORD": "4"}
    environment = {**os.environ, **words, "_CLUSTERSIM_COMPLETE": "complete_bash"}
    program = "import sys; from clustersim.cli import main; sys.exit(main())"
    found = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == ["fifo,vtrain-aware"]


@pytest.mark.parametrize("name", NAMES)
def test_a_policy_says_what_it_is(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = output_of(capsys, "policies", "show", name)
    assert max(map(len, text.splitlines())) <= 80
    details = policy_details(name)
    assert f"Planner: {details.planner}" in text
    for parameter in details.parameters:
        assert re.search(rf"^  {parameter.name} \(default", text, re.MULTILINE)
        assert parameter.meaning, (name, parameter.name)
    assert name in (ROOT / page_of(name)).read_text()


def test_the_pages_of_policies_are_those_of_the_table() -> None:
    text = (ROOT / "docs" / "policies.md").read_text()
    rows = re.findall(r"^\| ([a-z, -]+) \| .* \| \[.*?\]\((policies/[\w-]+\.md)", text, re.MULTILINE)
    stated = {name.strip(): f"docs/{page}" for names, page in rows for name in names.split(",")}
    assert stated == {name: page_of(name) for name in NAMES if page_of(name) != "docs/policies.md"}


HEADS = ["policy", "load", "JCT mean, h", "95 % interval"]
ROWS = [
    ["fifo", "1", "4.16", "–"],
    ["srtf", "1", "3.26 (−10.3 %)", "-51.140 to +0.904"],
    ["srtf", "2", "13.26 (+10.3 %)", "-1.1 to +0.9"],
]
LONG = [["a/long/path/to/a/policy.py:OfMine", "1", "4.16"], ["fifo", "2", "5.17"]]
Printed = Callable[..., list[str]]


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Printed:
    """The lines that a function prints at a width of the terminal, none of which is wider."""

    def lines(width: int, function: Callable[..., object], *arguments: Any, **options: Any) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(width))
        capsys.readouterr()
        function(*arguments, **options)
        found = [line.strip() for line in capsys.readouterr().out.splitlines() if line.strip()]
        assert max(map(len, found)) <= width
        return found

    return lines


def one_line(lines: list[str]) -> str:
    return " ".join(" ".join(lines).split())


@pytest.mark.parametrize("width", [160, 60, 55, 45])
def test_nothing_is_cut_off(width: int, printed: Printed) -> None:
    words = one_line(printed(width, terminal.print_table, HEADS, ROWS, keys=2)).split()
    assert not [word for word in words if "…" in word]
    for word in " ".join(" ".join(row[2:]) for row in ROWS).split():
        assert any(word in other for other in words), word


@pytest.mark.parametrize("width", [12, 20, 30, 40])
def test_a_table_keeps_its_keys(width: int, printed: Printed) -> None:
    lines = printed(width, terminal.print_table, ["policy", "load", "JCT"], LONG, keys=2)
    assert width < 20 or any("4.16" in line for line in lines)


def test_a_table_folds_heads_first_then_cells_then_leaves_out_columns(printed: Printed) -> None:
    wide, folded, narrow = (printed(w, terminal.print_table, HEADS, ROWS, keys=2) for w in (160, 42, 30))
    assert wide[3].split() == ["srtf", "1", "3.26", "(−10.3", "%)", "-51.140", "to", "+0.904"]
    assert wide[4].split()[0] == "2", "the policy is that of the row above"
    assert "(−10.3 %)    to +0.904" in folded
    text = one_line(narrow)
    assert "-51.140" not in text
    remedy = "COLUMNS=200 before the command shows them"
    assert text.endswith(f"Left out at 30 columns: 95 % interval. {remedy}.")
    text = one_line(
        printed(34, terminal.print_table, HEADS, ROWS, keys=2, least_columns=[2], remedy="--wide shows them")
    )
    assert ("13.26" in text, "-51.140" in text) == (False, True)
    assert text.endswith("Left out at 34 columns: JCT mean, h. --wide shows them.")


def test_the_width_of_a_pipe_is_80_unless_columns_says_otherwise(
    printed: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = printed(80, terminal.say, 20 * "words \x1b[31m and ")
    assert len(lines) > 1
    assert "\x1b" not in "".join(lines)
    for stated, width in ((None, 80), ("123", 123), ("wide", 80)):
        if stated is None:
            monkeypatch.delenv("COLUMNS", raising=False)
        else:
            monkeypatch.setenv("COLUMNS", stated)
        assert terminal.width_of_stdout() == width


ALIKE = "No interval (–) where too many of the pairs are alike"
APART = list(zip([1.0, 2.0, 3.0, 4.0, 5.0], [2.0, 2.5, 3.0, 5.5, 5.0], strict=True))


@pytest.mark.parametrize(
    ("metrics", "shown", "hidden"),
    [
        ({"jobs": [(1.0, 2.0)]}, ["over 1 pair of runs", "Fewer than 5 pairs give no interval"], []),
        ({"jobs": [(1.0, 2.0)] * 3 + [(None, 1.0)]}, ["over 3 pairs of runs", "1 pair is left out"], []),
        ({"jobs": [(1.0, 2.0)] * 5}, ["over 5 pairs of runs", "Seeds changed nothing"], []),
        ({"jobs": [(1.0, 2.0)] * 4 + [(1.0, 9.0)]}, [ALIKE], []),
        ({"rejected": [(0.0, 0.0)] * 5, "jobs": APART}, [ALIKE], []),
        ({"jobs": [(1.0, 2.0)], "deadline_met_ratio": [(None, None)]}, ["jobs"], ["deadline_met"]),
        ({"deadline_met_ratio": [(None, None)]}, ["deadline_met"], []),
    ],
)
def test_what_is_missing_is_accounted_for(
    metrics: dict[str, list[Any]], shown: list[str], hidden: list[str], printed: Printed
) -> None:
    rows = [
        Comparison({"policy": "srtf"}, name, paired_difference(*zip(*pairs, strict=True)))
        for name, pairs in metrics.items()
    ]
    text = one_line(printed(160, print_differences, rows, {"policy": "fifo"}))
    assert [words for words in shown if words not in text] == []
    assert [words for words in hidden if words in text] == []


def test_a_locale_without_a_character_prints_another(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "own.py").write_text(
        'from policies.fifo import Fifo\nclass Own(Fifo):\n    """Cr\u00e8me \u2013 first."""\n', "utf-8"
    )
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    assert main(["policies", "show", "own.py:Own"]) == 0
    assert b"Cr?me ? first." in written.getvalue()


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("width", [80, 60])
def test_commands_fit_the_terminal(width: int, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    shutil.copy(ROOT / "traces" / "samples" / "slurm.txt", "log.txt")
    for line in TABLES["commands that fit the terminal"]:
        code, out, err = call(*line.split())
        assert code == 0, line
        long = [text for text in (out + err).splitlines() if len(text) > width]
        one_line = ("clustersim ", "itertime ", "policies/")  # to be copied
        assert not [text for text in long if not text.startswith(one_line)], line


# No file steers the terminal


def test_what_pyarrow_says_of_a_file_is_escaped(here: Path, call: Call) -> None:
    red = "\x1b[31mRED"
    (here / f"{red}.parquet").write_bytes(b"PAR1" + red.encode() + b"PAR1")
    code, _, err = call("trace", "check", f"{red}.parquet")
    assert code in (2, 3)
    assert not [char for char in err if not char.isprintable() and char != "\n"]
    assert "\\x1b[31mRED" in err
    assert "is not a Parquet file" in err


@pytest.mark.parametrize("char", ["\x00", "\x07", "\x1b", "\x7f", "\x9b", "\u202e", "\udc80"])
def test_every_control_character_is_escaped(char: str) -> None:
    assert printable(f"a{char}b\n\tc").isascii()
    assert char not in printable(f"a{char}b")
    assert printable("één\n\t日本") == "één\n\t日本"
    assert "\n" not in printable("a\nb", kept="")


HEAD = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue"


def row(i: int) -> str:
    """Eight jobs a day from 1 September 2020 on, one an hour from 8:00, each waiting for a minute."""
    day, hour, run_s = f"2020-09-{1 + i // 8:02}", 8 + i % 8, 600 + 7 * i
    end = f"{hour:02}:{1 + run_s // 60:02}:{run_s % 60:02}"
    moments = f"{day} {hour:02}:00:00,{day} {hour:02}:01:00,{day} {end}"
    return f"{i},u{i % 3},vc{i % 2},{2 ** (i % 4)},8,1,COMPLETED,{moments},{run_s},60"


@pytest.fixture
def log(here: Path) -> Path:
    path = here / "log.csv"
    path.write_text("\n".join([HEAD, *map(row, range(80))]) + "\n")
    return path


def report_of(name: str) -> Any:
    return json.loads(Path(name).read_text())


def test_import_states_hashes_and_no_place(log: Path, call: Call) -> None:
    done = call("trace", "import", log, "-o", "out.csv.gz", "--limit", 30, "--rules", "llm-mix")
    assert "30 jobs of 80 rows" in done.out
    assert "50 outside the selection" in " ".join(done.err.split())
    report = report_of("out.import.json")
    assert (report["input"]["file"], report["input"]["sha256"]) == ("log.csv", sha256(log))
    assert report["output"] == {"file": "out.csv.gz", "sha256": sha256(log.parent / "out.csv.gz"), "jobs": 30}
    assert (report["seed"], report["planner"], report["system"]) == (0, "best", "dgx-a100-80gb")
    assert str(log.parent) not in json.dumps(report)
    assert sorted(os.listdir(log.parent)) == ["log.csv", "out.csv.gz", "out.import.json"]


@pytest.mark.usefixtures("log")
def test_describe_prints_one_json_document_of_a_trace(call: Call) -> None:
    assert call("trace", "import", "log.csv", "-o", "jobs.csv").code == 0
    of_trace, of_log = (
        json.loads(call("trace", "describe", name, "--json").out) for name in ("jobs.csv", "log.csv")
    )
    assert (of_trace.pop("file"), of_log.pop("file")) == ("jobs.csv", "log.csv")
    assert of_trace == of_log
    assert of_trace["arrivals"]["calendar"]  # by the report of the import, beside the trace
    Path("jobs.import.json").unlink()
    document = json.loads(call("trace", "describe", "jobs.csv", "--json").out)
    assert not document["arrivals"]["calendar"]


def test_fit_writes_a_preset_that_generate_takes(log: Path, call: Call) -> None:
    printed = call("trace", "fit", "log.csv", "-o", "own.yaml").out
    assert max(map(len, printed.splitlines())) <= 80
    assert "fitted to the first 48 jobs; A: the other 32, B: as many generated" in printed
    report = report_of("own.fit.json")
    assert report["input"] == {"file": "log.csv", "sha256": sha256(log)}
    assert report["jobs"] == {"first": 48, "rest": 32}
    words = ("trace", "generate", "--preset", "own.yaml", "-o", "made.csv", "--jobs", 50)
    assert call(*words).code == 0
    assert {job.gpus for job in read_trace("made.csv")} <= {1, 2, 4, 8}
    made = report_of("made.generate.json")
    assert (made["recipe"]["preset"], made["recipe"]["load"]) == ("own.yaml", None)
    assert made["preset"]["sha256"] == sha256(Path("own.yaml"))


GRID = """
set: {cluster: n2g8, trace: {jobs: 12, gpus: 16, load: 4, rules: none, sizes: itp-8h}}
matrix: {policy: [fifo, srtf]}
seeds: 2
"""


@pytest.mark.usefixtures("here")
def test_grids_have_the_distances_and_share_bounds(call: Call) -> None:
    Path("g.yaml").write_text(GRID)
    printed = " ".join(call("grid", "g.yaml", "--workers", "1").out.split())
    assert "Mean JCT is within these factors of the best possible (means over cells): fifo x" in printed
    ratios = pd.read_csv("g/results.csv")["jct_over_bound"]
    assert (len(ratios), ratios.min() >= 1) == (4, True)
    assert len(list(Path("g/bounds").glob("*.json"))) == 2  # one a seed, for both policies
    for cell in Path("g/cells").iterdir():
        assert json.loads((cell / "manifest.json").read_text())["timings"]["bound_s"] is None
    printed = call("grid", "g.yaml", "--workers", "1", "--no-bound", "-o", "without").out
    assert "best possible" not in printed
    assert pd.read_csv("without/results.csv")["jct_over_bound"].isna().tolist() == [True] * 4
