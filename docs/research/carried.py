"""Do functional tokens without results carry anything, after a warm-up in which only they see the rationale?

    python -m docs.research.carried [--seed 1] [--rows 1200] [--test 500] [--epochs 4] [--model bundled:smollm2-135m-instruct]

Three models learn synthetic sums with equally many updates: ``direct`` writes the answer at once, ``bare`` functional tokens
before it, and ``carried`` the same after a warm-up (as Abstract-CoT, arXiv 2604.22709). In the warm-up the rationale is between
the question and the functional tokens, which attend to it; the answer attends to the question and the functional tokens only.
The second half of the updates is `bare`'s training, without the rationale. In the paper the model's own tokens are learned there;
here they are those of the codebook, in both halves.

``warm`` is the share of right training answers after the warm-up, with the rationale before the functional tokens: whether these
carry the result at all. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from statistics import fmean
from typing import Any

import torch

import cirf
from cirf.evaluation.harness import judge
from cirf.lm.prompt import end_token, prompt_text
from cirf.statistics import compare, describe_difference
from cirf.tasks.benchmarks.made import CHAIN_SUM
from cirf.tasks.loading import generated

BATCH, RATE = 4, 4e-4
TRAINING: dict[str, Any] = {"adaptation": "full", "learning_rate": RATE, "batch_size": BATCH, "gradient_accumulation_steps": 1}


def sums(split: str, count: int, seed: int) -> list[Any]:
    """Sums and differences of three or four one-digit numbers, with worked solutions."""
    options = generated.settle(CHAIN_SUM, {"max_terms": 4, "max_digits": 1})
    return generated.draw(CHAIN_SUM, "chain_sum", split, seed=seed, count=count, options=options)


def joined(tokenizer: Any, problem: Any, trace: Any) -> tuple[list[int], int, int, int]:
    """Ids of question, rationale, functional tokens and answer, and where the last three begin; the answer begins with the
    closing delimiter."""
    prompt = prompt_text(tokenizer, trace["prompt"])
    question, opening = prompt[: -len("<cirf>")], "<cirf>"
    codes, _, answer = trace["completion"].partition("</cirf>")
    parts = [question, problem.rationale + "\n", opening + codes, "</cirf>" + answer]
    ids = [tokenizer(part, add_special_tokens=False).input_ids for part in parts]
    places = [sum(map(len, ids[:end])) for end in (1, 2, 3)]
    return [*(token for part in ids for token in part), end_token(tokenizer)], places[0], places[1], places[2]


def batch_of(rows: Sequence[tuple[list[int], int, int, int]], padding: int) -> dict[str, torch.Tensor]:
    """Ids and labels [b x s] and the additive mask [b x 1 x s x s] that hides the rationale from the answer."""
    longest = max(len(ids) for ids, *_ in rows)
    ids, labels = torch.full((len(rows), longest), padding), torch.full((len(rows), longest), -100)
    hidden = torch.ones(longest, longest, dtype=torch.bool).triu(1).repeat(len(rows), 1, 1, 1)
    for row, (own, rationale, codes, answer) in enumerate(rows):
        ids[row, : len(own)] = torch.tensor(own)
        labels[row, codes + 1 : len(own)] = ids[row, codes + 1 : len(own)]
        hidden[row, 0, answer:, rationale:codes] = True
    return {"input_ids": ids, "labels": labels, "attention_mask": torch.zeros(hidden.shape).masked_fill(hidden, -1e9)}


def warm_up(model: Any, rows: list[tuple[list[int], int, int, int]], updates: int, padding: int, seed: int) -> None:
    """Train all weights on the rows with `batch_of`'s mask, at a rate that falls to zero."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.1)
    order: list[tuple[list[int], int, int, int]] = []
    chance = random.Random(seed)
    model.train()
    for update in range(updates):
        for group in optimiser.param_groups:
            group["lr"] = RATE * min(1.0, (update + 1) / 20) * (1 - update / updates)
        if len(order) < BATCH:
            order = chance.sample(rows, len(rows))
        loss = model(**batch_of([order.pop() for _ in range(BATCH)], padding), use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
        if update % 50 == 0:
            print(f"warm-up {update}/{updates}: loss {loss.item():.3f}", flush=True)
    model.eval()


@torch.no_grad()
def carried_share(model: Any, rows: Sequence[tuple[list[int], int, int, int]], padding: int) -> float:
    """Share of rows in which every token of the answer is the most likely one, with the rationale hidden from it."""
    right = 0
    for start in range(0, len(rows), 16):
        some = rows[start : start + 16]
        batch = batch_of(some, padding)
        top = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], use_cache=False).logits.argmax(-1)
        for row, (ids, _, _, answer) in enumerate(some):
            right += top[row, answer : len(ids) - 1].tolist() == ids[answer + 1 :]
    return right / len(rows)


def answers(model: Any, tokenizer: Any, test: list[Any], traces: list[Any], epochs: float, seed: int) -> dict[str, float]:
    """Train on the traces for ``epochs``, and the verdict on each test question."""
    model, _ = cirf.train(model, tokenizer, traces, epochs=epochs, seed=seed, **TRAINING)
    written = cirf.generate(model, tokenizer, test, max_new_tokens=24)
    verdicts = [judge(answer.answer, problem, CHAIN_SUM)[1] for answer, problem in zip(written, test, strict=True)]
    print(f"{fmean(verdicts):.1%} right, {fmean(answer.tokens for answer in written):.1f} tokens", flush=True)
    return {problem.id: float(right) for problem, right in zip(test, verdicts, strict=True)}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rows", type=int, default=1200)
    parser.add_argument("--test", type=int, default=500)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--model", default="bundled:smollm2-135m-instruct")
    asked = parser.parse_args(arguments)
    train, test = sums("train", asked.rows, asked.seed), sums("test", asked.test, asked.seed)
    steps = cirf.cut_rationales(train)
    vectors = cirf.embed_steps(steps)
    direct: list[Any] = [{"prompt": problem.question, "completion": problem.answer} for problem in train]
    found = {}
    for arm in ("direct", "bare", "carried"):
        model, tokenizer = cirf.load(asked.model, dtype="float32")
        traces: list[Any] = direct
        epochs = float(asked.epochs)
        if arm != "direct":
            width = model.get_input_embeddings().embedding_dim
            codebook, codes = cirf.fit_codebook(vectors, width, size=8, seed=asked.seed)
            traces = [*cirf.write_traces(train, steps, codes, results=[[""] * len(row) for row in steps])]
            cirf.extend_model(model, tokenizer, codebook, traces, seed=asked.seed)
        if arm == "carried":
            rows = [joined(tokenizer, problem, trace) for problem, trace in zip(train, traces, strict=True)]
            warm_up(model, rows, round(epochs / 2 * len(rows) / BATCH), end_token(tokenizer), asked.seed)
            share, epochs = carried_share(model, rows[:200], end_token(tokenizer)), epochs / 2
            print(f"warm: {share:.1%} of training answers", flush=True)
        found[arm] = answers(model, tokenizer, test, traces, epochs, asked.seed)
    gaps = {
        f"{a} - {b}": compare(found[a], found[b]) for a, b in (("carried", "direct"), ("carried", "bare"), ("bare", "direct"))
    }
    for name, gap in gaps.items():
        print(describe_difference(gap, *name.split(" - ")))
    right = {name: sum(rows.values()) / len(rows) for name, rows in found.items()}
    print(
        json.dumps(
            {"n": asked.test, "right": right, "warm": share, "differences": {name: gap.to_dict() for name, gap in gaps.items()}}
        )
    )


if __name__ == "__main__":
    main()
