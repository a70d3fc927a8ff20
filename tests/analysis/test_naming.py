"""Labels by hand or by a language model: kept beside the run, shown everywhere, and no stage is made again for them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tinyrun
from hypothesis import given
from hypothesis import strategies as st

from cirf.codebook.functions import clean, read_label
from cirf.errors import CirfError


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A finished run to change."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


def codes(folder: Path) -> dict[str, str]:
    said = tinyrun.cirf("codes", folder, "--json")
    return {str(row["code"]): row["label"] for row in json.loads(said.out)}


def test_a_label_given_by_hand_stands_in_codes_report_and_analysis_and_can_be_taken_back(run: Path) -> None:
    before, stages = codes(run), tinyrun.stages(run)
    code = next(iter(before))
    assert tinyrun.cirf("label", run, f"{code}=opens  boxes").code == 0
    assert codes(run) == before | {code: "opens boxes"}
    assert tinyrun.cirf("report", run).code == 0
    report = json.loads((run / "report.json").read_text())
    assert {str(row["code"]): row["label"] for row in report["codebook"]["codes"]}[code] == "opens boxes"
    assert tinyrun.cirf("analyze", run, "semantics").code == 0
    assert "opens boxes" in (run / "analysis" / "semantics" / "semantics.csv").read_text()
    assert "out of date" not in tinyrun.cirf("status", run).out and tinyrun.stages(run) == stages
    assert tinyrun.cirf("label", run, f"{code}=").code == 0
    assert codes(run) == before


def test_what_cannot_be_a_label_is_refused(run: Path) -> None:
    for wrong in ("99=adds", "adds", "x=adds", "0=<script>", f"0={'long ' * 20}", "0=a\x1b[31mb"):
        said = tinyrun.cirf("label", run, wrong)
        assert said.code == 2 and "Traceback" not in said.err, said.err
    assert not (run / "labels.json").exists()
    assert "--model" in tinyrun.cirf("label", run, "--endpoint", "http://localhost:9/v1").err
    secret = tinyrun.cirf("label", run, "--endpoint", "http://ann:sesame@localhost:9/v1", "--model", "m").error()
    assert "password" in secret and "sesame" not in secret
    (run / "labels.json").write_text("[1]")
    assert "labels.json: not a file of labels" in tinyrun.cirf("report", run).err


def test_labels_of_another_codebook_are_passed_over_and_a_models_own_are_kept(run: Path) -> None:
    code, other = list(codes(run))[:2]
    assert tinyrun.cirf("label", run / "models" / "cirf_full", f"{other}=of the model").code == 0
    assert tinyrun.cirf("label", run, f"{code}=named in this folder").code == 0
    assert {codes(run)[code], codes(run)[other]} == {"named in this folder", "of the model"}  # as the model has them
    summary = json.loads((run / "labels.json").read_text())
    assert summary["labels"] == {code: "named in this folder"}
    (run / "labels.json").write_text(json.dumps(summary | {"codes": "0123456789abcdef"}))
    assert tinyrun.cirf("report", run).code == 0
    assert "named in this folder" not in (run / "report.html").read_text()
    (run / "labels.json").write_text(json.dumps(summary | {"labels": {code: "<b>"}}))
    assert "cannot be a label" in tinyrun.cirf("report", run).err


def test_signs_of_formulas_and_other_scripts_are_drawn_as_they_are(run: Path) -> None:
    first, second = list(codes(run))[:2]
    assert tinyrun.cirf("label", run, f"{first}=pays $x^$ and $2", f"{second}=\u52a0\u6cd5").code == 0
    said = tinyrun.cirf("analyze", run, "transitions", "semantics")
    assert said.code == 0, said.err
    svg = (run / "analysis" / "transitions" / "transitions.svg").read_text()
    assert "pays $x^$ and $2" in svg and "\u52a0\u6cd5" in svg and "mathdefault" not in svg


def test_a_language_model_labels_every_code_and_is_asked_once(run: Path) -> None:
    def reply(body: dict[str, Any]) -> str:
        assert "= " in body["messages"][0]["content"]  # it is shown the steps
        return 'Sure: {"label": "adds some"}'

    faulty = tinyrun.faulty()
    with faulty.serve(faulty.Server(reply)) as server:
        said = tinyrun.cirf("label", run, "--endpoint", server.url, "--model", "m")
        assert said.code == 0, said.err
        asked = len(server.asked)
        assert tinyrun.cirf("label", run, "--endpoint", server.url, "--model", "m").code == 0
        assert len(server.asked) == asked == len(codes(run))
    assert set(codes(run).values()) == {"adds some"}
    written = [json.loads((place / "labels.json").read_text()) for place in (run, run / "models" / "cirf_full")]
    assert written[0] == written[1] and set(written[0]["labels"].values()) == {"adds some"}


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ('{"label": "halves"}', "halves"),
        ('{"label": ""}\n{"label": "adds up."}', "adds up"),
        ("multiplies", "multiplies"),
        ("It is not clear.\nPerhaps adds.", None),
        ('{"name": "adds"}', None),
        ('{"label": "<b>adds</b>"}', None),
        ("", None),
    ],
)
def test_the_label_is_read_out_of_an_answer(text: str, label: str | None) -> None:
    assert read_label(text) == label


@given(st.text())
def test_whatever_a_model_says_is_a_clean_label_or_none(text: str) -> None:
    label = read_label(text)
    assert read_label(json.dumps({"label": label or ""})) == label  # it is clean: read once more it stays


@given(st.text())
def test_a_label_is_clean_or_refused(text: str) -> None:
    try:
        summary = clean(text)
    except CirfError:
        return
    assert clean(summary) == summary and 0 < len(summary) <= 40
