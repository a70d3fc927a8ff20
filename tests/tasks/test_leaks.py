import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cirf.recipe import Problems
from cirf.records import Problem
from cirf.tasks.leaks import NEAR, WORDS, near, overlap, runs, seen, settle
from cirf.tasks.load import load_problems
from cirf.tasks.questions import question_key

SENTENCES = st.lists(st.sampled_from(["a", "b", "c", "D", "e,", "3.5"]), min_size=0, max_size=9).map(" ".join)


def problems(texts: list[str], where: str) -> list[Problem]:
    return [Problem(f"t/{where}/{place}", "t", text, "1") for place, text in enumerate(texts)]


def by_hand(question: str, length: int) -> list[str]:
    words = question_key(question).split()
    return [" ".join(words[start : start + length]) for start in range(len(words) - length + 1)]


@given(st.lists(SENTENCES, max_size=6), st.lists(SENTENCES, max_size=6), st.integers(1, 4))
def test_near_questions_are_those_that_brute_force_finds(train: list[str], test: list[str], length: int) -> None:
    expected = {}
    for place, question in enumerate(test):
        own = by_hand(question, length)
        shared = [run for run in own if any(run in by_hand(other, length) for other in train)]
        if shared:
            most = max(sum(run in by_hand(other, length) for run in own) for other in train)
            expected[f"t/test/{place}"] = (len(shared) / len(own), shared[0], most)
    found = {pair.test: pair for pair in near(problems(train, "train"), problems(test, "test"), length)}
    assert found.keys() == expected.keys()
    for name, pair in found.items():
        share, words, most = expected[name]
        assert (pair.share, pair.words) == (pytest.approx(share), words)
        other = by_hand(train[int(pair.train.rpartition("/")[2])], length)
        assert sum(run in other for run in by_hand(test[int(name.rpartition("/")[2])], length)) == most


def test_case_punctuation_and_spacing_do_not_hide_a_shared_run() -> None:
    words = "Tom has 3.5 boxes of red apples and sells two of them to Ann every day"
    assert len(words.split()) == 16 and len(runs(words)) == 4
    other = "Q: TOM has 3.5 boxes, of red apples;  and sells two of them to Bob!"
    assert len(runs(other)) == 2
    (pair,) = near(problems([words], "train"), problems([other], "test"))
    assert pair.words == "tom has 3.5 boxes of red apples and sells two of them to"
    assert pair.share == 0.5
    assert near(problems(["one two three"], "train"), problems(["one two three"], "test")) == []  # too short to say


def test_every_task_is_told_apart_and_templates_as_they_are() -> None:
    template = "A coin is heads up. {} does not flip the coin. {} flips the coin. Is the coin still heads up?"
    train = problems([template.format("Ann", "Bob"), template.format("Cy", "Di")], "train")
    test = {"coin": problems([template.format("Ed", "Flo")], "test"), "sums": problems(["How much is two and two?"], "test")}
    told = overlap(train, test, [["x/train/1", "sums/test/0"], ["x/train/2", "sums/test/0"]], 6)
    assert told["coin"]["near"] == 1 and 0 < told["coin"]["largest_share"] < 1 and told["coin"]["exact"] == 0
    (example,) = told["coin"]["examples"]
    assert example["train"] == "t/train/0" and example["test"] == "t/test/0"
    assert told["sums"] == {"test": 1, "exact": 2, "short": 0, "near": 0, "largest_share": 0.0, "examples": []}
    assert json.loads(json.dumps(told)) == told


def test_questions_that_were_trained_on_before_are_counted_by_the_test() -> None:
    train = problems(["What is 1 + 1?", "What is 1 + 1?", "And 2 + 2?"], "train")
    test = {"t": problems(["what is 1 + 1", "What is 3 + 3?", "And 2 + 2 ?"], "test")}
    told = seen(train, test)["t"]
    assert (told["test"], told["exact"], told["short"], told["near"]) == (3, 2, 3, 0)


LONG = "{} goes to the market with {} baskets of fresh plums and comes home with {} of them on a {}"


def section(tmp_path: Any, **keys: Any) -> Problems:
    def write(name: str, questions: list[str]) -> str:
        path = tmp_path / name
        path.write_text("".join(json.dumps({"question": text, "answer": str(n)}) + "\n" for n, text in enumerate(questions)))
        return str(path)

    days = ("sunny day", "rainy day", "cold day", "short day")
    train = [LONG.format("Ann", 3, n, day) for n, day in enumerate(days)] + [f"What is {n} and {n}?" for n in range(6)]
    test = ["Bob " + LONG.format("Ann", 3, 1, "foggy day"), "What is 0 and 0?"]
    files = {"train_file": write("train.jsonl", train), "test_file": write("test.jsonl", test)}
    return Problems.model_validate({"tasks": [{"task": "jsonl", "name": "own", **files}], "validation": 0.0, **keys})


def test_near_questions_stay_unless_the_recipe_drops_them(tmp_path: Any) -> None:
    one = section(tmp_path)
    assert one.near == "report"
    loaded = load_problems(one, 1)
    told = settle(loaded, "report")
    assert told.train == loaded.train and told.dropped == loaded.dropped
    row = told.report["overlap"]["tasks"]["own"]
    assert (row["test"], row["near"], row["exact"], row["short"]) == (2, 1, 1, 1) and told.report["overlap"]["words"] == WORDS
    assert row["largest_share"] > 0.5 and row["examples"][0]["test"] == "own/test/0"

    untrained = settle(loaded, "drop", trained=False)
    assert untrained.train == loaded.train and untrained.report["overlap"]["tasks"] == {}

    less = settle(loaded, "drop")
    gone = {row.problem for row in less.dropped if row.reason == NEAR}
    assert gone and {problem.id for problem in loaded.train} - {problem.id for problem in less.train} == gone
    assert near(less.train, less.test["own"]) == []
    assert less.report["dropped"][NEAR] == len(gone) and less.report["tasks"]["own"]["train"] == len(less.train)
    assert less.report["overlap"]["tasks"] == told.report["overlap"]["tasks"]  # of what was there before
    assert loaded.report["tasks"]["own"]["train"] == len(loaded.train)
