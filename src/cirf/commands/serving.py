"""``serve``: a saved model behind an API that OpenAI's clients know, with a page to try it on."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
from dataclasses import replace

from cirf.errors import CirfError
from cirf.serving.limits import Limits

_NEEDED = ("fastapi", "uvicorn")
_SHORTEST_KEY = 16


def serve(
    model: str,
    beside: str | None,
    host: str,
    port: int,
    key_env: str | None,
    limits: Limits,
    as_json: bool,
    trust: bool = False,
    int8: bool | None = None,
) -> None:
    """Serve until Ctrl-C or SIGTERM; with ``trust`` code that comes with the models may run.

    ``int8``: see `load_served`. ``CirfError`` for an address, a key or a model that cannot be used.
    """
    if missing := [name for name in _NEEDED if importlib.util.find_spec(name) is None]:
        raise CirfError(f"cirf serve needs {' and '.join(missing)}: pip install 'cirf[server]'")
    from cirf.serving.guard import is_loopback

    local = is_loopback(host)
    key = _key(key_env)
    if not local and key is None:
        raise CirfError(f"--host {host} can be reached from other machines: name a variable that holds a key with --key-env")
    from cirf.serving.api import build
    from cirf.serving.model import load_served
    from cirf.serving.server import address, bind, make_server

    bound = bind(host, port)
    try:
        main = load_served(model, trust, int8)
        models = [main]
        if beside is not None:
            other = load_served(beside, trust, int8)
            models.append(replace(other, name=f"{other.name}-beside") if other.name == main.name else other)

        def ready() -> None:
            url, names = address(bound), [served.name for served in models]
            if as_json:
                print(json.dumps({"url": url, "models": names, "key": key is not None}), flush=True)
            print(f"{' and '.join(names)} at {url} (a page to try; API at {url}/v1); Ctrl-C stops", file=sys.stderr, flush=True)

        before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # it ends as Ctrl-C does
        try:
            make_server(build(models, limits, key, local), limits, ready).run(sockets=[bound])
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr)
        finally:
            signal.signal(signal.SIGTERM, before)
    finally:
        bound.close()


def _key(variable: str | None) -> str | None:
    """The key in an environment variable; ``None`` where none is named."""
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if len(key) < _SHORTEST_KEY:
        raise CirfError(f"--key-env {variable}: no key, or too short a one; put {_SHORTEST_KEY} characters or more there")
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise CirfError(f"--key-env {variable}: a key has printable ASCII characters and no blanks; put another there")
    return key
