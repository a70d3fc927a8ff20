"""The explanation of a functional token that a model wrote: its label, segments, probability, and the likeliest alternatives.

A worked example, cut short::

    {"token": "<cirf_011>", "label": "legs make", "segments": ["A sheep has 4 legs, so 2 sheep make 8 legs."],
     "probability": 0.544717, "alternatives": [{"token": "<cirf_005>", "probability": 0.451586, "label": "legs makes"}]}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cirf.codebook.functions import label_of

if TYPE_CHECKING:
    from cirf.lm.decoding.alternatives import Choice

SEGMENTS = 3
"""Most segments that are shown of a functional token."""


def explanation(choice: Choice, functions: Mapping[str, Any]) -> dict[str, Any]:
    """The explanation of a functional token; functional tokens among the alternatives have labels.

    ``functions``: the functions of the model's tokens (`cirf.codebook.functions.functions_of`).
    """
    code = _code(choice.text)
    known = functions["codes"].get(str(code), {})
    others = []
    for text, probability in choice.others:
        other = _code(text)
        label = {} if other is None else {"label": label_of(functions, other)}
        others.append({"token": text, "probability": round(probability, 6)} | label)
    return {
        "token": choice.text,
        "label": known.get("label", ""),
        "segments": list(known.get("examples", ()))[:SEGMENTS],
        "probability": round(choice.probability, 6),
        "alternatives": others,
    }


def _code(text: str) -> int | None:
    from cirf.lm.vocabulary import parse_trace

    steps = parse_trace(text)
    return steps[0][0] if len(steps) == 1 and not steps[0][1] else None
