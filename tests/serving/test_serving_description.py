"""The server behaves as ``/openapi.json`` describes it (`benchmarks.openapi` tests more)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError
from running import Running, question

import cirf
from cirf.serving import answers
from cirf.serving.limits import Limits
from cirf.serving.model import ServedModel
from cirf.serving.schemas import PENALTIES, UNSUPPORTED, ChatRequest

KEY = "0123456789abcdefXYZ"


def described(server: Running) -> dict[str, Any]:
    """The description, as anybody gets it."""
    status, headers, body = server.send("GET", "/openapi.json")
    assert status == 200 and headers["content-type"] == "application/json"
    found: dict[str, Any] = json.loads(body)
    return found


def as_described(model: type[BaseModel], summary: Any) -> None:
    """The answer has the described form, and no undescribed fields."""
    assert model.model_validate(summary).model_dump(exclude_unset=True) == summary


def test_it_names_the_models_the_limits_and_every_refusal(server: Running) -> None:
    summary = described(server)
    assert summary["info"] == {"title": "cirf serve", "version": cirf.__version__}
    fields = summary["components"]["schemas"]["ChatRequest"]["properties"]
    assert fields["model"]["enum"] == ["traces", "prose"]
    assert summary["paths"]["/v1/models/{name}"]["get"]["parameters"][0]["schema"]["enum"] == ["traces", "prose"]
    assert (
        fields["n"]["maximum"]
        == summary["components"]["schemas"]["CirfOptions"]["properties"]["votes"]["maximum"]
        == Limits().votes
    )
    usual = {"200", "403", "408", "413", "415", "500", "503"}
    for path, more in (("/", set()), ("/health", set()), ("/v1/models", set()), ("/v1/models/{name}", {"404"})):
        assert set(summary["paths"][path]["get"]["responses"]) == usual | more
    chat = summary["paths"]["/v1/chat/completions"]["post"]["responses"]
    assert set(chat) == usual | {"400", "404", "429", "504"}
    assert set(chat["200"]["content"]) == {"application/json", "text/event-stream"}
    assert set(summary["paths"]["/"]["get"]["responses"]["200"]["content"]) == {"text/html"}
    assert "securitySchemes" not in summary["components"]
    pointed = {one.split('"')[0] for one in json.dumps(summary).split('"#/components/schemas/')[1:]}
    assert pointed <= set(summary["components"]["schemas"])


def test_it_says_where_a_key_is_needed_and_needs_none_itself(models: list[ServedModel]) -> None:
    with Running(models, key=KEY, local=False) as running:
        summary = described(running)
        assert running.send("GET", "/v1/models", headers={"Authorization": f"Bearer {KEY}"})[0] == 200
    scheme = summary["components"]["securitySchemes"]["HTTPBearer"]
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    for path, methods in summary["paths"].items():
        for operation in methods.values():
            assert operation.get("security") == ([{"HTTPBearer": []}] if path.startswith("/v1/") else None)
            assert ("401" in operation["responses"]) == path.startswith("/v1/")


def test_what_is_answered_is_as_described(server: Running) -> None:
    for path, model in (("/health", answers.Health), ("/v1/models", answers.Models), ("/v1/models/traces", answers.Model)):
        as_described(model, json.loads(server.send("GET", path)[2]))
    for more in (
        {},
        {"model": "prose"},
        {"n": 2, "temperature": 1.0, "cirf": {"explain": True, "budget": 2}},
        {"cirf": {"votes": 3, "explain": True}},
    ):
        status, _, summary = server.chat(question("Hi?", **more))
        assert status == 200
        as_described(answers.Completion, summary)
        streaming = {"stream": True, "stream_options": {"include_usage": True}}
        body = server.send("POST", "/v1/chat/completions", question("Hi?", **more, **streaming))[2].decode()
        *events, done, end = body.split("\n\n")
        assert (done, end) == ("data: [DONE]", "") and len(events) > 2
        for event in events:
            as_described(answers.Chunk, json.loads(event.removeprefix("data: ")))
    as_described(answers.Error, server.chat(question("Hi?", n=0))[2])


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
        ({"cirf": {"explain": 0}}, "cirf.explain"),
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
