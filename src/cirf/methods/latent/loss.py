"""Training to reason in vectors: rows that are cut at their thoughts, and the logits of the tokens after them.

Self-distillation (CODI, Shen et al. 2025) trains one network on each row twice, with its rationale and with thoughts instead. Of
a rationale of three steps, with two thoughts::

    teacher: How many?48/2 = 24.\\n48+24 = 72.\\nThe answer is: 72
    student: How many?<latent>z z</latent>The answer is: 72

Where each predicts the answer's first token, the student's states of all layers are to match the teacher's, which get no
gradient::

    loss = CE of the student + gamma * distance + rho * CE of the teacher

The teacher omits the last step, which states the result: otherwise its state there would only copy. That is at the colon if a
blank and the digits after it are one token, at the blank if they are two; it is found by the answer's place in the text.

A decoder predicts the steps that thoughts replace (SIM-CoT, Wei et al. 2025). For group k of c thoughts it gets the vectors that
were fed to the model, and learns to write the text of step k::

    z z | 48 / 2 = 24 . <end>

Its gradients reach the thoughts, and through them the model and the question. After training it is removed.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from cirf.lm.adapters import add_second, put_adapters, seeded, through
from cirf.lm.prompt import encode, end_token, sanitise
from cirf.lm.training.batches import Feature, collate, cut, pass_price, tokens_before
from cirf.lm.training.loss import IGNORED, only_at, read_targets, summed, unwrap
from cirf.lm.training.objective import Batch, CurriculumRow, Objective
from cirf.lm.vocabulary import is_tied
from cirf.methods.curricula import aligned, groups_of
from cirf.methods.latent.loop import Projector, Thoughts, padded_left, read_after, think
from cirf.recipe import schema


class LatentObjective(Objective):
    """Next-token cross-entropy on the targets of rows with thoughts in them (`Feature.thoughts`). The graph goes through all of
    these. A batch in which no row thinks is a plain one."""

    def __init__(self, projector: Projector | None = None) -> None:
        """``projector`` is f, trained with the model; ``None``: states are fed in unchanged."""
        self.projector = projector
        self.module = projector

    def collate(self, features: Sequence[Feature], padding: int) -> dict[str, torch.Tensor]:
        """As `cut_at_thoughts`, or as usual if no row thinks."""
        if not any(feature.thoughts for feature in features):
            return super().collate(features, padding)
        return cut_at_thoughts(features, padding)

    def logits(self, model: Any, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits [n x V] (float32) that predict the n targets, and the targets [n], row by row."""
        return self._read(model, batch)[1]

    def loss(self, model: Any, batch: Batch, count: torch.Tensor | int | None) -> torch.Tensor:
        return self.parts(model, batch, count)[0]

    def parts(self, model: Any, batch: Batch, count: torch.Tensor | int | None) -> tuple[torch.Tensor, Thoughts | None]:
        """The loss, and the thoughts that it went through; ``None`` where no row of the batch is cut."""
        thoughts, (logits, targets) = self._read(model, batch)
        return summed(logits, targets, count), thoughts

    def _read(self, model: Any, batch: Batch) -> tuple[Thoughts | None, tuple[torch.Tensor, torch.Tensor]]:
        if "counts" not in batch:
            return None, super().logits(model, batch)
        thoughts = self.think(model, batch)
        return thoughts, read_after(model, thoughts, batch["input_ids"], batch["tail_mask"], batch["labels"])[:2]

    def think(self, model: Any, batch: Batch) -> Thoughts:
        return think(model, batch["heads"], batch["seen"], batch["counts"], self.projector)


