"""A client of OpenAI-compatible endpoints: many questions, several servers, and every answer kept.

A question goes to any server that has its model. Temporary failures (429, 5xx, a time-out, a cut connection, an invalid body) are
retried with exponential backoff and jitter; ``Retry-After`` is respected. A server that rejects every request (no key, no such
model) is set aside while another has its model, and a question that one refuses goes to the others. If every server of a model
fails, the client stops.

An answer is on disk before the next question is sent, keyed by its whole request, so a rerun requests only missing ones::

    {"key": "5f1c...", "model": "gemma-3-27b-it", "text": "Step 1: ...", "finish": "stop", "tokens": 131}

Also answers by a model in this process, without a server.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cirf.endpoints.calls import Connection, RequestRefused, RetryLater, call, connect, writable
from cirf.endpoints.requests import Answer, Request, describe, finish_of
from cirf.errors import CirfError
from cirf.progress import SILENT, Advance, Progress
from cirf.recipe import schema
from cirf.store.files import RowLog

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 60.0  # seconds
_BEAT, _LONG = 2.0, 20.0  # seconds between two looks at what is under way; of a wait that is named


@dataclass(slots=True)
class _Server:
    """One endpoint at work.

    ``quiet_until`` is when it may be used again; ``troubles`` counts its failures in a row, ``since`` is when they began: one
    that only fails is used ever more rarely, so that it does not use up the retries of questions that others could answer.
    """

    section: schema.Endpoint
    connection: Connection
    quiet_until: float = 0.0
    troubles: int = 0
    since: float = 0.0
    lost: str | None = None
    """Why this server answers no request."""

    def failed(self, seconds: float | None, longest: float) -> None:
        """Pause it for as long as it says, and with growing pauses once all its connections have failed."""
        if not self.troubles:
            self.since = time.monotonic()
        self.troubles += 1
        beyond = self.troubles - self.section.concurrency
        pause = 0.0 if beyond < 0 else min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(beyond, 30))
        if seconds is not None:
            pause = max(pause, min(seconds, longest))
        self.quiet_until = max(self.quiet_until, time.monotonic() + pause)

    async def ready(self, moment: float, chance: random.Random) -> None:
        """Wait until it may be used, and at least to ``moment``; waiting requests do not all resume at once."""
        while (pause := max(self.quiet_until, moment) - time.monotonic()) > 0:
            await asyncio.sleep(pause + 0.1 * pause * chance.random())


@dataclass(slots=True)
class _State:
    log: RowLog
    advance: Advance
    timeout: float
    answers: dict[str, Answer] = field(default_factory=dict)
    tokens: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    given_up: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    last: str = ""
    """The last failure."""
    said: set[str] = field(default_factory=set)
    under_way: dict[str, float] = field(default_factory=dict)
    """When each request that is not answered yet was sent."""

    def say(self, line: str) -> None:
        if line not in self.said:
            self.said.add(line)
            print(line, file=sys.stderr)


@dataclass(frozen=True, slots=True)
class _PendingRequest:
    """A request on its way: how often it failed, when it may be retried, and the servers that refused it."""

    request: Request
    tries: int = 0
    not_before: float = 0.0
    refused_by: frozenset[int] = frozenset()


_Queue = asyncio.Queue[_PendingRequest]


def known_answers(log: RowLog) -> dict[str, Answer]:
    """The answers that a log holds, by the key of their request. ``CirfError`` for an invalid row."""
    rows = log.rows(key=str, text=str, finish=str, tokens=int | None)
    return {
        row["key"]: Answer(row["text"], finish_of(row["finish"], None, None), row["tokens"], row.get("reasoning", ""))
        for row in rows
    }


def ask(
    requests: Sequence[Request],
    section: schema.RequestSettings,
    log: RowLog,
    progress: Progress = SILENT,
    title: str = "asking",
    said: set[str] | None = None,
) -> tuple[dict[str, Answer], dict[str, str]]:
    """Answer every request that ``log`` does not hold; returns the answers and the refusals, both by key.

    ``said``: lines already printed on standard error; new ones are added. A request is refused if every server of its model
    rejects it (too long a prompt); with ``unanswered: drop`` refusals are returned, else they raise. A model whose ``url`` is
    ``local`` is loaded into this process, and its memory is freed afterwards.

    ``CirfError``: no endpoint for a model, servers that reject every request (no key, no such model), or requests that are
    refused, or still unanswered after all retries; what was answered is kept.
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
        state = _State(log, advance, section.timeout, known, said=set() if said is None else said)
        for endpoint in section.endpoints:
            if endpoint.url == schema.LOCAL:
                of_model = [request for request in wanted.values() if request.model == endpoint.model]
                answer_here(of_model, endpoint, state.answers.keys(), functools.partial(_keep, state))
        rest = [request for key, request in missing.items() if key not in state.answers]
        if rest:
            asyncio.run(_ask(rest, section, state))
    if state.given_up and section.unanswered == "drop":
        state.refused |= state.given_up
    elif state.given_up:
        last = next(reversed(state.given_up.values()))
        raise CirfError(
            f"{len(state.given_up):,} of {len(wanted):,} requests were not answered after {section.max_retries} retries (the "
            f"last: {last}); the answers that came are kept: run the same command again for the others, "
            "or set unanswered: drop to continue without them"
        )
    if state.refused and section.unanswered == "stop":
        why, count = Counter(state.refused.values()).most_common(1)[0]
        often = "all" if count == len(state.refused) else f"{count:,} of them"
        raise CirfError(
            f"{len(state.refused):,} of {len(wanted):,} requests were refused ({often}: {why}); the answers that came are kept: "
            "fix the server or the recipe and run the same command again, or set unanswered: drop to continue without them"
        )
    return {key: state.answers[key] for key in wanted if key in state.answers}, state.refused


