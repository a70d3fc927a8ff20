"""Where traces of Coin Flip go wrong: each state against the one that the trace wrote before it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks import coin_states

from cirf.errors import CirfError
from cirf.files import write_rows

QUESTION = "A coin is heads up. ann-mai flips the coin. De Bo does not flip the coin. cy flips the coin. Is it still heads up?"
TOKENS = "<cirf><cirf_021>heads ann-mai<cirf_010>tails de bo<cirf_020>tails cy<cirf_010>heads</cirf>"
LINES = "heads\nann-mai tails\nde bo tails\ncy heads"
GOOD: dict[str, Any] = {"id": "a", "prompt": QUESTION, "trace": TOKENS}


@pytest.mark.parametrize("trace", [TOKENS, LINES])
def test_both_forms_of_a_sound_trace_are_read(trace: str) -> None:
    found = coin_states.read(QUESTION, trace)
    assert found.whole
    assert found.sound
    assert [(state.flips, state.before, state.after) for state in found.states] == [
        (True, "heads", "tails"),
        (False, "tails", "tails"),
        (True, "tails", "heads"),
    ]
    tokens = ["<cirf_010>", "<cirf_020>", "<cirf_010>"] if trace == TOKENS else [""] * 3
    assert [state.token for state in found.states] == tokens


@pytest.mark.parametrize(
    ("trace", "whole", "wrong", "states"),
    [
        ("heads\nann-mai heads\nde bo heads\ncy tails", True, 1, 3),  # one mistake, though every state behind it is another
        ("heads\nann-mai tails\ncy heads", False, 0, 2),  # someone is left out
        (f"{LINES}\nzed tails", False, 0, 3),  # someone whom nobody named
        ("heads\nann-mai tails\nde po tails\ncy heads", False, 0, 2),  # misspelt
        ("heads\nde bo heads\nann-mai tails\ncy heads", False, 0, 3),  # another order
        ("tails\nann-mai heads\nde bo heads\ncy tails", False, 0, 3),  # the question begins otherwise
        ("", False, 0, 0),
    ],
)
def test_what_is_not_sound(trace: str, whole: bool, wrong: int, states: int) -> None:
    found = coin_states.read(QUESTION, trace)
    assert (len(found.states), sum(not state.right for state in found.states)) == (states, wrong)
    assert (found.whole, found.sound) == (whole, False)


def test_two_methods_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_rows(tmp_path / "one/evaluation/ours/coin_flip.jsonl", [GOOD])
    write_rows(
        tmp_path / "two/evaluation/theirs/coin_flip.jsonl", [{**GOOD, "trace": "heads\nann-mai tails\nde bo heads\ncy heads"}]
    )
    coin_states.main([str(tmp_path / "one"), "--methods", "ours", "theirs", "--against-run", str(tmp_path / "two")])
    ours, theirs, difference, document = capsys.readouterr().out.splitlines()
    told = "3 of 3 functional tokens right; states right behind these 3 of 3, behind the others 0 of 0"
    assert ours == f"ours: 0 of 3 states wrong {{}}; of 1 traces 1 whole, 1 sound; {told}"
    assert theirs == (
        "theirs: 2 of 3 states wrong {'flips heads': 1, 'keeps tails': 1}; of 1 traces 1 whole, 0 sound; "
        "no functional tokens that tell who flips"
    )
    assert difference.startswith("sound: ")
    assert json.loads(document)["difference"] == 1


def test_a_functional_token_means_what_it_mostly_stands_before() -> None:
    strayed = TOKENS.replace("<cirf_020>tails", "<cirf_010>heads")
    readings = {name: coin_states.read(QUESTION, trace) for name, trace in (("a", TOKENS), ("b", TOKENS), ("c", strayed))}
    assert coin_states.tokens_told(readings) == (
        "8 of 9 functional tokens right; states right behind these 7 of 8, behind the others 0 of 1"
    )
    single = {"a": coin_states.read(QUESTION, TOKENS.replace("_020", "_010"))}
    assert coin_states.tokens_told(single) == "no functional tokens that tell who flips"


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{**GOOD, "prompt": ""}], "an archive keeps none"),
        ([{**GOOD, "prompt": "How many?"}], "no question about a coin"),
        ([{**GOOD, "trace": "<cirf><cirf_021>heads<cirf_010></cirf>"}], "no trace names anyone"),
        ([GOOD, GOOD], "several answers to a"),
        ([{**GOOD, "id": "b"}], "not asked the same questions"),
    ],
)
def test_what_cannot_be_held_against_another_is_refused(tmp_path: Path, rows: list[dict[str, Any]], said: str) -> None:
    write_rows(tmp_path / "evaluation/one/coin_flip.jsonl", rows)
    write_rows(tmp_path / "evaluation/two/coin_flip.jsonl", [GOOD])
    with pytest.raises(CirfError, match=said):
        coin_states.main([str(tmp_path), "--methods", "one", "two"])
