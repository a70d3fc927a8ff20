"""Names that people gave to codes. Labels by hand or by a language model: kept beside the run, shown everywhere, and no stage is
made again for them.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tinyrun
from hypothesis import given
from hypothesis import strategies as st
from tables import each_row

from cirf.analysis.names import NAMES, base, describe, display_names, family
from cirf.analysis.tradeoff import MethodPoint, draw
from cirf.codebook.functions import MIXED, UNUSED, clean, label_codes, operations, read_label
from cirf.errors import CirfError
from cirf.methods import METHODS
from cirf.pictures.style import FAMILIES


@each_row(
    ("segment", "found"),
    [
        ("4 bananas * $1/banana = $4", {"multiplies"}),
        ("$40 (coat) + $30 (shoes) = $70", {"adds"}),
        ("100 × 0.75 = 75 dollars", {"multiplies"}),
        ("110 \N{MINUS SIGN} 60 = 50", {"subtracts"}),
        ("28 - 15 = 13", {"subtracts"}),
        ("48/2 = 24", {"divides"}),
        ("1,200 ÷ 4 = 300", {"divides"}),
        ("3 x $4 = $12", {"multiplies"}),
        (r"5 \times 6 - 2 = 28", {"multiplies", "subtracts"}),
        ("In 2010-2014 it rained.", set()),
        ("It takes 30\N{EN DASH}40 days.", set()),
        ("A half-hour walk", set()),
        ("The coin is heads up.", set()),
    ],
)
def test_operations_are_between_numbers(segment, found):
    assert operations(segment) == found


def test_a_code_is_called_by_what_sets_its_segments_apart():
    labels = label_codes(
        {
            0: ["4 apples + 3 apples = 7 apples in total", "In total 5 + 6 = 11", "10 + 2 = 12 in total"],
            1: ["Sam does not flip the coin, it stays heads", "Jo does not flip the coin, it stays tails"],
            2: ["Kim flips the coin to tails", "Lee flips the coin to heads"],
            3: [],
            4: ["9 * 9 = 81", "7 * 6 = 42"],
        }
    )
    assert labels[0] == "adds total"
    assert "not flip" in labels[1]
    assert labels[2].startswith("flips")
    assert labels[3] == UNUSED
    assert labels[4] == "multiplies"


def test_two_codes_of_one_kind_get_longer_names():
    bags = {
        0: ["the final answer is option B", "the final answer is option C"],
        1: ["the final answer was option B, surely", "the final answer was option C, surely"],
        2: ["water is wet", "stones are hard"],
    }
    labels = label_codes(bags)
    assert labels[0] != labels[1]


def test_segments_with_nothing_in_common_are_mixed():
    segments = ["alpha beta", "gamma delta", "epsilon zeta", "eta theta", "iota kappa"]
    assert label_codes({0: segments, 1: ["something else"]})[0] == MIXED


CODES = st.dictionaries(st.integers(0, 300), st.lists(st.text(max_size=60), max_size=6), max_size=8)


@given(CODES)
def test_labels_are_short_and_the_same_every_time(segments):
    labels = label_codes(segments)
    assert labels.keys() == segments.keys()
    assert all(1 <= len(label.split()) <= 3 for label in labels.values())
    assert label_codes(dict(reversed(segments.items()))) == labels
    assert all((label == UNUSED) == (not segments[code]) for code, label in labels.items())


# Display names and families of methods: one each, the same everywhere

VARIANTS = {
    "subjects": {"method": "cirf_full", "settings": {"subjects": True}},
    "helped": {"method": "cirf_full", "settings": {"subjects": True, "start": "sft_cot", "calculator": True}, "model": "other"},
    "lines": {"method": "terse", "settings": {"form": "equations"}},
    "pause_10": {"method": "pause", "settings": {"n": 10}},
    "theirs": {"method": "codi", "preset": "official"},
    "again": {"method": "cirf_full", "settings": {"subjects": True}},
    "mine": {"method": "my_method.py", "settings": {"depth": 2}},
    "cirf_lean": {"settings": {"budget": 4}},
}


def test_every_method_has_one_name_of_its_own_and_a_family():
    assert set(METHODS) <= set(NAMES) and len(set(NAMES.values())) == len(NAMES)
    assert {family(name, {}) for name in METHODS} == set(FAMILIES)


def test_a_variant_of_known_settings_is_named_by_them_and_any_other_by_itself():
    names = display_names([*VARIANTS, "cirf_full"], VARIANTS)
    assert names == {
        "subjects": "CIRF with subjects",
        "helped": "CIRF with subjects, after CoT + calculator",
        "lines": "Terse, equations",
        "pause_10": "pause_10",
        "theirs": "theirs",
        "again": "again",  # the name is taken
        "mine": "mine",
        "cirf_lean": "CIRF Lean",
        "cirf_full": "CIRF",
    }


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("pause_10", "Pause tokens (pause): n = 10"),
        ("theirs", "CODI (codi): preset official"),
        ("mine", "my_method.py (my_method.py): depth = 2"),
        ("sft_cot", METHODS["sft_cot"].summary),
        ("unknown", ""),
    ],
)
def test_what_a_method_is_and_a_variant_changes(name, words):
    assert describe(name, VARIANTS) == words
    assert describe("helped", VARIANTS).endswith("calculator = True, answers with the model of other")


def test_families_are_of_the_method_behind_a_variant_and_for_unknown_ones_of_what_they_write():
    assert base("pause_10", VARIANTS) == "pause" and family("pause_10", VARIANTS) == "latent"
    assert family("subjects", VARIANTS) == "functional" and family("lines", VARIANTS) == "prose"
    assert family("mine", VARIANTS) == "prose" and family("mine", VARIANTS, functional=True) == "functional"


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A finished run to change."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


def codes(folder: Path) -> dict[str, str]:
    said = tinyrun.cirf("codes", folder, "--json")
    return {str(row["code"]): row["label"] for row in json.loads(said.out)}


def test_a_label_given_by_hand_is_in_codes_report_and_analysis_and_can_be_taken_back(run: Path) -> None:
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


def test_signs_of_formulas_and_other_scripts_are_drawn_as_they_are() -> None:
    named = [("pays $x^$ and $2", 10.0, 50.0), ("\u52a0\u6cd5", 20.0, 60.0)]
    spots = [MethodPoint(name, name, "", "prose", cost, y, y - 9, y + 9, True) for name, cost, y in named]
    svg = draw(spots, "signs", ("tokens", "accuracy, %"), "two points", unit="tokens")
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


@each_row(
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
