"""The routes of the live page."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from math import isfinite
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from clustersim.report.frame import chart_script, chart_style
from clustersim.report.frame.looks import palette_css
from clustersim.runs import list_policies
from itertime.errors import UserError
from itertime.io import MAX_BYTES, read_text

from .folder import ServedFolder
from .guard import Guard
from .starting import Starter
from .stories import story_of
from .watched import TICK_S, Watched

__all__ = ["make_app"]

_PAGE_FOLDER = Path(__file__).parent / "page"
_PAGE = {"serve.js": "text/javascript", "serve.css": "text/css", "icon.svg": "image/svg+xml"}
_CHARTS = {"charts.js": ("text/javascript", chart_script), "charts.css": ("text/css", chart_style)}
_MOST_WATCHED = 16  # runs; the one that was asked for least recently goes
_MOST_STREAMS = 32  # pages that watch a run at once
_LARGEST_BODY = 20_000  # bytes
_STILL_S = 10.0  # after so many seconds without a change, a line shows that the server lives
_REPORT_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "font-src data:; frame-ancestors 'none'; sandbox allow-scripts allow-downloads allow-popups"
)
"""A report holds its scripts in itself. It may be from elsewhere, so it gets an origin of its own, from which
it reaches nothing of the page.
"""

Answer = Callable[[Request], Response | Awaitable[Response]]


def make_app(folder: str | Path, token: str, port: int) -> Guard:
    """The application of a folder, behind its guard. UserError if there is no such folder."""
    return Guard(_Page(ServedFolder(folder)).routes(), token, port)


class _Page:
    def __init__(self, folder: ServedFolder):
        self.folder, self.starter = folder, Starter(folder)
        self._watched: dict[str, Watched] = {}
        self._streams = 0

    def routes(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/", self.index),
                Route("/page/{name}", self.page),
                Route("/state", self.state),
                Route("/policies", self.policies),
                Route("/runs/{run:path}/stream", self.stream),
                Route("/runs/{run:path}/at", self.at),
                Route("/runs/{run:path}/curves", self.curves),
                Route("/runs/{run:path}/job", self.job),
                Route("/reports/{folder:path}", self.report),
                Route("/start", self.start, methods=["POST"]),
                Route("/stop", self.stop, methods=["POST"]),
            ],
            exception_handlers={UserError: _refused},
        )

    def index(self, request: Request) -> Response:
        return Response(_packaged("index.html"), media_type="text/html")

    def page(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name in _CHARTS:
            media_type, read = _CHARTS[name]
            return Response(read(), media_type=media_type)
        if name not in _PAGE:
            raise UserError("there is no such file")
        text = _packaged(name)
        if name == "serve.css":  # the colours of policies are those of reports
            text = text.replace("/* light */", palette_css(False)).replace("/* dark */", palette_css(True))
        return Response(text, media_type=_PAGE[name])

    def state(self, request: Request) -> Response:
        return JSONResponse(
            {
                "folder": self.folder.root.name,
                "runs": self.folder.runs(),
                "reports": self.folder.reports(),
                "traces": self.folder.traces(),
                "commands": self.starter.commands(),
            }
        )

    def policies(self, request: Request) -> Response:
        return JSONResponse([[info.name, info.summary] for info in list_policies()])

    def at(self, request: Request) -> Response:
        return JSONResponse(self._found(request).at(_number(request.query_params.get("t", ""))))

    def curves(self, request: Request) -> Response:
        return JSONResponse(self._found(request).curves_document())

    def job(self, request: Request) -> Response:
        return JSONResponse(story_of(self._found(request), request.query_params.get("id", "")))

    def report(self, request: Request) -> Response:
        path = self.folder.report(request.path_params["folder"])
        headers = {"content-security-policy": _REPORT_POLICY}
        return FileResponse(path, media_type="text/html", headers=headers)

    async def stream(self, request: Request) -> Response:
        if self._streams >= _MOST_STREAMS:
            return JSONResponse({"error": "too many pages watch already; close one"}, status_code=503)
        watched = await run_in_threadpool(self._found, request)
        return StreamingResponse(self._counted(_frames(watched)), media_type="text/event-stream")

    async def _counted(self, frames: AsyncIterator[str]) -> AsyncIterator[str]:
        self._streams += 1
        try:
            async for frame in frames:
                yield frame
        finally:
            self._streams -= 1

    async def start(self, request: Request) -> Response:
        settings = await _body(request)
        return JSONResponse({"name": await run_in_threadpool(self.starter.start, settings)})

    async def stop(self, request: Request) -> Response:
        self.starter.stop(str((await _body(request)).get("name", "")))
        return JSONResponse({})

    def _found(self, request: Request) -> Watched:
        path = request.path_params["run"]
        home = self.folder.run(path)
        watched = self._watched.pop(path, None)
        if watched is None or not watched.is_current():
            watched = Watched(home)
        self._watched[path] = watched
        while len(self._watched) > _MOST_WATCHED:
            self._watched.pop(next(iter(self._watched)))
        return watched


async def _frames(watched: Watched) -> AsyncIterator[str]:
    """The newest picture, at most every `TICK_S` and whenever it changed, until the run is over."""
    sent, still_s, begun = None, 0.0, False
    while True:
        try:
            if not begun:
                yield _event("cluster", await run_in_threadpool(watched.cluster_document))
                begun = True
            document = await run_in_threadpool(watched.frame)
        except UserError as error:  # the log is damaged
            yield _event("over", {"error": str(error)})
            return
        if document is not sent:
            sent, still_s = document, 0.0
            yield _event("frame", document)
        elif (still_s := still_s + TICK_S) >= _STILL_S:
            still_s = 0.0
            yield ": still here\n\n"
        if document["status"] != "running":
            yield _event("over", {})
            return
        await asyncio.sleep(TICK_S)


def _event(name: str, document: Any) -> str:
    return f"event: {name}\ndata: {json.dumps(document, separators=(',', ':'))}\n\n"


async def _body(request: Request) -> dict[str, Any]:
    content = b""
    async for part in request.stream():
        content += part
        if len(content) > _LARGEST_BODY:
            raise UserError("too long")
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        raise UserError("the settings must be JSON") from None
    if not isinstance(document, dict):
        raise UserError("the settings must be a JSON object")
    return document


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not isfinite(value):
        raise UserError("t: must be a number of seconds")
    return value


def _packaged(name: str) -> str:
    return read_text(_PAGE_FOLDER / name, MAX_BYTES)


def _refused(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, status_code=404 if request.method == "GET" else 400)
