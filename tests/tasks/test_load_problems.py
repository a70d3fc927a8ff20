"""All problems of a run: sources, draws, splits, leaks, ids."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cirf.errors import CirfError
from cirf.recipe.schema import Problems
from cirf.records import Problem
from cirf.tasks.loading.leaks import NEAR, WORDS, near, overlap, runs, seen, settle
from cirf.tasks.loading.load import LoadedProblems, load_problems, source_files
from cirf.tasks.loading.questions import question_key


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def arith(first: int, count: int) -> list[dict[str, Any]]:
    return [{"question": f"Ann has {n} pens and buys 2. How many?", "final_ans": str(n + 2)} for n in range(first, first + count)]


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    """A data folder with four benchmarks in the columns of the hub."""
    write(tmp_path / "multiarith/train.jsonl", arith(0, 40))
    write(tmp_path / "multiarith/test.jsonl", arith(100, 10))
    gsm = [{"question": f"Bob has {n} cups.", "answer": f"He has {n} = <<{n}={n}>>{n}.\n#### {n}"} for n in range(30)]
    write(tmp_path / "gsm8k/train.jsonl", gsm[:20])
    write(tmp_path / "gsm8k/test.jsonl", gsm[20:])
    coin = [
        {"inputs": f"Q: A coin is heads up. p{n} flips the coin.  Is the coin still heads up? ", "targets": "no"}
        for n in range(30)
    ]
    write(tmp_path / "coin_flip/train.jsonl", coin[:20])
    write(tmp_path / "coin_flip/test.jsonl", coin[20:])
    pick = [
        {"id": f"own-{n}", "question": f"Where is {n}?", "choices": {"label": ["A", "B"], "text": ["x", "y"]}, "answerKey": "B"}
        for n in range(30)
    ]
    write(tmp_path / "commonsense_qa/train.jsonl", pick[:20])
    write(tmp_path / "commonsense_qa/validation.jsonl", pick[20:])
    return tmp_path


def load(data: Path | None, *tasks: dict[str, Any], seed: int = 1, **keys: Any) -> LoadedProblems:
    section = Problems.model_validate({"tasks": list(tasks), "data": None if data is None else str(data), **keys})
    return load_problems(section, seed)


def test_mirror_folder(mirror: Path) -> None:
    loaded = load(
        mirror,
        {"task": "multiarith", "test": 4},
        {"task": "gsm8k"},
        {"task": "coin_flip"},
        {"task": "commonsense_qa"},
        validation=0.1,
    )
    assert {table: len(rows) for table, rows in loaded.test.items()} == {
        "multiarith": 4,
        "gsm8k": 10,
        "coin_flip": 10,
        "commonsense_qa": 10,
    }
    assert [p.id for p in loaded.test["multiarith"]] == [f"multiarith/test/{n}" for n in range(4)]
    assert loaded.test["commonsense_qa"][0].id == "commonsense_qa/test/own-20"
    assert len(loaded.train) == 90 and len(loaded.validation) == 10
    rows = [*loaded.train, *loaded.validation, *(p for rows in loaded.test.values() for p in rows)]
    assert len({p.id for p in rows}) == len(rows)
    assert all(p.id.startswith(f"{p.task}/") for p in rows)
    counts = {"task": "multiarith", "available_train": 40, "available_test": 10, "train": 36, "validation": 4, "test": 4}
    assert loaded.report["tasks"]["multiarith"] == counts
    assert json.loads(json.dumps(loaded.report)) == loaded.report
    assert loaded.report["leaks"] == [] and loaded.report["dropped"] == {} and loaded.report["warnings"] == []


def test_same_seed_same_problems(mirror: Path) -> None:
    def drawn(seed: int, train: int | None = 20) -> list[str]:
        return [p.id for p in load(mirror, {"task": "multiarith", "train": train}, seed=seed, validation=0.0).train]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)
    assert set(drawn(1, 10)) < set(drawn(1, 20)) < set(drawn(1, None))
    first = load(mirror, {"task": "multiarith"}, validation=0.25)
    again = load(mirror, {"task": "multiarith"}, validation=0.25)
    assert first == again
    assert len(first.validation) == 10
    assert not {p.id for p in first.train} & {p.id for p in first.validation}


def test_a_table_keeps_its_rows_whatever_else_is_in_the_recipe(mirror: Path) -> None:
    alone = load(mirror, {"task": "multiarith", "train": 10})
    beside = load(mirror, {"task": "gsm8k"}, {"task": "multiarith", "train": 10})
    assert [p for p in beside.train if p.task == "multiarith"] == alone.train


def test_leaks_are_reported_and_dropped_from_train_alone(mirror: Path) -> None:
    test = arith(100, 10)
    shouted = {"question": "  Q: " + test[7]["question"].upper().replace(" ", "   ").rstrip("?.") + " !", "final_ans": "109"}
    write(mirror / "multiarith/train.jsonl", [*arith(0, 5), test[3], shouted, arith(0, 1)[0]])
    loaded = load(mirror, {"task": "multiarith", "test": 5}, validation=0.0)
    assert loaded.report["leaks"] == [["multiarith/train/5", "multiarith/test/3"], ["multiarith/train/6", "multiarith/test/7"]]
    assert loaded.report["dropped"] == {"question is also in the test": 2, "the question appears twice": 1}
    assert [p.id for p in loaded.train] == [f"multiarith/train/{n}" for n in range(5)]
    assert len(loaded.test["multiarith"]) == 5
    assert [(row.problem, row.stage) for row in loaded.dropped] == [(f"multiarith/train/{n}", "problems") for n in (5, 6, 7)]


def test_training_problems_may_join_the_test_and_are_not_trained_on(mirror: Path) -> None:
    plain = load(mirror, {"task": "multiarith"}, validation=0.25)
    found = load(mirror, {"task": "multiarith", "test": 3, "test_from_train": 6}, validation=0.25)
    ids = [problem.id for problem in found.test["multiarith"]]
    assert ids[:3] == [problem.id for problem in plain.test["multiarith"][:3]] and len(set(ids)) == 9
    assert all(name.startswith("multiarith/train/") for name in ids[3:])
    learnt = {problem.id for problem in (*found.train, *found.validation)}
    assert not learnt & set(ids) and len(learnt) == len(plain.train) + len(plain.validation) - 6
    assert found.report["leaks"] == [] and found.report["warnings"] == []
    rows = [*arith(0, 5), *arith(0, 5)]  # every question twice: the twin of one that is tested is not learnt
    write(mirror / "multiarith/train.jsonl", rows)
    twins = load(mirror, {"task": "multiarith", "test_from_train": 2}, validation=0.0)
    asked = {problem.question for problem in twins.test["multiarith"]}
    assert len(twins.train) == 3 and not asked & {problem.question for problem in twins.train}
    assert load(mirror, {"task": "multiarith", "test": 4, "test_from_train": 50}).report["warnings"] == [
        "multiarith: 50 test rows of the training split were requested, 5 exist"
    ]


def test_leaks_are_found_across_tasks(mirror: Path, tmp_path: Path) -> None:
    question = arith(103, 1)[0]["question"]
    own = write(tmp_path / "own.jsonl", [{"question": question, "answer": "1"}, {"question": "fresh", "answer": "2"}])
    test = write(tmp_path / "own_test.jsonl", [{"question": "Bob has 3 cups.", "answer": "3"}])
    loaded = load(
        mirror,
        {"task": "jsonl", "name": "mine", "train_file": str(own), "test_file": str(test)},
        {"task": "multiarith"},
        {"task": "gsm8k"},
    )
    assert loaded.report["leaks"] == [["mine/train/0", "multiarith/test/3"], ["gsm8k/train/3", "mine/test/0"]]


def test_the_same_question_with_other_options_is_not_twice(mirror: Path) -> None:
    rows = [
        {"id": f"{n}", "question": "Where?", "choices": {"label": ["A", "B"], "text": ["x", second]}, "answerKey": "A"}
        for n, second in enumerate(["y", "z", "y"])
    ]
    write(mirror / "commonsense_qa/train.jsonl", rows)
    loaded = load(mirror, {"task": "commonsense_qa"}, validation=0.0)
    assert [p.id for p in loaded.train] == ["commonsense_qa/train/0", "commonsense_qa/train/1"]


def test_rows_of_one_question_with_other_options_are_questions_of_their_own(tmp_path: Path) -> None:
    rows = [{"question": "Which is right?", "choices": [f"x{n}", f"y{n}"][:: 1 - 2 * (n % 2)], "answer": "A"} for n in range(10)]
    own = write(tmp_path / "own.jsonl", [*rows, rows[0] | {"choices": ["y0", "x0"], "answer": "B"}])
    loaded = load(None, {"task": "jsonl", "train_file": str(own), "test": 2}, validation=0.0)
    assert (len(loaded.train), len(loaded.test["jsonl"])) == (8, 2) and not loaded.report["leaks"]


def test_duplicate_ids_in_a_published_data_set_give_way_to_row_numbers(mirror: Path) -> None:
    rows = [
        {"id": "same", "question": f"Where {n}?", "choices": {"label": ["A", "B"], "text": ["x", "y"]}, "answerKey": "A"}
        for n in range(3)
    ]
    write(mirror / "commonsense_qa/train.jsonl", rows)
    assert [p.id for p in load(mirror, {"task": "commonsense_qa"}, validation=0.0).train] == [
        f"commonsense_qa/train/{n}" for n in range(3)
    ]


def test_generated_tasks_need_no_data() -> None:
    loaded = load(
        None,
        {"task": "made_coin_flip", "train": 50, "test": 20, "options": {"max_people": 3}},
        {"task": "made_coin_flip", "name": "long", "train": 30, "test": 10, "options": {"min_people": 4, "max_people": 6}},
        {"task": "chain_sum", "train": 20, "test": 10},
        validation=0.1,
    )
    assert {table: len(rows) for table, rows in loaded.test.items()} == {"made_coin_flip": 20, "long": 10, "chain_sum": 10}
    assert len(loaded.train) == 90 and len(loaded.validation) == 10
    assert loaded.report["leaks"] == []
    assert loaded.test["long"][0].task == "long"
    assert all(p.rationale for p in loaded.train)


def test_rows_of_a_question_that_is_cut_off_are_reported(tmp_path: Path) -> None:
    rows = [{"question": f"What is {n % 4} and 1?", "answer": str(n % 4 + 1)} for n in range(12)]
    path = write(tmp_path / "own.jsonl", rows)
    found = load(None, {"task": "jsonl", "name": "own", "train_file": str(path)}, validation=0.0)
    assert (len(found.train), len(found.test["own"])) == (3, 1)
    assert (
        sorted(row.reason for row in found.dropped) == ["question is also in the test"] * 2 + ["the question appears twice"] * 6
    )


def test_a_question_that_comes_again_with_another_answer_is_reported(tmp_path: Path) -> None:
    rows = [{"question": f"What is {n} and 1?", "answer": str(n + 1 + more)} for n in range(6) for more in (0, n // 4)]
    found = load(None, {"task": "jsonl", "train_file": str(write(tmp_path / "own.jsonl", rows)), "test": 1}, validation=0.0)
    twice = {reason: count for reason, count in found.report["dropped"].items() if "twice" in reason}
    assert set(twice) == {"the question appears twice", "the question appears twice, with another answer"}


def test_a_users_file_is_cut_by_the_seed(tmp_path: Path) -> None:
    rows = [{"question": f"q{n // 2}", "answer": str(n // 2), "id": f"r{n}"} for n in range(100)]  # every question twice
    path = write(tmp_path / "own.jsonl", rows)

    def cut(seed: int, **keys: Any) -> LoadedProblems:
        return load(None, {"task": "jsonl", "name": "own", "train_file": str(path), **keys}, seed=seed, validation=0.0)

    loaded = cut(1, test=7)
    assert len(loaded.test["own"]) == 7 and len(loaded.train) == 43
    assert loaded.report["leaks"] == []
    assert loaded.report["dropped"] == {"question is also in the test": 7, "the question appears twice": 43}
    assert not {p.question for p in loaded.train} & {p.question for p in loaded.test["own"]}
    assert cut(1, test=7) == loaded
    assert cut(2, test=7).test != loaded.test
    assert len(cut(1).test["own"]) == 10
    with pytest.raises(CirfError, match="too few different questions"):
        cut(1, test=50)


def test_too_few_rows_is_a_warning(mirror: Path) -> None:
    loaded = load(mirror, {"task": "multiarith", "train": 1000, "test": 200})
    assert loaded.report["warnings"] == [
        "multiarith: 1000 train rows were requested, 40 exist",
        "multiarith: 200 test rows were requested, 10 exist",
    ]


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_validation_shares(mirror: Path, share: float) -> None:
    loaded = load(mirror, {"task": "multiarith"}, validation=share)
    expected = {0.0: 0, 0.01: 1, 0.5: 20, 0.99: 39}[share]
    assert (len(loaded.validation), len(loaded.train)) == (expected, 40 - expected)


def _drop_column(mirror: Path) -> None:
    write(mirror / "multiarith/train.jsonl", [*arith(0, 2), {"question": "no answer"}])


def _bad_answer(mirror: Path) -> None:
    write(mirror / "multiarith/train.jsonl", [{"question": "q", "final_ans": "none"}])


def _bad_type(mirror: Path) -> None:
    write(mirror / "multiarith/train.jsonl", [{"question": None, "final_ans": "1"}])


def _no_file(mirror: Path) -> None:
    (mirror / "multiarith/test.jsonl").unlink()


def _torn(mirror: Path) -> None:
    (mirror / "multiarith/train.jsonl").write_text('{"question": "q", "fin', encoding="utf-8")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_drop_column, "the column 'final_ans' that multiarith rows have is missing (1: line 3)"),
        (_bad_answer, "line 1: not a row of multiarith (final_ans: no number)"),
        (_bad_type, "line 1: not a row of multiarith"),
        (_no_file, "no such file; the data folder (--data) must hold multiarith/test.jsonl"),
        (_torn, "line 1: not valid JSON"),
    ],
)
def test_a_spoilt_mirror_gets_one_line(mirror: Path, spoil: Callable[[Path], None], message: str) -> None:
    spoil(mirror)
    with pytest.raises(CirfError) as caught:
        load(mirror, {"task": "multiarith"})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ({"task": "multiarith", "train_file": "x.jsonl"}, "train_file is for jsonl tasks"),
        ({"task": "multiarith", "options": {"people": 3}}, "no option 'people'"),
        ({"task": "multarith"}, "the nearest is 'multiarith'"),
    ],
)
def test_wrong_entries(mirror: Path, task: dict[str, Any], message: str) -> None:
    with pytest.raises(CirfError, match=message):
        load(mirror, task)


def test_files_that_are_read(mirror: Path, tmp_path: Path) -> None:
    own = write(tmp_path / "own.jsonl", [{"question": "q", "answer": "1"}])
    section = Problems.model_validate(
        {
            "data": str(mirror),
            "tasks": [
                {"task": "commonsense_qa"},
                {"task": "chain_sum"},
                {"task": "jsonl", "name": "own", "train_file": str(own)},
            ],
        }
    )
    assert source_files(section) == {
        "commonsense_qa/train": mirror / "commonsense_qa/train.jsonl",
        "commonsense_qa/test": mirror / "commonsense_qa/validation.jsonl",
        "own/train": own,
    }
    assert source_files(Problems.model_validate({"tasks": [{"task": "gsm8k"}]})) == {}


def test_the_hub_path_reads_a_data_set_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``datasets`` reads a folder of parquet files as it reads a hub id; no network is involved."""
    import dataclasses

    from datasets import Dataset

    import cirf.tasks.benchmarks.public as module
    from cirf.tasks.task import HubSource

    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "made-arith"
    folder.mkdir()
    for split, rows in (("train", arith(0, 6)), ("test", arith(50, 3))):
        Dataset.from_list(rows).to_parquet(str(folder / f"{split}.parquet"))
    monkeypatch.setattr(module, "MULTIARITH", dataclasses.replace(module.MULTIARITH, hub=HubSource(str(folder))))
    loaded = load(None, {"task": "multiarith"}, validation=0.0)
    assert [p.answer for p in loaded.train] == [str(n + 2) for n in range(6)]
    assert [p.id for p in loaded.test["multiarith"]] == [f"multiarith/test/{n}" for n in range(3)]


