"""Votes of one question as they come in, and when those that are still to come can change nothing.

A worked example, eight votes: of five that are in four say 2 and one says 9. The three others could make four 9s, and of equally
many the first given wins: not settled. A fifth vote for 2 settles it.
"""

from __future__ import annotations

from collections.abc import Callable

from cirf.evaluation.voting import Majority


class Election:
    """``count`` votes, given in any order by their places; the winner is that of `cirf.evaluation.voting.majority`.

    ``agreement``: what a fallback hangs on; then that is to be settled too, whether so large a share of all votes agrees.
    ``None``: there is no fallback.
    """

    def __init__(self, count: int, same: Callable[[str, str], bool], agreement: float | None = None) -> None:
        """No vote is given yet. ``same``: whether two answers are one; if they are one with a third, they have to be."""
        self._count, self._same, self._agreement = count, same, agreement
        self._given: set[int] = set()
        self._groups: list[tuple[str, list[int]]] = []  # an answer, and the places of the votes for it

    def __contains__(self, place: object) -> bool:
        """Whether the vote of that place is given."""
        return place in self._given

    def give(self, place: int, answer: str | None) -> None:
        """A vote; ``None`` could not be read and is one for nothing."""
        home = next((places for first, places in self._groups if answer is not None and self._same(answer, first)), None)
        self._given.add(place)
        if answer is None:
            return
        if home is None:
            self._groups.append((answer, [place]))
        else:
            home.append(place)

    @property
    def settled(self) -> bool:
        """Whether the winner is the same whatever the votes not given say, and so is whether the fallback answers."""
        left = self._count - len(self._given)
        first, second, *_ = [*sorted((len(places) for _, places in self._groups), reverse=True), 0, 0]
        if left and self._agreement is not None and first / self._count < self._agreement <= (first + left) / self._count:
            return False
        return not left or first > second + left

    @property
    def groups(self) -> list[list[int]]:
        """The places of votes for one answer, the most votes first, of equally many the first given."""
        return sorted((sorted(places) for _, places in self._groups), key=lambda places: (-len(places), places[0]))

    def majority(self) -> Majority:
        """Of the votes given, and of all where that is `settled`; the share that agrees is of all, at least so large."""
        if not self._groups:
            return Majority(None, 0.0)
        places = self.groups[0]
        return Majority(places[0], len(places) / self._count)
