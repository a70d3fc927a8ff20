"""Requests are as ``/openapi.json`` describes them (`benchmarks.openapi` tests more)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError
from running import Running, question

import cirf
from cirf.serving.model import ServedModel
from cirf.serving.schemas import PENALTIES, UNSUPPORTED, ChatRequest

KEY = "0123456789abcdefXYZ"


def described(server: Running) -> dict[str, Any]:
    """The description, as anybody gets it."""
    status, headers, body = server.send("GET", "/openapi.json")
    assert status == 200 and headers["content-type"] == "application/json"
    found: dict[str, Any] = json.loads(body)
    return found


def test_it_names_every_address_and_that_requests_may_be_refused(server: Running) -> None:
    summary = described(server)
    assert summary["info"] == {"title": "cirf serve", "version": cirf.__version__}
    assert set(summary["paths"]) == {"/", "/health", "/v1/models", "/v1/models/{name}", "/v1/chat/completions"}
    for methods in summary["paths"].values():
        for operation in methods.values():
            assert {"200", "4XX", "5XX"} <= set(operation["responses"]) and "security" not in operation


def test_it_says_where_a_key_is_needed_and_needs_none_itself(models: list[ServedModel]) -> None:
    with Running(models, key=KEY, local=False) as running:
        summary = described(running)
        assert running.send("GET", "/v1/models", headers={"Authorization": f"Bearer {KEY}"})[0] == 200
    scheme = summary["components"]["securitySchemes"]["HTTPBearer"]
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    for path, methods in summary["paths"].items():
        for operation in methods.values():
            assert operation.get("security") == ([{"HTTPBearer": []}] if path.startswith("/v1/") else None)


def test_the_seed_has_the_bounds_of_its_format(server: Running) -> None:
    seed = described(server)["components"]["schemas"]["ChatRequest"]["properties"]["seed"]
    assert {"type": "integer", "format": "int64"} in seed["anyOf"]
    for value, status in ((2**63 - 1, 200), (-(2**63), 200), (2**63, 400), (-(2**63) - 1, 400)):
        assert server.chat(question("Hi?", seed=value, max_tokens=1))[0] == status


def test_fields_that_are_refused_may_hold_what_is_described(server: Running) -> None:
    fields = described(server)["components"]["schemas"]["ChatRequest"]["properties"]
    for name in (*UNSUPPORTED, *PENALTIES, "response_format"):
        for value in fields[name]["enum"]:
            ChatRequest.model_validate(question("Hi?", **{name: value}))
        for value in (True, 1, "x", [0], {"type": "json_object"}):
            with pytest.raises(ValidationError, match=f"{name} is not supported here"):
                ChatRequest.model_validate(question("Hi?", **{name: value}))


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"n": "2"}, "n"),
        ({"n": True}, "n"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"seed": "1"}, "seed"),
        ({"stream": 1}, "stream"),
        ({"stream": "false"}, "stream"),
        ({"stream_options": {"include_usage": "yes"}}, "stream_options.include_usage"),
        ({"temperature": "0.5"}, "temperature"),
        ({"top_p": True}, "top_p"),
        ({"cirf": {"calculator": 0}}, "cirf.calculator"),
        ({"cirf": {"budget": "3"}}, "cirf.budget"),
        ({"cirf": {"result_cost": "1"}}, "cirf.result_cost"),
    ],
)
def test_a_value_of_another_type_is_refused(server: Running, change: Any, param: str) -> None:
    status, _, summary = server.chat(question("Hi?") | change)
    assert (status, summary["error"]["param"]) == (400, param)


def test_a_whole_number_may_be_written_with_a_point(server: Running) -> None:
    status, _, summary = server.chat(question("Hi?", n=2.0, max_tokens=1.0, temperature=1))
    assert status == 200 and len(summary["choices"]) == 2 and summary["usage"]["completion_tokens"] == 2
