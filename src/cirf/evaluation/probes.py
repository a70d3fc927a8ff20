"""Probes: do thoughts or functional tokens affect the answer? Answers to the same questions after perturbed ones.

One row a question and probe, ``<task>.jsonl``::

    {"probe": "swap", "id": "test-3", "output": "72", "parsed": "72", "gold": "65", "correct": false, "tokens": 2,
     "truncated": false, "unparsed": false, "changed": true, "partner": "test-8", "as_partner": true}

Two more are added to the requested probes: ``none``, the unperturbed answers, with which all are compared question by question,
and ``keep``, a probe that changes nothing, whose answers should be the same. ``changed``: whether there was anything to perturb;
``partner``: whose thoughts were swapped in; ``as_partner``: whether the answer is right for that question.

A prompt with two thoughts, and its form under each probe (w: the thoughts of another question)::

    keep         How many clips?<latent> z1 z2 </latent>
    drop         How many clips?<latent></latent>
    shuffle      How many clips?<latent> z2 z1 </latent>
    swap         How many clips?<latent> w1 w2 </latent>
    truncate-1   How many clips?<latent> z1 </latent>

All vectors are computed first, as usual; then they are perturbed and fed to the model in one pass, from which it answers. It does
not continue thinking from a perturbed thought: the probe's effect could not be separated from the model's own.

A trace is written first, as usual; its units are the steps, each a functional token with its result, and the model continues
after the perturbed trace and its end token. Functional tokens may not follow: a model would otherwise write the trace again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch

from cirf.errors import CirfError
from cirf.evaluation.harness import FIELDS, Questions, Row, compare_rows, hide, judge, read, score
from cirf.lm.decoding import generate as decode
from cirf.lm.decoding.generate import Output
from cirf.lm.decoding.prefix_cache import PrefilledPrompts, Prefiller
from cirf.lm.prompt import encode
from cirf.lm.vocabulary import TokenNames
from cirf.methods.latent.decode import PromptVectors, given, prefill
from cirf.progress import Progress
from cirf.recipe.schema import Evaluate
from cirf.records import Problem
from cirf.statistics import corrected, mean
from cirf.store.files import RowLog, to_json, write_atomic, write_rows

if TYPE_CHECKING:
    from cirf.methods.base import Method
    from cirf.tasks.task import Task

KEEP, NONE = "keep", "none"
"""The probe that changes nothing, and no probe at all."""

Ask = Callable[[list[str], list[str], int], Mapping[str, "Sequence[Probed]"]]
"""Rendered prompts of a batch, names of their questions, and a cap in tokens, to the answers under ``none``, ``keep`` and
every probe, in order. It must depend only on its arguments."""


class ProbedModel(NamedTuple):
    """The answering model under probes. ``render`` is the chat template around a user's turn."""

    method: Method
    ask: Ask
    render: Callable[[str], str]


def probe(
    subject: ProbedModel,
    questions: Questions,
    probes: Sequence[str],
    section: Evaluate,
    work: Path,
    progress: Progress,
    about: Mapping[str, Any],
) -> dict[str, Any]:
    """Ask every test problem under every probe; write ``work/<task>.jsonl`` and ``work/probes.json``, which it returns and which
    begins with the entries of ``about``.

    Batches are fixed, of questions of similar prompt length, and have at least two if possible, so that each has another to swap
    with. A killed probing resumes at the first incomplete batch; rows are kept in ``work/scratch`` until the caller no longer
    needs them. ``CirfError``: no problems.
    """
    if not any(questions.test.values()):
        raise CirfError("evaluate.probes: there is no test problem to probe with")
    names = (NONE, KEEP, *probes)
    rows: dict[str, list[Row]] = {}
    for name, problems in questions.test.items():
        if problems:
            table = _Table(name, questions.tasks[name], list(problems), subject, section, names, work)
            rows[name] = table.fill(subject.ask, progress)
    details = {"method": subject.method.name, **about, "probes": summary(rows, probes)}
    write_atomic(work / "probes.json", to_json(details))
    return details


