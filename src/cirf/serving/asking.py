"""From what a client asks to what the engine does."""

from __future__ import annotations

import random
from typing import Any

from cirf.errors import CirfError
from cirf.serving.engine import How, Job
from cirf.serving.limits import Limits
from cirf.serving.model import Served
from cirf.serving.refusals import Refusal
from cirf.serving.schemas import ChatRequest

_LONGEST_TOKEN = 32  # characters a token has at most in the mean of any text that people write


def job_of(request: ChatRequest, served: Served, limits: Limits) -> Job:
    """What is to be answered, and how; takes as long as the conversation's tokens need. `Refusal` if it cannot be.

    A request for more tokens than an answer may have, or than the context holds behind the prompt, gets those that it may have.
    """
    from cirf.lm.prompt import conversation_text, encode

    count = max(request.n, request.cirf.votes)
    if count > limits.votes:
        raise Refusal(400, f"at most {limits.votes} answers to one question", "too_many_answers", "n or cirf.votes")
    how = _how(request, served, count)
    messages = [message.plain for message in request.messages]
    most = min(limits.prompt, served.context - 1)
    if sum(len(message["content"]) for message in messages) > _LONGEST_TOKEN * most:
        raise _too_long(f"more than {most}", most)
    try:
        prompt = conversation_text(served.tokenizer, messages)
    except CirfError as error:
        raise Refusal(400, str(error), "invalid_conversation", "messages") from None
    ids = encode(served.tokenizer, prompt)
    if len(ids) > most:
        raise _too_long(str(len(ids)), most)
    asked = request.max_completion_tokens or request.max_tokens or served.cap
    return Job(
        served=served,
        prompt=prompt,
        ids=ids,
        how=how,
        cap=min(asked, limits.answer, served.context - len(ids)),
        seed=random.getrandbits(32) if request.seed is None else request.seed,
        count=count,
        told=request.stream,
    )


def _how(request: ChatRequest, served: Served, count: int) -> How:
    """Temperature and nucleus as asked, else the recipe's: those of its votes where several answers are sampled."""
    usual: Any = served.limits.voting if count > 1 else served.limits
    temperature = usual.temperature if request.temperature is None else request.temperature
    top_p = usual.top_p if request.top_p is None else request.top_p
    if request.cirf.votes > 1 and temperature == 0:
        raise Refusal(
            400, "votes at temperature 0 are all alike; give a temperature above 0, or none", "invalid_votes", "temperature"
        )
    steered = request.cirf.steered
    if served.names is None and (steered or request.cirf.explain):
        named = "cirf.explain" if not steered else "cirf"
        raise Refusal(400, f"{served.name} has no functional tokens to steer or explain", "not_functional", named)
    calculator = request.cirf.calculator
    if not steered:
        return How(temperature, top_p, calculator=calculator)
    from cirf.lm.steering import Steering

    return How(temperature, top_p, Steering(**steered), calculator)


def _too_long(found: str, most: int) -> Refusal:
    message = f"the conversation has {found} tokens, the longest that can be answered has {most}; send less"
    return Refusal(400, message, "context_length_exceeded", "messages")
