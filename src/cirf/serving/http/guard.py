"""Checks before every request: keys, origins, sizes and times."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from cirf.serving.http.limits import Limits
from cirf.serving.http.refusals import Refusal

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

_log = logging.getLogger(__name__)
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
_DRAINED = 32  # times the limit of a body that are read and discarded, so that the client can read the error


def is_loopback(host: str) -> bool:
    """Whether a name or address can be reached from this machine alone."""
    if host.casefold() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Guard:
    """Wraps an ASGI application.

    ``key``: what must be given as bearer token below ``/v1/``, compared in constant time; ``None``: nothing. ``local``: the
    server is bound to this machine alone, and answers only to this machine's names, to prevent DNS rebinding. Pages of other
    origins are refused in any case. Bodies are read here, within the limits.
    """

    def __init__(self, app: App, limits: Limits, key: str | None, local: bool) -> None:
        self._app, self._limits, self._local = app, limits, local
        self._key = None if key is None else key.encode()
        self._open = 0

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Let a request through, or refuse it."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        self._open += 1
        try:
            try:
                given = await self._admit(scope, receive)
            except Refusal:
                raise
            except Exception:  # unexpected, and the application's own handler is not active yet
                _log.exception("a request could not be looked at")
                raise Refusal(500, "the server could not answer; its log says more", "internal_error") from None
            if given is not None:
                await self._app(scope, _replay(given, receive), sending)
        except Refusal as refusal:
            await refuse(refusal, sending)
        finally:
            self._open -= 1

    async def _admit(self, scope: MutableMapping[str, Any], receive: Receive) -> bytes | None:
        """The body of an accepted request; ``None`` if its client disconnected. `Refusal` for any other."""
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        host = _host(headers.get(b"host", ""))
        if self._open > self._limits.requests:
            raise Refusal(503, "too many requests are open; try again later", "overloaded", after=2)
        if self._local and not (host and is_loopback(host)):
            raise Refusal(403, "this server answers at localhost and 127.0.0.1 alone", "host_not_allowed")
        origin = headers.get(b"origin")
        if origin is not None and _netloc(origin) != headers.get(b"host", "").casefold():
            raise Refusal(403, "pages of other origins may not ask this server", "origin_not_allowed")
        if self._key is not None and scope["path"].startswith("/v1/"):
            kind, _, token = headers.get(b"authorization", "").partition(" ")
            if not (hmac.compare_digest(token.strip().encode("latin-1"), self._key) and kind.casefold() == "bearer"):
                raise Refusal(401, "a key is needed: Authorization: Bearer KEY", "invalid_api_key")
        try:
            async with asyncio.timeout(self._limits.slow):
                body = await self._body(receive)
        except TimeoutError:
            raise Refusal(408, f"the request was not sent within {self._limits.slow:g} seconds", "request_timeout") from None
        if body and headers.get(b"content-type", "").partition(";")[0].strip().casefold() != "application/json":
            raise Refusal(415, "send JSON, and say so: Content-Type: application/json", "unsupported_media_type")
        return body

    async def _body(self, receive: Receive) -> bytes | None:
        body, size = bytearray(), 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            piece = message.get("body", b"")
            size += len(piece)
            more = message.get("more_body", False)
            if size <= self._limits.body:
                body += piece
            elif not more or size > _DRAINED * self._limits.body:
                raise Refusal(413, f"a request may have {self._limits.body} bytes; send less", "request_too_large")
            if not more:
                return bytes(body)


async def refuse(refusal: Refusal, send: Send) -> None:
    """Send a refusal and close the connection: the rest of the request is not read."""
    body = json.dumps(refusal.body).encode()
    summary = {"Content-Type": "application/json", "Content-Length": str(len(body)), "Connection": "close", **refusal.headers}
    headers = [(name.lower().encode(), value.encode()) for name, value in summary.items()]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _host(header: str) -> str:
    """The name or address in a Host header, without port and brackets; empty if it is malformed."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def _netloc(origin: str) -> str | None:
    """Name and port in an Origin header; ``None`` if it is malformed, which is no origin of ours."""
    try:
        return urlsplit(origin).netloc.casefold()
    except ValueError:
        return None


def _replay(body: bytes, receive: Receive) -> Receive:
    """The application's input: the body that was read, then all later events."""
    answered = False

    async def receiving() -> Message:
        nonlocal answered
        if not answered:
            answered = True
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return receiving
