"""An evaluation in padded batches against plain ``generate`` with one question at a time.

    python -m benchmarks.evaluation --data DIR [--run RUN] [--method cirf_full] [--task gsm8k] [--rows 100] [--dtype float32]

With ``--run`` the model is that run's; otherwise the bundled Qwen2.5-Coder-0.5B with ``cot`` or ``direct``. Both sides get the
same prompts, caps, number format and threads, decode greedily and use the same parser. In 16 bits a padded batch rounds
differently from a single row, so a few answers may differ. The last line is JSON; a ratio above 1 means batches are faster.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path as File
from typing import Any

MODEL = "bundled:qwen2.5-coder-0.5b-instruct"


def _recipe(options: argparse.Namespace) -> Any:
    from cirf.recipe.load import load
    from cirf.recipe.schema import Backbone, Evaluate, Problems, Recipe, TaskEntry

    task = TaskEntry(task=options.task, test=options.rows)
    problems = Problems(tasks=(task,), data=options.data, validation=0)
    if options.run is None:
        recipe = Recipe(name="benchmark", problems=problems, backbone=Backbone(model=MODEL), evaluate=Evaluate())
    else:
        recipe = load(str(options.run / "recipe.yaml")).model_copy(update={"problems": problems})
    limits = {"batch_size": options.batch, **({} if options.cap is None else {"max_new_tokens": options.cap})}
    return recipe.model_copy(
        update={
            "backbone": recipe.backbone.model_copy(update={"dtype": options.dtype}),
            "evaluate": recipe.evaluate.model_copy(update=limits),
        }
    )


def _one_at_a_time(model: Any, tokenizer: Any, prompts: list[str], cap: int) -> list[str]:
    """The plain loop: tokenise, generate, decode."""
    import torch

    texts = []
    for prompt in prompts:
        inputs = tokenizer(prompt, return_tensors="pt", add_special_tokens=False)
        with torch.inference_mode():
            made = model.generate(
                **inputs, do_sample=False, temperature=None, top_p=None, top_k=None, repetition_penalty=1.0, max_new_tokens=cap
            )
        body = made[0, inputs["input_ids"].shape[1] :]
        end = [token for token in tokenizer.all_special_ids if token is not None]
        texts.append(tokenizer.decode([token for token in body.tolist() if token not in end]))
    return texts


def main() -> None:
    """Run both, compare their parsed answers, print the table and the line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--run", type=File)
    parser.add_argument("--method", default=None)
    parser.add_argument("--task", default="gsm8k")
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--cap", type=int, help="most tokens of a method that writes prose (default: the recipe's)")
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()
    method_name = options.method or ("cot" if options.run is None else "cirf_full")

    from cirf.evaluation.harness import hide
    from cirf.lm import backbone
    from cirf.lm.decoding import generate as decode
    from cirf.methods import get
    from cirf.stages.context import Context
    from cirf.stages.models import load_for
    from cirf.store.run_folder import RunFolder
    from cirf.tasks.loading.load import load_problems

    recipe = _recipe(options)
    context = Context(recipe, RunFolder(options.run or File(".")))
    task, method = context.tasks[options.task], get(method_name, recipe)
    problems = load_problems(recipe.problems, recipe.seed).test[options.task]
    model, tokenizer = load_for(context, method_name)
    prompts = [backbone.prompt_text(tokenizer, method.prompt(hide(problem), task)) for problem in problems]
    cap = method.cap(task, recipe.evaluate)
    decode.generate(model, tokenizer, prompts[:2], 4)  # to warm up
    _one_at_a_time(model, tokenizer, prompts[:1], 4)
    started = time.perf_counter()
    together = [output.text for output in decode.generate(model, tokenizer, prompts, cap, batch_size=recipe.evaluate.batch_size)]
    ours = time.perf_counter() - started
    started = time.perf_counter()
    alone = _one_at_a_time(model, tokenizer, prompts, cap)
    peer = time.perf_counter() - started
    read = [
        [task.parse(method.read(text)[1], hide(problem)) for text, problem in zip(texts, problems, strict=True)]
        for texts in (together, alone)
    ]
    differing = sum(one != other for one, other in zip(*read, strict=True))
    print(f"{method_name} on {len(problems)} rows of {options.task}, {options.dtype}, cap {cap}")
    print(f"batches of {recipe.evaluate.batch_size}: {ours:.1f} s   one at a time: {peer:.1f} s   ratio {peer / ours:.1f}")
    print(f"answers that differ: {differing}; outputs that differ: {sum(a != b for a, b in zip(together, alone, strict=True))}")
    summary = {"benchmark": "evaluation", "ours": round(ours, 2), "peer": round(peer, 2), "ratio": round(peer / ours, 2)}
    summary |= {
        "unit": "s",
        "n": len(problems),
        "method": method_name,
        "dtype": options.dtype,
        "batch": recipe.evaluate.batch_size,
    }
    print(json.dumps(summary | {"same_answers": differing == 0, "differing": differing}))


if __name__ == "__main__":
    main()
