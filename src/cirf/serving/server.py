"""The uvicorn server of an address: checks before every request (keys, origins, sizes and times), a time limit for slow clients,
and refusals in the form of OpenAI's API."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import resource
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from cirf.endpoints.requests import is_loopback
from cirf.errors import CirfError
from cirf.serving.limits import Limits

_REFUSABLE = 128
"""Connections beyond those of accepted requests, to refuse further ones with an answer."""
_QUEUE = 2048
"""Connections that wait in the kernel until they are accepted."""


def bind(host: str, port: int) -> socket.socket:
    """A socket at that address, not yet listened at; port 0 takes a free one. ``CirfError`` if it cannot be bound."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind, protocol)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(address)
        except OSError:
            made.close()
            raise
    except OSError as error:
        raise CirfError(f"{host}, port {port}: cannot bind ({error.strerror or error}); give another --host or --port") from None
    return made


def address(bound: socket.socket) -> str:
    """The address of a bound socket, for a browser."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def make_server(app: Any, limits: Limits, ready: Callable[[], None] = lambda: None) -> Server:
    """A server whose ``run(sockets=[bound])`` answers until a signal comes (Ctrl-C, SIGTERM) or ``should_exit`` is set, and then
    finishes what is being answered. ``ready`` is called once requests are taken. Requests are not logged.
    """
    most, at_once = _connections(limits)
    config = Config(
        app,
        http=_patient(limits, most),
        backlog=at_once,
        ws="none",
        lifespan="on",
        loop="asyncio",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=max(1, round(limits.drain)),
        h11_max_incomplete_event_size=32 * 1024,
    )

    class Ready(Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            for bound in sockets or ():
                bound.listen(_QUEUE)  # asyncio takes the backlog for the number to accept at once as well
            ready()

    return Ready(config)


def _connections(limits: Limits) -> tuple[int, int]:
    """The most connections, and how many to accept at once. Both stay well below the number of files that this process may open:
    asyncio reports every connection that it cannot accept."""
    most, (files, _) = limits.requests + _REFUSABLE, resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return most, _REFUSABLE
    return min(most, files // 2), max(1, min(_REFUSABLE, files // 16))


def _patient(limits: Limits, most: int) -> type[H11Protocol]:
    """The protocol of a connection. One without a whole request head, or whose client does not read the response, is
    closed after ``limits.slow`` seconds; more than ``most`` are not taken."""

    class Patient(H11Protocol):
        _head: asyncio.TimerHandle | None = None
        _stall: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > most:
                transport.abort()
                return
            self._expect()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._expect()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._stall = self.loop.call_later(limits.slow, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            _cancel(self._stall)

        def connection_lost(self, exc: Exception | None) -> None:
            _cancel(self._head)
            _cancel(self._stall)
            super().connection_lost(exc)

        def _expect(self) -> None:
            _cancel(self._head)
            self._head = self.loop.call_later(limits.slow, self._late)

        def _late(self) -> None:
            if self.cycle is None or self.cycle.response_complete:
                self.transport.abort()

    return Patient


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


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
                _log.exception("a request could not be checked")
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
        host = host_in(headers.get(b"host", ""))
        if self._open > self._limits.requests:
            raise Refusal(503, "too many open requests; try again later", "overloaded", after=2)
        if self._local and not (host and is_loopback(host)):
            raise Refusal(403, "this server answers only at localhost and 127.0.0.1", "host_not_allowed")
        origin = headers.get(b"origin")
        if origin is not None and _netloc(origin) != headers.get(b"host", "").casefold():
            raise Refusal(403, "requests from pages of another origin are refused", "origin_not_allowed")
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
            raise Refusal(415, "send JSON with Content-Type: application/json", "unsupported_media_type")
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
                raise Refusal(413, f"the request is larger than {self._limits.body} bytes; send less", "request_too_large")
            if not more:
                return bytes(body)


async def refuse(refusal: Refusal, send: Send) -> None:
    """Send a refusal and close the connection: the rest of the request is not read."""
    body = json.dumps(refusal.body).encode()
    summary = {"Content-Type": "application/json", "Content-Length": str(len(body)), "Connection": "close", **refusal.headers}
    headers = [(name.lower().encode(), value.encode()) for name, value in summary.items()]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def host_in(header: str) -> str:
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


_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}


class Refusal(Exception):
    """A refused request: its ``status``, the reason (a sentence for people, a ``code`` for programs), the invalid parameter, and
    seconds until a retry may succeed."""

    def __init__(self, status: int, message: str, code: str, param: str | None = None, after: int | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.param, self.after = status, message, code, param, after

    @property
    def body(self) -> dict[str, Any]:
        kind = _TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    @property
    def headers(self) -> dict[str, str]:
        challenge = {"WWW-Authenticate": "Bearer"} if self.status == 401 else {}
        return challenge | ({} if self.after is None else {"Retry-After": str(self.after)})
