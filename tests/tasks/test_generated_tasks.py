"""Tasks made on the spot: right, deterministic, with disjoint splits and varied prose."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cirf.errors import CirfError
from cirf.records import Problem
from cirf.tasks import get, names
from cirf.tasks.generated import draw, settle

GENERATED = [name for name in names() if get(name).generated]


def made(name: str, split: str, seed: int, count: int, **options: int | float | bool) -> list[Problem]:
    task = get(name)
    return draw(task, name, split, seed, count, settle(task, options))


@pytest.fixture(scope="module")
def elsewhere() -> list[dict[str, str]]:
    """Twenty problems of each task as two processes make them that hash strings otherwise."""
    code = (
        "import json; from cirf.tasks import get; from cirf.tasks.generated import draw, settle; "
        f"print(json.dumps({{t.name: repr(draw(t, t.name, 'train', 3, 20, settle(t, {{}}))) for t in map(get, {GENERATED})}}))"
    )
    found = []
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
        found.append(json.loads(done.stdout))
    return found


@pytest.mark.parametrize("name", GENERATED)
def test_same_seed_same_problems_whatever_the_process(elsewhere: list[dict[str, str]], name: str) -> None:
    assert {repr(made(name, "train", 3, 20))} == {found[name] for found in elsewhere}
    assert made(name, "train", 3, 20) != made(name, "train", 4, 20)


@pytest.mark.parametrize("name", GENERATED)
def test_train_and_test_share_no_question_even_across_seeds(name: str) -> None:
    train = {problem.question for seed in (1, 2) for problem in made(name, "train", seed, 150)}
    test = {problem.question for seed in (1, 2) for problem in made(name, "test", seed, 50)}
    assert not train & test


@pytest.mark.parametrize("name", GENERATED)
def test_more_rows_begin_with_the_same_rows(name: str) -> None:
    few, many = made(name, "train", 1, 10), made(name, "train", 1, 30)
    assert many[:10] == few
    assert len({problem.question for problem in many}) == 30
    assert len({problem.id for problem in many}) == 30
    assert all(problem.id.startswith(f"{name}/train/") and problem.task == name for problem in many)


@pytest.mark.parametrize("name", GENERATED)
def test_the_last_result_of_the_worked_solution_is_the_answer(name: str) -> None:
    task = get(name)
    for problem in made(name, "train", 1, 200):
        results: tuple[str, ...] = ()
        for line in (problem.rationale or "").splitlines():
            results += (task.result(line, problem, results),)
        last = [result for result in results if result][-1]
        if task.answer == "yesno":
            assert (last == "heads") == (problem.answer == "yes"), problem
            assert all(results)
        elif name == "gsm_symbolic":  # written by others: a percentage keeps its sign
            assert task.parse(last, problem) is not None
        else:
            assert last == problem.answer, problem
            assert all(results)


def test_gsm_symbolic_solutions_end_in_the_answer() -> None:
    task = get("gsm_symbolic")
    right = 0
    for problem in made("gsm_symbolic", "train", 2, 200):
        results = [task.result(line, problem, ()) for line in (problem.rationale or "").splitlines()]
        last = ([result for result in results if result] or ["?"])[-1]
        right += task.equal(last.rstrip("%"), problem)
        assert "####" not in (problem.rationale or "")
    assert right >= 190


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(0, 4))
@settings(max_examples=30)
def test_coin_flip_counts_its_flips(seed: int, low: int, more: int) -> None:
    for problem in made("made_coin_flip", "train", seed, 3, min_people=low, max_people=low + more):
        flips, stays = problem.question.count(" flips the coin."), problem.question.count(" does not flip the coin.")
        assert low <= flips + stays <= low + more
        assert problem.answer == ("no" if flips % 2 else "yes")
        assert len((problem.rationale or "").splitlines()) == 1 + flips + stays


@given(st.integers(0, 10**6), st.integers(2, 6), st.booleans())
@settings(max_examples=30, deadline=None)
def test_chain_sum_adds_up(seed: int, terms: int, negative: bool) -> None:
    for problem in made("chain_sum", "train", seed, 3, min_terms=terms, max_terms=terms, max_digits=3, allow_negative=negative):
        terms_text = problem.question.removeprefix("What is ").removesuffix("?").replace("- ", "-").replace("+ ", "")
        assert sum(map(int, terms_text.split())) == int(problem.answer)
        assert negative or "= -" not in (problem.rationale or "")
        assert len((problem.rationale or "").splitlines()) == terms - 1


def test_leg_counting_speaks_english() -> None:
    text = " ".join(problem.question for problem in made("leg_counting", "train", 1, 400, max_animals=5))
    assert "sheeps" not in text and "butterflys" not in text and "mantiss" not in text and "shrimps" not in text
    assert "1 dogs" not in text


@pytest.mark.parametrize("name", ["made_coin_flip", "chain_sum", "leg_counting"])
def test_the_prose_varies_and_is_not_padded(name: str) -> None:
    rows = made(name, "train", 1, 300)
    steps = [line.split(": ", 1)[1] for row in rows for line in (row.rationale or "").splitlines()]
    openings = {" ".join(step.split()[:2]) for step in steps}
    assert len(openings) > 10
    assert sum(len(step.split()) for step in steps) / len(steps) < 16
    assert all(
        line.startswith(f"Step {number}: ") for row in rows for number, line in enumerate((row.rationale or "").splitlines(), 1)
    )


def test_a_small_space_runs_out_with_one_clear_line() -> None:
    with pytest.raises(
        CirfError, match=r"chain_sum has only \d+ different test questions with these options, 500 were asked for"
    ):
        made("chain_sum", "test", 1, 500, min_terms=2, max_terms=2, min_digits=1, max_digits=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_poeple": 3}, "no option 'max_poeple'; the nearest is 'max_people'"),
        ({"max_people": "many"}, "max_people of task made_coin_flip is 'many', expected a whole number from 1 to"),
        ({"max_people": 2.5}, "expected a whole number"),
        ({"max_people": True}, "expected a whole number"),
        ({"max_people": 1000}, "expected a whole number from 1 to"),
        ({"min_people": 9}, "min_people = 9 is above max_people = 5"),
    ],
)
def test_wrong_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(CirfError, match=message):
        settle(get("made_coin_flip"), options)


def test_right_options_and_none_for_published_tasks() -> None:
    assert settle(get("made_coin_flip"), {"max_people": 3.0}) == {"min_people": 2, "max_people": 3}
    assert settle(get("chain_sum"), {"allow_negative": True})["allow_negative"] is True
    with pytest.raises(CirfError, match="it has no options"):
        settle(get("gsm8k"), {"people": 3})