def _keep(state: _State, request: Request, answer: Answer) -> None:
    """Write an answer to disk, then count it. One without text is requested again by a rerun: the server may be repaired by
    then."""
    row = {"key": request.key, "model": request.model, "text": answer.text, "finish": answer.finish, "tokens": answer.tokens}
    if answer.reasoning:
        row["reasoning"] = answer.reasoning
    if answer.text.strip() or answer.finish == "length":  # a truncated answer may be thoughts alone
        state.log.append(row)
    state.answers[request.key] = answer
    state.tokens += answer.tokens or 0
    _tell(state, 1)


def _tell(state: _State, done: int) -> None:
    """Show ``done`` more requests as settled, and a long wait for another."""
    troubles = sum(state.failures.values())
    last = f" (last: {state.last})" if state.last else ""
    longest = max((time.monotonic() - sent for sent in state.under_way.values()), default=0.0)
    wait = f" · {len(state.under_way)} under way, one for {longest:.0f} of {state.timeout:g} s" if longest > _LONG else ""
    state.advance(done, f"{state.tokens:,} tokens · {troubles:,} failed{last}{wait}")


async def _watch(state: _State) -> None:
    """Show progress while no answer comes."""
    while True:
        await asyncio.sleep(_BEAT)
        _tell(state, 0)


async def _ask(requests: Sequence[Request], section: schema.RequestSettings, state: _State) -> None:
    async with contextlib.AsyncExitStack() as stack:
        away = [endpoint for endpoint in section.endpoints if endpoint.url != schema.LOCAL]
        for endpoint in away:
            if endpoint.api_key_env:
                state.say(describe(endpoint))  # before the first request, which sends it
        servers = [_Server(endpoint, await stack.enter_async_context(connect(endpoint, section.timeout))) for endpoint in away]
        queues: dict[str, _Queue] = {}
        for request in requests:
            queues.setdefault(request.model, asyncio.Queue()).put_nowait(_PendingRequest(request))
        serving = [server for server in servers if server.section.model in queues]
        workers = [
            asyncio.create_task(_work(server, queues[server.section.model], section, state, serving))
            for server in serving
            for _ in range(server.section.concurrency)
        ]
        watch = asyncio.create_task(_watch(state))
        finished: asyncio.Future[Any] = asyncio.gather(*(queue.join() for queue in queues.values()))
        try:
            # A worker ends by itself only with an error that concerns all.
            await asyncio.wait((finished, *workers), return_when=asyncio.FIRST_COMPLETED)
            for worker in workers:
                if worker.done():
                    worker.result()
        finally:
            finished.cancel()
            for task in (watch, *workers):
                task.cancel()
            await asyncio.gather(finished, watch, *workers, return_exceptions=True)
            for server in servers:
                if refuses := sorted(server.connection.refuses):
                    state.say(f"{server.section.url}: it rejects {', '.join(refuses)}; its answers were requested without")


