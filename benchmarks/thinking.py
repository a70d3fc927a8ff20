"""A task where thoughts are needed: the parity of a chain, by a small model that is trained from nothing.

    python -m benchmarks.thinking --out DIR [--seeds 1 2 3]

A question is ``a1b0c1d0e1f1g0...l1``: who turns the coin, and who does not; those from g on only stand by. A step is the
parity so far, ``a1``, ``b1``, ``c0``, and the answer that of the last, ``f``. No question of the test is among those
learned. ``coconut`` learns with a thought for every step that is gone, beginning with whole rationales; ``direct_sft``
learns the answers alone. Both are the same model, trained on the same rows for as many updates at the same learning rate.
Then every test question is given the thoughts of another (``swap``): where the model answers from them, it falls to
chance.

A model folder, rows and a recipe are written for every seed and run by `cirf`, which goes on after a kill. The last line is JSON;
its ratio is that of the accuracies of all seeds together.
"""

from __future__ import annotations

import argparse
import json
import random
from itertools import accumulate
from pathlib import Path as File
from typing import Any

SIGNS = ["<end>", "<unk>", *"01 \n#>="]
TEMPLATE = (
    "{% for message in messages %}{{ ('>' if message['role'] == 'user' else '=') + message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}{% if add_generation_prompt %}={% endif %}"
)
WIDTH, LAYERS, HEADS = 64, 2, 4
LETTERS, CHAIN = "abcdefghijkl", 6
TRAIN, TEST = 1536, 512
UPDATES, BATCH = 1500, 32


def write_model(folder: File, seed: int) -> None:
    """A model of 0.1 M random weights, whose tokens are ``a0``, ``a1``, ``b0`` ... and a few signs."""
    import torch
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = [*SIGNS, *(letter + bit for letter in LETTERS for bit in "01")]
    core = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Split(Regex(r"[a-z][01]|[\s\S]"), "isolated")
    core.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<end>", unk_token="<unk>", pad_token="<end>")
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(words) + 2,
        hidden_size=WIDTH,
        intermediate_size=4 * WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        max_position_embeddings=256,
        initializer_range=0.1,  # rows as long as in a wide model
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=0,
    )
    LlamaForCausalLM(config).save_pretrained(folder)


def write_rows(folder: File, seed: int) -> None:
    """Questions to learn from and others to test on, drawn from all there are."""
    rows = []
    for number in random.Random(f"thinking {seed}").sample(range(2 ** len(LETTERS)), TRAIN + TEST):
        bits = [number >> place & 1 for place in range(len(LETTERS))]
        sums = list(accumulate(bits[:CHAIN], lambda one, other: one ^ other))
        steps = [f"{letter}{value}" for letter, value in zip(LETTERS[:CHAIN], sums, strict=True)]
        question = "".join(f"{letter}{bit}" for letter, bit in zip(LETTERS, bits, strict=True))
        rows.append(json.dumps({"question": question, "answer": str(sums[-1]), "rationale": "\n".join(steps)}) + "\n")
    (folder / "train.jsonl").write_text("".join(rows[:TRAIN]))
    (folder / "test.jsonl").write_text("".join(rows[TRAIN:]))


def recipe(folder: File, seed: int) -> dict[str, Any]:
    """Both methods under one schedule; one step after the other gives way to a thought, all of them by four fifths of it."""
    task = {"task": "jsonl", "name": "parity", "train_file": str(folder / "train.jsonl"), "test_file": str(folder / "test.jsonl")}
    settings = {"start": "backbone", "stages": CHAIN - 1, "thoughts": 1, "done_by": 0.8, "fresh_optimizer": "never"}
    training = {"adaptation": "full", "epochs": UPDATES * BATCH / TRAIN, "batch_size": BATCH, "accumulation": 1, "bf16": False}
    training |= {"learning_rate": 2.0e-3, "warmup_steps": 50, "schedule": "constant", "beta2": 0.98, "save_every": 500}
    return {
        "name": f"thinking-{seed}",
        "seed": seed,
        "methods": ["coconut", "direct_sft"],
        "variants": {"coconut": {"settings": settings}},
        "backbone": {"model": str(folder / "model"), "dtype": "float32", "device": "cpu", "threads": 1},
        "problems": {"tasks": [task], "validation": 0.02},
        "segments": {"by": "line"},
        "finetune": training | {"evaluate_every": 200},
        "evaluate": {"batch_size": 64, "latency_items": 0, "probes": {"kinds": ["drop", "shuffle", "swap"]}},
    }


def measured(folder: File, seed: int) -> dict[str, Any]:
    """Run one seed and read its report."""
    from cirf.commands.running import opened, print_probes, print_table
    from cirf.recipe import Recipe
    from cirf.report.collect import collect
    from cirf.run import execute

    if not (folder / "train.jsonl").is_file():
        write_model(folder / "model", seed)
        write_rows(folder, seed)
    execute(opened(Recipe.model_validate(recipe(folder, seed)), folder / "run", False))
    data = collect(folder / "run")
    print_table(data)
    print_probes(data["probes"])
    swap = data["probes"]["coconut"]["probes"]["swap"]
    found = {**data["methods"], "swap": swap}
    told: dict[str, Any] = {name: {key: row[key] for key in ("accuracy", "interval", "n")} for name, row in found.items()}
    gain = data["comparisons"]["direct_sft"]
    told["gain"] = {key: gain[key] for key in ("difference", "interval", "p")}
    told["as_partner"] = swap["as_partner"]
    seconds = {name: data["training"][name]["timings"]["training_seconds"] for name in data["methods"]}
    return {"seed": seed, **told, "training_seconds": seconds}


def main() -> None:
    """Run every seed, print the tables and the line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=File, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    options = parser.parse_args()
    rows = [measured(options.out.resolve() / str(seed), seed) for seed in options.seeds]
    n = sum(row["swap"]["n"] for row in rows)
    means = {name: sum(row[name]["accuracy"] * row[name]["n"] for row in rows) / n for name in ("coconut", "direct_sft", "swap")}
    ours, peer = means["coconut"], means["direct_sft"]
    told = {"benchmark": "thinking", "ours": round(ours, 4), "peer": round(peer, 4), "ratio": round(ours / peer, 2)}
    print(json.dumps(told | {"unit": "accuracy", "n": n, "swapped": round(means["swap"], 4), "seeds": rows}))


if __name__ == "__main__":
    main()
