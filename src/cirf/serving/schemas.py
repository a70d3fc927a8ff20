"""The request schema: OpenAI's chat completions, with our own fields under the one key ``cirf``.

OpenAI fields that this server does not know are ignored, as clients send many that do not matter here (``user``, ``store``,
``metadata``). Unsupported ones that would change the answer are refused; so is an unknown key under ``cirf``.

Also the server's description at ``/openapi.json``: its routes, requests, responses and errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI
from fastapi.security import HTTPBearer
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Strict, WithJsonSchema, model_validator
from pydantic.json_schema import models_json_schema

import cirf
from cirf.serving.answers import Chunk, Completion, Error, Health, Model, Models
from cirf.serving.limits import Limits


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
            raise ValueError("the text holds half a character (a lone surrogate); send whole ones") from None
        return self


class StreamOptions(BaseModel):
    """Additional content of a stream."""

    include_usage: Flag = False


class CirfOptions(BaseModel):
    """Options of this server alone: steering (`cirf.lm.decoding.trace_grammar`), a ``calculator``, ``votes`` (how many answers
    are sampled for a majority vote) and ``explain`` (the function and probability of each functional token)."""

    model_config = ConfigDict(extra="forbid")

    grammar: Flag = False
    budget: Count | None = None
    results: Flag = True
    result_tokens: Count | None = None
    result_cost: Annotated[Number, Field(ge=0, le=1e6, allow_inf_nan=False)] = 0.0
    at_most: Annotated[dict[Annotated[int, Field(ge=0, le=_MANY)], Count], Field(max_length=4096)] = {}
    calculator: Flag = False
    votes: Positive = 1
    explain: Flag = False

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
        if self.n > 1 and self.cirf.votes > 1:
            raise ValueError("n and cirf.votes are both given; n gives several answers, votes one of several")
        return self


_REF = "#/components/schemas/{model}"
_ANYWHERE = (403, 408, 413, 415, 500, 503)  # the guard may refuse any request with these
_WHY = {
    400: "It is malformed, or asks for something unsupported.",
    401: "There is no key, or a wrong one.",
    403: "The host name is not the server's own, or the page is of another origin.",
    404: "There is no such model.",
    408: "It was not sent in time.",
    413: "It is too large.",
    415: "A body is no JSON, or does not say so.",
    429: "The queue is full; `Retry-After` says when to try again.",
    500: "An internal error; see the server's log.",
    503: "The server is too busy, or is being stopped; `Retry-After` says when to try again.",
    504: "It was not answered in time.",
}


_ANSWERS = (Error, Health, Model, Models, Completion, Chunk)
_EVENT = {
    "type": "object",
    "properties": {
        "data": {
            "anyOf": [
                {"const": "[DONE]"},
                {
                    "type": "string",
                    "contentMediaType": "application/json",
                    "contentSchema": {"anyOf": [{"$ref": _REF.format(model=name)} for name in ("Chunk", "Error")]},
                },
            ]
        }
    },
    "required": ["data"],
}


class DescribedApp(FastAPI):
    """An application that describes itself, without FastAPI's documentation pages, whose scripts come from elsewhere. ``names``:
    of the models, the main one first; ``keyed``: a key is needed below ``/v1/``."""

    def __init__(self, names: Sequence[str], limits: Limits, keyed: bool, lifespan: Callable[[FastAPI], Any]) -> None:
        self._names, self._limits, self._keyed = names, limits, keyed
        super().__init__(title="cirf serve", version=cirf.__version__, docs_url=None, redoc_url=None, lifespan=lifespan)

    def documented(self, answer: type[BaseModel] | None, *statuses: int, keyed: bool = True) -> dict[str, Any]:
        """The description of a route: its response, and its error statuses besides the usual ones."""
        closed = keyed and self._keyed
        refused = sorted({*_ANYWHERE, *statuses, *([401] if closed else [])})
        responses: dict[int | str, dict[str, Any]] = {status: {"description": _WHY[status]} | _json(Error) for status in refused}
        if answer is not None:
            responses[200] = {"description": "Answered."} | _json(answer)
        if answer is Completion:
            responses[200]["content"]["text/event-stream"] = {"itemSchema": _EVENT}
        needed = [Depends(HTTPBearer(auto_error=False))] if closed else []  # checked by the guard; this is for the description
        return {"responses": responses, "dependencies": needed} | ({} if answer is None else {"response_model": None})

    def openapi(self) -> dict[str, Any]:
        """The description, made once."""
        if self.openapi_schema is None:
            schema = super().openapi()
            schemas = schema["components"]["schemas"]
            for methods in schema["paths"].values():
                for operation in methods.values():
                    operation["responses"].pop("422", None)  # FastAPI's own; here it is 400
                    for parameter in operation.get("parameters", ()):
                        parameter["schema"]["enum"] = list(self._names)
            for unused in ("HTTPValidationError", "ValidationError"):
                schemas.pop(unused, None)
            schemas.update(models_json_schema([(one, "validation") for one in _ANSWERS], ref_template=_REF)[1]["$defs"])
            request = schemas["ChatRequest"]
            request["properties"]["model"]["enum"] = list(self._names)
            for field in (request["properties"]["n"], schemas["CirfOptions"]["properties"]["votes"]):
                field["maximum"] = self._limits.votes
            message = {"role": "user", "content": "How many legs do 2 cats and 1 spider have in total?"}
            request["examples"] = [{"model": self._names[0], "messages": [message]}]
        assert self.openapi_schema is not None
        return self.openapi_schema


def _json(answer: type[BaseModel]) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": {"$ref": _REF.format(model=answer.__name__)}}}}
