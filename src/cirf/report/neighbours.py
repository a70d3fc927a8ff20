"""The codes nearest to each code, by the cosine of their vectors as the codebook holds them."""

from __future__ import annotations

from pathlib import Path

from cirf.errors import CirfError

MOST = 8
"""So many neighbours of a code are told."""

_DIGITS = 6


def read_neighbours(folder: Path, size: int) -> dict[int, list[list[float]]]:
    """``[[code, cosine], ...]`` of every code, nearest first, from a codebook's ``codebook.safetensors`` [K x d_e].

    The vectors are those that quantised the steps, before a model was fine-tuned with them. A vector of zeros is near to
    nothing. Empty where the folder holds no such file; ``CirfError`` where it is damaged or of another number of codes.
    """
    path = folder / "codebook.safetensors"
    if not path.exists():
        return {}
    import numpy as np
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:
            codes = file.get_tensor("codes").astype(np.float64)
    except (SafetensorError, OSError) as error:
        raise CirfError(f"{path}: cannot be read ({error}); remove the folder {folder.name} and run again") from None
    if codes.ndim != 2 or len(codes) != size:
        raise CirfError(f"{path}: holds codes of shape {codes.shape}, not {size} of them; remove the folder and run again")
    lengths = np.linalg.norm(codes, axis=1, keepdims=True)
    units = np.divide(codes, lengths, out=np.zeros_like(codes), where=lengths > 0)
    cosines = np.round(units @ units.T, _DIGITS)
    return {code: _nearest(code, cosines[code].tolist()) for code in range(size)}


def _nearest(code: int, cosines: list[float]) -> list[list[float]]:
    others = sorted((-cosine, other) for other, cosine in enumerate(cosines) if other != code)
    return [[other, -cosine or 0.0] for cosine, other in others[:MOST]]
