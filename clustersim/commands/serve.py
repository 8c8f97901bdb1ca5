"""`clustersim serve`: a live page on this machine."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from itertime.errors import UserError

__all__ = ["serve"]


def serve(
    folder: Annotated[Path, typer.Argument(help="Folder with traces and results.")] = Path(),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 for any that is free.")] = 0,
) -> None:
    """Serve a page that starts comparisons and shows runs, also while they go on.

    The page is for browsers on this machine. The address holds a token, without which nothing is served.
    What the page starts runs in processes of its own, and goes on when the server ends.
    """
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as error:
        remedy = "install the extra: pip install 'clustersim[serve]'"
        raise UserError(f"serve: needs {error.name}; {remedy}") from None
    from clustersim.serve import serve as run_server

    def ready(address: str) -> None:
        print(f"Serving {folder.resolve()}\nOpen {address}\nCtrl-C ends the server", flush=True)

    with suppress(KeyboardInterrupt):  # how the server ends
        run_server(folder, port, ready)
