"""A question to a language model, and its answer."""

from __future__ import annotations

from dataclasses import dataclass

from cirf.files import hash_json


@dataclass(frozen=True, slots=True)
class Request:
    """One question to one model; ``schema`` is the JSON schema of the answer, for servers that can hold a model to one."""

    model: str
    messages: tuple[tuple[str, str], ...]
    seed: int
    temperature: float
    top_p: float
    max_tokens: int
    schema: str | None = None

    @property
    def key(self) -> str:
        """Hash of all that decides the answer."""
        parts = (self.model, self.messages, self.seed, self.temperature, self.top_p, self.max_tokens, self.schema)
        return hash_json(list(parts))[:32]

    def chat(self) -> list[dict[str, str]]:
        """The conversation as servers want it."""
        return [{"role": role, "content": content} for role, content in self.messages]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: ``finish`` is ``stop`` or ``length`` (cut off at the cap); ``tokens`` as the server counts, if it does."""

    text: str
    finish: str
    tokens: int | None
