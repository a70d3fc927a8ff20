"""The server's addresses: ``/v1/chat/completions`` and ``/v1/models`` as OpenAI has them, ``/health``, ``/openapi.json``, and the
page at ``/``.

The playground: one page with its own style and script, which may run nothing else and contact only its own server.

Requests become jobs of the engine here.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import hashlib
import json
import logging
import random
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, StreamingResponse
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

import cirf
from cirf.errors import CirfError
from cirf.lm.decoding.trace_grammar import Steering, check_codes
from cirf.lm.prompt import conversation_text, encode
from cirf.serving.completions import Completion
from cirf.serving.engine import BatchSettings, Busy, Closing, Engine, Job
from cirf.serving.limits import Limits
from cirf.serving.model import ServedModel
from cirf.serving.schemas import ChatRequest
from cirf.serving.server import Guard, Refusal

_log = logging.getLogger("cirf.serving")
_REFUSED: dict[int | str, dict[str, Any]] = {
    "4XX": {"description": "Refused, in the form of OpenAI's errors."},
    "5XX": {"description": "Too busy, too late, being stopped, or a fault; the server's log says more."},
}


def build(models: Sequence[ServedModel], limits: Limits, key: str | None, local: bool) -> Guard:
    """The application, with an engine that starts and stops with it. The first of ``models`` is the main one, others are served
    with it; for ``key`` and ``local`` see `cirf.serving.server.Guard`."""
    engine = Engine(limits)
    by_name = {served.name: served for served in models}
    readers = ThreadPoolExecutor(1, "cirf-tokenizer")  # tokenizers are not made for two threads
    about = functools.partial(_about, limits=limits, since=int(time.time()))

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        engine.start()
        yield
        await asyncio.to_thread(engine.stop)
        readers.shutdown()

    app = FastAPI(
        title="cirf serve", version=cirf.__version__, docs_url=None, redoc_url=None, lifespan=lifespan, responses=_REFUSED
    )
    keyed = [Depends(HTTPBearer(auto_error=False))] if key is not None else []  # for the description; the guard checks the key
    _answer_errors(app)

    @app.get("/", response_class=HTMLResponse)
    async def page() -> Response:
        """A page to try the models on."""
        html = render()
        return Response(html, media_type="text/html", headers={"Content-Security-Policy": policy(html)})

    @app.get("/health")
    async def health() -> dict[str, Any]:
        """Whether there is a server, and how busy it is."""
        return {"status": "ok", "models": list(by_name), "waiting": engine.waiting, "running": engine.running}

    @app.get("/v1/models", dependencies=keyed)
    async def listed() -> dict[str, Any]:
        """The models that are served."""
        return {"object": "list", "data": [about(served, served is models[0]) for served in models]}

    @app.get("/v1/models/{name:path}", dependencies=keyed)
    async def one(name: str) -> dict[str, Any]:
        """One of them."""
        served = find(by_name, name)
        return about(served, served is models[0])

    @app.post("/v1/chat/completions", dependencies=keyed, responses={200: {"content": {"text/event-stream": {}}}})
    async def chat(request: Request, body: ChatRequest) -> Response:
        """A conversation's next message, whole or as a stream."""
        loop = asyncio.get_running_loop()
        job = await loop.run_in_executor(readers, job_of, body, find(by_name, body.model), limits)
        return await _answer(request, body, job, engine, limits)

    return Guard(app, limits, key, local)


async def _answer(request: Request, body: ChatRequest, job: Job, engine: Engine, limits: Limits) -> Response:
    """A job's response, whole or as a stream; `Refusal` if it is not accepted."""
    waiting = JobWait(job, limits, engine)
    completion = Completion(job)
    try:
        engine.submit(job)
    except Busy as busy:
        raise Refusal(429, "the queue is full; try again later", "queue_full", after=busy.after) from None
    except Closing:
        raise Refusal(503, "the server is being stopped", "closing", after=5) from None
    try:
        if not await waiting.until(request, lambda: job.over or (body.stream and job.first is not None)):
            job.cancel()
            return Response(status_code=499)  # its client has gone
        if body.stream:
            usage = body.stream_options is not None and body.stream_options.include_usage
            return Stream(job, _events(job, completion, waiting, usage))
        return JSONResponse(completion.whole())
    except BaseException:
        job.cancel()
        raise


