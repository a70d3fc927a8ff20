"""Rows of which each is taught twice: with its rationale, and with thoughts in its place (CODI, Shen et al. 2025).

Of a rationale of three steps, with two thoughts::

    teacher: How many?48/2 = 24.\\n48+24 = 72.\\nThe answer is: 72
    student: How many?<latent>z z</latent>The answer is: 72

The teacher does without the last step, which says the result: else the state from which it answers would be that of a copy. Of a
rationale of one step the teacher sees the question alone. The words before the answer are given to the student, or written by it.

The two meet in the state that predicts the answer's first token. Where that is depends on the tokenizer: at the colon where a
blank and the figures behind it are one token, at the blank where they are two. It is found by the answer's place in the text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cirf.lm.batches import Feature, tokens_before
from cirf.lm.curriculum import Lesson
from cirf.lm.groups import aligned, groups_of
from cirf.lm.prompt import encode, end_token, sanitise


@dataclass(frozen=True, slots=True)
class Form:
    """How rows are laid out: ``thoughts`` (0: none, and no marks), the mark ``end`` behind them, the words ``anchor`` before an
    answer, and whether they are ``given`` to the student. ``taught``: whether there is a teacher; ``explained``: how many vectors
    a decoder reads, one by one; 0: none does."""

    thoughts: int
    end: str
    anchor: str
    given: bool
    taught: bool
    explained: int = 0


def lead(steps: Sequence[str]) -> str:
    """What the teacher reads before the words of the answer: all steps but the last, a line each."""
    return "".join(f"{step}\n" for step in steps[:-1])


def answer_line(anchor: str, answer: str) -> str:
    """The words and the answer, or the bare answer where there are none."""
    return f"{anchor} {answer}" if anchor else answer


class Distilled:
    """A curriculum that stays as it is: rows with thoughts and, but for validation, their teachers."""

    def __init__(self, train: Sequence[Lesson], validation: Sequence[Lesson], tokenizer: Any, form: Form) -> None:
        """The last token of every prompt is the mark before the thoughts, where there are any."""
        self._tokenizer, self._form = tokenizer, form
        self._end = (tokenizer.convert_tokens_to_ids(form.end),) if form.thoughts else ()
        self._train = [self._row(lesson, training=True) for lesson in train]
        self._validation = [self._row(lesson, training=False) for lesson in validation]
        self._read = sum(form.taught and len(lesson.row.steps) > 1 for lesson in train)

    @property
    def validation(self) -> list[Feature]:
        """Validation rows as the model is asked."""
        return self._validation

    def feature(self, index: int, update: int) -> Feature:
        """A training row; the same at every update."""
        return self._train[index]

    def fresh(self, update: int) -> bool:
        """Never."""
        return False

    def told(self) -> dict[str, Any]:
        """How many thoughts there are, and of how many rows the teacher reads a step."""
        return {"kind": "distillation", "thoughts": self._form.thoughts, "rows_with_steps": self._read}

    def _row(self, lesson: Lesson, training: bool) -> Feature:
        form, row, whole, tokenizer = self._form, lesson.row, lesson.feature, self._tokenizer
        answer = row.target[len(row.target) - (row.answer or 0) :]
        said = answer_line(form.anchor, answer)
        given = form.anchor if form.given else ""
        text = sanitise(said[len(given) :], tokenizer)
        written, before = encode(tokenizer, text), tokens_before(tokenizer, text, len(text) - len(answer))

        def made(head: tuple[int, ...], words: str, learned: bool, thoughts: tuple[int, int] | None = None) -> Feature:
            shown = (*head, *encode(tokenizer, words))
            start = len(head) if learned else len(shown)
            return Feature((*shown, *written, whole.ids[-1]), start, len(shown) + before, thoughts=thoughts)

        prompt = whole.ids[: whole.start]
        thoughts = (len(prompt), form.thoughts) if form.thoughts else None
        student = made((*prompt, *self._end), given, False, thoughts)
        if not training:
            return student
        bare = prompt[:-1] if thoughts else prompt
        teacher = made(bare, sanitise(lead(row.steps) + given, tokenizer), True) if form.taught else None
        groups = groups_of(tokenizer, aligned(row.steps, form.explained), end_token(tokenizer))
        return dataclasses.replace(student, teacher=teacher, groups=groups)
