"""Results written by a language model: what is asked, what is refused, and what falls back to the rule."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from faulty import Server, serve
from tables import each_row

from cirf.errors import CirfError
from cirf.rationales.writers import Written, compare_with_rule, repeats_step, unused, write_with_model
from cirf.recipe import schema as recipe
from cirf.records import Problem, Steps
from cirf.store.files import RowLog
from cirf.tasks.task import Task

SEGMENTS = ("Ann has 3 pens to begin with.", "She buys 4, so 3 + 4 = <<3+4=7>>7 pens.")


def steps(count: int) -> list[Steps]:
    return [Steps(f"p{place}", 0, "ordinal", SEGMENTS) for place in range(count)]


def sums(count: int) -> list[Problem]:
    return [Problem(f"p{place}", "sums", f"Ann {place} has 3 pens and buys 4. How many?", "7") for place in range(count)]


def section(server: Server, **keys: Any) -> recipe.Results:
    endpoint = recipe.Endpoint(url=server.url, model="writer", concurrency=16)
    writer = recipe.ResultWriter(endpoints=(endpoint,), timeout=0.5, max_retries=12)
    return recipe.Results(by="llm", writer=writer, **keys)


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cirf.endpoints.fleet._FIRST_PAUSE", 0.005)
    monkeypatch.setattr("cirf.endpoints.fleet._LONGEST_PAUSE", 0.05)


def test_the_model_is_shown_steps_and_answer_and_held_to_a_schema(tmp_path: Path, tasks: dict[str, Task]) -> None:
    with serve(Server(lambda body: '{"results": ["3", "7"]}')) as server:
        (row,) = write_with_model(steps(1), sums(1), tasks, section(server), RowLog(tmp_path / "log"), 1)
    assert row.results == ("3", "7") and row.by == "llm"
    (body,) = server.asked
    text = body["messages"][0]["content"]
    assert "1. Ann has 3 pens to begin with.\n2. She buys 4, so 3 + 4 = 7 pens." in text
    assert "Answer: 7" in text and "exactly 2 strings" in text and '{"results": [...]}' in text
    assert (body["temperature"], body["top_p"], body["max_tokens"]) == (0.2, 0.9, 2048)
    schema = body["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["results"]["minItems"] == schema["properties"]["results"]["maxItems"] == 2


@pytest.mark.parametrize(("last", "answer_too"), [("keep", True), ("drop", False)])
def test_without_a_last_result_only_what_later_steps_use_is_asked_for(
    tmp_path: Path, tasks: dict[str, Task], last: str, answer_too: bool
) -> None:
    with serve(Server(lambda body: '{"results": ["3", ""]}')) as server:
        write_with_model(steps(1), sums(1), tasks, section(server, last=last), RowLog(tmp_path / "log"), 1)
    text = server.asked[0]["messages"][0]["content"]
    assert "Give only what later steps" in text and ("later steps or the answer use" in text) == answer_too


@pytest.mark.parametrize(
    ("first", "fault"),
    [
        ("no idea", "not a JSON object"),
        ('{"results": "7"}', "not a JSON object"),
        ('{"results": ["7"]}', "it has 1 results, but there are 2 steps"),
        ('{"results": ["' + "x" * 41 + '", "7"]}', "result 1 is longer than 40 characters"),
        (json.dumps({"results": ["ann has 3 pens to begin with", "7"]}), "result 1 repeats step 1"),
        ('{"results": ["3", "3 + 4 = 7"]}', "result 2 repeats step 2"),
        ('{"results": ["3", "<cirf_001>7"]}', "result 2 holds a tag"),
        ('{"results": [true, "7"]}', "not a JSON object"),
        ('{"results": ["3", NaN]}', "not a JSON object"),
        ('{"results": ["3", 1' + "0" * 400 + "]}", "result 2 is longer than 40 characters"),
        ('{"results": ["3", 1' + "0" * 5000 + "]}", "not a JSON object"),
        ("[" * 3000 + "]" * 3000, "not a JSON object"),
    ],
)
def test_a_fault_is_named_and_the_model_asked_once_more(tmp_path: Path, tasks: dict[str, Task], first: str, fault: str) -> None:
    def reply(body: dict[str, Any]) -> str:
        return first if len(body["messages"]) == 1 else '```json\n{"results": ["", 7]}\n```'

    with serve(Server(reply)) as server:
        (row,) = write_with_model(steps(1), sums(1), tasks, section(server), RowLog(tmp_path / "log"), 1)
    assert row.results == ("", "7") and row.by == "llm again" and fault in str(row.fault)
    roles = [message["role"] for message in server.asked[1]["messages"]]
    assert roles == ["user", "assistant", "user"] and fault in server.asked[1]["messages"][2]["content"]


@pytest.mark.parametrize(
    "said",
    [
        'In {set} notation: {"results": ["3", "7"]}',
        '{"results": ["3", 7.0]} I hope {this} helps.',
        '<think>maybe {"results": ["3", "5"]}</think> {"results": ["3", "7"]}',
        'As a list: ["3", 7]',
    ],
)
def test_the_last_object_with_results_is_the_answer(tmp_path: Path, tasks: dict[str, Task], said: str) -> None:
    with serve(Server(lambda body: said)) as server:
        (row,) = write_with_model(steps(1), sums(1), tasks, section(server), RowLog(tmp_path / "log"), 1)
    assert row.results == ("3", "7") and row.by == "llm"


@each_row(
    ("result", "step", "copies"),
    [
        ("3 + 4 = 7", "3 + 4 = 7.", True),
        ("She buys 4 so 3 + 4 = 7 pens", "Then: she buys 4, so 3 + 4 = 7 pens.", True),
        (
            "\u5979\u6709\u4e09\u652f\u7b14\u548c\u56db\u672c\u4e66",
            "\u5979\u6709\u4e09\u652f\u7b14\u548c\u56db\u672c\u4e66",
            True,
        ),
        ("7 pens", "7 pens", False),
        ("x = 5", "So x = 5.", False),
        ("3", "3 + 4 = 7", False),
        ("the red coin is up", "Then Ann turns over the red coin, and nobody else does, so now the red coin is up.", False),
    ],
)
def test_copies(result: str, step: str, copies: bool) -> None:
    assert repeats_step(result, step) is copies


def test_what_stays_faulty_falls_back_to_the_rule_and_is_marked(tmp_path: Path, tasks: dict[str, Task]) -> None:
    def reply(body: dict[str, Any]) -> str:
        return '{"results": ["3", "8"]}' if "Ann 0" in body["messages"][0]["content"] else "never"

    with serve(Server(reply)) as server:
        rows = write_with_model(steps(4), sums(4), tasks, section(server), RowLog(tmp_path / "log"), 1)
        assert len(server.asked) == 7
    assert [row.by for row in rows] == ["llm", "rule", "rule", "rule"]
    assert rows[1].results[-1] == "7" and "not a JSON object" in str(rows[1].fault)
    summary = compare_with_rule(rows, steps(4), sums(4), tasks, section(server))
    assert (
        summary["share_fallen_back"] == 0.75
        and summary["share_at_second_try"] == 0.0
        and 0.0 <= summary["agreement_with_rule"] < 1.0
    )


def test_two_hundred_rows_from_a_faulty_server_none_lost_doubled_or_misaligned(tmp_path: Path, tasks: dict[str, Task]) -> None:
    """Three calls in ten fail; of the answers that come, one in ten has the wrong count."""
    seen: dict[str, int] = {}

    def reply(body: dict[str, Any]) -> str:
        number = re.search(r"Ann (\d+)", body["messages"][0]["content"])
        assert number is not None
        seen[number[1]] = seen.get(number[1], 0) + 1
        wrong = int(number[1]) % 10 == 3 and len(body["messages"]) == 1
        return json.dumps({"results": [number[1]] if wrong else ["3", number[1]]})

    path = tmp_path / "log"
    with serve(Server(reply, share=0.3)) as server:
        rows = write_with_model(steps(200), sums(200), tasks, section(server), RowLog(path), 1)
        assert server.failed.total() > 40
        asked = len(server.asked)
        again = write_with_model(steps(200), sums(200), tasks, section(server), RowLog(path), 1)
        assert len(server.asked) == asked
    assert again == rows
    assert [row.results for row in rows] == [("3", str(place)) for place in range(200)]
    assert [row.by for row in rows] == ["llm again" if place % 10 == 3 else "llm" for place in range(200)]
    keys = [json.loads(line)["key"] for line in path.read_text().splitlines()]
    assert len(keys) == len(set(keys)) == 220


def test_a_result_that_nothing_uses_is_named_and_then_left_empty(tmp_path: Path, tasks: dict[str, Task]) -> None:
    texts = ("3 + 4 = 7 pens are Ann's.", "A box has 90 pens, so 90 - 7 = 83 are missing.", "7 - 1 = 6 pens are Bo's.")
    row, results = Steps("p", 0, "ordinal", texts), ("7", "83", "6")
    problem = Problem("p", "sums", "Ann has 3 and 4 pens, Bo 1 less. How many has Bo?", "6")

    def wrote(second: str) -> tuple[Written, dict[str, Any], dict[str, Any]]:
        said = (json.dumps({"results": results}), second)
        with serve(Server(lambda body: said[len(body["messages"]) > 1])) as server:
            path = tmp_path / str(len(second))
            (found,) = write_with_model([row], [problem], tasks, section(server), RowLog(path), 1)
            summary = compare_with_rule([found], [row], [problem], tasks, section(server))
        return found, server.asked[1], summary

    found, again, summary = wrote('{"results": ["7", "", "6"]}')
    assert again["messages"][2]["content"].startswith("That cannot be used: no later step uses what these steps produced")
    assert "must be empty: 2. Reply" in again["messages"][2]["content"]
    assert found == Written(("7", "", "6"), "llm again", found.fault) and summary["unused_emptied"] == 0
    for second, by in ((json.dumps({"results": results}), "llm again"), ("no more", "llm")):
        found, _, summary = wrote(second)
        assert found.results == ("7", "", "6") and found.by == by and "no later step" in str(found.fault)
        assert summary["unused_emptied"] == 1 and summary["share_fallen_back"] == 0


@each_row(
    ("first", "then", "answer", "used"),
    [
        ("3", "So 12 / 3 = 4 each.", "4", True),
        ("24", "She needs 25 more.", "25", False),
        ("1/3", "That is 0.33 of it.", "0", True),
        ("45%", "So .45 of them leave.", "0", True),
        ("60", "After 1 hour he leaves.", "0", True),
        ("6", "15 - 10 = 5 dollars are left.", "5", True),  # 10 is 6 and the question's 4
        ("twelve", "12 of them are red.", "1", True),
        ("51", "So 100 -51 = 49.", "49", True),
        ("7", "The rest is easy.", "7", True),
        ("tails", "Bo turns it over: heads.", "yes", True),
        ("a whale", "Whales are mammals.", "yes", True),
        ("Florida", "It is in the east.", "no", False),
        ("B", "So only water is left.", "C", True),
        ("A", "So only water is left.", "B", False),
        ("", "Nothing.", "no", True),
        ("72 hours", "That is 3 days.", "3", True),
        ("7", "Its square is 49.", "49", True),
        ("60%", "So 2.4 are left.", "1", True),
        ("y = x + 2", "With x = 5 it is 8.", "8", True),
        ("\u221a25", "So c = 5.", "5", True),
        ("Monday", "It is Tuesday then.", "yes", True),
        ("a city", "Cities have mayors.", "yes", True),
        ("not a tree", "So it is a roof.", "C", True),
        ("A wrong", "So B.", "B", True),
    ],
)
def test_what_later_steps_use(first: str, then: str, answer: str, used: bool) -> None:
    problem = Problem("p", "sums", "There are 4. What then?", answer, choices=("tree", "water", "roof"))
    assert unused((first, "1000000"), ("It is found.", then), problem) == ([] if used else [1])
    assert unused((first,), ("It is found.",), problem) == []  # the last result is the answer, or is dropped


def test_servers_of_two_models_are_refused(tmp_path: Path, tasks: dict[str, Task]) -> None:
    endpoints = tuple(recipe.Endpoint(url="http://localhost:1/v1", model=model) for model in "ab")
    both = recipe.Results(by="llm", writer=recipe.ResultWriter(endpoints=endpoints))
    with pytest.raises(CirfError, match="all servers must have the same model"):
        write_with_model(steps(1), sums(1), tasks, both, RowLog(tmp_path / "log"), 1)
    with pytest.raises(CirfError, match="empty although"):
        write_with_model(steps(1), sums(1), tasks, recipe.Results(by="llm"), RowLog(tmp_path / "log"), 1)
