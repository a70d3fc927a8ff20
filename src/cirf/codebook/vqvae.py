"""The VQ-VAE: encoder, decoder, codes, and the loss that trains them (paper 3.2, eq. 10).

Shapes: M segments, K codes, d_s width of a sentence embedding, d_e width of a code (the backbone's embedding width).

    z' [b x d_s] --F_enc--> x [b x d_e] --code a--> q = e_a [b x d_e] --F_dec--> z^ [b x d_s]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from cirf.codebook.rows import Rows
from cirf.codebook.sinkhorn import PIECE
from cirf.cpu.linear import linear
from cirf.distributed import ALONE, Share

Gradient = Literal["straight_through", "decoder_only"]


class FeedForward(nn.Module):
    """The paper's two-layer network with tanh: Linear(in, hidden), tanh, Linear(hidden, out).

    First weights come from ``generator`` alone (uniform within 1/sqrt(fan-in), PyTorch's own range for a linear layer).
    Biases start at zero: the inputs are centred, and an offset shared by all outputs would make every code, and so every
    functional token's first row, point the same way (with random biases the bias share ‖mean‖ / mean ‖e‖ of eight codes
    was 0.89; the paper reports 0.12).
    """

    def __init__(self, inputs: int, hidden: int, outputs: int, generator: torch.Generator | None = None) -> None:
        """Build the network; without a generator the weights are left unset, to be loaded."""
        super().__init__()
        self.first = nn.Linear(inputs, hidden, device="meta").to_empty(device="cpu")
        self.second = nn.Linear(hidden, outputs, device="meta").to_empty(device="cpu")
        if generator is not None:
            for layer in (self.first, self.second):
                bound = layer.in_features**-0.5
                nn.init.uniform_(layer.weight, -bound, bound, generator=generator)
                nn.init.zeros_(layer.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        """[n x in] -> [n x out]."""
        hidden = torch.tanh(linear(inputs, self.first.weight, self.first.bias))
        return linear(hidden, self.second.weight, self.second.bias)


@dataclass(frozen=True)
class Losses:
    """The three terms of eq. 10, each summed over dimensions and averaged over the batch's segments."""

    reconstruction: Tensor
    codebook: Tensor
    commitment: Tensor

    def total(self, beta: float) -> Tensor:
        """What is minimised; ``beta`` weighs the commitment."""
        return self.reconstruction + self.codebook + beta * self.commitment


class VQVAE(nn.Module):
    """Encoder d_s -> d_e, its mirror image as decoder, and K codes [K x d_e] (zeros until they are initialised)."""

    def __init__(self, inputs: int, hidden: int, width: int, size: int, generator: torch.Generator | None = None) -> None:
        """Build it with first weights from ``generator``."""
        super().__init__()
        self.encoder = FeedForward(inputs, hidden, width, generator)
        self.decoder = FeedForward(width, hidden, inputs, generator)
        self.codes = nn.Parameter(torch.zeros(size, width))

    def reconstruction(self, batch: Tensor, batch_size: int | None = None) -> Tensor:
        """The autoencoder's loss on z' [b x d_s], before there are codes: squared error, summed over dimensions, mean of b. For a
        part of a batch of ``batch_size`` segments: that part's share of the mean."""
        return _squared_error(self.decoder(self.encoder(batch)), batch, batch_size)

    def losses(self, batch: Tensor, assigned: Tensor, gradient: Gradient, batch_size: int | None = None) -> Losses:
        """Eq. 10 for z' [b x d_s] with codes ``assigned`` [b]; ``batch_size`` as above.

        The codebook term moves codes alone and the commitment term the encoder alone. The reconstruction moves the
        decoder, and with ``straight_through`` the encoder too, as if quantising were the identity (van den Oord et al.,
        2017); with ``decoder_only`` nothing else. It never moves codes.
        """
        x = self.encoder(batch)
        q = torch.nn.functional.embedding(assigned, self.codes)  # indexing would add up gradients in any order
        seen = x + (q - x).detach() if gradient == "straight_through" else q.detach()
        terms = (self.decoder(seen), batch), (q, x.detach()), (x, q.detach())
        return Losses(*(_squared_error(found, wanted, batch_size) for found, wanted in terms))


class EncodedRows:
    """x = F_enc(z') [M x d_e] of all z' [M x d_s], on the encoder's device; never held as a whole, but computed again, a piece at
    a time, on each access."""

    def __init__(self, encoder: FeedForward, vectors: Rows) -> None:
        """Nothing is computed yet; later accesses use the encoder as it is then."""
        self._encoder = encoder
        self._vectors = vectors
        self._weight = encoder.second.weight
        self.shape = (len(vectors), self._weight.shape[0])

    def __len__(self) -> int:
        return self.shape[0]

    @torch.no_grad()
    def piece(self, start: int) -> Tensor:
        """The rows from a multiple of ``PIECE`` on, up to the next."""
        vectors = np.ascontiguousarray(self._vectors[start : start + PIECE], np.float32)
        found: Tensor = self._encoder(torch.from_numpy(vectors).to(self._weight.device, self._weight.dtype))
        return found

    def pieces(self, share: Share = ALONE) -> Iterator[Tensor]:
        """The rows of a process in order: those of its share of the pieces."""
        for start in share.mine(range(0, len(self), PIECE)):
            yield self.piece(start)

    def take(self, indices: np.ndarray) -> Tensor:
        """The rows [n x d_e] of indices [n]: those of their pieces, for fewer rows at once would be rounded otherwise."""
        found = torch.empty(len(indices), self.shape[1], dtype=self._weight.dtype, device=self._weight.device)
        for start in (np.unique(indices // PIECE) * PIECE).tolist():
            inside = np.flatnonzero(indices // PIECE * PIECE == start)
            found[torch.from_numpy(inside)] = self.piece(start)[torch.from_numpy(indices[inside] - start)]
        return found


def _squared_error(found: Tensor, wanted: Tensor, batch_size: int | None) -> Tensor:
    return (found - wanted).square().sum(dim=1).sum() / (batch_size or len(found))
