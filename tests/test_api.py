"""The Python API does what the stages of a run do, and says in one sentence what does not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tinyrun
from tables import each_row

import cirf
from cirf.lm.backbone import load_model, load_tokenizer
from cirf.recipe.load import load
from cirf.recipe.schema import Backbone
from cirf.records import Problem
from cirf.stages.context import Context
from cirf.store.jsonl import read_rows
from cirf.store.run_folder import RunFolder

CPU = Backbone(dtype="float32", device="cpu")
RUNS_ONLY = {"learning_rates", "trials", "trial_epochs", "min_well_formed", "give_up", "overrides", "optimizer"}


@pytest.fixture(scope="module")
def context(finished: Path) -> Context:
    return Context(load(str(finished / "recipe.yaml")), RunFolder(finished))


@pytest.fixture(scope="module")
def rows(context: Context) -> list[dict[str, Any]]:
    return [{"question": p.question, "answer": p.answer, "rationale": p.rationale} for p in context.train()]


@pytest.fixture(scope="module")
def made(context: Context, rows: list[dict[str, Any]], workshop: tinyrun.Workshop) -> dict[str, Any]:
    """Steps, codebook, codes and traces of the run's training rows, by the API."""
    recipe = context.recipe
    section = recipe.codebook.model_dump(exclude={"size", "reuse", "sizes", "dimension"})
    steps = cirf.cut_rationales(rows, **recipe.segments.model_dump())
    asked = recipe.embeddings.model_dump(exclude={"model", "dtype", "choices"})
    vectors = cirf.embed_steps(steps, workshop.embedder, device="cpu", **asked)
    book, codes = cirf.fit_codebook(vectors, context.width, size=4, seed=recipe.seed, device="cpu", **section)
    traces = cirf.write_traces(rows, steps, codes, **recipe.results.model_dump(exclude={"by", "file", "writer"}))
    return {"steps": steps, "book": book, "codes": codes, "traces": traces}


def test_traces_are_those_of_the_stages(context: Context, made: dict[str, Any]) -> None:
    places = {problem.id: number for number, problem in enumerate(context.train())}
    order = [(places[row.problem], row) for row in context.steps() if row.problem in places]
    assert [made["steps"][place] for place, _ in order] == [list(row.segments) for _, row in order]
    traces = {row.problem: row for row in context.traces()}
    for place, row in order:
        trace, ours = traces[row.problem], made["traces"][place]
        assert (ours["codes"], ours["results"], ours["answer"]) == ([*trace.codes], [*trace.results], trace.answer)
    taught = {row["completion"] for row in read_rows(context.folder.folder("models/cirf_full") / "sft.jsonl")}
    assert {row["completion"] for row in made["traces"]} == taught
    stored = cirf.Codebook.load(context.folder.folder("codebook-4"))
    assert made["book"].codes.allclose(stored.codes, atol=1e-5)  # held-out rows are embedded in the same batches there
    assert made["book"].corpus_mean.tolist() == pytest.approx(stored.corpus_mean.tolist(), abs=1e-5)


def test_a_training_has_the_losses_of_the_stage(
    context: Context, made: dict[str, Any], workshop: tinyrun.Workshop, tmp_path: Path
) -> None:
    model, tokenizer = load_model(workshop.backbone, CPU, training="full"), load_tokenizer(workshop.backbone)
    traces = [made["traces"][place] for place in _order_of_the_run(context)]
    ids = cirf.extend_model(model, tokenizer, made["book"], traces, alpha=context.recipe.vocabulary.alpha)
    assert tokenizer.convert_ids_to_tokens(ids)[:3] == ["<cirf>", "</cirf>", "<cirf_000>"]
    keys = context.recipe.finetune.model_dump(exclude=RUNS_ONLY)
    model, history = cirf.train(model, tokenizer, traces, seed=context.recipe.seed, **keys)
    theirs = json.loads((context.folder.folder("models/cirf_full") / "history.json").read_text())
    assert [row["loss"] for row in history.losses] == pytest.approx([row["loss"] for row in theirs["losses"]], rel=1e-4)

    cirf.save(model, tokenizer, tmp_path / "saved", traces, dtype="float32")
    again, same = cirf.load(tmp_path / "saved", dtype="float32", device="cpu")
    question = traces[0]["prompt"]
    asked = [question, {"question": question}]
    first, second = cirf.generate(again, same, asked, max_new_tokens=24)
    assert first == second == cirf.generate(model, tokenizer, [question], max_new_tokens=24)[0]
    assert set(json.loads((tmp_path / "saved" / "functions.json").read_text())["codes"]) <= {"0", "1", "2", "3"}
    [steered] = cirf.generate(again, same, [question], max_new_tokens=40, budget=2, result_tokens=2)
    assert 0 < len(steered.steps) <= 2 and all(code is not None for code, _ in steered.steps)


