"""`clustersim policies`: list the policies, show one, check one, start a new one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from itertime.commandline import new_app, print_json

from .help import completion
from .help.options import Json, Wide

__all__ = ["app"]

app = new_app("List the scheduling policies, show one, check one, start a new one.")
app.info.no_args_is_help = False
app.info.invoke_without_command = True
app.info.subcommand_metavar = "[COMMAND]"


@app.callback()
def policies(
    context: typer.Context,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """List the registered scheduling policies: name, planner and one sentence.

    `show` tells what one does and what its parameters are.
    `check` tests that a policy keeps every rule. `new` writes a new policy from a template.
    """
    if context.invoked_subcommand is not None:
        return
    from clustersim.runs import list_policies

    infos = list_policies()
    if json:
        print_json(
            {"policies": [{"name": i.name, "planner": i.planner, "summary": i.summary} for i in infos]}
        )
        return
    from .output.policies import print_policies

    print_policies(infos)


@app.command()
def show(
    policy: Annotated[
        str,
        typer.Argument(
            help="The name of a registered policy, or file.py:Class.", autocompletion=completion.policy
        ),
    ],
    wide: Wide = False,
    json: Json = False,
) -> None:
    """Show what a policy does: paper, planner, parameters with their defaults, page.

    Change a parameter with `--set policy.NAME=VALUE`.
    """
    from clustersim.runs import policy_details

    from .help.policy_pages import page_of
    from .output.policies import print_details

    print_details(policy_details(policy), page_of(policy), json=json, wide=wide)


@app.command()
def check(
    policy: Annotated[str, typer.Argument(help="file.py:Class, or the name of a registered policy.")],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="policy.NAME=VALUE: a parameter of the policy; repeatable."),
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(
            "--keep", metavar="FOLDER", help="Where to write the traces, settings and event logs that failed."
        ),
    ] = None,
) -> None:
    """Test that a policy keeps every rule.

    Runs the policy over small traces and audits the event logs. Prints a line per trace; if a rule is broken,
    the line states the rule, the time and the jobs, and the exit code is 4. With --keep, a command follows
    that runs the trace again.
    """
    from contextlib import redirect_stdout
    from sys import stderr

    from clustersim.errors import PolicyError
    from clustersim.runs import RunConfig, make_policy
    from clustersim.scheduler import Scheduler
    from clustersim.testing import CASES, BrokenCase, check_case, check_parameters
    from clustersim.testing.kept import keep_case

    params = RunConfig.make(settings, policy=policy).params

    def factory() -> Scheduler:
        return make_policy(policy, params)

    broken = 0
    checks = [("parameters", lambda: check_parameters(factory()))]
    checks += [(case.name, lambda case=case: check_case(factory, case)) for case in CASES]  # type: ignore[misc]
    for name, prove in checks:
        try:
            with redirect_stdout(stderr):  # a policy may print, but stdout is for results
                prove()
        except AssertionError as error:
            broken += 1
            print(f"{name}: BROKEN: {str(error).removeprefix(f'{name}: ')}")
            if keep is not None and isinstance(error, BrokenCase):
                print(f"  run it again: {keep_case(error, keep, policy, params)}")
        else:
            print(f"{name}: ok")
    if broken:
        raise PolicyError(f"policy {policy}: {broken} of {len(checks)} checks failed")


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="Name of the policy: lower-case words, as in my-policy.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Existing folder to write to.")] = Path("."),
) -> None:
    """Write a new policy and its test, from a template.

    The policy works at once. Existing files are never overwritten.
    """
    from clustersim.testing.scaffold import write_template

    policy, test, class_name = write_template(name, output)
    print(f"{policy}: the policy\n{test}: its test")
    print(f"check it: clustersim policies check {policy}:{class_name}")
    print(f"run it:   clustersim run TRACE --policy {policy}:{class_name}")
