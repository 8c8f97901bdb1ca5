"""`clustersim check`: prove from the files of a run that the run kept every rule."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from itertime.errors import UserError

if TYPE_CHECKING:
    from clustersim.audit import Finding, Violation

__all__ = ["check"]

_SHOWN = 5
_BROKEN = 4
_REPLAY = "replay"


def check(
    folder: Annotated[Path, typer.Argument(help="Folder of `run --out` or `compare --out`.")],
    trace: Annotated[
        Path | None, typer.Option(help="The trace, if it is no longer where the run read it.")
    ] = None,
    replay: Annotated[
        bool, typer.Option("--replay", help="Simulate the run again and compare the files.")
    ] = False,
    policy: Annotated[
        str | None, typer.Option(help="With --replay: file.py:Class, if the policy came from a file.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Prove that a recorded run kept every rule.

    The proof is from the files of the run and its trace. Prints a line per rule, with the first violations of
    a broken one, and a last line on what is proved and what is not. The exit code is 4 if a rule is broken.
    FOLDER may hold several runs, a folder each.
    """
    from clustersim.audit import check_run_folder
    from itertime.commandline import print_json

    from .output.runs import run_folders
    from .output.terminal import plain

    if policy is not None and not replay:
        raise UserError(f"--policy {policy}: needs --replay; leave it out, or give both")
    homes = run_folders(folder)
    reports = {home: check_run_folder(home, trace) for home in homes}
    failures = _replay(reports, trace, policy) if replay else []
    if json:
        print_json({"runs": [_document(home, findings) for home, findings in reports.items()]})
    else:
        for home, findings in reports.items():
            _print(home, findings)
    for failure in failures:
        print(f"error: {plain(str(failure))}", file=sys.stderr)
    if any(finding.violations for findings in reports.values() for finding in findings):
        raise typer.Exit(_BROKEN)
    if failures:
        raise typer.Exit(failures[0].exit_code)


def _replay(reports: Mapping[Path, list[Finding]], trace: Path | None, policy: str | None) -> list[UserError]:
    """Add the finding of each replay to the findings of its run; return why runs could not be replayed."""
    from clustersim.audit import replay

    failures = []
    for home, findings in reports.items():
        try:
            findings.append(replay(home, trace, policy))
        except UserError as error:
            failures.append(error)
    return failures


def _print(home: Path, findings: Sequence[Finding]) -> None:
    from .output.terminal import say

    broken = sum(bool(finding.violations) for finding in findings)
    print(f"{home}: {f'{broken} of {len(findings)} rules broken' if broken else 'every rule kept'}")
    width = max(len(finding.rule) for finding in findings)
    lines = _lines(home, findings)
    for finding in findings:
        verdict = "BROKEN" if finding.violations else "ok"
        unproved = f"; not proved: {finding.unproved}" if finding.unproved else ""
        say(f"  {verdict:<6}  {finding.rule:<{width}}  {finding.text}{unproved}", indent=width + 12)
        for violation in finding.violations[:_SHOWN]:
            say(f"          {_place(violation, lines)}{violation.text}", indent=12)
        if (hidden := len(finding.violations) - _SHOWN + finding.more) > 0:
            print(f"          and {hidden:,} more")
    say(f"  {_proved(findings)}", indent=2)


def _proved(findings: Sequence[Finding]) -> str:
    """A line on what the findings prove, what they do not, and how to prove the rest."""
    broken = any(finding.violations for finding in findings)
    if _decisions_proved(findings):
        if any(finding.rule == _REPLAY and finding.unproved for finding in findings):
            return "Proved: these jobs, settings and seed give this run, with numbers that agree to 1e-9."
        return "Proved: the whole folder; these jobs, settings and seed give exactly these files."
    partly = ", ".join(finding.rule for finding in findings if finding.unproved)
    proved = "the other rules" if broken else "every rule above"
    proved += f", {partly} in part (see there)" if partly else ""
    if any(finding.rule == _REPLAY for finding in findings):
        return f"Proved: {proved}."
    decided = "what the policy decided (which jobs, on which nodes, in which order within an instant)"
    return f"Proved: {proved}. Not proved: {decided}; --replay proves it."


def _decisions_proved(findings: Sequence[Finding]) -> bool:
    replayed = any(finding.rule == _REPLAY for finding in findings)
    return replayed and not any(finding.violations for finding in findings)


def _place(violation: Violation, lines: Mapping[int, int]) -> str:
    return "" if violation.event is None else f"events.csv:{lines[violation.event]}: "


def _lines(home: Path, findings: Sequence[Finding]) -> dict[int, int]:
    """The line of events.csv on which the event of each violation begins: a row may span several lines."""
    from itertime.io import open_table

    event_numbers = {v.event for finding in findings for v in finding.violations if v.event is not None}
    if not event_numbers:
        return {}
    with open_table(home / "events.csv") as table:
        return {i: line for i, (line, _) in enumerate(table.rows) if i in event_numbers}


def _document(home: Path, findings: Sequence[Finding]) -> dict[str, Any]:
    lines = _lines(home, findings)
    rules = [
        {
            "rule": finding.rule,
            "ok": not finding.violations,
            "not_proved": finding.unproved,
            "more": finding.more,
            "violations": [
                {"line": None if v.event is None else lines[v.event], "time_s": v.time_s, "job_id": v.job_id,
                 "text": v.text}
                for v in finding.violations
            ],
        }
        for finding in findings
    ]  # fmt: skip
    ok, decisions_proved = all(rule["ok"] for rule in rules), _decisions_proved(findings)
    return {"folder": str(home), "ok": ok, "decisions_proved": decisions_proved, "rules": rules}
