"""The analyses of one run: every number found again from its files by other means."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tinyrun
from hypothesis import given
from hypothesis import strategies as st

from cirf.analysis import analysis
from cirf.analysis.difficulty import group_by_length
from cirf.analysis.pareto import on_front
from cirf.store.jsonl import read_rows


@pytest.fixture(scope="module")
def analysed(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with its analyses, the paper's values beside them."""
    folder = tmp_path_factory.mktemp("analysed") / "run"
    shutil.copytree(finished, folder)
    said = tinyrun.cirf("analyze", folder, "--paper")
    assert said.code == 0, said.err
    return folder


def summary(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "analysis" / "analysis.json").read_text())
    return found


def rows_of(folder: Path, name: str, table: str) -> list[dict[str, Any]]:
    return next(row["rows"] for row in summary(folder)["analyses"][name]["tables"] if row["name"] == table)


def test_every_table_is_written_as_csv_and_latex_and_every_picture_as_svg(analysed: Path) -> None:
    found = summary(analysed)
    assert set(found["analyses"]) | set(found["left_out"]) == set(analysis.names())
    for name, row in found["analyses"].items():
        for table in row["tables"]:
            text = (analysed / "analysis" / name / f"{table['name']}.csv").read_bytes().decode()
            lines = list(csv.DictReader(io.StringIO(text, newline="")))
            assert len(lines) == len(table["rows"])
            assert rf"\label{{tab:{table['name']}}}" in (analysed / "analysis" / name / f"{table['name']}.tex").read_text()
        for picture in row["pictures"]:
            svg = (analysed / "analysis" / name / f"{picture}.svg").read_text()
            assert svg.startswith("<svg") and 'class="mark point"' in svg  # points have descriptions
    page = (analysed / "analysis" / "index.html").read_text()
    assert all(f'<section id="{name}">' in page for name in found["analyses"])


@pytest.mark.slow
def test_the_same_run_gives_the_same_bytes(analysed: Path, tmp_path: Path) -> None:
    again = tmp_path / analysed.name
    shutil.copytree(analysed, again)
    before = tinyrun.artefacts(again / "analysis")
    assert tinyrun.cirf("analyze", again, "--paper").code == 0
    assert tinyrun.artefacts(again / "analysis") == before


def test_accuracies_are_those_of_the_rows(analysed: Path) -> None:
    ours = [row for row in rows_of(analysed, "pareto", "tasks") if row["source"] != "paper"]
    assert {row["method"] for row in ours} == {"cirf_full", "direct_sft", "cot"}
    for row in ours:
        answers = read_rows(analysed / "evaluation" / row["method"] / f"{row['task']}.jsonl")
        assert row["n"] == len(answers) and row["accuracy"] == sum(one["correct"] for one in answers) / len(answers)
        assert row["tokens"] == pytest.approx(sum(one["tokens"] for one in answers) / len(answers))
    theirs = [row for row in rows_of(analysed, "pareto", "tasks") if row["source"] == "paper"]
    assert len(theirs) == 2 * 14 * 9
    codi = next(row for row in theirs if (row["backbone"], row["method"], row["task"]) == ("Qwen3-8B", "codi", "gsm8k"))
    assert codi["accuracy"] == pytest.approx(0.33)  # the table's value, where the paper's text has another


def test_every_question_counts_once_by_difficulty(analysed: Path) -> None:
    rows = [row for row in rows_of(analysed, "difficulty", "difficulty") if row["task"] == "all"]
    answers = read_rows(analysed / "evaluation" / "direct_sft" / "sums.jsonl")
    assert sum(row["n"] for row in rows) == len(answers)
    wrong = sum(row["error"] * row["n"] for row in rows)
    assert wrong == pytest.approx(sum(not one["correct"] for one in answers))


def test_codes_are_counted_as_the_steps_they_represent(analysed: Path) -> None:
    train = {row["id"] for row in read_rows(analysed / "problems" / "train.jsonl")}
    codes = [row["codes"] for row in read_rows(analysed / "codebook-4" / "codes.jsonl") if row["problem"] in train]
    counted = Counter(code for row in codes for code in row)
    assert {row["code"]: row["count"] for row in rows_of(analysed, "semantics", "semantics")} == dict(counted)


