"""Self-training: which samples are kept, whose they are, and that a question without a right one keeps its first trace."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tinyrun
from hypothesis import given
from hypothesis import strategies as st
from tables import each_row

from cirf import methods
from cirf.errors import CirfError
from cirf.lm.vocabulary import parse_trace, read_trace, token_names, write_trace
from cirf.methods.base import PreparationData
from cirf.methods.cirf.self_training import ranked
from cirf.recipe.schema import Recipe
from cirf.records import Example, Problem, Steps, Trace
from cirf.stages import keys
from cirf.store.jsonl import read_rows

NAMES = token_names(4)
SELF_RESULTS = {"method": str(Path(__file__).parents[1] / "docs" / "research" / "self_results.py")}


def _recipe(variants: dict[str, Any] | None = None, **settings: Any) -> Recipe:
    given = {"cirf_self": {"settings": settings}} | (variants or {})
    return Recipe.model_validate({"name": "r", "problems": {"tasks": [{"task": "gsm8k"}]}, "variants": given})


def _row(trace: str, correct: bool = True, tokens: int = 5, truncated: bool = False) -> dict[str, Any]:
    return {"trace": trace, "correct": correct, "tokens": tokens, "truncated": truncated}


def test_the_trace_written_most_often_comes_first_or_the_shortest() -> None:
    rows = [_row("<cirf_000>3<cirf_001>4", tokens=9), *[_row("<cirf_001>3+1=4", tokens=8)] * 2, _row("<cirf_002>4", tokens=5)]
    long, likely, short = ((0, "3"), (1, "4")), ((1, "3+1=4"),), ((2, "4"),)
    assert ranked(rows, NAMES, "likely") == [likely, long, short]  # of equal ones the first
    assert ranked(rows, NAMES, "short") == [short, likely, long]


@each_row(
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
        _row("<cirf_000>4<cirf_001>") | {"well_formed": False},  # never closed: the last result was read as the answer
    ],
)
def test_what_is_wrong_or_out_of_form_is_never_kept(row: dict[str, Any]) -> None:
    assert ranked([row], NAMES, "short") == [] == ranked([row], NAMES, "likely")


@given(st.lists(st.tuples(st.integers(0, 3), st.text(max_size=5)), min_size=1, max_size=6))
def test_what_was_written_is_what_is_learnt(steps: list[tuple[int, str]]) -> None:
    written = write_trace(Trace("p", 0, tuple(code for code, _ in steps), tuple(result for _, result in steps), "4"), NAMES)
    (found,) = ranked([_row(read_trace(written, NAMES)[0])], NAMES, "likely")
    again = Trace("p", 0, tuple(code for code, _ in found), tuple(result for _, result in found), "4")
    assert write_trace(again, NAMES) == written


@each_row(
    ("settings", "said"),
    [
        ({"of": "sft_cot"}, "sft_cot does not write all results, and nothing else, after the learned codes"),
        ({"of": "cirf_bare"}, "cirf_bare does not write"),
        ({"of": "cirf_fast"}, "cirf_fast does not write"),
        ({"of": "mixed"}, "mixed does not write"),
        ({"of": "cirf_ful"}, "the nearest is 'cirf_full'"),
        ({"codes": "single"}, "no such setting"),
        ({"samples": 0}, "settings.samples"),
        ({"keep": "all"}, "settings.keep"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(CirfError, match=said):
        methods.get("cirf_self", _recipe({"mixed": {"method": "cirf_full", "settings": {"codes": "shuffled"}}}, **settings))


def test_no_model_is_trained_on_its_own_samples() -> None:
    around = {"again": {"method": "cirf_self", "settings": {"of": "cirf_self"}}}
    lent = {"again": {"method": "cirf_self", "model": "cirf_self", "settings": {"of": "again"}}}
    for settings, variants in (({"of": "cirf_self"}, {}), ({"of": "again"}, around), ({"of": "again"}, lent)):
        recipe = _recipe(variants, **settings).model_copy(update={"methods": ("cirf_self",)})
        with pytest.raises(CirfError, match=r"prepared with .*'s model itself"):
            methods.learners(recipe)


def _material(answers: dict[str, list[dict[str, Any]]], recipe: Recipe, asked: list[Any]) -> PreparationData:
    problems = {name: Problem(name, "gsm8k", "How many?", "4") for name in answers}
    steps = [Steps(name, sample, "line", ("2+2 = 4",)) for name in answers for sample in (0, 1)]
    missing: Any = None

    def answered(*how: Any) -> dict[str, list[dict[str, Any]]]:
        asked.append(how)
        return answers

    return PreparationData(
        recipe=recipe, problems=problems, tasks={}, steps=steps, annotated=steps, tokenizer=missing,
        scratch=missing, progress=missing, folder=missing, held_out=frozenset(), asked=missing, answers=answered,
    )  # fmt: skip


def test_rationales_of_a_question_learn_its_kept_traces_and_the_right_answer() -> None:
    settings = {"of": "cirf_full", "samples": 3, "temperature": 0.5, "top_p": 0.9}
    recipe, asked = _recipe(**settings), list[Any]()
    method = methods.get("cirf_self", recipe)
    wrong, right, other = _row("<cirf_001>5", correct=False), _row("<cirf_003>2+2=4"), _row("<cirf_002>4")
    answers = {"once": [right, wrong, wrong], "missed": [wrong] * 3, "twice": [other, right, right]}
    rows, summary = method.prepare(_material(answers, recipe, asked))
    assert asked == [("cirf_full", 3, 0.5, 0.9)]
    assert [(row["problem"], row["sample"], row["right"]) for row in rows] == [
        ("once", 0, 1), ("once", 1, 1), ("missed", 0, 0), ("missed", 1, 0), ("twice", 0, 3), ("twice", 1, 3),
    ]  # fmt: skip
    assert (summary["own"], summary["right"], summary["samples"], summary["different"]) == (0.6667, 0.4444, 9, 1.0)
    first = "<cirf_000>four</cirf>4"
    kept, second = "<cirf_003>2+2=4</cirf>4", "<cirf_002>4</cirf>4"
    learnt = []
    for row in rows:
        problem = Problem(row["problem"], "gsm8k", "How many?", "4")
        example = Example(problem, ("2+2 = 4",), Trace(row["problem"], row["sample"], (0,), ("four",), "4"), row)
        learnt.append(method.target(example))
        assert method.target(dataclasses.replace(example, prepared=None)) == first
    assert learnt == [kept, kept, first, first, kept, second]


def test_its_control_learns_the_same_rows_without_functional_tokens() -> None:
    recipe, asked = _recipe({"plain": SELF_RESULTS}), list[Any]()
    plain, own = methods.get("plain", recipe), methods.get("cirf_self", recipe)
    right, wrong = _row("<cirf_003>2+2=4<cirf_001><cirf_000>4"), _row("<cirf_001>5", correct=False)
    material = _material({"once": [right, wrong], "missed": [wrong] * 2}, recipe, asked)
    rows, summary = plain.prepare(material)
    assert (rows, summary) == own.prepare(material) and asked[0] == asked[1]
    assert plain.needs() == own.needs() and plain.prepared_by(recipe) == own.prepared_by(recipe) and not plain.functional
    trace = Trace("p", 0, (0, 1), ("four", ""), "4")
    learnt = [plain.target(Example(Problem("p", "gsm8k", "How many?", "4"), ("a", "b"), trace, row)) for row in rows]
    assert learnt == ["2+2=4\n4\n#### 4"] * 2 + ["four\n#### 4"] * 2


def test_its_control_draws_as_the_recipe_has_it_draw() -> None:
    given = _recipe({"plain": SELF_RESULTS}, samples=2, keep="short", temperature=0.5)
    asked = list[Any]()
    rows = [_row("<cirf_003>2+2=4<cirf_001>4"), _row("<cirf_002>4", tokens=3)]
    plain, default = methods.get("plain", given), methods.get("plain", _recipe({"plain": SELF_RESULTS}, budget=3))
    made, _ = plain.prepare(_material({"once": rows}, given, asked))
    assert asked == [("cirf_full", 2, 0.5, 0.95)] and made[0]["results"] == ["4"]
    assert plain.prepared_by(given) != default.prepared_by(given)
    assert default.prepared_by(given) == methods.get("cirf_self", given).prepared_by(given)  # a budget matters when it answers


def test_its_control_takes_no_samples_that_it_would_not_take() -> None:
    variants: dict[str, Any] = {"plain": SELF_RESULTS, "cirf_full": {"settings": {"codes": "shuffled"}}}
    with pytest.raises(CirfError, match="cirf_full does not write all results"):
        methods.get("plain", _recipe(variants))


def test_what_decides_the_samples_is_in_the_key_of_what_is_prepared_and_nothing_else(workshop: tinyrun.Workshop) -> None:
    variants = {"held": {"method": "cirf_full", "model": "cirf_full", "settings": {"grammar": True}}}

    def key(settings: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
        recipe = _recipe(variants, **(settings or {}))
        backbone = recipe.backbone.model_copy(update={"model": str(workshop.backbone)} | changes.pop("backbone", {}))
        seed = changes.pop("seed", recipe.seed)
        evaluate = recipe.evaluate.model_copy(update=changes)
        recipe = recipe.model_copy(update={"backbone": backbone, "evaluate": evaluate, "seed": seed})
        return keys.preparing(recipe, methods.get("cirf_self", recipe))

    decides: list[dict[str, Any]] = [{"max_trace_tokens": 9}, {"batch_size": 9}, {"seed": 9}, {"engine": "vllm"}]
    decides += [
        {"backbone": {"attn_implementation": "eager"}},
        {"backbone": {"empty_system": False}},
        {"backbone": {"dtype": "float16"}},
    ]
    settings: list[dict[str, Any]] = [{"samples": 9}, {"temperature": 0.9}, {"top_p": 0.5}, {"keep": "short"}, {"of": "held"}]
    found = [key(), *(key(**changes) for changes in decides), *map(key, settings)]
    assert len({json.dumps(one, sort_keys=True) for one in found}) == len(found)
    for changes in (
        {"max_new_tokens": 9},
        {"temperature": 0.9},
        {"runs": 3},
        {"latency_questions": 0},
        {"backbone": {"threads": 3}},
    ):
        assert key(**changes) == key()
    assert key({"budget": 2}) == key()  # matters when it answers


@pytest.fixture(scope="module")
def run(workshop: tinyrun.Workshop, learnt: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model of `learnt`, one trained on its samples when held to the grammar, and one on samples of that one."""
    folder = tmp_path_factory.mktemp("self")
    shutil.copytree(learnt, folder / "run")
    variants = {
        "held": {"method": "cirf_full", "model": "cirf_full", "settings": {"grammar": True}},
        "cirf_self": {"settings": {"of": "held", "samples": 3, "temperature": 0.3}},
        "again": {"method": "cirf_self", "settings": {"of": "cirf_self", "samples": 2, "keep": "short"}},
    }
    given: dict[str, Any] = {
        "train": tinyrun.write_jsonl(folder / "train.jsonl", tinyrun.sums(12, steps=2)),
        "methods": ["cirf_full", "again"],
        "variants": variants,
        "finetune__overrides": {"again": {"epochs": 1.0}},
        "evaluate__batch_size": 4,
        "evaluate__latency_questions": 0,
        **tinyrun.LEARNT,
    }
    said = tinyrun.cirf("run", workshop.recipe(folder / "recipe.yaml", **given), "--out", folder / "run")
    assert said.code == 0, said.err
    assert "of the rows are traces of held's model" in said.err and "models/cirf_full: finished before" in said.err
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


