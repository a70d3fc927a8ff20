"""Train on made-up long thinking: as prose, as prose without redundant steps, and as functional traces with and without them.

    python -m docs.research.long_thinking --out DIR [--seeds 1,2] [--archive DIR]

Questions are sums and differences of three one-digit numbers. Each rationale works the sum out, doubts it, checks it, and often
works it out in another order, in phrases of reasoning models. It makes no mistakes. Rows are messages with `reasoning_content`,
as endpoints return them; 400 are trained on and 500 others asked. The recipe is what `cirf init` writes. Functional traces are
trained with the last value of each step, and with all values that are used later. Finished runs are only read.

The last line is JSON: ``ours`` is the mean accuracy of functional traces without redundant steps and with all values used later,
``peer`` that of the whole prose.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import defaultdict
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from docs.research.few_rows import cirf

from cirf.commands.analyze import open_run_of
from cirf.export import archive

ROWS, TESTED = 400, 500

OPENINGS = (
    "Okay, I need to work out {sum}.",
    "Alright, so the question is {sum}. Let me go from left to right.",
    "Hmm, {sum}. Let me think step by step.",
)
DOUBTS = (
    "Wait, let me double-check that. {steps}. Yes, that is right.",
    "Wait, did I miss a sign? The sum is {sum}, so no. {steps}. Okay.",
    "But let me verify to make sure. {steps}. That matches.",
)
OTHERS = (
    "Alternatively, I could take the last number first: {other}. Same result.",
    "Another way to see it: {other}. Good, it is the same.",
)
CLOSINGS = ("Therefore, the answer is {answer}.", "So the answer is {answer}.")


def row(chance: random.Random) -> tuple[str, str, int]:
    """A question, its rationale and its answer."""
    first, second, third = (chance.randint(1, 9) for _ in range(3))
    signs = [chance.choice((1, -1)) for _ in range(2)]
    written = ["+" if sign > 0 else "-" for sign in signs]
    between, last = first + signs[0] * second, first + signs[1] * third
    answer = between + signs[1] * third
    asked = f"{first} {written[0]} {second} {written[1]} {third}"
    steps = [f"{first} {written[0]} {second} = {between}", f"{between} {written[1]} {third} = {answer}"]
    words = {
        "sum": asked,
        "steps": f"{steps[0]}, and {steps[1]}",
        "other": f"{first} {written[1]} {third} = {last}, and {last} {written[0]} {second} = {answer}",
        "answer": answer,
    }
    parts = [chance.choice(OPENINGS), f"First, {steps[0]}.", f"Then {steps[1]}.", f"So it should be {answer}."]
    parts += [chance.choice(DOUBTS)] + [chance.choice(OTHERS)] * chance.randint(0, 1) + [chance.choice(CLOSINGS)]
    return f"What is {asked}?", "\n\n".join(parts).format(**words), answer


def write_files(out: Path) -> dict[str, Path]:
    """Write the training and the test file."""
    chance = random.Random("long thinking")
    rows = {question: (thinking, answer) for question, thinking, answer in (row(chance) for _ in range(20_000))}
    questions = sorted(rows)
    chance.shuffle(questions)
    made = {"train": questions[:ROWS], "test": questions[ROWS : ROWS + TESTED]}
    for name, part in made.items():
        with (out / f"{name}.jsonl").open("w", encoding="utf-8") as file:
            for question in part:
                thinking, answer = rows[question]
                reply = {"role": "assistant", "content": str(answer), "reasoning_content": thinking}
                file.write(json.dumps({"messages": [{"role": "user", "content": question}, reply]}) + "\n")
    return {name: out / f"{name}.jsonl" for name in made}


def run(files: dict[str, Path], redundant: str, values: str, seed: int, out: Path) -> dict[str, Any]:
    """The report of a run that keeps or drops redundant steps; of the two kinds of results one has prose too."""
    if not (out / "report.json").is_file():
        recipe = out.with_name("long-thinking.yaml")
        if not recipe.is_file():
            cirf("init", files["train"], "--model", "bundled:smollm2-135m-instruct", into=recipe)
        sets = {
            "seed": seed,
            "segments.by": "function",
            "segments.redundant": redundant,
            "results.values": values,
            "problems.tasks.0.test_file": files["test"],
            "problems.tasks.0.test": TESTED,
            "evaluate.latency_questions": 0,
            "methods": "[cirf_full,sft_cot]" if values == "last" else "[cirf_full]",
        }
        cirf("run", recipe, "--out", out, *(part for name, value in sets.items() for part in ("--set", f"{name}={value}")))
    loaded: dict[str, Any] = json.loads((out / "report.json").read_text(encoding="utf-8"))
    return loaded


def main() -> None:
    """Make the files, run, print a line a method and the line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", default="1,2")
    parser.add_argument("--archive", type=Path)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    files, runs, right = write_files(options.out), {}, defaultdict(list)
    for seed in options.seeds.split(","):
        for redundant, values in product(("keep", "drop"), ("last", "used")):
            name = f"{redundant}-{values}-{seed}"
            report = run(files, redundant, values, int(seed), options.out / name)
            runs[name] = options.out / name
            for method, found in report["methods"].items():
                low, high = found["interval"]
                right[method, redundant, values].append(found["accuracy"])
                arm = f"{redundant} redundant steps, values {values}, seed {seed}, {method}"
                said = f"{arm}: {found['accuracy']:.1%} ({100 * low:.1f}-{100 * high:.1f})"
                print(f"{said}, {found['tokens']:.1f} tokens, {found['truncated']:.1%} truncated", flush=True)
    if options.archive is not None:
        archive.write([open_run_of(folder, name=name) for name, folder in runs.items()], options.archive)
    ours, peer = (fmean(right[arm]) for arm in (("cirf_full", "drop", "used"), ("sft_cot", "keep", "last")))
    summary = {"benchmark": "long_thinking", "ours": ours, "peer": peer, "ratio": ours / max(peer, 1e-9)}
    print(json.dumps(summary | {"unit": "accuracy", "n": len(runs)}))


if __name__ == "__main__":
    main()
