"""Hooks of ``benchmarks.openapi``, loaded by schemathesis.

An OpenAPI description says what each field may hold, but not which fields may be combined or how long a text a model can take. A
refusal by such a rule, with its message, does not count as a failure; any other refusal does.
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

EXEMPT = (
    "the last message must be the user's",  # of a list, one place
    "at most 32 answers to one question",
    "prose has no functional tokens to steer",  # a field and what the model is
    "the conversation has ",  # ... so many tokens: only a tokenizer can count
    "the text holds half a character",  # JSON has a way to write one, and the type string no way to exclude it
)
"""How messages start that refuse requests which are valid by the description."""


FIELDS: dict[str, Callable[[random.Random], Any]] = {
    "stream": lambda draw: draw.random() < 0.8,
    "stream_options": lambda draw: {"include_usage": draw.random() < 0.5},
    "temperature": lambda draw: draw.choice((None, 0, 0.5, 1.0, 2)),
    "top_p": lambda draw: draw.choice((None, 1e-9, 0.5, 1)),
    "max_tokens": lambda draw: draw.choice((None, 1, 2, 8, 40.0, 2**31)),
    "seed": lambda draw: draw.choice((None, 0, -1, 2**63 - 1, -(2**63))),
    "n": lambda draw: draw.choice((1, 2, 3)),
}
MODELS = ("traces", "prose")
OWN: dict[str, Callable[[random.Random], Any]] = {
    "grammar": lambda draw: draw.random() < 0.5,
    "budget": lambda draw: draw.choice((None, 0, 1, 3, 2**31)),
    "results": lambda draw: draw.random() < 0.5,
    "result_tokens": lambda draw: draw.choice((None, 0, 1, 3)),
    "result_cost": lambda draw: draw.choice((0, 0.5, 1e6)),
}
"""Valid values of fields that affect the answer."""

REPEATED: collections.Counter[str] = collections.Counter()


@schemathesis.hook  # type: ignore[untyped-decorator, unused-ignore]
def filter_failure(context: Any, failure: Any, case: Any, response: Any) -> bool:
    """Whether a refusal of a request that the description allows counts as a failure."""
    if not isinstance(failure, RejectedPositiveData) or case.operation.path != CHAT or response.status_code != 400:
        return True
    return not str(response.json()["error"]["message"]).startswith(EXEMPT)


@schemathesis.hook  # type: ignore[untyped-decorator, unused-ignore]
def map_body(context: Any, body: Any) -> Any:
    """Add optional fields: random requests have few of them, and would hardly ever ask for a stream.

    Fields that are present are kept, so that wrong values stay wrong. For the same reason the last message becomes the user's
    only if its role is a valid one. Schemathesis repeats many requests; each repetition gets other fields.
    """
    if not isinstance(body, dict):
        return body
    REPEATED[repr(body)] += 1
    draw = random.Random(f"{REPEATED[repr(body)]} {body!r}")
    if isinstance(body.get("model"), str) and draw.random() < 0.9:  # any text is valid, but only these are served
        body = body | {"model": draw.choice(MODELS)}
    more = _some(draw, FIELDS)
    own = _some(draw, OWN)
    if own and (body.get("model") == "traces" or draw.random() < 0.1):  # the other model has no tokens to steer
        more["cirf"] = own
    try:
        *before, last = body["messages"]
        if last["role"] in ("system", "developer", "assistant") and draw.random() < 0.8:
            body = body | {"messages": [*before, last | {"role": "user"}]}
    except (TypeError, ValueError, LookupError):
        pass
    return more | body


def _some(draw: random.Random, fields: dict[str, Callable[[random.Random], Any]]) -> dict[str, Any]:
    """Half of the time nothing, otherwise some of the fields."""
    if draw.random() < 0.5:
        return {}
    return {name: value(draw) for name, value in fields.items() if draw.random() < 0.4}


@schemathesis.check  # type: ignore[untyped-decorator, unused-ignore]
def stream_is_whole(ctx: Any, response: Any, case: Any) -> None:
    """Check that a stream ends completely: faults inside a stream have no status."""
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
        """Check that clients without the right key get error 401 and nothing else."""
        if case.operation.path.startswith("/v1/"):
            assert response.status_code == 401, f"{response.status_code} without the key"
