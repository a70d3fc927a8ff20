"""Coin Flip: is the coin still heads up after some people flip it and some do not (Wei et al., 2022)?

Every training row has two people and every test row four: the test problems are longer than those trained on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cirf.records import Problem
from cirf.tasks.parsing.answers import parse_answer
from cirf.tasks.steps import coin_state
from cirf.tasks.task import HubSource, Task


def read_row(row: Mapping[str, Any]) -> Problem:
    """``inputs`` = ``Q: A coin is heads up. ...`` and ``targets`` = yes or no."""
    answer = parse_answer("yesno", row["targets"])
    if answer is None:
        raise ValueError("targets: neither yes nor no")
    question = " ".join(row["inputs"].strip().removeprefix("Q:").split())
    return Problem(id="", task="", question=question, answer=answer)


TASK = Task(
    name="coin_flip",
    title="Coin Flip",
    summary="tracking the state of a coin; two people in training, four in the test",
    answer="yesno",
    rule=coin_state,
    version=5,
    row=read_row,
    licence="mit",
    hub=HubSource("skrishna/coin_flip"),
)
