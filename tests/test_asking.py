"""``cirf ask`` and ``cirf codes``: by the run's own settings, with what there is, and never a traceback."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tinyrun

from cirf.codebook import embedding
from cirf.lm import backbone
from cirf.lm.decoding import generate as decode

TEXT = "**Step 1:** There are 2 + 3 = <<2+3=5>>5 coins.\nStep 2: <<5=5>>\nStep 3: There are 5 + 1 = 6 coins."


def document(*arguments: str | Path) -> Any:
    said = tinyrun.cirf(*arguments, "--json")
    assert said.code == 0, said.err
    return json.loads(said.out)


def until_traces(workshop: tinyrun.Workshop, folder: Path, **keys: Any) -> Path:
    recipe = workshop.recipe(folder / "recipe.yaml", methods=["cirf_full"], **keys)
    said = tinyrun.cirf("run", recipe, "--until", "traces", "--out", folder / "run")
    assert said.code == 0, said.err
    return folder / "run"


def test_a_run_is_asked_by_its_own_settings(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, capped = [], []
    load_model, generate_one = backbone.load_model, decode.generate_one

    def load(source: Any, section: Any, **more: Any) -> Any:
        loaded.append(section)
        return load_model(source, section, **more)

    def generate(model: Any, tokenizer: Any, prompt: str, cap: int, *more: Any, **how: Any) -> Any:
        capped.append((cap, *more))
        return generate_one(model, tokenizer, prompt, min(cap, 4), *more, **how)

    monkeypatch.setattr(backbone, "load_model", load)
    monkeypatch.setattr(decode, "generate_one", generate)
    run = shutil.copytree(finished, tmp_path / "run")
    text = (run / "recipe.yaml").read_text()
    (run / "recipe.yaml").write_text(text.replace("max_completion_tokens: 12", "max_completion_tokens: null"))
    document("ask", run, "How many?")
    document("ask", run / "models" / "cirf_full", "How many?")
    for name in ("cirf_full", "direct_sft"):
        (run / "models" / name / "recipe.yaml").unlink()  # as if it came from elsewhere
        document("ask", run / "models" / name, "How many?")
    summary, default = ("float32", "cpu", 1), ("bfloat16", "auto", None)
    assert [(section.dtype, section.device, section.threads) for section in loaded] == [summary, summary, default, default]
    assert [cap for cap, *_ in capped] == [24 + 64, 12, 128 + 64, 512]


def test_of_prose_the_answer_is_distinguished(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def generate(*arguments: Any, **how: Any) -> decode.TimedOutput:
        return decode.TimedOutput(9, 0.5, 0.1, "2 + 3 = 5\n#### 5", False)

    monkeypatch.setattr(decode, "generate_one", generate)
    said = tinyrun.cirf("ask", finished / "models" / "direct_sft", "How many?")
    assert said.code == 0 and said.out.splitlines()[:3] == ["2 + 3 = 5", "5", "9 tokens, 0.50 s"]
    assert document("ask", finished / "models" / "direct_sft", "How many?")["answer"] == "5"


@pytest.mark.parametrize(("cut", "answer"), [(False, "6"), (True, "")])
def test_a_trace_that_was_cut_off_has_no_answer(finished: Path, monkeypatch: pytest.MonkeyPatch, cut: bool, answer: str) -> None:
    output = decode.TimedOutput(4, 0.1, 0.1, "<cirf_001>5<cirf_000>6", cut)
    monkeypatch.setattr(decode, "generate_one", lambda *arguments, **more: output)
    summary = document("ask", finished, "How many?")
    assert summary["answer"] == answer and [step["result"] for step in summary["steps"]] == ["5", "6"]
    lines = tinyrun.cirf("ask", finished, "How many?").out.splitlines()
    assert len(lines) == 4 and lines[2] == answer and lines[3].startswith("4 tokens") and ("truncated" in lines[3]) == cut


@pytest.mark.parametrize(("text", "formed"), [("3 + <cirf_001>5 and", False), ("<cirf_001>5</cirf>5", True)])
def test_an_ill_formed_trace_is_warned_of(finished: Path, monkeypatch: pytest.MonkeyPatch, text: str, formed: bool) -> None:
    monkeypatch.setattr(decode, "generate_one", lambda *arguments, **more: decode.TimedOutput(4, 0.1, 0.1, text, False))
    assert document("ask", finished, "How many?")["well_formed"] is formed
    said = tinyrun.cirf("ask", finished, "How many?")
    warning = "warning: the trace is not well-formed; the model is not trained enough (see the run's report.html)"
    assert said.code == 0 and (warning in said.err.splitlines()) == (not formed)
    assert "well_formed" not in document("ask", finished / "models" / "direct_sft", "How many?")


@pytest.mark.parametrize("start", ["", "<cirf>"])
def test_a_code_beyond_the_functions_is_shown_without_a_label(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str
) -> None:
    output = decode.TimedOutput(4, 0.1, 0.1, f"{start}<cirf_999>5<cirf_000>6</cirf>6", False)
    monkeypatch.setattr(decode, "generate_one", lambda *arguments, **more: output)
    run = shutil.copytree(finished, tmp_path / "run")
    answer = document("ask", run, "How many?")
    assert answer["answer"] == "6"
    assert [(step["token"], step["result"]) for step in answer["steps"]] == [("<cirf_999>", "5"), ("<cirf_000>", "6")]
    assert answer["steps"][0]["label"] == ""
    typed = '{"size": "x", "delimiters": "cirf", "codes": []}'
    for damaged in ("{", "[]", '{"size": 4}', typed, typed.replace("[]", '{"1": 2}')):
        (run / "models" / "cirf_full" / "functions.json").write_text(damaged)
        assert "functions.json: damaged" in tinyrun.cirf("ask", run, "How many?").error()


def test_codes_are_listed_before_there_is_a_model(finished: Path, workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    run = until_traces(workshop, tmp_path)
    assert not (run / "models").exists()
    assert document("codes", run) == document("codes", finished)
    labels = {row["code"]: row["label"] for row in document("codes", run)}
    assert all(row["label"] == labels.get(row["code"], "") for row in document("codes", run, TEXT))
    shutil.rmtree(run / "traces")
    assert "neither a model's folder" in tinyrun.cirf("codes", run).error()
    assert {row["label"] for row in document("codes", run, TEXT)} == {""}


def test_where_the_cirf_model_is_not_there_another_is_named(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "models" / name).mkdir(parents=True)
        (tmp_path / "models" / name / "config.json").write_text("{}")
    asked = tinyrun.cirf("ask", tmp_path, "How many?").error()
    assert asked.endswith(f"cirf_full; name a model's folder, such as {tmp_path / 'models' / 'a'}")
    (tmp_path / "models" / "b" / "functions.json").write_text("{}")
    assert str(tmp_path / "models" / "b") in tinyrun.cirf("codes", tmp_path).error()


def test_a_rationale_is_cleaned_as_the_pipeline_does(finished: Path) -> None:
    written = document("codes", finished, TEXT)
    assert [row["segment"] for row in written] == ["There are 2 + 3 = 5 coins.", "There are 5 + 1 = 6 coins."]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that are embedded from here on; to be emptied where a run has embedded some."""
    texts: list[str] = []
    embedded = embedding.Embedder.__call__

    def reading(self: embedding.Embedder, given: Sequence[str]) -> Any:
        texts.extend(given)
        return embedded(self, given)

    monkeypatch.setattr(embedding.Embedder, "__call__", reading)
    return texts


