"""The inputs from which a method prepares its training rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cirf.records import Problem, Steps

if TYPE_CHECKING:
    from cirf.progress import Progress
    from cirf.recipe.schema import Recipe
    from cirf.store.files import RowLog
    from cirf.tasks.task import Task


@dataclass(frozen=True)
class Material:
    """The rationales of training and held-out problems, cut into steps, and the means to work on them; ``held_out`` are the ids
    of the latter.

    ``annotated`` are the same steps with the calculator notes that some data sets hold. ``tokenizer`` loads the backbone's.
    ``answers`` samples the trained model of a method, as an evaluation does, on every problem that has a rationale: a number of
    times, at a temperature and nucleus. It returns the rows of `cirf.evaluation.harness` by problem, kept in ``folder``.
    ``asked`` is the log of what language models answered, by a name of it; it outlives the stage. Files in ``scratch`` survive a
    kill; files in ``folder`` stay, and are `Method.prepared` in training.
    """

    recipe: Recipe
    problems: dict[str, Problem]
    tasks: dict[str, Task]
    steps: Sequence[Steps]
    annotated: Sequence[Steps]
    tokenizer: Callable[[], Any]
    scratch: Path
    progress: Progress
    folder: Path
    held_out: frozenset[str]
    asked: Callable[[str], RowLog]
    answers: Callable[[str, int, float, float], Mapping[str, list[dict[str, Any]]]]
