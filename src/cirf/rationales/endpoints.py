"""Asking language models behind OpenAI-compatible endpoints: many questions, several servers, and every answer kept.

A question goes to any server that has its model. What a server refuses for the moment (429, 5xx, a time-out, a cut
connection, a body that is no answer) is asked again after a pause that doubles, with jitter; a server that names the
time to wait (``Retry-After``) is left alone so long. Where every server of a model only fails, asking ends.

An answer is on disk before its place is given to the next question, keyed by all that was asked, so a rerun asks only for
what is missing::

    {"key": "5f1c...", "model": "gemma-3-27b-it", "text": "Step 1: ...", "finish": "stop", "tokens": 131}
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import math
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any

from cirf import recipe
from cirf.errors import CirfError
from cirf.progress import SILENT, Advance, Progress
from cirf.store import RowLog, hash_json

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 60.0  # seconds
_TRANSIENT = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
_HOPELESS = frozenset({401, 402, 403, 404, 405})


@dataclass(frozen=True, slots=True)
class Request:
    """One question to one model; ``schema`` is the JSON schema of the answer, for servers that can hold a model to one."""

    model: str
    messages: tuple[tuple[str, str], ...]
    seed: int
    temperature: float
    top_p: float
    max_tokens: int
    schema: str | None = None

    @property
    def key(self) -> str:
        """Hash of all that decides the answer."""
        parts = (self.model, self.messages, self.seed, self.temperature, self.top_p, self.max_tokens, self.schema)
        return hash_json(list(parts))[:32]

    def chat(self) -> list[dict[str, str]]:
        """The conversation as servers want it."""
        return [{"role": role, "content": content} for role, content in self.messages]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: ``finish`` is ``stop`` or ``length`` (cut off at the cap); ``tokens`` as the server counts, if it does."""

    text: str
    finish: str
    tokens: int | None


class _Later(Exception):
    """Not now: ask again, after ``seconds`` if the server said so."""

    def __init__(self, why: str, seconds: float | None = None) -> None:
        super().__init__(why)
        self.seconds = seconds


class _Refused(Exception):
    """This question is not answered by this server, whenever it is asked."""


@dataclass(slots=True)
class _Server:
    """One endpoint at work.

    ``quiet_until`` is when it may be asked again; ``troubles`` counts its failures in a row, ``since`` is when they began: one
    that only fails is asked ever more rarely, so that it does not use up the retries of questions that others could answer.
    """

    section: recipe.Endpoint
    client: Any
    key: str | None = None
    structured: bool = True
    quiet_until: float = 0.0
    troubles: int = 0
    since: float = 0.0

    def failed(self, seconds: float | None, longest: float) -> None:
        """Leave it alone for as long as it says, and once all its places have failed for longer and longer."""
        if not self.troubles:
            self.since = time.monotonic()
        self.troubles += 1
        beyond = self.troubles - self.section.concurrency
        pause = 0.0 if beyond < 0 else min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(beyond, 30))
        if seconds is not None:
            pause = max(pause, min(seconds, longest))
        self.quiet_until = max(self.quiet_until, time.monotonic() + pause)

    async def ready(self, moment: float, chance: random.Random) -> None:
        """Wait until it may be asked, and at least to ``moment``; not all that wait for it go on at once."""
        while (pause := max(self.quiet_until, moment) - time.monotonic()) > 0:
            await asyncio.sleep(pause + 0.1 * pause * chance.random())

    def without_key(self, text: str) -> str:
        """A text that may be shown: servers and the transport repeat the key in their complaints."""
        return text.replace(self.key, "***") if self.key else text


@dataclass(slots=True)
class _State:
    """A round of asking: what is known, and what went wrong."""

    log: RowLog
    advance: Advance
    answers: dict[str, Answer] = field(default_factory=dict)
    tokens: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    given_up: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


def known_answers(log: RowLog) -> dict[str, Answer]:
    """The answers that a log holds, by the key of their request."""
    return {row["key"]: Answer(row["text"], row["finish"], row["tokens"]) for row in log.rows()}


