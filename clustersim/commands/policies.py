"""`clustersim policies`: what there is to compare."""

from __future__ import annotations

from typing import Annotated

import typer

from itertime.commandline import new_app, print_json

__all__ = ["app"]

app = new_app("List the registered scheduling policies.")
app.info.no_args_is_help = False
app.info.invoke_without_command = True


@app.callback()
def policies(json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False) -> None:
    """List the registered scheduling policies: name, planner and one sentence."""
    from clustersim.registry import list_policies

    infos = list_policies()
    if json:
        print_json(
            {"policies": [{"name": i.name, "planner": i.planner, "summary": i.summary} for i in infos]}
        )
        return
    width, planner_width = (max(len(getattr(i, field)) for i in infos) for field in ("name", "planner"))
    for info in infos:
        print(f"{info.name:<{width}}  {info.planner:<{planner_width}}  {info.summary}")
