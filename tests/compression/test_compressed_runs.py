"""Runs with pruned results: stages, traces, what a change makes again, and a search that goes on after a kill."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tinyrun

from cirf.store.jsonl import read_rows

METHODS = ["cirf_full", "cirf_zero", "cirf_fast", "cirf_faster", "cirf_lean", "cirf_bare"]
PRUNED = METHODS[1:5]
SHORT = {"evaluate__latency_questions": 0, "evaluate__max_completion_tokens": 8}


@pytest.fixture(scope="module")
def pruned(workshop: tinyrun.Workshop, finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of every method with fewer results, which begins as `finished` does."""
    folder = tmp_path_factory.mktemp("pruned")
    for stage in ("problems", "rationales", "segments", "results", "embeddings", "codebook-4", "traces", "models/cirf_full"):
        shutil.copytree(finished / stage, folder / "run" / stage)
    path = workshop.recipe(folder / "recipe.yaml", methods=METHODS, **SHORT)
    said = tinyrun.cirf("run", path, "--out", folder / "run")
    assert said.code == 0 and "models/cirf_full: finished before" in said.err, said.err
    return folder / "run"


def test_pruned_traces_are_full_ones_without_some_results(pruned: Path) -> None:
    full = {(row["problem"], row["sample"]): row for row in read_rows(pruned / "traces" / "traces.jsonl")}
    kept = {}
    for name in PRUNED:
        made = read_rows(pruned / "compressed" / name / "traces.jsonl")
        assert [(row["problem"], row["sample"]) for row in made] == list(full)
        for row in made:
            whole = full[row["problem"], row["sample"]]
            assert (row["codes"], row["answer"]) == (whole["codes"], whole["answer"])
            assert all(result in ("", other) for result, other in zip(row["results"], whole["results"], strict=True))
        kept[name] = {(place, step) for place, row in enumerate(made) for step, result in enumerate(row["results"]) if result}
        report = json.loads((pruned / "compressed" / name / "report.json").read_text())
        assert report["results_kept"] == len(kept[name]) and report["results"] == 40 * 3
        assert report["result_tokens_kept"] <= report["result_tokens"]
    assert kept["cirf_zero"] >= kept["cirf_fast"] >= kept["cirf_faster"]
    assert kept["cirf_fast"] < {(place, step) for place in range(40) for step in range(3)}


def test_lean_traces_are_as_short_as_those_of_fast(pruned: Path) -> None:
    fast, lean = (json.loads((pruned / "compressed" / name / "report.json").read_text()) for name in ("cirf_fast", "cirf_lean"))
    assert lean["result_tokens_kept"] <= fast["result_tokens_kept"]
    assert lean["price"] >= 0 and fast["gamma"] == 0.1


def test_what_methods_are_trained_on_is_what_was_left(pruned: Path) -> None:
    for name in METHODS:
        targets = [row["completion"] for row in read_rows(pruned / "models" / name / "sft.jsonl")]
        stage = pruned / "compressed" / name / "traces.jsonl" if name in PRUNED else pruned / "traces" / "traces.jsonl"
        traces = {row["problem"]: row for row in read_rows(stage)}
        results = [
            {"problem": row["problem"], "results": ["", "", ""] if name == "cirf_bare" else traces[row["problem"]]["results"]}
            for row in read_rows(pruned / "segments" / "segments.jsonl")
        ]
        inside = {
            "".join(
                f"<cirf_{code:03d}>{result}" for code, result in zip(traces[r["problem"]]["codes"], r["results"], strict=True)
            )
            for r in results
        }
        assert all(target.removeprefix("<cirf>").partition("</cirf>")[0] in inside for target in targets)


def test_the_report_shows_the_curve(pruned: Path) -> None:
    summary = json.loads((pruned / "report.json").read_text())["compression"]
    assert [row["gamma"] for row in summary["thresholds"]] == [0.0, 0.1, 0.2]
    shares = [row["results"] for row in summary["thresholds"]]
    assert shares == sorted(shares, reverse=True) and 0 <= shares[-1] <= shares[0] < 1
    assert [share for _, share in summary["curve"]] == sorted((share for _, share in summary["curve"]), reverse=True)
    assert set(summary["methods"]) == set(PRUNED)
    page = (pruned / "report.html").read_text()
    assert 'id="compression"' in page and "Share of results kept by threshold" in page


def test_another_threshold_searches_nothing_anew(pruned: Path, workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    path = workshop.recipe(tmp_path / "r.yaml", methods=METHODS, **SHORT, compression__fast=0.15, compression__faster=0.7)
    said = tinyrun.cirf("run", path, "--out", pruned, "--dry-run", "--json")
    assert said.code == 0, said.err
    left = {row["stage"] for row in json.loads(said.out)["stages"] if row["state"] != "done"}
    assert "compressed/cirf_fast" in left and "compressed/cirf_lean" in left
    assert not any(stage.startswith(("compression/", "models/cirf_full", "compressed/cirf_zero", "traces")) for stage in left)


@pytest.mark.slow
def test_a_search_goes_on_where_it_was_killed(
    pruned: Path, workshop: tinyrun.Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cirf.stages import compress

    monkeypatch.setattr(compress, "WINDOW", 8)
    path = workshop.recipe(tmp_path / "r.yaml", methods=["cirf_fast"], **SHORT)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert tinyrun.cirf("run", path, "--out", whole, "--until", "compression").code == 0
    real, calls = compress.search, []

    def twice(items: Any, *more: Any) -> Any:
        calls.append([item.problem for item in items])
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(items, *more)

    monkeypatch.setattr(compress, "search", twice)
    assert tinyrun.cirf("run", path, "--out", broken, "--until", "compression").code != 0
    log = next(broken.rglob("paths.jsonl"))
    log.write_bytes(log.read_bytes()[:-5])  # and the second window's last row was being written
    assert tinyrun.cirf("run", path, "--out", broken, "--until", "compression").code == 0
    assert calls[3] == calls[1] and len(calls) == 3 + 4
    name = "compression/greedy/compression.jsonl"
    assert (whole / name).read_bytes() == (broken / name).read_bytes()
