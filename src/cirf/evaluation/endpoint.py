"""Answers from a language model on an OpenAI-compatible server instead of a model in this process."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cirf.endpoints.fleet import ask
from cirf.endpoints.requests import Answer, Request
from cirf.errors import CirfError
from cirf.progress import SILENT, Progress
from cirf.recipe import schema
from cirf.store.files import RowLog


@dataclass(frozen=True, slots=True)
class ServedOutput:
    """The output of a server's model. ``tokens`` as the server counts them, with reasoning. ``failed``: why there is no
    answer."""

    text: str
    tokens: int
    truncated: bool
    failed: str = ""


def asker(
    section: schema.Evaluate, name: str, log: RowLog, seed: int, closing: str | None, progress: Progress = SILENT
) -> Callable[..., list[ServedOutput]]:
    """A function of users' turns, a cap in tokens and the number of a run, which gives one output a turn, in order.

    Answers are kept in ``log``: a stopped evaluation requests only missing ones. A question that the server refuses,
    or does not answer after all retries, has an empty output, up to the share ``section.max_unanswered_share`` of the turns.

    Args:
        section: temperature, top_p and the method's endpoint.
        name: the method, a key of ``section.endpoints``.
        closing: the delimiter between the reasoning and the answer, for methods with functional tokens. Servers return the
            two apart; they are joined again by it. ``None``: a server's reasoning is not part of the output.

    Raises:
        CirfError: as `cirf.endpoints.fleet.ask` does, for too many questions without an answer, or where a server does not
            count tokens.
    """
    endpoint, said = section.endpoints[name], set[str]()
    asked = schema.Asked(endpoints=(endpoint,), unanswered="drop")

    def request(turn: str, cap: int, run: int) -> Request:
        own = hashlib.sha256(f"{seed}/{run}/{turn}".encode()).digest()
        number = int.from_bytes(own[:4], "big") >> 1 if section.temperature > 0 else seed
        return Request(endpoint.model, (("user", turn),), number, section.temperature, section.top_p, cap)

    def output(answer: Answer) -> ServedOutput:
        if answer.tokens is None:
            raise CirfError(f"{endpoint.url}: its answers have no token count (usage.completion_tokens)")
        text = answer.text
        if closing is not None and answer.reasoning:
            ended = answer.finish != "length" or bool(text)
            text = answer.reasoning + (closing if ended else "") + text
        return ServedOutput(text, answer.tokens, answer.finish == "length")

    def generate(turns: Sequence[str], cap: int, run: int) -> list[ServedOutput]:
        requests = [request(turn, cap, run) for turn in turns]
        answers, refused = ask(requests, asked, log, progress, f"{name} at {endpoint.url}", said)
        if sum(each.key in refused for each in requests) > section.max_unanswered_share * len(requests):
            raise CirfError(
                f"{endpoint.url}: {len(refused):,} of {len(requests):,} questions were not answered (the last: "
                f"{next(reversed(refused.values()))}); the received answers are kept: check the server, then run the same "
                "command again, or raise evaluate.max_unanswered_share to count them as wrong"
            )
        failed = {key: ServedOutput("", 0, False, why) for key, why in refused.items()}
        return [failed.get(each.key) or output(answers[each.key]) for each in requests]

    return generate
