"""When the votes that are still to come can change nothing: told by trying all that they could say."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from cirf.evaluation.election import Election
from cirf.evaluation.voting import Majority, majority

ANSWERS = st.lists(st.sampled_from(["1", "2", "3", None]), min_size=1, max_size=5)


def same(one: str, other: str) -> bool:
    return one == other


def decided(answers: list[str | None], agreement: float | None) -> tuple[str | None, bool]:
    """What the votes answer, and whether the fallback does."""
    told = majority(answers, same)
    falls = agreement is not None and told.falls(agreement)
    return (None if told.place is None else answers[told.place], falls)


@given(ANSWERS, st.permutations(range(5)), st.integers(0, 5), st.sampled_from([None, 0.2, 0.5, 0.6, 1.0]))
def test_it_is_settled_where_no_votes_left_can_change_the_outcome_ties_apart(
    answers: list[str | None], order: list[int], taken: int, agreement: float | None
) -> None:
    places = [place for place in order if place < len(answers)][:taken]
    election = Election(len(answers), same, agreement)
    for place in places:
        election.give(place, answers[place])
    assert all(place in election for place in places)
    missing = [place for place in range(len(answers)) if place not in places]
    outcomes = set()
    for said in product(["1", "2", "3", "4", None], repeat=len(missing)):
        whole = [*answers]
        for place, answer in zip(missing, said, strict=True):
            whole[place] = answer
        outcomes.add(decided(whole, agreement))
    if election.settled:
        assert len(outcomes) == 1
        told = election.majority()
        answer = None if told.place is None else answers[told.place]
        assert outcomes == {(answer, agreement is not None and told.falls(agreement))}
    else:  # of equally many the first given wins: settled by that alone is not looked for
        assert missing
        assert len(outcomes) > 1 or _tied(answers, places, len(missing))


def _tied(answers: list[str | None], places: list[int], left: int) -> bool:
    """Whether the votes left could make another answer as frequent as the leading one."""
    sizes = sorted((sum(answers[p] == answer for p in places) for answer in ("1", "2", "3", "4")), reverse=True)
    return sizes[0] == sizes[1] + left


@given(ANSWERS, st.permutations(range(5)))
def test_of_all_votes_it_is_the_majority_in_whatever_order_they_came(answers: list[str | None], order: list[int]) -> None:
    election = Election(len(answers), same)
    assert election.majority() == Majority(None, 0.0)
    for place in (place for place in order if place < len(answers)):
        election.give(place, answers[place])
    assert election.settled and election.majority() == majority(answers, same)
