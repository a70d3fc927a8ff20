"""``examples/cascade.py`` against a server of tiny models."""

from __future__ import annotations

import importlib.util
import io
import json
from pathlib import Path
from types import ModuleType

import pytest
from running import Running
from test_serving_answers import alone

from cirf.serving.model import ServedModel

EXAMPLE = Path(__file__).parents[2] / "examples" / "cascade.py"
QUESTION = "yes"


@pytest.fixture(scope="module")
def cascade() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cascade", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def asked(
    cascade: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> dict[str, object]:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"\n{QUESTION}\n"))
    cascade.main([*arguments, "--max-tokens", "6"])
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_models_that_agree_are_enough(
    cascade: ModuleType, server: Running, prose: ServedModel, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = f"{server.url}/v1#prose", f"{server.url}/v1#traces"
    answer = alone(prose, QUESTION, cap=6)[1].strip()
    assert answer
    found = asked(cascade, monkeypatch, capsys, "--trace", one, "--trace", one, "--trace", other, "--prose", other)
    assert found["answer"] == answer and found["asked"] == ["prose", "prose"]


def test_the_third_decides_and_prose_where_all_differ(
    cascade: ModuleType,
    server: Running,
    prose: ServedModel,
    traces: ServedModel,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    one, other = f"{server.url}/v1#prose", f"{server.url}/v1#traces"
    answers = [alone(model, QUESTION, cap=6)[1].strip() for model in (prose, traces)]
    assert answers[0] != answers[1]
    found = asked(cascade, monkeypatch, capsys, "--trace", other, "--trace", one, "--trace", one)
    assert found["answer"] == answers[0] and found["asked"] == ["traces", "prose", "prose"]
    alone_tokens = asked(cascade, monkeypatch, capsys, "--trace", other, "--trace", one)
    assert alone_tokens["answer"] == answers[1] and alone_tokens["asked"] == ["traces", "prose"]
    last = asked(cascade, monkeypatch, capsys, "--trace", other, "--trace", one, "--prose", one)
    assert last["answer"] == answers[0] and last["asked"] == ["traces", "prose", "prose"]
    assert last["tokens"] == found["tokens"] and found["tokens"] > alone_tokens["tokens"]  # type: ignore[operator]


def test_one_model_cannot_agree(cascade: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cascade.main(["--trace", "http://127.0.0.1:1/v1#mine"])
    assert "twice or more" in capsys.readouterr().err
