"""``cirf check``: every row of a file or folder looked at, what cannot be used counted by reason, overrides obeyed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tinyrun

from cirf.report.data.collect import collect
from cirf.report.page import render
from cirf.store.jsonl import read_rows


@pytest.fixture(autouse=True)
def no_bundled_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache without models, so that tokens are counted alike everywhere."""
    monkeypatch.setenv("CIRF_CACHE", str(tmp_path / "cache"))


def checked(*arguments: str | Path) -> Any:
    said = tinyrun.cirf("check", *arguments, "--json")
    assert said.code == 0, said.err
    return json.loads(said.out)


def write_lines(path: Path, *rows: Any) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows), encoding="utf-8")
    return path


def run(folder: Path, *more: str) -> tinyrun.Said:
    return tinyrun.cirf("run", folder / "recipe.yaml", "--out", folder / "run", *more)


def bad_rows() -> list[Any]:
    """Twelve rows of which seven cannot be used."""
    rows: list[Any] = list(tinyrun.sums(12))
    rows[1] = rows[1] | {"rationale": " "}
    rows[3] = {"question": "What?"}
    rows[4] = '{"question": "a"'
    rows[5] = rows[5] | {"answer": None}
    rows[6] = '["a", "b"]'
    rows[8] = rows[8] | {"id": "one"}
    rows[9] = rows[9] | {"id": "one"}
    rows[10] = '{"question": "b"'
    return rows


def test_every_row_of_a_file_is_looked_at(tmp_path: Path) -> None:
    mine = tinyrun.write_jsonl(tmp_path / "mine.jsonl", tinyrun.sums(60))
    found = checked(mine)
    assert (found["total"]["problems"], found["total"]["usable"]) == (60, 60)
    assert found["notes"] == [] and found["answers"] == {"jsonl": "number"}


def test_numbers_that_are_not_read_are_noted(tmp_path: Path) -> None:
    rows = [
        {
            "question": f"Buch {n} kostet 2,5 Euro, {n} kosten?",
            "answer": f"{n * 2.5}".replace(".", ","),
            "rationale": f"Step 1: Es sind {n} * 2,5 = {n * 2.5} Euro.\nStep 2: {n} * 450 = {n}.450.".replace(".5", ",5"),
        }
        for n in range(1, 61)
    ]
    found = checked(write_lines(tmp_path / "german.jsonl", *rows), "--show", "3")
    assert any("numbers have decimal commas, so 1.350,5 is read as 1350.5" in note for note in found["notes"])
    assert not any("not read" in note for note in found["notes"])
    assert (found["answers"], found["total"]["share_results_empty"]) == ({"jsonl": "number"}, 0.0)
    last = found["shown"][2]
    assert ([step["result"] for step in last["steps"]], last["answer"]) == (["3*2.5=7.5", "3450"], "7.5")
    grouped = [
        {
            "question": f"{n} Lose kosten {n} mal 450 Euro und 1.000 Euro. Wie viel kosten sie?",
            "answer": f"{n * 450 + 1000:,}".replace(",", "."),
            "rationale": f"Step 1: {n} * 450 = {n * 450:,}.\nStep 2: {n * 450:,} + 1,000 = {n * 450 + 1000:,} Euro.".replace(
                ",", "."
            ),
        }
        for n in range(1, 61)
    ]
    found = checked(write_lines(tmp_path / "grouped.jsonl", *grouped), "--show", "1")
    assert found["total"]["decimal_commas"]
    assert [step["result"] for step in found["shown"][0]["steps"]] == ["1*450=450", "450+1000=1450"]
    mixed = tinyrun.sums(60)
    mixed[7] |= {"rationale": mixed[7]["rationale"] + "\nStep 4: That is 12,5 of all."}
    mixed[8] |= {"rationale": mixed[8]["rationale"] + "\nStep 4: That is 12,75 of all."}
    mixed[9] |= {"rationale": mixed[9]["rationale"] + "\nStep 4: It is the point (1,2), not {2,3} or 1,2,3."}
    mine = write_lines(tmp_path / "mine.jsonl", *mixed)
    assert any("2 of 60 problems have numbers that are not read, such as 12,5;" in note for note in checked(mine)["notes"])


