"""Answers of a latent-reasoning model in padded batches against one question at a time, from text to answer.

    python -m benchmarks.latent --data DIR [--run RUN --method coconut] [--task gsm8k] [--rows 64] [--batch 16] [--rounds 5]

With ``--run`` the model is that run's, prompted as in training. Otherwise a bundled model or ``--model`` gets new marker tokens
and ``--thoughts`` latent steps without training. Its output is meaningless, but a latent step takes the same time. It rarely ends
before its cap, by default the task's. Both sides run in one process with the same prompts, cap, number format and threads, and
alternate batch by batch. Every round asks all rows; the median round counts. In 16 bits a padded batch rounds differently from a
single row, so a few answers may differ. The last line is JSON; a ratio above 1 means that batches are faster.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path as File
from typing import Any, NamedTuple


class _Side(NamedTuple):
    """A model with its prompts and settings."""

    model: Any
    tokenizer: Any
    thinking: Any
    prompts: list[str]
    cap: int
    summary: str


def _of_run(options: argparse.Namespace) -> _Side:
    """A method of a run, with the latent steps it was trained with."""
    from cirf.evaluation.harness import hide
    from cirf.lm.backbone import prompt_text
    from cirf.methods import get
    from cirf.recipe.load import load
    from cirf.stages.context import Context
    from cirf.stages.models import load_for, source_of
    from cirf.store.run_folder import RunFolder

    recipe = load(str(options.run / "recipe.yaml"))
    recipe = recipe.model_copy(update={"backbone": recipe.backbone.model_copy(update={"dtype": options.dtype})})
    context = Context(recipe, RunFolder(options.run))
    model, tokenizer = load_for(context, options.method)
    method, (task, problems) = get(options.method, recipe), _asked(options)
    thinking = method.beginnings(model, tokenizer, source_of(context, options.method))
    if thinking is None:
        raise SystemExit(f"--method {options.method}: it does not reason in vectors")
    prompts = [prompt_text(tokenizer, method.prompt(hide(problem), task)) for problem in problems]
    cap = options.cap or method.cap(task, recipe.evaluate)
    return _Side(model, tokenizer, thinking, prompts, cap, f"{options.run}, {options.method}")


def _untrained(options: argparse.Namespace) -> _Side:
    """A model with new, untrained marker tokens."""
    from cirf.assets import resolve
    from cirf.evaluation.harness import hide
    from cirf.lm import backbone, vocabulary
    from cirf.methods.base import at_head_of_answer
    from cirf.methods.latent.decode import LatentPrefiller, LatentSettings
    from cirf.recipe.schema import Backbone

    section, source = Backbone(model=options.model, dtype=options.dtype), resolve(options.model)
    tokenizer = backbone.load_tokenizer(source, section)
    model = backbone.load_model(source, section)
    latent = LatentSettings("<latent>", "</latent>", options.thoughts)
    vocabulary.add_tokens(model, tokenizer, (latent.begin, latent.end))
    tokenizer.chat_template = at_head_of_answer(tokenizer.chat_template, latent.begin)
    task, problems = _asked(options)
    prompts = [backbone.prompt_text(tokenizer, task.render(hide(problem))) for problem in problems]
    summary = f"{options.model} in {latent.count} thoughts that it never learned"
    return _Side(model, tokenizer, LatentPrefiller(model, tokenizer, latent), prompts, options.cap or task.cap, summary)


def _asked(options: argparse.Namespace) -> tuple[Any, list[Any]]:
    """The task and its first rows."""
    from cirf.recipe.schema import Problems, TaskEntry
    from cirf.tasks import get
    from cirf.tasks.loading.load import load_problems

    entry = TaskEntry(task=options.task, test=options.rows)
    return get(options.task), load_problems(Problems(tasks=(entry,), data=options.data, validation=0), 1).test[options.task]


def _round(asked: _Side, sizes: list[int], largest: int) -> tuple[dict[int, float], dict[int, list[Any]]]:
    """All rows once by each side, alternating batch by batch: seconds and outputs by batch size."""
    from cirf.lm.decoding import generate as decode

    seconds, written = dict.fromkeys(sizes, 0.0), {size: list[Any]() for size in sizes}
    for turn, start in enumerate(range(0, len(asked.prompts), largest)):
        batch = asked.prompts[start : start + largest]
        for size in sizes[:: 1 if turn % 2 else -1]:
            started = time.perf_counter()
            written[size] += decode.generate(
                asked.model, asked.tokenizer, batch, asked.cap, decode.Decoding(prefixes=asked.thinking), batch_size=size
            )
            seconds[size] += time.perf_counter() - started
    return seconds, written


def main() -> None:
    """Time both in turns, compare what they write, print the table and the line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="mirrored data sets; a generated task needs none")
    parser.add_argument("--run", type=File)
    parser.add_argument("--method", default="coconut")
    parser.add_argument("--model", default="bundled:smollm2-135m-instruct")
    parser.add_argument("--thoughts", type=int, default=6, help="of a model that was not trained to think")
    parser.add_argument("--task", default="gsm8k")
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--cap", type=int, help="most tokens of an answer (default: the method's or the task's)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--rounds", type=int, default=5, help="all rows so many times, each a ratio of its own")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds: at least 1")

    import torch

    from cirf.lm.decoding import generate as decode

    torch.set_num_threads(options.threads)
    asked = _untrained(options) if options.run is None else _of_run(options)
    model, tokenizer, thinking, prompts, cap, label = asked
    prompts.sort(key=lambda prompt: -len(tokenizer(prompt, add_special_tokens=False).input_ids))  # as an evaluation's batches
    sides = {options.batch: f"batches of {options.batch}", 1: "one at a time"}
    for size in sides:  # to warm up
        decode.generate(model, tokenizer, prompts[:size], 4, decode.Decoding(prefixes=thinking), batch_size=size)
    rounds = [_round(asked, list(sides)[:: 1 if number % 2 else -1], options.batch) for number in range(options.rounds)]
    seconds = {size: statistics.median(taken[size] for taken, _ in rounds) for size in sides}
    ratios = sorted(taken[1] / taken[options.batch] for taken, _ in rounds)
    written = rounds[0][1]
    together, alone = written[options.batch], written[1]
    differing = sum(one.ids != other.ids for one, other in zip(together, alone, strict=True))
    count = len(prompts)
    tokens = sum(output.tokens for output in alone) / count
    print(f"{label}: {count} rows of {options.task}, cap {cap}, {tokens:.1f} tokens an answer")
    for size, name in sides.items():
        print(f"{name:15} {seconds[size] / count:.3f} s a question")
    print(f"{options.dtype}, {options.threads} threads; outputs that differ: {differing}")
    ours, peer = seconds[options.batch] / count, seconds[1] / count
    ratio = statistics.median(ratios)
    print(f"ratio {ratio:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f} in {len(ratios)} rounds)")
    summary = {"benchmark": "latent", "ours": round(ours, 4), "peer": round(peer, 4), "ratio": round(ratio, 2)}
    summary |= {"ratio_low": round(ratios[0], 2), "ratio_high": round(ratios[-1], 2), "rounds": len(ratios)}
    summary |= {"unit": "s a question", "n": count, "model": label, "task": options.task, "batch": options.batch}
    summary |= {"tokens": round(tokens, 1), "cap": cap, "dtype": options.dtype, "threads": options.threads}
    print(json.dumps(summary | {"same_outputs": differing == 0, "differing": differing}))


if __name__ == "__main__":
    main()
