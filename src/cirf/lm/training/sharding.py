"""Training with weights, gradients and optimiser state sharded over the processes of a launch (FSDP2, ``fully_shard``).

A layer's weights are gathered for its pass and freed after it. Frozen weights stay in their own number format, trained ones are
float32, so losses equal those of one process up to rounding. Checkpoints and the final model are gathered on the main process's
CPU, in the files of an unsharded training.
"""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from cirf.distributed import barrier, is_main, world_size
from cirf.errors import CirfError
from cirf.lm.vocabulary import is_tied

_REFUSED = {
    "FSDP_VERSION": ("1", "fsdp_version: 1 is not supported; set it to 2"),
    "FSDP_OFFLOAD_PARAMS": ("true", "fsdp_offload_params is not supported; set it to false, or use more processes"),
    "FSDP_ACTIVATION_CHECKPOINTING": (
        "true",
        "set fsdp_activation_checkpointing to false, and finetune.gradient_checkpointing: true in the recipe",
    ),
}
"""Settings of accelerate, as it puts them into the environment."""


def check_launch() -> None:
    """``CirfError`` where accelerate's settings ask for sharding that is not supported."""
    for name, (value, advice) in _REFUSED.items():
        if os.environ.get(name, "").lower() == value:
            raise CirfError(f"accelerate's settings: {advice}")


@contextlib.contextmanager
def unseen() -> Iterator[None]:
    """Within, accelerate's objects are created as for data-parallel training; otherwise they would shard the model again."""
    requested = os.environ.pop("ACCELERATE_USE_FSDP", None)
    try:
        yield
    finally:
        if requested is not None:
            os.environ["ACCELERATE_USE_FSDP"] = requested


def refusal(method: str) -> CirfError:
    """The error for a method whose objective reads weights outside the model's own pass."""
    return CirfError(f"{method} cannot be trained with sharded weights (FSDP); launch without it (accelerate launch --multi_gpu)")


def shard(model: Any, base: Any, full: bool, device: str) -> None:
    """Shard a model in place, layer by layer, and move each process's part to its device. ``base``: the model inside its
    adapters. ``full``: every weight is trained, so all become float32. ``CirfError``: the model does not name its layers."""
    barrier()  # the process group is there, and each process has its device
    mesh = init_device_mesh(torch.device(device).type, (world_size(),))
    kinds = set(base._no_split_modules or ())
    parts = [module for module in base.modules() if type(module).__name__ in kinds]
    if not parts:
        raise CirfError("the backbone's class does not name its layers (_no_split_modules), so it cannot be sharded; use another")
    if not is_tied(base):  # one matrix is in one group, so tied ones stay in the outermost
        parts += [part for part in (base.get_input_embeddings(), base.get_output_embeddings()) if part is not None]
    for part in [*parts, model]:
        if full:
            for parameter in part.parameters():
                if not isinstance(parameter, DTensor):
                    parameter.data = parameter.data.float()
        fully_shard(part, mesh=mesh)
    model._is_accelerate_prepared = True  # or accelerate would put data-parallelism around it


def is_sharded(model: Any) -> bool:
    return any(isinstance(parameter, DTensor) for parameter in model.parameters())


def free_gathered(model: Any) -> None:
    """Free the outermost group's whole weights, which a forward pass without a backward leaves gathered. Until then they are the
    model's parameters, and an optimiser made of them would not train its parts."""
    if isinstance(model, FSDPModule):
        model.reshard()


def local(tensor: torch.Tensor) -> torch.Tensor:
    """This process's part of a sharded tensor, in place; any other tensor itself."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def part_of(whole: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A whole tensor, which every process has, sharded as ``like`` is."""
    if not isinstance(like, DTensor):
        return whole
    return distribute_tensor(whole, like.device_mesh, like.placements, src_data_rank=None)


def clip_gradients(parameters: Iterable[nn.Parameter], most: float) -> torch.Tensor:
    """Scale gradients, in place, so that their norm over all processes is ``most`` at the most; answers the norm before."""
    parts = [local(parameter.grad) for parameter in parameters if parameter.grad is not None]
    square = torch.nn.utils.get_total_norm(parts) ** 2  # torch's own clipping scales each process's part by that part's norm
    torch.distributed.all_reduce(square)
    norm = square.sqrt()
    torch._foreach_mul_(parts, torch.clamp(most / (norm + 1e-6), max=1.0))
    return norm


def gathered(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The whole tensors on the CPU of the main process; nothing on the others, all of which must ask for the same."""
    made = {}
    for name, tensor in tensors.items():
        whole = tensor.detach()
        whole = whole.full_tensor() if isinstance(whole, DTensor) else whole
        if is_main():
            made[name] = whole.cpu()
    return made


def gathered_optimizer(optimizer: Any) -> dict[str, Any]:
    """``optimizer.state_dict()`` as it would be unsharded, on the main process; without moments on the others."""
    state: dict[str, Any] = optimizer.state_dict()
    return state | {"state": {place: gathered(moments) for place, moments in state["state"].items()}}


def load_optimizer(optimizer: Any, state: Mapping[str, Any]) -> None:
    """Load the state dict of an unsharded optimiser, each process its part of it."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    parts = {
        place: {name: part_of(value, parameters[place]) if value.dim() else value for name, value in moments.items()}
        for place, moments in state["state"].items()
    }
    optimizer.load_state_dict({**state, "state": parts})


def blank_copy(model: Any) -> Any:
    memo: dict[int, Any] = {}
    for parameter in model.parameters():
        memo[id(parameter)] = nn.Parameter(torch.empty_like(parameter, device="meta"), requires_grad=parameter.requires_grad)
    return copy.deepcopy(model, memo)


def fill(model: Any, weights: Mapping[str, torch.Tensor]) -> None:
    fresh = {id(parameter): nn.Parameter(weights[name], requires_grad=False) for name, parameter in model.named_parameters()}
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False, remove_duplicate=False)):
            setattr(module, name, fresh[id(parameter)])
