"""A task where thoughts are needed: the parity of a chain, by a small model that is trained from nothing.

    python -m benchmarks.thinking --out DIR [--seeds 1 2 3] [--bits 8] [--epochs 250]

A question is ``a1b0c1``: who turns the coin, and who does not. A step is the parity so far, ``a1``, ``b1``, ``c0``; the answer is
that of the last. No question of the test is among those learned. ``coconut`` learns with a thought for every step that is gone,
beginning with whole rationales; ``direct_sft`` learns the answers alone. Both are the same model, trained on the same rows for as
many updates at the same learning rate. Then every test question is given the thoughts of another (``swap``): where the model
answers from them, it falls to chance.

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


def write_model(folder: File, letters: str, seed: int) -> None:
    """A model of 0.1 M random weights, whose tokens are ``a0``, ``a1``, ``b0`` ... and a few signs."""
    import torch
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = [*SIGNS, *(letter + bit for letter in letters for bit in "01")]
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


def write_rows(folder: File, letters: str, seed: int) -> None:
    """Half of all chains to learn from, the others to test on."""
    numbers = list(range(2 ** len(letters)))
    random.Random(f"thinking {seed}").shuffle(numbers)
    rows = []
    for number in numbers:
        bits = [number >> place & 1 for place in range(len(letters))]
        sums = list(accumulate(bits, lambda one, other: one ^ other))
        steps = [f"{letter}{value}" for letter, value in zip(letters, sums, strict=True)]
        question = "".join(f"{letter}{bit}" for letter, bit in zip(letters, bits, strict=True))
        rows.append(json.dumps({"question": question, "answer": str(sums[-1]), "rationale": "\n".join(steps)}) + "\n")
    half = len(rows) // 2
    (folder / "train.jsonl").write_text("".join(rows[:half]))
    (folder / "test.jsonl").write_text("".join(rows[half:]))


def recipe(folder: File, bits: int, seed: int, epochs: float, threads: int) -> dict[str, Any]:
    """Both methods under one schedule; all steps but the last are replaced by one thought each, one stage after the other."""
    task = {"task": "jsonl", "name": "parity", "train_file": str(folder / "train.jsonl"), "test_file": str(folder / "test.jsonl")}
    settings = {"start": "backbone", "stages": bits - 1, "thoughts": 1, "done_by": 0.8, "fresh_optimizer": "never"}
    training = {"adaptation": "full", "epochs": epochs, "batch_size": 32, "accumulation": 1, "learning_rate": 3.0e-3}
    training |= {"warmup_steps": 50, "beta2": 0.98, "bf16": False, "evaluate_every": 200, "save_every": 500}
    return {
        "name": f"thinking-{seed}",
        "seed": seed,
        "methods": ["coconut", "direct_sft"],
        "variants": {"coconut": {"settings": settings}},
        "backbone": {"model": str(folder / "model"), "dtype": "float32", "device": "cpu", "threads": threads},
        "problems": {"tasks": [task], "validation": 0.02},
        "segments": {"by": "line"},
        "finetune": training,
        "evaluate": {"batch_size": 64, "latency_items": 0, "probes": {"kinds": ["drop", "shuffle", "swap"]}},
    }


def measured(folder: File, bits: int, seed: int, epochs: float, threads: int) -> dict[str, Any]:
    """Run one seed and read its report."""
    from cirf.commands.running import opened, print_probes, print_table
    from cirf.recipe import Recipe
    from cirf.report.collect import collect
    from cirf.run import execute

    letters = "abcdefghijklmnopqrstuvwxyz"[:bits]
    if not (folder / "train.jsonl").is_file():
        write_model(folder / "model", letters, seed)
        write_rows(folder, letters, seed)
    execute(opened(Recipe.model_validate(recipe(folder, bits, seed, epochs, threads)), folder / "run", False))
    data = collect(folder / "run")
    print_table(data)
    print_probes(data["probes"])
    seconds = {name: data["training"][name]["timings"]["training_seconds"] for name in data["methods"]}
    swap = data["probes"]["coconut"]["probes"]["swap"]
    kept = ("accuracy", "interval", "n")
    told = {name: {key: row[key] for key in kept} for name, row in (*data["methods"].items(), ("swap", swap))}
    pair = data["comparisons"]["direct_sft"]
    return told | {"seed": seed, "gain": {key: pair[key] for key in ("difference", "interval", "p")}, "training_seconds": seconds}


def main() -> None:
    """Run every seed, print the tables and the line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=File, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--bits", type=int, default=8)
    parser.add_argument("--epochs", type=float, default=250)
    parser.add_argument("--threads", type=int, default=1, help="a small model is no faster on more")
    options = parser.parse_args()
    rows = [
        measured(options.out.resolve() / str(seed), options.bits, seed, options.epochs, options.threads) for seed in options.seeds
    ]
    n = sum(row["swap"]["n"] for row in rows)
    means = {name: sum(row[name]["accuracy"] * row[name]["n"] for row in rows) / n for name in ("coconut", "direct_sft", "swap")}
    ours, peer = means["coconut"], means["direct_sft"]
    told = {"benchmark": "thinking", "ours": round(ours, 4), "peer": round(peer, 4), "ratio": round(ours / peer, 2)}
    told |= {"unit": "accuracy", "n": n, "bits": options.bits, "swapped": round(means["swap"], 4), "seeds": rows}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