async def _work(
    server: _Server, queue: _Queue, section: schema.RequestSettings, state: _State, serving: Sequence[_Server]
) -> None:
    """Take questions from the queue as long as there are any."""
    chance = random.Random(f"{server.section.url} {id(asyncio.current_task())}")
    peers = [peer for peer in serving if peer.section.model == server.section.model]
    while True:
        await server.ready(0.0, chance)  # before taking a question, which another server may answer meanwhile
        if server.lost:
            await asyncio.Event().wait()  # set aside: until the others are done
        turn = await queue.get()
        others = [peer for peer in peers if not peer.lost and id(peer) not in turn.refused_by]
        if server.lost or (id(server) in turn.refused_by and others):
            queue.put_nowait(turn)
            queue.task_done()
            await asyncio.sleep(0.02 + 0.05 * chance.random())
            continue
        try:
            await server.ready(turn.not_before, chance)
            answer = await _called(server, turn.request, state)
        except (RetryLater, TimeoutError) as trouble:
            later = trouble if isinstance(trouble, RetryLater) else RetryLater("no answer in time")
            counts = not _is_servers_own(server, peers)
            _failed(server, later, section, state, peers)
            if counts and turn.tries >= section.max_retries:
                state.given_up[turn.request.key] = f"{server.section.url}: {later}"
                _tell(state, 1)
            else:
                pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**turn.tries) * (0.5 + chance.random())
                again = replace(turn, tries=turn.tries + counts, not_before=time.monotonic() + pause)
                queue.put_nowait(again)
        except RequestRefused as refusal:
            state.last = str(refusal)
            if [peer for peer in others if peer is not server]:
                queue.put_nowait(replace(turn, refused_by=turn.refused_by | {id(server)}))
            else:
                state.refused[turn.request.key] = str(refusal)
                _tell(state, 1)
        except CirfError as error:
            server.lost = str(error)
            if all(peer.lost for peer in peers):
                raise
            state.failures[server.lost] += 1
            state.last = f"set aside: {server.lost}"
            _tell(state, 0)
            queue.put_nowait(turn)
        else:
            server.troubles = 0
            _keep(state, turn.request, answer)
        queue.task_done()


async def _called(server: _Server, request: Request, state: _State) -> Answer:
    """One call, as long as it may take."""
    state.under_way[request.key] = time.monotonic()
    try:
        async with asyncio.timeout(state.timeout):
            return await call(server.connection, request)
    finally:
        del state.under_way[request.key]


def _is_servers_own(server: _Server, peers: Sequence[_Server]) -> bool:
    """Whether a failure is the server's and not the question's: it only fails, and another of its model does not."""
    failing = server.troubles >= server.section.concurrency
    return failing and any(not peer.troubles and not peer.lost for peer in peers if peer is not server)


def _failed(
    server: _Server, trouble: RetryLater, section: schema.RequestSettings, state: _State, peers: Sequence[_Server]
) -> None:
    """Count a failure; ``CirfError`` if all that have the model fail for longer than one question is retried."""
    state.failures[str(trouble)] += 1
    state.last = str(trouble)
    server.failed(trouble.seconds, section.timeout)
    _tell(state, 0)
    patience = sum(min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**tries) for tries in range(section.max_retries))
    past = time.monotonic() - patience
    if all(peer.lost or (peer.troubles > section.max_retries + peer.section.concurrency and peer.since < past) for peer in peers):
        raise CirfError(
            f"{server.section.url}: {server.troubles} failures in a row, the last: {trouble}; no other server answers for "
            f"{server.section.model}; check the server, then run the same command again (answers are kept)"
        )


def answer_here(
    requests: Sequence[Request], endpoint: schema.Endpoint, known: Collection[str], keep: Callable[[Request, Answer], None]
) -> None:
    """Answer with a model loaded into this process; ``keep`` gets each answer whose key is not among ``known``.

    Batches are cut from all requests, answered ones too, so that the rounding of a batch does not depend on where an earlier run
    was killed.
    """
    from cirf.cpu.packed import pack
    from cirf.lm import backbone
    from cirf.lm.decoding import generate as decode
    from cirf.lm.prompt import render, sanitise

    alike: dict[tuple[float, float, int], list[Request]] = {}
    for request in requests:
        alike.setdefault((request.temperature, request.top_p, request.max_tokens), []).append(request)
    size = endpoint.concurrency
    batches = [group[start : start + size] for group in alike.values() for start in range(0, len(group), size)]
    batches = [batch for batch in batches if any(request.key not in known for request in batch)]
    if not batches:
        return
    section = schema.Backbone(model=endpoint.model)
    tokenizer = backbone.load_tokenizer(endpoint.model, section)
    model = backbone.load_model(endpoint.model, section)
    pack(model)
    for batch in batches:
        first = batch[0]
        prompts = [
            render(tokenizer, [{"role": role, "content": sanitise(text, tokenizer)} for role, text in request.messages])
            for request in batch
        ]
        seeds = [request.seed for request in batch]
        decoding = decode.Decoding(first.temperature, first.top_p)
        outputs = decode.generate(model, tokenizer, prompts, first.max_tokens, decoding, size, seeds)
        for request, output in zip(batch, outputs, strict=True):
            if request.key not in known:
                keep(request, Answer(writable(output.text), "length" if output.truncated else "stop", output.tokens))
