"""Intrinsic measures of a codebook (paper's appendix): is it used evenly, and do its codes name functions or questions?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from cirf.codebook.codebook import usage


@dataclass(frozen=True, slots=True)
class Clustering:
    """Intrinsic measures of one assignment.

    ``used``: share of the K codes that are used by a step; ``perplexity``: exponential of the entropy of their use, at most K;
    ``ami``: adjusted mutual information of code and question, 0 if the code says nothing about the question; ``purity``:
    share of the steps whose question is the most frequent of their code; ``collapsed``: share of the rationales of two steps
    or more with the same code throughout; ``unique``: mean number of distinct codes a rationale.
    """

    used: float
    perplexity: float
    ami: float
    purity: float
    collapsed: float
    unique: float


def clustering(codes: Sequence[Sequence[int]], size: int, questions: Sequence[Hashable] | None = None) -> Clustering:
    """Measure the codes of each rationale; ``size``: K. ``ValueError`` if there is no step.

    ``questions``: what each rationale answers, where several may answer one; anything else that rationales share, such as their
    task, gives ``ami`` and ``purity`` of that. ``None``: each has its own question.
    """
    from sklearn.metrics import adjusted_mutual_info_score

    flat = [code for row in codes for code in row]
    if not flat:
        raise ValueError("no step to measure")
    names = range(len(codes)) if questions is None else questions
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    asked = [numbers[name] for name, row in zip(names, codes, strict=True) for _ in row]
    use = usage(np.array(flat), size)
    pairs = Counter(zip(flat, asked, strict=True))
    most: dict[int, int] = {}
    for (code, _), count in pairs.items():
        most[code] = max(most.get(code, 0), count)
    several = [row for row in codes if len(row) > 1]
    return Clustering(
        used=use["used"] / size,
        perplexity=use["perplexity"],
        ami=float(adjusted_mutual_info_score(asked, flat)),
        purity=sum(most.values()) / len(flat),
        collapsed=sum(len(set(row)) == 1 for row in several) / len(several) if several else 0.0,
        unique=sum(len(set(row)) for row in codes) / len(codes),
    )
