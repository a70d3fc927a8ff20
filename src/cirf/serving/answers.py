"""The responses, for the description at ``/openapi.json``: OpenAI's, with our own fields under ``cirf``.

These only describe responses: responses are not validated against them.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field


class ErrorDetail(BaseModel):
    """Why a request is refused: a sentence for people, a code for programs, and the invalid field, if any."""

    message: str
    type: str
    param: str | None
    code: str


class Error(BaseModel):
    """A refusal, in OpenAI's form."""

    error: ErrorDetail


class Health(BaseModel):
    """The names of the models, and how many answers wait and are being written."""

    status: Literal["ok"]
    models: list[str]
    waiting: int = Field(ge=0)
    running: int = Field(ge=0)


class CirfModelInfo(BaseModel):
    """The model's kind, the labels of its functional tokens by code, and the limits of requests."""

    role: Literal["main", "compared"]
    functional: bool
    labels: dict[str, str]
    answer_tokens: int = Field(ge=1)
    votes: int = Field(ge=1)


class Model(BaseModel):
    """A model that is served."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    max_model_len: int = Field(ge=1)
    cirf: CirfModelInfo


class Models(BaseModel):
    """All that are served, the main one first."""

    object: Literal["list"]
    data: list[Model] = Field(min_length=1)


class Usage(BaseModel):
    """Tokens that were read and written."""

    prompt_tokens: int = Field(ge=1)
    completion_tokens: int = Field(ge=0)
    total_tokens: int = Field(ge=1)


class Step(BaseModel):
    """A functional token of a trace and its result; text before the first token has none."""

    token: str | None
    label: str
    result: str


class Alternative(BaseModel):
    """What the model might have written instead."""

    token: str
    probability: float = Field(ge=0, le=1)
    label: str = ""


class ExplainedToken(BaseModel):
    """A functional token: its function and its probability."""

    token: str
    label: str
    segments: list[str]
    probability: float = Field(ge=0, le=1)
    alternatives: list[Alternative]


class CirfChoiceInfo(BaseModel):
    """The parsed answer and the steps of the trace."""

    answer: str
    steps: list[Step]
    explain: list[ExplainedToken] = []


class Count(BaseModel):
    """An answer, and how many votes gave it."""

    answer: str
    count: int = Field(ge=1)


class Votes(BaseModel):
    """The number of votes requested, of votes given so far in a stream, their counts, and how many were stopped because they
    could not change the result (``left``)."""

    asked: int = Field(ge=2)
    given: int = Field(default=0, ge=0)
    counts: list[Count] = []
    unread: int = Field(default=0, ge=0)
    left: int = Field(default=0, ge=0)


class CirfAnswerInfo(BaseModel):
    """Seconds in the queue, from there to the first token, and of the work in all; how many answers were decoded together."""

    waited_seconds: float = Field(ge=0)
    first_token_seconds: float = Field(ge=0)
    seconds: float = Field(ge=0)
    together: int = Field(ge=1)
    seed: int | None = None
    votes: Votes | None = None


class VotesGiven(BaseModel):
    """How many votes are given so far."""

    votes: Votes


class AssistantMessage(BaseModel):
    """The answer, and the trace before it without its delimiters."""

    role: Literal["assistant"]
    content: str
    reasoning: str | None


class Choice(BaseModel):
    """One of the requested answers."""

    index: int = Field(ge=0)
    message: AssistantMessage
    logprobs: None
    finish_reason: Literal["stop", "length"]
    cirf: CirfChoiceInfo


class Completion(BaseModel):
    """A question that is answered."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[Choice] = Field(min_length=1)
    usage: Usage
    cirf: CirfAnswerInfo


class Delta(BaseModel):
    """The new part of an answer or of the trace before it."""

    role: Literal["assistant"] = "assistant"
    content: str = ""
    reasoning: str = ""


class ChoiceOfChunk(BaseModel):
    """The new part of one of the answers."""

    index: int = Field(ge=0)
    delta: Delta
    logprobs: None
    finish_reason: Literal["stop", "length"] | None
    cirf: CirfChoiceInfo | None = None


class Chunk(BaseModel):
    """A part of a stream."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChoiceOfChunk]
    usage: Usage | None = None
    cirf: CirfAnswerInfo | VotesGiven | None = None