def cut_at_thoughts(features: Sequence[Feature], padding: int) -> dict[str, torch.Tensor]:
    """``heads`` [b x s] and ``seen`` [b x s]: ids before the thoughts and their mask, padded on the left; ``counts`` [b]: how
    many thoughts; ``input_ids``, ``tail_mask`` and ``labels`` [b x t]: ids after them, mask and labels, padded on the right.

    A row without thoughts is cut before the last token that is not learned.
    """
    cuts = [place_and_count(feature) for feature in features]
    heads, seen = padded_left([feature.ids[:place] for feature, (place, _) in zip(features, cuts, strict=True)], padding)
    tails = [feature.ids[place:] for feature, (place, _) in zip(features, cuts, strict=True)]
    longest = max(map(len, tails))
    ids, labels = (torch.full((len(tails), longest), filler) for filler in (padding, IGNORED))
    tail_mask = torch.zeros(len(tails), longest, dtype=torch.long)
    for row, (feature, tail, (place, _)) in enumerate(zip(features, tails, cuts, strict=True)):
        ids[row, : len(tail)] = torch.tensor(tail)
        tail_mask[row, : len(tail)] = 1
        labels[row, feature.start - place : len(tail)] = torch.tensor(feature.ids[feature.start :])
    counts = torch.tensor([count for _, count in cuts])
    return {"heads": heads, "seen": seen, "counts": counts, "input_ids": ids, "tail_mask": tail_mask, "labels": labels}


def place_and_count(feature: Feature) -> tuple[int, int]:
    """Where a row is cut, and how many thoughts are there."""
    return feature.thoughts or (feature.start - 1, 0)


class Distillation(LatentObjective):
    """The loss of rows that have a teacher (`Feature.teacher`); of others it is that of `LatentObjective`. A batch's distance and
    its teachers' loss weigh in an update as much as its targets are of those of the update."""

    def __init__(self, projector: Projector | None, gamma: float, rho: float) -> None:
        """Weights of the distance and the teacher's own loss; with 0 it is not computed."""
        super().__init__(projector)
        self.gamma, self.rho = gamma, rho

    def collate(self, features: Sequence[Feature], padding: int) -> dict[str, torch.Tensor]:
        """As `cut_at_thoughts`, and ``column`` [b]: where in ``input_ids`` the student predicts the answer's first token;
        ``teacher`` and ``taught`` [b x u]: the teacher's ids and labels, padded on the right; ``taught_column`` [b]: where it
        predicts it."""
        teachers = [feature.teacher for feature in features if feature.teacher is not None]
        if not teachers:
            return super().collate(features, padding)
        batch, theirs = cut_at_thoughts(features, padding), collate(teachers, padding)
        batch["column"] = _before_answers(features) - torch.tensor([place_and_count(feature)[0] for feature in features])
        return batch | {"teacher": theirs["input_ids"], "taught": theirs["labels"], "taught_column": _before_answers(teachers)}

    def parts(self, model: Any, batch: Batch, count: torch.Tensor | int | None) -> tuple[torch.Tensor, Thoughts | None]:
        """The loss and the student's thoughts."""
        if "teacher" not in batch:
            return super().parts(model, batch, count)
        thoughts = self.think(model, batch)
        read = (batch["input_ids"], batch["tail_mask"], batch["labels"])
        logits, targets, made = read_after(model, thoughts, *read, states=self.gamma > 0)
        loss = summed(logits, targets, count)
        share = 1.0 if count is None else targets.numel() / count
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.rho > 0):
            taught, states = teach(model, batch["teacher"], batch["taught"], batch["taught_column"])
        if self.gamma > 0:
            loss = loss + self.gamma * share * distance(at(made.hidden_states, batch["column"]), states)
        if self.rho > 0:
            loss = loss + self.rho * share * taught
        return loss, thoughts


