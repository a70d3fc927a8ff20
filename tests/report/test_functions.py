"""The functional tokens of a run: what follows what, what lies near what, whose answers are right."""

import re
from collections import Counter

import numpy as np
import pytest
import synthetic
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file
from sklearn.metrics.pairwise import cosine_similarity

from cirf.errors import CirfError
from cirf.report.collect import collect
from cirf.report.functions import SEGMENTS, code_accuracy, shorten
from cirf.report.neighbours import MOST, read_neighbours
from cirf.report.transitions import count_transitions
from cirf.rows import read_rows

CODES = st.lists(st.lists(st.integers(0, 6), max_size=8), max_size=12)


def test_the_worked_example():
    told = count_transitions([[3, 7], [3, 3, 7]])
    assert told == {"traces": 2, "pairs": [[3, 7, 2], [3, 3, 1]], "first": [[3, 2]], "last": [[7, 2]]}
    assert count_transitions([]) == {"traces": 0, "pairs": [], "first": [], "last": []}


@given(CODES)
def test_transitions_sum_to_steps_minus_traces_and_by_code_to_its_steps(traces):
    told = count_transitions(traces)
    held = [codes for codes in traces if codes]
    steps = Counter(code for codes in held for code in codes)
    assert told["traces"] == len(held)
    assert sum(count for *_, count in told["pairs"]) == steps.total() - len(held)
    for place, ends in ((0, told["last"]), (1, told["first"])):
        found = Counter(dict(map(tuple, ends)))
        for pair in told["pairs"]:
            found[pair[place]] += pair[2]
        assert found == steps


def test_transitions_of_a_run_are_those_of_its_training_traces_as_text(finished, data):
    training = {row["id"] for row in read_rows(finished / "problems" / "train.jsonl")}
    rows = [row for row in read_rows(finished / "traces" / "traces.jsonl") if row["problem"] in training]
    text = "\n".join("".join(f"<{code}>" for code in row["codes"]) for row in rows)
    told, book = data["codebook"]["transitions"], data["codebook"]
    for before, after, count in told["pairs"]:
        assert len(re.findall(rf"<{before}>(?=<{after}>)", text)) == count
    assert sum(count for *_, count in told["pairs"]) == len(re.findall(r"><", text)) == book["segments"] - len(rows)
    assert told["traces"] == len(rows)
    counts = [count for *_, count in told["pairs"]]
    assert counts == sorted(counts, reverse=True)


def test_neighbours_are_those_of_an_independent_cosine(finished, data):
    codes = load_file(finished / "codebook-24" / "codebook.safetensors")["codes"]
    cosines = cosine_similarity(codes.astype(np.float64))
    for row in data["codebook"]["codes"]:
        mine = cosines[row["code"]]
        order = [int(other) for other in np.argsort(-mine, kind="stable") if other != row["code"]][:MOST]
        assert [other for other, _ in row["neighbours"]] == order
        assert [value for _, value in row["neighbours"]] == pytest.approx([mine[other] for other in order], abs=1e-6)


def test_a_vector_of_zeros_is_near_to_nothing_and_damage_is_named(tmp_path):
    assert read_neighbours(tmp_path, 3) == {}
    save_file({"codes": np.array([[0, 0], [1, 0], [1, 1]], np.float32)}, tmp_path / "codebook.safetensors")
    found = read_neighbours(tmp_path, 3)
    assert found[0] == [[1, 0.0], [2, 0.0]] and found[1][0] == [2, 0.707107]
    with pytest.raises(CirfError, match=r"codebook\.safetensors: holds codes of shape \(3, 2\), not 4"):
        read_neighbours(tmp_path, 4)
    (tmp_path / "codebook.safetensors").write_bytes(b"nonsense")
    with pytest.raises(CirfError, match=r"codebook\.safetensors: cannot be read"):
        read_neighbours(tmp_path, 3)


def test_answers_with_a_code_are_counted_once_a_question(finished, data):
    rows = [row for t in ("svamp", "coin_flip") for row in read_rows(finished / "evaluation" / "cirf_full" / f"{t}.jsonl")]
    for told in data["codebook"]["codes"]:
        marks = [row["correct"] for row in rows if f"<cirf_{told['code']:03d}>" in row["output"]]
        if not marks:
            assert told["answers"] is None
            continue
        assert told["answers"]["questions"] == told["answers"]["answers"] == len(marks)
        assert told["answers"]["right"] == pytest.approx(sum(marks) / len(marks))
        assert told["answers"]["interval"][0] <= told["answers"]["right"] <= told["answers"]["interval"][1]


def test_of_several_runs_a_question_weighs_as_one():
    row = {"id": "a", "output": "<cirf><cirf_002>3<cirf_002>4</cirf>4", "correct": True}
    rows = [row, row | {"correct": False}, row | {"id": "b"}, row | {"id": "c", "output": "4"}]
    told = code_accuracy({"svamp": rows})
    assert list(told) == [2]
    assert (told[2]["questions"], told[2]["answers"], told[2]["right"]) == (2, 3, 0.75)


def test_steps_of_a_code_are_different_ones_of_their_tasks(data):
    for row in data["codebook"]["codes"]:
        assert len(row["segments"]) == min(row["distinct"], SEGMENTS) == len({tuple(one) for one in row["segments"]})
        assert {task for task, _ in row["segments"]} <= row["tasks"].keys()
        assert row["distinct"] <= row["count"] == sum(row["tasks"].values())
    assert any(row["distinct"] > SEGMENTS for row in data["codebook"]["codes"])
    assert shorten("abc", 3) == "abc" and shorten("ab cd", 3) == "ab…"


def test_without_vectors_the_rest_is_told(run):
    (run / f"codebook-{synthetic.SIZE}" / "codebook.safetensors").unlink()
    book = collect(run, environment={})["codebook"]
    assert all(row["neighbours"] == [] for row in book["codes"]) and book["transitions"]["pairs"]
