"""``--forbid`` and ``--at-most``: codes, and words that stand for the codes whose label has them."""

from __future__ import annotations

import pytest

from cirf.commands.token_limits import TokenLimits, labelled, limits_of
from cirf.errors import CirfError

LABELS = ("checks total", "adds", "multiplies", "address", "divides cost", "Check again", "not flipped", "order")
FUNCTIONS = {"codes": {str(code): {"label": label} for code, label in enumerate(LABELS)}}


def test_codes_and_words_are_told_apart() -> None:
    assert limits_of(["7", "<cirf_003>", "check"], ["cirf_004=2", "not  flip = 1"]) == TokenLimits(
        {7: 0, 3: 0, 4: 2}, (("check", 0), ("not flip", 1))
    )
    assert not limits_of([], [])


@pytest.mark.parametrize(
    ("word", "codes"),
    [
        ("check", [0, 5]),
        ("CHECKS", [0]),
        ("add", [1]),
        ("multiply", [2]),
        ("divide", [4]),
        ("flip", [6]),
        ("not flip", [6]),
        ("total", [0]),
        ("order", [7]),
    ],
)
def test_a_word_is_in_a_label_as_a_whole_in_any_form(word: str, codes: list[int]) -> None:
    assert [*labelled(word, FUNCTIONS)] == codes


@pytest.mark.parametrize("word", ["or", "dress", "tot", "flip again"])
def test_a_word_in_no_label_is_refused_with_the_labels(word: str) -> None:
    with pytest.raises(CirfError, match=f"no functional token has '{word}' in its label; labels are Check again, .*order"):
        labelled(word, FUNCTIONS)
    with pytest.raises(CirfError, match="have no labels; name codes"):
        labelled(word, {})


def test_a_ration_is_shared_and_what_is_forbidden_is_forbidden_alone(capsys: pytest.CaptureFixture[str]) -> None:
    how = limits_of(["order", "2"], ["check=2", "add=1"]).steering(FUNCTIONS)
    assert (how.at_most, how.together) == (((2, 0), (7, 0)), (((0, 5), 2), ((1,), 1)))
    assert capsys.readouterr().err.splitlines() == [
        "order: never: <cirf_007> order",
        "check: 2 at most, together: <cirf_000> checks total, <cirf_005> Check again",
        "add: 1 at most: <cirf_001> adds",
    ]


def test_a_word_named_twice_is_refused() -> None:
    with pytest.raises(CirfError, match="--at-most: check is named twice; name it once"):
        limits_of(["check"], ["check=2"])
