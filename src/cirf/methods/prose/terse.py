"""A terse chain-of-thought: the rationale in its shortest form, without functional tokens. The fair comparison for CIRF's
results.

Of ``48/2 = 24 clips in May. | 48+24 = 72 in all.`` it writes the equations alone, or CIRF's own results alone::

    48/2=24          24
    48+24=72         72
    #### 72          #### 72

With ``subjects`` the line of each step but the first begins with its subject, if that is a word of the question, as traces with
subjects have it before the token: ``ann heads``. A step without a result then has a line of its subject alone.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from cirf.methods.base import PreparationData
from cirf.methods.prose.cot import CalculatorSettings, Prose, has_answer_line, prose_target
from cirf.rationales.results import statistics, write_results
from cirf.recipe.schema import Recipe, key, with_defaults
from cirf.records import Example
from cirf.text.subjects import subjects


class TerseSettings(CalculatorSettings):
    """What is left of a step."""

    form: Literal["equations", "results"] = key(
        "results",
        "equations: a step's calculation, or its state where the task has no numbers, found by the task's rule; results: what "
        "the recipe's `results` says each step produced, the very texts that CIRF writes after its tokens. None is longer "
        "than results.max_characters.",
    )
    start: Literal["backbone", "sft_cot"] = key(
        "backbone",
        "The start of fine-tuning. sft_cot: the model of sft_cot, which is trained first, as a control of cirf_full with "
        "that start.",
    )
    subjects: bool = key(
        False,
        "The line of each step but the first begins with its subject, if that is a word of the question: "
        "`ann heads`; a control of cirf_full with subjects.",
    )


class Terse(Prose):
    """Fine-tuned to write one short line a step and then the answer on a line of its own."""

    name = "terse"
    summary = "fine-tuned to write each step's result alone, then the answer: CIRF without functional tokens"
    trained = True
    Settings = TerseSettings
    quiet: ClassVar[frozenset[str]] = Prose.quiet | {"start", "subjects"}

    def __init__(self, recipe: Recipe, settings: Any = None) -> None:
        super().__init__(recipe, settings)
        self.results = self.settings.form == "results"
        if getattr(self.settings, "start", "backbone") != "backbone":
            self.start = self.settings.start

    def prepares(self) -> bool:
        return not self.results

    def prepared_by(self, recipe: Recipe) -> dict[str, Any]:
        return {"max_characters": recipe.results.max_characters}

    def prepare(self, material: PreparationData) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        section = material.recipe.results.model_copy(update={"by": "rule", "working": "keep", "values": "used", "units": "drop"})
        problems = list(material.problems.values())
        written = write_results(material.annotated, problems, material.tasks, section, material.recipe.problems.data)
        rows = [
            {"problem": steps.problem, "sample": steps.sample, "lines": list(lines)}
            for steps, lines in zip(material.annotated, written, strict=True)
        ]
        return rows, statistics(written)

    def well_formed(self, output: str) -> bool | None:
        return has_answer_line(output)

    def target(self, example: Example) -> str:
        lines = example.trace.results if self.results else (example.prepared or {}).get("lines", ())
        if getattr(self.settings, "subjects", False) and lines:
            named = ("", *subjects(example.segments, example.problem.question)[1:])
            lines = [" ".join(filter(None, pair)) for pair in zip(named, lines, strict=True)]
        return prose_target([line for line in lines if line], example.problem.answer)


class TerseEquations(Terse):
    """The calculation of a step instead of the result that the recipe asks for."""

    name = "terse_equations"
    summary = "fine-tuned to write each step's equation or state alone, then the answer"
    Settings = with_defaults(TerseSettings, form="equations")


class TerseSubjects(Terse):
    """The subject of a step before its result."""

    name = "terse_subjects"
    summary = "fine-tuned to write each step's subject and result, then the answer: no functional tokens"
    Settings = with_defaults(TerseSettings, subjects=True)
