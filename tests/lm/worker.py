"""Train a tiny model in a separate process, which is killed at a given point.

``worker.py FOLDER ADAPTATION SCENARIO...``: each scenario runs in a fork, repeatedly until it is finished. The adaptation
``removal`` trains every weight on rationales that shrink step by step; ``tied`` trains adapters of a model with tied embeddings,
with gradient checkpointing. Scenarios: ``-`` runs undisturbed, ``step:N`` is killed after update N, ``weights:N`` while the
checkpoint of update N is written, ``marker:N`` when it is written but not marked complete, ``old:N`` before the obsolete
checkpoint of update N is removed. ``SIGTERM:N`` and ``SIGINT:N`` get that signal during update N. For each it prints how it
ended, how often it resumed, and the update that it first resumed from.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import tiny
import torch

from cirf.lm import vocabulary
from cirf.lm.prompt import prompt_text, settle_template
from cirf.lm.saving import save_model
from cirf.lm.training import trainer
from cirf.lm.training.batches import Row
from cirf.lm.training.checkpoints import latest
from cirf.lm.training.finetune import finetune
from cirf.lm.training.objective import CurriculumRow
from cirf.lm.training.spec import TrainingSpec
from cirf.methods.curricula import RemovalCurriculum
from cirf.methods.icot_si import InternalisationSettings
from cirf.methods.prose.cot import ANSWER_MARK
from cirf.recipe import schema


def run(folder: Path, adaptation: Any, kill: str, dropout: float = 0.2, bf16: bool = True) -> None:
    """One training of 12 updates, 6 an epoch, checkpoints every 4."""
    tokenizer, model = tiny.build_tokenizer(), tiny.build_model("llama", tied=adaptation == "tied")
    settle_template(tokenizer)
    ids = vocabulary.extend(model, tokenizer, None, schema.Vocabulary(alpha="mean"), 8, 0)
    rows = [
        Row(prompt_text(tokenizer, f"What is {i} plus {i * 7}?"), f"<cirf>{'<cirf_001>2' * (1 + i % 3)}<cirf_002></cirf>{i * 8}")
        for i in range(23)
    ]
    teach = None
    if adaptation == "removal":
        steps = "one more step\n"
        rows = [Row(row.prompt, f"{steps * (1 + i % 4)}#### {i * 8}", len(f"{i * 8}")) for i, row in enumerate(rows)]
        settings = InternalisationSettings(jump=7)

        def teach(lessons: list[CurriculumRow], held_out: list[CurriculumRow], updates: int) -> RemovalCurriculum:
            return RemovalCurriculum(lessons, held_out, tokenizer, ANSWER_MARK, settings, section.epochs, updates, 3)

    section = schema.Finetune(
        adaptation={"removal": "full", "tied": "lora"}.get(adaptation, adaptation),
        lora=schema.Lora(rank=4, alpha=8, dropout=dropout),
        gradient_checkpointing=adaptation == "tied",
        epochs=2,
        batch_size=2,
        gradient_accumulation_steps=2,
        learning_rate=1e-2,
        new_token_lr_multiplier=3.0,
        warmup_steps=3,
        save_steps=4,
        eval_steps=None,
        bf16=bf16,
    )
    _arm(kill)
    model, history, _ = finetune(
        model, tokenizer, rows[:21], rows[21:], TrainingSpec(section, "cirf_full", ids, folder / "scratch", 3, teach=teach)
    )
    save_model(model, tokenizer, folder, "float32", "cirf")
    from cirf.distributed import is_main

    if is_main():
        (folder / "history.json").write_text(json.dumps(history.to_dict()))


_TOLD = 130, 143  # how a process ends that Ctrl-C and SIGTERM ended


def _die(*args: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _arm(kill: str) -> None:
    where, _, number = kill.partition(":")
    if not number:
        return
    update = int(number)
    if where.startswith("SIG"):
        signal.signal(signal.SIGINT, signal.default_int_handler)  # what starts in the background has others
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        begin = trainer.TrainingControl.on_step_begin

        def on_step_begin(self: Any, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            begin(self, args, state, control, **kwargs)
            if state.global_step == update - 1:
                signal.raise_signal(signal.Signals[where])

        trainer.TrainingControl.on_step_begin = on_step_begin  # type: ignore[method-assign]
    elif where == "step":
        original = trainer.TrainingControl.on_step_end

        def on_step_end(self: Any, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            original(self, args, state, control, **kwargs)
            if state.global_step == update:
                _die()

        trainer.TrainingControl.on_step_end = on_step_end  # type: ignore[method-assign]
    elif where == "weights":
        write = trainer.TargetTrainer._save_optimizer_and_scheduler

        def half_written(self: Any, folder: str) -> None:
            if self.state.global_step == update:
                (Path(folder) / "optimizer.pt").write_bytes(b"half")
                _die()
            write(self, folder)

        trainer.TargetTrainer._save_optimizer_and_scheduler = half_written  # type: ignore[method-assign]
    elif where == "marker":
        mark = trainer.complete
        trainer.complete = lambda folder: _die() if folder.name == f"checkpoint-{update}" else mark(folder)
    else:
        assert where == "old"
        remove = shutil.rmtree

        def rmtree(path: Any, *args: Any, **kwargs: Any) -> None:
            if Path(path).name == f"checkpoint-{update}":
                _die()
            remove(path, *args, **kwargs)

        shutil.rmtree = rmtree  # type: ignore[assignment]


def main() -> None:
    """See the module."""
    root, adaptation = Path(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    for scenario in sys.argv[3:]:
        folder, saved = root / scenario.replace(":", "-"), 0
        for attempt in range(4):
            child = os.fork()
            if child == 0:
                try:
                    run(folder, adaptation, scenario if attempt == 0 else "-")
                except KeyboardInterrupt:
                    os._exit(_TOLD[0])
                except SystemExit as end:
                    os._exit(int(end.code or 0))
                except BaseException:
                    import traceback

                    traceback.print_exc()
                    os._exit(1)
                os._exit(0)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if status not in (-signal.SIGKILL, *_TOLD):
                break
            if attempt == 0 and (found := latest(folder / "scratch" / "checkpoints")):
                saved = int(found.name.rpartition("-")[2])
        print(scenario, status, attempt, saved)
        if status:
            sys.exit(1)


if __name__ == "__main__":
    main()
