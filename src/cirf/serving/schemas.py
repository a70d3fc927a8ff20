"""The request schema: OpenAI's chat completions, with our own fields under the one key ``cirf``.

OpenAI fields that this server does not know are ignored, as clients send many that do not matter here (``user``, ``store``,
``metadata``). Unsupported ones that would change the answer are refused; so is an unknown key under ``cirf``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Strict, WithJsonSchema, model_validator


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


# As JSON has them: a number in quotes is none, nor is a truth value, and 5.0 is a whole one.
_MANY = 2**31
_WHOLE = BeforeValidator(_whole)
Flag = Annotated[bool, Strict()]
Number = Annotated[float, Strict()]
Count = Annotated[int, Strict(), Field(ge=0, le=_MANY), _WHOLE]
Positive = Annotated[int, Strict(), Field(ge=1, le=_MANY), _WHOLE]
# Described by a name: FastAPI would give its bounds as floats, rounded up.
Seed = Annotated[int, Strict(), Field(ge=-(2**63), lt=2**63), _WHOLE, WithJsonSchema({"type": "integer", "format": "int64"})]

UNSUPPORTED = ("tools", "functions", "function_call", "tool_choice", "stop", "logprobs", "top_logprobs", "logit_bias", "audio")
"""Unsupported fields that would change the answer; values that turn them off are accepted."""

PENALTIES = ("frequency_penalty", "presence_penalty")
_NOTHING: tuple[Any, ...] = (None, False, "none", "auto", 0, [], {})
_TEXT = {"type": "text"}


class Part(BaseModel):
    """A part of a message that consists of several: text alone."""

    type: Literal["text"]
    text: str


class Message(BaseModel):
    """One turn of a conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Part]

    @property
    def plain(self) -> dict[str, str]:
        """The message for a chat template: ``developer`` is called ``system`` there."""
        text = self.content if isinstance(self.content, str) else "\n".join(part.text for part in self.content)
        return {"role": "system" if self.role == "developer" else self.role, "content": text}

    @model_validator(mode="after")
    def _is_text(self) -> Message:
        try:
            self.plain["content"].encode()
        except UnicodeEncodeError:
            raise ValueError("the text holds half a character (a lone surrogate); send complete characters") from None
        return self


class StreamOptions(BaseModel):
    """Additional content of a stream."""

    include_usage: Flag = False


class CirfOptions(BaseModel):
    """Options of this server alone: steering (`cirf.lm.decoding.trace_grammar`) and a ``calculator``."""

    model_config = ConfigDict(extra="forbid")

    grammar: Flag = False
    budget: Count | None = None
    results: Flag = True
    result_tokens: Count | None = None
    result_cost: Annotated[Number, Field(ge=0, le=1e6, allow_inf_nan=False)] = 0.0
    at_most: Annotated[dict[Annotated[int, Field(ge=0, le=_MANY)], Count], Field(max_length=4096)] = {}
    calculator: Flag = False

    @property
    def steered(self) -> dict[str, Any]:
        """The settings of the steering; empty if none is requested."""
        steering = self.model_dump(include={"grammar", "budget", "results", "result_tokens", "result_cost", "at_most"})
        plain = CirfOptions().model_dump(include=set(steering))
        return {} if steering == plain else {key: value for key, value in steering.items() if key != "grammar"}


def _refused(schema: dict[str, Any]) -> None:
    """Describe the values allowed in fields that are refused otherwise."""
    schema["properties"] |= {name: {"enum": list(_NOTHING)} for name in (*UNSUPPORTED, *PENALTIES)}
    schema["properties"]["response_format"] = {"enum": [None, _TEXT]}


class ChatRequest(BaseModel):
    """A chat completion request. ``temperature``, ``top_p`` and ``seed`` default to the model's recipe, so a plain request is
    answered as by ``cirf ask``."""

    model_config = ConfigDict(extra="allow", json_schema_extra=_refused)

    model: str
    messages: Annotated[list[Message], Field(min_length=1, max_length=256)]
    stream: Flag = False
    stream_options: StreamOptions | None = None
    temperature: Annotated[Number, Field(ge=0, le=2, allow_inf_nan=False)] | None = None
    top_p: Annotated[Number, Field(gt=0, le=1, allow_inf_nan=False)] | None = None
    max_tokens: Positive | None = None
    max_completion_tokens: Positive | None = None
    seed: Seed | None = None
    n: Positive = 1
    cirf: CirfOptions = CirfOptions()

    @model_validator(mode="after")
    def _possible(self) -> ChatRequest:
        extra = self.model_extra or {}
        for name in (*UNSUPPORTED, *PENALTIES):
            if extra.get(name) not in _NOTHING:
                raise ValueError(f"{name} is not supported here; leave it out")
        kind = extra.get("response_format")
        if kind is not None and kind != _TEXT:
            raise ValueError("response_format is not supported here, but for text; leave it out")
        if self.messages[-1].role != "user":
            raise ValueError("the last message must be the user's: that is what is answered")
        return self
