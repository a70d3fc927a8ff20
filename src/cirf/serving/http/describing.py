"""The server's description at ``/openapi.json``: its routes, requests, responses and errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fastapi import Depends, FastAPI
from fastapi.security import HTTPBearer
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

import cirf
from cirf.serving.http.answers import Chunk, Completion, Error, Health, Model, Models
from cirf.serving.http.limits import Limits

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


class Described(FastAPI):
    """An application that describes itself, without FastAPI's documentation pages, whose scripts come from elsewhere.

    ``names``: of the models, the main one first; ``keyed``: a key is needed below ``/v1/``.
    """

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
            summary = super().openapi()
            schemas = summary["components"]["schemas"]
            for methods in summary["paths"].values():
                for operation in methods.values():
                    operation["responses"].pop("422", None)  # FastAPI's own; here it is 400
                    for parameter in operation.get("parameters", ()):
                        parameter["schema"]["enum"] = list(self._names)
            for unused in ("HTTPValidationError", "ValidationError"):
                schemas.pop(unused, None)
            schemas.update(models_json_schema([(one, "validation") for one in _ANSWERS], ref_template=_REF)[1]["$defs"])
            request = schemas["ChatRequest"]
            request["properties"]["model"]["enum"] = list(self._names)
            for field in (request["properties"]["n"], schemas["Own"]["properties"]["votes"]):
                field["maximum"] = self._limits.votes
            asked = {"role": "user", "content": "How many legs do 2 cats and 1 spider have in total?"}
            request["examples"] = [{"model": self._names[0], "messages": [asked]}]
        assert self.openapi_schema is not None
        return self.openapi_schema


def _json(answer: type[BaseModel]) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": {"$ref": _REF.format(model=answer.__name__)}}}}
