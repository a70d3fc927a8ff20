"""A server in a thread of its own, on a free port, and a model that can be held while it answers."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http.client import HTTPConnection
from typing import Any

from openai import DefaultHttpxClient, OpenAI

from cirf.serving.api import build
from cirf.serving.limits import Limits
from cirf.serving.model import ServedModel
from cirf.serving.server import address, bind, make_server

PATIENCE = 60.0
_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # never used; a client that makes its own reads all certificates


class Running:
    """The running server."""

    def __init__(self, models: Sequence[ServedModel], key: str | None = None, local: bool = True, **limits: Any) -> None:
        self.socket = bind("127.0.0.1", 0)
        self.url, self.key = address(self.socket), key
        ready = threading.Event()
        bounds = Limits(**limits)
        self.server = make_server(build(models, bounds, key, local), bounds, ready.set)
        self._thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.socket]})
        self._thread.start()
        assert ready.wait(PATIENCE)

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop as a signal would, and wait for the end."""
        self.server.should_exit = True
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        self.socket.close()

    def client(self, **more: Any) -> OpenAI:
        """OpenAI's client, to be closed."""
        http = DefaultHttpxClient(verify=_TLS)
        key = self.key or "none"
        return OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0, timeout=PATIENCE, http_client=http, **more)

    def send(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """One request by hand: a dict is sent as JSON, bytes as they are."""
        summary = headers or {}
        if isinstance(body, dict):
            body, summary = json.dumps(body).encode(), {"Content-Type": "application/json"} | summary
        connection = HTTPConnection(self.url.removeprefix("http://"), timeout=PATIENCE)
        try:
            connection.request(method, path, body, summary)
            response = connection.getresponse()
            return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
        finally:
            connection.close()

    def chat(self, body: dict[str, Any], **headers: str) -> tuple[int, dict[str, str], Any]:
        """A chat completion by hand."""
        status, summary, text = self.send("POST", "/v1/chat/completions", body, headers)
        return status, summary, json.loads(text)

    def connect(self) -> socket.socket:
        """A bare connection."""
        return socket.create_connection(self.socket.getsockname(), timeout=PATIENCE)

    @property
    def health(self) -> dict[str, Any]:
        """What the server says of itself."""
        found: dict[str, Any] = json.loads(self.send("GET", "/health")[2])
        return found

    def until(self, **counts: int) -> None:
        """Wait until so many answers wait or run."""
        wait_for(lambda: {name: self.health[name] for name in counts} == counts)


def wait_for(reached: Callable[[], bool]) -> None:
    """Until something is so."""
    deadline = time.monotonic() + PATIENCE
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Gate:
    """Lets a model take so many steps and no more; ``steps`` counts them."""

    def __init__(self) -> None:
        self.steps, self._allowed, self._changed = 0, 0, threading.Condition()

    def allow(self, steps: int) -> None:
        """Let it take so many more."""
        with self._changed:
            self._allowed += steps
            self._changed.notify_all()

    def __call__(self, *_: Any) -> None:
        """One step of the model."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.steps < self._allowed, PATIENCE)
            self.steps += 1


@contextlib.contextmanager
def held(served: ServedModel, steps: int = 0) -> Iterator[Gate]:
    """The model waits before every step until it is allowed to take it; free again at the end."""
    gate = Gate()
    gate.allow(steps)
    hook = served.model.register_forward_pre_hook(gate)
    try:
        yield gate
    finally:
        hook.remove()
        gate.allow(10**9)


def question(text: str, **more: Any) -> dict[str, Any]:
    """What is asked of the model of traces."""
    return {"model": "traces", "messages": [{"role": "user", "content": text}]} | more
