"""Rationales from language models: who is asked what, and what of it will do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from faulty import Server, serve

from cirf.errors import CirfError
from cirf.rationales.collect import collect
from cirf.rationales.teachers import statistics, teach
from cirf.recipe import schema
from cirf.records import Problem, TeacherRationale
from cirf.store.files import RowLog
from cirf.tasks.task import Task

RIGHT = {
    "Ann": "Step 1: Ann has 3 pens.\nStep 2: 3 + 4 = 7 pens.\nThe answer is 7.",
    "Bob": "1. He eats 2.5 of 10.\n2. 10 - 2.5 = 7.5 pies are left.\n#### 7.5",
    "Cy": "Step 1: Each day he walks 6 km.\nStep 2: 6 * 5 = 30. The answer is 30.",
    "fish": "Step 1: Fish breathe with gills.\nStep 2: So they live in water. The answer is (B).",
}


def reply(body: dict[str, Any]) -> str:
    """The right rationale for whoever the question is about."""
    return next(text for name, text in RIGHT.items() if name in body["messages"][0]["content"])


def rationales(server: Server, models: tuple[str, ...] = ("m",), per_problem: int = 1, **keys: Any) -> schema.Rationales:
    endpoints = tuple(schema.Endpoint(url=server.url, model=model) for model in models)
    teacher = schema.Teacher(endpoints=endpoints, max_retries=2, timeout=5.0, **keys)
    return schema.Rationales(source="teacher", per_problem=per_problem, teacher=teacher)


def test_every_question_is_asked_of_every_model_with_the_papers_prompt(
    tmp_path: Path, problems: list[Problem], tasks: dict[str, Task]
) -> None:
    with serve(Server(reply)) as server:
        section = rationales(server, ("m", "n"))
        taught, refused = teach(problems, section, schema.Segments(), tasks, RowLog(tmp_path / "log"), 1)
    assert refused == {}
    assert [(row.problem, row.model) for row in taught] == [(p.id, m) for p in problems for m in ("m", "n")]
    assert all(row.right and row.steps == 2 and row.fault("drop") is None for row in taught)
    prompts = {body["messages"][0]["content"] for body in server.asked}
    assert "Solve the following problem step by step:Ann has 3 pens and buys 4. How many pens has she?" in prompts
    assert any("B. water" in prompt for prompt in prompts)
    assert all((body["temperature"], body["top_p"], body["max_tokens"]) == (0.7, 0.95, 4096) for body in server.asked)
    assert len({body["seed"] for body in server.asked}) == 8
    summary = statistics(taught, refused)["models"]["m"]
    assert (summary["answers"], summary["right"], summary["segmentable"]) == (4, 1.0, 1.0)
    assert (summary["steps_mean"], summary["tokens_mean"]) == (2.0, 7.0)
    collected = collect(problems, section.model_copy(update={"per_problem": 2}), None, tasks, taught)
    assert [row.source for row in collected.rationales] == ["m"] * 4  # the other's texts are the same
    assert {row.prompt for row in collected.rationales} == {taught[0].prompt}


def test_of_two_teachers_and_one_rationale_each_teacher_has_a_share(tasks: dict[str, Task]) -> None:
    asked = [Problem(f"sums/train/{place}", "sums", f"Ann has 3 pens and buys {place}. How many?", "7") for place in range(40)]
    rows = [
        TeacherRationale(
            problem.id, model, 0, f"{model}: 3 + 4 = 7. The answer is 7.", "p", "stop", 9, model == "n" or place < 38, 1
        )
        for place, problem in enumerate(asked)
        for model in ("m", "n")
    ]
    section = schema.Rationales(source="teacher", per_problem=1)
    found = collect(asked, section, None, tasks, rows)
    sources = {row.problem: row.source for row in found.rationales}
    assert len(found.rationales) == 40 and 10 <= sum(source == "m" for source in sources.values()) <= 30
    assert {sources["sums/train/38"], sources["sums/train/39"]} == {"n"}  # whose answers are right
    both = collect(asked, section.model_copy(update={"per_problem": 2}), None, tasks, rows)
    assert [row.source for row in both.rationales][:4] == ["m", "n", "m", "n"]


def test_the_gold_answer_is_never_in_the_prompt(tmp_path: Path, problems: list[Problem], tasks: dict[str, Task]) -> None:
    marked = [Problem("sums/train/z", "sums", "Ann counts her pens. How many?", "918273")]
    with serve(Server(reply)) as server:
        teach(marked, rationales(server), schema.Segments(), tasks, RowLog(tmp_path / "log"), 1)
    assert "918273" not in str(server.asked)


def test_another_sample_is_asked_for_only_where_the_first_will_not_do(
    tmp_path: Path, problems: list[Problem], tasks: dict[str, Task]
) -> None:
    tries: dict[str, int] = {}

    def sometimes(body: dict[str, Any]) -> str:
        text = body["messages"][0]["content"]
        tries[text] = tries.get(text, 0) + 1
        if "Ann" in text and tries[text] == 1:
            return "Step 1: 3 - 4 = 8.\nStep 2: The answer is 8."
        if "Bob" in text and tries[text] < 3:
            return "Step 1: He eats.\nStep 2: The answer is 9."
        return reply(body)

    with serve(Server(sometimes)) as server:
        section = rationales(server, samples=4)
        taught, _ = teach(problems, section, schema.Segments(), tasks, RowLog(tmp_path / "log"), 1)
        again, _ = teach(problems, section, schema.Segments(), tasks, RowLog(tmp_path / "log"), 1)
    assert {text.partition(":")[2][:3]: count for text, count in tries.items()} == {"Ann": 2, "Bob": 3, "Cy ": 1, "Whe": 1}
    assert again == taught
    assert [(row.problem[-1], row.sample, row.fault("drop")) for row in taught] == [
        ("a", 0, "another answer"),
        ("a", 1, None),
        ("b", 0, "another answer"),
        ("b", 1, "another answer"),
        ("b", 2, None),
        ("c", 0, None),
        ("d", 0, None),
    ]
    collected = collect(problems, section, None, tasks, taught)
    assert [row.problem for row in collected.rationales] == [problem.id for problem in problems]
    assert [row.reason for row in collected.dropped] == ["another answer"] * 3


def test_a_model_that_only_gives_empty_answers_ends_it_and_one_that_does_now_and_then_is_asked_again(
    tmp_path: Path, problems: list[Problem], tasks: dict[str, Task]
) -> None:
    with serve(Server(lambda body: "")) as server:
        section = rationales(server)
        with pytest.raises(CirfError, match=r"m: none of its 4 answers holds any text \(finish: stop\); .*thoughts"):
            teach(problems, section, schema.Segments(), tasks, RowLog(tmp_path / "log"), 1)
        server.reply = lambda body: "" if "Bob" in body["messages"][0]["content"] else reply(body)
        taught, _ = teach(problems, section, schema.Segments(), tasks, RowLog(tmp_path / "log"), 1)
        assert [row.fault("drop") for row in taught] == [None, "empty answer", None, None]
        assert statistics(taught, {})["models"]["m"]["empty"] == 0.25
        server.reply = reply
        taught, _ = teach(problems, section, schema.Segments(), tasks, RowLog(tmp_path / "log"), 1)
    assert [row.fault("drop") for row in taught] == [None] * 4 and len(server.asked) == 4 + 4 + 1


@pytest.mark.parametrize("odd", ["#### 3", "\n".join(f"Step {n}: 1 + {n} = {n + 1}." for n in range(1, 34))])
def test_an_answer_that_cannot_be_cut_will_not_do_and_ends_nothing(
    tmp_path: Path, problems: list[Problem], tasks: dict[str, Task], odd: str
) -> None:
    with serve(Server(lambda body: odd if "Bob" in body["messages"][0]["content"] else reply(body))) as server:
        taught, _ = teach(problems, rationales(server), schema.Segments(), tasks, RowLog(tmp_path / "log"), 1)
    assert [row.steps for row in taught] == [2, 0, 2, 2] and taught[1].fault("drop") is not None


@pytest.mark.parametrize(
    ("text", "usable"),
    [
        ("I'm sorry, but I can't help with that. Is there something else that I can do?", 0),
        ("I cannot solve this.\nPlease consult a teacher.", 0),
        ("<!DOCTYPE html>\n<html><body><h1>502 Bad Gateway</h1>\n<p>7.5 30 B</p></body></html>", 0),
        ("Could you provide the question?\nThen I will solve it.", 0),
        ("Step 1: Let us look at what is given.\nStep 2: Then we ca", 0),
        ("Step 1: We look.\nStep 2: So there are seven, 450 minutes or 30; water it is.", 4),
    ],
)
def test_a_refusal_a_page_or_a_text_that_never_names_the_answer_is_no_rationale(
    tmp_path: Path, problems: list[Problem], tasks: dict[str, Task], text: str, usable: int
) -> None:
    with serve(Server(lambda body: text)) as server:
        taught, _ = teach(problems, rationales(server), schema.Segments(), tasks, RowLog(tmp_path / "log"), 1)
    assert [row.fault("drop") for row in taught].count(None) == usable
    assert {row.right for row in taught} == {None if usable else False}


def test_what_a_model_thought_first_is_no_rationale(tmp_path: Path, problems: list[Problem], tasks: dict[str, Task]) -> None:
    with serve(Server(lambda body: f"<think>Step 1: hm\nStep 2: 9?</think>\n{reply(body)}")) as server:
        taught, _ = teach(problems, rationales(server), schema.Segments(), tasks, RowLog(tmp_path / "log"), 1)
    assert all(row.fault("drop") is None and row.steps == 2 and "hm" not in row.text for row in taught)


def test_all_samples_are_asked_for_where_the_recipe_says_so(
    tmp_path: Path, problems: list[Problem], tasks: dict[str, Task]
) -> None:
    with serve(Server(lambda body: reply(body) + f" ({body['seed']})")) as server:
        section = rationales(server, samples=3, ask="all", per_problem=3)
        taught, _ = teach(problems, section, schema.Segments(), tasks, RowLog(tmp_path / "log"), 1)
    assert len(taught) == 12 and len({row.text for row in taught}) == 12


def test_an_answer_cut_off_at_its_cap_will_not_do() -> None:
    from cirf.records import TeacherRationale

    row = TeacherRationale("p", "m", 0, "Step 1: ...", "h", "length", 4096, None, 3)
    assert row.fault("drop") == row.fault("keep") == "truncated"


@pytest.mark.parametrize(
    ("finish", "tokens", "fault"),
    [
        ("stop", 7, None),
        ("max_tokens", 7, "truncated"),
        ("MAX_TOKENS", 7, "truncated"),
        ("model_length", 7, "truncated"),
        ("content_filter", 7, "stopped by the server"),
        ("SAFETY", 7, "stopped by the server"),
        ("stop", 4096, "truncated"),
    ],
)
def test_an_answer_that_a_server_ended_early_will_not_do_under_any_name(
    tmp_path: Path, problems: list[Problem], tasks: dict[str, Task], finish: str, tokens: int, fault: str | None
) -> None:
    server = Server(lambda body: reply(body).partition("The answer")[0].partition("####")[0] + "Th")
    server.finish, server.tokens = finish, tokens
    with serve(server):
        taught, _ = teach(problems[:3], rationales(server), schema.Segments(), tasks, RowLog(tmp_path / "log"), 1)
    assert {row.fault("keep") for row in taught} == {fault}


def test_an_answer_at_its_cap_that_ends_in_the_right_answer_is_whole(
    tmp_path: Path, problems: list[Problem], tasks: dict[str, Task]
) -> None:
    server = Server(reply)
    server.tokens = 4096
    with serve(server):
        taught, _ = teach(problems, rationales(server), schema.Segments(), tasks, RowLog(tmp_path / "log"), 1)
    assert [row.fault("drop") for row in taught] == [None] * 4


def test_a_users_own_prompt_takes_the_papers_place(tmp_path: Path, problems: list[Problem], tasks: dict[str, Task]) -> None:
    prompt = tmp_path / "mine.txt"
    prompt.write_text("Think in numbered steps {not a name}.\n\n{question}\n")
    with serve(Server(reply)) as server:
        teach(problems[:1], rationales(server, prompt=str(prompt)), schema.Segments(), tasks, RowLog(tmp_path / "log"), 1)
        assert server.asked[0]["messages"][0]["content"].startswith("Think in numbered steps {not a name}.\n\nAnn has 3 pens")
        prompt.write_text("Think.")
        with pytest.raises(CirfError, match=re.escape("lacks the place of the question; write {question} there")):
            teach(problems[:1], rationales(server, prompt=str(prompt)), schema.Segments(), tasks, RowLog(tmp_path / "x"), 1)


def test_without_an_endpoint_the_key_is_named(tmp_path: Path, problems: list[Problem], tasks: dict[str, Task]) -> None:
    section = schema.Rationales(source="teacher")
    with pytest.raises(CirfError, match=r"rationales\.teacher\.endpoints: empty"):
        teach(problems, section, schema.Segments(), tasks, RowLog(tmp_path / "log"), 1)
