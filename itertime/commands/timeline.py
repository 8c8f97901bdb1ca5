"""`itertime timeline`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from itertime.commandline import option_groups

from .options import Execution, PlanLayout, Subject, plan_of

PAGES = (".html", ".htm")

Output = Annotated[
    Path,
    typer.Option(
        "-o",
        "--output",
        help="The file to write: a page (.html) or a Chrome trace (.json).",
        show_default=False,
    ),
]


@option_groups
def timeline(subject: Subject, output: Output, layout: PlanLayout, execution: Execution) -> None:
    """Draw one iteration task by task: a web page, or a trace for chrome://tracing or ui.perfetto.dev."""
    from itertime.errors import UserError
    from itertime.timeline import iteration_graph, write_chrome_trace

    ending = output.suffix.lower()
    if ending not in (*PAGES, ".json"):
        raise UserError(f"-o={output}: must end in .html or .json")
    plan = plan_of(subject, layout, execution)
    spec, machine = subject.read_model(), subject.read_system()
    if ending in PAGES:
        from itertime.timeline import write_timeline_page

        write_timeline_page(spec, plan, machine, output)
        print(f"written to {output}; open it in a browser")
        return
    graph = iteration_graph(spec, plan, machine)
    write_chrome_trace(graph, output)
    print(f"{len(graph.tasks)} tasks written to {output}; open it in chrome://tracing or ui.perfetto.dev")
