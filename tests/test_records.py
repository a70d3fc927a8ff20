"""Records go to JSON and come back the same."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cirf.records import Dropped, Example, Problem, Rationale, Record, Steps, Trace

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
texts = st.lists(text, max_size=4).map(tuple)
problems = st.builds(Problem, text, text, text, text, st.none() | texts, st.none() | text)
traces = st.builds(Trace, text, st.integers(0, 9), st.lists(st.integers(0, 300), max_size=4).map(tuple), texts, text)
flat = st.one_of(
    problems,
    traces,
    st.builds(Rationale, text, st.integers(0, 9), text, text, st.none() | st.booleans()),
    st.builds(Steps, text, st.integers(0, 9), text, texts),
    st.builds(Dropped, text, st.none() | st.integers(0, 9), text, text),
)


@given(flat)
def test_a_record_survives_one_line_of_json(record: Record) -> None:
    line = record.to_json()
    assert "\n" not in line
    again = type(record).from_dict(json.loads(line))
    assert again == record
    assert again.to_json() == line


@given(problems, texts, traces)
def test_an_example_holds_its_problem_and_trace_in_json(problem: Problem, segments: tuple[str, ...], trace: Trace) -> None:
    row = json.loads(Example(problem, segments, trace).to_json())
    assert Problem.from_dict(row["problem"]) == problem
    assert Trace.from_dict(row["trace"]) == trace


def test_unknown_and_missing_keys_are_errors() -> None:
    row: dict[str, Any] = {"id": "1", "task": "t", "question": "q", "answer": "a"}
    assert Problem.from_dict(row) == Problem("1", "t", "q", "a")
    with pytest.raises(TypeError, match="colour"):
        Problem.from_dict(row | {"colour": "red"})
    with pytest.raises(TypeError, match="answer"):
        Problem.from_dict({key: value for key, value in row.items() if key != "answer"})


def test_records_never_change() -> None:
    problem = Problem("1", "t", "q", "a", choices=("x", "y"))
    with pytest.raises(dataclasses.FrozenInstanceError):
        problem.answer = "b"  # type: ignore[misc]
    assert hash(problem) == hash(Problem("1", "t", "q", "a", choices=("x", "y")))
