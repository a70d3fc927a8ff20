"""Traces in which the subject of a step stands before its functional token (`subjects: true`)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tinyrun

from cirf.errors import CirfError
from cirf.methods import get
from cirf.recipe.load import parse
from cirf.records import Example, Problem, Trace
from cirf.store.jsonl import read_rows

COIN = Example(
    Problem("p", "coin_flip", "A coin is heads up. ann flips it. bob does not flip it. Is it still heads up?", "no"),
    ("The coin is heads up.", "Ann flips it, so it is tails up.", "Bob does not flip it."),
    Trace("p", 0, (3, 1, 2), ("heads", "tails", "tails"), "no"),
)
HEAD = "name: r\nproblems: {tasks: [{task: gsm8k}]}\nmethods: [x]\n"


@pytest.mark.parametrize(
    ("variant", "target"),
    [
        ("method: cirf_full", "<cirf_003>heads<cirf_001>tails<cirf_002>tails</cirf>no"),
        ("method: cirf_full, settings: {subjects: true}", "<cirf_003>heads ann<cirf_001>tails bob<cirf_002>tails</cirf>no"),
        ("method: cirf_bare, settings: {subjects: true}", "<cirf_003> ann<cirf_001> bob<cirf_002></cirf>no"),
    ],
)
def test_a_subject_stands_before_its_token(variant: str, target: str) -> None:
    method = get("x", parse(HEAD + f"variants: {{x: {{{variant}}}}}\n"))
    assert method.target(COIN) == target
    assert method.read(target)[1] == "no"
    taught = {"settings": {"subjects": True}} if "subjects" in variant else {}
    assert {key: method.taught_by[key] for key in taught} == taught and ("settings" in method.taught_by) is bool(taught)


@pytest.mark.parametrize(
    ("variants", "name", "said"),
    [
        ("cirf_full: {settings: {subjects: true}}", "cirf_full", "variants.cirf_full.settings.subjects"),
        (
            "s: {method: cirf_full, settings: {subjects: true}}, x: {method: cirf_self, settings: {of: s}}",
            "x",
            "s does not write",
        ),
    ],
)
def test_methods_that_read_other_traces_refuse_them(variants: str, name: str, said: str) -> None:
    with pytest.raises(CirfError, match=said):
        get(name, parse(HEAD.replace("[x]", f"[{name}]") + f"variants: {{{variants}}}\n"))


def test_a_pruned_trace_keeps_them() -> None:
    method = get("x", parse(HEAD + "variants: {x: {method: cirf_fast, settings: {subjects: true}}}\n"))
    pruned = replace(COIN, trace=replace(COIN.trace, results=("", "tails", "")))
    assert method.target(pruned) == "<cirf_003> ann<cirf_001>tails bob<cirf_002></cirf>no"


def test_a_run_learns_them(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    keys: dict[str, Any] = {
        "methods": ["cirf_full", "told"],
        "variants": {"told": {"method": "cirf_full", "settings": {"subjects": True}}},
        "problems__tasks": [{"task": "made_coin_flip", "train": 24, "test": 4}],
        "evaluate__latency_questions": 0,
    }
    said = tinyrun.cirf("run", workshop.recipe(tmp_path / "recipe.yaml", **keys), "--out", tmp_path / "run")
    assert said.code == 0, said.err
    models = tmp_path / "run" / "models"
    plain, summary = ([row["completion"] for row in read_rows(models / name / "sft.jsonl")] for name in ("cirf_full", "told"))
    assert len(plain) == len(summary) and plain != summary
    from cirf.lm.vocabulary import parse_trace

    for short, long in zip(plain, summary, strict=True):
        pairs = list(zip(parse_trace(short), parse_trace(long), strict=True))
        assert all(a == b and new.startswith(old) for (a, old), (b, new) in pairs)