def ask(
    requests: Sequence[Request],
    section: recipe.Asked,
    log: RowLog,
    progress: Progress = SILENT,
    title: str = "asking",
) -> tuple[dict[str, Answer], dict[str, str]]:
    """Have every request answered that ``log`` does not hold; returns the answers and the refusals, both by key.

    A refusal is a server's word that this very request can't be answered (too long a prompt); such a request is asked
    again by a rerun. A model whose ``url`` is ``local`` is loaded into this process, after which memory is free again.

    Raises:
        CirfError: no endpoint for a model, a server that refuses everybody (no key, no such model), or requests that are
            still unanswered after all retries; what was answered is kept.
    """
    known = known_answers(log)
    wanted = {request.key: request for request in requests}
    missing = {key: request for key, request in wanted.items() if key not in known}
    for model in sorted({request.model for request in missing.values()}):
        if not any(endpoint.model == model for endpoint in section.endpoints):
            raise CirfError(f"no endpoint serves {model}; add one to `endpoints`")
    if not missing:
        return {key: known[key] for key in wanted}, {}
    with progress.task(title, len(wanted), "answers", len(wanted) - len(missing)) as advance:
        state = _State(log, advance, known)
        for endpoint in section.endpoints:
            if endpoint.url == recipe.LOCAL:
                _answer_here([request for request in wanted.values() if request.model == endpoint.model], endpoint, state)
        rest = [request for key, request in missing.items() if key not in state.answers]
        if rest:
            asyncio.run(_ask(rest, section, state))
    if state.given_up and section.unanswered == "drop":
        state.refused |= state.given_up
    elif state.given_up:
        last = next(reversed(state.given_up.values()))
        raise CirfError(
            f"{len(state.given_up):,} of {len(wanted):,} requests were not answered after {section.retries} retries (the last: "
            f"{last}); the answers that came are kept: run the same command again for the others, "
            "or set unanswered: drop to go on without them"
        )
    return {key: state.answers[key] for key in wanted if key in state.answers}, state.refused


def _keep(state: _State, request: Request, answer: Answer) -> None:
    """Put an answer on disk, then count it."""
    row = {"key": request.key, "model": request.model, "text": answer.text, "finish": answer.finish, "tokens": answer.tokens}
    state.log.append(row)
    state.answers[request.key] = answer
    state.tokens += answer.tokens or 0
    _tell(state, 1)


def _tell(state: _State, done: int) -> None:
    """Show ``done`` more requests as settled."""
    troubles = sum(state.failures.values())
    last = f" ({next(reversed(state.failures))})" if state.failures and not state.answers else ""
    state.advance(done, f"{state.tokens:,} tokens · {troubles:,} failed{last}")


async def _ask(requests: Sequence[Request], section: recipe.Asked, state: _State) -> None:
    async with contextlib.AsyncExitStack() as stack:
        away = [endpoint for endpoint in section.endpoints if endpoint.url != recipe.LOCAL]
        servers = [await stack.enter_async_context(_open(endpoint, section.timeout)) for endpoint in away]
        queues: dict[str, asyncio.Queue[tuple[Request, int, float]]] = {}
        for request in requests:
            queues.setdefault(request.model, asyncio.Queue()).put_nowait((request, 0, 0.0))
        serving = [server for server in servers if server.section.model in queues]
        workers = [
            asyncio.create_task(_work(server, queues[server.section.model], section, state, serving))
            for server in serving
            for _ in range(server.section.concurrency)
        ]
        finished: asyncio.Future[Any] = asyncio.gather(*(queue.join() for queue in queues.values()))
        try:
            # A worker ends by itself only with an error that concerns everybody.
            await asyncio.wait((finished, *workers), return_when=asyncio.FIRST_COMPLETED)
            for worker in workers:
                if worker.done():
                    worker.result()
        finally:
            finished.cancel()
            for worker in workers:
                worker.cancel()
            await asyncio.gather(finished, *workers, return_exceptions=True)


@contextlib.asynccontextmanager
async def _open(endpoint: recipe.Endpoint, timeout: float) -> AsyncIterator[_Server]:
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
        yield _Server(endpoint, client, key if endpoint.key_env is not None else None)


async def _work(
    server: _Server,
    queue: asyncio.Queue[tuple[Request, int, float]],
    section: recipe.Asked,
    state: _State,
    serving: Sequence[_Server],
) -> None:
    """Take questions from the queue as long as there are any."""
    chance = random.Random(f"{server.section.url} {id(asyncio.current_task())}")
    while True:
        await server.ready(0.0, chance)  # before a question is taken, which another server may answer meanwhile
        request, tries, not_before = await queue.get()
        try:
            await server.ready(not_before, chance)
            async with asyncio.timeout(section.timeout):
                answer = await _call(server, request)
        except (_Later, TimeoutError) as trouble:
            later = trouble if isinstance(trouble, _Later) else _Later("no answer in time")
            _failed(server, later, section, state, serving)
            if tries >= section.retries:
                state.given_up[request.key] = f"{server.section.url}: {later}"
                _tell(state, 1)
            else:
                pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**tries) * (0.5 + chance.random())
                queue.put_nowait((request, tries + 1, time.monotonic() + pause))
        except _Refused as refusal:
            state.refused[request.key] = str(refusal)
            _tell(state, 1)
        else:
            server.troubles = 0
            _keep(state, request, answer)
        queue.task_done()


