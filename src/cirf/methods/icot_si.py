"""Stepwise internalisation (iCoT-SI; Deng et al. 2024): training starts with the whole rationale and removes it step by step.

After ``update`` updates the first ``k = min(|r|, s + o)`` tokens of a rationale r are removed; s grows with time, and o is a
small random offset with ``P(o) ~ exp(-smoothing * o)``. The rest of the rationale and the answer are the target. Once s reaches
the 95th percentile of lengths, every rationale is removed completely, as when answering::

    s = 0:   48/2 = 24 in May.\\n48+24 = 72 in all.\\n#### 72
    s = 9:   48+24 = 72 in all.\\n#### 72
    at last: #### 72

The published schedule has a fixed number of tokens per epoch, too slow for long rationales and few epochs: the model is then
evaluated in a form it was not trained for. Here the schedule follows the rationales' length, and an incomplete removal is an
error unless it is allowed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from cirf.errors import CirfError
from cirf.methods import semcot_release as semcot
from cirf.methods.base import Preset
from cirf.methods.prose.cot import ANSWER_MARK, prose_target, read_prose
from cirf.recipe.schema import Evaluate, Lora, Override, Section, key
from cirf.records import Example
from cirf.tasks.task import Task

if TYPE_CHECKING:
    from cirf.lm.training.objective import Curriculum, CurriculumRow

MARK_CAP = 8
"""Most tokens of the answer mark."""


class InternalisationSettings(Section):
    """How the rationale is taken away."""

    rate: float | None = key(
        None,
        "Tokens removed per epoch; null: enough to remove 95 % of the rationales by `done_by` of the training.",
        unit="tokens an epoch",
        gt=0,
    )
    done_by: float = key(0.6, "rate null: the share of the training at which the rationales are gone.", gt=0, le=1)
    jump: int | None = key(
        None,
        "Tokens removed at once, after which the optimiser is reset; null: a tenth of the 95th percentile of lengths.",
        unit="tokens",
        ge=1,
    )
    pretrain: float = key(0.0, "Epochs with the whole rationale first.", unit="epochs", ge=0)
    smoothing: float | None = key(4.0, "λ of the random offset of every row; null: no offset.", gt=0)
    side: Literal["left", "right"] = key("left", "Which end of a rationale goes first.")
    keep_position: bool = key(False, "Keep the original positions of the remaining tokens.")
    fresh_optimizer: bool = key(True, "Reset Adam's moments whenever more is removed.")
    targets: Literal["all", "answer"] = key("all", "Train on the rest of the rationale and the answer, or on the answer alone.")
    partial: bool = key(False, "Allow a training that ends before the rationales are gone.")
    form: Literal["chat", "semcot"] = key("chat", "semcot: no end token, 30 tokens of answer, as in the SemCoT release.")


class InternalisedCot(semcot.ReleaseForm):
    """Fine-tuned to do without its rationale, token by token."""

    name = "icot_si"
    summary = "fine-tuned on rationales that are removed during training, to answer directly"
    trained = True
    Settings = InternalisationSettings
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": Preset(
            {"rate": 8.0, "jump": 1, "partial": True},
            Override(learning_rate=5e-5, weight_decay=0.01, epochs=10, lora=Lora(rank=128, alpha=32)),
        ),
        "official": Preset(
            {"rate": 8.0, "jump": 1},
            Override(
                learning_rate=5e-5,
                weight_decay=0.01,
                epochs=80,
                batch_size=16,
                gradient_accumulation_steps=2,
                lr_scheduler_type="constant",
                warmup_steps=0,
                max_grad_norm=1.0,
            ),
        ),
        "semcot": Preset(
            {"rate": 8.0, "jump": 8, "partial": True, "targets": "answer", "keep_position": True, "form": "semcot"},
            semcot.training(5e-5),
        ),
    }

    def settle(self, tokenizer: Any, training: bool) -> None:
        if self._legacy:
            tokenizer.chat_template = semcot.settled(tokenizer.chat_template)

    def target(self, example: Example) -> str:
        return prose_target(example.segments, example.problem.answer)

    def read(self, output: str) -> tuple[str, str]:
        return read_prose(output)

    def cap(self, task: Task, section: Evaluate) -> int:
        return super().cap(task, section) + (0 if self._legacy else MARK_CAP)

    def curriculum(
        self, train: Sequence[CurriculumRow], validation: Sequence[CurriculumRow], tokenizer: Any, epochs: float, updates: int
    ) -> Curriculum:
        """The schedule for these rows. ``CirfError`` if it would not finish, unless that is allowed."""
        from cirf.methods.curricula import RemovalCurriculum

        try:
            made = RemovalCurriculum(train, validation, tokenizer, ANSWER_MARK, self.settings, epochs, updates, self._seed)
        except CirfError as error:
            raise CirfError(f"{self.name}: {error}") from None
        if made.final_share < 1 and not self.settings.partial:
            raise CirfError(
                f"{self.name}: only {made.final_share:.0%} of the rationales' tokens would be gone when training ends, so the "
                "model would not be trained for its final form; leave rate at null, raise it or the epochs, or set partial: true"
            )
        return made
