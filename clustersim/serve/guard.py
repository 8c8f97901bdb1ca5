"""Access to the server: for browsers on this machine that know its token."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

__all__ = ["COOKIE", "ENTER", "Guard"]

COOKIE = "clustersim"
"""The name of the cookie, before the port: servers of one host share the browser's cookies."""
ENTER = "/enter"
"""The only path that needs no cookie: it gives one for the token."""
_POLICY = (
    b"default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_HEADERS = {
    b"content-security-policy": _POLICY,
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"cache-control": b"no-store",
}

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


class Guard:
    """Answers 403 unless a request names this host and port and has the cookie, and has the page's own origin
    if it changes something. `ENTER` with the token sets the cookie, for the life of the server.

    The name of the host is checked because another site's name may be made to point to 127.0.0.1. Every
    answer gets headers that forbid foreign scripts, frames and copies; one with its own policy keeps it.
    """

    def __init__(self, app: App, token: str, port: int):
        self._app, self._token, self._session = app, token, secrets.token_urlsafe(32)
        self._cookie = f"{COOKIE}-{port}"
        self._hosts = tuple(f"{name}:{port}".encode() for name in ("127.0.0.1", "localhost"))

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # a connection that was never accepted is closed
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"")
        if host not in self._hosts:
            await _answer(send, 403, b"forbidden: wrong host")
        elif scope["path"] == ENTER and scope["method"] == "GET":
            await self._enter(scope, send)
        elif not self._knows(headers):
            await _answer(send, 403, b"forbidden: open the address that clustersim serve printed")
        elif scope["method"] not in ("GET", "HEAD") and headers.get(b"origin") != b"http://" + host:
            await _answer(send, 403, b"forbidden: wrong origin")
        else:
            await self._app(scope, receive, _with_headers(send))

    async def _enter(self, scope: Message, send: Send) -> None:
        query = parse_qs(scope["query_string"].decode("latin-1"))
        token = query.get("token", [""])[0]
        if not secrets.compare_digest(token.encode(), self._token.encode()):
            await _answer(send, 403, b"forbidden: wrong token")
            return
        cookie = f"{self._cookie}={self._session}; HttpOnly; SameSite=Strict; Path=/".encode()
        await _answer(send, 303, b"", [(b"location", b"/"), (b"set-cookie", cookie)])

    def _knows(self, headers: dict[bytes, bytes]) -> bool:
        cookies: SimpleCookie = SimpleCookie()
        try:
            cookies.load(headers.get(b"cookie", b"").decode("latin-1"))
        except CookieError:
            return False
        cookie = cookies[self._cookie].value if self._cookie in cookies else ""
        return secrets.compare_digest(cookie.encode(), self._session.encode())


async def _answer(
    send: Send, status: int, text: bytes, headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    own = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(text)).encode())]
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [*own, *_HEADERS.items(), *(headers or [])],
        }
    )
    await send({"type": "http.response.body", "body": text})


def _with_headers(send: Send) -> Send:
    async def with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            header_names = {name for name, _ in message["headers"]}
            message["headers"] = [
                *message["headers"],
                *((name, value) for name, value in _HEADERS.items() if name not in header_names),
            ]
        await send(message)

    return with_headers
