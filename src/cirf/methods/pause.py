"""Pause tokens (Goyal et al. 2024): extra computation before the answer, at positions without content.

The sequence is ``question, <pause> x n, answer``; the loss covers only the answer, and of the new token only the input row is
trained. The pauses are part of the chat template, so every engine inserts them for the saved model: one prefill, then the
answer. They were found to help after pre-training with pauses; compared here, as in the CIRF paper, is fine-tuning alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import model_validator

from cirf.methods import semcot_release as semcot
from cirf.methods.base import Preset, at_head_of_answer
from cirf.recipe.schema import Lora, Override, Recipe, Section, key
from cirf.records import Example

PAUSE = "<pause>"


class PauseSettings(Section):
    n: int = key(5, "How many pauses; 0: none, which is direct_sft.", unit="tokens", ge=0)
    answered: int | None = key(
        None, "How many when answering; null: as in training. The model was not trained with another number.", unit="tokens", ge=0
    )
    form: Literal["chat", "semcot"] = key(
        "chat",
        "chat: pauses at the head of the assistant's turn, the end token trained. semcot: pauses at the end of the user's turn, "
        "no end token, 30 tokens of answer, as in the SemCoT release.",
    )

    @model_validator(mode="after")
    def _taught(self) -> PauseSettings:
        if self.answered and not self.n:
            raise ValueError(f"answered is {self.answered}, but with n: 0 no pause is ever learned; set n, or leave answered out")
        return self


class Pause(semcot.Placeholders):
    """Fine-tuned to answer after a few positions that hold a learned token."""

    name = "pause"
    summary = "fine-tuned to answer after pause tokens in the prompt"
    trained = True
    Settings = PauseSettings
    places = "pauses"
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": Preset({"n": 5}, Override(learning_rate=1e-4, weight_decay=0.01, epochs=10, lora=Lora(rank=128, alpha=32))),
        "official": Preset({"n": 10}),
        "semcot": Preset({"n": 5, "answered": 1, "form": "semcot"}, semcot.training(5e-5)),
    }
    filling = PAUSE

    def __init__(self, recipe: Recipe, settings: Any = None) -> None:
        super().__init__(recipe, settings)
        self.tokens = (PAUSE,) if self.settings.n and self.filling == PAUSE else ()

    def settle(self, tokenizer: Any, training: bool) -> None:
        text = self.filling * self.count(training)
        if self._legacy:
            tokenizer.chat_template = semcot.settled(tokenizer.chat_template, text)
        elif text:
            tokenizer.chat_template = at_head_of_answer(tokenizer.chat_template, text)

    def target(self, example: Example) -> str:
        return example.problem.answer


class Filler(Pause):
    """The control of `Pause`: as many dots, which the model knows already, and no new row."""

    name = "filler"
    summary = "fine-tuned to answer after dots in the prompt, the control of pause"
    presets: ClassVar[Mapping[str, Preset]] = {}
    filling = " ."  # a token of its own in most vocabularies, where dots in a row are one
