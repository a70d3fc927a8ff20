"""CIRF Full: a functional token and its result for every step, then the bare answer.

A target reads ``<cirf><cirf_016>48<cirf_023>72</cirf>72`` (paper 3.3, eq. 13-14).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cirf.records import Example, Problem

if TYPE_CHECKING:
    from cirf.recipe import Evaluate, Recipe
    from cirf.tasks.task import Task


class CirfFull:
    """Functional tokens with all their results."""

    name = "cirf_full"
    summary = "functional tokens with the result of every step, then the answer (CIRF Full)"
    trained = True
    functional = True
    caps: tuple[str, ...] = ("trace_cap",)

    def __init__(self, recipe: Recipe) -> None:
        """Take the token names from the recipe."""
        self._delimiters = recipe.vocabulary.delimiters
        self._size = recipe.codebook.size

    def prompt(self, problem: Problem, task: Task) -> str:
        """The question alone."""
        return task.render(problem)

    def target(self, example: Example) -> str:
        """The trace between its delimiters, and the answer right after."""
        from cirf.lm.vocabulary import token_names, write_trace

        return write_trace(example.trace, token_names(self._size, self._delimiters))

    def read(self, output: str) -> tuple[str, str]:
        """The span between the delimiters, and what follows it."""
        from cirf.lm.vocabulary import read_trace, token_names

        return read_trace(output, token_names(self._size, self._delimiters))

    def cap(self, task: Task, section: Evaluate) -> int:
        """The recipe's cap of a trace and the task's of an answer."""
        return section.trace_cap + task.cap
