"""Sampled answers to one question: `cirf`'s votes against ``generate`` of transformers with as many sequences.

    python -m benchmarks.votes --model RUN/models/cirf_full [--run RUN] [--votes 8] [--questions 6] [--rounds 3] [--threads 2]

The questions are the first of the run's test problems, equally many of each task (``--run``; default: the model's own run). Three
sides answer each question in turn: ``generate`` on the model as transformers loads it, with packed weights, since these are most
of the gain in `benchmarks.decoding`; ours with transformers' attention; and ours. All sample at temperature 0.7 and top-p 0.95
until every answer has ended. Each samples other answers, so seconds are divided by the tokens of the longest one, the number of
passes. The last line is JSON; a ratio above 1 means ours is faster.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path as File
from typing import Any

from benchmarks.decoding import first_questions, plain_model

WAYS: tuple[str, ...] = ("generate", "its attention", "ours")
TEMPERATURE, TOP_P = 0.7, 0.95


def _stock(model: Any, tokenizer: Any, cap: int, votes: int) -> Callable[[str], int]:
    """Sample as a stock script does; returns the tokens of the longest answer."""
    import torch

    from cirf.lm.prompt import stop_ids

    stops = stop_ids(model, tokenizer)
    how: dict[str, Any] = {"do_sample": True, "temperature": TEMPERATURE, "top_p": TOP_P, "top_k": 0, "repetition_penalty": 1.0}
    how |= {"max_new_tokens": cap, "eos_token_id": stops, "pad_token_id": stops[0]}

    def draw(prompt: str) -> int:
        given = tokenizer(prompt, add_special_tokens=False, return_tensors="pt")
        with torch.inference_mode():
            made = model.generate(**given, num_return_sequences=votes, **how)
        return int(made.shape[1] - given["input_ids"].shape[1])

    return draw


def _ours(model: Any, tokenizer: Any, cap: int, votes: int) -> Callable[[str], int]:
    from cirf.lm.decoding.generate import Decoding, sample_many

    how = (cap, votes, Decoding(TEMPERATURE, TOP_P, 1))
    return lambda prompt: max(one.tokens for one in sample_many(model, tokenizer, prompt, *how))


def main() -> None:
    """Time all ways in turns, print the table and the line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=File, required=True)
    parser.add_argument("--run", type=File, help="whose test problems are asked (default: two folders above the model)")
    parser.add_argument("--votes", type=int, default=8)
    parser.add_argument("--questions", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", default="bfloat16")
    options = parser.parse_args()

    import torch

    from cirf.cpu.packed import pack
    from cirf.lm.prompt import prompt_text
    from cirf.serving.model import load_served

    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    served = load_served(options.model)
    stock = plain_model(options.model, options.dtype)
    pack(stock)
    rest = (served.tokenizer, served.cap, options.votes)
    draws = {"generate": _stock(stock, *rest), "its attention": _ours(stock, *rest), "ours": _ours(served.model, *rest)}
    questions = first_questions(options.run or options.model.parents[1], options.questions)
    prompts = [prompt_text(served.tokenizer, text) for text in questions]
    passes: dict[str, list[float]] = {way: [] for way in WAYS}
    for way in WAYS:
        draws[way](prompts[0])  # to warm up
    for turn in range(options.rounds):
        spent, longest = dict.fromkeys(WAYS, 0.0), dict.fromkeys(WAYS, 0)
        for place, prompt in enumerate(prompts):
            first = (turn + place) % len(WAYS)
            for way in WAYS[first:] + WAYS[:first]:
                started = time.perf_counter()
                longest[way] += draws[way](prompt)
                spent[way] += time.perf_counter() - started
        for way in WAYS:
            passes[way].append(1e3 * spent[way] / longest[way])
    print(f"{options.votes} votes, {len(prompts)} questions, {options.rounds} rounds, {options.threads} threads, {options.dtype}")
    print(f"{'':14}{'ms a pass':>10}{'ratio':>8}{'lowest':>8}{'highest':>9}")
    ratios = {way: [one / other for one, other in zip(passes["generate"], passes[way], strict=True)] for way in WAYS}
    for way in WAYS:
        spread = ratios[way]
        middle = statistics.median(passes[way])
        print(f"{way:14}{middle:10.1f}{statistics.median(spread):8.2f}{min(spread):8.2f}{max(spread):9.2f}", flush=True)
    summary = {"benchmark": "votes", "votes": options.votes, "unit": "ms a pass, prompts included", "n": len(prompts)}
    summary |= {"ours": round(statistics.median(passes["ours"]), 2), "peer": round(statistics.median(passes["generate"]), 2)}
    summary |= {
        "ratio": round(statistics.median(ratios["ours"]), 2),
        "rounds": options.rounds,
        "peer_is": "transformers generate",
    }
    summary |= {"spread": [round(min(ratios["ours"]), 2), round(max(ratios["ours"]), 2)]}
    print(json.dumps(summary | {"its_attention": round(statistics.median(ratios["its attention"]), 2)}))


if __name__ == "__main__":
    main()
