"""The server's addresses: ``/v1/chat/completions`` and ``/v1/models`` as OpenAI has them, ``/health``, ``/openapi.json``, and the
page at ``/``."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from cirf.serving import answers
from cirf.serving.asking import job_of
from cirf.serving.completions import Completion
from cirf.serving.describing import Described
from cirf.serving.engine import Busy, Closing, Engine, Job
from cirf.serving.guard import Guard
from cirf.serving.limits import Limits
from cirf.serving.model import Served
from cirf.serving.page import policy, render
from cirf.serving.refusals import Refusal
from cirf.serving.schemas import ChatRequest

_log = logging.getLogger("cirf.serving")


def build(models: Sequence[Served], limits: Limits, key: str | None, local: bool) -> Guard:
    """The application, with an engine that starts and stops with it. The first of ``models`` is the main one, others stand beside
    it; for ``key`` and ``local`` see `cirf.serving.guard.Guard`."""
    engine = Engine(limits)
    by_name = {served.name: served for served in models}
    readers = ThreadPoolExecutor(1, "cirf-tokenizer")  # tokenizers are not made for two threads
    since = int(time.time())

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        engine.start()
        yield
        await asyncio.to_thread(engine.stop)
        readers.shutdown()

    app = Described(list(by_name), limits, key is not None, lifespan)

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

    @app.get("/", response_class=HTMLResponse, **app.told(None, keyed=False))
    async def page() -> Response:
        """A page to try the models on."""
        html = render()
        return Response(html, media_type="text/html", headers={"Content-Security-Policy": policy(html)})

    @app.get("/health", **app.told(answers.Health, keyed=False))
    async def health() -> dict[str, Any]:
        """Whether there is a server, and how busy it is."""
        return {"status": "ok", "models": list(by_name), "waiting": engine.waiting, "running": engine.running}

    @app.get("/v1/models", **app.told(answers.Models))
    async def listed() -> dict[str, Any]:
        """The models that are served."""
        return {"object": "list", "data": [about(served) for served in models]}

    @app.get("/v1/models/{name:path}", **app.told(answers.Model, 404))
    async def one(name: str) -> dict[str, Any]:
        """One of them."""
        return about(find(name))

    @app.post("/v1/chat/completions", **app.told(answers.Completion, 400, 404, 429, 504))
    async def chat(request: Request, body: ChatRequest) -> Response:
        """A conversation's next message, whole or as a stream."""
        loop = asyncio.get_running_loop()
        job = await loop.run_in_executor(readers, job_of, body, find(body.model), limits)
        waiting = Waiting(job, limits, engine)
        completion = Completion(job, body.cirf.votes > 1)
        try:
            engine.submit(job)
        except Busy as busy:
            raise Refusal(429, "too many questions wait already; ask again later", "queue_full", after=busy.after) from None
        except Closing:
            raise Refusal(503, "the server is being stopped", "closing", after=5) from None
        try:
            if not await waiting.until(request, lambda: job.over or (body.stream and job.first is not None)):
                job.cancel()
                return Response(status_code=499)  # its client has gone
            if body.stream:
                usage = body.stream_options is not None and body.stream_options.include_usage
                return Stream(job, _events(job, completion, waiting, body.cirf.explain, usage))
            completion.close()
            return JSONResponse(completion.whole(await waiting.explained(completion, body.cirf.explain)))
        except BaseException:
            job.cancel()
            raise

    def find(name: str) -> Served:
        if name not in by_name:
            known = ", ".join(by_name)
            raise Refusal(404, f"there is no model {name[:80]!r} here; there is: {known}", "model_not_found", "model")
        return by_name[name]

    def about(served: Served) -> dict[str, Any]:
        labels = {code: value["label"] for code, value in served.functions["codes"].items()} if served.functions else {}
        own = {
            "role": "main" if served is models[0] else "beside",
            "functional": bool(served.functions),
            "labels": labels,
            "answer_tokens": min(served.cap, limits.answer),
            "votes": limits.votes,
        }
        told = {"id": served.name, "object": "model", "created": since, "owned_by": "cirf"}
        return told | {"max_model_len": min(served.context, limits.prompt + limits.answer), "cirf": own}

    return Guard(app, limits, key, local)


class Waiting:
    """Waits for a job, no longer than a request may take."""

    def __init__(self, job: Job, limits: Limits, engine: Engine) -> None:
        self._job, self._limits, self._engine = job, limits, engine
        self._event, self._loop = asyncio.Event(), asyncio.get_running_loop()
        job.changed = self._changed

    def _changed(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._event.set)

    async def change(self) -> None:
        """Until there is something new. `Refusal` if the job failed or its time is over."""
        job = self._job
        try:
            async with asyncio.timeout(job.asked + self._limits.seconds - time.perf_counter()):
                await self._event.wait()
        except TimeoutError:
            job.cancel()
            if job.began is None:
                told = f"nobody came to answer this within {self._limits.seconds:g} seconds; ask again later"
                raise Refusal(503, told, "overloaded", after=self._engine.patience()) from None
            raise Refusal(504, f"not answered within {self._limits.seconds:g} seconds", "timeout") from None
        self._event.clear()
        self.check()

    def check(self) -> None:
        """`Refusal` if the job failed."""
        if self._job.error is not None:
            raise Refusal(500, self._job.error, "internal_error")

    async def until(self, request: Request, reached: Callable[[], bool]) -> bool:
        """Until something is reached; false if the client goes away before."""
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

    async def explained(self, completion: Completion, wanted: bool) -> list[Any] | None:
        """What the model thought of the functional tokens of each choice; ``None`` where nobody wants to know."""
        if not wanted:
            return None
        from cirf.lm.alternatives import choices

        job, served = self._job, self._job.served
        assert served.names is not None
        names, written = served.names, [job.made[place] for place in completion.places()]

        def look() -> list[Any]:
            return [choices(served.model, served.tokenizer, job.ids, made, names) for made in written]

        return await asyncio.wrap_future(self._engine.call(look))


class Stream(StreamingResponse):
    """Events as they come; however it ends, the job is let go of."""

    def __init__(self, job: Job, events: AsyncIterator[str]) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
        self._job = job

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._job.cancel()


async def _events(job: Job, completion: Completion, waiting: Waiting, explain: bool, usage: bool) -> AsyncIterator[str]:
    yield _event(completion.opening())
    try:
        while True:
            over = job.over
            for chunk in completion.news():
                yield _event(chunk)
            if over:
                break
            await waiting.change()
        waiting.check()
        completion.close()
        for chunk in completion.ending(await waiting.explained(completion, explain), usage):
            yield _event(chunk)
    except Refusal as refusal:
        yield _event(refusal.body)
    except Exception:
        _log.exception("a stream failed")
        yield _event(Refusal(500, "the server could not answer; its log says more", "internal_error").body)
    yield "data: [DONE]\n\n"


def _event(told: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(told, ensure_ascii=False)}\n\n"


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _invalid(error: Mapping[str, Any]) -> Refusal:
    """The first fault that was found, without what was sent."""
    place = ".".join(str(part) for part in error["loc"] if part != "body")
    message = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "json_invalid":
        return Refusal(400, f"the body is no JSON ({error.get('ctx', {}).get('error', message)})", "invalid_json")
    return Refusal(400, f"{place}: {message}" if place else message, "invalid_request", place or None)
