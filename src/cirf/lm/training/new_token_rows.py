"""Training some rows of frozen embedding matrices beside LoRA adapters.

Adapters alone leave new tokens as they were. PEFT's ``trainable_token_indices`` trains them, but copies the whole
matrix in every pass, forwards and back, which for 150,000 rows costs more than the adapters do. Here the frozen matrix
is used as it is, and its few trained rows are laid over what comes out: over the embeddings where such a token goes in,
over the logits in those tokens' columns. Tied matrices share one set of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from cirf.lm.training.sharding import local, part_of
from cirf.lm.vocabulary import is_tied

_NAME = "cirf_rows"


class TrainableRows:
    """Float32 copies [n x d] of the rows ``ids``, in the model's place of them until ``merge``.

    Rows of ``inputs`` stand behind them in the input matrix alone: tokens that are read and never written. Where the matrices
    are tied they are in both all the same, since the saved model will have them in both.

    The parameters are registered on the embedding and head modules (as ``cirf_rows``), so that optimisers,
    data-parallelism and ``requires_grad`` treat them like any other.
    """

    def __init__(self, model: Any, ids: list[int], inputs: list[int] | None = None) -> None:
        """Attach to a model whose matrices are frozen."""
        inner, head = model.get_input_embeddings(), model.get_output_embeddings()
        self._modules = [inner]
        self._hooks = [inner.register_forward_hook(self._embed)]
        tied = is_tied(model)
        slots = torch.full((inner.weight.shape[0],), -1)
        every = [*ids, *(inputs or [])]
        slots[torch.tensor(every)] = torch.arange(len(every))
        self._every = every
        inner.register_buffer("cirf_slots", slots.to(inner.weight.device), persistent=False)
        self._attach(inner, every)
        written = every if tied else ids
        head = head if written else None
        if head is not None:
            if not tied:
                self._modules.append(head)
                self._attach(head, ids)
            head.register_buffer("cirf_ids", torch.tensor(written, device=head.weight.device), persistent=False)
            self._hooks.append(head.register_forward_hook(self._project))
        self._head, self._tied = head, tied

    @staticmethod
    def _attach(module: Any, ids: list[int]) -> None:
        rows = module.weight.detach()[torch.tensor(ids, device=module.weight.device)].float().clone()
        module.register_parameter(_NAME, nn.Parameter(rows))

    @staticmethod
    def _embed(module: Any, args: tuple[Any, ...], output: torch.Tensor) -> torch.Tensor:
        slots = module.cirf_slots[args[0]]  # [b x s], -1 where the frozen row stands
        rows = nn.functional.embedding(slots.clamp(min=0), module.cirf_rows).to(output.dtype)
        scale = getattr(module, "embed_scale", None)  # some models scale inside the module
        return torch.where((slots >= 0).unsqueeze(-1), rows if scale is None else rows * scale, output)

    def _project(self, module: Any, args: tuple[Any, ...], output: torch.Tensor) -> torch.Tensor:
        rows = (self._modules[0] if self._tied else module).cirf_rows[: len(module.cirf_ids)]
        bias = None if getattr(module, "bias", None) is None else module.bias[module.cirf_ids].to(args[0].dtype)
        columns = nn.functional.linear(args[0], rows.to(args[0].dtype), bias).to(output.dtype)
        return output.index_copy(-1, module.cirf_ids, columns)

    def parameters(self) -> list[nn.Parameter]:
        """What is trained: one matrix of rows [n x d], or two."""
        return [module.cirf_rows for module in self._modules]

    def merge(self) -> None:
        """Write the rows into the matrices and leave the model as it was, hooks and all."""
        for hook in self._hooks:
            hook.remove()
        with torch.no_grad():
            for module in self._modules:
                ids = torch.tensor(self._every[: len(module.cirf_rows)], device=module.weight.device)
                module.weight[ids] = module.cirf_rows.to(module.weight.dtype)
                del module.cirf_rows
        del self._modules[0].cirf_slots
        if self._head is not None:
            del self._head.cirf_ids


def hasten(optimizer: torch.optim.Optimizer, parameters: Sequence[nn.Parameter], ids: Sequence[int] | None, ratio: float) -> None:
    """Make every step of an optimiser ``ratio`` times as long for the rows ``ids`` of some matrices, or for all of their rows.

    That is another learning rate for them, of AdamW and its decay as of plain descent: a step of either is a multiple of it, and
    moments do not depend on it. A rate of their own in a group of parameters would need rows that are parameters by themselves.
    """
    held: list[torch.Tensor] = []
    places: list[Any] = []  # of the rows in each matrix, or in this process's part of it
    for parameter in parameters:
        chosen = torch.zeros(parameter.shape[0], dtype=torch.bool)
        chosen[list(range(len(chosen)) if ids is None else ids)] = True
        places.append(local(part_of(chosen, parameter)).nonzero().flatten().to(local(parameter).device))

    def before(*_: Any) -> None:
        held[:] = [local(parameter.detach())[rows] for parameter, rows in zip(parameters, places, strict=True)]

    def after(*_: Any) -> None:
        for parameter, rows, old in zip(parameters, places, held, strict=True):
            whole = local(parameter.detach())
            whole[rows] = old + ratio * (whole[rows] - old)

    optimizer.register_step_pre_hook(before)
    optimizer.register_step_post_hook(after)