def test_the_samples_stay_and_no_right_answer_was_in_sight(run: Path) -> None:
    rows = read_rows(run / "prepared" / "cirf_self" / "answers-held" / "sums.jsonl")
    assert [row["run"] for row in rows] == [0] * 12 + [1] * 12 + [2] * 12
    asked = {row["id"]: row["question"] for row in read_rows(run / "problems" / "train.jsonl")}
    assert all(row["prompt"] == asked[row["id"]] for row in rows)
    assert sum(row["correct"] for row in rows) == sum(
        row["right"] for row in read_rows(run / "prepared" / "cirf_self" / "rows.jsonl")
    )


@pytest.mark.slow
def test_its_control_is_trained_and_asked(workshop: tinyrun.Workshop, run: Path, tmp_path: Path) -> None:
    given: dict[str, Any] = {"train": run.parent / "train.jsonl", "methods": ["plain"], "variants": {"plain": SELF_RESULTS}}
    given |= {
        "models": {"cirf_full": str(run / "models" / "cirf_full")},
        "finetune__epochs": 1.0,
        "evaluate__max_completion_tokens": None,
        "evaluate__latency_questions": 0,
    }
    said = tinyrun.cirf("run", workshop.recipe(tmp_path / "r.yaml", **given), "--out", tmp_path / "run")
    assert said.code == 0, said.err
    prepared, rows = (read_rows(tmp_path / "run" / name) for name in ("prepared/plain/rows.jsonl", "models/plain/sft.jsonl"))
    own = {row["problem"]: row["results"] for row in prepared if row["results"] is not None}
    asked = [(row["id"], row["question"]) for row in read_rows(tmp_path / "run" / "problems" / "train.jsonl")]
    learnt = {name: row["completion"].rpartition("\n#### ")[0] for row in rows for name, text in asked if text in row["prompt"]}
    both = own.keys() & learnt.keys()
    assert both and len(learnt) == len(rows)
    assert all(learnt[name] == "\n".join(filter(None, own[name])) for name in both)
    assert any((tmp_path / "run" / "evaluation" / "plain").glob("*.jsonl"))


