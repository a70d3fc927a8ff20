"""Chain-of-Draft: the untrained model, shown worked examples whose steps are drafts of a few words (Xu et al., 2025, arXiv
2502.18600).

The prompt, in one user turn::

    Think in steps, but write only a short draft of each: ... Then write #### and the final number. Some examples:

    Q: Each basket holds 6 melons and 8 baskets are full. How many melons are there?
    A: 8 * 6 = 48 #### 48

    Answer this question in the same way, draft first:

    Q: (the question)

Everything before the question is the same for all questions of a task, or of a part of it, so an engine computes it once.
The instruction and the examples are our own; the paper has examples for GSM8K and Coin Flip, and for no other of these tasks.
The line before the question is there because small models otherwise answer the examples.

The worked examples are in ``drafts.yaml``, by benchmark, those of BIG-Bench Hard by part::

    svamp:
      - question: Each basket holds 6 melons and 8 baskets are full. How many melons are there?
        draft: 8 * 6 = 48
        answer: '48'

``choices`` holds the options' texts where there are any.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from cirf.methods.prose.cot import Prose
from cirf.records import Problem
from cirf.tasks.shots import Shot
from cirf.tasks.task import ANSWERS, Task

DRAFT = "Think in steps, but write only a short draft of each: at most five words, or one equation."
"""The request for a draft."""

NOW = "Answer this question in the same way, draft first:"
"""Between the examples and the question."""

LABEL = "A:"
"""Before the draft of an example."""


class ChainOfDraft(Prose):
    """The untrained backbone, prompted for drafts of steps by worked examples."""

    name = "chain_of_draft"
    summary = "the untrained backbone, shown worked examples whose steps are drafts of at most five words"

    def prompt(self, problem: Problem, task: Task) -> str:
        return f"{_opening(task, problem.subset)} {task.render(problem)}"

    def openings(self, task: Task) -> tuple[str, ...]:
        """The prefixes of its prompts to a task: each prompt is one of these, followed by the question."""
        subsets = (None, *task.kinds, *(shot.subset for shot in shots_of(task)))
        return tuple(dict.fromkeys(_opening(task, subset) for subset in subsets))

    def read(self, output: str) -> tuple[str, str]:
        """All of it twice, for the parser to find the answer in, but for a label that the model copies from the examples:
        ``A: service`` would be read as the first option."""
        text = output.strip().removeprefix(LABEL).lstrip() or output
        return text, text


def _opening(task: Task, subset: str | None) -> str:
    """The instruction, the worked examples for a part of a task, and the mark of the question."""
    what, _ = ANSWERS[task.kinds.get(subset or "", task.answer)]
    instruction = f"{task.wording[1]} {DRAFT}" if task.wording else f"{DRAFT} Then write #### and {what}."
    shots = [shot for shot in shots_of(task) if shot.subset in (None, subset)]
    worked = [f"Q: {task.render(shot.problem)}\n{LABEL} {shot.worked}" for shot in shots]
    parts = (f"{instruction} Some examples:", *worked, NOW) if worked else (instruction,)
    return "\n\n".join((*parts, "Q:"))


def shots_of(task: Task) -> tuple[Shot, ...]:
    """The worked examples of a task: those it brings itself, else the shipped ones of a published benchmark, else none."""
    return task.shots if task.shots or task.hub is None or task.origin else _shipped(task.name)


def _shipped(name: str) -> tuple[Shot, ...]:
    found = _drafts().get(name, ())
    parts = found.items() if isinstance(found, dict) else [(None, found)]
    return tuple(
        Shot(row["question"], row["draft"], row["answer"], tuple(row["choices"]) if "choices" in row else None, part)
        for part, rows in parts
        for row in rows
    )


@cache
def _drafts() -> dict[str, Any]:
    import yaml

    found: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("drafts.yaml").read_text(encoding="utf-8"))
    return found
