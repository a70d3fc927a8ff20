"""Responses: OpenAI's chat completions, the trace as ``reasoning`` as in vLLM, and our own fields under ``cirf``."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from cirf.lm.decoding.generate import output_of
from cirf.lm.prompt import stop_ids
from cirf.serving.engine import Job
from cirf.serving.reading import StreamReader


class Completion:
    """A job's response to its client, whole or as a stream: each answer is a choice."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._stops = frozenset(stop_ids(job.served.model, job.served.tokenizer))
        self._about = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": job.served.name}
        self._readers = [StreamReader(job.served.names, job.served.opened) for _ in range(job.count)]

    def text(self, place: int) -> str:
        """An answer as far as it is written, functional tokens included."""
        return output_of(self._job.served.tokenizer, self._job.made[place], self._stops).text if self._job.made else ""

    def whole(self) -> dict[str, Any]:
        """The response, all at once."""
        choices = []
        for place, reader in enumerate(self._readers):
            reasoning, content = reader.more(self.text(place), over=True, cut=self._cut(place))
            spoken = {"role": "assistant", "content": content, "reasoning": reasoning or None}
            choices.append({"index": place, "message": spoken, "logprobs": None} | self._ending(place))
        body = {"object": "chat.completion", "choices": choices, "usage": self.usage(), "cirf": self._own()}
        return self._about | body

    def opening(self) -> dict[str, Any]:
        delta = {"role": "assistant", "content": ""}
        return self._chunk([self._choice(place, delta) for place in range(self._job.count)])

    def news(self, over: bool) -> list[dict[str, Any]]:
        """Chunks with the text since the last call."""
        chunks = []
        for place, reader in enumerate(self._readers):
            whole = over or bool(self._job.ends and self._job.ends[place])
            new = reader.more(self.text(place), whole, self._cut(place))
            for name, text in zip(("reasoning", "content"), new, strict=True):
                if text:
                    chunks.append(self._chunk([self._choice(place, {name: text})]))
        return chunks

    def ending(self, usage: bool) -> list[dict[str, Any]]:
        chunks = self.news(over=True)
        last = [self._choice(place, {}) | self._ending(place) for place in range(self._job.count)]
        chunks.append(self._chunk(last) | {"cirf": self._own()})
        return [*chunks, self._chunk([]) | {"usage": self.usage()}] if usage else chunks

    def usage(self) -> dict[str, int]:
        """Tokens of the prompt and of everything written."""
        prompt, written = len(self._job.ids), sum(map(len, self._job.made))
        return {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}

    def _cut(self, place: int) -> bool:
        return bool(self._job.ends) and self._job.ends[place] == "length"

    def _ending(self, place: int) -> dict[str, Any]:
        read = self._job.served.read(self.text(place), self._cut(place))
        return {"finish_reason": self._job.ends[place] or "stop", "cirf": {"answer": read.answer, "steps": list(read.steps)}}

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
        return body | sampled

    def _choice(self, index: int, delta: Mapping[str, Any]) -> dict[str, Any]:
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}

    def _chunk(self, choices: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return self._about | {"object": "chat.completion.chunk", "choices": choices}
