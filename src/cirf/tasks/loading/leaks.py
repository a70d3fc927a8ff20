"""Training questions that are nearly test questions: those that share a long run of words with one.

A worked example, with runs of 5 words instead of 13::

    train   Tom has 3 boxes of red apples and sells 2.
    test    Tom has 3 boxes of red pears and eats one.      runs of 5: 6, of which "tom has 3 boxes of" and
                                                            "has 3 boxes of red" are in train: near, share 2/6

Words are those of `questions.question_key`: case, white space, punctuation (but for a number's own) and a leading ``Q:`` do not
count. A question of fewer than 13 words has no run; it can only be the same as another, and training questions that are a test
question are never trained on (`load.load_problems`). The length of 13 words is that of Brown et al. 2020 (GPT-3, appendix C).

A shared run is a hint, not a proof: tasks made from templates share long passages between unrelated questions. So near questions
are reported and stay in training unless the recipe says otherwise.
"""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from cirf.records import Dropped, Problem
from cirf.tasks.loading.load import LoadedProblems
from cirf.tasks.loading.questions import question_key

WORDS = 13  # length of a run
NEAR = "question shares 13 words in a row with the test"
_EXAMPLES = 5
_MOST_HOLDERS = 20  # training questions remembered per run: a template's run has thousands, and any of them is an example

Run = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Near:
    """A test question and the training question that shares most of its runs: ``share`` of its runs that occur in any training
    question, ``words`` the shared run met first."""

    test: str
    train: str
    share: float
    words: str


def runs(question: str, length: int = WORDS) -> list[Run]:
    """All runs of ``length`` words of a question, in order; none where it has fewer."""
    words = question_key(question).split()
    return list(zip(*(words[start:] for start in range(length)), strict=False))


def near(train: Sequence[Problem], test: Sequence[Problem], length: int = WORDS) -> list[Near]:
    """The test questions that share a run with any training question, in their order."""
    return _pairs(train, test, _holders(train, test, length), length)


def _holders(train: Sequence[Problem], test: Iterable[Problem], length: int) -> dict[Run, list[int]]:
    """The test questions' runs that occur in training questions, with the places of (some of) these."""
    tested = {run for problem in test for run in runs(problem.question, length)}
    holders: dict[Run, list[int]] = {}
    for index, problem in enumerate(train):
        for run in tested.intersection(runs(problem.question, length)):
            held = holders.setdefault(run, [])
            if len(held) < _MOST_HOLDERS:
                held.append(index)
    return holders


def _pairs(train: Sequence[Problem], test: Sequence[Problem], holders: Mapping[Run, Sequence[int]], length: int) -> list[Near]:
    found = []
    for problem in test:
        own = runs(problem.question, length)
        shared = [run for run in own if run in holders]
        if shared:
            counted = Counter(place for run in shared for place in holders[run])
            most = min(counted, key=lambda place: (-counted[place], place))
            found.append(Near(problem.id, train[most].id, len(shared) / len(own), " ".join(shared[0])))
    return found


def overlap(
    train: Sequence[Problem], test: Mapping[str, Sequence[Problem]], exact: Sequence[Sequence[str]], length: int = WORDS
) -> dict[str, Any]:
    """The report on each test set, JSON by table name.

    ``exact`` are pairs of ids, a dropped training question and the test question it is. ``test`` counts questions,
    ``short`` those of fewer than ``length`` words, ``near`` those with a shared run; ``largest_share`` is the largest share
    of a question's runs that occur in training, ``examples`` the nearest pairs with their first shared run. The time is linear in
    the number of words: about a second for 10,000 training and 3,000 test questions of 50.
    """
    holders = _holders(train, itertools.chain.from_iterable(test.values()), length)
    summary: dict[str, Any] = {}
    for table, problems in test.items():
        found = _pairs(train, problems, holders, length)
        nearest = sorted(found, key=lambda pair: (-pair.share, pair.test))[:_EXAMPLES]
        summary[table] = {
            "test": len(problems),
            "exact": sum(pair[1].startswith(f"{table}/") for pair in exact),
            "short": sum(not runs(problem.question, length) for problem in problems),
            "near": len(found),
            "largest_share": round(max((pair.share for pair in found), default=0.0), 4),
            "examples": [dataclasses.asdict(pair) | {"share": round(pair.share, 4)} for pair in nearest],
        }
    return summary


def seen(train: Sequence[Problem], test: Mapping[str, Sequence[Problem]]) -> dict[str, Any]:
    """As `overlap`, for problems of an earlier training: ``exact`` counts the test questions among them."""
    known = {question_key(problem.question): problem.id for problem in reversed(train)}
    keys = ((problem.id, question_key(problem.question)) for problems in test.values() for problem in problems)
    return overlap(train, test, [[known[key], name] for name, key in keys if key in known])


def settle(loaded: LoadedProblems, what: Literal["report", "drop"], trained: bool = True) -> LoadedProblems:
    """The problems with ``report["overlap"]`` of training and test questions. With ``drop`` training and validation questions
    that share a run with a test question are taken out first, and counted among the dropped: the numbers then describe the state
    before. Fewer than requested may be left. If nothing is ``trained`` on them, no overlap is reported."""
    overlaps = overlap([*loaded.train, *loaded.validation], loaded.test, loaded.report["leaks"]) if trained else {}
    report = {**loaded.report, "overlap": {"words": WORDS, "near": what, "tasks": overlaps}}
    if what == "report" or not trained:
        return dataclasses.replace(loaded, report=report)
    tested = {run for problems in loaded.test.values() for problem in problems for run in runs(problem.question)}
    parts = {"train": loaded.train, "validation": loaded.validation}
    split = {part: [(one, tested.isdisjoint(runs(one.question))) for one in problems] for part, problems in parts.items()}
    dropped = [Dropped(problem.id, None, "problems", NEAR) for rows in split.values() for problem, stays in rows if not stays]
    if dropped:
        report["dropped"] = {**loaded.report["dropped"], NEAR: len(dropped)}
    report["tasks"] = {name: dict(row) for name, row in loaded.report["tasks"].items()}
    kept = {part: [problem for problem, stays in rows if stays] for part, rows in split.items()}
    for name, row in report["tasks"].items():
        row |= {part: sum(problem.task == name for problem in problems) for part, problems in kept.items()}
    left = dataclasses.replace(loaded, train=kept["train"], validation=kept["validation"])
    return dataclasses.replace(left, report=report, dropped=[*loaded.dropped, *dropped])