def _answer_errors(app: FastAPI) -> None:
    @app.exception_handler(Refusal)
    async def refused(request: Request, refusal: Refusal) -> Response:
        return Response(json.dumps(refusal.body), refusal.status, refusal.headers, "application/json")

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return await refused(request, _invalid(error.errors()[0]))

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> Response:
        code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "invalid_request")
        response = await refused(request, Refusal(error.status_code, str(error.detail), code))
        response.headers.update(error.headers or {})  # which methods there are
        return response

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        return await refused(request, Refusal(500, "the server could not answer; its log says more", "internal_error"))


def find(models: Mapping[str, ServedModel], name: str) -> ServedModel:
    """The model of that name; `Refusal` where there is none."""
    if name not in models:
        known = ", ".join(models)
        raise Refusal(404, f"no model {name[:80]!r} is served here; available: {known}", "model_not_found", "model")
    return models[name]


def _about(served: ServedModel, main: bool, limits: Limits, since: int) -> dict[str, Any]:
    """A model as ``/v1/models`` lists it."""
    labels = {code: value["label"] for code, value in served.functions["codes"].items()} if served.functions else {}
    own = {
        "role": "main" if main else "compared",
        "functional": bool(served.functions),
        "labels": labels,
        "answer_tokens": min(served.cap, limits.answer),
    }
    entry = {"id": served.name, "object": "model", "created": since, "owned_by": "cirf"}
    return entry | {"max_model_len": min(served.context, limits.prompt + limits.answer), "cirf": own}


class JobWait:
    """Waits for a job, no longer than a request may take."""

    def __init__(self, job: Job, limits: Limits, engine: Engine) -> None:
        self._job, self._limits, self._engine = job, limits, engine
        self._event, self._loop = asyncio.Event(), asyncio.get_running_loop()
        job.changed = self._changed

    def _changed(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._event.set)

    async def change(self) -> None:
        """Wait for something new. `Refusal` if the job failed or timed out."""
        job = self._job
        try:
            async with asyncio.timeout(job.asked + self._limits.seconds - time.perf_counter()):
                await self._event.wait()
        except TimeoutError:
            job.cancel()
            if job.began is None:
                reason = f"not started within {self._limits.seconds:g} seconds; try again later"
                raise Refusal(503, reason, "overloaded", after=self._engine.patience()) from None
            raise Refusal(504, f"not answered within {self._limits.seconds:g} seconds", "timeout") from None
        self._event.clear()
        self.check()

    def check(self) -> None:
        """`Refusal` if the job failed."""
        if self._job.error is not None:
            raise Refusal(500, self._job.error, "internal_error")

    async def until(self, request: Request, reached: Callable[[], bool]) -> bool:
        """Wait for something; false if the client disconnects before."""
        gone = asyncio.ensure_future(_gone(request))
        try:
            while not reached():
                change = asyncio.ensure_future(self.change())
                done, _ = await asyncio.wait({change, gone}, return_when=asyncio.FIRST_COMPLETED)
                if change not in done:
                    change.cancel()
                    return False
                change.result()
            self.check()
            return True
        finally:
            gone.cancel()


class Stream(StreamingResponse):
    """Events as they come; the job is always released at the end."""

    def __init__(self, job: Job, events: AsyncIterator[str]) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
        self._job = job

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._job.cancel()


async def _events(job: Job, completion: Completion, waiting: JobWait, usage: bool) -> AsyncIterator[str]:
    yield _event(completion.opening())
    try:
        while True:
            over = job.over
            for chunk in completion.news(over):
                yield _event(chunk)
            if over:
                break
            await waiting.change()
        waiting.check()
        for chunk in completion.ending(usage):
            yield _event(chunk)
    except Refusal as refusal:
        yield _event(refusal.body)
    except Exception:
        _log.exception("a stream failed")
        yield _event(Refusal(500, "the server could not answer; its log says more", "internal_error").body)
    yield "data: [DONE]\n\n"


