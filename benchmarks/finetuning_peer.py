"""The TRL side of `benchmarks.finetuning`: stock TRL on the rows that it wrote, in a separate environment.

    python benchmarks/finetuning_peer.py FOLDER '{"padding_free": true}' LAST_UPDATE

FOLDER holds ``model/``, ``rows.jsonl`` (a prompt and a completion each, in the order of training) and ``settings.json``. Nothing
from cirf is imported. The last line is JSON: wall and CPU seconds at the end of every update, its loss, tokens and updates.
"""

from __future__ import annotations

import importlib
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any


def train(folder: Path, how: dict[str, Any], last: int) -> dict[str, Any]:
    """Train with `SFTTrainer` up to update ``last`` of the schedule; ``how`` are settings of TRL and the attention kernel."""
    import torch
    import transformers
    from datasets import load_dataset

    trl: Any = importlib.import_module("trl")  # not among our requirements
    summary = json.loads((folder / "settings.json").read_text())
    stamps: list[tuple[float, float]] = []
    losses: list[float] = []

    class Watch(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **keys: Any) -> None:
            stamps.append((time.perf_counter(), time.process_time()))
            control.should_training_stop = control.should_training_stop or state.global_step >= last

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **keys: Any) -> None:
            if logs and "loss" in logs:
                losses.append(logs["loss"])

    lora, peft_config = summary["lora"], None
    dtype = torch.float32 if lora is None else getattr(torch, summary["weights"])
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(
        folder / "model", dtype=dtype, attn_implementation=how.get("attention", "sdpa")
    )
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(folder / "model")
    tokenizer.eos_token_id = summary["end"]
    if lora is not None:
        peft: Any = importlib.import_module("peft")
        peft_config = peft.LoraConfig(
            r=lora["rank"],
            lora_alpha=lora["alpha"],
            target_modules="all-linear",
            trainable_token_indices={"embed_tokens": summary["new_ids"]},
            task_type="CAUSAL_LM",
        )
    packed = bool(how.get("packing"))
    more: dict[str, Any] = {"packing": True, "max_length": summary["pack"]} if packed else {"max_length": None}
    config = trl.SFTConfig(
        output_dir=str(folder / "peer"),
        per_device_train_batch_size=1 if packed else summary["batch_size"],  # a pack holds about a batch of rows
        gradient_accumulation_steps=summary["gradient_accumulation_steps"],
        num_train_epochs=1,
        completion_only_loss=True,
        padding_free=bool(how.get("padding_free")),
        train_sampling_strategy="sequential",
        gradient_checkpointing=False,
        optim="adamw_torch_fused",
        bf16=summary["dtype"] == "bfloat16",
        use_cpu=True,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=summary["seed"],
        torch_compile=bool(how.get("compile")),
        **summary["optimiser"],
        **more,
    )
    rows = load_dataset("json", data_files=str(folder / "rows.jsonl"), split="train", cache_dir=str(folder / "cache"))
    trainer = trl.SFTTrainer(
        model=model, args=config, train_dataset=rows, processing_class=tokenizer, callbacks=[Watch()], peft_config=peft_config
    )
    head = trainer.model.get_output_embeddings()
    if lora is not None and not hasattr(head, "bias"):
        head.bias = None  # TRL 1.16 asks for it, and PEFT's wrapper of a tied head with trained rows has none
    made = trainer.train_dataset
    tokens = sum(len(ids) for ids in made["input_ids"])
    batches = trainer.get_train_dataloader()
    trainer.train()
    return {
        "stamps": stamps,
        "losses": losses,
        "tokens": tokens,
        "updates": len(batches) // summary["gradient_accumulation_steps"],
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,
        "trl": trl.__version__,
    }


if __name__ == "__main__":
    print(json.dumps(train(Path(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3]))))
