"""``serve``: a saved model on an OpenAI-compatible API, with a playground page."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
from dataclasses import replace

from cirf.commands.token_limits import TokenLimits
from cirf.errors import CirfError
from cirf.serving.limits import Limits

_NEEDED = ("fastapi", "uvicorn")
_SHORTEST_KEY = 16


def serve(
    named: tuple[str, str | None],
    token_limits: TokenLimits,
    host: str,
    port: int,
    api_key_env: str | None,
    limits: Limits,
    as_json: bool,
    trust: bool = False,
) -> None:
    """Serve until Ctrl-C or SIGTERM; with ``trust`` code that comes with the models may run.

    ``named``: a model, and another to compare it with. ``token_limits`` hold for all answers of the first.
    ``CirfError`` for an address, a key or a model that cannot be used.
    """
    if missing := [name for name in _NEEDED if importlib.util.find_spec(name) is None]:
        raise CirfError(f"cirf serve needs {' and '.join(missing)}: pip install 'cirf[serve]'")
    from cirf.endpoints.requests import is_loopback

    local = is_loopback(host)
    key = _key(api_key_env)
    if not local and key is None:
        raise CirfError(f"--host {host} can be reached from other machines: name a variable that holds a key with --api-key-env")
    from cirf.lm.decoding.trace_grammar import check_codes
    from cirf.serving.api import build
    from cirf.serving.model import load_served
    from cirf.serving.server import address, bind, make_server

    bound = bind(host, port)
    try:
        main = load_served(named[0], trust)
        if token_limits and main.names is None:
            raise CirfError("--forbid and --at-most limit functional tokens, but this model has none")
        how = token_limits.steering(main.functions)
        if main.names is not None:
            check_codes(how.codes, main.names)
        models = [replace(main, at_most=dict(how.at_most), together=how.together)]
        if named[1] is not None:
            other = load_served(named[1], trust)
            models.append(replace(other, name=f"{other.name}-compared") if other.name == main.name else other)

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
        raise CirfError(f"--api-key-env {variable}: no key, or a short one; set it to {_SHORTEST_KEY} characters or more")
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise CirfError(f"--api-key-env {variable}: a key must be printable ASCII without blanks; set another")
    return key