def test_an_unreachable_hub_gets_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import dataclasses

    import cirf.tasks.benchmarks.public as module
    from cirf.tasks.task import HubSource

    monkeypatch.setattr(
        module, "MULTIARITH", dataclasses.replace(module.MULTIARITH, hub=HubSource(str(tmp_path / "nothing-here")))
    )
    with pytest.raises(CirfError, match=r"multiarith: cannot get .* from the hub .* --data") as caught:
        load(None, {"task": "multiarith"})
    assert "\n" not in str(caught.value)


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


def test_every_task_is_distinguished_and_templates_as_they_are() -> None:
    template = "A coin is heads up. {} does not flip the coin. {} flips the coin. Is the coin still heads up?"
    train = problems([template.format("Ann", "Bob"), template.format("Cy", "Di")], "train")
    test = {"coin": problems([template.format("Ed", "Flo")], "test"), "sums": problems(["How much is two and two?"], "test")}
    summary = overlap(train, test, [["x/train/1", "sums/test/0"], ["x/train/2", "sums/test/0"]], 6)
    assert summary["coin"]["near"] == 1 and 0 < summary["coin"]["largest_share"] < 1 and summary["coin"]["exact"] == 0
    (example,) = summary["coin"]["examples"]
    assert example["train"] == "t/train/0" and example["test"] == "t/test/0"
    assert summary["sums"] == {"test": 1, "exact": 2, "short": 0, "near": 0, "largest_share": 0.0, "examples": []}
    assert json.loads(json.dumps(summary)) == summary


