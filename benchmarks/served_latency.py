"""Latency of served models: methods compared in vLLM, llama.cpp or any OpenAI-compatible server.

    python -m benchmarks.served_latency RUN --server cirf_full=URL [--server sft_cot=URL ...] [--concurrency 1,8,32]
        [--requests 64] [--max-tokens 512] [--out FILE]

``RUN`` provides the test questions, alternating between tasks. Each ``NAME=URL`` is a server of one method's model (``vllm serve
RUN/models/cirf_full --reasoning-parser hf``); the address ends in ``/v1`` or ``/v1#MODEL``. Every server gets the same questions,
greedy and streamed, with ``--concurrency`` requests at once. The servers alternate at each concurrency, after four requests that
do not count. Several servers on one machine share its cores: start them one at a time, and join the files of ``--out``.

The table shows the mean of generated tokens as the server counted them (-: it counts none), failed requests, seconds to the first
token, to the first token of the answer and to the end (median, 95th percentile), and finished requests a second. Where the server
returns reasoning apart, the answer is the content. Else it begins after the last ``</cirf>``, ``</think>`` or ``####``; without
any of them it counts from the end. Every concurrency asks the same questions: from the second one on, a server with prefix
caching may have computed long prompts.

A request that the server refused for its load (429, 5xx), or whose answer was cut, is sent again after a while; its time counts.
If that is no use five times, or there is another error, it has failed, and is in no other number. The last line is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.engines import asked

WARMUP = 4
WAITS = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds before a request is sent again, unless the server names others."""

_LONGEST_WAIT = 60.0
_CLIENTS = ("openai", "httpx", "httpx2")  # openai 2 raises errors of httpx while it reads a stream
_ENDS_REASONING = re.compile(r"</cirf>|</think>|####")


@dataclass(frozen=True, slots=True)
class Timed:
    """Seconds since the request was first sent, the tokens if the server counted them, and how often it was sent again."""

    first: float
    answer: float
    end: float
    tokens: int | None
    retries: int = 0


class CutError(Exception):
    """A stream that ended before its answer did."""


async def finished(client: Any, model: str, question: str, most: int) -> Timed | str:
    """One streamed answer, asked for again where that may help; or the error after which it was given up."""
    began = time.perf_counter()
    for retries in range(len(WAITS) + 1):
        try:
            return replace(await answer(client, model, question, most, began), retries=retries)
        except Exception as error:
            if not isinstance(error, CutError | json.JSONDecodeError) and type(error).__module__.split(".")[0] not in _CLIENTS:
                raise
            status, slow = getattr(error, "status_code", None), "Timeout" in type(error).__name__
            said = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            if slow or retries == len(WAITS) or not (status is None or status in (408, 409, 429) or status >= 500):
                return said
            await asyncio.sleep(_wait(error, WAITS[retries]))
    raise AssertionError


def _wait(error: Exception, usual: float) -> float:
    """Seconds until the next try: those that the server asks for, within reason, or the usual ones."""
    response = getattr(error, "response", None)
    try:
        return min(float(response.headers["retry-after"]), _LONGEST_WAIT) if response is not None else usual
    except (KeyError, ValueError):  # none, or a date
        return usual


async def answer(client: Any, model: str, question: str, most: int, began: float | None = None) -> Timed:
    """One streamed answer, timed since ``began`` or now; ``CutError``: the stream ended before it."""
    began = time.perf_counter() if began is None else began
    first: float | None = None
    pieces = list[tuple[float, str]]()
    reasons, ended, tokens = False, False, None
    stream = await client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": question}],
        temperature=0,
        max_tokens=most,
        stream=True,
        stream_options={"include_usage": True},
    )
    async for chunk in stream:
        now = time.perf_counter() - began
        if chunk.usage is not None:
            tokens = chunk.usage.completion_tokens
        if not chunk.choices:
            continue
        ended = ended or chunk.choices[0].finish_reason is not None
        delta = chunk.choices[0].delta
        reasoning = getattr(delta, "reasoning", None) or getattr(delta, "reasoning_content", None)
        reasons = reasons or bool(reasoning)
        if delta.content:
            pieces.append((now, delta.content))
        if first is None and (delta.content or reasoning):
            first = now
    if not ended:
        raise CutError("the stream ended without a finish_reason")
    end = time.perf_counter() - began
    begun = _answer_begins(pieces, reasons)
    return Timed(end if first is None else first, end if begun is None else begun, end, tokens)


