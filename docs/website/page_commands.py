"""Every command on every page: its options exist, and it runs in a fresh folder.

`python -m docs.website.page_commands [PAGE...]` runs the commands of all pages, or of some, and lists those
that fail. A command is a line of a ```` ```sh ```` block or of an indented block, or a span of code that
begins with the name of a program.

| command | what happens |
|---|---|
| of `clustersim` or `itertime` | is run, in a folder of the page, after the commands before it |
| a synopsis (`TRACE`, `[--json]`), a span in a sentence, a loop of the shell | its options exist |
| below the comment `<!-- parsed: REASON -->` | its arguments are parsed, and it is not run |
| a program of `experiments`, `benchmarks` or `docs` | answers `--help`, which has its options |
| another module (`python -m pytest`) | can be imported |
| with `../shared`, where there is none | its command and its options exist |
| a program of others (`OTHERS`), a marked block (`MARKED`) | is counted, with the reason |

Files that a reader is meant to have (`READER_FILES`) are made when a command first names one of them.
Pages of lessons are run whole by `examples.run_page`, with their Python and their files.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.util
import io
import json
import os
import re
import runpy
import shlex
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import typer

from clustersim.cli import app as clustersim
from itertime.cli import app as itertime
from itertime.commandline import run_app

from .examples import run_page
from .pages import ROOT

__all__ = ["Command", "commands_of", "missing_options", "pages_with_commands"]

APPS = {"clustersim": clustersim, "itertime": itertime}
LESSONS = ("docs/quickstart.md", "docs/tutorials/*.md", "docs/how-to/*.md")
OTHERS = {
    "pip": "installs packages from an index",
    "source": "of the shell that activates an environment",
    "dask": "needs the extra dask, and runs until it is stopped",
    "kubectl": "needs a cluster of Kubernetes",
    "scontrol": "needs a Slurm",
    "sacctmgr": "needs a Slurm",
    "sacct": "needs a Slurm",
    "squeue": "needs a Slurm",
    "pytest": ".ci/run runs the tests",
    "ruff": ".ci/run runs it",
    "make": ".ci/run runs it",
}
"""Programs on pages that are not of this project, and why they are not run."""
MARKED = {
    "demo": ".ci/run runs it to make the environment",
    "activate": ".ci/run runs it before the others",
    "test": ".ci/run runs it at its end",
    "gpu": "needs a GPU, and torch",
    "extra": "needs an extra, and runs until it is stopped",
}
"""Words after ```` ```sh ````, and why the commands of such a block are not run."""
_SITE = ROOT / "traces/samples/slurm-site"
_SAMPLE = "clustersim trace import traces/samples/slurm.txt --rules llm-mix --limit 40"
READER_FILES: dict[str, str | Path] = {
    "jobs.csv": f"{_SAMPLE} -o jobs.csv",
    "trace.csv": f"{_SAMPLE} -o trace.csv",
    "config.json": json.dumps(
        {
            "model_type": "llama",
            "hidden_size": 2048,
            "intermediate_size": 8192,
            "num_hidden_layers": 16,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "vocab_size": 128256,
            "max_position_embeddings": 8192,
            "tie_word_embeddings": True,
        }
    ),
    **{path.name: path for path in sorted(_SITE.glob("*.txt"))},
    "reservations.txt": "No reservations in the system\n",
}
"""Files that a reader is meant to have: the command that makes the sample of each, the file that it
is, or what it holds."""
NEED_TORCH = ("benchmarks/eager.py", "experiments/train_gpt.py")
"""Programs that import torch."""
_LINE = re.compile(r"^(?:\$ )?([a-z][\w.-]*) (?! )")
_EVERYWHERE = re.DOTALL | re.MULTILINE
_OPTION = re.compile(r"(?<![\w/=-])--?[A-Za-z][\w-]*")
_SYNOPSIS = re.compile(r"(?:^|\s)\[|\.\.\.|(?<![\w.,:/=-])[A-Z]+(?:\.\.\.)?(?![\w.,:=-])|\$")


class Command(NamedTuple):
    """A command on a page, in one line. `reason`: why it is not run, if that is said beside it."""

    page: str
    line_number: int
    text: str
    treatment: str
    """`run`, `parse`, `options`, `help`, or `reason` for what is not run at all."""
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.page}:{self.line_number}: {self.text}"


def pages_with_commands() -> list[str]:
    """The paths of all pages in the repository that may have commands."""
    patterns = ("*.md", "docs/**/*.md", "experiments/**/*.md", "policies/**/*.md", "benchmarks/*.md")
    paths = {str(path.relative_to(ROOT)) for pattern in patterns for path in ROOT.glob(pattern)}
    return sorted(path for path in paths if not path.endswith(".template.md") and path != "CHANGELOG.md")


def commands_of(page: str) -> Iterator[Command]:
    """The commands of a page, in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for number, line, mark in _lines_of_blocks(text):
        first = _LINE.match(f"{line} ")
        if first and (first[1] in OTHERS or first[1] in (*APPS, "python", "python3")):
            words = line.removeprefix("$ ")
            yield _classified(page, number, re.sub(r"\s+# .*", "", words), mark, session=line != words)
    for number, line in enumerate(_prose(text), 1):
        for span in re.findall(r"`((?:clustersim|itertime|python|python3) [^`]+)`", line):
            treatment = "help" if span.startswith("python") else "options"
            yield Command(page, number, span, treatment)


def _lines_of_blocks(text: str) -> Iterator[tuple[int, str, str]]:
    """The number, the text and the mark of each line of a block, with its continuations in the same line.

    The mark is the word after ```` ```sh ````, or `parsed: REASON` of the comment above the block.
    """
    fence, mark, loop, start = "", "", False, 0
    joined_line = ""
    for number, line in enumerate(text.splitlines(), 1):
        comment = re.match(r"<!-- (parsed: .+) -->$", line)
        if comment:
            mark = comment[1]
        elif line.startswith("```"):
            fence = "" if fence else line.strip("`") or "text"
            mark = mark or fence.removeprefix("sh").strip() if fence else ""
        elif fence.split(" ")[0] == "sh" or (not fence and line.startswith("    ")):
            start = start or number
            joined_line += line.strip().removesuffix("\\")
            if not line.endswith("\\"):
                loop = loop or joined_line.startswith("for ")
                yield start, joined_line, mark or ("loop" if loop else "")
                joined_line, start = "", 0
        elif line and not fence:
            mark, loop = "", False


def _prose(text: str) -> list[str]:
    """The lines of a page, with those of blocks empty."""
    lines, fenced = [], False
    for line in text.splitlines():
        fenced ^= line.startswith("```")
        lines.append("" if fenced or line.startswith("    ") else line)
    return lines


def _classified(page: str, number: int, text: str, mark: str, session: bool) -> Command:
    program = text.split()[0]
    if mark in MARKED:
        return Command(page, number, text, "reason", MARKED[mark])
    if program in OTHERS:
        return Command(page, number, text, "reason", OTHERS[program])
    if program.startswith("python"):
        return Command(page, number, text, "help")
    if mark == "loop" or session or _SYNOPSIS.search(text):
        return Command(page, number, text, "options")
    if mark.startswith("parsed: "):
        return Command(page, number, text, "parse", mark.removeprefix("parsed: "))
    return Command(page, number, text, "run")


@functools.cache
def command_line(program: str) -> Any:
    """The commands of `clustersim` or `itertime`."""
    return typer.main.get_command(APPS[program])


def missing_options(command: Command) -> list[str]:
    """The words of a command of `clustersim` or `itertime` that its command line does not know."""
    program, *words = command.text.split()
    called = command_line(program)
    while words and hasattr(called, "commands") and re.fullmatch(r"[a-z][a-z-]*", words[0]):
        if words[0] not in called.commands:
            return words[:1]
        called = called.commands[words.pop(0)]
    names = {name for option in called.params for name in (*option.opts, *option.secondary_opts)}
    normalised = called.context_settings.get("token_normalize_func") or str
    names |= {"-h", "--help", "--help-all"}
    options = _OPTION.findall(re.sub(r"'[^']*'", "", " ".join(words)))
    return [option for option in options if normalised(option.lstrip("-")) not in _bare(names)]


def _bare(names: set[str]) -> set[str]:
    return {name.lstrip("-") for name in names}


def parse(command: Command) -> None:
    """Let the command line check the arguments of a command, without what it does."""
    program, *words = shlex.split(command.text, comments=True)
    called = command_line(program)
    while hasattr(called, "commands"):
        called = called.commands[words.pop(0)]
    called.make_context(program, words, **called.context_settings)


@functools.cache
def help_of(program: tuple[str, ...]) -> str:
    """What a program of the repository answers to `--help`. It runs in this process, since most of the time
    of another one would be spent on the same imports. AssertionError if it does anything else.
    """
    *option, name = program
    own_arguments, printed = sys.argv, io.StringIO()
    sys.argv = [name, "--help"]
    sys.path.insert(0, str((ROOT / name).parent))
    try:
        with contextlib.chdir(ROOT), redirect_stdout(printed), warnings.catch_warnings(action="ignore"):
            if option:
                runpy.run_module(name, run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(str(ROOT / name), run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            raise AssertionError(f"exit code {end.code}") from None
    finally:
        sys.argv = own_arguments
        sys.path.pop(0)
    return printed.getvalue()


def ask_for_help(command: Command) -> None:
    """Ask a program for help, and look there for the options that the page names."""
    _, *words = command.text.split()
    count = 2 if words[0] == "-m" else 1
    program = words[count - 1]
    if program == "quickstart.py" or (program in NEED_TORCH and not importlib.util.find_spec("torch")):
        return
    if count == 2 and not program.startswith(("experiments.", "docs.")):
        assert importlib.util.find_spec(program), f"no module {program}"
        return
    text = help_of(tuple(words[:count]))
    missing = [option for option in _OPTION.findall(" ".join(words[count:])) if option not in text]
    assert not missing, f"no option {', '.join(missing)}"


def files_of(text: str) -> dict[str, str | Path]:
    """The blocks of a page that begin with the name of a file, by that name."""
    return dict(re.findall(r"^```(?:yaml|csv)\n# (\S+\.\w+)\n(.*?)^```", text, _EVERYWHERE))


class Folder:
    """The folder in which the commands of a page run, with what a clone has beside the page."""

    def __init__(self, path: Path, shared: Path | None):
        self.samples = dict(READER_FILES)
        self.path = path / "page"
        self.path.mkdir()
        for name in ("traces", "docs", "experiments"):
            os.symlink(ROOT / name, self.path / name)
        if shared is not None:
            os.symlink(shared, path / "shared")

    def run(self, command: Command) -> None:
        """Run a command. AssertionError with what it says if it fails."""
        program, *words = shlex.split(command.text, comments=True)
        written = {word for option, word in pairwise(words) if option in ("-o", "--out")}
        for word in words:
            name = word.rpartition("=")[2]
            if name in self.samples and name not in written and not (self.path / name).exists():
                self.make(name)
        self.call(program, words)

    def make(self, name: str) -> None:
        """Make a file that a reader is meant to have."""
        sample = self.samples[name]
        if isinstance(sample, Path):
            os.symlink(sample, self.path / name)
            return
        program, *words = sample.split()
        if program in APPS:
            self.call(program, words)
        else:
            (self.path / name).write_text(sample, encoding="utf-8")

    def call(self, program: str, words: list[str]) -> None:
        errors, printed = io.StringIO(), io.StringIO()
        with contextlib.chdir(self.path), redirect_stdout(printed), redirect_stderr(errors):
            code = run_app(APPS[program], program, words)
        assert code == 0, f"exit code {code}: {errors.getvalue().strip()[-400:]}"


def run_commands(page: str, shared: Path | None) -> Iterator[tuple[Command, str, float]]:
    """Each command of a page, with what is wrong with it (or nothing) and the CPU seconds that it took."""
    with tempfile.TemporaryDirectory() as name:
        folder = Folder(Path(name), shared)
        checks: dict[str, Callable[[Command], None]] = {
            "help": ask_for_help,
            "parse": parse,
            "run": folder.run,
            "options": _assert_options,
            "reason": lambda command: None,
        }
        text = (ROOT / page).read_text(encoding="utf-8")
        lesson = any(Path(page).match(pattern) for pattern in LESSONS)
        if not lesson:
            folder.samples |= files_of(text)
        for command in commands_of(page):
            treatment = command.treatment
            if treatment == "run" and (lesson or (shared is None and "../shared" in command.text)):
                treatment = "options"
            yield _outcome(command, functools.partial(checks[treatment], command))
        if lesson:
            yield _outcome(Command(page, 1, "all blocks", "run"), lambda: _run_lesson(text, page, folder))


def _assert_options(command: Command) -> None:
    missing = missing_options(command)
    assert not missing, f"no {', '.join(missing)}"


def _run_lesson(text: str, page: str, folder: Folder) -> None:
    with contextlib.chdir(folder.path), redirect_stderr(io.StringIO()):
        for _ in run_page(text, page):
            pass


def _outcome(command: Command, check: Callable[[], None]) -> tuple[Command, str, float]:
    begin_s = time.process_time() + sum(os.times()[2:4])
    try:
        check()
        fault = ""
    except Exception as error:
        fault = f"{type(error).__name__}: {getattr(error, 'message', error)}"
    return command, fault, time.process_time() + sum(os.times()[2:4]) - begin_s


def main(pages: list[str], slow_s: float) -> int:
    """Run the commands of pages, and say which fail. Returns the exit code."""
    place = Path(os.environ.get("CLUSTERSIM_SHARED", ROOT.parent / "shared"))
    shared = place if place.is_dir() else None
    counts: Counter[str] = Counter()
    faults, total_s = 0, 0.0
    for page in pages or pages_with_commands():
        for command, fault, seconds in run_commands(page, shared):
            counts[command.treatment] += 1
            total_s += seconds
            faults += bool(fault)
            if fault:
                print(f"{command}\n    {fault}")
            elif seconds > slow_s:
                print(f"{command}\n    takes {seconds:.1f} s of CPU")
    counts_text = ", ".join(f"{count} {treatment}" for treatment, count in sorted(counts.items()))
    print(f"{sum(counts.values())} commands ({counts_text}); {faults} fail; {total_s:.0f} s of CPU")
    return int(faults > 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("pages", nargs="*", help="paths in the repository; all pages without one")
    parser.add_argument("--slow", type=float, default=5.0, help="name commands of more CPU seconds (5)")
    arguments = parser.parse_args()
    sys.exit(main(arguments.pages, arguments.slow))
