"""The latent loop: a model feeds its states back to itself as thoughts instead of words (Coconut, Hao et al. 2024; CODI,
SIM-CoT).

A row with two thoughts, its positions, and the passes that it takes::

    How many clips? <latent>   z1   z2   </latent>72<end>
    0 ..                   9   10   11   12       13 14
    [--------- 1 ----------]  [2 ] [3 ] [------ 4 ------]

``z1 = f(H)`` at the last token of the prompt and ``z2 = f(H)`` at ``z1``, where H is the last layer's state after the final norm
(``hidden_states[-1]``) and f is nothing or a projector. Every pass extends the cache of the one before, so no token is computed
twice. Nothing is detached: in training the loss of the answer reaches the question through all thoughts.

Rows of a batch are padded on the left, so all first thoughts are in one column. A row with fewer thoughts than the others has its
further columns masked; the attention mask is as long as the keys in every pass, and positions are counted without what is masked.
Both matter: the third thought is off by its own size where padding is attended to, and in a model with learned positions also
where these are not given.

The projector maps a model's last state to its next input (CODI, Shen et al. 2025).
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from cirf.errors import CirfError
from cirf.lm.adapters import seeded
from cirf.lm.decoding.rounds import keeps_keys, past_of, same
from cirf.lm.training.loss import IGNORED, only_at, read_targets, unwrap

_FILE = Path("latent") / "projector.safetensors"
"""In a subfolder of a saved model: engines take every ``*.safetensors`` next to a model for its weights."""


class Projector(torch.nn.Module):
    """``LayerNorm(Linear(GELU(Linear(H))))``: states [... x d] to inputs [... x d] by way of ``inner`` numbers; float32."""

    def __init__(self, width: int, inner: int, seed: int) -> None:
        """The seed alone decides the first weights."""
        super().__init__()
        with seeded(seed):
            self.net = torch.nn.Sequential(
                torch.nn.Linear(width, inner), torch.nn.GELU(), torch.nn.Linear(inner, width), torch.nn.LayerNorm(width)
            )

    @property
    def inner(self) -> int:
        return int(self.net[0].out_features)  # type: ignore[arg-type]

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        """The next input; states may also be in 16 bits."""
        made: torch.Tensor = self.net(state.to(self.net[0].weight.dtype))  # type: ignore[arg-type]
        return made

    def save(self, folder: Path) -> None:
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
        raise CirfError(f"{path}: missing, damaged, or of another model; train the model again") from None
    return made.requires_grad_(False).eval()


Project = Callable[[torch.Tensor], torch.Tensor]
"""f: a state [b x d] as the next input [b x d]."""


@dataclass(frozen=True, slots=True)
class Thoughts:
    """A batch of b rows after its last thought.

    ``latents`` [b x n x d] are the vectors that were fed in, zeros where a row has fewer than n; ``last`` [b x d] is H at each
    row's last position; ``mask`` [b x k]: which of the k keys in ``cache`` count; ``length`` [b] is their number.
    """

    latents: torch.Tensor
    last: torch.Tensor
    mask: torch.Tensor
    length: torch.Tensor
    cache: Any


def think(model: Any, ids: torch.Tensor, mask: torch.Tensor, counts: torch.Tensor, project: Project | None = None) -> Thoughts:
    """Read prompts and think: ``max(counts) + 1`` passes, of which all but the first have one position a row.

    Args:
        model: a causal language model, whatever is wrapped around it.
        ids: prompts [b x s], padded on the left with any id.
        mask: [b x s], 1 for a token and 0 for padding.
        counts: thoughts of each row [b], 0 or more.
        project: f; ``None``: states are fed in unchanged.
    """
    number = unwrap(model).get_input_embeddings().weight.dtype
    places = (mask.cumsum(dim=1) - 1).clamp(min=0)
    last, cache = _state(model, mask, places, None, input_ids=ids)
    length, latents = mask.sum(dim=1), []
    for step in range(int(counts.max())):
        going = counts > step  # [b]
        thought = (last if project is None else project(last)).to(number)
        latents.append(torch.where(going[:, None], thought, torch.zeros_like(thought)))
        mask = torch.cat([mask, going[:, None].to(mask)], dim=1)
        state, cache = _state(model, mask, length[:, None], cache, inputs_embeds=thought[:, None])
        last = torch.where(going[:, None], state, last)
        length = length + going
    made = torch.stack(latents, dim=1) if latents else last.new_zeros(len(ids), 0, last.shape[1])
    return Thoughts(made, last, mask, length, cache)


def _state(model: Any, mask: torch.Tensor, places: torch.Tensor, cache: Any, **given: torch.Tensor) -> tuple[torch.Tensor, Any]:
    """H at the last column [b x d], and the cache. No logits are computed."""
    nowhere = torch.empty(0, dtype=torch.long, device=mask.device)
    with only_at(model, nowhere):
        made = model(
            attention_mask=mask, position_ids=places, past_key_values=cache, use_cache=True, output_hidden_states=True, **given
        )
    return made.hidden_states[-1][:, -1], past_of(made)


def read_after(
    model: Any, thoughts: Thoughts, ids: torch.Tensor, mask: torch.Tensor, labels: torch.Tensor, states: bool = False
) -> tuple[torch.Tensor, torch.Tensor, Any]:
    """Read the tokens after the thoughts, in one pass that extends their cache. ``ids`` and ``mask`` are [b x t], padded on the
    right; ``labels`` [b x t] are `IGNORED` where nothing is learned, and always in the first column.

    Logits [m x V] (float32) that predict the m targets, the targets [m], row by row, and all that the model made, with
    ``hidden_states`` of all L+1 layers [b x t x d] if ``states``."""
    return read_targets(
        model,
        labels,
        input_ids=ids,
        attention_mask=torch.cat([thoughts.mask, mask], dim=1),
        position_ids=thoughts.length[:, None] + torch.arange(ids.shape[1], device=ids.device),
        past_key_values=thoughts.cache,
        use_cache=True,
        output_hidden_states=states,
    )


def check_vectors(model: Any) -> None:
    """``CirfError`` where a model cannot reason in vectors: where it keeps states (Qwen3.5, Mamba), through which no gradient
    goes and which a mask does not protect from the thoughts of other rows, takes no vectors in place of words (Gemma 4), or
    answers otherwise when it reads in parts.

    Two short rows of unlike length think, and are then read again in one pass each, from the same vectors.
    """
    model, embed = unwrap(model), unwrap(model).get_input_embeddings()
    rows, tail = [[3, 5, 7, 9, 11, 13, 15], [4, 6, 8]], [10, 12]
    ids, mask = (part.to(model.device) for part in padded_left(rows, 0))
    tail_ids = torch.tensor([tail, tail], device=model.device)
    labels = torch.tensor([[IGNORED, tail[1]]] * 2, device=model.device)
    counts, begun = torch.tensor([1, 2], device=model.device), []

    def begin(module: Any, args: Any, made: torch.Tensor) -> torch.Tensor:
        begun.append(made.detach().requires_grad_())
        return begun[-1]

    handle = embed.register_forward_hook(begin)
    try:
        thoughts = think(model, ids, mask, counts)
        if not keeps_keys(thoughts.cache):
            raise CirfError("it keeps states in place of keys and values")
        logits, targets, _ = read_after(model, thoughts, tail_ids, torch.ones_like(tail_ids), labels)
        torch.autograd.grad(torch.nn.functional.cross_entropy(logits, targets), begun[0])
    except (torch.OutOfMemoryError, CirfError):
        raise
    except Exception as error:  # models raise whatever they like at what they cannot do
        why = textwrap.shorten(str(error) or type(error).__name__, 100, placeholder="...")
        raise CirfError(f"it takes no vectors in place of words: {why}") from None
    finally:
        handle.remove()
    with torch.no_grad():
        for index, (row, count) in enumerate(zip(rows, counts.tolist(), strict=True)):
            words = embed(torch.tensor([*row, *tail], device=model.device))
            given = torch.cat([words[: len(row)], thoughts.latents[index, :count].to(words.dtype), words[len(row) :]])
            whole = model(inputs_embeds=given[None], use_cache=False).logits[0, -2]
            if not same(model, logits[index].detach(), whole.float()):
                raise CirfError("what it answers after vectors depends on padding, or on the passes that read them")


def padded_left(rows: Sequence[Sequence[int]], padding: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of ids as one tensor [b x s], padded on the left, and its mask [b x s]."""
    longest = max(map(len, rows))
    ids = torch.tensor([[padding] * (longest - len(row)) + [*row] for row in rows])
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows])
    return ids, mask
