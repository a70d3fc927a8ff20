"""From an address to a server on it: uvicorn, with patience for slow clients that ends."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from cirf.errors import CirfError
from cirf.serving.limits import Limits


def bind(host: str, port: int) -> socket.socket:
    """A socket at that address, not yet listened at; port 0 takes a free one. ``CirfError`` if it cannot be had."""
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
    finishes what is being answered. ``ready`` is called once requests are taken. Nothing of a request is logged.
    """
    config = Config(
        app,
        http=_patient(limits),
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
            ready()

    return Ready(config)


def _patient(limits: Limits) -> type[H11Protocol]:
    """The protocol of a connection. One without a whole request head, or whose client takes nothing of what is sent to it, is
    closed after ``limits.slow`` seconds; more than twice as many as ``limits.requests`` are not taken."""

    class Patient(H11Protocol):
        _head: asyncio.TimerHandle | None = None
        _stall: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > 2 * limits.requests:
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
