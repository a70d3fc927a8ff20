"""How much the answer hangs on a word: the gradient of the answer's loss times the word's embedding.

Taking a token's embedding E away changes the loss of the answer by about ``-∂CE/∂E · E``, the first term of its series:
"gradient times input" (Shrikumar et al. 2017, arXiv 1605.01713). ``CE`` is the mean negative log-likelihood of the answer's
tokens after prompt, rationale and what stands before an answer. A word's importance is the sum of ``|∂CE/∂E · E|`` over its
tokens: what goes with the word is all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from cirf.errors import CirfError
from cirf.lm.batches import collate
from cirf.lm.loss import target_logits
from cirf.progress import SILENT, Progress
from cirf.rationales.importance.causal import Read, read, score_rows
from cirf.rationales.importance.scorer import Reasoned
from cirf.rationales.importance.words import Word


class AnswerGrad:
    """Scores words by how much the answer's loss changes with them, in nats, under a causal language model.

    The model's weights get no gradient, whether frozen or not.

    Args:
        model: in evaluation mode; best one that was trained to write rationale and answer.
        tokenizer: the model's, a fast one.
        lead: what stands between a rationale and its answer.
        batch_tokens: most tokens computed at once, whose activations of all layers are kept for the way back.
    """

    def __init__(self, model: Any, tokenizer: Any, lead: str = "\n#### ", batch_tokens: int = 1024) -> None:
        """Nothing is computed yet."""
        self._model, self._tokenizer, self._lead, self._limit = model, tokenizer, lead, batch_tokens

    def score(self, texts: Sequence[Reasoned], progress: Progress = SILENT) -> list[list[Word]]:
        """See ``Scorer``; one pass forward and one back a batch. ``CirfError`` for an empty answer, and as ``read`` and
        ``score_rows``."""
        return score_rows(texts, self._read, self._compute, "sum", self._limit, progress)

    def _read(self, text: Reasoned) -> Read:
        if not text.answer.strip():
            raise CirfError(f"the rationale {text.rationale[:60]!r} has an empty answer; leave it out")
        answer = len(text.rationale) + len(self._lead)
        return read(self._model, self._tokenizer, text, self._lead + text.answer, answer)

    def _compute(self, rows: list[Read]) -> list[list[float]]:
        batch = {name: tensor.to(self._model.device) for name, tensor in collate([row.feature for row in rows], 0).items()}
        answers = [len(row.feature.ids) - row.feature.start for row in rows]
        weights = torch.tensor([1 / count for count in answers for _ in range(count)], device=self._model.device)
        caught: list[torch.Tensor] = []

        def catch(module: Any, args: Any, output: torch.Tensor) -> torch.Tensor:
            caught.append(output.detach().requires_grad_())
            return caught[-1]

        # Ids go in and their embeddings are caught on the way: what a model makes of ids besides (a scale, embeddings of
        # every layer) stays as it is. Only the way back to them is computed.
        hook = self._model.get_input_embeddings().register_forward_hook(catch)
        try:
            with torch.enable_grad():
                logits, targets = target_logits(self._model, **batch)
                losses = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
                (gradient,) = torch.autograd.grad((losses * weights).sum(), caught[0])
        finally:
            hook.remove()
        change = (gradient.float() * caught[0].detach().float()).sum(-1).abs()  # [b x s]
        return [change[place, row.asked : len(row.feature.ids)].tolist() for place, row in enumerate(rows)]