def _order_of_the_run(context: Context) -> list[int]:
    places = {problem.id: number for number, problem in enumerate(context.train())}
    return [places[row.problem] for row in context.steps() if row.problem in places]


def test_an_evaluation_has_the_scores_of_the_stage(context: Context, tmp_path: Path) -> None:
    model, tokenizer = cirf.load(context.folder.root, dtype="float32", device="cpu")  # a run's folder: its CIRF model
    [(name, problems)] = context.test().items()
    test = [{"id": p.id, "question": p.question, "answer": p.answer} for p in problems]
    score = cirf.evaluate(model, tokenizer, test, max_new_tokens=12, batch_size=16, output_dir=tmp_path / "kept")
    stage = context.folder.folder("evaluation/cirf_full")
    summary = json.loads((stage / "scores.json").read_text())["tasks"][name]
    assert {key: score.to_dict()[key] for key in ("accuracy", "interval", "tokens", "n")} == {
        key: summary[key] for key in ("accuracy", "interval", "tokens", "n")
    }
    kept = read_rows(tmp_path / "kept" / "evaluate.jsonl")
    assert [row["output"] for row in kept] == [row["output"] for row in read_rows(stage / f"{name}.jsonl")]


def test_a_model_without_functional_tokens_answers_too(workshop: tinyrun.Workshop) -> None:
    model, tokenizer = cirf.load(workshop.backbone, dtype="float32", device="cpu")
    [answer] = cirf.generate(model, tokenizer, ["How many?"], max_new_tokens=4)
    assert (answer.trace, answer.steps) == ("", []) and answer.tokens <= 4
    with pytest.raises(cirf.CirfError, match="this model has none"):
        cirf.generate(model, tokenizer, ["How many?"], grammar=True)


def test_steps_keep_calculator_notes_for_the_results() -> None:
    row = {"question": "q", "answer": "72", "rationale": "In May half, <<48/2=24>>24 clips.\nIn all <<48+24=72>>72.\n#### 72"}
    steps = cirf.cut_rationales([row])
    assert "<<48/2=24>>" in steps[0][0]
    seen: list[str] = []
    cirf.embed_steps(steps, lambda texts: seen.extend(texts) or [[1.0, 2.0]] * len(texts))  # type: ignore[func-returns-value]
    assert seen == ["In May half, 24 clips.", "In all 72."]
    [trace] = cirf.write_traces([row], steps, [[1, 0]], working="drop")
    assert trace["completion"] == "<cirf_001>24<cirf_000>72</cirf>72" and trace["steps"] == seen
    [own] = cirf.write_traces([row], steps, [[1, 0]], results=[["half", ""]])
    assert own["completion"] == "<cirf_001>half<cirf_000></cirf>72"


