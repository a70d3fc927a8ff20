"""LLMLingua-2's importance (Pan et al. 2024, arXiv 2403.12968), which TokenSkip uses: a token classifier says "keep".

The classifiers, XLM-R large and a multilingual BERT, were trained to predict the words that GPT-4 keeps when it compresses
meeting transcripts. They read the rationale alone, not the question. A text of more pieces than they take is read in parts; a
word's importance is the mean of P(keep) over its pieces, which compares across parts: it is a probability.

They are loaded as any token classifier, from safetensors, with no code of theirs and no vocabulary besides their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from cirf.cpu.memory import enough
from cirf.cpu.number_formats import widen
from cirf.errors import CirfError
from cirf.lm.backbone import explained, from_safetensors, load_config, locate, pick_device, placed, without_bars
from cirf.methods.token_skip.shorten import Solution, Word, per_word, weighed, word_spans
from cirf.recipe import schema

LARGE = "microsoft/llmlingua-2-xlm-roberta-large-meetingbank"
"""The published classifier that TokenSkip uses; 2.2 GB."""

POSITIONS = 512
"""Of both models: the pieces of a part, and the two that mark its start and end."""

_KEEPS = frozenset(("keep", "kept", "preserve", "preserved", "retain", "true", "yes"))


class LlmLingua2:
    """Scores words by a token classifier's mean P(keep), from 0 to 1. Prompts and answers are not read.

    Args:
        model: a token classifier in evaluation mode.
        tokenizer: the model's, a fast one.
        batch_rows: parts computed at once.

    ``CirfError``: a model whose labels do not name "keep", or a tokenizer that does not give the places where its tokens are.
    """

    def __init__(self, model: Any, tokenizer: Any, batch_rows: int = 8) -> None:
        if not tokenizer.is_fast:
            raise CirfError(f"{tokenizer.name_or_path}: its tokenizer does not give the places of tokens in a text; use another")
        self._model, self._tokenizer, self._size = model, tokenizer, batch_rows
        self._keep = keep_label(model.config)

    def score(self, texts: Sequence[Solution]) -> list[list[Word]]:
        """See ``Scorer``; one forward pass a batch of parts, at least one text. ``CirfError``: no memory for a batch."""
        encoded = self._tokenizer(
            [text.rationale for text in texts],
            truncation=True,
            max_length=min(POSITIONS, self._tokenizer.model_max_length),
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
            return_special_tokens_mask=True,
        )
        rows, kept = encoded.input_ids, dict[int, list[float]]()
        order = sorted(range(len(rows)), key=lambda row: -len(rows[row]))  # so that memory runs out at once or never
        for start in range(0, len(order), self._size):
            batch = order[start : start + self._size]
            with enough(f"no memory to score {len(batch)} texts at once; use a smaller scorer_model"):
                kept |= zip(batch, self._compute([rows[row] for row in batch]), strict=True)
        pieces: list[list[tuple[float, tuple[int, int]]]] = [[] for _ in texts]
        for row, place in enumerate(encoded.overflow_to_sample_mapping):
            read = zip(kept[row], encoded.offset_mapping[row], encoded.special_tokens_mask[row], strict=True)
            pieces[place] += [(value, (start, end)) for value, (start, end), special in read if not special]
        found = []
        for text, own in zip(texts, pieces, strict=True):
            spans, offsets = word_spans(text.rationale), [offset for _, offset in own]
            found.append(weighed(text.rationale, spans, per_word([value for value, _ in own], offsets, spans)))
        return found

    def _compute(self, rows: Sequence[Sequence[int]]) -> list[list[float]]:
        """P(keep) of each token of some rows."""
        device, ids = self._model.device, [torch.tensor(row) for row in rows]
        padded = pad_sequence(ids, batch_first=True, padding_value=self._tokenizer.pad_token_id or 0).to(device)
        mask = pad_sequence([torch.ones_like(row) for row in ids], batch_first=True).to(device)
        with torch.inference_mode():
            logits = self._model(input_ids=padded, attention_mask=mask).logits.float()  # [b x s x labels]
            kept = logits.softmax(-1)[..., self._keep].cpu()
        return [kept[index, : len(row)].tolist() for index, row in enumerate(rows)]


def keep_label(config: Any) -> int:
    """The number of the label that says "keep": the one that is called so, else 1 of two, as in the published models.
    ``CirfError`` where there are other labels, as of a classifier for another purpose."""
    labels = {int(number): str(name) for number, name in config.id2label.items()}
    named = [number for number, name in sorted(labels.items()) if name.casefold() in _KEEPS]
    if len(named) == 1:
        return named[0]
    if len(labels) != 2:
        names = ", ".join(list(labels.values())[:5])
        raise CirfError(f"{config.name_or_path}: none of its {len(labels)} labels ({names}) says that a word stays; use {LARGE}")
    return 1


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
    with explained(source, "model"), without_bars():
        dtype = getattr(torch, section.dtype)
        model = from_safetensors(AutoModelForTokenClassification, source, section, config=config, dtype=dtype)
        widen(model, section.dtype, target)
    return placed(model, source, target)
