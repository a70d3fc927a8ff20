"""The uvicorn server of an address, with a time limit for slow clients."""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
import sys
from collections.abc import Callable
from typing import Any

from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from cirf.errors import CirfError
from cirf.serving.http.limits import Limits

_QUEUE = 2048
"""Connections that wait in the kernel until they are accepted."""
_OWN = 64
"""Open files that are not connections: the model's, the log's, the libraries'."""


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
        raise CirfError(
            f"{host}, port {port}: cannot be used ({error.strerror or error}); give another --host or --port"
        ) from None
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
            asyncio.get_running_loop().set_exception_handler(_report_once())
            await super().startup(sockets)
            for bound in sockets or ():
                bound.listen(_QUEUE)  # asyncio takes the backlog for the number to accept at once as well
            ready()

    return Ready(config)


def _connections(limits: Limits) -> tuple[int, int]:
    """The most connections, and how many to accept at once: twice ``limits.requests``, or as many as this process may open files.

    Those being accepted and those being closed are open besides, hence the room for several times as many as are accepted.
    """
    most, (files, _) = 2 * limits.requests, resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return most, 128
    at_once = max(1, min(128, files // 32))
    room = files - _OWN - 4 * at_once
    if room < 8:
        raise CirfError(f"only {files} files may be open at once, too few to serve; raise the limit with ulimit -n 1024")
    return min(most, room), at_once


def _report_once() -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    """An exception handler that reports in one line, once, that no more files can be opened: asyncio reports it for every
    connection that it cannot accept."""
    answered = False

    def report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal answered
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
            loop.default_exception_handler(context)
        elif not answered:
            answered = True
            print(f"connections wait: {error.strerror} (said once)", file=sys.stderr)

    return report


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