def test_lengths_are_counted_with_the_backbones_tokenizer(analysed: Path, workshop: tinyrun.Workshop) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(workshop.backbone)
    train = {row["id"] for row in read_rows(analysed / "problems" / "train.jsonl")}
    texts = [row["text"] for row in read_rows(analysed / "rationales" / "rationales.jsonl") if row["problem"] in train]
    codes = [row["codes"] for row in read_rows(analysed / "codebook-4" / "codes.jsonl") if row["problem"] in train]
    ours = next(row for row in rows_of(analysed, "statistics", "statistics") if row["source"] != "paper")
    assert ours["cot_tokens"] == pytest.approx(np.mean([len(tokenizer.encode(text, add_special_tokens=False)) for text in texts]))
    assert ours["functional_tokens"] == pytest.approx(np.mean([len(row) for row in codes]))
    assert ours["trace_tokens"] > ours["functional_tokens"]


def test_hyperparameters_are_the_recipes(analysed: Path) -> None:
    rows = {row["key"]: row for row in rows_of(analysed, "hyperparameters", "hyperparameters")}
    assert rows["codebook.hidden"]["value"] == "16" and rows["codebook.hidden"]["paper"] == "1024"
    assert rows["codebook.hidden"]["same"] == "no" and rows["finetune.adam_beta2"]["same"] == "yes"
    assert "codebook.sizes" not in rows and rows["codebook.size"]["value"] == "4"
    config = json.loads((analysed / "models" / "cirf_full" / "config.json").read_text())
    names = {"hidden_size": "hidden_size", "layers": "num_hidden_layers", "heads": "num_attention_heads"}
    for key, name in names.items():
        assert rows[f"backbone.architecture.{key}"]["value"] == str(config[name])


def test_what_a_run_lacks_is_said_and_what_it_has_is_made(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished, folder, ignore=shutil.ignore_patterns("evaluation", "latency", "models"))
    said = tinyrun.cirf("analyze", folder)
    assert said.code == 0, said.err
    assert "pareto: left out: no method was evaluated yet" in said.out
    assert set(summary(folder)["analyses"]) >= {"semantics", "statistics", "hyperparameters"}
    alone = tinyrun.cirf("analyze", folder, "pareto")
    assert alone.code == 2 and "pareto: no method was evaluated yet" in alone.err
    assert tinyrun.cirf("analyze", folder, "paretto").err.count("did you mean pareto?") == 1
    assert tinyrun.cirf("analyze", tmp_path).code == 2
    assert tinyrun.cirf("analyze").code == 2


def test_the_list_names_every_analysis() -> None:
    said = tinyrun.cirf("analyze", "--list", "--json")
    rows = json.loads(said.out)
    assert [row["name"] for row in rows] == list(analysis.names())
    shown = tinyrun.cirf("analyze", "--list").out
    assert all(row["needs"] in shown and row["summary"] in shown for row in rows)


@given(st.lists(st.tuples(st.integers(0, 5), st.one_of(st.none(), st.integers(0, 5))), max_size=12))
def test_the_front_is_what_none_beats(points: list[tuple[float, float | None]]) -> None:
    front = on_front(points)
    for (accuracy, cost), there in zip(points, front, strict=True):
        if cost is None:
            assert there is None
            continue
        better = [(a, c) for a, c in points if c is not None and a >= accuracy and c <= cost and (a, c) != (accuracy, cost)]
        assert there == (not better)
    known = [there for there in front if there is not None]
    assert any(known) == bool(known)


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from([0.0, 1.0]), st.sampled_from([0.0, 1.0])), min_size=1, max_size=80))
def test_groups_by_length_lose_no_question_and_are_not_small(pairs: list[tuple[int, float, float]]) -> None:
    groups = group_by_length(sorted(pairs))
    assert sorted(pair for group in groups for pair in group) == sorted(pairs)
    assert min(map(len, groups)) >= min(10, len(pairs))
    bounds = [(group[0][0], group[-1][0]) for group in groups]
    assert all(before[1] < after[0] for before, after in pairwise(bounds))
