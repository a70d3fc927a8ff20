"""Sampled answers, each with its own random numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import torch

LEAST = 1e-4
"""The lowest effective temperature: logits divided by less could become infinite."""


NO_VOTE = -1
"""The number of an answer that is sampled in addition to votes and is none of them."""


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
    generators = [torch.Generator(model.device).manual_seed(seed_of(seed)) for seed in seeds]
    return [TemperatureLogitsWarper(max(temperature, LEAST)), _Draw(generators, top_p)]


def nucleus(scores: torch.Tensor, top_p: float, count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The likeliest tokens whose probabilities together reach ``top_p``, and those as likely as the last of them (Holtzman et
    al. 2020), found among the ``count`` likeliest of each row of ``scores`` [rows x vocabulary].

    Their logits [rows x count], minus infinity for what is outside; their tokens, in order; and whether [rows] that is all of
    the nucleus. The order of equally likely tokens depends on how many are sorted, so all of them are inside.
    """
    values, tokens = scores.topk(min(count, scores.shape[1]), dim=1)  # from the likeliest on
    shares = (values - scores.logsumexp(dim=1, keepdim=True)).exp()
    sums = shares.cumsum(dim=1)
    inside = (sums - shares < top_p).sum(dim=1, keepdim=True).clamp_min(1)
    least = values.gather(1, inside - 1)
    everything = (sums[:, -1] >= top_p) & (values[:, -1] < least[:, 0]) | (count >= scores.shape[1])
    tokens, order = tokens.sort(dim=1)
    values = values.gather(1, order)
    return values.masked_fill(values < least, -torch.inf), tokens, everything


class _Draw:
    """Draws a token of each row from the softmax of its nucleus: the one at which the sum of probabilities, in the order of
    tokens, passes a random number.

    Each row has its own generator and takes one number per token. ``torch.multinomial`` has one generator per batch, so rows
    would depend on each other. Noise for every word of the vocabulary, or sorting them, would take as long as a small model's
    pass: only the few likeliest are sorted, and more only for rows with a larger nucleus.
    """

    few = 64

    def __init__(self, generators: Sequence[torch.Generator], top_p: float) -> None:
        self.generators, self.top_p = generators, top_p

    def select(self, rows: list[int]) -> None:
        self.generators = [self.generators[row] for row in rows]

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """``scores`` [rows x vocabulary], minus infinity but for the token drawn."""
        how: Any = {"dtype": torch.float32, "device": scores.device}
        numbers = torch.stack([torch.rand(1, generator=one, **how) for one in self.generators])
        drawn = self._drawn(scores, numbers, self.few) if self.top_p < 1 else _places(scores, numbers)
        return torch.full_like(scores, -torch.inf).scatter_(1, drawn, 0.0)

    def _drawn(self, scores: torch.Tensor, numbers: torch.Tensor, count: int) -> torch.Tensor:
        """The tokens [rows x 1] that ``numbers`` draw, if possible of the ``count`` likeliest: else of more, row by row."""
        logits, tokens, everything = nucleus(scores, self.top_p, count)
        drawn = tokens.gather(1, _places(logits, numbers))
        for row in (~everything).nonzero()[:, 0].tolist():
            drawn[row] = self._drawn(scores[row : row + 1], numbers[row : row + 1], 32 * count)[0]
        return drawn


def _places(logits: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """Where [rows x 1] the sum of the softmax of ``logits`` [rows x n] passes ``numbers`` [rows x 1], which are below 1. Some
    place, too, of a row that is not numbers, or infinite: an index outside would end all of a batch."""
    exact = torch.float32 if logits.device.type == "mps" else torch.float64  # a sum may grow at no token without probability
    logits = logits.clamp_max(torch.finfo(logits.dtype).max)
    sums = logits.softmax(dim=1, dtype=exact).cumsum(dim=1)
    end = sums[:, -1:]
    below = torch.nextafter(end, torch.zeros_like(end))  # rounding could reach the end, after which there is no token
    places = torch.searchsorted(sums, torch.minimum(numbers.to(exact) * end, below), right=True)
    return places.clamp_max(logits.shape[1] - 1)
