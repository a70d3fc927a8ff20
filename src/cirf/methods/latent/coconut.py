"""Coconut: chains of continuous thought (Hao et al., 2024, arXiv 2412.06769; code facebookresearch/coconut, MIT).

Between two marks the model's last hidden states are fed back as its next inputs; then it answers. Training has stages: at stage k
the first k steps of a rationale are replaced by c thoughts each, and the target is the remaining steps and the answer. At the
last stage no step is left, as when answering (`cirf.methods.curricula` shows the rows)::

    How many?<latent>z z z z z z</latent>72

While steps are left, the answer has its own line, as after any prose. Once none is left, the bare answer follows the mark, which
saves tokens. A rationale with more steps than stages loses the rest at the last stage.

Differences from the published code: it computes every prefix again for each thought and token, one question at a time; here
thoughts extend a cache and questions are batched. The last stage is kept, which the SemCoT release omits: there the model is
trained with steps and evaluated without, and the right rationale sets the number of thoughts. So there is no preset ``semcot``:
here a method never sees a question's rationale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import model_validator

from cirf.errors import CirfError
from cirf.methods.base import FIXED_LR, Method, Preset, at_head_of_answer
from cirf.methods.prose.cot import ANSWER_MARK, prose_target, read_prose
from cirf.recipe.schema import Lora, Override, Recipe, Section, key
from cirf.records import Example

if TYPE_CHECKING:
    from cirf.lm.decoding.prefix_cache import Prefiller
    from cirf.lm.training.objective import Curriculum, CurriculumRow, Objective

BEGIN, END = "<latent>", "</latent>"


class CoconutSettings(Section):
    """How thoughts replace steps."""

    start: Literal["sft_cot", "backbone"] = key(
        "sft_cot",
        "sft_cot: begin with that method's model, at stage 1. backbone: begin at stage 0, with whole rationales and no thoughts.",
    )
    stages: int = key(3, "K: stages that each replace one more step; a last stage follows that replaces all.", ge=1)
    thoughts: int = key(2, "c: continuous thoughts (vectors) per replaced step; 0: none, and no <latent> tokens.", ge=0)
    most: int | None = key(None, "Most thoughts in all; null: K times c.", ge=1)
    stage_epochs: float | None = key(
        None, "Epochs per stage; null: chosen so that the last stage begins at `done_by` of the training.", unit="epochs", gt=0
    )
    done_by: float = key(0.6, "stage_epochs null: the share of the training at which the last stage begins.", gt=0, lt=1)
    pad_latent_to_max: bool = key(
        True, "A rationale with fewer steps than the stage replaces gets as many thoughts as the others; false: c per step."
    )
    uniform_prob: float = key(0.0, "Share of the rows that are at a stage drawn from 0 to the number of their steps.", ge=0, le=1)
    fresh_optimizer: Literal["stage", "epoch", "never"] = key("stage", "When to reset Adam's moments.")
    init_from_token: str | None = key(
        None, "A token whose embedding <latent> and </latent> start with, such as <<; null: the mean embedding."
    )
    partial: bool = key(False, "Allow a training that ends before the last stage.")

    def count(self, stage: int) -> int:
        """Thoughts at a stage; the last one is ``stages + 1``."""
        made = self.thoughts * min(stage, self.stages)
        return made if self.most is None else min(made, self.most)

    @model_validator(mode="after")
    def _thinks(self) -> CoconutSettings:
        if not self.thoughts and (self.most is not None or self.init_from_token is not None):
            raise ValueError(
                "with thoughts: 0 there are no thoughts and no <latent> tokens, so leave most and init_from_token out"
            )
        return self


class LatentMethod(Method):
    """A method whose model feeds its own states back to itself between two marks before it answers."""

    trained = True
    explained = False
    """Whether a decoder reads its thoughts while it is trained."""

    def _thinks(self, count: int) -> None:
        """Set the number of thoughts; without any there are no marks."""
        self.latents, self.tokens = count, (BEGIN, END) if count else ()

    def check(self, recipe: Recipe) -> None:
        """``CirfError`` for a training that its cache does not allow."""
        if self.name in recipe.models or not self.latents:
            return
        if recipe.finetune.resolved(self.name, self.training).gradient_checkpointing:
            raise CirfError(
                f"finetune.gradient_checkpointing: {self.name} continues from its own cache in training and cannot recompute it; "
                "set it to false, and lower batch_size (and raise gradient_accumulation_steps) if memory is short"
            )

    def settle(self, tokenizer: Any, training: bool) -> None:
        if self.latents:
            tokenizer.chat_template = at_head_of_answer(tokenizer.chat_template, BEGIN)

    def beginnings(self, model: Any, tokenizer: Any, source: Path | str) -> Prefiller | None:
        """Its thoughts, and what follows them in the prompt. ``CirfError``: the folder does not say how the model thinks."""
        if not self.latents:
            return None
        from cirf.methods.latent.decode import read_latent, thinking

        found = read_latent(Path(source))
        if found is None:
            raise CirfError(f"{source}: holds no latent.json, so the number of its vectors is unknown; train it again")
        return thinking(model, tokenizer, found, Path(source))


class Coconut(LatentMethod):
    """Fine-tuned to reason in vectors instead of its rationale."""

    name = "coconut"
    summary = "fine-tuned to replace steps by its own hidden states, then to answer (needs its own decoding loop)"
    Settings = CoconutSettings
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": Preset(
            {"stages": 3, "thoughts": 2, "most": 5},
            Override(learning_rate=1e-5, weight_decay=0.01, epochs=10, lora=Lora(rank=128, alpha=32)),
        ),
        "official": Preset(
            {"stages": 3, "thoughts": 2, "stage_epochs": 3.0, "fresh_optimizer": "epoch", "init_from_token": "<<"},
            Override(learning_rate=1e-4, weight_decay=0.01, epochs=22, batch_size=32, gradient_accumulation_steps=4, **FIXED_LR),
        ),
    }

    def __init__(self, recipe: Recipe, settings: Any = None) -> None:
        super().__init__(recipe, settings)
        own = self.settings
        self._thinks(own.count(own.stages))
        self.tokens_like = own.init_from_token
        self.start = "sft_cot" if own.start == "sft_cot" else None
        self.first = 1 if self.start else 0
        """The stage that its training begins with."""

    def check(self, recipe: Recipe) -> None:
        """``CirfError`` for a training that cannot go through thoughts, or that would not come to the last stage."""
        super().check(recipe)
        if self.name not in recipe.models and self.settings.stage_epochs is not None:
            section = recipe.finetune.resolved(self.name, self.training)
            before = self.settings.stage_epochs * (self.settings.stages + 1 - self.first)
            if section.epochs == "auto":
                return  # the curriculum checks it once the rows are counted
            self._check_end(before < section.epochs, f"the last stage would begin after {before:g} of {section.epochs:g} epochs")

    def _check_end(self, comes: bool, why: str) -> None:
        if not comes and not self.settings.partial:
            raise CirfError(
                f"{self.name}: {why}, so the model would not be trained for its final form; leave stage_epochs at null, "
                "lower it or raise the epochs, or set partial: true"
            )

    def target(self, example: Example) -> str:
        return _target(example.segments, example.problem.answer)

    def read(self, output: str) -> tuple[str, str]:
        """What is left of the prose before the last answer mark, and the text after it; without a mark all is the answer."""
        return read_prose(output) if ANSWER_MARK.strip() in output else ("", output)

    def curriculum(
        self, train: Sequence[CurriculumRow], validation: Sequence[CurriculumRow], tokenizer: Any, epochs: float, updates: int
    ) -> Curriculum:
        """The stages for these rows. ``CirfError`` if they would not finish, unless that is allowed."""
        from cirf.methods.curricula import CurriculumPlan, StagedCurriculum

        size = self.settings.thoughts if self.explained else 0
        course = CurriculumPlan(END, self.first, epochs, updates, self._seed, size)
        made = StagedCurriculum(train, validation, tokenizer, _target, self.settings, course)
        self._check_end(
            made.stage(made.last) == made.final, f"training would end at stage {made.stage(made.last)} of {made.final}"
        )
        return made

    def objective(self, model: Any, source: Path | str) -> Objective:
        from cirf.methods.latent.loss import LatentObjective

        return LatentObjective()

    def keep(self, folder: Path, objective: Objective | None) -> None:
        if self.latents:
            from cirf.methods.latent.decode import LatentSettings

            LatentSettings(BEGIN, END, self.latents).save(folder)


def _target(steps: Sequence[str], answer: str) -> str:
    """The steps that are left and the answer line, or the bare answer."""
    return prose_target(steps, answer) if steps else answer
