"""The form in which the SemCoT release (YinhanHe123/SemCoT) trains and evaluates its baselines, for presets that explain its
results.

Its defects cause its results and are kept: no end token is trained, an answer is whatever fits into the cap, and rows are
processed one at a time. Not kept: it sums the losses of four rows where we take the mean over their tokens (Adam scales both
alike), it picks checkpoints by the test set (the last one is ours), and its evaluator, which finds letters anywhere.
"""

from __future__ import annotations

from typing import Any

from cirf.methods.base import FIXED_LR, Method, around_turn, at_head_of_answer
from cirf.recipe.schema import Evaluate, Lora, Override, Recipe
from cirf.tasks.task import Task

CAP = 30
"""Tokens it generates, always."""


def training(learning_rate: float) -> Override:
    """Four rows an update, one at a time; no schedule, no clipping, adapters at the queries and values alone."""
    lora = Lora(rank=16, alpha=32, dropout=0.1, target_modules="q_proj,v_proj")
    batch: dict[str, Any] = {"batch_size": 1, "gradient_accumulation_steps": 4}
    return Override(learning_rate=learning_rate, weight_decay=0.01, epochs=10, lora=lora, **batch, **FIXED_LR)


def settled(template: str, latents: str = "") -> str:
    """A chat template that asks as it does: the question under its mark, then ``latents``, all in the user's turn."""
    return at_head_of_answer(around_turn(template, "Question: ", latents), "Answer: ")


class ReleaseForm(Method):
    """A method whose setting ``form`` may be that of the release (``semcot``): no end token, and its cap."""

    def __init__(self, recipe: Recipe, settings: Any = None) -> None:
        super().__init__(recipe, settings)
        self._legacy = self.settings.form == "semcot"
        self.ends = not self._legacy

    def cap(self, task: Task, section: Evaluate) -> int:
        return CAP if self._legacy else task.cap


class Placeholders(ReleaseForm):
    """One whose prompts hold ``n`` ``places`` before the answer, and ``answered`` (``None``: as many) when answering."""

    answering = frozenset({"answered"})
    places = ""

    def count(self, training: bool) -> int:
        own = self.settings
        return int(own.n if training or own.answered is None else own.answered)

    def caveats(self) -> tuple[str, ...]:
        n, answered = self.settings.n, self.count(training=False)
        return () if answered == n else (f"trained with {n} {self.places}, but answers with {answered}",)
