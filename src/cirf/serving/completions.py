"""Responses: OpenAI's chat completions, the trace as ``reasoning`` as in vLLM, and our own fields under ``cirf``.

With votes, the answer is that of the majority.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from cirf.evaluation.self_consistency import Election
from cirf.lm.decoding.generate import output_of
from cirf.lm.prompt import stop_ids
from cirf.serving.engine import Job
from cirf.serving.reading import StreamReader, TokenChoice, explanation
from cirf.tasks.parsing.answers import equal_answers, number_value


class Completion:
    """A job's response to its client, whole or as a stream. ``votes``: the job's answers are votes for one, and those that cannot
    change the result any more are dropped; else each is a separate choice. Create it before the job is submitted."""

    def __init__(self, job: Job, votes: bool) -> None:
        self._job, self._votes = job, votes
        self._stops = frozenset(stop_ids(job.served.model, job.served.tokenizer))
        self._about = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": job.served.name}
        self._readers = [StreamReader(job.served.names, job.served.opened) for _ in range(1 if votes else job.count)]
        self._finished = 0
        self.chosen = 0
        self._ballot: dict[str, Any] = {}
        if votes:
            self._election = Election(job.count, same)
            job.enough = self._settled

    def text(self, place: int) -> str:
        """An answer as far as it is written, functional tokens included."""
        return output_of(self._job.served.tokenizer, self._job.made[place], self._stops).text if self._job.made else ""

    def close(self) -> None:
        """All is written: count the votes."""
        if self._votes:
            answers = {place: self._answer(place) for place, end in enumerate(self._job.ends) if end not in (None, "left")}
            for place, answer in answers.items():
                if place not in self._election:
                    self._election.give(place, answer or None)
            self.chosen = self._election.majority().place or 0
            self._ballot = ballot(self._election, answers, self._job.count)

    def places(self) -> Sequence[int]:
        return [self.chosen] if self._votes else range(self._job.count)

    def whole(self, explained: Sequence[Sequence[TokenChoice]] | None) -> dict[str, Any]:
        """The response, all at once; ``explained``: for each choice, the probabilities of its functional tokens."""
        choices = []
        for index, place in enumerate(self.places()):
            reader = StreamReader(self._job.served.names, self._job.served.opened)
            reasoning, content = reader.more(self.text(place), over=True, cut=self._cut(place))
            spoken = {"role": "assistant", "content": content, "reasoning": reasoning or None}
            choices.append({"index": index, "message": spoken, "logprobs": None} | self._ending(index, place, explained))
        body = {"object": "chat.completion", "choices": choices, "usage": self.usage(), "cirf": self._own()}
        return self._about | body

    def opening(self) -> dict[str, Any]:
        delta = {"role": "assistant", "content": ""}
        return self._chunk([self._choice(index, delta) for index in range(len(self._readers))])

    def news(self) -> list[dict[str, Any]]:
        """Chunks with the text since the last call; with votes, how many are given."""
        if not self._votes:
            return self._deltas(self._job.over)
        finished = sum(end not in (None, "left") for end in self._job.ends)
        if finished <= self._finished:
            return []
        self._finished = finished
        return [self._chunk([]) | {"cirf": {"votes": {"asked": self._job.count, "given": finished}}}]

    def ending(self, explained: Sequence[Sequence[TokenChoice]] | None, usage: bool) -> list[dict[str, Any]]:
        chunks = self._deltas(True)
        last = [self._choice(index, {}) | self._ending(index, place, explained) for index, place in enumerate(self.places())]
        chunks.append(self._chunk(last) | {"cirf": self._own()})
        return [*chunks, self._chunk([]) | {"usage": self.usage()}] if usage else chunks

    def usage(self) -> dict[str, int]:
        """Tokens of the prompt and of everything written, losing votes included."""
        prompt, written = len(self._job.ids), sum(map(len, self._job.made))
        return {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}

    def _answer(self, place: int) -> str:
        return self._job.served.read(self.text(place), self._cut(place)).answer

    def _cut(self, place: int) -> bool:
        return bool(self._job.ends) and self._job.ends[place] == "length"

    def _settled(self, place: int) -> bool:
        self._election.give(place, self._answer(place) or None)
        return self._election.settled

    def _deltas(self, over: bool) -> list[dict[str, Any]]:
        chunks = []
        for index, place in enumerate(self.places()):
            whole = over or bool(self._job.ends and self._job.ends[place])
            new = self._readers[index].more(self.text(place), whole, self._cut(place))
            for name, text in zip(("reasoning", "content"), new, strict=True):
                if text:
                    chunks.append(self._chunk([self._choice(index, {name: text})]))
        return chunks

    def _ending(self, index: int, place: int, explained: Sequence[Sequence[TokenChoice]] | None) -> dict[str, Any]:
        read = self._job.served.read(self.text(place), self._cut(place))
        own: dict[str, Any] = {"answer": read.answer, "steps": list(read.steps)}
        if explained is not None:
            own["explain"] = [explanation(choice, self._job.served.functions) for choice in explained[index]]
        return {"finish_reason": self._job.ends[place] or "stop", "cirf": own}

    def _own(self) -> dict[str, Any]:
        job = self._job
        began, first, ended = (moment or job.asked for moment in (job.began, job.first, job.ended))
        body: dict[str, Any] = {
            "waited_seconds": round(began - job.asked, 4),
            "first_token_seconds": round(first - began, 4),
            "seconds": round(ended - began, 4),
            "together": job.together,
        }
        sampled = {"seed": job.seed} if job.how.temperature else {}
        return body | sampled | ({"votes": self._ballot} if self._votes else {})

    def _choice(self, index: int, delta: Mapping[str, Any]) -> dict[str, Any]:
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}

    def _chunk(self, choices: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return self._about | {"object": "chat.completion.chunk", "choices": choices}


def ballot(election: Election, answers: Mapping[int, str], asked: int) -> dict[str, Any]:
    """The counts of the votes: ``answers`` of finished ones, by their places, empty if none was read."""
    counts = [{"answer": answers[places[0]], "count": len(places)} for places in election.groups]
    unread = sum(not answer for answer in answers.values())
    return {"asked": asked, "counts": counts, "unread": unread, "left": asked - len(answers)}


def same(one: str, other: str) -> bool:
    """Whether two answers are one: by value if either is a number, else as texts."""
    numbers = number_value(one) is not None or number_value(other) is not None
    return equal_answers("number" if numbers else "text", one, other)