def _failed(server: _Server, trouble: _Later, section: recipe.Asked, state: _State, serving: Sequence[_Server]) -> None:
    """Count a failure; ``CirfError`` where all that have the model fail for longer than one question is asked again and again."""
    state.failures[str(trouble)] += 1
    server.failed(trouble.seconds, section.timeout)
    _tell(state, 0)
    peers = [peer for peer in serving if peer.section.model == server.section.model]
    patience = sum(min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**tries) for tries in range(section.retries))
    lost = time.monotonic() - patience
    if all(peer.troubles > section.retries + peer.section.concurrency and peer.since < lost for peer in peers):
        raise CirfError(
            f"{server.section.url}: {server.troubles} failures in a row, the last: {trouble}; nobody else answers for "
            f"{server.section.model}; look at the server, then run the same command again (what was answered is kept)"
        )


class _AsItIs(dict[str, Any]):
    """A response format that goes out as OpenAI has it: the client would rewrite it into the form of one other server."""

    def get(self, key: str, default: Any = None) -> Any:
        """Nothing, which is how the client asks for the type."""
        return default


async def _call(server: _Server, request: Request) -> Answer:
    """One call; ``_Later`` or ``_Refused`` where it brings no answer, ``CirfError`` where no call ever will."""
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
            raise _Later("a body that is no answer")
        tokens = made.usage.completion_tokens if getattr(made, "usage", None) is not None else None
        return Answer(_writable(text), str(choice.finish_reason or "stop"), tokens if isinstance(tokens, int) else None)
    except (InferenceTimeoutError, TimeoutError):
        raise _Later("no answer in time") from None
    except HfHubHTTPError as error:
        status, said = error.response.status_code, server.without_key(_said(error.response))
        if status in _TRANSIENT or status >= 500:
            raise _Later(f"HTTP {status}{said}", _retry_after(error.response.headers)) from None
        if status in _HOPELESS:
            raise CirfError(f"{server.section.url}: HTTP {status}{said}; look at the endpoint's url, model and key") from None
        if how:  # perhaps it is the schema that it does not know
            answer = await _call(server, dataclasses.replace(request, schema=None))
            server.structured = False
            return answer
        raise _Refused(f"HTTP {status}{said}") from None
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        raise _Later("a body that is no answer") from None
    except OSError as error:
        raise _Later(server.without_key(f"{type(error).__name__}: {str(error)[:100]}")) from None
    except Exception as error:
        if type(error).__module__.partition(".")[0].startswith("httpx"):  # the client's transport, whatever its name now
            raise _Later(server.without_key(f"{type(error).__name__}: {str(error)[:100]}".rstrip(": "))) from None
        raise


def _writable(text: str) -> str:
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


def _retry_after(headers: Mapping[str, str]) -> float | None:
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


def _answer_here(requests: Sequence[Request], endpoint: recipe.Endpoint, state: _State) -> None:
    """Answer with a model loaded into this process.

    Batches are cut from all requests, answered ones too, so that what a batch is drawn with does not depend on where an
    earlier run was killed.
    """
    from cirf.lm import backbone, decode
    from cirf.lm.prompt import render, sanitise

    alike: dict[tuple[float, float, int], list[Request]] = {}
    for request in requests:
        alike.setdefault((request.temperature, request.top_p, request.max_tokens), []).append(request)
    size = endpoint.concurrency
    batches = [group[start : start + size] for group in alike.values() for start in range(0, len(group), size)]
    batches = [batch for batch in batches if any(request.key not in state.answers for request in batch)]
    if not batches:
        return
    section = recipe.Backbone(model=endpoint.model)
    tokenizer = backbone.load_tokenizer(endpoint.model, section)
    model = backbone.load_model(endpoint.model, section)
    for batch in batches:
        first = batch[0]
        prompts = [
            render(tokenizer, [{"role": role, "content": sanitise(text, tokenizer)} for role, text in request.messages])
            for request in batch
        ]
        outputs = decode.generate(
            model, tokenizer, prompts, first.max_tokens, first.temperature, first.top_p, first.seed, batch_size=size
        )
        for request, output in zip(batch, outputs, strict=True):
            if request.key not in state.answers:
                _keep(state, request, Answer(_writable(output.text), "length" if output.truncated else "stop", output.tokens))
