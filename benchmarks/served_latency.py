"""Latency of served models: methods compared in vLLM, llama.cpp or any OpenAI-compatible server.

    python -m benchmarks.served_latency RUN --server cirf_full=URL [--server sft_cot=URL ...] [--concurrency 1,8,32]
        [--requests 64] [--max-tokens 512] [--out FILE]

``RUN`` provides the test questions, alternating between tasks. Each ``NAME=URL`` is a server of one method's model (``vllm serve
RUN/models/cirf_full --reasoning-parser hf``); the address ends in ``/v1`` or ``/v1#MODEL``. Every server gets the same questions,
greedy and streamed, with ``--concurrency`` requests at once. The servers alternate at each concurrency, after four requests that
do not count. Several servers on one machine share its cores: start them one at a time, and join the files of ``--out``.

The table shows seconds to the first token, to the first token of the answer and to the end (median, 95th percentile), generated
tokens, and requests a second. Where the server returns reasoning apart, the answer is the content. Else it begins after the last
``</cirf>``, ``</think>`` or ``####`` of the text; without any of them it counts from the end. Every concurrency asks the same
questions: from the second one on, a server with prefix caching may have computed long prompts. A request whose connection the
server closed is sent again; its time counts. The last line is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.engines import asked

WARMUP = 4
_ENDS_REASONING = re.compile(r"</cirf>|</think>|####")


@dataclass(frozen=True, slots=True)
class Timed:
    """Seconds since the request was sent, and the tokens that the server counted."""

    first: float
    answer: float
    end: float
    tokens: int


async def answer(client: Any, model: str, question: str, most: int) -> Timed:
    """One streamed answer."""
    began = time.perf_counter()
    first: float | None = None
    pieces = list[tuple[float, str]]()
    reasons, tokens = False, 0
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
        delta = chunk.choices[0].delta
        reasoning = getattr(delta, "reasoning", None) or getattr(delta, "reasoning_content", None)
        reasons = reasons or bool(reasoning)
        if delta.content:
            pieces.append((now, delta.content))
        if first is None and (delta.content or reasoning):
            first = now
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
    async with AsyncOpenAI(base_url=base, api_key="none", max_retries=2, timeout=600) as client:
        model = model or (await client.models.list()).data[0].id
        for question in questions[:WARMUP]:
            await answer(client, model, question, most)
        places = asyncio.Semaphore(concurrency)

        async def one(question: str) -> Timed:
            async with places:
                return await answer(client, model, question, most)

        began = time.perf_counter()
        made = await asyncio.gather(*(one(question) for question in questions))
        seconds = time.perf_counter() - began
    return {
        "requests": len(made),
        "concurrency": concurrency,
        "tokens": round(fmean(each.tokens for each in made), 1),
        "requests_per_s": round(len(made) / seconds, 3),
        **{
            f"{name}_{share}_s": round(percentile([getattr(each, name) for each in made], share), 3)
            for name in ("first", "answer", "end")
            for share in (50, 95)
        },
    }


def percentile(values: Sequence[float], share: int) -> float:
    """By linear interpolation."""
    import numpy as np

    return float(np.percentile(values, share))


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
    print(f"{'method':<16}{'at once':>8}{'tokens':>8}{'first s':>16}{'answer s':>16}{'end s':>16}{'requests/s':>12}")
    print(f"{'':<32}{'p50    p95':>16}{'p50    p95':>16}{'p50    p95':>16}")
    for concurrency in map(int, options.concurrency.split(",")):
        for name, url in servers.items():
            row = {"method": name} | asyncio.run(load(url, questions, concurrency, options.max_tokens))
            rows.append(row)
            pairs = [f"{row[f'{what}_50_s']:.2f}  {row[f'{what}_95_s']:5.2f}" for what in ("first", "answer", "end")]
            times = "".join(f"{pair:>16}" for pair in pairs)
            print(f"{name:<16}{concurrency:>8}{row['tokens']:>8.1f}{times}{row['requests_per_s']:>12.2f}", flush=True)
    if options.out:
        with options.out.open("a", encoding="utf-8") as out:
            out.writelines(json.dumps(row) + "\n" for row in rows)
    json.dump(rows, sys.stdout)
    print()


if __name__ == "__main__":
    main()
