"""The shared part of methods whose model gets vectors that a smaller model, the guide, computes from the question.

The vectors are at the end of the user's turn, after the question; the end of the turn and the answer follow::

    How many clips? # # # # # <end of turn> <assistant> 72
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cirf.lm.prompt import encode, prompt_text
from cirf.methods import semcot_release as semcot
from cirf.methods.base import PreparationData, around_turn
from cirf.recipe.schema import Recipe, Section, key
from cirf.records import Example
from cirf.store.paths import user_path

if TYPE_CHECKING:
    from cirf.lm.decoding.prefix_cache import Prefiller

GUIDES = {
    "Qwen/Qwen3-8B": "Qwen/Qwen3-0.6B",
    "meta-llama/Llama-3.1-8B-Instruct": "meta-llama/Llama-3.2-1B-Instruct",
    "bundled:qwen2.5-coder-1.5b-instruct": "bundled:qwen2.5-coder-0.5b-instruct",
    "bundled:qwen2.5-coder-0.5b-instruct": "bundled:smollm2-135m-instruct",
}
"""Smaller models that go with a backbone where none is named."""


class GuidedSettings(Section):
    """Which guide computes the vectors, how many, and where they are."""

    guide: str | None = key(
        None,
        "The smaller model that makes the vectors, of any tokenizer: a hub id, a folder or bundled:NAME; null: the one that goes "
        "with the backbone (see docs/reference/latent-baselines.md), else the backbone itself.",
    )
    n: int = key(5, "How many vectors.", unit="vectors", ge=1)
    answered: int | None = key(
        None,
        "How many when answering; null: as in training. The model was not trained with another number.",
        unit="vectors",
        ge=1,
    )
    instruction: str = key("Think about how to solve this problem.", "What the guide reads before the question.")
    form: Literal["chat", "semcot"] = key(
        "chat", "chat: the end token is trained. semcot: no end token, 30 tokens of answer, as in the SemCoT release."
    )


class GuidedMethod(semcot.Placeholders):
    """A method whose model is given a guide's vectors."""

    trained = True
    places = "vectors"
    lead = ""

    def __init__(self, recipe: Recipe, settings: Any = None) -> None:
        super().__init__(recipe, settings)
        named = self.settings.guide or GUIDES.get(recipe.backbone.model, recipe.backbone.model)
        path = user_path(named)
        self.guide: str = str(path.resolve()) if path.exists() else named
        self.latents = self.settings.n
        self._empty_system = recipe.backbone.empty_system
        self._holder = ""

    def settle(self, tokenizer: Any, training: bool) -> None:
        from cirf.methods.soft.prompts import placeholder

        self._holder = placeholder(tokenizer)
        self._id = int(tokenizer.convert_tokens_to_ids(self._holder))
        text = self.lead + self._holder * self.count(training)
        if self._legacy:
            tokenizer.chat_template = semcot.settled(tokenizer.chat_template, text)
        else:
            tokenizer.chat_template = around_turn(tokenizer.chat_template, "", text)

    def target(self, example: Example) -> str:
        return example.problem.answer

    @property
    def latents_answering(self) -> int:
        return self.count(training=False)

    def prepared_by(self, recipe: Recipe) -> dict[str, Any]:
        return recipe.backbone.model_dump(include={"attn_implementation", "empty_system"})

    def guide_texts(self, material: PreparationData, problems: Sequence[str]) -> list[str]:
        """The guide's texts for these problems, by id: the user's turn, as recovered from a prompt's ids when answering."""
        from cirf.methods.soft.prompts import TemplateFrame

        tokenizer = material.tokenizer()
        self.settle(tokenizer, training=True)
        frame = TemplateFrame(tokenizer)
        prompts = [self.prompt(material.problems[name], material.tasks[material.problems[name].task]) for name in problems]
        return [frame.text(encode(tokenizer, prompt_text(tokenizer, text))) for text in prompts]

    def beginnings(self, model: Any, tokenizer: Any, source: Path | str) -> Prefiller | None:
        from cirf.methods.saved import saved_beginnings

        return saved_beginnings(Path(source), model, tokenizer)
