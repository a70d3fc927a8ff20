"""Streaming an answer: which parts of a growing text can be sent already.

The streamed pieces add up to the trace and answer that `cirf.lm.vocabulary.read_trace` reads in the whole text::

    <cirf><cirf_016>48<cirf_0           trace: <cirf_016>48
    <cirf><cirf_016>48</cirf>7          trace: <cirf_016>48   answer: 7
    <cirf><cirf_016>48</cirf>72.        trace: <cirf_016>48   answer: 72.

Where the prompt holds the opening delimiter the span is open from the first token. Otherwise nothing is sent before it opens,
since text before it belongs to neither. The beginning of a possible delimiter, incomplete characters, and blanks that may be the
last are held back. If a trace ends without closing, its last result is sent twice: as trace, and at the end as the answer. If a
cap cut it off, it is not an answer.

The explanation of a functional token that a model wrote, cut short::

    {"token": "<cirf_011>", "label": "legs make", "segments": ["A sheep has 4 legs, so 2 sheep make 8 legs."],
     "probability": 0.544717, "alternatives": [{"token": "<cirf_005>", "probability": 0.451586, "label": "legs makes"}]}
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from cirf.codebook.functions import label_of
from cirf.lm.prompt import encode
from cirf.lm.vocabulary import TokenNames, read_trace

if TYPE_CHECKING:
    from cirf.serving.model import ServedModel

HALF = "\N{REPLACEMENT CHARACTER}"
"""The placeholder of an incomplete character."""


class StreamReader:
    """What was sent of one answer, and whether its trace is ``closed``. Without ``names`` the model writes no traces, and all
    text is the answer. ``opened``: the prompt ends with the opening delimiter."""

    def __init__(self, names: TokenNames | None, opened: bool = False) -> None:
        self._names, self._opened = names, opened
        self.reasoning, self.content, self.closed = "", "", False

    def more(self, text: str, over: bool, cut: bool = False) -> tuple[str, str]:
        """The new parts of the trace and the answer in ``text``, the whole text so far; everything once it is ``over``, finished
        or ``cut`` off by a cap."""
        reasoning, content = self._read(text if over else text.rstrip(HALF), over, cut)
        new = reasoning[len(self.reasoning) :], content[len(self.content) :]
        self.reasoning, self.content = reasoning, content
        return new

    def _read(self, text: str, over: bool, cut: bool) -> tuple[str, str]:
        if self._names is None:
            return "", text.strip()
        start, end = self._names.start, self._names.end
        if self._opened and not over and start.startswith(text):
            return "", ""  # it may be writing the delimiter again
        _, opened, inner = _opened(text, start, self._opened).partition(start)
        self.closed = over or end in inner
        if self.closed:
            return read_output(text, self._names, self._opened, cut)
        return (without_beginning(inner, end), "") if opened else ("", "")


def read_output(text: str, names: TokenNames, opened: bool, cut: bool) -> tuple[str, str]:
    """The trace and the answer of a finished output, as `StreamReader` sends them; ``opened`` and ``cut`` as there."""
    whole = _opened(text, names.start, opened)
    before, begun, inner = whole.partition(names.start)
    inner = inner if begun else before
    trace, answer = read_trace(whole if names.start in text else text, names)
    if names.end in inner:
        return trace, answer
    return (inner if begun or cut else trace), "" if cut else answer


def _opened(text: str, start: str, opened: bool) -> str:
    """An output with the opening delimiter, if that is in the prompt."""
    return start + text if opened and not text.startswith(start) else text


def without_beginning(text: str, tag: str) -> str:
    """The text without the longest beginning of a tag that it ends with."""
    for length in range(min(len(tag) - 1, len(text)), 0, -1):
        if text.endswith(tag[:length]):
            return text[:-length]
    return text


SEGMENTS = 3
"""Most segments that are shown of a functional token."""

OTHERS = 3
"""How many likely tokens are shown in place of one."""


@torch.inference_mode()
def explanations(served: ServedModel, prompt: str, written: Sequence[int]) -> list[dict[str, Any]]:
    """Each functional token in ``written``, the ids that a model wrote after ``prompt``: its function, its probability, and the
    likeliest other tokens there with theirs. One pass over both; probabilities are conditioned on all earlier tokens, at
    temperature 1 and before any steering."""
    assert served.names is not None
    tokenizer, codes = served.tokenizer, served.tokenizer.convert_tokens_to_ids(list(served.names.codes))
    numbers = {token: code for code, token in enumerate(codes)}
    places = [place for place, token in enumerate(written) if token in numbers]
    if not places:
        return []
    asked = encode(tokenizer, prompt)
    ids = torch.tensor([[*asked, *written]], device=served.model.device)
    rows = torch.tensor([len(asked) + place - 1 for place in places], device=served.model.device)
    logits = served.model(input_ids=ids, use_cache=False, logits_to_keep=rows).logits[0].float()
    found = []
    for place, chances in zip(places, logits.softmax(dim=-1), strict=True):
        likeliest = [token for token in chances.topk(OTHERS + 1).indices.tolist() if token != written[place]]
        alternatives = []
        for token in likeliest[:OTHERS]:
            label = {"label": label_of(served.functions, numbers[token])} if token in numbers else {}
            alternatives.append({"token": tokenizer.decode([token]), "probability": round(float(chances[token]), 6)} | label)
        code = numbers[written[place]]
        known = served.functions["codes"].get(str(code), {})
        found.append(
            {
                "token": tokenizer.decode([written[place]]),
                "label": label_of(served.functions, code),
                "segments": list(known.get("examples", ()))[:SEGMENTS],
                "probability": round(float(chances[written[place]]), 6),
                "alternatives": alternatives,
            }
        )
    return found
