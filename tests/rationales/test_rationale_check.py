"""What ``cirf check`` counts."""

import json

import pytest

from cirf.rationales.check import check
from cirf.recipe import schema
from cirf.records import Problem


def words(text: str) -> int:
    return len(text.split())


def run(problems, tasks, rationales=None, segments=None):
    return check(problems, rationales or schema.Rationales(), segments or schema.Segments(), schema.Results(), tasks, words)


def test_counts_by_hand(tasks) -> None:
    problems = [
        Problem("a", "sums", "How many?", "7", rationale="Step 1: she has 3\nStep 2: then 3 + 4 = 7"),
        Problem("b", "sums", "How many more?", "5", rationale="no marks here"),
        Problem("c", "sums", "How many less?", "5"),
        Problem("d", "picks", "Where?", "B", choices=("tree", "water"), rationale="Step 1: the answer is B"),
    ]
    found = run(problems, tasks, segments=schema.Segments(by="ordinal"))
    sums = found.tasks["sums"]
    assert (sums.problems, sums.usable, sums.rationales) == (3, 1, 2)
    assert sums.unusable == {"no rationale": 1, "no segment": 1}
    assert sums.share_segmentable == 0.5
    assert sums.rationale_tokens == words(problems[0].rationale) + 1 == 14
    assert sums.trace_tokens == 2 + 2 + 1 + 1 + 1  # delimiters, codes, one result, answer, end
    assert sums.speedup == 2.0
    assert found.total.problems == 4
    assert found.total.usable == 2
    assert found.total.steps["mean"] == 1.5
    assert list(found.tasks) == ["sums", "picks"]
    assert json.loads(json.dumps(found.to_dict()))["total"]["usable"] == 2


def test_nothing_usable_is_told_not_raised(tasks) -> None:
    found = run([Problem("c", "sums", "How many?", "5")], tasks)
    assert found.total.unusable == {"no rationale": 1}
    assert (found.total.rationale_tokens, found.total.trace_tokens, found.total.speedup) == (None, None, None)
    assert found.total.share_segmentable is None


@pytest.mark.parametrize("kept", [1, 2])
def test_a_problem_with_one_good_rationale_is_usable(kept: int, tasks, write) -> None:
    path = write("r.jsonl", [{"id": "a", "rationale": "no marks"}, {"id": "a", "rationale": "Step 1: 3 + 4 = 7"}])
    problems = [Problem("a", "sums", "How many?", "7")]
    rationales = schema.Rationales(files=(path,), per_problem=kept)
    found = run(problems, tasks, rationales, schema.Segments(by="ordinal"))
    assert found.total.usable == kept - 1
    assert found.total.unusable == ({"no segment": 1} if kept == 1 else {})