def _event(summary: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(summary, ensure_ascii=False)}\n\n"


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _invalid(error: Mapping[str, Any]) -> Refusal:
    """The first error found, without the data that was sent."""
    place = ".".join(str(part) for part in error["loc"] if part != "body")
    message = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "json_invalid":
        return Refusal(400, f"the body is no JSON ({error.get('ctx', {}).get('error', message)})", "invalid_json")
    return Refusal(400, f"{place}: {message}" if place else message, "invalid_request", place or None)


_HERE = Path(__file__).parent


@functools.cache
def render() -> str:
    """The page. It holds no data: it requests what it shows from its server."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    def read(name: str) -> str:
        return (_HERE / name).read_text(encoding="utf-8")

    environment = Environment(loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined)
    environment.globals["read"] = read
    return environment.get_template("playground.html.j2").render()


def policy(html: str) -> str:
    """The Content-Security-Policy of a page: its one style and its one script by their hashes, and requests to its own server."""
    hashes = [f"'sha256-{_hash(html, tag)}'" for tag in ("script", "style")]
    rules = [f"script-src {hashes[0]}", f"style-src {hashes[1]}", "connect-src 'self'", "img-src data:"]
    return "; ".join(["default-src 'none'", *rules, "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"])


def _hash(html: str, tag: str) -> str:
    (inner,) = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
    return base64.b64encode(hashlib.sha256(inner.encode()).digest()).decode()


_LONGEST_TOKEN = 32  # characters a token has at most on average, in any text that people write


def job_of(request: ChatRequest, served: ServedModel, limits: Limits) -> Job:
    """The job of a request; takes as long as tokenising the conversation. `Refusal` if it is not possible. A request for more
    tokens than an answer may have, or than the context holds after the prompt, gets as many as are allowed."""
    if request.n > limits.answers:
        raise Refusal(400, f"at most {limits.answers} answers to one question", "too_many_answers", "n")
    how = _how(request, served)
    messages = [message.plain for message in request.messages]
    most = min(limits.prompt, served.context - 1)
    if sum(len(message["content"]) for message in messages) > _LONGEST_TOKEN * most:
        raise _too_long(f"more than {most}", most)
    try:
        prompt = conversation_text(served.tokenizer, messages)
    except CirfError as error:
        raise Refusal(400, str(error), "invalid_conversation", "messages") from None
    ids = encode(served.tokenizer, prompt)
    if len(ids) > most:
        raise _too_long(str(len(ids)), most)
    tokens = request.max_completion_tokens or request.max_tokens or served.cap
    cap = min(tokens, limits.answer, served.context - len(ids))
    seed = random.getrandbits(32) if request.seed is None else request.seed
    return Job(served, prompt, ids, how, cap, seed=seed, count=request.n, streamed=request.stream)


def _how(request: ChatRequest, served: ServedModel) -> BatchSettings:
    """Temperature and nucleus as requested, else the recipe's: those of its votes for several answers."""
    usual: Any = served.limits.voting if request.n > 1 else served.limits
    temperature = usual.temperature if request.temperature is None else request.temperature
    top_p = usual.top_p if request.top_p is None else request.top_p
    steered = request.cirf.steered
    if served.names is None and steered:
        raise Refusal(400, f"{served.name} has no functional tokens to steer", "not_functional", "cirf")
    calculator = request.cirf.calculator
    if not steered:
        return BatchSettings(temperature, top_p, calculator=calculator)

    assert served.names is not None
    try:
        check_codes(steered["at_most"], served.names)
    except CirfError as error:
        raise Refusal(400, str(error), "unknown_code", "cirf.at_most") from None
    pairs = tuple(sorted(steered["at_most"].items()))
    return BatchSettings(temperature, top_p, Steering(**steered | {"at_most": pairs}), calculator)


def _too_long(found: str, most: int) -> Refusal:
    message = f"the conversation has {found} tokens, the limit is {most}; send less"
    return Refusal(400, message, "context_length_exceeded", "messages")
