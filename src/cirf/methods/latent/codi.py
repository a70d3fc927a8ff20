"""CODI: a chain of thought distilled into continuous ones (Shen et al., 2025, arXiv 2502.21074; written from the publication).

One network learns two tasks at once: to reason in words, and to answer from n thoughts instead. Its state before the answer
without words is trained to match the one with words (rows and loss: `codi_loss`). A projector maps each thought before it is fed
in. When answering::

    How many?<latent>z z z z z z</latent>The answer is: 72

By default the words before the answer are part of the prompt, so they cost no decoding time.

Not taken from the published code: padding is unmasked where thoughts are computed, so an answer depends on its batch; rows whose
answers do not begin with a digit are dropped; the teacher's sequence is computed twice. Nothing is taken from the SemCoT release,
which gives the model the right answer at evaluation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import model_validator

from cirf.methods.base import Preset
from cirf.methods.latent.coconut import BEGIN, END, LatentMethod
from cirf.recipe.schema import Evaluate, Lora, Override, Recipe, Section, key
from cirf.records import Example
from cirf.tasks.task import Task

if TYPE_CHECKING:
    from cirf.lm.training.objective import Curriculum, CurriculumRow, Objective


_TRAINING: dict[str, Any] = {"learning_rate": 8e-4, "weight_decay": 0.1, "batch_size": 16, "gradient_accumulation_steps": 8}
_TRAINING |= {"lr_scheduler_type": "cosine", "min_lr_ratio": 0.0}


class CodiSettings(Section):
    """How many thoughts, and the weights of the losses."""

    thoughts: int = key(6, "n: continuous thoughts (vectors) before an answer; 0: none, and no <latent> tokens.", ge=0)
    gamma: float = key(20.0, "Weight of the distance between the states of student and teacher.", ge=0)
    rho: float = key(1.0, "Weight of the teacher's own loss.", ge=0)
    anchor: str = key("The answer is:", "Words before the answer; empty: none.")
    anchor_given: bool = key(True, "The words are in the prompt, after the thoughts; false: the model writes them.")
    projector_width: int | None = key(None, "Hidden width of the projector of thoughts; null: the model's width.", ge=1)
    train_new_tokens: bool = key(
        True, "With adapters, also train the embeddings of <latent> and </latent>; false: keep their first values."
    )

    @model_validator(mode="after")
    def _thinks(self) -> CodiSettings:
        if not self.thoughts and self.projector_width is not None:
            raise ValueError("with thoughts: 0 there is nothing to project, so leave projector_width out")
        return self


class Codi(LatentMethod):
    """Fine-tuned to answer from thoughts as it answers from a rationale."""

    name = "codi"
    summary = "fine-tuned by self-distillation to reason in vectors as it does in words (needs its own decoding loop)"
    Settings = CodiSettings
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": Preset(
            {"thoughts": 6, "gamma": 20.0}, Override(epochs=5, warmup_steps=45, lora=Lora(rank=128, alpha=32), **_TRAINING)
        ),
        "official": Preset(
            {"thoughts": 6, "gamma": 20.0, "anchor_given": False, "train_new_tokens": False},
            Override(epochs=10, max_grad_norm=2.0, lora=Lora(rank=128, alpha=32, dropout=0.1), **_TRAINING),
        ),
    }

    def __init__(self, recipe: Recipe, settings: Any = None) -> None:
        super().__init__(recipe, settings)
        self._thinks(self.settings.thoughts)
        self.tokens_learn = self.settings.train_new_tokens
        self._given = self.settings.anchor if self.settings.anchor_given and self.latents else ""
        self._taught = self.settings.gamma > 0 or self.settings.rho > 0

    def target(self, example: Example) -> str:
        """The teacher's text: all steps but the last, one per line, then the words and the answer; without a teacher the
        student's text."""
        from cirf.methods.latent.loss import answer_line, lead

        read = lead(example.segments) if self._taught else ""
        return read + answer_line(self.settings.anchor, example.problem.answer)

    def read(self, output: str) -> tuple[str, str]:
        """The text before the last words that announce an answer, and the text after them; without them all is the answer."""
        anchor = self.settings.anchor
        before, found, after = output.rpartition(anchor) if anchor else ("", "", output)
        return (before.strip(), after) if found else ("", output)

    def cap(self, task: Task, section: Evaluate) -> int:
        return task.cap + (0 if self._given else len(self.settings.anchor))

    def curriculum(
        self, train: Sequence[CurriculumRow], validation: Sequence[CurriculumRow], tokenizer: Any, epochs: float, updates: int
    ) -> Curriculum | None:
        """Students and their teachers; nothing where there are neither."""
        if not self.latents and not self._taught:
            return None
        from cirf.methods.latent.loss import DistillationCurriculum, RowLayout

        read = self.latents + 1 if self.explained else 0
        form = RowLayout(self.latents, END, self.settings.anchor, bool(self._given), self._taught, read)
        return DistillationCurriculum(train, validation, tokenizer, form)

    def objective(self, model: Any, source: Path | str) -> Objective:
        """The losses of both, and the distance between them. A model that already has a projector keeps it."""
        from cirf.methods.latent.decode import read_latent
        from cirf.methods.latent.loop import Projector, read_projector
        from cirf.methods.latent.loss import Distillation

        if not self.latents:
            return Distillation(None, self.settings.gamma, self.settings.rho)
        width = model.get_input_embeddings().weight.shape[1]
        before = read_latent(Path(source))
        if before is not None and before.projector:
            projector = read_projector(Path(source), width, before.projector).requires_grad_(True)
        else:
            projector = Projector(width, self.settings.projector_width or width, self._seed)
        return Distillation(projector, self.settings.gamma, self.settings.rho)

    def keep(self, folder: Path, objective: Objective | None) -> None:
        if self.latents:
            from cirf.methods.latent.decode import LatentSettings
            from cirf.methods.latent.loss import Distillation

            assert isinstance(objective, Distillation) and objective.projector is not None
            objective.projector.save(folder)
            LatentSettings(BEGIN, END, self.latents, self._given, objective.projector.inner).save(folder)
