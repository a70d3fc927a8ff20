"""The attention kernels of a training: plain for short rows, and that of prefix trees.

Of a batch of rows as a prefix tree, shared prefixes go through the model once, and padding not at all.

    rows   a b c d      ids     a b c d e f      the positions of the first row: 0 1 2 3
           a b e f              0 1 2 3 4 5      of the second one:              0 1 4 5

Attention is causal, so a token's hidden states depend only on the tokens up to it, and rows with a common prefix share its
states: a template's opening in all rows, a question in several answers to it. The nodes of the tree go through the model as one
row of a batch of one; only the attention lays them out as rows [b x s] again. Loss and gradients are those of the padded rows up
to rounding.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from cirf.lm.decoding.rounds import same
from cirf.lm.training.batches import Feature

SHORT = 256
"""Tokens of a row up to which attention is plain products: its memory grows with their square."""


@contextlib.contextmanager
def for_rows(model: Any, longest: int, device: str) -> Iterator[None]:
    """Give a model the kernel that trains fastest on rows of at most ``longest`` tokens, and its own back in the end.

    On the CPU that is plain attention for short rows: there the fused kernel spends more time on its blocks than the products
    take (``benchmarks/updates.py``). Everywhere else it is what the model has.
    """
    before = getattr(model.config, "_attn_implementation", None)
    if torch.device(device).type != "cpu" or longest > SHORT or before != "sdpa":
        yield
        return
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(before)


NAME = "cirf_prefix_tree"
"""What the models know this attention by."""

_KNOWN = {"position_ids", "use_cache", "is_causal", "cache_position", "output_attentions", "output_hidden_states", "return_dict"}

Tree = dict[str, torch.Tensor]
"""``places`` [b x s]: the node at each position of each row (after a row's end: node 0); ``first`` [t]: each node's first place
among the b*s positions; ``again`` [m]: positions that share a node with an earlier one."""


class UnsupportedAttention(Exception):
    """A model whose attention is not plain causal attention."""


def tree_of(features: Sequence[Feature]) -> tuple[torch.Tensor, torch.Tensor, Tree]:
    """Ids and positions of the nodes [1 x t], in the order of the rows, and where rows have them. A node is one id at one
    position after one prefix."""
    longest = max(len(feature.ids) for feature in features)
    places = torch.zeros(len(features), longest, dtype=torch.long)
    nodes: dict[tuple[int, int, int], int] = {}
    first, again = [], []
    for row, feature in enumerate(features):
        node, path = -1, []
        place, jump = feature.skipped or (len(feature.ids), 0)
        for position, token in enumerate(feature.ids):
            key = (node, token, position + (jump if position >= place else 0))
            known = nodes.get(key)
            if known is None:
                node = nodes[key] = len(nodes)
                first.append(row * longest + position)
            else:
                node = known
                again.append(row * longest + position)
            path.append(node)
        places[row, : len(path)] = torch.tensor(path)
    ids, positions = (torch.tensor([[key[part] for key in nodes]]) for part in (1, 2))
    return ids, positions, {"places": places, "first": torch.tensor(first), "again": torch.tensor(again, dtype=torch.long)}


class _Spread(torch.autograd.Function):
    """Nodes [t x w] at their positions in rows [b*s x w]; backwards the sum over a node's positions. Positions after a row's end
    do not count: no position of the row sees them."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, places: torch.Tensor, first: torch.Tensor, again: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(places, first, again)
        return x.index_select(0, places)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        places, first, again = ctx.saved_tensors
        total = gradient.index_select(0, first)
        if len(again):
            total.index_add_(0, places[again], gradient.index_select(0, again))
        return total, None, None, None


class _Gather(torch.autograd.Function):
    """Rows [b*s x w] at each node's first position [t x w]."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(first)
        ctx.size = len(x)
        return x.index_select(0, first)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (first,) = ctx.saved_tensors
        return gradient.new_zeros(ctx.size, gradient.shape[1]).index_copy_(0, first, gradient), None


def attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    cirf_tree: Tree | None = None,
    **more: Any,
) -> tuple[torch.Tensor, None]:
    """Causal attention of each row of a tree: query [1 x h x t x d], key and value [1 x g x t x d], result [1 x t x h x d].
    `UnsupportedAttention` where a model asks for more than that."""
    unknown = {name for name, value in more.items() if name not in _KNOWN and value is not None}
    if cirf_tree is None or attention_mask is not None or dropout or (unknown - {"sliding_window"}):
        raise UnsupportedAttention
    places, first = cirf_tree["places"], cirf_tree["first"]
    b, s = places.shape
    if more.get("sliding_window") is not None and s > more["sliding_window"]:
        raise UnsupportedAttention
    flat = places.flatten()

    def rows(x: torch.Tensor) -> torch.Tensor:  # [1 x h x t x d] -> [b x h x s x d]
        spread: torch.Tensor = _Spread.apply(x[0].transpose(0, 1).flatten(1), flat, first, cirf_tree["again"])  # type: ignore[no-untyped-call]
        return spread.view(b, s, x.shape[1], x.shape[3]).transpose(1, 2)

    q, k, v = rows(query), rows(key), rows(value)
    heads, groups = q.shape[1], k.shape[1]
    scale = q.shape[3] ** -0.5 if scaling is None else scaling
    if s > SHORT:
        k, v = (x.repeat_interleave(heads // groups, dim=1) for x in (k, v))
        made = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
    else:
        together = heads // groups  # query heads that share a key: their positions are stacked
        hidden = torch.ones(s, s, dtype=torch.bool).triu(1).repeat(together, 1)
        scores = (q.reshape(b, groups, together * s, -1) @ k.transpose(2, 3)) * scale  # [b x g x h/g*s x s]
        weights = scores.masked_fill(hidden, float("-inf")).softmax(dim=-1, dtype=torch.float32).to(v.dtype)
        made = (weights @ v).view(b, heads, s, -1)
    out: torch.Tensor = _Gather.apply(made.transpose(1, 2).reshape(b * s, -1), first)  # type: ignore[no-untyped-call]
    return out.view(1, len(first), heads, -1), None


@contextlib.contextmanager
def as_trees(model: Any, longest: int, device: str) -> Iterator[bool]:
    """Within, a model computes with `attend`; yields whether it can: on the CPU, where it draws nothing at random, has attention
    that can be replaced and sees all of a row of ``longest`` tokens, and makes the same of rows either way."""
    before = getattr(model.config, "_attn_implementation", None)
    replaceable = before == "sdpa" and getattr(model, "_supports_attention_backend", False)
    draws = any(isinstance(part, torch.nn.modules.dropout._DropoutNd) and part.p > 0 for part in model.modules())
    windows = [getattr(part, "sliding_window", None) for part in (model.config.get_text_config(decoder=True), *model.modules())]
    narrow = any(isinstance(window, int) and window < longest for window in windows)
    if torch.device(device).type != "cpu" or not replaceable or draws or narrow:
        yield False
        return
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, attend)
    try:
        fits = _same(model, longest)
        model.set_attn_implementation(NAME if fits else before)
        yield fits
    finally:
        model.set_attn_implementation(before)


@torch.no_grad()
def _same(model: Any, longest: int) -> bool:
    """Whether two rows that begin alike come out of a tree as they come out of a padded batch."""
    width = max(2, min(longest, 12))
    known = model.get_input_embeddings().weight.shape[0]
    draw = torch.Generator().manual_seed(0)
    rows = torch.randint(known, (2, width), generator=draw)
    rows[1, : width // 2] = rows[0, : width // 2]
    ids, positions, tree = tree_of([Feature(tuple(row), 1) for row in rows.tolist()])
    kernel = model.config._attn_implementation
    try:  # in the mode of training: what draws at random there comes out otherwise each time
        wanted = model(input_ids=rows, use_cache=False).logits.float()
        model.set_attn_implementation(NAME)
        found = model(input_ids=ids, position_ids=positions, use_cache=False, cirf_tree=tree).logits.float()
    except (UnsupportedAttention, TypeError, ValueError, RuntimeError, IndexError):
        return False
    finally:
        model.set_attn_implementation(kernel)
    return same(model, found[0][tree["places"]], wanted)