def test_a_recipe_says_what_it_sets_aside(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    task = {"task": "jsonl", "name": "sums", "train_file": str(workshop.train)}
    found = checked(workshop.recipe(tmp_path / "recipe.yaml", problems__tasks=[task]))
    assert found["total"]["problems"] == 32
    assert "sums: 8 test rows are set aside and not counted here" in found["notes"]


def test_rows_that_cannot_be_used_are_counted_by_reason(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    mine = write_lines(tmp_path / "mine.jsonl", *bad_rows())
    at = [f"{mine}, line {line}" for line in range(13)]
    wanted = {
        "not valid JSON": {"rows": 2, "first": [at[5], at[11]]},
        "answer is null, expected a string, a number or true/false": {"rows": 1, "first": [at[6]]},
        "its id occurs in an earlier row already": {"rows": 1, "first": [at[10]]},
        "not a JSON object": {"rows": 1, "first": [at[7]]},
        "rationale is empty": {"rows": 1, "first": [at[2]]},
        "the field answer is missing": {"rows": 1, "first": [at[4]]},
    }
    for source in (mine, workshop.recipe(tmp_path / "recipe.yaml", train=mine)):
        found = checked(source)
        assert found["refused"] == wanted
        assert (found["total"]["problems"], found["total"]["usable"]) == (5, 5)
    summary = tinyrun.cirf("check", mine).out
    assert "mine.jsonl: 7 of 12 rows (58.3 %) cannot be used: not valid JSON (2: lines 5, 11), " in summary
    assert "`cirf run` stops, since problems.max_unusable_share is 0.05" in summary
    assert f"{at[5]}: not valid JSON" in run(tmp_path, "--set", "problems.max_unusable_share=0").error()
    said = run(tmp_path).error()
    assert (
        f"{mine}: 7 of 12 rows (58.3 %) cannot be used, more than problems.max_unusable_share: 0.05 allows: not valid JSON (2: "
        in said
    )


def test_a_run_does_with_a_few_unusable_rows_as_the_check_says(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    rows: list[Any] = list(tinyrun.sums(60))
    rows[8], rows[20] = "{", rows[20] | {"answer": " "}
    mine = write_lines(tmp_path / "mine.jsonl", *rows)
    answers = [{"id": f"{n}", "rationale": f"Step 1: {n}."} for n in range(40)]
    theirs = write_lines(tmp_path / "theirs.jsonl", *answers, {"id": "1"})
    recipe = workshop.recipe(tmp_path / "recipe.yaml", train=mine, rationales={"files": [str(theirs)]})
    counts = "answer is empty (1: line 21), not valid JSON (1: line 9)"
    summary = tinyrun.cirf("check", recipe).out
    assert f"mine.jsonl: 2 of 60 rows (3.33 %) cannot be used: {counts}; `cirf run` drops them and continues" in summary
    assert "theirs.jsonl: 1 of 41 rows (2.44 %) cannot be used: no field `rationale` (1: line 41); `cirf run` drops" in summary
    assert "dropped:" not in summary
    said = run(tmp_path, "--until", "rationales")
    assert said.code == 0, said.err
    assert f"problems: mine.jsonl: 2 of 60 rows cannot be used and are dropped: {counts}" in said.err
    assert "rationales: theirs.jsonl: 1 of 41 rows cannot be used and is dropped: no field `rationale` (1: line 41)" in said.err
    lost = [
        (row["file"], row["line"], row["stage"], row["reason"])
        for stage in ("problems", "rationales")
        for row in read_rows(tmp_path / "run" / stage / "dropped.jsonl")
        if "file" in row
    ]
    assert lost == [
        ("mine.jsonl", 9, "problems", "not valid JSON"),
        ("mine.jsonl", 21, "problems", "answer is empty"),
        ("theirs.jsonl", 41, "rationales", "no field `rationale`"),
    ]
    shown = collect(tmp_path / "run")
    assert shown["data"]["dropped"]["problems"] == {"answer is empty": 1, "not valid JSON": 1}
    page = render(shown)
    assert f"mine.jsonl: 2 of 60 rows: {counts}." in page and "theirs.jsonl: 1 of 41 rows: no field `rationale`" in page
    assert "mine.jsonl: 2 of 60 rows (3.33 %)" in run(tmp_path, "--set", "problems.max_unusable_share=0.03").error()


def test_nothing_usable_ends_with_2_and_the_reasons(tmp_path: Path) -> None:
    broken = write_lines(tmp_path / "broken.jsonl", "{", "{", {"question": "q"})
    said = tinyrun.cirf("check", broken)
    assert f"{broken}: no usable row: not valid JSON (2: lines 1, 2), the field answer is missing (1: line 3)" in said.error()
    bare = tinyrun.write_jsonl(
        tmp_path / "bare.jsonl", [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(4)]
    )
    said = tinyrun.cirf("check", bare)
    assert f"{bare}: no usable row: no rationale (4)" in said.error()
    assert "there are no rationales" in said.out and "100.0%" not in said.out
    document = json.loads(tinyrun.cirf("check", bare, "--json").out)
    assert document["total"]["share_segmentable"] is None and document["tasks"]["jsonl"]["share_segmentable"] is None


def test_a_recipe_of_no_usable_row_is_given_the_reason_as_a_run_is(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    mine = tinyrun.write_jsonl(tmp_path / "mine.jsonl", [row | {"answer": f"{row['answer']} s"} for row in tinyrun.sums(12)])
    task = {"task": "jsonl", "train_file": str(mine), "answer": "number", "test": 4}
    recipe = workshop.recipe(tmp_path / "recipe.yaml", problems__tasks=[task])
    said = tinyrun.cirf("check", recipe).error()
    assert "no usable row: answer is not a number (12: lines 1, 2, 3, ...); line 1: answer '" in said
    assert said == run(tmp_path).error()


def test_rationales_of_other_questions_are_reported_and_not_passed_over(tmp_path: Path) -> None:
    mine = tinyrun.write_jsonl(tmp_path / "mine.jsonl", [{"question": f"What is {n} + 1?", "answer": n + 1} for n in range(4)])
    other = tinyrun.write_jsonl(
        tmp_path / "other.jsonl", [{"question": f"How much is {n} and 1?", "rationale": f"{n} + 1 = {n + 1}"} for n in range(4)]
    )
    said = tinyrun.cirf("check", mine, "--set", f"rationales.files=[{other}]")
    assert f"note: {other}: 4 of 4 rows match no training question, the first that of line 1" in said.out


def test_one_odd_row_that_makes_all_answers_text_is_reported(tmp_path: Path) -> None:
    rows = [*tinyrun.sums(6), {"question": "What is 0 / 0?", "answer": "unknown", "rationale": "0 / 0 = unknown"}]
    mine = tinyrun.write_jsonl(tmp_path / "mine.jsonl", rows)
    said = tinyrun.cirf("check", mine)
    assert "6 of 7 rows have a number as answer, those of line 7 have not, so all answers count as text" in said.out
    assert "count as text" not in tinyrun.cirf("check", mine, "--set", "problems.tasks.0.answer=text").out


def test_rationales_without_their_answers_are_noted(tmp_path: Path) -> None:
    rows = [row | {"rationale": "She counts them all.\nShe writes it down."} for row in tinyrun.sums(6)]
    note = "6 of 6 rationales do not have the answer's number in them; do they belong to their questions?"
    assert note in checked(tinyrun.write_jsonl(tmp_path / "mine.jsonl", rows))["notes"]
    words = [row | {"answer": 7, "rationale": "She counts them all.\nThat makes Seven."} for row in rows]
    for fine in (words, tinyrun.sums(6)):
        found = checked(tinyrun.write_jsonl(tmp_path / "mine.jsonl", fine))["notes"]
        assert not any("the answer's number" in each for each in found)


def test_overrides_are_obeyed_and_wrong_ones_named(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    mine = tinyrun.write_jsonl(tmp_path / "mine with 'quotes' & ü.jsonl", tinyrun.sums(10))
    assert checked(mine, "--set", "segments.by=sentence")["segmentation"]["rules"] == {"sentence": 10}
    by_words, by_tokens = checked(mine), checked(mine, "--set", f"backbone.model={workshop.backbone}")
    assert by_tokens["tokens_counted_by"] == str(workshop.backbone)
    assert by_words["tokens_counted_by"].startswith("words, digits and marks")
    assert by_tokens["total"]["rationale_tokens"] != by_words["total"]["rationale_tokens"]
    redundant = ("--set", "segments.redundant=drop")
    note = "segments.redundant has no effect: these rationales are cut by sentence; set segments.by: function"
    assert note in checked(mine, "--set", "segments.by=sentence", *redundant)["notes"]
    assert not any("no effect" in one for one in checked(mine, "--set", "segments.by=function", *redundant)["notes"])
    assert "codebook.sise: no such key" in tinyrun.cirf("check", mine, "--set", "codebook.sise=3").error()
    assert "segments.by: expected" in tinyrun.cirf("check", mine, "--set", "segments.by=page").error()
    assert "/no/such/model: no such folder" in tinyrun.cirf("check", mine, "--set", "backbone.model=/no/such/model").error()
    assert "smollm3" in tinyrun.cirf("check", mine, "--set", "backbone.model=bundled:smollm3").error()


def test_a_mirror_folder_is_checked_with_its_rationales(tmp_path: Path) -> None:
    svamp = [
        {"ID": f"chal-{n}", "Body": f"Ann has {n} pens and buys 4.", "Question": "How many pens has she?", "Answer": n + 4.0}
        for n in range(6)
    ]
    (tmp_path / "svamp").mkdir()
    write_lines(tmp_path / "svamp" / "train.jsonl", *svamp[:5], {"ID": "x", "Body": "no more"})
    (tmp_path / "rationales").mkdir()
    texts = [{"id": f"chal-{n}", "rationale": f"Step 1: She has {n}.\nStep 2: {n} + 4 = {n + 4}."} for n in range(3)]
    write_lines(tmp_path / "rationales" / "svamp.teacher.jsonl", *texts, {"id": "chal-3"})
    found = checked(tmp_path)
    assert list(found["tasks"]) == ["svamp"]
    assert (found["total"]["problems"], found["total"]["usable"]) == (5, 3)
    assert found["total"]["unusable"] == {"no rationale": 2}
    assert {reason: each["rows"] for reason, each in found["refused"].items()} == {
        "no field `rationale`": 1, "the column 'Answer' that svamp rows have is missing": 1,
    }  # fmt: skip
    write_lines(tmp_path / "svamp" / "test.jsonl", svamp[1], svamp[5])
    assert checked(tmp_path)["problems"]["leaks"] == [["svamp/train/chal-1", "svamp/test/chal-1"]]
    (tmp_path / "empty").mkdir()
    assert "no training file of a task" in tinyrun.cirf("check", tmp_path / "empty").error()


def test_the_updates_that_rows_make_are_reported_and_what_is_too_few(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    mine = tinyrun.write_jsonl(tmp_path / "mine.jsonl", tinyrun.sums(100))
    found = checked(mine)["updates"]
    assert (found["rows"], found["updates"], found["too_few"]) == (76, 150, False)  # a fifth is tested on, a twentieth held out
    assert "updates: 76 rows make 150 updates in 15 passes\n" in tinyrun.cirf("check", mine).out
    keys = ("--set", "finetune.epochs=2", "--set", "finetune.batch_size=8", "--set", "finetune.gradient_accumulation_steps=2")
    summary = (
        "76 rows make 10 updates in 2 passes; fewer than 60 are too few for new tokens to be learned: set finetune.epochs: auto"
    )
    assert f"updates: {summary}, or lower finetune.gradient_accumulation_steps" in tinyrun.cirf("check", mine, *keys).out
    tested = workshop.recipe(tmp_path / "recipe.yaml", train=mine)  # with a test and a tenth held out
    assert checked(tested, *keys)["updates"]["rows"] == 90
    assert checked(tested, "--set", "problems.tasks.0.rows=40")["updates"]["rows"] == 40
    dry = tinyrun.cirf("run", tested, "--dry-run", "--out", tmp_path / "run", *keys)
    assert "updates: 90 rows make 12 updates in 2 passes; fewer than 60 are too few" in dry.out
    override = ("--set", "finetune.overrides={direct_sft: {epochs: 20.0}}")
    dry = tinyrun.cirf("run", tested, "--dry-run", "--out", tmp_path / "run", *keys, *override)
    assert "cirf_full: 90 rows make 12 updates in 2 passes; fewer" in dry.out
    assert "direct_sft: 90 rows make 120 updates in 20 passes\n" in dry.out


def test_steps_without_results_are_noted(tmp_path: Path) -> None:
    rows = [
        {"question": f"Is {n} odd?", "answer": "yes", "rationale": "Step 1: Look.\nStep 2: Think.\nStep 3: Look again."}
        for n in range(60)
    ]
    silent = tinyrun.write_jsonl(tmp_path / "silent.jsonl", rows)
    (note,) = checked(silent)["notes"]
    assert note.startswith("jsonl: 100% of the steps have no result") and "results.by=llm" in note
    assert checked(silent, "--set", "results.by=none")["notes"] == []
    assert checked(silent, "--set", "segments.by=function")["notes"][0].startswith("jsonl: 100% of the steps have no result")
    aloud = (
        "Okay, let me see what it is.\n\nI look at the last digit.\n\nHmm, but that is odd, it seems.\n\nSo the answer is yes."
    )
    thinking = tinyrun.write_jsonl(tmp_path / "thinking.jsonl", [row | {"rationale": aloud} for row in rows])
    by_function = checked(thinking, "--set", "segments.by=function")
    assert by_function["total"]["share_results_empty"] == 0.75 and by_function["notes"] == []  # only conclusions have one
    (note,) = checked(thinking, "--set", "segments.by=line")["notes"]
    assert note.startswith("jsonl: 75% of the steps have no result")
    said = tinyrun.write_jsonl(
        tmp_path / "said.jsonl", [row | {"rationale": "Step 1: Look at it.\nStep 2: So yes."} for row in rows]
    )
    found = checked(said)
    assert found["total"]["share_results_empty"] == 0.5 and found["notes"][0].startswith("jsonl: 50% of the steps have no result")
    short = tinyrun.write_jsonl(tmp_path / "short.jsonl", [row | {"rationale": "It is odd, so yes."} for row in rows])
    assert any("most rationales are cut into one step" in note for note in checked(short)["notes"])


def test_a_table_name_that_is_no_file_name_is_refused_at_once(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    for name in ("a/b", "..", ".hidden"):
        task = {"task": "jsonl", "name": name, "train_file": str(workshop.train)}
        said = tinyrun.cirf("run", workshop.recipe(tmp_path / "recipe.yaml", problems__tasks=[task]), "--out", tmp_path / "run")
        assert "problems.tasks" in said.error() and "name" in said.error()
    assert not (tmp_path / "run").exists()


def test_a_rule_that_cuts_more_rationales_is_named(tmp_path: Path) -> None:
    rows = [
        {
            "question": f"What is {n} and {n}?",
            "answer": f"{2 * n}",
            "rationale": f"We take {n}. We take {n} again. Together {2 * n}.",
        }
        for n in range(2, 40)
    ]
    mine = tmp_path / "mine.jsonl"
    mine.write_text("".join(json.dumps(row) + "\n" for row in rows))
    summary = tinyrun.cirf("check", mine, "--set", "segments.by=line").out
    assert "segments.by: " in summary and "of the rationales into 2 to 10 steps, line cuts 0%" in summary
    assert "segments.by: " not in tinyrun.cirf("check", mine).out


def test_a_few_answers_of_another_kind_are_dropped_as_a_run_would(tmp_path: Path) -> None:
    rows = [
        {"question": f"What is {n} and {n}?", "answer": f"{2 * n}", "rationale": f"Step 1: {n}.\nStep 2: {n} + {n} = {2 * n}."}
        for n in range(60)
    ]
    rows[20]["answer"] = "many"
    mine = tmp_path / "mine.jsonl"
    mine.write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = "59 of 60 rows have a number as answer, those of line 21 have not and are dropped"
    assert said in tinyrun.cirf("check", mine).out and said in tinyrun.cirf("init", mine).err
    found = json.loads(tinyrun.cirf("check", mine, "--json").out)
    assert found["answers"] == {"jsonl": "number"} and found["total"]["problems"] == 59


def test_files_of_two_kinds_are_reported(tmp_path: Path) -> None:
    rows = [
        {
            "question": f"What is {n} and {n}?",
            "answer": "yes" if n % 2 else f"{2 * n}",
            "rationale": f"Step 1: {n}.\nStep 2: {2 * n}.",
        }
        for n in range(60)
    ]
    mine = tmp_path / "mine.jsonl"
    mine.write_text("".join(json.dumps(row) + "\n" for row in rows))
    summary = tinyrun.cirf("check", mine).out
    assert "rows of several kinds (30 have yes or no as answer, 30 have a number as answer)" in " ".join(summary.split())


def test_too_few_rows_and_traces_that_save_little_are_reported(tmp_path: Path) -> None:
    rows = [{"question": f"What is {n} and 1?", "answer": f"{n + 1}", "rationale": f"{n}+1={n + 1}"} for n in range(20)]
    mine = tmp_path / "mine.jsonl"
    mine.write_text("".join(json.dumps(row) + "\n" for row in rows))
    summary = " ".join(tinyrun.cirf("check", mine).out.split())
    assert "20 usable rows are too few to learn from" in summary and "traces are hardly shorter than the rationales" in summary


UNITS = [
    {
        "question": f"How many are {n} and 3?",
        "answer": f"{n + 3} cups",
        "rationale": f"{n} + 3 = {n + 3}.\nThe answer is {n + 3}.",
    }
    for n in range(12)
]


def test_an_answer_with_its_unit_and_the_number_alone_agree(tmp_path: Path) -> None:
    found = checked(write_lines(tmp_path / "mine.jsonl", *UNITS))
    assert found["total"]["usable"] == found["collection"]["dataset"]["agree"] == 12


def test_rationales_with_another_answer_are_shown_by_example_and_their_key_is_named(tmp_path: Path) -> None:
    mine = write_lines(tmp_path / "mine.jsonl", *(row | {"answer": f"{place + 2} cups"} for place, row in enumerate(UNITS)))
    said = tinyrun.cirf("check", mine)
    example = "12 rationales end in another answer: jsonl/train/0 has `2 cups`, its rationale says `3`; fix them, or set "
    assert f"note: {example}rationales.check=keep" in said.out and "there are no rationales" not in said.out
    assert f"{example}rationales.check=keep" in tinyrun.cirf("init", mine).error()
    assert checked(mine, "--set", "rationales.check=keep")["total"]["usable"] == 12


def test_a_number_in_place_of_an_options_letter_is_said_to_be_one(tmp_path: Path) -> None:
    row = {"choices": ["a roof", "a river"], "rationale": "It flows."}
    rows = [row | {"question": f"Where is {n}?", "answer": 1} for n in range(6)]  # the first, or the second from 0
    mine = write_lines(tmp_path / "mine.jsonl", *rows)
    for command in ("check", "init"):
        said = tinyrun.cirf(command, mine)
        assert "answer is a number; write the option's letter (6)" in said.error() and "there are no rationales" not in said.out


def test_a_row_without_a_question_is_reported_with_the_fields_that_it_has(tmp_path: Path) -> None:
    said = tinyrun.cirf("check", write_lines(tmp_path / "mine.jsonl", {"words": "a", "label": 1}))
    assert "the field question is missing (1: line 1); line 1: every row needs question and answer" in said.error()
    assert "this has words, label; say which is which with --columns question=...,answer=label" in said.error()


def test_notes_alone_hold_the_answers_number(tmp_path: Path) -> None:
    rows = [{"question": f"{n} of 4 * {n + 3}?", "answer": str(4 * n + 8)} for n in range(8)]
    notes = [row | {"rationale": f"<<4*{n + 3}={4 * n + 12}>> <<{4 * n + 12}-4={4 * n + 8}>>"} for n, row in enumerate(rows)]
    said = tinyrun.cirf("check", write_lines(tmp_path / "aug.jsonl", *notes)).out
    assert "do not have the answer's number" not in said and "100.0%" in said


def test_suggested_columns_can_be_pasted_and_fit(tmp_path: Path) -> None:
    row = {"Ticket ID": "T-1", "Customer Question": "How many are 6 and 7?", "Worked Explanation": "6 + 7 = 13, so 13 in all."}
    rows = [row | {"Agent": "jo", "Resolution": "13", "Customer Question": f"{n}: how many are 6 and 7?"} for n in range(9)]
    mine = write_lines(tmp_path / "mine.jsonl", *rows)
    columns = "question=Customer Question,answer=Resolution,rationale=Worked Explanation"
    assert f"--columns '{columns}' (in a recipe" in tinyrun.cirf("check", mine).error()
    assert "100.0%" in tinyrun.cirf("check", mine, "--columns", columns).out


def test_columns_are_named_on_the_command_line(tmp_path: Path) -> None:
    rows = [{"frage": f"{n} + 1?", "loesung": str(n + 1), "weg": f"Es sind {n} + 1 = {n + 1}."} for n in range(60)]
    mine = write_lines(tmp_path / "mine.jsonl", *rows)
    columns = "question=frage,answer=loesung,rationale=weg"
    assert checked(mine, "--columns", columns)["total"]["usable"] == 60
    said = tinyrun.cirf("init", mine, "--columns", columns, "--model", "nobody/model-1b")
    assert "columns: {question: frage, answer: loesung, rationale: weg}  # as --columns said" in said.out
    refused = tinyrun.cirf("check", mine, "--columns", columns + "2").error()
    assert "no usable row: no column 'weg2' (60: lines 1, 2, 3, ...); " in refused
    assert "line 1: columns (--columns) name it for rationale, and the row has frage, loesung, weg" in refused
    assert "--columns: 'frage': expected FIELD=COLUMN" in tinyrun.cirf("check", mine, "--columns", "frage=question").error()
    assert "--columns is for a file of rows" in tinyrun.cirf("check", tmp_path, "--columns", columns).error()


def thinking(count: int, between: tuple[str, ...] = ("<think>", "</think>")) -> list[dict[str, Any]]:
    """Sums with thoughts of many words in front of their rationale."""
    before, after = between if len(between) > 1 else ("", between[0])
    return [
        {
            "prompt": row["question"],
            "completion": f"{before}Let me see. {row['rationale']} Right?\n{after}\n{row['rationale']}\n#### {row['answer']}",
        }
        for row in tinyrun.sums(count)
    ]


def test_thoughts_that_are_left_out_are_noted_and_can_be_taken(tmp_path: Path) -> None:
    mine = write_lines(tmp_path / "mine.jsonl", *thinking(60))
    (note,) = checked(mine)["notes"]
    assert note.startswith("60 rows have thoughts that are left out") and note.endswith(
        "rationales.part=thoughts takes the thoughts"
    )
    for option in (["--part", "thoughts"], ["--set", "rationales.part=thoughts"]):
        found = checked(mine, "--show", "1", *option)
        assert found["notes"] == [] and "Let me see" in found["shown"][0]["steps"][0]["step"]
    said = tinyrun.cirf("init", mine, "--part", "thoughts", "--model", "nobody/model-1b")
    assert "  part: thoughts  # as --part said" in said.out
    assert "rationales.part=thoughts takes" in tinyrun.cirf("init", mine, "--model", "nobody/model-1b").err
    assert "rationales.part: expected" in tinyrun.cirf("check", mine, "--part", "all").error()
    assert "--part is for a file of rows" in tinyrun.cirf("check", tmp_path, "--part", "thoughts").error()


@pytest.mark.parametrize("marks", [("|||",), ("[[T]]", "[[/T]]")])
def test_a_delimiter_is_declared_on_the_command_line_and_written_into_the_recipe(tmp_path: Path, marks: tuple[str, ...]) -> None:
    mine = write_lines(tmp_path / "mine.jsonl", *thinking(60, marks))
    options = [each for mark in marks for each in ("--delimiter", mark)]
    (note,) = checked(mine, *options)["notes"]
    assert note.startswith("60 rows have thoughts that are left out")
    said = tinyrun.cirf("init", mine, *options, "--model", "nobody/model-1b")
    (tmp_path / "mine.yaml").write_text(said.out)
    assert "delimiter: [" in said.out and "# as --delimiter said" in said.out
    found = checked(tmp_path / "mine.yaml", "--show", "1")
    assert found["shown"][0]["steps"] and not any("Let me see" in step["step"] for step in found["shown"][0]["steps"])
    for wrong in (["a", "b", "c"], ["|"], ["||", "||"]):
        given = [each for mark in wrong for each in ("--delimiter", mark)]
        assert "delimiter: expected one mark" in tinyrun.cirf("check", mine, *given).error()


def test_rows_are_shown_with_their_lines_and_refused_ones_after_them(tmp_path: Path) -> None:
    rows = tinyrun.sums(20)
    rows[3] = rows[3] | {"id": "sum-3"}
    found = checked(write_lines(tmp_path / "mine.jsonl", *rows[:1], {"question": "What?"}, *rows[1:]), "--show", "4")
    assert [row["row"] for row in found["shown"]] == ["line 1", "line 3", "line 4", "line 5, sum-3"]
    assert [row["row"] for row in found["shown_refused"]] == ["line 2"]
    out = tinyrun.cirf("check", tmp_path / "mine.jsonl", "--show", "2").out
    assert "row       line 3\nquestion" in out and "\nrefused   line 2: the field answer is missing" in out
    assert "shown_refused" not in checked(tmp_path / "mine.jsonl")
