"""One call to one OpenAI-compatible server, and what its failure means: not now, not this question, or not ever."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from cirf import recipe
from cirf.errors import CirfError
from cirf.rationales.requests import Answer, Request
from cirf.rationales.transport import Elsewhere, TooLong, guard

_TRANSIENT = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
_HOPELESS = frozenset({401, 402, 403, 404, 405})
_NO_SCHEMA = frozenset({404, 501})  # what some servers say to a response format they do not know
_DOUBTS = 3
_TELLING = 8  # signs of a key in a row that are not to be shown
_SHOWN = 160  # signs of a server's own words


class Later(Exception):
    """Not now: ask again, after ``seconds`` if the server said so."""

    def __init__(self, why: str, seconds: float | None = None) -> None:
        super().__init__(why)
        self.seconds = seconds


class Refused(Exception):
    """This question is not answered by this server, whenever it is asked."""


@dataclass(slots=True)
class Connection:
    """An open client of one endpoint.

    ``structured``: whether it may be able to hold a model to a JSON schema; ``held``: whether it has; ``doubts``: how often it
    broke (500) over a request with one before it ever had.
    """

    url: str
    client: Any
    key: str | None = None
    structured: bool = True
    held: bool = False
    doubts: int = 0

    def without_key(self, text: str) -> str:
        """A text that may be shown: servers and the transport repeat the key in their complaints, whole or cut short."""
        if not self.key:
            return text
        for length in range(len(self.key), min(_TELLING, len(self.key)) - 1, -1):
            text = text.replace(self.key[:length], "***").replace(self.key[-length:], "***")
        return text

    def said(self, body: Any) -> str:
        """The server's own words in a response, or in a body that is none of what was asked for: short, in brackets."""
        try:
            words = _words(body) if isinstance(body, Mapping) else _words(body.json())
        except (ValueError, AttributeError, RecursionError):
            plain = str(getattr(body, "headers", {}).get("content-type", "")).startswith("text/plain")
            words = " ".join(str(body.text).split()) if plain else ""
        return f" ({self.without_key(words)[:_SHOWN]})" if words else ""


@contextlib.asynccontextmanager
async def connect(endpoint: recipe.Endpoint, timeout: float) -> AsyncIterator[Connection]:
    """A client of an endpoint while the context lasts; ``CirfError`` if its key is not there, or nobody may be asked."""
    from huggingface_hub import AsyncInferenceClient, constants

    try:
        _ = urlsplit(endpoint.url).port
    except ValueError as error:
        raise CirfError(f"{endpoint.url}: not a URL that can be asked ({error})") from None
    if constants.HF_HUB_OFFLINE:
        raise CirfError(f"{endpoint.url}: HF_HUB_OFFLINE is set, which keeps the client from asking anyone; set it to 0")
    key = "none"  # never the hub's own token, which the client would send to anyone's server
    if endpoint.key_env is not None:
        key = os.environ.get(endpoint.key_env, "").strip()
        if not key.isascii() or not key.isprintable():
            raise CirfError(f"{endpoint.url}: the environment variable {endpoint.key_env} holds signs that no API key has")
        if not key:
            raise CirfError(f"{endpoint.url}: the environment variable {endpoint.key_env} is not set; put the API key there")
    async with AsyncInferenceClient(base_url=endpoint.url, api_key=key, timeout=timeout) as client:
        await guard(client)
        yield Connection(endpoint.url, client, key if endpoint.key_env is not None else None)


class _AsItIs(dict[str, Any]):
    """A response format that goes out as OpenAI has it: the client would rewrite it into the form of one other server."""

    def get(self, key: str, default: Any = None) -> Any:
        """Nothing, which is how the client asks for the type."""
        return default


async def call(server: Connection, request: Request) -> Answer:
    """One call; ``Later`` or ``Refused`` where it brings no answer, ``CirfError`` where no call ever will."""
    from huggingface_hub.errors import HfHubHTTPError, InferenceTimeoutError

    how: dict[str, Any] = {}
    if request.schema is not None and server.structured:
        schema = {"name": "answer", "schema": json.loads(request.schema), "strict": True}
        how["response_format"] = _AsItIs(type="json_schema", json_schema=schema)
    try:
        made = await server.client.chat_completion(
            request.chat(),
            model=request.model,
            temperature=request.temperature,
            top_p=request.top_p,
            max_tokens=request.max_tokens,
            seed=request.seed,
            **how,
        )
        if not made.choices and isinstance(made, Mapping) and "error" in made:
            raise Later(f"no answer{server.said(made)}")
        choice = made.choices[0]
        text, finish = _text(choice.message.content), str(choice.finish_reason or "stop")
        tokens = made.usage.completion_tokens if getattr(made, "usage", None) is not None else None
        server.held |= bool(how)
        return Answer(writable(text), finish, tokens if isinstance(tokens, int) else None)
    except (InferenceTimeoutError, TimeoutError):
        raise Later("no answer in time") from None
    except TooLong as error:
        raise Later(str(error)) from None
    except Elsewhere as error:
        there = server.without_key(str(error))[:_SHOWN]
        raise CirfError(f"{server.url}: it redirects to {there}; if that is the server to ask, name it") from None
    except HfHubHTTPError as error:
        status, said = error.response.status_code, server.said(error.response)
        if how and not server.held and status == 500:
            server.doubts += 1
        if how and not server.held and (status in _NO_SCHEMA or (status == 500 and server.doubts >= _DOUBTS)):
            return await _without_schema(server, request)
        if status in _TRANSIENT or status >= 500:
            raise Later(f"HTTP {status}{said}", retry_after(error.response.headers)) from None
        if status in _HOPELESS:
            raise CirfError(f"{server.url}: HTTP {status}{said}; look at the endpoint's url, model and key") from None
        if how:  # perhaps it is the schema that it does not know
            return await _without_schema(server, request)
        raise Refused(f"HTTP {status}{said}") from None
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        raise Later("a body that is no answer") from None
    except OSError as error:
        raise Later(f"{type(error).__name__}: {server.without_key(str(error))[:100]}") from None
    except Exception as error:
        if type(error).__module__.partition(".")[0].startswith("httpx"):  # the client's transport, whatever its name now
            raise Later(f"{type(error).__name__}: {server.without_key(str(error))[:100]}".rstrip(": ")) from None
        raise


async def _without_schema(server: Connection, request: Request) -> Answer:
    """The same question with nothing said of the answer's form; where that works, no schema is sent there again."""
    answer = await call(server, dataclasses.replace(request, schema=None))
    server.structured = False
    return answer


def _text(content: Any) -> str:
    """The text of a message: as it is, its parts put together, or none at all. ``TypeError`` for what is no message's."""
    if isinstance(content, list):
        return "".join(part["text"] for part in content if part.get("type") == "text")
    if content is not None and not isinstance(content, str):
        raise TypeError("a message without text")
    return content or ""


def writable(text: str) -> str:
    """The text without halves of surrogate pairs, which an answer cut off inside an emoji may end in."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _words(told: Any) -> str:
    """A server's own words, out of an error object or whatever stands in its place."""
    told = told.get("error", told) if isinstance(told, Mapping) else told
    return " ".join(str(told.get("message", told) if isinstance(told, Mapping) else told).split())


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait by a ``Retry-After`` header, a number or a date; ``None`` where there is none that can be read."""
    told = headers.get("retry-after", "")
    try:
        seconds = float(told)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(told).timestamp() - time.time()
        except (ValueError, TypeError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
