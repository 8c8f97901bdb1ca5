"""Serves a folder on this machine until it is interrupted."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn

from itertime.errors import UserError

from .app import make_app
from .guard import ENTER

__all__ = ["serve"]


def serve(folder: str | Path, port: int = 0, on_ready: Callable[[str], None] = print) -> None:
    """Serve `folder` at 127.0.0.1, until SIGINT or SIGTERM.

    `port`: 0 for any that is free. `on_ready` gets the address with the token, once. UserError if there is no
    such folder, or the port is taken.
    """
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(("127.0.0.1", port))
        except OSError as error:
            raise UserError(f"--port {port}: {error.strerror or error}; choose another") from None
        port = listening.getsockname()[1]
        token = secrets.token_urlsafe(24)
        config = uvicorn.Config(
            make_app(folder, token, port),
            log_level="warning",
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=1,
        )
        listening.listen()
        on_ready(f"http://127.0.0.1:{port}{ENTER}?token={token}")
        uvicorn.Server(config).run(sockets=[listening])
