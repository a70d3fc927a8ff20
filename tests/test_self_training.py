"""Self-training: which samples are kept, whose they are, and that a question without a right one keeps its first trace."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import tinyrun
from hypothesis import given
from hypothesis import strategies as st

from cirf import methods
from cirf.errors import CirfError
from cirf.lm.vocabulary import parse_trace, read_trace, token_names, write_trace
from cirf.methods.cirf_self import chosen, right_traces
from cirf.methods.material import Material
from cirf.recipe import Recipe
from cirf.records import Example, Problem, Steps, Trace
from cirf.rows import read_rows

NAMES = token_names(4)


def _recipe(variants: dict[str, Any] | None = None, **settings: Any) -> Recipe:
    given = {"cirf_self": {"settings": settings}} | (variants or {})
    return Recipe.model_validate({"name": "r", "problems": {"tasks": [{"task": "gsm8k"}]}, "variants": given})


def _row(trace: str, correct: bool = True, tokens: int = 5, truncated: bool = False) -> dict[str, Any]:
    return {"trace": trace, "correct": correct, "tokens": tokens, "truncated": truncated}


def test_the_trace_written_most_often_is_kept_or_the_shortest() -> None:
    rows = [_row("<cirf_000>3<cirf_001>4", tokens=9), *[_row("<cirf_001>3+1=4", tokens=8)] * 2, _row("<cirf_002>4", tokens=5)]
    assert chosen(rows, NAMES, "likely") == ((1, "3+1=4"),)
    assert chosen(rows, NAMES, "short") == ((2, "4"),)
    assert chosen(rows[:2], NAMES, "likely") == ((0, "3"), (1, "4"))  # of equal ones the first


@pytest.mark.parametrize(
    "row",
    [
        _row("<cirf_000>4", correct=False),
        _row("<cirf_000>4", truncated=True),
        _row(""),
        _row("4"),
        _row("so<cirf_000>4"),
        _row("<cirf_004>4"),  # there are four
        _row("<cirf_000>4<cirf_004>"),
        _row("<cirf_000>4<cirf>"),
    ],
)
def test_what_is_wrong_or_out_of_form_is_never_kept(row: dict[str, Any]) -> None:
    assert right_traces([row], NAMES) == [] and chosen([row], NAMES, "short") is None is chosen([row], NAMES, "likely")


@given(st.lists(st.tuples(st.integers(0, 3), st.text(max_size=5)), min_size=1, max_size=6))
def test_what_was_written_is_what_is_learnt(steps: list[tuple[int, str]]) -> None:
    written = write_trace(Trace("p", 0, tuple(code for code, _ in steps), tuple(result for _, result in steps), "4"), NAMES)
    found = chosen([_row(read_trace(written, NAMES)[0])], NAMES, "likely")
    assert found is not None
    again = Trace("p", 0, tuple(code for code, _ in found), tuple(result for _, result in found), "4")
    assert write_trace(again, NAMES) == written


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"of": "sft_cot"}, "sft_cot writes no functional tokens"),
        ({"of": "cirf_ful"}, "the nearest is 'cirf_full'"),
        ({"codes": "single"}, "no such setting"),
        ({"samples": 0}, "settings.samples"),
        ({"keep": "all"}, "settings.keep"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(CirfError, match=said):
        methods.get("cirf_self", _recipe(**settings))


def test_no_model_is_trained_on_its_own_samples() -> None:
    around = {"again": {"method": "cirf_self", "settings": {"of": "cirf_self"}}}
    for settings, variants in (({"of": "cirf_self"}, {}), ({"of": "again"}, around)):
        recipe = _recipe(variants, **settings).model_copy(update={"methods": ("cirf_self",)})
        with pytest.raises(CirfError, match=r"prepared with .*'s model itself"):
            methods.learners(recipe)


def _material(answers: dict[str, list[dict[str, Any]]], recipe: Recipe) -> Material:
    problems = {name: Problem(name, "gsm8k", "How many?", "4") for name in answers}
    steps = [Steps(name, sample, "line", ("2+2 = 4",)) for name in answers for sample in (0, 1)]
    missing: Any = None
    return Material(
        recipe=recipe, problems=problems, tasks={}, steps=steps, annotated=steps, source=missing, tokenizer=missing,
        scratch=missing, progress=missing, folder=missing, held_out=frozenset(), asked=missing,
        answers=lambda of, samples, temperature, top_p: answers,
    )  # fmt: skip


def test_every_rationale_of_a_question_learns_the_kept_trace_and_the_right_answer() -> None:
    recipe = _recipe()
    method = methods.get("cirf_self", recipe)
    answers = {
        "solved": [_row("<cirf_003>2+2=4"), _row("<cirf_001>5", correct=False)],
        "missed": [_row("<cirf_001>5", False)] * 2,
    }
    rows, told = method.prepare(_material(answers, recipe))
    assert [(row["problem"], row["sample"], row["right"]) for row in rows] == [
        ("solved", 0, 1), ("solved", 1, 1), ("missed", 0, 0), ("missed", 1, 0),
    ]  # fmt: skip
    assert (told["own"], told["right"], told["samples"], told["different"]) == (0.5, 0.25, 4, 0.5)
    for row in rows:
        problem = Problem(row["problem"], "gsm8k", "How many?", "4")
        example = Example(problem, ("2+2 = 4",), Trace(row["problem"], row["sample"], (0,), ("four",), "4"), row)
        wanted = "<cirf><cirf_003>2+2=4</cirf>4" if row["problem"] == "solved" else "<cirf><cirf_000>four</cirf>4"
        assert method.target(example) == wanted
        assert method.target(dataclasses.replace(example, prepared=None)) == "<cirf><cirf_000>four</cirf>4"


@pytest.fixture(scope="module")
def run(workshop: tinyrun.Workshop, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the workshop's, one trained on its samples, and one on samples of that one."""
    folder = tmp_path_factory.mktemp("self")
    variants = {
        "cirf_self": {"settings": {"samples": 3, "temperature": 0.3}},
        "again": {"method": "cirf_self", "settings": {"of": "cirf_self", "samples": 2, "keep": "short"}},
    }
    keys: dict[str, Any] = {
        "train": tinyrun.write_jsonl(folder / "train.jsonl", tinyrun.sums(12, steps=2)),
        "methods": ["cirf_full", "again"],
        "variants": variants,
        "problems__validation": 0.0,
        "finetune__epochs": 60.0,
        "finetune__learning_rate": 0.005,
        "evaluate__latency_items": 0,
    }
    said = tinyrun.cirf("run", workshop.recipe(folder / "recipe.yaml", **keys), "--out", folder / "run")
    assert said.code == 0, said.err
    assert "of the rows are traces of cirf_full's model" in said.err
    return folder / "run"


