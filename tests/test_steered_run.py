"""Steering in a run: variants of one trained model, each within its dials, and none of it trains anything again."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import tinyrun
import torch
from docs.research.without_results import without_results

from cirf.analysis.source import read_codes
from cirf.codebook.functions import functions_of, write_labels
from cirf.errors import CirfError
from cirf.lm.decoding.calculator import Calculator
from cirf.methods import get
from cirf.recipe.load import load, parse
from cirf.statistics import wilson
from cirf.store.jsonl import read_rows

CALLS: list[str] = []


def _call(self: Calculator, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    CALLS.append(type(self).__name__)
    return scores


@pytest.fixture(scope="module")
def run(workshop: tinyrun.Workshop, finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The finished run, gone on with by a recipe of steered variants."""
    folder = tmp_path_factory.mktemp("steered")
    shutil.copytree(finished, folder / "run")
    before = tinyrun.stages(folder / "run")
    variants = {
        name: {"method": "cirf_full", "model": "cirf_full", "settings": settings}
        for name, settings in {
            "held": {"grammar": True},
            "two": {"budget": 2},
            "bare": {"results": False},
            "rationed": {"at_most": {0: 0, 1: 1, 2: 0}},
            "counted": {"calculator": True},
        }.items()
    }
    variants["prose"] = {"method": "cot", "settings": {"calculator": True}}
    path = workshop.recipe(folder / "recipe.yaml", methods=["cirf_full", *variants], variants=variants)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Calculator, "__call__", _call)
        said = tinyrun.cirf("run", path, "--out", folder / "run")
    assert said.code == 0, said.err
    made = tinyrun.remade(before, tinyrun.stages(folder / "run"))
    assert not any(stage.startswith(("models/", "codebook", "evaluation/cirf_full")) for stage in made), made
    return folder / "run"


def outputs(run: Path, name: str) -> list[str]:
    return [row["output"] for row in read_rows(run / "evaluation" / name / "sums.jsonl")]


def test_every_answer_is_within_its_dials(run: Path) -> None:
    assert all("<cirf>" not in text for text in outputs(run, "held")), "the prompt holds the one opening delimiter"
    assert all(len([code for code, _ in read_codes(text) if code is not None]) <= 2 for text in outputs(run, "two"))
    assert all(not result for text in outputs(run, "bare") for code, result in read_codes(text))
    assert all(None not in [code for code, _ in read_codes(text)] for text in outputs(run, "held"))
    rationed = [[code for code, _ in read_codes(text)] for text in outputs(run, "rationed")]
    assert any(rationed) and all(not {0, 2} & set(codes) and codes.count(1) <= 1 for codes in rationed)


def test_settings_that_steer_nothing_leave_a_method_what_it_was(run: Path) -> None:
    recipe = load(str(run / "recipe.yaml"))
    full, two = get("cirf_full", recipe), get("two", recipe)
    assert full.identity == {} and not full.steered and full.steer(None, None) is tuple
    assert two.identity["settings"]["budget"] == 2 and two.taught_by == {"method": "cirf_full"}
    assert "calculator" not in two.identity["settings"]  # what was answered before there was one stays


def test_a_calculator_goes_with_traces_and_with_prose(run: Path) -> None:
    recipe = load(str(run / "recipe.yaml"))
    counted, prose, cot = (get(name, recipe) for name in ("counted", "prose", "cot"))
    assert CALLS and counted.steered and prose.steered and not cot.steered and cot.identity == {}
    assert counted.identity == {"method": "cirf_full", "settings": {"calculator": True}}
    assert counted.taught_by == {"method": "cirf_full"}
    assert prose.identity == {"method": "cot", "settings": {"calculator": True}}
    assert outputs(run, "counted") and outputs(run, "prose")
    form = {"grammar": False, "budget": None, "results": True, "result_tokens": None, "result_cost": 0.0}
    assert get("cirf_full", recipe).asked_by == form and counted.asked_by == form | {"calculator": True}


@pytest.mark.parametrize("settings", ["{calculator: true, results: false}", "{calculator: true}"])
def test_a_calculator_without_results_is_refused(settings: str) -> None:
    method = "cirf_bare" if settings == "{calculator: true}" else "cirf_full"
    text = f"name: r\nmethods: [mine]\nvariants: {{mine: {{method: {method}, settings: {settings}}}}}\n"
    recipe = parse(text + "problems: {tasks: [{task: gsm8k}]}\n")
    with pytest.raises(CirfError, match="no results to compute"):
        get("mine", recipe).check(recipe)


def test_one_question_is_asked_within_the_dials_and_words_are_not_steered(run: Path) -> None:
    said = tinyrun.cirf("ask", run, "How many?", "--budget", "1", "--no-results", "--json")
    assert said.code == 0, said.err
    steps = json.loads(said.out)["steps"]
    assert len(steps) <= 1 and all(not step["result"] for step in steps)
    few = tinyrun.cirf("ask", run, "How many?", "--forbid", "0", "--forbid", "<cirf_001>", "--at-most", "2=1", "--json")
    tokens = [step["token"] for step in json.loads(few.out)["steps"]]
    assert tokens and not {"<cirf_000>", "<cirf_001>"} & set(tokens) and tokens.count("<cirf_002>") <= 1
    worked_out = tinyrun.cirf("ask", run / "models" / "direct_sft", "How many?", "--calculator", "--json")
    assert worked_out.code == 0, worked_out.err
    refused = tinyrun.cirf("ask", run / "models" / "direct_sft", "How many?", "--budget", "1")
    assert refused.code == 2 and "but this model has none" in refused.err


