"""Training some rows of frozen embedding matrices together with LoRA adapters.

Adapters alone do not train new tokens. PEFT's ``trainable_token_indices`` trains them, but copies the whole
matrix in every pass, forwards and back, which for 150,000 rows costs more than the adapters do. Here the frozen matrix
is used as it is, and its few trained rows replace its output: the embeddings of such tokens, and the logits in their columns.
Tied matrices share one set of rows.
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
    """Float32 copies [n x d] of the rows ``ids``, used by the model instead of its own until ``merge``.

    Rows of ``inputs`` follow them in the input matrix alone: tokens that are read and never written. In tied matrices they are in
    both, as in the saved model.

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
        slots = module.cirf_slots[args[0]]  # [b x s], -1 where the frozen row is used
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


def scale_learning_rate(
    optimizer: torch.optim.Optimizer, parameters: Sequence[nn.Parameter], ids: Sequence[int] | None, ratio: float
) -> None:
    """Scale the learning rate of the rows ``ids`` of some matrices, or of all their rows, by ``ratio``.

    Each step is multiplied by ``ratio``. For AdamW with its decay, as for plain descent, a step is proportional to the rate and
    the moments do not depend on it. A parameter group with its own rate would need the rows to be separate parameters.
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