def test_a_rationale_that_does_not_fit_has_no_steps_and_no_trace() -> None:
    rows = [{"question": "a", "answer": "1", "rationale": "One."}, {"question": "b", "answer": "2", "rationale": "One.\nTwo."}]
    steps = cirf.cut_rationales(rows, minimum=2)
    assert steps == [[], ["One.", "Two."]]
    vectors = cirf.embed_steps(steps, lambda texts: [[float(len(text)), place] for place, text in enumerate(texts)])
    assert [part.shape for part in vectors] == [(0, 2), (2, 2)]
    assert [row["prompt"] for row in cirf.write_traces(rows, steps, [[], [0, 1]])] == ["b"]
    assert cirf.label_codes(steps, [[], [0, 1]]).keys() == {0, 1}


ROW = {"question": "a", "answer": "1"}


@each_row(
    ("call", "message"),
    [
        (lambda: cirf.cut_rationales("Step 1: one."), "cut_rationales: rationales must be a list"),
        (lambda: cirf.cut_rationales([]), "cut_rationales: rationales is empty"),
        (lambda: cirf.cut_rationales([ROW]), "cut_rationales, row 0: there is no rationale"),
        (lambda: cirf.cut_rationales(["One."], by="word"), "cut_rationales: by: expected one of auto"),
        (lambda: cirf.cut_rationales(["One."], minimum=5), "none of 1 rationales can be cut"),
        (lambda: cirf.embed_steps([["a"]], lambda texts: [1.0]), r"embed_steps: the model gives \(1,\)"),
        (lambda: cirf.embed_steps([["a"]], "/nowhere"), "no such folder"),
        (lambda: cirf.fit_codebook([[1.0, 2.0]], 8), "fit_codebook: vectors must be one array"),
        (lambda: cirf.fit_codebook([[[1.0, 2.0]]], 8, sizes=[3]), "fit_codebook: sizes only has a meaning in recipes"),
        (lambda: cirf.write_traces([ROW], [["a"]], []), "write_traces: found 1 rows, 1 steps, 0 codes"),
        (lambda: cirf.write_traces([ROW], [["a"]], [[1, 2]]), "write_traces, row 0: 1 steps, 2 codes and 1 results"),
        (lambda: cirf.write_traces([ROW, {"answer": "1"}], [], []), "write_traces, row 1: the field question is missing"),
        (lambda: cirf.load("/nowhere"), "no such folder"),
    ],
)
def test_what_does_not_fit_is_said_in_one_sentence(call: Any, message: str) -> None:
    with pytest.raises(cirf.CirfError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_rows_may_be_records_of_a_task() -> None:
    text = "Step 1: 48/2 = 24 in May.\nStep 2: 48+24 = 72 in all."
    record = Problem("p", "gsm8k", "How many clips?", "72", None, text)
    steps = cirf.cut_rationales([record])
    assert steps == cirf.cut_rationales([text]) and len(steps[0]) == 2
    row = {"question": record.question, "answer": record.answer, "rationale": text}
    ours, theirs = (cirf.write_traces([given], steps, [[0, 1]])[0] for given in (record, row))
    assert (ours["prompt"], ours["completion"]) == (theirs["prompt"], theirs["completion"])


def test_training_says_what_is_missing(workshop: tinyrun.Workshop) -> None:
    model, tokenizer = cirf.load(workshop.backbone, dtype="float32", device="cpu")
    row = {"prompt": "a", "completion": "<cirf_000></cirf>1", "codes": [0]}
    for rows, keys, message in (
        ([row], {}, "the model has 0 functional tokens; call extend_model first"),
        ([{"prompt": "a"}], {}, "row 0: prompt and completion must be texts"),
        ([row], {"lr": 1.0}, "train: lr: no such key; did you mean learning_rate"),
    ):
        with pytest.raises(cirf.CirfError, match=message):
            cirf.train(model, tokenizer, rows, **keys)  # type: ignore[arg-type]
    with pytest.raises(cirf.CirfError, match="needs weights in float32"):
        cirf.train(model.bfloat16(), tokenizer, [row], adaptation="full")


def test_every_name_is_there_and_none_else() -> None:
    assert set(cirf.__all__) <= set(dir(cirf)) and all(getattr(cirf, name).__doc__ for name in cirf.__all__)
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        cirf.trian  # type: ignore[attr-defined]  # noqa: B018