def test_what_to_send_to_vllm_names_the_models_own_ids(run: Path) -> None:
    from cirf.lm.backbone import load_tokenizer

    tokenizer = load_tokenizer(run / "models" / "cirf_full")
    summary = json.loads(tinyrun.cirf("codes", run, "--forbid", "1", "--forbid", "3").out)
    assert summary == {"logit_bias": {str(tokenizer.convert_tokens_to_ids(f"<cirf_00{code}>")): -100 for code in (1, 3)}}
    rationed = json.loads(tinyrun.cirf("codes", run, "--at-most", "1=2").out)["structured_outputs"]["regex"]
    assert rationed.count("(<cirf_001>[^<]{0,40}") == 1 and "{0,2}</cirf>" in rationed and not rationed.startswith("<cirf>")


def test_a_word_stands_for_the_codes_whose_label_has_it(run: Path, tmp_path: Path) -> None:
    labelled = shutil.copytree(run, tmp_path / "run")
    model = labelled / "models" / "cirf_full"
    counts = {int(code): row["count"] for code, row in functions_of(model)["codes"].items()}
    write_labels(model, {code: f"{'checks' if code % 2 else 'adds'} no. {code}" for code in counts}, counts)
    said = tinyrun.cirf("ask", labelled, "How many?", "--forbid", "add", "--at-most", "check=1", "--json")
    tokens = [step["token"] for step in json.loads(said.out)["steps"]]
    assert len(tokens) <= 1 and not {"<cirf_000>", "<cirf_002>"} & {*tokens}
    odd = ", ".join(f"<cirf_{code:03d}> checks no. {code}" for code in sorted(counts) if code % 2)
    assert f"check: 1 at most, together: {odd}" in said.err.splitlines()
    sent = json.loads(tinyrun.cirf("codes", labelled, "--at-most", "check=1").out)["structured_outputs"]["regex"]
    assert "(<cirf_(001|003)>[^<]{0,40}" in sent
    forbidden = json.loads(tinyrun.cirf("codes", labelled, "--forbid", "check").out)
    assert len(forbidden["logit_bias"]) == sum(code % 2 for code in counts)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--forbid", "7x"], "--forbid 7x: expected a code, such as 7, or a word of labels"),
        (["--at-most", "3"], "--at-most 3: expected CODE=N or WORD=N, such as 3=2"),
        (["--forbid", "wonder"], "no functional token has 'wonder' in its label; labels are "),
        (["--forbid", "3", "--at-most", "3=1"], "--at-most: code 3 is named twice"),
        (["--forbid", "9"], "no functional token 9; the model has <cirf_000> to <cirf_003>"),
    ],
)
def test_limits_that_mean_nothing_are_refused(run: Path, options: list[str], said: str) -> None:
    assert said in tinyrun.cirf("ask", run, "How many?", *options).error()
    assert said in tinyrun.cirf("codes", run, *options).error()


# Answers without results, and training on rows without results


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def test_training_and_test_questions_are_answered_with_functional_tokens_alone(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    without_results(copy, "cirf_full", 6)
    said = capsys.readouterr().out
    (out,) = (copy / "evaluations").iterdir()
    summary = json.loads((out / "shares.json").read_text())
    known = {row["id"] for row in read_rows(copy / "problems" / "train.jsonl")}
    for split, line in zip(("train", "test"), said.splitlines(), strict=False):
        rows = read_rows(out / split / "without" / "sums.jsonl")
        assert len(rows) == 6 and {row["id"] in known for row in rows} == {split == "train"}
        for row in rows:
            trace = row["output"].partition("</cirf>")[0]
            assert re.fullmatch(r"(<cirf_\d+>)*", trace.replace(" ", "")), row["output"]
        right = sum(row["correct"] for row in rows)
        low, high = wilson(right, 6)
        assert line.startswith(f"{split}: {right / 6:.1%} right with functional tokens alone (95 % interval {low:.1%} to ")
        assert f"to {high:.1%}, n = 6); " in line and summary[split]["with"]["n"] == 6
        assert {row["id"] for row in read_rows(out / split / "with" / "sums.jsonl")} == {row["id"] for row in rows}
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    without_results(copy, "cirf_full", 6, as_json=True)
    assert json.loads(capsys.readouterr().out) == summary and {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before
    assert tinyrun.cirf("report", copy).code == 0


def test_a_method_without_results_is_refused(copy: Path) -> None:
    with pytest.raises(
        CirfError, match=r"direct_sft: writes no functional tokens with results; name one that does \(cirf_full\)"
    ):
        without_results(copy, "direct_sft", 6)


def test_a_share_of_the_training_rows_has_no_results(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    keys = {"methods": ["cirf_full"], "results__dropout": 0.5}
    said = tinyrun.cirf("run", workshop.recipe(tmp_path / "r.yaml", **keys), "--out", tmp_path / "run", "--until", "models")
    assert said.code == 0, said.err
    traces = read_rows(tmp_path / "run" / "traces" / "traces.jsonl")
    assert all(any(row["results"]) for row in traces)
    text = (tmp_path / "run" / "models" / "cirf_full" / "sft.jsonl").read_text()
    rows = [json.loads(line) for line in text.splitlines()]
    bare = [re.search(r"(?:<cirf_\d+>)+</cirf>", str(row)) and not re.search(r"<cirf_\d+>[^<]+<", str(row)) for row in rows]
    assert len(rows) == 36 and sum(map(bool, bare)) == 18
