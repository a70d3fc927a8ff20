"""Which method to use: decided by paired tests, stated in one sentence, with no winner without a significant difference."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cirf.report.advice import Recommendation, most_frequent, verdict


def rows(right: list[bool], tokens: int, golds: list[str] | None = None) -> dict[str, list[dict[str, Any]]]:
    """One task of answers, the right ones named."""
    golds = golds or [str(place) for place in range(len(right))]
    table = [
        {
            "id": str(place), "run": 0, "correct": correct, "gold": gold, "tokens": tokens, "truncated": False, "unparsed": False,
            "output": "",
        }
        for place, (correct, gold) in enumerate(zip(right, golds, strict=True))
    ]  # fmt: skip
    return {"mine": table}


def upto(share: float, n: int, start: int = 0) -> list[bool]:
    """A share of n questions is right, the first ones from a place on."""
    return [(place - start) % n < round(share * n) for place in range(n)]


def summary(methods: dict[str, dict[str, list[dict[str, Any]]]], frequent: dict[str, str] | None = None) -> Recommendation:
    found = verdict(methods, {"cirf_full"}, {"direct_sft"}, frequent)
    assert found is not None
    return found


def test_the_shortest_of_those_not_below_the_best_is_used() -> None:
    found = summary(
        {
            "cirf_full": rows(upto(0.61, 200, 4), 21),
            "sft_cot": rows(upto(0.63, 200), 140),
            "direct_sft": rows(upto(0.24, 200), 3),
        }
    )
    assert found.use == "cirf_full"
    assert found.sentence == (
        "use cirf_full: 61.0 % right with 21 tokens; sft_cot 63.0 % with 140 (difference not significant, n = 200); "
        "direct_sft 24.0 % with 3"
    )


def test_two_tokens_less_are_not_worth_three_points() -> None:
    methods = {
        "cirf_full": rows(upto(0.58, 200, 4), 19),
        "sft_cot": rows(upto(0.63, 200), 140),
        "other": rows(upto(0.61, 200), 21),
    }
    assert summary(methods).use == "other"


def test_what_is_significantly_below_is_not_used() -> None:
    found = summary({"cirf_full": rows(upto(0.4, 200), 21), "sft_cot": rows(upto(0.63, 200), 140)})
    assert found.use == "sft_cot"
    assert found.sentence == "use sft_cot: 63.0 % right with 140 tokens (n = 200); cirf_full 40.0 % with 21"


def test_traces_below_direct_answers_are_reported() -> None:
    found = summary({"cirf_full": rows(upto(0.2, 200), 21), "direct_sft": rows(upto(0.5, 200), 3)})
    assert found.use == "direct_sft"
    assert found.sentence.endswith("cirf_full is significantly below direct answers (direct_sft), so its traces do not help here")


def test_what_is_no_better_than_one_answer_is_not_used() -> None:
    golds = ["yes", "no"] * 100
    methods = {"cirf_full": rows(upto(0.52, 200), 9, golds), "sft_cot": rows(upto(0.55, 200), 60, golds)}
    found = summary(methods, {"mine": "no"})
    assert found.use is None and found.majority == 0.5
    assert found.sentence.startswith(
        "use none yet: no method is significantly above always answering 'no' (50.0 %, n = 200): sft_cot"
    )
    methods["direct_sft"] = rows(upto(0.9, 200), 3, golds)
    found = summary(methods, {"mine": "no"})
    assert found.use == "direct_sft" and "cirf_full is not significantly above always answering 'no' (50.0 %)" in found.sentence


def test_too_few_questions_are_reported() -> None:
    found = summary({"cirf_full": rows(upto(0.5, 30), 21), "sft_cot": rows(upto(0.65, 30), 140)})
    assert found.use == "cirf_full"
    assert found.sentence.startswith(
        "use cirf_full for now: 50.0 % right with 21 tokens; sft_cot 66.7 % with 140 (difference not significant, n = 30, "
    )
    assert found.sentence.endswith("; test on more questions") and "but it may be" in found.sentence


def test_one_method_is_compared_with_nothing() -> None:
    found = summary({"cirf_full": rows(upto(0.6, 100), 21)})
    assert found.use == "cirf_full" and "nothing to compare it with: add sft_cot and direct_sft to methods" in found.sentence
    golds = ["yes", "no"] * 50
    found = summary({"cirf_full": rows(upto(0.5, 100), 21, golds)})
    assert found.use is None and found.sentence.endswith("it is not significantly above always answering 'yes' (50.0 %)")


def test_many_methods_are_one_sentence() -> None:
    methods = {f"m{place}": rows(upto(0.5 + place / 100, 200), 10 + place) for place in range(9)}
    assert summary(methods).sentence.endswith("; 5 more in the table")
    assert verdict({}, (), ()) is None


def test_the_most_frequent_training_answer() -> None:
    problems = [{"task": "a", "answer": "yes"}, {"task": "a", "answer": "no"}, {"task": "a", "answer": "no"}]
    assert most_frequent([*problems, {"task": "b", "answer": "4"}]) == {"a": "no", "b": "4"}
    assert most_frequent([]) == {}


@given(
    st.integers(1, 40).flatmap(
        lambda n: st.lists(
            st.tuples(st.lists(st.booleans(), min_size=n, max_size=n), st.integers(1, 200)), min_size=1, max_size=5
        )
    )
)
def test_it_always_says_something_and_never_names_the_worse(made: list[tuple[list[bool], int]]) -> None:
    names = ["cirf_full", "direct_sft", "sft_cot", "other", "another"]
    methods = {name: rows(right, tokens) for name, (right, tokens) in zip(names, made, strict=False)}
    found = summary(methods)
    assert found.sentence and "\n" not in found.sentence and not found.sentence.endswith(".")
    assert found.use is None or found.use in methods
    assert found.to_dict()["n"] == len(made[0][0])
