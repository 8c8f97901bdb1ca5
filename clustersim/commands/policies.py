"""`clustersim policies`: what there is to compare, and what an author of a policy needs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from itertime.commandline import new_app, print_json

__all__ = ["app"]

app = new_app("List the registered scheduling policies; check one; begin a new one.")
app.info.no_args_is_help = False
app.info.invoke_without_command = True
app.info.subcommand_metavar = "[COMMAND]"


@app.callback()
def policies(
    context: typer.Context,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """List the registered scheduling policies: name, planner and one sentence.

    `check` proves that a policy keeps every rule, `new` begins one from a template.
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
    width, planner_width = (max(len(getattr(i, field)) for i in infos) for field in ("name", "planner"))
    for info in infos:
        print(f"{info.name:<{width}}  {info.planner:<{planner_width}}  {info.summary}")


@app.command()
def check(
    policy: Annotated[str, typer.Argument(help="file.py:Class, or the name of a registered policy.")],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="policy.NAME=VALUE: a parameter of the policy; repeatable."),
    ] = None,
) -> None:
    """Run a policy over small traces and prove from the event logs that it keeps every rule.

    One line a case. Exit code 4 if a rule is broken; the line says which, when and by which jobs.
    """
    from contextlib import redirect_stdout
    from sys import stderr

    from clustersim.errors import PolicyError
    from clustersim.runs import RunConfig, make_policy
    from clustersim.scheduler import Scheduler
    from clustersim.testing import CASES, check_case, check_parameters

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
        else:
            print(f"{name}: ok")
    if broken:
        raise PolicyError(f"policy {policy}: {broken} of {len(checks)} checks failed")


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="Name of the policy, such as my-policy.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder to write into; it must exist.")
    ] = Path("."),
) -> None:
    """Begin a policy: a file with a working scheduler, and its test.

    Nothing that exists is overwritten.
    """
    from clustersim.testing.scaffold import write_template

    policy, test, class_name = write_template(name, output)
    print(f"{policy}: the policy\n{test}: its test")
    print(f"check it: clustersim policies check {policy}:{class_name}")
    print(f"run it:   clustersim run TRACE --policy {policy}:{class_name}")
