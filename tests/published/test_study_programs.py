"""Programs of studies: the files that they write and print, with a picture where matplotlib is installed."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from experiments import bert, local_steps, mt_nlg_cost, onebit_adam, output
from experiments.mt_nlg_cost import VTRAIN_SYSTEM
from tests.tables import table_rows

Main = Callable[[Sequence[str]], int]
BERT = ("ablation.csv", "ideas.md", "launches.md", "scale.md", "submissions.md")


def files_of(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("main", "options", "files", "printed", "picture"),
    [
        (bert.main, ["--page", "page.md"], BERT, ["scale.md"], "scale.png"),
        (local_steps.main, [], ("runs.csv", "summary.md"), ["summary.md"], "seconds.png"),
        (
            mt_nlg_cost.main, ["--price", "2.5"], ("networks.md", "plans.csv", "rules.md", "summary.md"),
            ["summary.md", "networks.md", "rules.md"], "heatmap.png",
        ),
        (onebit_adam.main, [], ("bandwidth.md", "published.md"), ["published.md"], "speedup.png"),
    ],
    ids=["bert", "local_steps", "mt_nlg", "onebit_adam"],
)  # fmt: skip
def test_a_program_writes_its_files(
    main: Main, options: list[str], files: tuple[str, ...], printed: list[str], picture: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    Path("page.md").write_text("<!-- scale.md -->\n<!-- end -->\n")
    assert main([*options, "--out", "all"]) == 0
    assert files_of(Path("all")) == {*files, picture}
    out = capsys.readouterr().out
    assert all(Path("all", name).read_text(encoding="utf-8") in out for name in printed)
    if main is bert.main:
        assert bert.scale_md() in Path("page.md").read_text(encoding="utf-8")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(output, "find_spec", lambda name: None)
    system = ["--system", VTRAIN_SYSTEM] if main is mt_nlg_cost.main else []  # one network is faster
    assert main(["--out", "less", *system]) == 0
    assert files_of(Path("less")) == set(files) - ({"networks.md", "rules.md"} if system else set())
    assert f"{picture} is not drawn: matplotlib is not installed" in capsys.readouterr().err


PROGRAMS = {
    "bert": bert.main,
    "local_steps": local_steps.main,
    "mt_nlg_cost": mt_nlg_cost.main,
    "onebit_adam": onebit_adam.main,
}
WRONG_TABLE = "method,workload,network,gpus,throughput_samples_per_s\nAdam,same,40 GbE,many,90\n"


@pytest.mark.parametrize(("program", "options", "code", "says"), table_rows("a mistake of the user is named"))
def test_a_mistake_of_the_user_is_named(
    program: str, options: list[str], code: int, says: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    Path("data", "communication_methods.csv").write_text(WRONG_TABLE)
    try:
        exit_code = PROGRAMS[program](["--out", "out", *options])
    except SystemExit as stop:  # of an option that means nothing
        exit_code = stop.code  # type: ignore[assignment]
    assert exit_code == code
    assert says in capsys.readouterr().err
