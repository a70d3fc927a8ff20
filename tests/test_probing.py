"""``cirf probe``: a run's methods, their thoughts and traces perturbed, and the report on it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tinyrun
from tables import each_row

from cirf import methods
from cirf.evaluation.probes import Prober
from cirf.recipe.schema import Recipe
from cirf.stages.probes import units_of
from cirf.store.jsonl import read_rows

VARIANTS = {
    "coconut": {"settings": {"start": "backbone", "stages": 1, "thoughts": 2, "stage_epochs": 0.2}},
}


@pytest.fixture(scope="module")
def run(workshop: tinyrun.Workshop, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("probing")
    keys: dict[str, Any] = {"methods": ["coconut", "direct_sft"], "variants": VARIANTS, "evaluate__latency_questions": 0}
    keys |= {"evaluate__max_completion_tokens": 12, "evaluate__batch_size": 4}
    said = tinyrun.cirf("run", workshop.recipe(folder / "r.yaml", **keys), "--out", folder / "run")
    assert said.code == 0, said.err
    return folder / "run"


@each_row("name", methods.names())
def test_whatever_begins_otherwise_or_writes_a_trace_can_be_probed(name: str) -> None:
    recipe = Recipe.model_validate({"name": "r", "problems": {"tasks": [{"task": "gsm8k"}]}, "methods": [name]})
    method = methods.get(name, recipe)
    if type(method).beginnings is not methods.Method.beginnings:
        assert units_of(method) == "thoughts", "its class says how it begins, but not by `latents` how many vectors that takes"
    elif method.functional:
        assert units_of(method) == "steps"
    else:
        assert units_of(method) is None


def _rows(out: Path, method: str) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in read_rows(out / "probes" / method / "sums.jsonl"):
        found.setdefault(row["probe"], []).append(row)
    return found


def test_what_can_be_probed_is_and_untouched_it_answers_as_ever(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    said = tinyrun.cirf("probe", run, "--truncate", "1", "--protocol", "own", "--out", out)
    assert said.code == 0, said.err
    assert [path.name for path in (out / "probes").iterdir()] == ["coconut"]
    rows, probes = _rows(out, "coconut"), ["drop", "shuffle", "swap", "truncate-1"]
    assert list(rows) == ["none", "keep", *probes]
    answered = read_rows(run / "evaluation" / "coconut" / "sums.jsonl")
    for name in ("none", "keep"):
        for key in ("id", "output", "parsed", "correct", "tokens", "truncated"):
            assert [row[key] for row in rows[name]] == [row[key] for row in answered], (name, key)
    assert all(row["changed"] == (name in probes) for name, found in rows.items() for row in found)
    report = json.loads((out / "report.json").read_text())["probes"]
    assert list(report) == ["coconut"] and report["coconut"]["units"] == "thoughts"
    assert report["coconut"]["probes"]["drop"]["n"] == report["coconut"]["probes"]["swap"]["n_partner"] == 8
    assert "What the answers depend on" in (out / "report.html").read_text()
    assert any(line.split()[:2] == ["coconut", "swap"] for line in said.out.splitlines()), said.out
    assert not (out / "latency").exists()
    again = tinyrun.cirf("probe", run, "--truncate", "1", "--protocol", "own", "--out", out)
    assert "probes/coconut: finished before" in again.err


def test_methods_with_functional_tokens_are_probed_by_their_traces(finished: Path, tmp_path: Path) -> None:
    caps = ("--set", "evaluate.latency_questions=0", "--protocol", "own")
    out = tmp_path / "out"
    said = tinyrun.cirf("probe", finished, "--probes", "drop", "--results", "keep", *caps, "--out", out, "--json")
    assert said.code == 0, said.err
    summary = json.loads(said.out)["probes"]["cirf_full"]
    assert summary["units"] == "steps" and summary["results"] == "keep" and list(summary["probes"]) == ["none", "keep", "drop"]
    answered = read_rows(finished / "evaluation" / "cirf_full" / "sums.jsonl")
    assert [row["output"] for row in _rows(out, "cirf_full")["keep"]] == [row["output"] for row in answered]


def test_a_steered_method_is_probed_without_its_settings(finished: Path, tmp_path: Path) -> None:
    keys = ("--set", "evaluate.latency_questions=0", "--protocol", "own", "--probes", "drop", "--method", "cirf_full")
    steered = ("--set", "variants.cirf_full={settings: {budget: 1}}")
    said = tinyrun.cirf("probe", finished, *keys, *steered, "--out", tmp_path / "steered")
    assert said.code == 0 and "probed without the settings that steer its answers (such as budget)" in said.err, said.err
    assert tinyrun.cirf("probe", finished, *keys, "--out", tmp_path / "plain").code == 0
    assert _rows(tmp_path / "steered", "cirf_full") == _rows(tmp_path / "plain", "cirf_full")


@pytest.mark.slow
def test_a_killed_probing_asks_only_what_is_missing(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, killed, calls = tmp_path / "whole", tmp_path / "killed", list[int]()
    keys = ("--probes", "swap", "--protocol", "own", "--method", "coconut", "--quiet")
    assert tinyrun.cirf("probe", run, *keys, "--out", whole).code == 0
    ask = Prober.__call__

    def dies(self: Prober, prompts: Any, names: Any, cap: int) -> Any:
        calls.append(len(prompts))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return ask(self, prompts, names, cap)

    monkeypatch.setattr(Prober, "__call__", dies)
    assert tinyrun.cirf("probe", run, *keys, "--out", killed).code != 0
    assert tinyrun.cirf("probe", run, *keys, "--out", killed).code == 0
    assert calls == [4, 4, 4]  # eight questions in batches of four: the second one again
    for name in ("sums.jsonl", "probes.json"):
        summary = [(out / "probes" / "coconut" / name).read_bytes() for out in (whole, killed)]
        assert summary[0] == summary[1]


def test_what_cannot_be_meant_is_refused(run: Path, tmp_path: Path) -> None:
    def said(*arguments: str) -> str:
        return tinyrun.cirf("probe", run, *arguments, "--out", tmp_path / "out").error()

    assert "--probes: expected drop, shuffle, swap" in said("--probes", "turn")
    assert "--truncate: expected numbers" in said("--truncate", "one")
    assert "--results: expected follow or keep" in said("--results", "gone")
    assert "--probes: name at least one" in said("--probes", "")
    assert "apply to none of direct_sft" in said("--method", "direct_sft")


@pytest.mark.slow
def test_an_evaluation_of_methods_without_any_leaves_a_runs_probes_out(run: Path, tmp_path: Path) -> None:
    asking = shutil.copytree(run, tmp_path / "run")
    text = (asking / "recipe.yaml").read_text()
    assert "\n    kinds: []\n" in text
    (asking / "recipe.yaml").write_text(text.replace("\n    kinds: []\n", "\n    kinds: [drop]\n"))
    for method, there in (("coconut", True), ("direct_sft", False)):
        out = tmp_path / method
        said = tinyrun.cirf("evaluate", asking, "--method", method, "--protocol", "own", "--out", out)
        assert said.code == 0, said.err
        assert (out / "probes").exists() == there
    assert list(_rows(tmp_path / "coconut", "coconut")) == ["none", "keep", "drop"]
