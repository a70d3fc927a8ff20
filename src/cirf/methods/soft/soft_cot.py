"""SoftCoT (Xu et al. 2025, arXiv 2502.12134): a smaller model's states, mapped to a frozen larger one's width, in its prompt.

The smaller model, here the guide, reads the question and n places; its last states there go through one linear map, and that map
is all that is trained: the answer's loss reaches it through the frozen model. The guide is frozen too, so its states are
computed once for each question, before training.

In the publication the larger model then writes its reasoning in words, with a note that the vectors are a smaller model's hints
(preset ``official``). What the CIRF paper compares with is the form in which it answers at once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from cirf.methods import semcot_release as semcot
from cirf.methods.base import PreparationData, Preset
from cirf.methods.prose.cot import prose_target, read_prose
from cirf.methods.soft.guided import GuidedMethod, GuidedSettings
from cirf.recipe.schema import Evaluate, Override, Recipe, key
from cirf.records import Example
from cirf.tasks.task import Task

if TYPE_CHECKING:
    from cirf.lm.training.objective import Objective

_STATES = "states.safetensors"
_WINDOW = 64  # questions read between two writes


class SoftCotSettings(GuidedSettings):
    """Which guide computes the vectors, and what is trained with them."""

    target: Literal["answer", "rationale"] = key(
        "answer", "The training target: the bare answer, or the rationale and the answer line."
    )
    lead: str = key("", "Text between the question and the vectors, without quotes and line ends.")
    backbone: Literal["frozen", "trained"] = key(
        "frozen", "frozen: the map alone is trained. trained: the backbone too, as finetune.adaptation says."
    )


class SoftCot(GuidedMethod):
    """A frozen backbone, given a smaller model's mapped states."""

    name = "soft_cot"
    summary = "a frozen backbone with the mapped states of a smaller model in its prompt (needs its own decoding loop)"
    Settings = SoftCotSettings
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": Preset({"n": 5}, Override(learning_rate=1e-3, weight_decay=0.01, epochs=10)),
        "official": Preset(
            {"n": 32, "answered": 4, "target": "rationale", "lead": " Hints from a smaller model, which may be wrong: "},
            Override(
                learning_rate=2e-5,
                weight_decay=0.0,
                epochs=10,
                batch_size=4,
                gradient_accumulation_steps=1,
                lr_scheduler_type="linear",
                warmup_steps=0,
                max_grad_norm=1.0,
            ),
        ),
        "semcot": Preset({"n": 5, "answered": 1, "form": "semcot"}, semcot.training(1e-4).model_copy(update={"lora": None})),
    }

    def __init__(self, recipe: Recipe, settings: Any = None) -> None:
        super().__init__(recipe, settings)
        self.lead = self.settings.lead
        self.frozen = self.settings.backbone == "frozen"
        self._reasons = self.settings.target == "rationale"
        self.caps = ("max_new_tokens",) if self._reasons else ()

    def target(self, example: Example) -> str:
        return prose_target(example.segments, example.problem.answer) if self._reasons else example.problem.answer

    def read(self, output: str) -> tuple[str, str]:
        return read_prose(output) if self._reasons else ("", output)

    def cap(self, task: Task, section: Evaluate) -> int:
        return section.max_new_tokens if self._reasons and not self._legacy else super().cap(task, section)

    def prepare(self, material: PreparationData) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """The guide's states for every question, in `_STATES` [q x n x d_a]; a row's ``given`` is its question's number."""
        import torch
        from safetensors.torch import load_file

        from cirf.lm.backbone import embedding_width
        from cirf.lm.training.phases import save_whole
        from cirf.methods.soft.guide import fingerprint, load_guide

        names = list(dict.fromkeys(steps.problem for steps in material.steps))
        details = self.guide_texts(material, names)
        section = material.recipe.backbone
        guide = load_guide(self.guide, section, embedding_width(section.model, section), self.settings.instruction)
        parts = []
        with material.progress.task("reading questions (guide)", len(details), "questions") as advance:
            for start in range(0, len(details), _WINDOW):
                path = material.scratch / f"states-{start}.safetensors"
                window = details[start : start + _WINDOW]
                if not path.is_file():
                    save_whole({"states": guide.read(window, self.settings.n)}, path)
                parts.append(load_file(path)["states"])
                advance(len(window))
        save_whole({"states": torch.cat(parts)}, material.folder / _STATES)
        numbers = {name: index for index, name in enumerate(names)}
        rows = [{"problem": row.problem, "sample": row.sample, "given": numbers[row.problem]} for row in material.steps]
        return rows, {"guide": self.guide, "fingerprint": fingerprint(guide.model), "questions": len(names)}

    def objective(self, model: Any, source: Path | str) -> Objective:
        from safetensors.torch import load_file

        from cirf.methods.soft.loss import FrozenGuideVectors, SoftObjective

        assert self.prepared is not None
        states = load_file(self.prepared / _STATES)["states"]
        width = model.get_input_embeddings().weight.shape[1]
        return SoftObjective(self._id, FrozenGuideVectors(states, range(len(states)), width, self._seed))

    def keep(self, folder: Path, objective: Objective | None) -> None:
        from cirf.methods.soft.guide import SoftPromptSettings, save_soft

        assert self.prepared is not None and objective is not None
        made_of: Any = objective.module
        made = json.loads((self.prepared / "report.json").read_text(encoding="utf-8"))
        details = (made["guide"], made["fingerprint"], self.settings.instruction)
        soft = SoftPromptSettings(self._holder, self.settings.n, *details, empty_system=self._empty_system)
        save_soft(folder, soft, made_of)
