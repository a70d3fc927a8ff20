"""One call to one OpenAI-compatible server, and the kind of its failure: temporary, of this question, or permanent.

Limits on responses: no redirect to another server, and no more bytes than an answer can have.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import re
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from cirf.endpoints import requests
from cirf.endpoints.requests import Answer, Request, finish_of
from cirf.errors import CirfError
from cirf.recipe import schema as recipe

_TRANSIENT = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
_HOPELESS = frozenset({401, 402, 403, 404, 405})
_NO_SCHEMA = frozenset({404, 501})  # some servers' reply to an unknown response format
_DOUBTS = 3
_TELLING = 8  # consecutive characters of a key that must not be shown
_SHOWN = 160  # characters of a server's own message
_MOVED = "max_completion_tokens"  # the name of the cap for newer OpenAI models
_PARAMETERS = {
    "seed": re.compile(r"\b(?:random[_ -]?)?seed\b", re.IGNORECASE),
    "max_tokens": re.compile(r"\bmax[_ -]?tokens\b", re.IGNORECASE),
    "top_p": re.compile(r"\btop[_ -]?p\b", re.IGNORECASE),
    "temperature": re.compile(r"\btemperature\b", re.IGNORECASE),
}
"""Parameters that a server may reject. If it names both temperature and top_p, top_p is left out."""
_TOO_MUCH = re.compile(  # the value is at fault, or the question's length: leaving the parameter out would change the request
    r"context|too (?:large|long|many|high)|reduce|exceed|at most|maximum|minimum|above|below|less than|greater than|out of range|"
    r"must be (?:[<>=]|in\b|a\b|an\b|at\b|between|positive|strictly|non-?negative|within)",
    re.IGNORECASE,
)
_UNKNOWN = re.compile(
    r"support|implement|unknown|unexpected|unrecogni[sz]ed|invalid|not permitted|not allowed|extra", re.IGNORECASE
)


class RetryLater(Exception):
    """A temporary failure: retry, after ``seconds`` if the server said so."""

    def __init__(self, why: str, seconds: float | None = None) -> None:
        super().__init__(why)
        self.seconds = seconds


class RequestRefused(Exception):
    """This server never answers this question."""


@dataclass(slots=True)
class Connection:
    """An open client of one endpoint.

    ``structured``: whether it may support JSON schemas; ``held``: whether it did; ``doubts``: how often a request with one failed
    (500) before any succeeded. ``refuses``: the parameters that it rejects.
    """

    url: str
    client: Any
    key: str | None = None
    structured: bool = True
    held: bool = False
    doubts: int = 0
    refuses: frozenset[str] = frozenset()

    def without_key(self, text: str) -> str:
        """A text safe to show: servers and the transport repeat the key in error messages, whole or shortened."""
        if not self.key:
            return text
        for length in range(len(self.key), min(_TELLING, len(self.key)) - 1, -1):
            text = text.replace(self.key[:length], "***").replace(self.key[-length:], "***")
        return text

    def said(self, body: Any) -> str:
        """The server's own message in a response, or in an unexpected body: short, in brackets."""
        try:
            words = _words(body) if isinstance(body, Mapping) else _words(body.json())
        except (ValueError, AttributeError, RecursionError):
            plain = str(getattr(body, "headers", {}).get("content-type", "")).startswith("text/plain")
            words = " ".join(str(body.text).split()) if plain else ""
        return f" ({self.without_key(words)[:_SHOWN]})" if words else ""


def ready(endpoint: recipe.Endpoint) -> str | None:
    """The key of an endpoint; ``CirfError`` if it is missing, if no request is allowed, or if the URL cannot be one."""
    from huggingface_hub import constants

    try:
        _ = urlsplit(endpoint.url).port
    except ValueError as error:
        raise CirfError(f"{endpoint.url}: not a usable URL ({error})") from None
    if constants.HF_HUB_OFFLINE:
        raise CirfError(f"{endpoint.url}: HF_HUB_OFFLINE is set, which blocks all requests; set it to 0 for this command")
    return requests.read(endpoint)


@contextlib.asynccontextmanager
async def connect(endpoint: recipe.Endpoint, timeout: float) -> AsyncIterator[Connection]:
    """A client of an endpoint while the context lasts; ``CirfError`` as `ready`."""
    from huggingface_hub import AsyncInferenceClient

    key = ready(endpoint)
    async with AsyncInferenceClient(base_url=endpoint.url, api_key=key or "none", timeout=timeout) as client:
        # "none": without a key the client would send the hub's own token to anyone's server
        await guard(client)
        yield Connection(endpoint.url, client, key)