def test_where_numbers_are_masked_a_new_text_is_read_so(workshop: tinyrun.Workshop, tmp_path: Path, read: list[str]) -> None:
    run = until_traces(workshop, tmp_path, embeddings__numbers="mask", codebook__size=1)  # its rows differ in numbers alone
    read.clear()
    assert "There are 2 + 3 = 5 coins." in [row["segment"] for row in document("codes", run, TEXT)]
    assert read == ["There are N + N = N coins.", "There are N + N = N coins."]


def test_a_new_rationale_is_cut_and_read_with_its_choices(workshop: tinyrun.Workshop, tmp_path: Path, read: list[str]) -> None:
    run = until_traces(workshop, tmp_path, embeddings__choices="mask", embeddings__closing="drop", segments__options="together")
    read.clear()
    text = "A. tree: no fish in a tree.\nB. pond: fish swim.\n\nFish need a pond.\nTherefore, the answer is B."
    written = document("codes", run, text, "--choice", "tree", "--choice", "pond")
    assert [row["segment"] for row in written] == [
        "A. tree: no fish in a tree.\nB. pond: fish swim.",
        "Fish need a pond.\nTherefore, the answer is B.",
    ]
    assert read == ["it: no fish in a it.\nit: fish swim.", "Fish need a it."]
    assert len(document("codes", run, text)) > 2, "without choices it goes through none"
    assert "give the rationale too" in tinyrun.cirf("codes", run, "--choice", "tree").error()