def test_as_many_rows_are_learnt_with_the_same_prompts_and_answers(run: Path) -> None:
    first = read_rows(run / "models" / "cirf_full" / "sft.jsonl")
    for name in ("cirf_self", "again"):
        rows, prepared = read_rows(run / "models" / name / "sft.jsonl"), read_rows(run / "prepared" / name / "rows.jsonl")
        assert [row["prompt"] for row in rows] == [row["prompt"] for row in first]
        answers = [[read_trace(row["completion"], token_names(99))[1] for row in some] for some in (rows, first)]
        assert answers[0] == answers[1]
        assert len(prepared) == len(read_rows(run / "segments" / "segments.jsonl"))
        own = [row for row in prepared if row["codes"] is not None]
        assert 0 < len(own) < len(prepared)
        assert all(len(row["codes"]) == len(row["results"]) > 0 and row["right"] > 0 for row in own)
        assert json.loads((run / "prepared" / name / "report.json").read_text())["own"] == round(len(own) / len(prepared), 4)
        written = [parse_trace(read_trace(row["completion"], token_names(99))[0]) for row in rows]
        assert all(
            list(zip(row["codes"], row["results"], strict=True)) in written for row in own if row["problem"] in _trained(run)
        )


def _trained(run: Path) -> set[str]:
    return {row["id"] for row in read_rows(run / "problems" / "train.jsonl")}


def test_a_rerun_does_nothing(run: Path) -> None:
    assert tinyrun.cirf("status", run).out.endswith("a rerun would do nothing\n")
    assert not list(run.glob("**/scratch"))
