"""Sampled answers, each from random numbers of its own."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import torch


def draw(seed: int, prompt: str, number: int) -> str:
    """What seeds the random numbers of a sampled answer: the seed, the rendered prompt and the answer's number."""
    return f"{seed}\0{prompt}\0{number}"


def seed_of(text: str) -> int:
    """A seed of a text, below 2^56."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")


def drawing(model: Any, temperature: float, top_p: float, seeds: Sequence[str]) -> list[Any]:
    """What turns the logits of rows into scores whose largest is a token drawn from the nucleus, a text of ``seeds`` a row;
    nothing at temperature 0."""
    from transformers import TemperatureLogitsWarper

    if temperature == 0:
        return []
    made: list[Any] = [TemperatureLogitsWarper(temperature)]
    if top_p < 1:
        made.append(Nucleus(top_p))
    return [*made, _Draw([torch.Generator(model.device).manual_seed(seed_of(seed)) for seed in seeds])]


class Nucleus:
    """Leaves the likeliest tokens whose probabilities together reach ``top_p``, and those as likely as the last of them
    (Holtzman et al. 2020).

    transformers' warper sorts the vocabulary; here the few likeliest tokens are, and more only of rows where these do not reach
    so far. Which of equally likely ones a sort puts first hangs on how many are sorted, so all of them stay.
    """

    few = 64

    def __init__(self, top_p: float) -> None:
        self.top_p = top_p

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """``scores`` [rows x vocabulary], those outside the nucleus minus infinity."""
        least, reached = self._least(scores, self.few)
        for row in (~reached).nonzero().flatten().tolist():
            least[row] = self._least(scores[row : row + 1], scores.shape[1])[0][0]
        return scores.masked_fill(scores < least, -torch.inf)

    def _least(self, scores: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The smallest score [rows x 1] of the nucleus among the ``count`` likeliest tokens, and whether these reach so far."""
        likeliest = scores.topk(min(count, scores.shape[1]), dim=1).values  # from the likeliest on
        shares = (likeliest - scores.logsumexp(dim=1, keepdim=True)).exp()
        before = shares.cumsum(dim=1) - shares
        inside = (before < self.top_p).sum(dim=1, keepdim=True).clamp_min(1)
        return likeliest.gather(1, inside - 1), before[:, -1] + shares[:, -1] >= self.top_p


class _Draw:
    """Draws a token of each row from the softmax of its logits: the one at which the sum of probabilities passes a random number.

    Each row has a generator of its own and takes one number a token from it. ``torch.multinomial`` has one generator for a batch,
    and each row would hang on the others; noise for every word of the vocabulary would take as long as a small model's pass.
    """

    def __init__(self, generators: Sequence[torch.Generator]) -> None:
        self.generators = generators

    def select(self, rows: list[int]) -> None:
        """Only these rows go on."""
        self.generators = [self.generators[row] for row in rows]

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """``scores`` [rows x vocabulary], minus infinity but for the token drawn."""
        possible = (scores > -torch.inf).any(dim=0).nonzero()[:, 0]
        sums = scores[:, possible].softmax(dim=1).cumsum(dim=1)
        numbers = [torch.rand(1, generator=one, dtype=sums.dtype, device=sums.device) for one in self.generators]
        below = torch.nextafter(sums[:, -1:], torch.zeros_like(sums[:, -1:]))  # what rounding could reach, no token stands behind
        places = torch.searchsorted(sums, torch.minimum(torch.stack(numbers) * sums[:, -1:], below), right=True)
        return torch.full_like(scores, -torch.inf).scatter_(1, possible[places], 0.0)
