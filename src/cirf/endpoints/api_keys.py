"""API keys of servers from environment variables. A recipe may be a stranger's, so it cannot name any variable."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from cirf.errors import CirfError
from cirf.recipe import schema

_NAMED_LIKE_ONE = re.compile(r"(^|_)API_?(KEY|TOKEN)(?![A-Z])")

_allowed: set[str] = set()


def allow(names: Iterable[str]) -> None:
    """Let recipes send these environment variables from here on, whatever their names."""
    _allowed.clear()
    _allowed.update(names)


def check(endpoint: schema.Endpoint) -> None:
    """``CirfError`` if a recipe may not send the variable that it names, or not to that server. The variable is not read."""
    name = endpoint.api_key_env
    if name is None:
        return
    if name not in _allowed and not _NAMED_LIKE_ONE.search(name.upper()):
        raise CirfError(
            f"{endpoint.url}: the recipe would send the environment variable {name}, which is not named like an API key "
            f"(..._API_KEY); if that is meant, add --allow-env {name}"
        )
    try:
        where = urlsplit(endpoint.url)
        host = where.hostname or ""
    except ValueError as error:
        raise CirfError(f"{endpoint.url}: not a URL ({error})") from None
    if where.scheme.lower() != "https" and not endpoint.allow_http and not _is_this_machine(host):
        raise CirfError(
            f"{endpoint.url}: the API key in {name} would be sent unencrypted; use https, or add allow_http: true to the endpoint"
        )


def read(endpoint: schema.Endpoint) -> str | None:
    """The API key of an endpoint that wants one. ``CirfError`` as `check`, or where the variable holds none."""
    check(endpoint)
    if endpoint.api_key_env is None:
        return None
    key = os.environ.get(endpoint.api_key_env, "").strip()
    if not key.isascii() or not key.isprintable():
        raise CirfError(f"{endpoint.url}: the environment variable {endpoint.api_key_env} has characters that no API key has")
    if not key:
        raise CirfError(f"{endpoint.url}: the environment variable {endpoint.api_key_env} is not set; put the API key there")
    return key


def asked_by(section: schema.Recipe) -> list[schema.Endpoint]:
    """The servers that a run of this recipe may use. ``CirfError`` as `check`."""
    found: list[schema.Endpoint] = []
    if section.rationales.source == "teacher":
        found += section.rationales.teacher.endpoints
    found += section.results.writer.endpoints
    found += section.evaluate.endpoints.values()
    away = [endpoint for endpoint in found if endpoint.url != schema.LOCAL]
    for endpoint in away:
        check(endpoint)
    return list(dict.fromkeys(away))


def describe(endpoint: schema.Endpoint) -> str:
    """The server, and the data sent to it besides questions, in one line."""
    key = f"the API key in {endpoint.api_key_env}" if endpoint.api_key_env else "no API key"
    return f"{endpoint.url}: requests for {endpoint.model}, with {key}"


def _is_this_machine(host: str) -> bool:
    try:
        return host.casefold() == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
