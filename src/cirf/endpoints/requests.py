"""A question to a language model, its prompt from a text file (a shipped one, or a user's own), and its answer.

API keys of servers come from environment variables. A recipe may be a stranger's, so it cannot name any variable.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from cirf.errors import CirfError
from cirf.recipe import schema
from cirf.store.files import hash_json
from cirf.store.paths import user_path


@dataclass(frozen=True, slots=True)
class Request:
    """One question to one model; ``schema`` is the JSON schema of the answer, for servers that support it."""

    model: str
    messages: tuple[tuple[str, str], ...]
    seed: int
    temperature: float
    top_p: float
    max_tokens: int
    schema: str | None = None

    @property
    def key(self) -> str:
        """Hash of everything that decides the answer."""
        parts = (self.model, self.messages, self.seed, self.temperature, self.top_p, self.max_tokens, self.schema)
        return hash_json(list(parts))[:32]

    def chat(self) -> list[dict[str, str]]:
        """The conversation as servers want it."""
        return [{"role": role, "content": content} for role, content in self.messages]


@dataclass(frozen=True, slots=True)
class Answer:
    """A response: ``finish`` as of `finish_of`; ``tokens`` as the server counts, if it does; ``reasoning`` is the server's
    separate reasoning."""

    text: str
    finish: str
    tokens: int | None
    reasoning: str = ""


_CAPPED = re.compile(r"length|limit|max|window|incomplete|not_?finished|truncat|budget|time_?out|timed_?out")
_FILTERED = re.compile(
    r"filter|safety|recitation|prohibit|block|spii|sensitive|guardrail|refus|moderat|violat|error|abort|cancel|malformed|"
    r"insufficient|fail|interrupt|(?:language|other)$"
)
"""What servers' many words for an answer that is not whole have in common; other words are those of a finished one."""


def finish_of(reason: str | None, tokens: int | None, cap: int | None) -> str:
    """Why an answer ends, in a uniform word: ``length`` (truncated), ``filtered`` (stopped by a filter or an
    error), ``cap`` (said to be finished, but with as many ``tokens`` as the ``cap`` that was sent), else the server's own.
    """
    word = re.sub(r"[\s-]", "_", (reason or "stop").rpartition(".")[2].casefold()).removeprefix("finish_reason_")
    if _CAPPED.search(word):
        return "length"
    if _FILTERED.search(word):
        return "filtered"
    return "cap" if cap is not None and tokens is not None and tokens >= cap else word


SHIPPED = Path(__file__).with_name("prompts")
"""The prompts that come with the package."""


def read_template(path: str | None, shipped: str, names: tuple[str, ...], where: str) -> str:
    """The text of a prompt: the file at ``path``, or the shipped one of that name. ``CirfError`` names the key ``where``, if the
    file cannot be read, or lacks one of ``names`` as ``{name}``."""
    file = SHIPPED / f"{shipped}.txt" if path is None else user_path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise CirfError(f"{where}: {file} cannot be read ({why}); name a text file with the prompt") from None
    missing = [name for name in names if f"{{{name}}}" not in text]
    if missing:
        raise CirfError(f"{where}: {file} lacks the place of the {missing[0]}; write {{{missing[0]}}} there")
    return text


def fill(template: str, values: Mapping[str, str]) -> str:
    """The template with every ``{name}`` of ``values`` replaced, once: values are not changed."""
    return re.sub(r"\{(" + "|".join(values) + r")\}", lambda found: values[found[1]], template)


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
    if where.scheme.lower() != "https" and not endpoint.allow_http and not is_loopback(host):
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
    return list({describe(endpoint): endpoint for endpoint in away}.values())


def describe(endpoint: schema.Endpoint) -> str:
    """The server, and the data sent to it besides questions, in one line."""
    key = f"the API key in {endpoint.api_key_env}" if endpoint.api_key_env else "no API key"
    return f"{endpoint.url}: requests for {endpoint.model}, with {key}"


def is_loopback(host: str) -> bool:
    """Whether a name or address can be reached from this machine alone."""
    try:
        return host.casefold() == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