def teach(model: Any, ids: torch.Tensor, labels: torch.Tensor, columns: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The mean loss of the teacher's targets, and its states at ``columns`` [b] as `at` gives them, in one pass. ``ids`` and
    ``labels`` are [b x u], padded on the right; no mask is needed."""
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
class RowLayout:
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


class DistillationCurriculum:
    """A constant curriculum: rows with thoughts and, except in validation, their teachers."""

    def __init__(
        self, train: Sequence[CurriculumRow], validation: Sequence[CurriculumRow], tokenizer: Any, form: RowLayout
    ) -> None:
        """The last token of every prompt is the mark before the thoughts, where there are any."""
        self._tokenizer, self._form = tokenizer, form
        self._end = (tokenizer.convert_tokens_to_ids(form.end),) if form.thoughts else ()
        self._train = [self._row(pair, training=True) for pair in train]
        self.validation = [self._row(pair, training=False) for pair in validation]
        """Validation rows in the form used when answering."""
        self._read = sum(form.taught and len(pair.row.steps) > 1 for pair in train)

    def feature(self, index: int, update: int) -> Feature:
        """A training row; the same at every update."""
        return self._train[index]

    def fresh(self, update: int) -> bool:
        return False

    def summary(self) -> dict[str, Any]:
        return {"kind": "distillation", "thoughts": self._form.thoughts, "rows_with_steps": self._read}

    def _row(self, pair: CurriculumRow, training: bool) -> Feature:
        form, row, whole, tokenizer = self._form, pair.row, pair.feature, self._tokenizer
        answer = row.target[len(row.target) - (row.answer or 0) :]
        answer_text = answer_line(form.anchor, answer)
        given = form.anchor if form.given else ""
        text = sanitise(answer_text[len(given) :], tokenizer)
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


_NAME = "decoder"


_AT_ONCE = 10**12  # the price of a pass, in positions of padding, at which there is one


class StepDecoder:
    """Predicts steps from thoughts. ``own`` is a separate model, or ``None``: the trained one with a second set of adapters."""

    def __init__(self, own: torch.nn.Module | None = None) -> None:
        self.own = own
        self._learns: list[torch.nn.Parameter] = []

    def join(self, model: Any, section: schema.Finetune, seed: int) -> None:
        """Put its adapters on the model that is trained, or on a copy of it where that has none."""
        if self.own is None and section.adaptation == "lora":
            add_second(model, section.lora, _NAME, seed)
            self._learns = [weight for name, weight in model.named_parameters() if f".{_NAME}." in name]
            return
        if self.own is None:
            with seeded(seed):
                self.own = put_adapters(copy.deepcopy(model), section.lora)
        assert self.own is not None
        self._learns = [weight for weight in self.own.parameters() if weight.requires_grad]

    def nothing(self) -> torch.Tensor:
        """0, for a batch without targets: processes that train together wait for gradients of every weight."""
        return torch.stack([weight.sum() for weight in self._learns]).sum() * 0

    @contextlib.contextmanager
    def reading(self, model: Any) -> Iterator[Any]:
        """The model to pass vectors through."""
        if self.own is not None:
            yield self.own
            return
        with through(unwrap(model), _NAME):
            yield model


def copied(model: Any) -> StepDecoder:
    """A copy of ``model`` in float32, all trained except its separate input matrix, since its inputs are vectors."""
    own = copy.deepcopy(model).float().requires_grad_(True)
    if not is_tied(own):
        own.get_input_embeddings().requires_grad_(False)
    return StepDecoder(own)


class ExplainedObjective(Objective):
    """The sum of another objective's loss and the decoder's, whose weight in an update follows the batch's number of targets."""

    def __init__(self, host: LatentObjective, decoder: StepDecoder, size: int, beyond: bool, weight: float, mean: bool) -> None:
        """``size``: thoughts a group; ``beyond``: the vector that would come next is a group, too; ``mean``: over the tokens of
        a group, and not their sum over its rows."""
        self.host, self.decoder = host, decoder
        self._size, self._beyond, self._weight, self._mean = size, beyond, weight, mean

    def join(self, model: Any, section: schema.Finetune, seed: int) -> None:
        """The decoder's weights, and the host's net."""
        self.decoder.join(model, section, seed)
        parts = {"host": self.host.module, "decoder": self.decoder.own}
        found = {name: part for name, part in parts.items() if part is not None}
        self.module = torch.nn.ModuleDict(found) if found else None

    def collate(self, features: Sequence[Feature], padding: int) -> dict[str, torch.Tensor]:
        """The host's batch and ``groups`` [b x g x t]: the target ids of each group, padded with `IGNORED`."""
        batch = self.host.collate(features, padding)
        count = max(len(feature.groups) for feature in features)
        longest = max((len(ids) for feature in features for ids in feature.groups), default=0)
        if longest:
            batch["groups"] = torch.full((len(features), count, longest), IGNORED)
            for row, feature in enumerate(features):
                for index, ids in enumerate(feature.groups):
                    batch["groups"][row, index, : len(ids)] = torch.tensor(ids, dtype=torch.long)
        return batch

    def logits(self, model: Any, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        return self.host.logits(model, batch)

    def loss(self, model: Any, batch: Batch, count: torch.Tensor | int | None) -> torch.Tensor:
        """The host's loss and ``weight`` times the decoder's."""
        loss, thoughts = self.host.parts(model, batch, count)
        if thoughts is None or "groups" not in batch or not self._weight:
            return loss + self.decoder.nothing()
        share = 1.0 if count is None else (batch["labels"] != IGNORED).sum() / count
        explained = self.said(model, self.vectors(thoughts), batch["counts"] + self._beyond, batch["groups"])
        return loss + self._weight * share * explained

    def vectors(self, thoughts: Thoughts) -> torch.Tensor:
        """What the decoder reads [b x n x d]: the vectors that were fed in, and with ``beyond`` the one that would come next
        (all rows must have as many thoughts then)."""
        if not self._beyond:
            return thoughts.latents
        after = thoughts.last if self.host.projector is None else self.host.projector(thoughts.last)
        return torch.cat([thoughts.latents, after[:, None].to(thoughts.latents.dtype)], dim=1)

    def said(self, model: Any, vectors: torch.Tensor, counts: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
        """The decoder's loss: of each group the sum over its tokens by the rows in which there are any, or the mean over its
        tokens; then the mean over the groups. ``vectors`` [b x n x d], of which ``counts`` [b] are a row's."""
        lengths = (groups != IGNORED).sum(dim=2)
        rows, places = lengths.nonzero(as_tuple=True)  # r of them
        longs = lengths[rows, places].tolist()
        sums = vectors.new_zeros(groups.shape[1], dtype=torch.float32)
        with self.decoder.reading(model) as decoder:
            price = _AT_ONCE if _casts(decoder, groups.device.type) else pass_price(groups.device.type)
            for numbers in cut([self._size + long for long in longs], price):
                row, place = rows[numbers], places[numbers]
                text = groups[row, place, : longs[numbers[-1]]]  # [r x t]
                words = unwrap(model).get_input_embeddings()(text.clamp(min=0))
                losses, of = self._losses(decoder, *self._of_groups(vectors, counts, row, place), words, text)
                sums = sums.index_add(0, place[of], losses)
        by = torch.bincount(places, weights=lengths[rows, places].float() if self._mean else None, minlength=len(sums))
        return (sums[by > 0] / by[by > 0]).mean()

    def _losses(
        self, decoder: Any, read: torch.Tensor, mask: torch.Tensor, words: torch.Tensor, text: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """One pass over vectors [r x c x d], of which ``mask`` [r x c] counts, followed by ``words`` [r x t x d], the rows of
        the ids ``text`` [r x t]: the loss of each target id, and its row."""
        length = read.shape[1] + text.shape[1]
        mask = torch.cat([mask, (text != IGNORED).to(mask)], dim=1)
        row, column = (text != IGNORED).nonzero(as_tuple=True)
        with only_at(decoder, row * length + column + read.shape[1] - 1) as kept:
            given = torch.cat([read, words], dim=1).to(unwrap(decoder).get_input_embeddings().weight.dtype)
            seen = (mask.cumsum(dim=1) - 1).clamp(min=0)
            made = decoder(inputs_embeds=given, attention_mask=mask, position_ids=seen, use_cache=False)
            logits = kept(made.logits).float()
        return torch.nn.functional.cross_entropy(logits, text[row, column], reduction="none"), row

    def _of_groups(
        self, vectors: torch.Tensor, counts: torch.Tensor, rows: torch.Tensor, places: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The vectors of r groups [r x c x d], those of a group with fewer than c on the right, and their mask [r x c]."""
        column = torch.arange(self._size, device=rows.device)
        width = (counts[rows] - places * self._size).clamp(max=self._size)  # [r]
        mask = column >= self._size - width[:, None]
        place = (places * self._size + width)[:, None] - self._size + column  # of each vector among its row's
        return vectors[rows[:, None], place.clamp(min=0)] * mask[..., None], mask.long()


def _casts(model: Any, kind: str) -> bool:
    """Whether every pass casts weights of the model and holds them for its way back: autocast keeps those of trained weights
    alone."""
    if not torch.is_autocast_enabled(kind):
        return False
    dtype = torch.get_autocast_dtype(kind)
    layers = (part.weight for part in model.modules() if isinstance(part, torch.nn.Linear))
    return any(not weight.requires_grad and weight.dtype != dtype for weight in layers)
