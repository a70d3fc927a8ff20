"""How little a language model expects a word: what it would write by itself can be left out.

The information of a token is ``-log p(token | prompt, rationale so far)``, as in Selective Context (Li et al. 2023,
arXiv 2310.06201), which adds it up over phrases, and LLMLingua (Jiang et al. 2023, arXiv 2310.05736), which drops tokens
one by one. Words are kept here until a number of *tokens* is reached. The words that together tell most for that number
are those that tell most per token: so the tokens of a word are averaged, not added up, which would favour long words.

TokenSkip's authors found that this favours the starts of sentences; it stands here to compare with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from cirf.lm.batches import collate
from cirf.lm.loss import target_logits
from cirf.progress import SILENT, Progress
from cirf.rationales.importance.causal import Read, read, score_rows
from cirf.rationales.importance.scorer import Reasoned
from cirf.rationales.importance.words import Word


class Surprisal:
    """Scores words by the mean surprisal of their tokens, in nats, under a causal language model. Answers are not read.

    Args:
        model: in evaluation mode.
        tokenizer: the model's, a fast one.
        batch_tokens: most tokens computed at once; each holds a row of float32 logits the vocabulary wide, twice.
    """

    def __init__(self, model: Any, tokenizer: Any, batch_tokens: int = 1024) -> None:
        """Nothing is computed yet."""
        self._model, self._tokenizer, self._limit = model, tokenizer, batch_tokens

    def score(self, texts: Sequence[Reasoned], progress: Progress = SILENT) -> list[list[Word]]:
        """See ``Scorer``; one forward pass a batch. ``CirfError`` as ``read`` and ``score_rows``."""
        return score_rows(texts, self._read, self._compute, "mean", self._limit, progress)

    def _read(self, text: Reasoned) -> Read:
        return read(self._model, self._tokenizer, text)

    def _compute(self, rows: list[Read]) -> list[list[float]]:
        batch = {name: tensor.to(self._model.device) for name, tensor in collate([row.feature for row in rows], 0).items()}
        with torch.inference_mode():
            logits, targets = target_logits(self._model, **batch)
            losses = iter(torch.nn.functional.cross_entropy(logits, targets, reduction="none").tolist())
        return [[next(losses) for _ in row.offsets] for row in rows]