class _Table:
    def __init__(
        self,
        name: str,
        task: Task,
        problems: list[Problem],
        subject: ProbedModel,
        section: Evaluate,
        names: Sequence[str],
        work: Path,
    ) -> None:
        method = subject.method
        self.name, self.task, self.problems, self.method, self.names, self.work = name, task, problems, method, names, work
        self.cap, self.batch_size = method.budget(task, section), max(2, section.batch_size)
        self.rendered = [subject.render(method.prompt(hide(problem), task)) for problem in problems]

    def batches(self) -> Iterator[list[int]]:
        """Problem indices, those of like prompt length together; the last batch is never of one alone."""
        order = sorted(range(len(self.problems)), key=lambda i: (len(self.rendered[i]), i))
        starts = list(range(0, len(order), self.batch_size))
        ends = [*starts[1:], len(order)]
        if len(starts) > 1 and ends[-1] - starts[-1] == 1:
            starts[-1] -= 1
            ends[-2] -= 1
        for start, end in zip(starts, ends, strict=True):
            if end > start:
                yield order[start:end]

    def fill(self, ask: Ask, progress: Progress) -> list[Row]:
        """All rows, probe by probe in the order of the problems; generates only missing ones."""
        log = RowLog(self.work / "scratch" / f"{self.name}.jsonl")
        rows = {(row["probe"], row["id"]): row for row in log.rows(**FIELDS, probe=str, changed=bool)}
        wanted = [(batch, {(name, self.problems[i].id) for name in self.names for i in batch}) for batch in self.batches()]
        missing = [batch for batch, keys in wanted if not keys <= rows.keys()]
        label = f"{self.method.name}, probed on {self.name}"
        done = len(self.problems) - sum(map(len, missing))
        with progress.task(label, len(self.problems), "problems", done) as advance:
            for batch in missing:
                ids = [self.problems[i].id for i in batch]
                found = ask([self.rendered[i] for i in batch], ids, self.cap)
                fresh = [self.row(n, batch, index, one) for n in self.names for index, one in enumerate(found[n])]
                log.append(*fresh)
                rows.update({(row["probe"], row["id"]): row for row in fresh})
                advance(len(batch))
        ordered = [rows[name, problem.id] for name in self.names for problem in self.problems]
        write_rows(self.work / f"{self.name}.jsonl", ordered)
        return ordered

    def row(self, name: str, batch: list[int], place: int, probed: Probed) -> Row:
        problem, output = self.problems[batch[place]], probed.output
        answer = read(self.method, output)[1]
        parsed, correct = judge(answer, problem, self.task)
        row: Row = {"probe": name, "id": problem.id, "run": 0, "output": output.text, "parsed": parsed, "gold": problem.answer}
        row |= {"correct": correct, "tokens": output.tokens, "truncated": output.truncated, "unparsed": parsed is None}
        row["changed"] = probed.changed
        if probed.partner is not None:
            other = self.problems[batch[probed.partner]]
            row |= {"partner": other.id, "as_partner": judge(answer, other, self.task)[1]}
        return row


def summary(rows: Mapping[str, Sequence[Row]], probes: Sequence[str]) -> dict[str, Any]:
    """For each probe the scores over all questions, compared with the unperturbed answers.

    ``changed``: the share of questions in which anything was changed; ``moved``: the share whose answer is another than without
    the probe; ``as_partner``: of those with another question's thoughts, the share answered as that question rightly is, with
    ``n_partner`` of them; ``against``: the paired comparison with the unperturbed answers, p-values corrected by Holm for
    all ``probes``. ``tasks``: accuracy by task.
    """
    tables = {
        name: {task: [row for row in part if row["probe"] == name] for task, part in rows.items()}
        for name in (NONE, KEEP, *probes)
    }
    plain = {(task, row["id"]): _said(row) for task, part in tables[NONE].items() for row in part}
    compared = {name: found for name in probes if (found := compare_rows(tables[name], tables[NONE])) is not None}
    against = corrected(compared)
    details: dict[str, Any] = {}
    for name, tasks in tables.items():
        pooled = [{**row, "id": f"{task}/{row['id']}"} for task, part in tasks.items() for row in part]
        swapped = [row["as_partner"] for row in pooled if "as_partner" in row]
        details[name] = {
            **score(pooled).to_dict(),
            "changed": mean([row["changed"] for row in pooled]),
            "moved": mean([_said(row) != plain[task, row["id"]] for task, part in tasks.items() for row in part]),
            **({"as_partner": mean(swapped), "n_partner": len(swapped)} if swapped else {}),
            **({"against": against[name].to_dict()} if name in against else {}),
            "tasks": {task: score(part).to_dict() for task, part in tasks.items()},
        }
    return details


def _said(row: Row) -> tuple[bool, str]:
    """An answer, or the output if none could be read."""
    return (True, row["parsed"]) if row["parsed"] is not None else (False, row["output"])


_TRIES = 32


