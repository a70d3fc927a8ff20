"""Perturbs what is between a question and its answer: thoughts, or functional tokens.

A prompt with two thoughts, and its form under each probe (w: the thoughts of another question)::

    keep         How many clips?<latent> z1 z2 </latent>
    drop         How many clips?<latent></latent>
    shuffle      How many clips?<latent> z2 z1 </latent>
    swap         How many clips?<latent> w1 w2 </latent>
    truncate-1   How many clips?<latent> z1 </latent>

All vectors are computed first, as usual; then they are perturbed and fed to the model in one pass, from which it answers. It does
not continue thinking from a perturbed thought: the probe's effect could not be separated from the model's own.

A trace is written first, as usual; its units are the steps, each a functional token with its result, and the model continues
after the perturbed trace and its end token.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from random import Random
from typing import Any, Literal, NamedTuple

import torch

from cirf.evaluation.probes import KEEP, NONE
from cirf.lm.decoding import generate as decode
from cirf.lm.decoding.generate import Output
from cirf.lm.decoding.prefix_cache import PrefilledPrompts, Prefiller
from cirf.lm.prompt import encode
from cirf.lm.vocabulary import TokenNames
from cirf.methods.latent.decode import PromptVectors, given, prefill

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
        return decode.continue_generation(self._model, self._tokenizer, begun, cap, written)


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
