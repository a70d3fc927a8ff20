"""One answer at a time: `cirf ask` and `cirf serve` against plain `generate` of transformers, with the same answers.

    python -m benchmarks.decoding --model RUN/models/cirf_full [--run RUN] [--questions 20] [--rounds 5] [--threads 2]

The questions are the first of the run's test problems, equally many of each task (``--run``; default: the model's own run). Both
sides answer each question in turn: plain ``generate`` on the model as transformers loads it, and ours. Times are from the
prompt's text to the last token. The floor is the time to read the saved weights that a token needs, at the bandwidth measured
with a sum over as many bytes. The last line is JSON; a ratio above 1 means ours is faster.

In float32 packed weights round differently, so an answer may differ at a near tie. Such answers are counted, with the difference
between the two tokens.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path as File
from typing import Any

WAYS: tuple[str, ...] = ("generate", "ours")


def plain_model(folder: File, dtype: str) -> Any:
    """The model as a stock script loads it."""
    from importlib import import_module

    import torch

    loaded = import_module("transformers").AutoModelForCausalLM.from_pretrained(str(folder), dtype=getattr(torch, dtype))
    return loaded.eval()


def _stock(model: Any, tokenizer: Any, cap: int) -> Callable[[str], tuple[int, ...]]:
    """Generate as a stock script does; returns the generated ids."""
    import torch

    from cirf.lm.prompt import stop_ids

    stops = stop_ids(model, tokenizer)
    how = {"do_sample": False, "max_new_tokens": cap, "eos_token_id": stops, "pad_token_id": stops[0]}
    for name in ("temperature", "top_p", "top_k", "repetition_penalty"):
        if hasattr(model.generation_config, name):
            setattr(model.generation_config, name, None)

    def answer(prompt: str) -> tuple[int, ...]:
        given = tokenizer(prompt, add_special_tokens=False, return_tensors="pt")
        with torch.inference_mode():
            made = model.generate(**given, **how)
        return tuple(made[0, given["input_ids"].shape[1] :].tolist())

    return answer


def _ours(served: Any, cap: int) -> Callable[[str], tuple[int, ...]]:
    from cirf.lm.decoding.generate import generate_one

    return lambda prompt: generate_one(served.model, served.tokenizer, prompt, cap).ids


def bandwidth(size: int, times: int = 5) -> float:
    """Memory bandwidth in bytes a second: the sum of a large array, best of ``times``."""
    import torch

    values = torch.ones(size // 4)
    best = float("inf")
    for _ in range(times):
        started = time.perf_counter()
        values.sum()
        best = min(best, time.perf_counter() - started)
    return size / best


def first_questions(run: File, number: int) -> list[str]:
    """Questions of the run's first test problems, equally many of each task."""
    from cirf.store.jsonl import read_rows

    tests = [read_rows(path) for path in sorted((run / "problems" / "test").glob("*.jsonl"))]
    share = -(-number // len(tests))
    return [problem["question"] for rows in tests for problem in rows[:share]][:number]


def weights_read(model: Any) -> int:
    """Bytes of the weights that one token needs: all but the rows of the input embeddings that are not looked up."""
    inputs, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    every = sum(value.nbytes for value in model.parameters())
    return int(every if inputs.data_ptr() == head.data_ptr() else every - inputs.nbytes)


def _gap(model: Any, tokenizer: Any, prompt: str, one: tuple[int, ...], other: tuple[int, ...]) -> float:
    """Difference in nats between the first tokens at which two answers differ, in float32."""
    import torch

    place = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)) - 1)
    ids = tokenizer(prompt, add_special_tokens=False).input_ids + list(one[:place])
    with torch.inference_mode():
        scores = model(input_ids=torch.tensor([ids])).logits[0, -1].float()
    return float((scores[one[place]] - scores[other[place]]).abs())


def main() -> None:
    """Time all ways in turns, compare what they write, print the table and the line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=File, required=True)
    parser.add_argument("--run", type=File, help="whose test problems are asked (default: two folders above the model)")
    parser.add_argument("--questions", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--cap", type=int, help="most tokens of an answer (default: the model's own)")
    options = parser.parse_args()

    import torch

    from cirf.lm.prompt import prompt_text
    from cirf.serving.model import load_served

    torch.set_num_threads(options.threads)
    served = load_served(options.model)
    cap = options.cap or served.cap
    plain = plain_model(options.model, options.dtype)
    answers = {
        "generate": _stock(plain, served.tokenizer, cap),
        "ours": _ours(served, cap),
    }
    questions = first_questions(options.run or options.model.parents[1], options.questions)
    prompts = [prompt_text(served.tokenizer, text) for text in questions]
    written = {way: [answers[way](prompt) for prompt in prompts] for way in WAYS}  # and to warm up
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    for turn in range(options.rounds):
        spent = dict.fromkeys(WAYS, 0.0)
        for place, prompt in enumerate(prompts):
            for way in WAYS[(turn + place) % len(WAYS) :] + WAYS[: (turn + place) % len(WAYS)]:
                started = time.perf_counter()
                answers[way](prompt)
                spent[way] += time.perf_counter() - started
        for way in WAYS:
            seconds[way].append(spent[way])
    tokens = {way: sum(map(len, written[way])) for way in WAYS}
    read = weights_read(plain)
    rate = bandwidth(min(read, 2**30))
    floor = read / rate
    print(f"{len(prompts)} questions, {options.rounds} rounds, {options.threads} threads, {options.dtype}")
    print(f"{'':10}{'ms a token':>11}{'ratio':>8}{'lowest':>8}{'highest':>9}{'same answers':>14}")
    ratios = {way: [one / other for one, other in zip(seconds["generate"], seconds[way], strict=True)] for way in WAYS}
    parted = {way: [n for n in range(len(prompts)) if written[way][n] != written["generate"][n]] for way in WAYS}
    for way in WAYS:
        spread = ratios[way]
        print(
            f"{way:10}{1e3 * statistics.median(seconds[way]) / tokens[way]:11.1f}{statistics.median(spread):8.2f}"
            f"{min(spread):8.2f}{max(spread):9.2f}{len(prompts) - len(parted[way]):10} / {len(prompts)}",
            flush=True,
        )
    gaps = [_gap(plain, served.tokenizer, prompts[n], written["generate"][n], written["ours"][n]) for n in parted["ours"]]
    if gaps:
        print(f"differing answers first differ between tokens at most {max(gaps):.3f} nats apart")
    print(f"floor: {read / 1e9:.2f} GB of weights at {rate / 1e9:.1f} GB/s: {1e3 * floor:.1f} ms for a pass")
    print(
        json.dumps(
            {
                "benchmark": "decoding",
                "ours": round(1e3 * statistics.median(seconds["ours"]) / tokens["ours"], 2),
                "peer": round(1e3 * statistics.median(seconds["generate"]) / tokens["generate"], 2),
                "ratio": round(statistics.median(ratios["ours"]), 2),
                "spread": [round(min(ratios["ours"]), 2), round(max(ratios["ours"]), 2)],
                "unit": "ms a token, prompts included",
                "n": len(prompts),
                "rounds": options.rounds,
                "floor": round(1e3 * floor, 2),
                "same": len(prompts) - len(parted["ours"]),
                "peer_is": "transformers generate",
            }
        )
    )


if __name__ == "__main__":
    main()
