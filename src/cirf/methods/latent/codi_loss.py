"""Self-distillation: a model that thinks in vectors is trained to match itself with a rationale (CODI, Shen et al. 2025).

Both sequences go through one network with one set of adapters, the teacher's once. Where each predicts the answer's first token,
the student's states of all layers are trained to match the teacher's, which get no gradient. Both also have their own
cross-entropy::

    loss = CE of the student + gamma * distance + rho * CE of the teacher

Each row is trained on twice, with its rationale and with thoughts instead. Of a rationale of three steps, with two thoughts::

    teacher: How many?48/2 = 24.\\n48+24 = 72.\\nThe answer is: 72
    student: How many?<latent>z z</latent>The answer is: 72

The teacher omits the last step, which states the result: otherwise its state before the answer would only copy. For a rationale
of one step the teacher sees the question alone. The words before the answer are given to the student, or written by it.

The two meet in the state that predicts the answer's first token. Where that is depends on the tokenizer: at the colon if a blank
and the digits after it are one token, at the blank if they are two. It is found by the answer's place in the text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from cirf.lm.prompt import encode, end_token, sanitise
from cirf.lm.training.batches import Feature, collate, tokens_before
from cirf.lm.training.curriculum import CurriculumRow
from cirf.lm.training.loss import read_targets, summed
from cirf.lm.training.objective import Batch
from cirf.methods.latent.groups import aligned, groups_of
from cirf.methods.latent.loop import Thoughts, read_after
from cirf.methods.latent.loss import LatentObjective, cut, place_and_count
from cirf.methods.latent.projector import Projector


class Distillation(LatentObjective):
    """The loss of rows that have a teacher (`Feature.teacher`); of others it is that of `LatentObjective`.

    A batch's distance and its teachers' loss weigh in an update as much as its targets are of those of the update.
    """

    def __init__(self, projector: Projector | None, gamma: float, rho: float) -> None:
        """Weights of the distance and the teacher's own loss; with 0 it is not computed."""
        super().__init__(projector)
        self.gamma, self.rho = gamma, rho

    def collate(self, features: Sequence[Feature], padding: int) -> dict[str, torch.Tensor]:
        """As `cut`, and ``column`` [b]: where in ``input_ids`` the student predicts the answer's first token; ``teacher`` and
        ``taught`` [b x u]: the teacher's ids and labels, padded on the right; ``taught_column`` [b]: where it predicts it."""
        teachers = [feature.teacher for feature in features if feature.teacher is not None]
        if not teachers:
            return super().collate(features, padding)
        batch, theirs = cut(features, padding), collate(teachers, padding)
        batch["column"] = _before_answers(features) - torch.tensor([place_and_count(feature)[0] for feature in features])
        return batch | {
            "teacher": theirs["input_ids"],
            "taught": theirs["labels"],
            "taught_column": _before_answers(teachers),
        }

    def parts(self, model: Any, batch: Batch, count: torch.Tensor | int | None) -> tuple[torch.Tensor, Thoughts | None]:
        """The loss and the student's thoughts."""
        if "teacher" not in batch:
            return super().parts(model, batch, count)
        thoughts = self.think(model, batch)
        student = read_after(model, thoughts, batch["input_ids"], batch["tail_mask"], batch["labels"], states=self.gamma > 0)
        loss = summed(student.logits, student.targets, count)
        share = 1.0 if count is None else student.targets.numel() / count
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.rho > 0):
            taught, states = teach(model, batch["teacher"], batch["taught"], batch["taught_column"])
        if self.gamma > 0:
            assert student.states is not None
            loss = loss + self.gamma * share * distance(at(student.states, batch["column"]), states)
        if self.rho > 0:
            loss = loss + self.rho * share * taught
        return loss, thoughts


def teach(model: Any, ids: torch.Tensor, labels: torch.Tensor, columns: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The mean loss of the teacher's targets, and its states at ``columns`` [b] as `at` gives them, in one pass.

    ``ids`` and ``labels`` are [b x u], padded on the right; no mask is needed.
    """
    logits, targets, made = read_targets(model, labels, input_ids=ids, use_cache=False, output_hidden_states=True)
    return summed(logits, targets, None), at(made.hidden_states, columns)


def at(states: Sequence[torch.Tensor], columns: torch.Tensor) -> list[torch.Tensor]:
    """Of states [b x t x d] a layer those of one column a row: L+1 of [b x d], float32. A layer may be as wide as it likes: some
    models (OPT-350M) project the first and the last one."""
    rows = torch.arange(len(columns), device=columns.device)
    return [layer[rows, columns].float() for layer in states]


def distance(student: Sequence[torch.Tensor], teacher: Sequence[torch.Tensor]) -> torch.Tensor:
    """Mean over the layers of ``SmoothL1(student, teacher) / std(teacher)``, both L+1 of [b x d].

    SmoothL1 is the mean over rows and numbers with its bend at 1; the standard deviation, too, is over both (CODI, eq. of the
    distillation loss). No gradient goes to the teacher.
    """
    near = torch.nn.functional.smooth_l1_loss
    pairs = [(one, other.detach()) for one, other in zip(student, teacher, strict=True)]
    return torch.stack([near(one, other) / other.std() for one, other in pairs]).mean()


def _before_answers(rows: Sequence[Feature]) -> torch.Tensor:
    """Where each of some rows predicts the first token of its answer [b]."""
    places = [row.answer for row in rows if row.answer is not None]
    assert len(places) == len(rows)
    return torch.tensor(places) - 1


@dataclass(frozen=True, slots=True)
class Form:
    """How rows are laid out: ``thoughts`` (0: none, and no marks), the mark ``end`` after them, the words ``anchor`` before an
    answer, and whether they are ``given`` to the student. ``taught``: whether there is a teacher; ``explained``: how many vectors
    a decoder reads, one by one; 0: none does."""

    thoughts: int
    end: str
    anchor: str
    given: bool
    taught: bool
    explained: int = 0


def lead(steps: Sequence[str]) -> str:
    """The teacher's text before the words of the answer: all steps but the last, one per line."""
    return "".join(f"{step}\n" for step in steps[:-1])


def answer_line(anchor: str, answer: str) -> str:
    """The words and the answer, or the bare answer where there are none."""
    return f"{anchor} {answer}" if anchor else answer


class Distilled:
    """A constant curriculum: rows with thoughts and, except in validation, their teachers."""

    def __init__(self, train: Sequence[CurriculumRow], validation: Sequence[CurriculumRow], tokenizer: Any, form: Form) -> None:
        """The last token of every prompt is the mark before the thoughts, where there are any."""
        self._tokenizer, self._form = tokenizer, form
        self._end = (tokenizer.convert_tokens_to_ids(form.end),) if form.thoughts else ()
        self._train = [self._row(pair, training=True) for pair in train]
        self._validation = [self._row(pair, training=False) for pair in validation]
        self._read = sum(form.taught and len(pair.row.steps) > 1 for pair in train)

    @property
    def validation(self) -> list[Feature]:
        """Validation rows in the form used when answering."""
        return self._validation

    def feature(self, index: int, update: int) -> Feature:
        """A training row; the same at every update."""
        return self._train[index]

    def fresh(self, update: int) -> bool:
        """Never."""
        return False

    def summary(self) -> dict[str, Any]:
        """How many thoughts there are, and of how many rows the teacher reads a step."""
        return {"kind": "distillation", "thoughts": self._form.thoughts, "rows_with_steps": self._read}

    def _row(self, pair: CurriculumRow, training: bool) -> Feature:
        form, row, whole, tokenizer = self._form, pair.row, pair.feature, self._tokenizer
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
