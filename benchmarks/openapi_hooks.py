"""What ``benchmarks.openapi`` tells schemathesis of the server; schemathesis loads this file, nobody runs it.

A description of an API says what each field may hold, and not what fields may hold together, nor how long a text may be for a
model. What is refused by such a rule, with the sentence that names it, is not counted as a failure; anything else is.
"""

from __future__ import annotations

import collections
import json
import os
import random
from collections.abc import Callable
from typing import Any

import schemathesis  # type: ignore[import-not-found, unused-ignore]
from schemathesis.openapi.checks import RejectedPositiveData  # type: ignore[import-not-found, unused-ignore]

CHAT = "/v1/chat/completions"

UNSAYABLE = (
    "the last message must be the user's",  # of a list, one place
    "n and cirf.votes are both given",  # two fields
    "votes at temperature 0 are all alike",
    "prose has no functional tokens to steer or explain",  # a field and what the model is
    "the conversation has ",  # ... so many tokens: only a tokenizer can tell
    "the text holds half a character",  # JSON has a way to write one, and the type string no way to exclude it
)
"""How the refusals begin of what is right by the description and still cannot be answered."""


FIELDS: dict[str, Callable[[random.Random], Any]] = {
    "stream": lambda draw: draw.random() < 0.8,
    "stream_options": lambda draw: {"include_usage": draw.random() < 0.5},
    "temperature": lambda draw: draw.choice((None, 0, 0.5, 1.0, 2)),
    "top_p": lambda draw: draw.choice((None, 1e-9, 0.5, 1)),
    "max_tokens": lambda draw: draw.choice((None, 1, 2, 8, 40.0, 2**31)),
    "seed": lambda draw: draw.choice((None, 0, -1, 2**63 - 1, -(2**63))),
    "n": lambda draw: draw.choice((1, 2, 3)),
}
OWN: dict[str, Callable[[random.Random], Any]] = {
    "grammar": lambda draw: draw.random() < 0.5,
    "budget": lambda draw: draw.choice((None, 0, 1, 3, 2**31)),
    "results": lambda draw: draw.random() < 0.5,
    "result_tokens": lambda draw: draw.choice((None, 0, 1, 3)),
    "result_cost": lambda draw: draw.choice((0, 0.5, 1e6)),
    "votes": lambda draw: draw.choice((1, 1, 2, 5)),
    "explain": lambda draw: draw.random() < 0.5,
}
"""Right values of fields that matter to the answer."""

REPEATED: collections.Counter[str] = collections.Counter()


@schemathesis.hook  # type: ignore[untyped-decorator, unused-ignore]
def filter_failure(context: Any, failure: Any, case: Any, response: Any) -> bool:
    """Whether something that was refused though the description allows it counts as a failure."""
    if not isinstance(failure, RejectedPositiveData) or case.operation.path != CHAT or response.status_code != 400:
        return True
    return not str(response.json()["error"]["message"]).startswith(UNSAYABLE)


@schemathesis.hook  # type: ignore[untyped-decorator, unused-ignore]
def map_body(context: Any, body: Any) -> Any:
    """Ask for more: of so many fields that may be left out few are given by chance, and hardly an answer would be a stream.

    No field is given that is there already, lest a wrong value be put right; for the same reason the last message is made the
    user's only where it is another's that may be there. Schemathesis repeats many a request: each time it gets other fields.
    """
    if not isinstance(body, dict):
        return body
    REPEATED[repr(body)] += 1
    draw = random.Random(f"{REPEATED[repr(body)]} {body!r}")
    more = _some(draw, FIELDS)
    own = _some(draw, OWN)
    if own and (body.get("model") == "traces" or draw.random() < 0.1):  # the other model has nothing to steer
        more["cirf"] = own
    try:
        *before, last = body["messages"]
        if last["role"] in ("system", "developer", "assistant") and draw.random() < 0.8:
            body = body | {"messages": [*before, last | {"role": "user"}]}
    except (TypeError, ValueError, LookupError):
        pass
    return more | body


def _some(draw: random.Random, fields: dict[str, Callable[[random.Random], Any]]) -> dict[str, Any]:
    """Half of the times nothing, else some of the fields."""
    if draw.random() < 0.5:
        return {}
    return {name: value(draw) for name, value in fields.items() if draw.random() < 0.4}


@schemathesis.check  # type: ignore[untyped-decorator, unused-ignore]
def stream_is_whole(ctx: Any, response: Any, case: Any) -> None:
    """A stream is answered and ends: faults in the middle of one have no status."""
    if not response.headers.get("content-type", [""])[0].startswith("text/event-stream"):
        return
    events = response.text.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""], f"a stream ends with {events[-2:]}"
    chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-2]]
    assert not any("error" in chunk for chunk in chunks), "a stream breaks off with an error"
    ended = {choice["index"] for chunk in chunks for choice in chunk["choices"] if choice["finish_reason"]}
    begun = {choice["index"] for chunk in chunks for choice in chunk["choices"]}
    assert ended == begun and ended, "of a stream's answers some do not end"


if os.environ.get("CIRF_OPENAPI_LOCKED"):

    @schemathesis.check  # type: ignore[untyped-decorator, unused-ignore]
    def nothing_without_the_key(ctx: Any, response: Any, case: Any) -> None:
        """Whoever has no key, or a wrong one, gets that error and nothing else."""
        if case.operation.path.startswith("/v1/"):
            assert response.status_code == 401, f"{response.status_code} without the key"
