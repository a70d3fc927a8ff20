"""Every analysis on real runs in miniature, as the command makes it."""

from __future__ import annotations

import csv
import json
import re
import shutil

import made
import numpy as np
import pytest
import tinyrun
from safetensors import safe_open
from sklearn.metrics import adjusted_mutual_info_score
from tokenizers import Tokenizer

from cirf.store.jsonl import read_rows

pytestmark = pytest.mark.slow  # seven runs; the analyses one by one are tried on made runs
WITH_PAPER = ("geometry", "clustering", "representation", "initialisation")


@pytest.fixture(scope="module")
def summary(analysed):
    return json.loads((analysed / "analysis.json").read_text())["analyses"]


def table(summary, analysis, name=None):
    return next(one["rows"] for one in summary[analysis]["tables"] if one["name"] == (name or analysis))


@pytest.mark.parametrize("name", made.OF_SWEEPS)
def test_each_is_made_with_tables_and_pictures(name, summary, analysed):
    assert bool(summary[name]["pictures"]) == (name not in WITH_PAPER)  # of which the paper has tables alone
    for one in summary[name]["tables"]:
        assert one["rows"]
        with (analysed / name / f"{one['name']}.csv").open() as file:
            assert len(list(csv.DictReader(file))) == len(one["rows"])
        assert "\\toprule" in (analysed / name / f"{one['name']}.tex").read_text()
    for picture in summary[name]["pictures"]:
        svg = (analysed / name / f"{picture}.svg").read_text()
        assert svg.startswith('<svg role="group" aria-label="') and "nan" not in svg.lower().replace("nano", "")
        points = re.findall(r'<g class="mark point" [^>]*data-description="([^"]+)" tabindex="0"', svg)
        assert points and all(re.search(r"\d", said) for said in points)  # each shows a number, to mouse and keyboard
        assert all(said in re.match(r'<svg role="group" aria-label="([^"]+)"', svg)[1] for said in points)


@pytest.mark.parametrize("name", WITH_PAPER)
def test_the_papers_rows_are_marked(name, summary, runs):
    sources = {row["source"] for row in table(summary, name)}
    assert "paper" in sources and sources & set(runs.values())


def test_geometry_is_that_of_the_saved_rows(summary, sweep, runs):
    for point, matrix, key in (
        (runs["sizes"], "input", "model.embed_tokens.weight"),
        (runs["backbone"], "input", "transformer.wte.weight"),
        (runs["backbone"], "output", "lm_head.weight"),
    ):
        row = next(row for row in table(summary, "geometry") if row["source"] == point and row["matrix"] == matrix)
        model = sweep / point / "models" / "cirf_full"
        tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        with safe_open(model / "model.safetensors", framework="pt") as file:
            weights = file.get_tensor(key).double().numpy()
        w = weights[[tokenizer.token_to_id(f"<cirf_{code:03d}>") for code in range(row["size"])]]
        norms = np.sqrt((w * w).sum(axis=1))
        assert row["bias"] == pytest.approx(np.sqrt((w.mean(axis=0) ** 2).sum()) / norms.mean())
        cosines = [w[i] @ w[j] / norms[i] / norms[j] for i in range(len(w)) for j in range(i)]
        assert (row["mean_cosine"], row["max_cosine"]) == (pytest.approx(np.mean(cosines)), pytest.approx(max(cosines)))
    tied = {row["matrix"] for row in table(summary, "geometry") if row["source"] == runs["base"]}
    assert tied == {"codebook", "input"}
    unlike = next(
        row for row in table(summary, "geometry") if row["source"] == runs["initialisation"] and row["matrix"] == "input"
    )
    assert unlike["cosine"] is None and unlike["init"] == "random"


def test_clustering_is_that_of_the_files(summary, sweep):
    row = next(row for row in table(summary, "clustering") if row["representation"] == "raw" and row["size"] == 4)
    run = sweep / row["source"]
    tasks = {one["id"]: one["task"] for one in read_rows(run / "problems" / "train.jsonl")}
    rows = [one for one in read_rows(run / "codebook-4" / "codes.jsonl") if one["problem"] in tasks]
    codes = [code for one in rows for code in one["codes"]]
    assert row["segments"] == len(codes)
    assert row["ami"] == pytest.approx(adjusted_mutual_info_score([one["problem"] for one in rows for _ in one["codes"]], codes))
    named = [tasks[one["problem"]] for one in rows for _ in one["codes"]]
    assert row["task_ami"] == pytest.approx(adjusted_mutual_info_score(named, codes))
    assert row["ami_low"] < row["ami"] < row["ami_high"]
    assert {one["size"] for one in table(summary, "clustering") if one["source"] != "paper"} == {4, 6, 8}


def test_accuracies_are_those_of_the_rows(summary, sweep):
    for row in table(summary, "representation"):
        if row["source"] != "paper":
            rows = read_rows(sweep / row["source"] / "evaluation" / "cirf_full" / "sums.jsonl")
            assert row["task:sums"] == sum(one["correct"] for one in rows) / len(rows)


@pytest.mark.slow
def test_again_the_same_bytes(analysed, sweep):
    first = {path.relative_to(analysed): path.read_bytes() for path in analysed.rglob("*") if path.is_file()}
    assert tinyrun.cirf("analyze", sweep, *made.OF_SWEEPS, "--paper").code == 0
    assert {path.relative_to(analysed): path.read_bytes() for path in analysed.rglob("*") if path.is_file()} == first


def test_the_page_has_no_backtick_and_long_names_may_be_broken(analysed, runs):
    page = (analysed / "index.html").read_text(encoding="utf-8")
    assert "`" not in page.partition("<script>")[0] and "<code>codebook</code> are the code vectors" in page
    assert f'class="long">{runs["representation"]}</td>' in page and 'class="long">paper<' not in page


def test_a_run_alone_says_what_it_lacks(sweep, runs, tmp_path):
    shutil.copytree(sweep / runs["representation"], tmp_path / "run")
    assert "differ only in codebook.size" in tinyrun.cirf("analyze", tmp_path / "run", "codebook_size").error()
    said = tinyrun.cirf("analyze", tmp_path / "run", "geometry", "clustering")
    assert said.code == 0, said.err
    assert (tmp_path / "run" / "analysis" / "clustering" / "clustering.csv").is_file()
