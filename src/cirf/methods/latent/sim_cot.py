"""SIM-CoT: supervised implicit chain-of-thought (Wei et al., 2025, arXiv 2509.20317; code InternLM/SIM-CoT, Apache-2.0).

A host, Coconut or CODI, is trained as usual. Meanwhile a decoder must predict the step that each group of thoughts replaces
(`cirf.methods.latent.loss`), so that different thoughts get different meanings. After training the decoder is removed:
prompts, answers and time are the host's.

On Coconut a group is the thoughts of one stage, and only the steps replaced at the stage are targets. On CODI every thought is a
group, and so is the vector that would follow the last one; extra groups have no target.

Differences from the published code: its decoder is another copy of the model, here by default adapters on the trained one; it
finds steps between ``<<`` and ``>>``, which only one data set has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import ValidationError, model_validator

from cirf.errors import CirfError
from cirf.methods.base import FIXED_LR, Method, Preset
from cirf.methods.latent.coconut import Coconut, CoconutSettings
from cirf.methods.latent.codi import Codi, CodiSettings
from cirf.methods.registry import get
from cirf.recipe.schema import Evaluate, Lora, Override, Recipe, Section, key
from cirf.records import Example
from cirf.tasks.task import Task

if TYPE_CHECKING:
    from cirf.lm.decoding.prefix_cache import Prefiller
    from cirf.lm.training.objective import Curriculum, CurriculumRow, Objective


class SimCotSettings(Section):
    host: Literal["coconut", "codi"] = key("coconut", "The method that reasons in vectors: coconut or codi.")
    host_settings: dict[str, Any] = key(
        {}, "Its settings (see `cirf methods coconut`, `cirf methods codi`); they replace the preset's as a whole."
    )
    start: Literal["as_host", "host"] = key(
        "as_host", "as_host: start as the host does. host: start from the host's trained model, which uses all its vectors."
    )
    weight: float = key(1.0, "Weight of the decoder's loss.", ge=0)
    reduction: Literal["sum", "mean"] = key(
        "sum", "Loss of a group: the sum over its tokens divided by the rows that have one, or the mean over its tokens."
    )
    decoder: Literal["adapters", "copy"] = key(
        "adapters",
        "adapters: a second set on the model that is trained (where all of it is trained: on a copy of it that is not). "
        "copy: a copy of the model that is trained itself; twice the memory.",
    )

    def of_host(self) -> Any:
        made: type[Section] = CoconutSettings if self.host == "coconut" else CodiSettings
        return made.model_validate_json(json.dumps(self.host_settings), strict=True)

    @model_validator(mode="after")
    def _host_has_them(self) -> SimCotSettings:
        try:
            found = self.of_host()
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            named = ".".join(("host_settings", *map(str, first["loc"])))
            raise ValueError(f"{named}: {first['msg'].removeprefix('Value error, ')} ({self.host})") from None
        if not found.thoughts:
            raise ValueError("host_settings.thoughts: without thoughts there is nothing to decode; use the host itself")
        return self


class SimCot(Method):
    """Its host, with a decoder during training."""

    name = "sim_cot"
    summary = "coconut or codi, trained with a decoder that predicts the steps from the vectors (needs its own decoding loop)"
    trained = True
    Settings = SimCotSettings
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": Preset(
            {"host_settings": {"stages": 3, "thoughts": 2, "most": 5}, "weight": 1.0},
            Override(learning_rate=1e-5, weight_decay=0.01, epochs=10, lora=Lora(rank=128, alpha=32)),
        ),
        "official": Preset(
            {
                "host_settings": {
                    "stages": 5,
                    "thoughts": 2,
                    "stage_epochs": 3.0,
                    "fresh_optimizer": "epoch",
                    "init_from_token": "<<",
                },
                "weight": 1.0,
                "decoder": "copy",
            },
            Override(learning_rate=1e-4, weight_decay=0.01, epochs=32, batch_size=8, gradient_accumulation_steps=8, **FIXED_LR),
        ),
    }

    def __init__(self, recipe: Recipe, settings: Any = None) -> None:
        super().__init__(recipe, settings)
        made: type[Coconut | Codi] = Coconut if self.settings.host == "coconut" else Codi
        self.host: Coconut | Codi = made(recipe, self.settings.of_host())
        self.host.explained = True
        self.latents, self.tokens, self.tokens_like = self.host.latents, self.host.tokens, self.host.tokens_like
        self.tokens_learn, self.start = self.host.tokens_learn, self.host.start
        if self.settings.start == "host":
            self.start = self.settings.host
            if isinstance(self.host, Coconut):
                self.host.first = self.host.settings.stages + 1

    def check(self, recipe: Recipe) -> None:
        """``CirfError`` for what its host refuses, and where it would go on from a model that thinks otherwise."""
        self.host.name, self.host.training = self.name, self.training
        self.host.check(recipe)
        if self.settings.start == "host" and self.name not in recipe.models:
            other = get(self.settings.host, recipe)
            if other.settings != self.host.settings:
                raise CirfError(
                    f"variants.{self.name}.settings: {self.name} starts from {other.name}, whose settings differ from "
                    f"host_settings; give variants.{other.name}.settings the same"
                )

    def settle(self, tokenizer: Any, training: bool) -> None:
        self.host.settle(tokenizer, training)

    def target(self, example: Example) -> str:
        return self.host.target(example)

    def read(self, output: str) -> tuple[str, str]:
        return self.host.read(output)

    def cap(self, task: Task, section: Evaluate) -> int:
        return self.host.cap(task, section)

    def curriculum(
        self, train: Sequence[CurriculumRow], validation: Sequence[CurriculumRow], tokenizer: Any, epochs: float, updates: int
    ) -> Curriculum | None:
        return self.host.curriculum(train, validation, tokenizer, epochs, updates)

    def objective(self, model: Any, source: Path | str) -> Objective:
        from cirf.methods.latent.loss import ExplainedObjective, LatentObjective, StepDecoder, copied

        decoder = copied(model) if self.settings.decoder == "copy" else StepDecoder()
        host = self.host.objective(model, source)
        assert isinstance(host, LatentObjective)
        beyond = isinstance(self.host, Codi)
        size = 1 if beyond else self.host.settings.thoughts
        return ExplainedObjective(host, decoder, size, beyond, self.settings.weight, self.settings.reduction == "mean")

    def keep(self, folder: Path, objective: Objective | None) -> None:
        from cirf.methods.latent.loss import ExplainedObjective

        assert isinstance(objective, ExplainedObjective)
        self.host.keep(folder, objective.host)

    def beginnings(self, model: Any, tokenizer: Any, source: Path | str) -> Prefiller | None:
        return self.host.beginnings(model, tokenizer, source)