class _AsItIs(dict[str, Any]):
    """A response format sent in OpenAI's form: the client would convert it to another server's form."""

    def get(self, key: str, default: Any = None) -> Any:
        return default


async def call(server: Connection, request: Request, refused: frozenset[str] = frozenset()) -> Answer:
    """One call; ``RetryLater`` or ``RequestRefused`` without an answer, ``CirfError`` if no call can succeed.

    A parameter that the server rejects (``refused``: those so far) is left out, and the request repeated.
    """
    from huggingface_hub.errors import HfHubHTTPError, InferenceTimeoutError

    refused |= server.refuses
    sent, capped = _sent(request, refused)
    how: dict[str, Any] = {}
    if request.schema is not None and server.structured:
        schema = {"name": "answer", "schema": json.loads(request.schema), "strict": True}
        how["response_format"] = _AsItIs(type="json_schema", json_schema=schema)
    try:
        made = await server.client.chat_completion(request.chat(), model=request.model, **sent, **how)
        if not made.choices and isinstance(made, Mapping) and "error" in made:
            named = _not_taken(500, made, refused)
            if named is not None:
                return await call(server, request, refused | {named})
            raise RetryLater(f"no answer{server.said(made)}")
        answer = _answer(made, request.max_tokens if capped else None)
        server.held |= bool(how)
        server.refuses |= refused
        return answer
    except (InferenceTimeoutError, TimeoutError):
        raise RetryLater("no answer in time") from None
    except BodyTooLong as error:
        raise RetryLater(str(error)) from None
    except UnknownEncoding as error:
        raise CirfError(f"{server.url}: it sends compressed responses ({str(error)[:_SHOWN]}); turn that off") from None
    except Redirected as error:
        there = server.without_key(str(error))[:_SHOWN]
        raise CirfError(f"{server.url}: it redirects to {there}; if that is the right server, name it") from None
    except HfHubHTTPError as error:
        status, reason = error.response.status_code, server.said(error.response)
        named = _not_taken(status, error.response, refused)
        if named is not None:
            return await call(server, request, refused | {named})
        if how and not server.held and status == 500:
            server.doubts += 1
        if how and not server.held and (status in _NO_SCHEMA or (status == 500 and server.doubts >= _DOUBTS)):
            return await _without_schema(server, request)
        if status in _TRANSIENT or status >= 500:
            raise RetryLater(f"HTTP {status}{reason}", retry_after(error.response.headers)) from None
        if status in _HOPELESS:
            raise CirfError(f"{server.url}: HTTP {status}{reason}; check the endpoint's url, model and key") from None
        if how:  # perhaps it does not support the schema
            return await _without_schema(server, request)
        raise RequestRefused(f"HTTP {status}{reason}") from None
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        begins = " ".join(server.without_key(str(getattr(error, "doc", ""))[:_SHOWN]).split())[:40]  # a stream, a web page
        raise RetryLater(f"an invalid body{begins and f', which begins with {begins!r}'}") from None
    except OSError as error:
        raise RetryLater(f"{type(error).__name__}: {server.without_key(str(error))[:100]}") from None
    except Exception as error:
        if type(error).__module__.partition(".")[0].startswith("httpx"):  # the client's transport, whatever its name now
            raise RetryLater(f"{type(error).__name__}: {server.without_key(str(error))[:100]}".rstrip(": ")) from None
        raise


def _answer(made: Any, cap: int | None) -> Answer:
    """The answer in a server's response; ``cap``: its token limit, if one was sent."""
    choice = made.choices[0]
    refusal = getattr(choice.message, "refusal", None)
    text, reason = _text(choice.message.content), "refusal" if refusal else choice.finish_reason
    tokens = made.usage.completion_tokens if getattr(made, "usage", None) is not None else None
    tokens = tokens if isinstance(tokens, int) else None
    return Answer(writable(text), finish_of(reason and str(reason), tokens, cap), tokens, _reasoning(choice.message))


def _sent(request: Request, refused: frozenset[str]) -> tuple[dict[str, Any], bool]:
    """The parameters of a call without the refused ones, and whether a cap is among them."""
    values: dict[str, Any] = {"temperature": request.temperature, "top_p": request.top_p}
    values |= {"max_tokens": request.max_tokens, "seed": request.seed}
    sent = {name: value for name, value in values.items() if name not in refused}
    if "max_tokens" in refused and _MOVED not in refused:
        sent["extra_body"] = {_MOVED: request.max_tokens}
    return sent, "max_tokens" in sent or "extra_body" in sent


