"""The projector f of the latent loop: maps a model's last state to its next input (CODI, Shen et al. 2025)."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from cirf.errors import CirfError

_FILE = Path("latent") / "projector.safetensors"
"""In a subfolder of a saved model: engines take every ``*.safetensors`` next to a model for its weights."""


class Projector(torch.nn.Module):
    """``LayerNorm(Linear(GELU(Linear(H))))``: states [... x d] to inputs [... x d] by way of ``inner`` numbers; float32."""

    def __init__(self, width: int, inner: int, seed: int) -> None:
        """The seed alone decides the first weights."""
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            self.net = torch.nn.Sequential(
                torch.nn.Linear(width, inner), torch.nn.GELU(), torch.nn.Linear(inner, width), torch.nn.LayerNorm(width)
            )

    @property
    def inner(self) -> int:
        """Its width inside."""
        return int(self.net[0].out_features)  # type: ignore[arg-type]

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        """The next input; states may also be in 16 bits."""
        made: torch.Tensor = self.net(state.to(self.net[0].weight.dtype))  # type: ignore[arg-type]
        return made

    def save(self, folder: Path) -> None:
        """Write it to a model's folder."""
        path = folder / _FILE
        path.parent.mkdir(exist_ok=True)
        save_file({name: value.detach().cpu().contiguous() for name, value in self.state_dict().items()}, path)
        path.chmod((folder / "config.json").stat().st_mode & 0o777 if (folder / "config.json").exists() else 0o644)


def read_projector(folder: Path, width: int, inner: int) -> Projector:
    """The projector of a saved model of that width. ``CirfError`` where it is not there, damaged or of another width."""
    made, path = Projector(width, inner, 0), folder / _FILE
    try:
        made.load_state_dict(load_file(path))
    except (OSError, SafetensorError, RuntimeError):
        raise CirfError(f"{path}: not there, damaged, or of another model; train the model again") from None
    return made.requires_grad_(False).eval()