def test_a_question_centred_codebook_has_no_codes_for_a_rationale_alone(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    run = until_traces(workshop, tmp_path, codebook__representation="question_centered")
    assert "centred on their question" in tinyrun.cirf("codes", run, TEXT).error()


@pytest.fixture(scope="module")
def kinds(workshop: tinyrun.Workshop, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a model of traces, one of prose, one that thinks in its own states, and one that is given a guide's vectors."""
    folder = tmp_path_factory.mktemp("kinds")
    tinyrun.write_backbone(folder / "guide", seed=3)
    variants = {
        "coconut": {"settings": {"start": "backbone", "stage_epochs": 0.2}},
        "soft_cot": {"settings": {"guide": str(folder / "guide"), "n": 2}},
    }
    methods = ["cirf_full", "sft_cot", "coconut", "soft_cot"]
    rows = tinyrun.write_jsonl(folder / "train.jsonl", tinyrun.sums(16))
    recipe = workshop.recipe(folder / "r.yaml", train=rows, methods=methods, variants=variants, finetune__epochs=3.0)
    said = tinyrun.cirf("run", recipe, "--until", "models", "--out", folder / "run")
    assert said.code == 0, said.err
    return folder / "run"


@pytest.mark.parametrize(
    ("name", "steered"),
    [
        ("cirf_full", ()),
        ("cirf_full", ("--budget", "2", "--grammar")),
        ("cirf_full", ("--no-results",)),
        ("sft_cot", ()),
        ("coconut", ()),
        ("soft_cot", ()),
    ],
)
def test_what_is_printed_as_it_is_written_is_what_is_printed_at_once(
    kinds: Path, name: str, steered: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    streamed = []
    generate_one = decode.generate_one

    def watched(*arguments: Any, **how: Any) -> Any:
        streamed.append(how["on_text"] is not None)
        return generate_one(*arguments, **how)

    monkeypatch.setattr(decode, "generate_one", watched)
    question = "Box 3 gets 4 and 5 coins. How many coins are in it?"
    ways = ["--stream"], ["--no-stream"], []
    said = [tinyrun.cirf("ask", kinds / "models" / name, question, *steered, *way) for way in ways]
    assert {one.code for one in said} == {0}, said[0].err
    first, *others = [one.out.splitlines()[:-1] for one in said]  # the last line has the time
    assert first and all(other == first for other in others)
    assert streamed == [True, False, False]


def test_functional_tokens_are_explained(kinds: Path) -> None:
    plain = document("ask", kinds, "How many?", "--budget", "3", "--grammar")
    summary = document("ask", kinds, "How many?", "--budget", "3", "--grammar", "--explain")
    explained = summary.pop("explain")
    assert {name: value for name, value in summary.items() if name != "seconds"} == {
        name: value for name, value in plain.items() if name != "seconds"
    }
    assert [one["token"] for one in explained] == [step["token"] for step in summary["steps"] if step["token"]] != []
    known = json.loads((kinds / "models" / "cirf_full" / "functions.json").read_text())["codes"]
    for one in explained:
        row = known[str(int(one["token"][6:-1]))]
        assert one["label"] == row["label"] and one["segments"] == row["examples"][:3] != []
        chances = [other["probability"] for other in one["alternatives"]]
        assert len(chances) == 3 and chances == sorted(chances, reverse=True) and 0 < one["probability"] + sum(chances) <= 1.0001
        assert one["token"] not in [other["token"] for other in one["alternatives"]]

    said = tinyrun.cirf("ask", kinds, "How many?", "--budget", "3", "--grammar", "--explain")
    assert said.code == 0, said.err
    for one in explained:
        assert f"\n{one['token']} {one['label']}: {one['probability']:.1%}\n  or " in said.out
        assert all(f"\n  - {segment}\n" in said.out for segment in one["segments"])
    refused = tinyrun.cirf("ask", kinds / "models" / "sft_cot", "How many?", "--explain").error()
    assert "--explain" in refused and "functional tokens" in refused