def test_its_model_can_be_asked_by_itself(run: Path, tmp_path: Path) -> None:
    said = tinyrun.cirf("evaluate", run / "models" / "cirf_self", "--limit", "2", "--out", tmp_path / "asked")
    assert said.code == 0, said.err


def test_what_a_sampled_model_from_elsewhere_was_trained_on_is_compared_with_the_test(
    workshop: tinyrun.Workshop, run: Path, tmp_path: Path
) -> None:
    leaked = tinyrun.write_jsonl(tmp_path / "test.jsonl", tinyrun.sums(12, steps=2)[:4])
    given: dict[str, Any] = {"test": leaked, "methods": ["cirf_self"], "models": {"cirf_full": str(run / "models" / "cirf_full")}}
    recipe = workshop.recipe(tmp_path / "r.yaml", **given)
    assert tinyrun.cirf("run", recipe, "--out", tmp_path / "run", "--until", "problems").code == 0
    (row,) = json.loads((tmp_path / "run" / "problems" / "problems.json").read_text())["overlap"]["models"]
    assert row["methods"] == ["cirf_full"] and row["tasks"]["sums"]["exact"] == 4


@pytest.mark.slow
def test_a_kill_while_samples_are_drawn_changes_nothing(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cirf.lm.decoding import generate as decode

    generate, calls = decode.generate, list[int]()

    def breaking(model: Any, tokenizer: Any, prompts: list[str], *more: Any, **named: Any) -> Any:
        calls.append(len(prompts))
        if len(calls) == 4:
            raise KeyboardInterrupt
        return generate(model, tokenizer, prompts, *more, **named)

    killed = tmp_path / "run"
    shutil.copytree(run, killed)
    shutil.rmtree(killed / "prepared" / "cirf_self")
    monkeypatch.setattr(decode, "generate", breaking)
    recipe = run.parent / "recipe.yaml"
    assert tinyrun.cirf("run", recipe, "--out", killed, "--until", "prepared/cirf_self").code != 0
    assert tinyrun.cirf("run", recipe, "--out", killed, "--until", "prepared/cirf_self").code == 0
    assert calls == [4] * 10  # twelve questions, three times, and the batch that was broken again
    for name in ("rows.jsonl", "report.json", "answers-held/sums.jsonl"):
        files = [(folder / "prepared" / "cirf_self" / name).read_bytes() for folder in (killed, run)]
        assert files[0] == files[1], name


def test_a_rerun_does_nothing(run: Path) -> None:
    assert tinyrun.cirf("status", run).out.endswith("a rerun would do nothing\n")
    assert not list(run.glob("**/scratch"))
