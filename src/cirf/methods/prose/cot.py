"""Chain-of-thought in prose, and answering at once: the untrained model's, and the same after fine-tuning on rationales or
answers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from cirf.methods.base import Method
from cirf.recipe.schema import Evaluate, Recipe, Section, key
from cirf.records import Example, Problem
from cirf.tasks.task import Task

if TYPE_CHECKING:
    from cirf.lm.decoding.calculator import Calculator
    from cirf.lm.decoding.generate import Steer


class CalculatorSettings(Section):
    """A setting of methods that write functional tokens or prose, which needs no training (`cirf.lm.decoding.calculator`)."""

    calculator: bool = key(
        False,
        "The number after a calculation and its equals sign is computed where it is unambiguous. It is for "
        "rationales and results that hold calculations (results.working: keep).",
    )


def calculates(settings: Section) -> bool:
    """Whether settings, a user's own ones perhaps, ask for a calculator."""
    return bool(getattr(settings, "calculator", False))


def calculating(tokenizer: Any) -> Steer:
    calculator = _calculator(tokenizer, len(tokenizer))
    return lambda: (calculator.fresh(),)


@lru_cache(maxsize=4)
def _calculator(tokenizer: Any, words: int) -> Calculator:
    """The calculator of a tokenizer of this vocabulary size, which is scanned once."""
    from cirf.lm.decoding.calculator import Calculator

    return Calculator(tokenizer)


class Direct(Method):
    """The untrained backbone, prompted for the answer alone (the paper's ``Ans (Base)``)."""

    name = "direct"
    summary = "the untrained backbone, prompted for the answer alone"

    def prompt(self, problem: Problem, task: Task) -> str:
        return f"{task.render(problem)}\n{task.direct_instruction(problem)}"


class DirectSft(Method):
    """Fine-tuned on question and answer: the control that every method that reasons must beat."""

    name = "direct_sft"
    summary = "fine-tuned to write the answer alone"
    trained = True

    def target(self, example: Example) -> str:
        return example.problem.answer


ANSWER_MARK = "#### "
"""Before the answer after prose, on a line of its own."""


class Prose(Method):
    """What methods that write prose share: how trained forms are read, the cap, and a calculator."""

    caps = ("max_new_tokens",)
    Settings: ClassVar[type[Section]] = CalculatorSettings
    answering = frozenset(CalculatorSettings.model_fields)
    quiet = answering

    def __init__(self, recipe: Recipe, settings: Any = None) -> None:
        super().__init__(recipe, settings)
        self.steered = calculates(self.settings)

    def read(self, output: str) -> tuple[str, str]:
        """The prose before the last answer mark and the text after it."""
        return read_prose(output)

    def cap(self, task: Task, section: Evaluate) -> int:
        return section.max_new_tokens

    def steer(self, model: Any, tokenizer: Any) -> Steer:
        return calculating(tokenizer) if calculates(self.settings) else tuple


class Cot(Prose):
    """The untrained backbone's own chain-of-thought: what a user has today."""

    name = "cot"
    summary = "the untrained backbone's own chain-of-thought"

    def prompt(self, problem: Problem, task: Task) -> str:
        return f"{task.render(problem)}\n{task.cot_instruction(problem)}"

    def read(self, output: str) -> tuple[str, str]:
        """All of it twice: the model was not trained on a form, so the parser must find the answer."""
        return output, output


class SftCot(Prose):
    """Fine-tuned to write the rationale and then the answer on a line of its own (the paper's SFT-CoT)."""

    name = "sft_cot"
    summary = "fine-tuned to write the rationale, then the answer"
    trained = True

    def well_formed(self, output: str) -> bool | None:
        return has_answer_line(output)

    def target(self, example: Example) -> str:
        return prose_target(example.segments, example.problem.answer)


def prose_target(lines: Sequence[str], answer: str) -> str:
    return "\n".join((*lines, ANSWER_MARK + answer))


def has_answer_line(output: str) -> bool:
    _, mark, after = output.rpartition(ANSWER_MARK.strip())
    return bool(mark and after.strip())


def read_prose(output: str) -> tuple[str, str]:
    """The prose before the last answer mark and the text after it; without either the parser reads all of it."""
    before, mark, after = output.rpartition(ANSWER_MARK.strip())
    if mark and after.strip():
        return before.rstrip(), f"{ANSWER_MARK}{after.strip()}"
    prose = before.rstrip() if mark else output
    return prose, prose
