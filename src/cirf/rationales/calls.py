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

from cirf import recipe
from cirf.errors import CirfError
from cirf.rationales.requests import Answer, Request

_TRANSIENT = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
_HOPELESS = frozenset({401, 402, 403, 404, 405})


class Later(Exception):
    """Not now: ask again, after ``seconds`` if the server said so."""

    def __init__(self, why: str, seconds: float | None = None) -> None:
        super().__init__(why)
        self.seconds = seconds


class Refused(Exception):
    """This question is not answered by this server, whenever it is asked."""


@dataclass(slots=True)
class Connection:
    """An open client of one endpoint; ``structured``: whether it may be able to hold a model to a JSON schema."""

    url: str
    client: Any
    key: str | None = None
    structured: bool = True

    def without_key(self, text: str) -> str:
        """A text that may be shown: servers and the transport repeat the key in their complaints."""
        return text.replace(self.key, "***") if self.key else text


@contextlib.asynccontextmanager
async def connect(endpoint: recipe.Endpoint, timeout: float) -> AsyncIterator[Connection]:
    """A client of an endpoint while the context lasts; ``CirfError`` if its key is not there, or nobody may be asked."""
    from huggingface_hub import AsyncInferenceClient, constants

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
        choice = made.choices[0]
        text = choice.message.content or ""  # none at all where a model spends its tokens on thoughts that are cut off
        if not isinstance(text, str):
            raise Later("a body that is no answer")
        tokens = made.usage.completion_tokens if getattr(made, "usage", None) is not None else None
        return Answer(writable(text), str(choice.finish_reason or "stop"), tokens if isinstance(tokens, int) else None)
    except (InferenceTimeoutError, TimeoutError):
        raise Later("no answer in time") from None
    except HfHubHTTPError as error:
        status, said = error.response.status_code, server.without_key(_said(error.response))
        if status in _TRANSIENT or status >= 500:
            raise Later(f"HTTP {status}{said}", retry_after(error.response.headers)) from None
        if status in _HOPELESS:
            raise CirfError(f"{server.url}: HTTP {status}{said}; look at the endpoint's url, model and key") from None
        if how:  # perhaps it is the schema that it does not know
            answer = await call(server, dataclasses.replace(request, schema=None))
            server.structured = False
            return answer
        raise Refused(f"HTTP {status}{said}") from None
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        raise Later("a body that is no answer") from None
    except OSError as error:
        raise Later(server.without_key(f"{type(error).__name__}: {str(error)[:100]}")) from None
    except Exception as error:
        if type(error).__module__.partition(".")[0].startswith("httpx"):  # the client's transport, whatever its name now
            raise Later(server.without_key(f"{type(error).__name__}: {str(error)[:100]}".rstrip(": "))) from None
        raise


def writable(text: str) -> str:
    """The text without halves of surrogate pairs, which an answer cut off inside an emoji may end in."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _said(response: Any) -> str:
    """The server's own words, short."""
    try:
        told = response.json()
        told = told.get("error", told) if isinstance(told, Mapping) else told
        words = str(told.get("message", told) if isinstance(told, Mapping) else told)
    except (ValueError, AttributeError, RecursionError):
        words = ""
    return f" ({' '.join(words.split())[:160]})" if words.strip() else ""


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