def _answer_begins(pieces: Sequence[tuple[float, str]], reasons: bool) -> float | None:
    """When the answer in a streamed text began; ``reasons``: its reasoning came apart. ``None``: nothing separates the two."""
    text = "".join(piece for _, piece in pieces)
    marks = [mark.end() for mark in _ENDS_REASONING.finditer(text)]
    if not marks and not reasons:
        return None
    place = marks[-1] if marks else 0
    place += len(text[place:]) - len(text[place:].lstrip())
    for when, piece in pieces:
        if place < len(piece):
            return when
        place -= len(piece)
    return None


async def load(url: str, questions: Sequence[str], concurrency: int, most: int) -> dict[str, Any]:
    """All questions to one server, so many at once."""
    from openai import AsyncOpenAI

    base, _, model = url.partition("#")
    async with AsyncOpenAI(base_url=base, api_key="none", max_retries=0, timeout=600) as client:
        model = model or await _first_model(client)
        for question in questions[:WARMUP]:
            await finished(client, model, question, most)
        places = asyncio.Semaphore(concurrency)

        async def one(question: str) -> Timed | str:
            async with places:
                return await finished(client, model, question, most)

        began = time.perf_counter()
        made = await asyncio.gather(*(one(question) for question in questions))
        seconds = time.perf_counter() - began
    return {"concurrency": concurrency} | summary(made, seconds)


async def _first_model(client: Any) -> str:
    """The server's first model; ``SystemExit``: it names none."""
    from openai import OpenAIError

    try:
        return str((await client.with_options(max_retries=len(WAITS)).models.list()).data[0].id)
    except (OpenAIError, IndexError) as error:
        raise SystemExit(f"{client.base_url}: names no model ({error}); start the server, or name one: URL#MODEL") from None


def summary(made: Sequence[Timed | str], seconds: float) -> dict[str, Any]:
    """The numbers of all requests that finished in so many seconds, and how many failed, by their errors."""
    timed = [each for each in made if isinstance(each, Timed)]
    counted = [each.tokens for each in timed if each.tokens is not None]
    return {
        "requests": len(made),
        "failed": len(made) - len(timed),
        "errors": dict(Counter(each for each in made if isinstance(each, str))),
        "retries": sum(each.retries for each in timed),
        "tokens": round(fmean(counted), 1) if counted else None,
        "requests_per_s": round(len(timed) / seconds, 3),
        **{
            f"{name}_{share}_s": round(percentile([getattr(each, name) for each in timed], share), 3) if timed else None
            for name in ("first", "answer", "end")
            for share in (50, 95)
        },
    }


def percentile(values: Sequence[float], share: int) -> float:
    """By linear interpolation."""
    import numpy as np

    return float(np.percentile(values, share))


def line(row: dict[str, Any]) -> str:
    """A row of the table."""

    def number(value: float | None, places: int) -> str:
        return "-" if value is None else f"{value:.{places}f}"

    pairs = [f"{number(row[f'{what}_50_s'], 2)}  {number(row[f'{what}_95_s'], 2):>5}" for what in ("first", "answer", "end")]
    counts = f"{row['concurrency']:>8}{number(row['tokens'], 1):>8}{row['failed']:>8}"
    return f"{row['method']:<16}{counts}{''.join(f'{pair:>16}' for pair in pairs)}{row['requests_per_s']:>12.2f}"


def main() -> None:
    """Ask, print the table and the line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--server", action="append", required=True, metavar="NAME=URL")
    parser.add_argument("--method", default="cirf_full", help="whose evaluation names the questions")
    parser.add_argument("--concurrency", default="1,8,32")
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--max-tokens", type=int, default=512)
    parser.add_argument("--out", type=Path, help="a file of JSON lines that rows are added to")
    options = parser.parse_args()
    servers = dict(each.split("=", 1) for each in options.server)
    questions = [row["prompt"] for row in asked(options.run, options.method, options.requests)]
    rows = []
    print(f"{'method':<16}{'at once':>8}{'tokens':>8}{'failed':>8}{'first s':>16}{'answer s':>16}{'end s':>16}{'requests/s':>12}")
    print(f"{'':<40}{'p50    p95':>16}{'p50    p95':>16}{'p50    p95':>16}")
    for concurrency in map(int, options.concurrency.split(",")):
        for name, url in servers.items():
            row = {"method": name} | asyncio.run(load(url, questions, concurrency, options.max_tokens))
            rows.append(row)
            print(line(row), flush=True)
            for error, count in row["errors"].items():
                print(f"{name}, {concurrency} at once: {count} failed: {error}", file=sys.stderr)
            if options.out:
                with options.out.open("a", encoding="utf-8") as out:
                    out.write(json.dumps(row) + "\n")
    json.dump(rows, sys.stdout)
    print()


if __name__ == "__main__":
    main()
