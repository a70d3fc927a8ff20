"""A task of your own: what time is it some minutes later? Explained in own-task.md.

A row of its file: {"ask": "It is 9:40. What time is it 85 minutes later?", "time": "11:05", "how": "Step 1: ..."}
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from cirf.records import Problem
from cirf.tasks.shots import Shot
from cirf.tasks.task import Task

_TIME = re.compile(r"(?<!\d)(\d{1,2})[:.h](\d{2})(?!\d)\s*(pm\b)?", re.IGNORECASE)


def read_row(row: Mapping[str, Any]) -> Problem:
    """One row of the file. KeyError and ValueError become a message with the file and the line."""
    answer = last_time(row["time"])
    if not answer:
        raise ValueError(f"time: {row['time']!r} is no time of day")
    return Problem(id=str(row.get("id") or ""), task="", question=row["ask"], answer=answer, rationale=row.get("how"))


def last_time(text: str) -> str:
    """The last time of day in a text, in its one canonical form: 09:05 and 9.05 are 9:05, 1:30 pm is 13:30."""
    found = _TIME.findall(text)
    if not found:
        return ""
    hour, minute, afternoon = found[-1]
    return f"{int(hour) + (12 if afternoon and int(hour) < 12 else 0)}:{minute}"


def parse(text: str, problem: Problem) -> str | None:
    """What a model answered; None where it named no time. The answer is not in the problem that is given here."""
    return last_time(text) or None


def same(parsed: str, gold: str) -> bool:
    """Whether an answer is right: on a clock face 13:30 and 1:30 are the same."""
    (hour, minute), (right_hour, right_minute) = parsed.split(":"), gold.split(":")
    return int(hour) % 12 == int(right_hour) % 12 and minute == right_minute


def result(segment: str, problem: Problem, previous: tuple[str, ...]) -> str:
    """What a step of a rationale comes to, as short as can be: the time it ends at."""
    return last_time(segment)


TASK = Task(
    name="clock",
    title="Clock",
    summary="what time it is some minutes later",
    answer="text",
    rule=result,
    row=read_row,
    parser=parse,
    equality=same,
    wording=(
        "Reply with the time only, like 9:05.",
        "Solve this step by step. Then end with one line that holds four hash marks and the time, like `#### 9:05`.",
    ),
    shots=(
        Shot("It is 7:20. What time is it 30 minutes later?", "20 + 30 = 50", "7:50"),
        Shot("It is 10:45. What time is it 40 minutes later?", "45 + 40 = 85; 85 - 60 = 25; next hour", "11:25"),
    ),
    files={"train": "clock.jsonl"},
    cap=8,
)