def test_questions_that_were_trained_on_before_are_counted_by_the_test() -> None:
    train = problems(["What is 1 + 1?", "What is 1 + 1?", "And 2 + 2?"], "train")
    test = {"t": problems(["what is 1 + 1", "What is 3 + 3?", "And 2 + 2 ?"], "test")}
    summary = seen(train, test)["t"]
    assert (summary["test"], summary["exact"], summary["short"], summary["near"]) == (3, 2, 3, 0)


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
    assert one.near_duplicates == "report"
    loaded = load_problems(one, 1)
    summary = settle(loaded, "report")
    assert summary.train == loaded.train and summary.dropped == loaded.dropped
    row = summary.report["overlap"]["tasks"]["own"]
    assert (row["test"], row["near"], row["exact"], row["short"]) == (2, 1, 1, 1) and summary.report["overlap"]["words"] == WORDS
    assert row["largest_share"] > 0.5 and row["examples"][0]["test"] == "own/test/0"

    untrained = settle(loaded, "drop", trained=False)
    assert untrained.train == loaded.train and untrained.report["overlap"]["tasks"] == {}

    less = settle(loaded, "drop")
    gone = {row.problem for row in less.dropped if row.reason == NEAR}
    assert gone and {problem.id for problem in loaded.train} - {problem.id for problem in less.train} == gone
    assert near(less.train, less.test["own"]) == []
    assert less.report["dropped"][NEAR] == len(gone) and less.report["tasks"]["own"]["train"] == len(less.train)
    assert less.report["overlap"]["tasks"] == summary.report["overlap"]["tasks"]  # of what was there before
    assert loaded.report["tasks"]["own"]["train"] == len(loaded.train)
