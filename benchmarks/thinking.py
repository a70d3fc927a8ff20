"""A task where thoughts are needed: a coin that is handed on, by a small model that is trained from nothing.

    python -m benchmarks.thinking --out DIR [--seeds 1 2 3]

A question is ``ad1be0cf0da1ec0fb1c0``: a hands the coin to d and turns it over, b to e and does not, and so on; c has it first,
heads up (0). Who has it when four have handed it on, and how does it lie? A step is that after each of them, ``f0``, ``b1``, and
the answer is the last. Each step looks up what the one before has found, and two layers are too few to take all four at once.
(The parity of a row of bits is no such task: models that learned it with thoughts answered nearly as well with those of other
questions.)

``coconut`` goes on from ``sft_cot`` with two thoughts for every step that is gone; ``direct_sft`` learns the answers alone. Both
are the same model at first, trained on the same rows for as many updates, those of ``sft_cot`` counted; no question of the test
is among them. Then every test question is given the thoughts of another (``swap``): answers that hang on them fall to chance, one
in twelve.

A model folder, rows and a recipe are written for every seed and run by `cirf`, which goes on after a kill. The last line is JSON;
its ratio is that of the accuracies of all seeds together.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path as File
from typing import Any

PEOPLE, HANDINGS = "abcdef", 4
SIGNS = ["<end>", "<unk>", *"01 \n#>="]
TEMPLATE = (
    "{% for message in messages %}{{ ('>' if message['role'] == 'user' else '=') + message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}{% if add_generation_prompt %}={% endif %}"
)
WIDTH, LAYERS, HEADS, SCALE = 64, 2, 4, 0.25
TRAIN, TEST = 4096, 512
EPOCHS = {"sft_cot": 5.0, "coconut": 10.0, "direct_sft": 15.0}


def write_model(folder: File, seed: int) -> None:
    """A model of 0.1 M random weights that reads who hands on to whom, and who has the coin, in a token each.

    Its last norm begins as small as its embeddings, so that a state fed back is as long as the row of a token.
    """
    import torch
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    handed = [giver + taker + turn for giver in PEOPLE for taker in PEOPLE for turn in "01"]
    words = [*SIGNS, *handed, *(holder + side for holder in PEOPLE for side in "01")]
    core = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Split(Regex(r"[a-z][a-z][01]|[a-z][01]|[\s\S]"), "isolated")
    core.decoder = decoders.Fuse()
    names = {"eos_token": "<end>", "unk_token": "<unk>", "pad_token": "<end>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, **names)  # type: ignore[no-untyped-call]
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
        initializer_range=0.1,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=0,
    )
    model = LlamaForCausalLM(config)
    torch.nn.init.normal_(model.model.embed_tokens.weight, std=SCALE)
    torch.nn.init.constant_(model.model.norm.weight, SCALE)
    model.save_pretrained(folder)


def write_rows(folder: File, seed: int) -> None:
    """Questions to learn from and others to test on. Nobody hands the coin to himself, and each takes it from one."""
    draw, rows = random.Random(f"thinking {seed}"), dict[str, str]()
    while len(rows) < TRAIN + TEST:
        takers = draw.sample(PEOPLE, len(PEOPLE))
        if any(giver == taker for giver, taker in zip(PEOPLE, takers, strict=True)):
            continue
        turns = [draw.randrange(2) for _ in PEOPLE]
        handed = [giver + taker + str(turn) for giver, taker, turn in zip(PEOPLE, takers, turns, strict=True)]
        holder, side, steps = draw.choice(PEOPLE), 0, list[str]()
        question = "".join((*draw.sample(handed, len(handed)), holder + str(side)))
        for _ in range(HANDINGS):
            place = PEOPLE.index(holder)
            holder, side = takers[place], side ^ turns[place]
            steps.append(f"{holder}{side}")
        rows[question] = json.dumps({"question": question, "answer": steps[-1], "rationale": "\n".join(steps)}) + "\n"
    lines = list(rows.values())
    (folder / "train.jsonl").write_text("".join(lines[:TRAIN]))
    (folder / "test.jsonl").write_text("".join(lines[TRAIN:]))


def recipe(folder: File, seed: int) -> dict[str, Any]:
    """All methods under one schedule, and one step after the other gives way to thoughts. The marks begin as a line's end does,
    after which a step comes."""
    files = {"train_file": str(folder / "train.jsonl"), "test_file": str(folder / "test.jsonl")}
    settings = {"stages": HANDINGS - 1, "thoughts": 2, "done_by": 0.8, "fresh_optimizer": "never", "rows_like": "\n"}
    training = {
        "adaptation": "full",
        "batch_size": 32,
        "gradient_accumulation_steps": 1,
        "learning_rate": 2.0e-3,
        "warmup_steps": 50,
    }
    training |= {
        "adam_beta2": 0.98,
        "bf16": False,
        "save_steps": 500,
        "eval_steps": 250,
        "new_token_lr_multiplier": 1.0,
        "min_well_formed": 0,
    }
    return {
        "name": f"thinking-{seed}",
        "seed": seed,
        "methods": list(EPOCHS),
        "variants": {"coconut": {"settings": settings}},
        "backbone": {"model": str(folder / "model"), "dtype": "float32", "device": "cpu", "threads": 1},
        "problems": {"tasks": [{"task": "jsonl", "name": "handed_on", "answer": "text", **files}], "validation": 0.02},
        "segments": {"by": "line"},
        "finetune": training | {"overrides": {name: {"epochs": epochs} for name, epochs in EPOCHS.items()}},
        "evaluate": {
            "batch_size": 64,
            "max_new_tokens": 64,
            "latency_questions": 0,
            "check_questions": 0,
            "probes": {"kinds": ["drop", "shuffle", "swap"]},
        },
    }


def measured(folder: File, seed: int) -> dict[str, Any]:
    """Run one seed and read its report."""
    from cirf.commands.run import open_context, print_probes, print_table
    from cirf.evaluation.harness import compare_rows
    from cirf.recipe.schema import Recipe
    from cirf.report.data.collect import collect
    from cirf.run import execute
    from cirf.store.jsonl import read_rows

    if not (folder / "train.jsonl").is_file():
        write_model(folder / "model", seed)
        write_rows(folder, seed)
    execute(open_context(Recipe.model_validate(recipe(folder, seed)), folder / "run", False))
    data = collect(folder / "run")
    print_table(data)
    print_probes(data["probes"])
    swap = data["probes"]["coconut"]["probes"]["swap"]
    found = {**data["methods"], "swap": swap}
    summary: dict[str, Any] = {name: {key: row[key] for key in ("accuracy", "interval", "n")} for name, row in found.items()}
    tables = {name: {"handed_on": read_rows(folder / "run" / "evaluation" / name / "handed_on.jsonl")} for name in EPOCHS}
    gain = compare_rows(tables["coconut"], tables["direct_sft"])
    assert gain is not None
    summary["gain"] = {"difference": gain.difference, "interval": list(gain.interval), "p": gain.p}
    summary["as_partner"] = swap["as_partner"]
    seconds = {name: data["training"][name]["timings"]["training_seconds"] for name in EPOCHS}
    return {"seed": seed, **summary, "training_seconds": seconds}


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
    summary = {"benchmark": "thinking", "ours": round(ours, 4), "peer": round(peer, 4), "ratio": round(ours / peer, 2)}
    print(json.dumps(summary | {"unit": "accuracy", "n": n, "swapped": round(means["swap"], 4), "seeds": rows}))


if __name__ == "__main__":
    main()
