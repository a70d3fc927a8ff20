"""Questions with the same worked examples before them, with what they open with kept and with all of it computed each time.

    python -m benchmarks.prefix --data DIR [--model MODEL] [--task gsm8k] [--rows 8] [--cap 64] [--batch 1] [--threads 1]

The prompts are those of ``chain_of_draft``. Both sides get the same ones, take turns at them and answer greedily; at batch 1 a
time is as in the latency of an evaluation. What is kept is computed once before, which is told apart. The last line is JSON; a
ratio above 1 means that keeping is faster.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any


def main() -> None:
    """Time both in turns, compare what they write, print the table and the line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--model", default="bundled:smollm2-135m-instruct")
    parser.add_argument("--task", default="gsm8k")
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--cap", type=int, default=64, help="most tokens of an answer")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()

    import torch

    from cirf.assets import resolve
    from cirf.evaluation.harness import hide
    from cirf.lm import backbone
    from cirf.lm.decoding import generate as decode
    from cirf.methods import get
    from cirf.recipe.schema import Backbone, Problems, Recipe, TaskEntry
    from cirf.stages import scores
    from cirf.tasks import get as get_task
    from cirf.tasks.loading.load import load_problems

    torch.set_num_threads(options.threads)
    problems = Problems(tasks=(TaskEntry(task=options.task, test=options.rows),), data=options.data, validation=0)
    recipe = Recipe(name="benchmark", problems=problems, backbone=Backbone(model=options.model, dtype=options.dtype))
    task, method = get_task(options.task), get("chain_of_draft", recipe)
    source = resolve(options.model)
    tokenizer = backbone.load_tokenizer(source, recipe.backbone)
    model = backbone.load_model(source, recipe.backbone)
    asked = load_problems(problems, recipe.seed).test[options.task]
    prompts = [backbone.prompt_text(tokenizer, method.prompt(hide(problem), task)) for problem in asked]
    encoded = [tokenizer(prompt, add_special_tokens=False).input_ids for prompt in prompts]
    prefixes: Any = scores.beginnings(method, {options.task: task}, model, tokenizer, source)
    started = time.perf_counter()
    prefixes.prepare(prompts)
    once = time.perf_counter() - started
    decode.generate(model, tokenizer, prompts[:1], 4)  # to warm up
    sides = {"kept": prefixes, "computed": None}
    seconds, first, texts = dict.fromkeys(sides, 0.0), dict.fromkeys(sides, 0.0), {name: list[str]() for name in sides}
    for turn, start in enumerate(range(0, len(prompts), options.batch)):
        batch = prompts[start : start + options.batch]
        for name in list(sides)[:: 1 if turn % 2 else -1]:
            if options.batch == 1:
                timed = decode.generate_one(model, tokenizer, batch[0], options.cap, decode.Decoding(prefixes=sides[name]))
                seconds[name] += timed.seconds
                first[name] += timed.first_token_seconds or 0.0
                texts[name].append(timed.text)
                continue
            started = time.perf_counter()
            made = decode.generate(
                model, tokenizer, batch, options.cap, decode.Decoding(prefixes=sides[name]), batch_size=options.batch
            )
            seconds[name] += time.perf_counter() - started
            texts[name] += [output.text for output in made]
    count = len(prompts)
    differing = sum(one != other for one, other in zip(*texts.values(), strict=True))
    kept = sum(prefixes.heads(encoded)) / count
    print(f"{options.model}, {count} rows of {options.task}, batch {options.batch}, {options.dtype}, {options.threads} threads")
    print(f"prompt: {sum(map(len, encoded)) / count:.0f} tokens, of which {kept:.0f} kept; computed once in {once:.2f} s")
    for name in seconds:
        until = f", to the first token {first[name] / count:.3f}" if options.batch == 1 else ""
        print(f"{name:9} {seconds[name] / count:.3f} s a question{until}")
    print(f"outputs that differ: {differing}")
    ours, peer = (seconds[name] / count for name in sides)
    summary = {"benchmark": "prefix", "ours": round(ours, 4), "peer": round(peer, 4), "ratio": round(peer / ours, 2)}
    summary |= {"unit": "s a question", "n": count, "model": options.model, "task": options.task, "batch": options.batch}
    summary |= {"kept_tokens": round(kept), "once_s": round(once, 3), "differing": differing}
    if options.batch == 1:
        summary |= {"first_token_ratio": round(first["computed"] / first["kept"], 2)}
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
