"""Train with TRL's own trainer on a file of rows for a few steps, and print what it was taught; run in a process of its own.

``python training_with_trl.py MODEL ROWS END OUT``: a folder with model and tokenizer, a file ``sft.jsonl``, the end token's text,
a folder to write to. Prints one JSON document: of each row the ids and those of them that are learned, and the losses.
"""

from __future__ import annotations

import json
import sys


def main(model: str, rows: str, end: str, out: str) -> None:
    """Train, and print."""
    from datasets import load_dataset
    from trl import SFTConfig, SFTTrainer

    settings = SFTConfig(
        output_dir=out, eos_token=end, max_steps=3, per_device_train_batch_size=4, learning_rate=0.01, logging_steps=1,
        max_length=None, bf16=False, use_cpu=True, report_to="none", save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    trainer = SFTTrainer(model=model, args=settings, train_dataset=load_dataset("json", data_files=rows, split="train"))
    batch = trainer.data_collator([trainer.train_dataset[place] for place in range(len(trainer.train_dataset))])
    lengths = batch["attention_mask"].sum(dim=1).tolist()
    taught = [
        {"ids": ids[:length], "labels": labels[:length]}
        for ids, labels, length in zip(batch["input_ids"].tolist(), batch["labels"].tolist(), lengths, strict=True)
    ]
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    print(json.dumps({"taught": taught, "losses": losses}))


if __name__ == "__main__":
    main(*sys.argv[1:])
