"""Functional tokens: their names, their rows in the model, and traces as text (paper 3.2 eq. 11, 3.3 eq. 13).

A trace of two steps with its answer reads ``<cirf><cirf_016>48<cirf_023>72</cirf>72``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cirf.errors import CirfError
from cirf.lm.prompt import encode, prompt_text
from cirf.recipe import schema
from cirf.records import Trace

if TYPE_CHECKING:
    import numpy as np
    import torch


_CODE = re.compile(r"<cirf_(\d{3,})>")
_ANY = re.compile(r"</?cirf>|<cirf_\d{3,}>|</?think>")


@dataclass(frozen=True, slots=True)
class TokenNames:
    """The names of the delimiters and of the K functional tokens, code 0 first."""

    start: str
    end: str
    codes: tuple[str, ...]

    @property
    def all(self) -> tuple[str, ...]:
        """Start, end, codes: the order in which they join the vocabulary."""
        return (self.start, self.end, *self.codes)


def token_names(size: int, delimiters: str = "cirf") -> TokenNames:
    """Names of ``size`` functional tokens; ``delimiters`` is ``cirf`` or ``think``."""
    return TokenNames(f"<{delimiters}>", f"</{delimiters}>", tuple(f"<cirf_{code:03d}>" for code in range(size)))


def names_in(tokenizer: Any) -> TokenNames | None:
    """The names of the functional tokens that a tokenizer has; ``None`` where it has none."""
    known = tokenizer.get_vocab()
    size = sum(bool(_CODE.fullmatch(name)) for name in known)
    return token_names(size, "cirf" if "<cirf>" in known else "think") if size else None


def write_trace(trace: Trace, names: TokenNames) -> str:
    """Codes with their results between the delimiters, then the answer. Names inside a result or answer are broken up."""
    steps = zip(trace.codes, trace.results, strict=True)
    inner = "".join(names.codes[code] + _plain(result) for code, result in steps)
    return f"{names.start}{inner}{names.end}{_plain(trace.answer)}"


def _plain(text: str) -> str:
    return _ANY.sub(lambda found: found[0][0] + " " + found[0][1:], text)


def read_trace(text: str, names: TokenNames) -> tuple[str, str]:
    """The trace without its delimiters, and the answer after it.

    The opening delimiter may be missing, since the prompt may hold it. Without the closing one, what follows the last
    functional token is the answer; `is_closed` checks that. A text without any of them is all answer.
    """
    before, started, rest = text.partition(names.start)
    rest = rest if started else before
    inner, ended, answer = rest.partition(names.end)
    if ended:
        return inner, answer.strip()
    codes = list(_CODE.finditer(rest))
    if codes:
        return rest[: codes[-1].end()], rest[codes[-1].end() :].strip()
    return (rest, "") if started else ("", text.strip())


def is_closed(text: str, names: TokenNames) -> bool:
    """Whether an output is one trace with its closing delimiter and an answer after it without functional tokens or
    delimiters."""
    inner, ended, answer = text.removeprefix(names.start).partition(names.end)
    return bool(ended and answer.strip()) and names.start not in inner and not _ANY.search(answer)


def opened_by_prompt(tokenizer: Any, names: TokenNames) -> bool:
    """Whether the chat template ends the prompt with the opening delimiter (``vocabulary.opening: prompt``)."""
    return prompt_text(tokenizer, "?").endswith(names.start)


def parse_trace(trace_text: str) -> list[tuple[int | None, str]]:
    """The steps of a trace: each code with its result; text before the first code has ``None``."""
    before, *pairs = _CODE.split(trace_text)
    steps: list[tuple[int | None, str]] = [(None, before)] if before else []
    return steps + [(int(code), result) for code, result in zip(pairs[::2], pairs[1::2], strict=True)]


def extend(
    model: Any, tokenizer: Any, codes: np.ndarray[Any, Any] | None, section: schema.Vocabulary, size: int, seed: int
) -> list[int]:
    """Add the delimiters and ``size`` functional tokens to tokenizer and model, and set their rows.

    The names become ordinary added tokens: a special token would vanish from decoded text. The embedding matrix [V x d] grows
    only if it has no spare rows, and never shrinks. Rows of the functional tokens are set in the input matrix and, where that is
    another one, in the output matrix: ``alpha * e / ||e||`` for code vectors e (eq. 11) or for random directions (``init:
    random``, or no codes). New delimiters start at the mean row; ``<think>`` and ``</think>`` that the model already knows are
    unchanged. With ``section.init_from_token`` both start at that token's row, to which those of the functional tokens are added.

    Args:
        codes: [K x d] code vectors, or ``None``.
        section: where rows start and how long they are.
        size: K.
        seed: of random directions.

    Returns:
        The ids of start, end and the codes in order.

    ``CirfError``: codes of another number or width, or ``like`` is no single token.
    """
    import torch

    names = token_names(size, section.delimiters)
    width, known = model.get_input_embeddings().weight.shape[1], len(tokenizer)
    if codes is not None and tuple(codes.shape) != (size, width):
        found, wanted = (f"{shape[0]} codes of width {shape[1]}" for shape in (codes.shape, (size, width)))
        raise CirfError(f"codebook: {found}, but the model needs {wanted}; rebuild the codebook for this backbone")
    likeness = None if section.init_from_token is None else single(tokenizer, section.init_from_token)
    ids = add_tokens(model, tokenizer, names.all, section.init_from_token)
    if codes is None or section.init == "random":
        directions = torch.randn(size, width, generator=torch.Generator().manual_seed(seed))
    else:
        directions = torch.as_tensor(codes, dtype=torch.float32)
    directions = torch.nn.functional.normalize(directions, dim=1)
    with torch.no_grad():
        for weight in matrices(model):
            old = weight[: min(known, weight.shape[0])].float()
            alpha = float(old.norm(dim=1).mean()) if section.alpha == "mean" else section.alpha
            rows = alpha * directions if likeness is None else weight[likeness].float().cpu() + alpha * directions
            weight[torch.tensor(ids[2:], device=weight.device)] = rows.to(weight)
    return ids


def single(tokenizer: Any, text: str) -> int:
    """The id of a text that is a single token, as ``vocabulary.init_from_token`` must be; ``CirfError`` where it is not."""
    ids = encode(tokenizer, text)
    if len(ids) != 1:
        raise CirfError(f"vocabulary.init_from_token: {text!r} is {len(ids)} tokens of this model; name a text of a single one")
    return ids[0]


def add_tokens(model: Any, tokenizer: Any, names: Sequence[str], like: str | None = None) -> list[int]:
    """Add ordinary tokens, each starting at the mean row of both matrices, or at the rows of the token ``like``; answers their
    ids. The matrices [V x d] grow only where they have no spare rows. A name that the tokenizer knows already keeps its row.
    ``CirfError`` where ``like`` is no single token."""
    import torch
    from transformers import AddedToken

    likeness = None if like is None else single(tokenizer, like)
    known, taken = len(tokenizer), set(tokenizer.get_vocab())
    tokenizer.add_tokens([AddedToken(name, special=False, normalized=False) for name in names if name not in taken])
    ids: list[int] = tokenizer.convert_tokens_to_ids(list(names))
    if max(ids) >= model.get_input_embeddings().weight.shape[0]:
        model.resize_token_embeddings(max(ids) + 1, mean_resizing=False)
    with torch.no_grad():
        for weight in matrices(model):
            middle = weight[: min(known, weight.shape[0])].float().mean(dim=0).to(weight.dtype)
            first = middle if likeness is None else weight[likeness].clone()
            for name, token in zip(names, ids, strict=True):
                if name not in taken:
                    weight[token] = first
    return ids


def word_rows(model: Any, tokenizer: Any, codes: np.ndarray[Any, Any], steps: Iterable[tuple[int, str]]) -> np.ndarray[Any, Any]:
    """Of each code the mean input row of the tokens in its steps, less the mean of all steps [K x d]. ``codes`` [K x d]: the code
    vectors, which stay where no step has the code; ``steps``: each one's code and text."""
    import numpy as np

    weight = model.get_input_embeddings().weight.detach()
    found: dict[int, list[np.ndarray[Any, Any]]] = {}
    for code, text in steps:
        if ids := encode(tokenizer, text):
            found.setdefault(code, []).append(weight[ids].float().mean(dim=0).cpu().numpy())
    every = [row for rows in found.values() for row in rows]
    middle = np.mean(every, axis=0) if len(found) > 1 else 0.0  # of a single code nothing would be left
    vectors = codes.copy()
    for code, rows in found.items():
        vectors[code] = np.mean(rows, axis=0) - middle
    return vectors


def matrices(model: Any) -> list[torch.nn.Parameter]:
    """The input matrix [V x d] and, unless it is the same one, the output matrix."""
    head = model.get_output_embeddings()
    inner = model.get_input_embeddings().weight
    return [inner] if head is None or is_tied(model) else [inner, head.weight]


def is_tied(model: Any) -> bool:
    head = model.get_output_embeddings()
    return head is not None and head.weight is model.get_input_embeddings().weight