class Unit(NamedTuple):
    """Some positions that go together: their ids, and for vectors instead of tokens the vectors [n x d]."""

    ids: tuple[int, ...]
    vectors: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class Cut:
    """A beginning in parts: ``head``, the ``units`` that can be perturbed, and ``tail``. All but the first ``asked`` positions
    were written by the model (``None``: it wrote nothing yet)."""

    head: Unit
    units: tuple[Unit, ...]
    tail: Unit
    asked: int | None = None


class Probed(NamedTuple):
    """An answer after a perturbed beginning: whether the beginning changed, and the place in the batch of the question whose
    units it has, if another's."""

    output: Output
    changed: bool
    partner: int | None = None


class Perturbable(ABC):
    """How one kind of beginning is split into units; here of tokens, whose changed prompt is read again."""

    never: tuple[int, ...] = ()
    """Tokens that may not follow a beginning."""

    @abstractmethod
    def cut(self, prompts: Sequence[list[int]], written: Sequence[Output]) -> list[Cut | None]:
        """Prompts of a batch with the text written after them; ``None`` where there is nothing to perturb."""

    def arranged(self, units: Sequence[Unit], others: Sequence[Unit]) -> tuple[Unit, ...]:
        """The units of a row after replacement by ``others``."""
        return tuple(others)

    def begin(self, cuts: Sequence[Cut]) -> PrefilledPrompts:
        """The state from which a generation starts: none of the tokens is computed yet."""
        rows = [[token for part in (cut.head, *cut.units, cut.tail) for token in part.ids] for cut in cuts]
        return PrefilledPrompts(rows, [0] * len(rows), None)


class OfThoughts(Perturbable):
    """Vectors of the model's own."""

    def __init__(self, model: Any, beginnings: Prefiller) -> None:
        self._model, self._beginnings = model, beginnings

    def cut(self, prompts: Sequence[list[int]], written: Sequence[Output]) -> list[Cut | None]:
        """At the first vector; the rest after it is the tail."""
        cuts: list[Cut | None] = []
        for row in given(self._model, self._beginnings, prompts):
            own = row.own.nonzero()[:, 0].tolist()
            if not own:
                cuts.append(None)
                continue
            rest = [place for place in range(own[0], len(row.ids)) if not row.own[place]]
            parts = [range(own[0]), *([place] for place in own), rest]
            head, *units, tail = (Unit(tuple(row.ids[i] for i in part), row.vectors[list(part)]) for part in parts)
            cuts.append(Cut(head, tuple(units), tail))
        return cuts

    def begin(self, cuts: Sequence[Cut]) -> PrefilledPrompts:
        rows = []
        for cut in cuts:
            parts = (cut.head, *cut.units, cut.tail)
            vectors = torch.cat([part.vectors for part in parts if part.vectors is not None])
            ids = [token for part in parts for token in part.ids]
            rows.append(PromptVectors(ids, vectors, torch.zeros(len(ids), dtype=torch.bool)))
        return prefill(self._model, rows)


class OfTrace(Perturbable):
    def __init__(self, tokenizer: Any, names: TokenNames, results: Literal["follow", "keep"]) -> None:
        """``results``: each moves with its token, or all stay in place and only tokens are perturbed."""
        self._start, self._end, *codes = tokenizer.convert_tokens_to_ids(list(names.all))
        self._codes, self._keeps = frozenset(codes), results == "keep"
        self.never = (self._start, self._end, *codes)
        self._blank = tuple(encode(tokenizer, " "))

    def cut(self, prompts: Sequence[list[int]], written: Sequence[Output]) -> list[Cut | None]:
        """Between the delimiters, before every functional token. A trace without an end is not used: no answer follows it."""
        return [self._cut(prompt, output.ids) for prompt, output in zip(prompts, written, strict=True)]

    def _cut(self, prompt: Sequence[int], ids: Sequence[int]) -> Cut | None:
        opened = prompt[-1:] == [self._start]
        if self._end not in ids or not (opened or self._start in ids[: ids.index(self._end)]):
            return None
        start = 0 if opened else ids.index(self._start) + 1
        end = ids.index(self._end, start)
        places = [index for index in range(start, end) if ids[index] in self._codes]
        if not places:
            return None
        units = tuple(Unit(tuple(ids[a:b])) for a, b in zip(places, [*places[1:], end], strict=True))
        return Cut(Unit((*prompt, *ids[: places[0]])), units, Unit((self._end,)), len(prompt))

    def arranged(self, units: Sequence[Unit], others: Sequence[Unit]) -> tuple[Unit, ...]:
        """The others; if results stay, the tokens of the others with the results of these. A result without its token is
        separated by a blank from the one before."""
        if not self._keeps:
            return tuple(others)
        made: list[Unit] = []
        for unit, other in zip_longest(units, others):
            token = other.ids[:1] if other else ()
            result = unit.ids[1:] if unit else ()
            gap = self._blank if not token and result and made and made[-1].ids[-1] not in self._codes else ()
            if token or result:
                made.append(Unit((*gap, *token, *result)))
        return tuple(made)


