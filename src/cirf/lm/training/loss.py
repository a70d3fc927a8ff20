"""Training losses: next-token cross-entropy on target tokens alone (paper eq. 14), and the policy gradient.

Of a row of 50 tokens some 15 are targets, and the head of a small model costs as much as a third of its layers: so logits are
computed only where a target is predicted. Positions differ from row to row, which ``logits_to_keep`` of the models cannot
express. A hook in front of the head hands it the wanted positions as one row of a batch of one instead; whatever a model does
after its head (scaling, soft-capping) and whatever is wrapped around it (adapters, data-parallelism, autocast) works as always.

In group-relative policy optimisation each token's weight follows from its answer's reward relative to the other
answers to the question (GRPO: Shao et al. 2024, arXiv 2402.03300; Dr. GRPO: Liu et al. 2025, arXiv 2503.20783; DAPO: Yu et al.
2025, arXiv 2503.14476). Names are those of TRL's ``loss_type`` and ``scale_rewards``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

import torch

from cirf.recipe.schema import Reward

IGNORED = -100
"""Label of a position that is no target."""


def unwrap(model: Any) -> Any:
    """The model itself, out of a data-parallel wrapper."""
    while hasattr(model, "module") and isinstance(model.module, torch.nn.Module) and not hasattr(model, "get_output_embeddings"):
        model = model.module
    return model


@contextlib.contextmanager
def only_at(model: Any, positions: torch.Tensor) -> Iterator[Callable[[torch.Tensor], torch.Tensor]]:
    """Within, the model computes logits at ``positions`` [n] of the flattened batch alone; yields what makes [n x V] of them. A
    model that multiplies by the head's weight without calling the head gives all positions; they are chosen afterwards."""
    head = unwrap(model).get_output_embeddings()
    narrowed = False

    def narrow(module: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        nonlocal narrowed
        hidden = args[0]  # [b x s x d]
        narrowed = True
        return (hidden.flatten(0, 1).index_select(0, positions).unsqueeze(0), *args[1:])

    hook = head.register_forward_pre_hook(narrow) if head is not None else None
    try:
        yield lambda logits: logits[0] if narrowed else logits.flatten(0, 1).index_select(0, positions)
    finally:
        if hook is not None:
            hook.remove()


def read_targets(
    model: Any, labels: torch.Tensor, places: torch.Tensor | None = None, **given: Any
) -> tuple[torch.Tensor, torch.Tensor, Any]:
    """One pass: logits [n x V] (float32) that predict the n targets, the targets [n], row by row, and all that the model made.

    ``labels`` [b x s] are those of what is ``given`` to the model; nothing predicts the first column. ``places`` [b x s]: each
    one's position in the flattened input, if that is not a batch of rows (see `cirf.lm.training.attention`).
    """
    targets = labels[:, 1:]
    rows, columns = (targets != IGNORED).nonzero(as_tuple=True)
    with only_at(model, rows * labels.shape[1] + columns if places is None else places[rows, columns]) as kept:
        made = model(**given)
        logits = kept(made.logits)
    return logits.float(), targets[rows, columns], made


def summed(
    logits: torch.Tensor, targets: torch.Tensor, count: torch.Tensor | int | None, weights: torch.Tensor | None = None
) -> torch.Tensor:
    """Sum of the negative log-likelihoods of targets [n] by their logits [n x V], each times its weight [n], over ``count``;
    ``None``: over n."""
    if weights is None:
        total = torch.nn.functional.cross_entropy(logits, targets, reduction="sum")
    else:
        total = torch.nn.functional.cross_entropy(logits, targets, reduction="none") @ weights
    return total / (targets.numel() if count is None else count)


def target_logits(
    model: Any, input_ids: torch.Tensor, labels: torch.Tensor, position_ids: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits [n x V] (float32) that predict the n targets, and the targets [n], row by row.

    ``input_ids`` and ``labels`` are [b x s], padded on the right. There is no attention mask: attention is causal, so
    padding after a row reaches none of its positions, and a mask would only slow attention down. ``position_ids`` [b x s]
    where they are not 0, 1, 2, ...; with them comes a mask of ones, because without a mask transformers takes a gap for the start
    of a new text that does not see the tokens before it.
    """
    places = {} if position_ids is None else {"position_ids": position_ids, "attention_mask": torch.ones_like(input_ids)}
    logits, targets, _ = read_targets(model, labels, input_ids=input_ids, use_cache=False, **places)
    return logits, targets


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
    kept = [answer for answer in group if not (section.mask_truncated_completions and answer.truncated)]
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
