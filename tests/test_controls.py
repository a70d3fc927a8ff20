"""Controls of what the codes are good for: the same results and lengths behind tokens that say something else of their steps."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import tinyrun
from hypothesis import given
from hypothesis import strategies as st

from cirf.errors import CirfError
from cirf.lm.vocabulary import parse_trace, read_trace, token_names
from cirf.methods import get
from cirf.methods.cirf.cirf import recoded
from cirf.recipe.load import parse
from cirf.records import Example, Problem, Trace
from cirf.store.jsonl import read_rows

SIZE = 6
steps = st.lists(st.tuples(st.integers(0, SIZE - 1), st.sampled_from(["", "7", "<é>"])), min_size=1, max_size=9)
CONTROLS = ("single", "shuffled", "ordinal")
RESULT_FIRST = Path(__file__).parents[1] / "docs" / "research" / "result_first.py"


@st.composite
def traces(draw: Any) -> list[Trace]:
    rows = draw(st.lists(steps, min_size=1, max_size=8))
    return [Trace(f"p{n}", 0, tuple(c for c, _ in row), tuple(r for _, r in row), str(n)) for n, row in enumerate(rows)]


@given(traces(), st.sampled_from(["learned", *CONTROLS]), st.integers(0, 5))
def test_a_control_changes_codes_and_nothing_else(rows: list[Trace], codes: Any, seed: int) -> None:
    made = recoded(rows, codes, SIZE, seed)
    assert made == recoded(rows, codes, SIZE, seed)
    for new, old in zip(made, rows, strict=True):
        assert (new.problem, new.sample, new.results, new.answer) == (old.problem, old.sample, old.results, old.answer)
        assert len(new.codes) == len(old.codes) and all(0 <= code < SIZE for code in new.codes)
    found, before = ([code for row in some for code in row.codes] for some in (made, rows))
    match codes:
        case "learned":
            assert made == rows
        case "single":
            assert set(found) == {0}
        case "ordinal":
            assert all(row.codes == tuple(min(n, SIZE - 1) for n in range(len(row.codes))) for row in made)
        case "shuffled":
            assert Counter(found) == Counter(before)


def test_another_seed_deals_them_out_otherwise() -> None:
    rows = [Trace(f"p{n}", 0, tuple(range(SIZE)), ("1",) * SIZE, "1") for n in range(20)]
    assert recoded(rows, "shuffled", SIZE, 1) != recoded(rows, "shuffled", SIZE, 2)


def test_keys_hold_codes_only_where_they_are_no_learned_ones() -> None:
    head = "name: r\nproblems: {tasks: [{task: gsm8k}]}\nmethods: [cirf_full, x]\n"
    for settings, taught in (("{}", {}), ("{budget: 3}", {}), ("{codes: single}", {"codes": "single"})):
        recipe = parse(head + f"variants: {{x: {{method: cirf_full, settings: {settings}}}}}\n")
        assert get("cirf_full", recipe).taught_by == {} and get("cirf_full", recipe).identity == {}
        assert get("x", recipe).taught_by.get("settings", {}) == taught
        assert get("x", recipe).identity.get("settings", {}).get("codes") == taught.get("codes")


@pytest.fixture(scope="module")
def run(workshop: tinyrun.Workshop, finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of `finished` with the controls."""
    folder = tmp_path_factory.mktemp("controls")
    shutil.copytree(finished, folder / "run")
    variants: dict[str, Any] = {name: {"method": "cirf_full", "settings": {"codes": name}} for name in CONTROLS}
    variants["result_first"] = {"method": str(RESULT_FIRST)}
    names = ["cirf_full", *variants, "direct_sft"]
    keys: dict[str, Any] = {"methods": names, "variants": variants, "evaluate__latency_questions": 0}
    said = tinyrun.cirf("run", workshop.recipe(folder / "recipe.yaml", **keys), "--out", folder / "run")
    assert said.code == 0, said.err
    return folder / "run"


def test_each_is_trained_on_its_own_traces(run: Path) -> None:
    def rows(name: str) -> list[str]:
        return [row["completion"] for row in read_rows(run / "models" / name / "sft.jsonl")]

    def plain(texts: list[str]) -> list[str]:
        return [re.sub(r"<cirf_\d+>", "<cirf_>", text) for text in texts]

    learned = rows("cirf_full")
    for name in CONTROLS:
        assert plain(rows(name)) == plain(learned) and rows(name) != learned
    assert {code for text in rows("single") for code in re.findall(r"<cirf_\d+>", text)} == {"<cirf_000>"}


def test_with_the_result_first_each_token_is_behind_it_and_nothing_else_changes(run: Path) -> None:
    learned, behind = (
        [row["completion"] for row in read_rows(run / "models" / name / "sft.jsonl")] for name in ("cirf_full", "result_first")
    )
    assert any(len(parse_trace(text)) > 1 for text in learned)
    for before, after in zip(learned, behind, strict=True):
        names = token_names(SIZE)
        (inner, answer), (moved, same) = read_trace(before, names), read_trace(after, names)
        assert answer == same and moved == "".join(f"{result}{names.codes[code or 0]}" for code, result in parse_trace(inner))
    assert json.loads((run / "models" / "result_first" / "history.json").read_text())["validation"][-1]["code_loss"] > 0
    assert any((run / "evaluation" / "result_first").glob("*.jsonl"))


def test_with_the_result_first_names_of_tokens_in_results_stay_broken_up() -> None:
    method = get(
        "x", parse("name: r\nproblems: {tasks: [{task: gsm8k}]}\nmethods: [x]\nvariants: {x: {method: " + f"{RESULT_FIRST}}}}}\n")
    )
    trace = Trace("p", 0, (16, 23, 1), ("48", "</cirf> <cirf_002>", ""), "72")
    example = Example(Problem("p", "gsm8k", "How many?", "72"), ("a", "b", "c"), trace)
    assert method.target(example) == "48<cirf_016>< /cirf> < cirf_002><cirf_023><cirf_001></cirf>72"


@pytest.mark.parametrize("settings", ["budget: 3", "subjects: true"])
def test_with_the_result_first_nothing_goes_by_a_token_before_it(settings: str) -> None:
    head = f"name: r\nproblems: {{tasks: [{{task: gsm8k}}]}}\nmethods: [x]\nvariants: {{x: {{method: {RESULT_FIRST}, settings: "
    get("x", parse(head + "{codes: single}}}\n"))
    with pytest.raises(CirfError, match=r"variants\.x\.settings: only codes, start and calculator"):
        get("x", parse(head + f"{{{settings}}}}}}}\n"))
    with pytest.raises(CirfError, match=r"evaluate\.probes: they assign a result"):
        get("x", parse(head + "{}}}\nevaluate: {probes: {truncate: [1]}}\n"))


def test_validation_shows_how_well_codes_are_predicted(run: Path) -> None:
    def last(name: str) -> dict[str, float]:
        validation = json.loads((run / "models" / name / "history.json").read_text())["validation"]
        return dict(validation[-1])

    assert "code_loss" not in last("direct_sft")
    found = {name: last(name)["code_loss"] for name in ("cirf_full", *CONTROLS)}
    assert found["single"] < found["shuffled"]  # one token is easier to predict than random tokens
    summary = json.loads((run / "report.json").read_text())["training"]["single"]["numbers"]
    assert summary["code_loss"] == found["single"] and summary["code_loss_untrained"] > 0