def _not_taken(status: int, response: Any, refused: frozenset[str]) -> str | None:
    """The parameter that a server's error message rejects; ``None`` if it names none that was sent."""
    if status in _HOPELESS or (status in _TRANSIENT and status != 500):
        return None
    try:
        words = json.dumps(response if isinstance(response, Mapping) else response.json(), ensure_ascii=False)
    except (ValueError, TypeError, RecursionError):
        words = str(getattr(response, "text", ""))
    if _TOO_MUCH.search(words) or (status >= 500 and not _UNKNOWN.search(words)):
        return None
    moved = "max_tokens" in refused and _MOVED not in refused and _MOVED in words
    return _MOVED if moved else _first_named(words, refused)


def _first_named(words: str, refused: frozenset[str]) -> str | None:
    places = {name: found.start() for name, pattern in _PARAMETERS.items() if (found := pattern.search(words))}
    if {"temperature", "top_p"} <= places.keys() - refused:
        del places["temperature"]
    return min(places.keys() - refused, key=places.__getitem__, default=None)


async def _without_schema(server: Connection, request: Request) -> Answer:
    """The same request without a schema; if that works, no schema is sent there again."""
    answer = await call(server, dataclasses.replace(request, schema=None))
    server.structured = False
    return answer


def _text(content: Any) -> str:
    """The text of a message: itself, its parts joined, or none. ``TypeError`` for anything else."""
    if isinstance(content, list):
        return "".join(part["text"] for part in content if part.get("type") == "text")
    if content is not None and not isinstance(content, str):
        raise TypeError("a message without text")
    return content or ""


def _reasoning(message: Any) -> str:
    """A message's reasoning: vLLM returns it under ``reasoning``, others under ``reasoning_content``."""
    texts = (getattr(message, name, None) for name in ("reasoning", "reasoning_content"))
    return next((writable(text) for text in texts if isinstance(text, str) and text), "")


def writable(text: str) -> str:
    """The text without half surrogate pairs, which may end an answer truncated inside an emoji."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _words(body: Any) -> str:
    """A server's own message, from an error object or its replacement."""
    body = body.get("error", body) if isinstance(body, Mapping) else body
    return " ".join(str(body.get("message", body) if isinstance(body, Mapping) else body).split())


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait by a ``Retry-After`` header, a number or a date; ``None`` without a readable one."""
    after = headers.get("retry-after", "")
    try:
        seconds = float(after)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(after).timestamp() - time.time()
        except (ValueError, TypeError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


LONGEST = 2**24
"""Bytes of a body; an answer of 100,000 tokens is not a tenth of it."""


class BodyTooLong(Exception):
    """A body that is longer than any answer."""


class UnknownEncoding(Exception):
    """A compressed body: it was not requested, and its size could not be bounded."""


class Redirected(Exception):
    """A redirect and its target."""


async def guard(client: Any) -> Any:
    """The client's own session, configured to follow no redirect and to limit bodies; entered with the client.

    Requests with it raise ``Redirected``, ``UnknownEncoding`` or ``BodyTooLong``.
    """
    from huggingface_hub import get_async_session  # a user's own, with proxies, if set

    if not hasattr(client, "_async_client"):
        raise CirfError("this version of huggingface-hub is not supported; install the one in constraints.txt")
    session = get_async_session()
    session.follow_redirects = False
    session.headers["Accept-Encoding"] = "identity"
    hooks = session.event_hooks
    session.event_hooks = {**hooks, "response": [_measured, *hooks.get("response", ())]}
    client._async_client = await client.exit_stack.enter_async_context(session)
    return session


async def _measured(response: Any) -> None:
    """Stop a response with too long a body before others read it, and a redirect at once."""
    if response.is_redirect:
        raise Redirected(response.headers.get("location", "nowhere"))
    encoding = response.headers.get("content-encoding", "identity")
    if encoding.strip().lower() not in ("", "identity"):
        raise UnknownEncoding(encoding)
    response.stream = _measuring(response.stream)


def _measuring(stream: Any) -> Any:
    kind = next(base for base in type(stream).__mro__ if base.__name__ == "AsyncByteStream")

    class Measured(kind):  # type: ignore[misc, valid-type]
        """The stream, up to a number of bytes."""

        async def __aiter__(self) -> AsyncIterator[bytes]:
            received = 0
            async for part in stream:
                received += len(part)
                if received > LONGEST:
                    raise BodyTooLong(f"a body of more than {LONGEST:,} bytes")
                yield part

        async def aclose(self) -> None:
            await stream.aclose()

    return Measured()
