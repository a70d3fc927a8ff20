"""The loss of group-relative policy optimisation: each token's weight follows from its answer's reward relative to the other
answers to the question (GRPO: Shao et al. 2024, arXiv 2402.03300; Dr. GRPO: Liu et al. 2025, arXiv 2503.20783; DAPO: Yu et al.
2025, arXiv 2503.14476). Names are those of TRL's ``loss_type`` and ``scale_rewards``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from cirf.recipe.schema import Reward

LEAST = 1e-8
"""Rewards that differ by no more are equal."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A sampled answer: the ids of its prompt and those that were written, the end token included."""

    prompt: tuple[int, ...]
    ids: tuple[int, ...]
    reward: float
    right: bool
    truncated: bool


Group = Sequence[Answer]
"""The answers to one question."""


def learnable(group: Group, section: Reward) -> list[Answer]:
    """The answers of a group that are trained on; none if all have the same reward."""
    kept = [answer for answer in group if section.truncated == "keep" or not answer.truncated]
    rewards = [answer.reward for answer in kept]
    return kept if rewards and max(rewards) - min(rewards) > LEAST else []


def advantages(groups: Sequence[Group], scale: str) -> list[float]:
    """Each answer's reward minus its group's mean, divided by a standard deviation if ``scale`` says so; group by group."""
    found = []
    every = [answer.reward for group in groups for answer in group]
    for group in groups:
        rewards = [answer.reward for answer in group]
        by = 1.0 if scale == "none" else stdev(rewards if scale == "group" else every) + 1e-4
        found += [(reward - fmean(rewards)) / by for reward in rewards]
    return found


def token_weights(lengths: Sequence[int], loss: str, cap: int) -> list[float]:
    """The factor of each answer's token losses, for answers of these ``lengths``; truncated answers count as any other."""
    if loss == "grpo":
        return [1 / (len(lengths) * length) for length in lengths]
    whole = len(lengths) * cap if loss == "dr_grpo" else sum(lengths)
    return [1 / whole] * len(lengths)


def token_losses(logs: torch.Tensor, old: torch.Tensor, advantage: torch.Tensor, section: Reward) -> torch.Tensor:
    """The clipped loss of each of n tokens by its log-probability now, the one it was sampled with and its answer's advantage."""
    ratio = (logs - old).exp()
    above = section.epsilon if section.epsilon_high is None else section.epsilon_high
    return -torch.minimum(ratio * advantage, ratio.clamp(1 - section.epsilon, 1 + above) * advantage)


def divergence(logs: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """An estimate of the KL divergence from the reference at each of n tokens, never negative (Schulman 2020, k3)."""
    apart = reference - logs
    return apart.exp() - apart - 1
