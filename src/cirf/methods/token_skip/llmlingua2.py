"""LLMLingua-2's importance (Pan et al. 2024, arXiv 2403.12968), which TokenSkip uses: a token classifier says "keep".

The classifiers, XLM-R large and a multilingual BERT, were trained to predict the words that GPT-4 keeps when it compresses
meeting transcripts. They read the rationale alone, not the question. A text of more pieces than they take is cut into chunks,
each read by itself; a word's importance is the mean of P(keep) over its pieces, which compares across chunks: it is a
probability.

They are loaded as any token classifier, from safetensors, with no code of theirs and no vocabulary besides their own.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from cirf.assets.hub import transformers_quiet
from cirf.cpu.memory import enough
from cirf.cpu.number_formats import widen
from cirf.errors import CirfError
from cirf.lm.backbone import explained, from_safetensors, load_config, locate, pick_device, placed
from cirf.methods.token_skip.shorten import Solution, Span, Word, per_word, weighed, word_spans
from cirf.progress import SILENT, Progress
from cirf.recipe import schema

LARGE = "microsoft/llmlingua-2-xlm-roberta-large-meetingbank"
"""The published classifier that TokenSkip uses; 2.2 GB."""

PIECES = 510
"""Pieces of a chunk: the positions of both models but the two that mark start and end."""

_KEEPS = frozenset(("keep", "kept", "preserve", "preserved", "retain", "true", "yes"))


class _Chunk(NamedTuple):
    """Pieces ``first`` to ``last`` of text number ``text``."""

    text: int
    first: int
    last: int


class _Pieces(NamedTuple):
    """A text as a classifier reads it: the ids before and after every chunk, the ids of its pieces, and their places."""

    before: list[int]
    ids: list[int]
    after: list[int]
    offsets: list[Span]


class LlmLingua2:
    """Scores words by a token classifier's mean P(keep), from 0 to 1. Prompts and answers are not read.

    Args:
        model: a token classifier in evaluation mode.
        tokenizer: the model's, a fast one.
        batch_rows: chunks computed at once.

    ``CirfError``: a model whose labels do not name "keep", or a tokenizer that does not give the places where its tokens are.
    """

    def __init__(self, model: Any, tokenizer: Any, batch_rows: int = 8) -> None:
        if not tokenizer.is_fast:
            raise CirfError(f"{tokenizer.name_or_path}: its tokenizer does not give the places of tokens in a text; use another")
        self._model, self._tokenizer, self._size = model, tokenizer, batch_rows
        self._keep = keep_label(model.config)

    def score(self, texts: Sequence[Solution], progress: Progress = SILENT) -> list[list[Word]]:
        """See ``Scorer``; one forward pass a batch of chunks. ``CirfError``: no memory for a batch."""
        spans = [word_spans(text.rationale) for text in texts]
        pieces = [self._pieces(text.rationale) for text in texts]
        rows = [
            _Chunk(place, first, last)
            for place, (text, whole, found) in enumerate(zip(texts, pieces, spans, strict=True))
            for first, last in chunks(text.rationale, whole.offsets, found, self._most(whole))
        ]
        values = [[0.0] * len(whole.ids) for whole in pieces]
        with progress.task("importance", len(rows), "chunks") as advance:
            rows.sort(key=lambda row: row.first - row.last)  # the longest first, so that memory runs out at once or never
            for start in range(0, len(rows), self._size):
                batch = rows[start : start + self._size]
                with enough(f"out of memory with {len(batch)} chunks at once; use a smaller scorer_model"):
                    kept = self._compute(batch, pieces)
                for row, scores in zip(batch, kept, strict=True):
                    values[row.text][row.first : row.last] = scores
                advance(len(batch))
        return [
            weighed(text.rationale, found, per_word(scores, whole.offsets, found))
            for text, whole, found, scores in zip(texts, pieces, spans, values, strict=True)
        ]

    def _most(self, pieces: _Pieces) -> int:
        """Pieces that a chunk may have. What a tokenizer states as no limit is a very large number."""
        return min(PIECES, int(self._tokenizer.model_max_length) - len(pieces.before) - len(pieces.after))

    def _pieces(self, text: str) -> _Pieces:
        encoded = self._tokenizer(text, return_offsets_mapping=True, return_special_tokens_mask=True, verbose=False)
        ids: list[int] = encoded.input_ids
        before = next((index for index, special in enumerate(encoded.special_tokens_mask) if not special), len(ids))
        after = next((index for index, special in enumerate(reversed(encoded.special_tokens_mask)) if not special), 0)
        last = len(ids) - after
        offsets = [(int(start), int(end)) for start, end in encoded.offset_mapping[before:last]]
        return _Pieces(ids[:before], ids[before:last], ids[last:], offsets)

    def _compute(self, rows: Sequence[_Chunk], pieces: Sequence[_Pieces]) -> list[list[float]]:
        whole = [pieces[row.text] for row in rows]
        ids = [[*of.before, *of.ids[row.first : row.last], *of.after] for row, of in zip(rows, whole, strict=True)]
        longest = max(map(len, ids))
        padding = self._tokenizer.pad_token_id or 0
        padded = torch.tensor([[*row, *[padding] * (longest - len(row))] for row in ids], device=self._model.device)
        mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in ids], device=self._model.device)
        with torch.inference_mode():
            logits = self._model(input_ids=padded, attention_mask=mask).logits.float()  # [b x s x labels]
            kept = logits.softmax(-1)[..., self._keep].cpu()
        return [
            kept[index, len(of.before) : len(of.before) + row.last - row.first].tolist()
            for index, (row, of) in enumerate(zip(rows, whole, strict=True))
        ]


def keep_label(config: Any) -> int:
    """The number of the label that says "keep": the one that is called so, else 1 of two, as in the published models.
    ``CirfError`` where there are other labels, as of a classifier for another purpose."""
    labels = {int(number): str(name) for number, name in config.id2label.items()}
    named = [number for number, name in sorted(labels.items()) if name.casefold() in _KEEPS]
    if len(named) == 1:
        return named[0]
    if len(labels) != 2:
        names = ", ".join(list(labels.values())[:5])
        raise CirfError(
            f"{config.name_or_path}: none of its {len(labels)} labels ({names}) says that a word is kept; use {LARGE}"
        )
    return 1


_END = re.compile(r"[.!?…]+[\"'”’)\]]*(?=\s)|[。！？｡]|\n")


def chunks(text: str, offsets: Sequence[Span], spans: Sequence[Span], limit: int) -> list[Span]:
    """Ranges ``[first, last)`` of pieces, in order and together all of them, none of more than ``limit``.

    Each is as long as it may be and ends, if it can, with a sentence or a line; else with a word.

    Args:
        text: what was cut into pieces.
        offsets: each piece's place in it, in order.
        spans: its words.
        limit: most pieces of a chunk.
    """
    sentences = _places((match.end() for match in _END.finditer(text)), offsets)
    words = _places((end for _, end in spans), offsets)
    found, first = [], 0
    while first < len(offsets):
        last = min(first + limit, len(offsets))
        if last < len(offsets):
            last = _latest(sentences, first, last) or _latest(words, first, last) or last
        found.append((first, last))
        first = last
    return found


def _places(ends: Iterable[int], offsets: Sequence[Span]) -> list[int]:
    """The first piece that begins at or after each of these places in the text."""
    starts = [start for start, _ in offsets]
    return [bisect_left(starts, end) for end in ends]


def _latest(places: Sequence[int], first: int, last: int) -> int | None:
    """The latest of these places after ``first`` and not after ``last``."""
    at = bisect_left(places, last + 1) - 1
    return places[at] if at >= 0 and places[at] > first else None


def load_classifier(source: str | Path, section: schema.Backbone) -> Any:
    """The token classifier of a folder or hub id, in evaluation mode, on its device.

    ``section``: number format, device, threads, revision. ``CirfError``: no such model, another kind of model (its labels would
    be drawn at random), weights that are not safetensors, or no memory for it.
    """
    from transformers import AutoModelForTokenClassification

    if section.threads is not None:
        torch.set_num_threads(section.threads)
    source = locate(source)
    config = load_config(source, section)
    classes = list(getattr(config, "architectures", None) or ("model of no known kind",))
    if not classes[0].endswith("ForTokenClassification"):
        raise CirfError(f"{source}: holds a {classes[0]}, not a token classifier; give a folder or hub id of one")
    target = pick_device(section.device)
    with explained(source, "model"), transformers_quiet():
        dtype = getattr(torch, section.dtype)
        model = from_safetensors(AutoModelForTokenClassification, source, section, config=config, dtype=dtype)
        widen(model, section.dtype, target)
    return placed(model, source, target)
