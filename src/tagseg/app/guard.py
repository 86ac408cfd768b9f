"""What is let through to the page: requests of this page and of programs, small enough, with the password.

Gradio brings many routes that this page does not use: uploads of any file, a proxy, downloads of URLs, editing of its
own source. Only the routes below are let through.
"""

import asyncio
import re
from base64 import b64decode
from binascii import Error as InvalidBase64
from collections.abc import Awaitable, Callable, MutableMapping
from hmac import compare_digest
from ipaddress import ip_address
from typing import Any
from urllib.parse import unquote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, Response

MAX_UPLOAD_BYTES = 32 * 2**20  # of an image
MAX_EVENT_BYTES = 2**20  # of an event of the page, and of a form besides its image
PREDICT_ROUTE = "/predict"

_ROUTES = {
    # this page's own, then gradio's: its scripts and styles, its events, and the files that its components show
    "GET": r"/|/health|/queue/[\w-]+|/openapi\.json|/app/.+"
    r"|/assets/.+|/static/.+|/config/?|/theme\.css|/favicon\.ico"
    r"|/gradio_api/(info/?|startup-events|queue/data|heartbeat/\w+|file=(?!(?i:https?:)).+)",
    "POST": rf"{PREDICT_ROUTE}|/gradio_api/(queue/join/?|cancel|reset/?)",
}
_SECURITY_HEADERS = {
    # Inline scripts, styles and evaluation are gradio's. The browser refuses to load anything from elsewhere.
    "Content-Security-Policy": "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
    "base-uri 'self'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
_SECONDS_TO_DRAIN = 30.0

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


class Guard:
    """ASGI middleware around the whole page.

    Args:
        app: What it guards.
        password: Password that every request must have, as HTTP Basic under any name; None asks for none.
        is_local: Whether the page is served to this machine alone. A request must then name this machine: a page from
            elsewhere whose name resolves to 127.0.0.1 does not.
    """

    def __init__(self, app: ASGIApp, *, password: str | None, is_local: bool) -> None:
        self._app, self._password, self._is_local = app, password, is_local

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer a request, or let it through."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._guard(scope, receive, _with_security_headers(send))

    async def _guard(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if (refusal := self._refuse(scope)) is None:
            await self._app(scope, receive, send)
            return
        # A client that still sends its body reads the answer only when the body is accepted to its end.
        await refusal(scope, receive, _without_end(send))
        try:
            async with asyncio.timeout(_SECONDS_TO_DRAIN):
                while (message := await receive())["type"] == "http.request" and message.get("more_body", False):
                    pass
        except TimeoutError:
            pass
        await send({"type": "http.response.body", "body": b""})

    def _refuse(self, scope: MutableMapping[str, Any]) -> Response | None:
        headers = Headers(scope=scope)
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        host = headers.get("host", "")
        if self._is_local and not _is_this_machine(host):
            return _refusal(421, f"this page is not {host}; open it by its address 127.0.0.1")
        if self._password is not None and not _has_password(headers, self._password):
            return _refusal(401, "the password is missing or wrong", {"WWW-Authenticate": 'Basic realm="tagseg"'})
        if method not in _ROUTES:
            return _refusal(405, f"{method} is not used here", {"Allow": "GET, HEAD, POST"})
        path = unquote(scope["path"])
        if not re.fullmatch(_ROUTES[method], path):
            is_other_method = any(re.fullmatch(routes, path) for routes in _ROUTES.values())
            return _refusal(405 if is_other_method else 404, f"no {method} {path} here; see GET /openapi.json")
        if method == "POST":
            return _refuse_body(headers, host, MAX_EVENT_BYTES + (MAX_UPLOAD_BYTES if path == PREDICT_ROUTE else 0))
        return None


def _refuse_body(headers: Headers, host: str, limit: int) -> Response | None:
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != host:
        return _refusal(403, f"requests of other pages are refused, such as {origin}")
    length = headers.get("content-length", "")
    if not length.isdecimal():
        return _refusal(411, "the request does not say how long it is (Content-Length)")
    if int(length) > limit:
        return _refusal(413, f"the request has {int(length):,} bytes, more than {limit:,}; reduce the image")
    return None


def _is_this_machine(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False


def _has_password(headers: Headers, password: str) -> bool:
    scheme, _, encoded = headers.get("authorization", "").partition(" ")
    try:
        given = b64decode(encoded, validate=True).partition(b":")[2] if scheme.lower() == "basic" else b""
    except InvalidBase64:
        return False
    return compare_digest(given, password.encode())


def _refusal(status: int, detail: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"detail": detail}, status, {**(headers or {}), "Connection": "close"})


def _with_security_headers(send: Send) -> Send:
    async def send_message(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(_SECURITY_HEADERS)
        await send(message)

    return send_message


def _without_end(send: Send) -> Send:
    """Send a response without telling that it is complete."""

    async def send_message(message: Message) -> None:
        await send({**message, "more_body": True} if message["type"] == "http.response.body" else message)

    return send_message