class Prober:
    """Answers of one model after perturbed beginnings, greedily, a batch of questions at a time."""

    def __init__(
        self, model: Any, tokenizer: Any, beginnings: Prefiller | None, between: Perturbable, probes: Sequence[str], seed: int
    ) -> None:
        """``probes``: names as above; ``beginnings``: those by which the method answers when it is not probed."""
        self._model, self._tokenizer, self._beginnings = model, tokenizer, beginnings
        self._between, self._probes, self._seed = between, probes, seed

    def __call__(self, prompts: Sequence[str], names: Sequence[str], cap: int) -> dict[str, list[Probed]]:
        """Under ``none`` the answers without probes, under ``keep`` those that went through a probe that changes
        nothing, and under each probe's name its own; those of a question with nothing to perturb are the same under all.

        ``names`` identify the questions, for drawing; another question is always of the same batch.
        """
        begins = decode.Decoding(prefixes=self._beginnings)
        untouched = decode.generate(self._model, self._tokenizer, prompts, cap, begins, batch_size=len(prompts))
        cuts = self._between.cut([encode(self._tokenizer, prompt) for prompt in prompts], untouched)
        partners = self._partners([place for place, cut in enumerate(cuts) if cut is not None], names)
        found = {NONE: [Probed(output, False) for output in untouched]}
        for probe in (KEEP, *self._probes):
            found[probe] = [Probed(output, False) for output in untouched]
            rows = {
                place: self._perturbed(probe, cut, cuts[partners.get(place, place)], names[place])
                for place, cut in enumerate(cuts)
                if cut is not None
            }
            for place, output in zip(rows, self._answers(list(rows.values()), cap), strict=True):
                changed = not _same(rows[place], cuts[place])
                found[probe][place] = Probed(output, changed, partners.get(place) if probe == "swap" else None)
        return found

    def _partners(self, places: Sequence[int], names: Sequence[str]) -> dict[int, int]:
        """Another question for each, drawn by the seed as one cycle, so that none is its own; none for a single question."""
        ring = list(places)
        Random(f"swap {self._seed} {[names[place] for place in ring]}").shuffle(ring)
        return dict(zip(ring, [*ring[1:], *ring[:1]], strict=True)) if len(ring) > 1 else {}

    def _perturbed(self, probe: str, cut: Cut, partner: Cut | None, name: str) -> Cut:
        assert partner is not None
        units = cut.units
        if probe == "drop":
            units = ()
        elif probe == "swap":
            units = partner.units
        elif probe == "shuffle":
            units = shuffled(units, Random(f"shuffle {self._seed} {name}"))
        elif probe.startswith("truncate-"):
            units = units[: int(probe.removeprefix("truncate-"))]
        return Cut(cut.head, self._between.arranged(cut.units, units), cut.tail, cut.asked)

    def _answers(self, cuts: Sequence[Cut], cap: int) -> list[Output]:
        if not cuts:
            return []
        begun = self._between.begin(cuts)
        written = [[] if cut.asked is None else ids[cut.asked :] for ids, cut in zip(begun.prompts, cuts, strict=True)]
        return decode.continue_generation(self._model, self._tokenizer, begun, cap, written, self._between.never)


def _same(one: Cut, other: Cut | None) -> bool:
    """Whether two beginnings of one question are equal."""
    assert other is not None
    return len(one.units) == len(other.units) and all(map(_alike, one.units, other.units))


def _alike(one: Unit, other: Unit) -> bool:
    if one.vectors is None or other.vectors is None:
        return one.ids == other.ids
    return torch.equal(one.vectors, other.vectors)


def shuffled(units: Sequence[Unit], chance: Random) -> tuple[Unit, ...]:
    """The units in another order; unchanged if there is no other order, such as for equal units."""
    made = list(units)
    for _ in range(_TRIES):
        chance.shuffle(made)
        if not all(map(_alike, made, units)):
            break
    return tuple(made)
