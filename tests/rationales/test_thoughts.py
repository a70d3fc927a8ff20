"""Thoughts and answers are separated, and rationales may be equations only: for every teacher and every input format."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from faulty import Server, serve
from tables import each_row

from cirf.rationales.collect import collect, gather
from cirf.rationales.segmentation import cut_all
from cirf.rationales.teachers import teach
from cirf.rationales.thoughts import equations_written_out, left_out, rationale_of
from cirf.recipe import schema
from cirf.records import Problem
from cirf.store.files import RowLog
from cirf.tasks import get
from cirf.tasks.parsing.thoughts import declared, opens_thoughts, split_thoughts, thoughts_apart

THOUGHT = "Okay, 4 * 8 = 32 beads are there.\nThen 32 - 4 = 28 are left."
FULL = "Noor has 4 * 8 = 32 beads.\nAfter that 32 - 4 = 28 are left.\nThe answer is 28."
SHORT = "The answer is \\boxed{28}."
MARKS = [
    "<think>{thought}</think>\n\n{rest}",
    "{thought}\n</think>\n\n{rest}",  # the template opened it
    "<thinking>{thought}</thinking>{rest}",
    "<THINK>{thought}</THINK>{rest}",
    "<reasoning>{thought}</reasoning>\n<answer>{rest}</answer>",
    "[THINK]{thought}[/THINK]{rest}",
    "◁think▷{thought}◁/think▷{rest}",
    "<|begin_of_thought|>{thought}<|end_of_thought|>\n<|begin_of_solution|>{rest}<|end_of_solution|>",
    "<|START_THINKING|>{thought}<|END_THINKING|>{rest}",
    "<|channel|>analysis<|message|>{thought}<|end|><|start|>assistant<|channel|>final<|message|>{rest}<|return|>",
    "{thought}<|end|><|start|>assistant<|channel|>final <|constrain|>x<|message|>{rest}",
    "analysis{thought}assistantfinal{rest}",
    '<think duration="3">{thought}</think>{rest}',
    "< think >{thought}</ think >{rest}",
    "&lt;think&gt;{thought}&lt;/think&gt;{rest}",
    "<|thinking|>{thought}<|/thinking|>{rest}",
    "<|think_start|>{thought}<|think_end|>{rest}",
    "<|channel>thought\n{thought}<channel|>{rest}",
    "<|im_start|>think\n{thought}<|im_end|>\n<|im_start|>answer\n{rest}<|im_end|>",
    "Here is my thought process:\n{thought}\nHere is my response:\n{rest}",
    "Here are my reasoning steps:\n{thought}\n[BEGIN FINAL RESPONSE]\n{rest}\n[END FINAL RESPONSE]",
    '<details type="reasoning" done="true">\n<summary>Thought for 3 seconds</summary>\n{thought}\n</details>\n{rest}',
    "<think>{thought}</think>\n<response>\n{rest}\n</response>",
    "<working>{thought}</working>{rest}",
    "[NOTES]{thought}[/NOTES]\n{rest}",
    "<|plan|>{thought}<|/plan|>\n<answer>{rest}</answer>",
]


UNMARKED = (
    "<step>4 * 8 = 32</step><step>32 - 4 = 28</step>",
    "<b>First</b> 4 * 8 = 32.",
    "[asy]draw((0,0));[/asy] The area is 4.",
    "[1] Count them: 32. [2] Take 4 away.",
    "<working>4 * 8 = 32.</working>",
    "I <think about it> twice.",
    "He said <a>4</a>, then 5.",
)


@each_row("marks", MARKS)
def test_marks_of_thoughts_are_in_no_rationale(marks: str) -> None:
    def said(rest: str) -> str:
        return rationale_of(marks.format(thought=THOUGHT, rest=rest))

    assert said(FULL) == FULL
    assert said(SHORT) == f"{THOUGHT}\n#### 28"
    assert said("28 beads") == f"{THOUGHT}\n#### 28 beads"


def test_which_part_of_a_text_with_thoughts_is_the_rationale_can_be_said() -> None:
    long, one, short = (
        f"<think>{THOUGHT}</think>\n\n{rest}" for rest in (FULL, "Noor has 28 beads left. The answer is 28.", SHORT)
    )
    ended = f"{THOUGHT}\n#### 28"
    assert [rationale_of(text, "thoughts") for text in (long, one, short)] == [ended] * 3
    assert [rationale_of(text, "auto") for text in (long, one, short)] == [FULL, ended, ended]
    assert [rationale_of(text, "explanation") for text in (long, one, short)] == [FULL, one.partition("\n\n")[2], ended]
    assert rationale_of(FULL, "thoughts") == rationale_of(FULL, "explanation") == FULL
    assert left_out(long) == (len(THOUGHT.split()), len(FULL.split()))
    assert [left_out(text) for text in (one, short, FULL)] == [None] * 3


@each_row(
    ("delimiter", "text"),
    [
        (["|||"], "{thought} ||| {rest}"),
        (["---"], "{thought}\n---\n{rest}"),
        (["---"], "a---b\n---\n{thought}\n  ---  \n{rest}"),
        (["[[T]]", "[[/T]]"], "[[T]]{thought}[[/T]]\n{rest}"),
        (["<<<think>>>", "<<</think>>>"], "<<<think>>>\n{thought}\n<<</think>>>\n{rest}"),
        (["[[T]]", "[[/T]]"], "{thought}[[/T]]{rest}"),  # a template wrote the first one
        (["|||"], "<think>{thought}</think>{rest}"),
    ],
)
def test_a_declared_delimiter_sets_thoughts_off(delimiter: list[str], text: str) -> None:
    thought, rest = split_thoughts(declared(text.format(thought=THOUGHT, rest="28 beads"), delimiter))
    assert (thought.rpartition("---\n")[2], rest) == (THOUGHT, "28 beads")
    for other in (FULL, f"{delimiter[-1][:1]} {FULL}", f"{FULL}\n{delimiter[0]}" if len(delimiter) == 1 else FULL):
        assert declared(other, delimiter) == other == declared(other, [])


def test_a_bare_answer_in_two_forms_replaces_no_calculation() -> None:
    rest = "Noor has **28** beads left.\n\n\\boxed{28\\text{ beads}}"
    assert rationale_of(f"<think>4 * 8 = 32, then 32 - 4 = 28.</think>{rest}") == "4 * 8 = 32, then 32 - 4 = 28.\n#### 28 beads"
    assert "####" not in rationale_of("<think>3 + 4 = 7.</think>First add the pens. So it is seven.")  # that is no answer


def test_a_text_without_thoughts_is_left_as_it_is() -> None:
    for text in (FULL, "a < b > c", "He thinks: <b>bold</b>", "", "analysis of the data", "He [thinks] 3", *UNMARKED):
        assert rationale_of(text) == text and split_thoughts(text) == ("", text)


def test_a_mark_within_a_sentence_is_no_thought() -> None:
    for text in ("<person>Bo</person> has the most beads.", "<name>Bo</name>, of course.", "<center>Beads</center>\n28"):
        assert split_thoughts(text) == ("", text)
    assert split_thoughts("<work>4 * 8 = 32</work> yes") == ("4 * 8 = 32", "yes")
    assert split_thoughts("<work>4 * 8 = 32</work> yes", own_names=False) == ("", "<work>4 * 8 = 32</work> yes")


def test_a_chain_of_equations_is_not_cut() -> None:
    assert equations_written_out("4*8=32. 32-4=28.") == "4*8=32\n32-4=28."
    assert equations_written_out("4*8=32.\n9 - (-3) = 9 + 3 = 12.") == "4*8=32.\n9 - (-3) = 9 + 3 = 12."


def test_many_equations_in_a_line_take_no_time() -> None:
    started = time.monotonic()
    many = "4*8=32; " * 40
    assert equations_written_out(f"{many}x=y") == f"{many}x=y"
    assert equations_written_out(many + "1+1=2") == "4*8=32\n" * 40 + "1+1=2"
    assert time.monotonic() - started < 5


def test_several_thoughts_and_one_that_never_ends() -> None:
    assert split_thoughts("<think>a</think>b<think>c</think>d") == ("a\n\nc", "b\n\nd")
    assert split_thoughts("<think>a\nb") == ("a\nb", "")
    assert split_thoughts("<|channel|>analysis<|message|>a and") == ("a and", "")
    assert split_thoughts("<think>\n\n</think>\n\nb") == ("", "b")


def test_a_prompt_that_opens_thoughts() -> None:
    for mark in ("<think>", "<|START_THINKING|>", "[THINK]", "<|begin_of_thought|>"):
        assert opens_thoughts(f"<user>4 * 8?<end>{mark}\n") == mark
    for prompt in ("<user>4 * 8?<end>", "<user>?<end><think>\n\n</think>\n\n", "What does <think> mean?", ""):
        assert opens_thoughts(prompt) == ""


def _problem(text: str | None) -> Problem:
    return Problem("gsm8k/train/0", "gsm8k", "How many beads are left?", "28", rationale=text)


@pytest.mark.parametrize("source", ["dataset", "files"])
def test_thoughts_that_are_left_out_are_counted(tmp_path: Path, source: str) -> None:
    text = f"<think>{THOUGHT}</think>\n{FULL}"
    (tmp_path / "mine.jsonl").write_text(json.dumps({"question": "How many beads are left?", "rationale": text}) + "\n")
    for part, kept, words in (("auto", FULL, len(THOUGHT.split())), ("thoughts", f"{THOUGHT}\n#### 28", None)):
        section = schema.Rationales.model_validate({"source": source, "files": (str(tmp_path / "mine.jsonl"),), "part": part})
        found = collect([_problem(text if source == "dataset" else None)], section, None, {"gsm8k": get("gsm8k")})
        assert [row.text for row in found.rationales] == [kept]
        assert found.report.get("thoughts_left_out", {}).get("words") == words


@pytest.mark.parametrize("source", ["dataset", "files"])
@pytest.mark.parametrize("rest", [FULL, SHORT])
def test_files_and_data_sets_are_read_as_teachers_are(tmp_path: Path, source: str, rest: str) -> None:
    text = f"<think>\n{THOUGHT}\n</think>\n{rest}"
    path = tmp_path / "theirs.jsonl"
    path.write_text(json.dumps({"question": "How many beads are left?", "rationale": text}) + "\n")
    section = schema.Rationales(source=source, files=(str(path),) if source == "files" else ())
    found = collect([_problem(text if source == "dataset" else None)], section, None, {"gsm8k": get("gsm8k")}).rationales
    (steps,) = cut_all(found, schema.Segments(), [_problem(None)]).steps
    wanted = FULL if rest == FULL else THOUGHT
    assert steps.segments == tuple(wanted.split("\n")) and found[0].agrees is True


def test_thoughts_whose_sentences_have_no_full_stop_do_not_break_off() -> None:
    steps = "Step 1: 4 * 8 = 32 beads\nStep 2: So there are 28 beads"
    for text in (f"<think>{steps}", f"<think>{steps}\n</think>", "<think>\u56e0\u6b64\u4e00\u5171\u670928\u4e2a"):
        assert rationale_of(text) == text.removeprefix("<think>").removesuffix("</think>").strip()
    assert rationale_of("<think>We add. So it is twelve</think>") == "We add. So it is twelve"


@pytest.mark.parametrize("source", ["dataset", "files"])
@pytest.mark.parametrize(
    ("text", "steps"), [(f"<think>\n{THOUGHT}", 2), (f"<think>\n{THOUGHT}\nWait, let me ch", 0), (THOUGHT, 2)]
)
def test_thoughts_that_break_off_are_no_rationale(tmp_path: Path, source: str, text: str, steps: int) -> None:
    path = tmp_path / "theirs.jsonl"
    path.write_text(json.dumps({"question": "How many beads are left?", "rationale": text}) + "\n")
    section = schema.Rationales(source=source, files=(str(path),) if source == "files" else ())
    found = gather([_problem(text if source == "dataset" else None)], section, None, {"gsm8k": get("gsm8k")})
    cut = cut_all(found.rationales, schema.Segments(), [_problem(None)])
    assert [len(row.segments) for row in cut.steps] == [steps] * bool(steps)
    assert [row.reason for row in cut.dropped] == ["empty rationale"] * (not steps)


@pytest.mark.parametrize(
    ("text", "steps", "fault"),
    [
        (f"<|channel|>analysis<|message|>9?<|end|><|start|>assistant<|channel|>final<|message|>{FULL}", 3, None),
        (f"<think>{THOUGHT}</think>{SHORT}", 2, None),
        (f"<think>{THOUGHT}", 0, "empty answer"),
    ],
)
def test_a_teachers_marks_are_no_steps(tmp_path: Path, text: str, steps: int, fault: str | None) -> None:
    asked = [_problem(None), Problem("gsm8k/train/1", "gsm8k", "Another?", "28")]
    with serve(Server(lambda body: FULL if "Another" in body["messages"][0]["content"] else text)) as server:
        teacher = schema.Teacher(endpoints=(schema.Endpoint(url=server.url, model="m"),), timeout=5.0)
        section = schema.Rationales(source="teacher", teacher=teacher)
        taught, _ = teach(asked, section, schema.Segments(), {"gsm8k": get("gsm8k")}, RowLog(tmp_path / "log"), 1)
    assert (taught[0].steps, taught[0].fault("drop")) == (steps, fault) and "<" not in taught[0].text


@each_row(
    ("text", "steps"),
    [
        ("<<4*8=32>> <<32-4=28>>", ("4*8=32", "32-4=28")),
        ("<<4*8=32>> <<32-4=28>> #### 28", ("4*8=32", "32-4=28")),
        ("<<4*8=32>>\n<<32-4=28>>\n#### 28", ("4*8=32", "32-4=28")),
        ("<<4*8=32>>, <<32-4=28>>.", ("4*8=32", "32-4=28.")),
        ("Step 1: <<4*8=32>>\nStep 2: <<32-4=28>>", ("4*8=32", "32-4=28")),
        ("<<4*8=32>>\n<<32-4=28>>\nThe answer is: 28", ("4*8=32", "32-4=28", "The answer is: 28")),
        ("Noor has 4*8 = <<4*8=32>>32.\nThen 32-4 = <<32-4=28>>28. #### 28", ("Noor has 4*8 = 32.", "Then 32-4 = 28.")),
        ("<<4*8=32>>32 <<32-4=28>>28", ("4*8=32", "32-4=28")),
        ("4*8=<<4*8=32>>32\n32-4=<<32-4=28>>28", ("4*8=32", "32-4=28")),
        ("4*8=32; 32-4=28", ("4*8=32", "32-4=28")),
        ("4 * 8 = 32 , 32 - 4 = 28.", ("4 * 8 = 32", "32 - 4 = 28.")),
        ("4*8=32 32-4=28 #### 28", ("4*8=32", "32-4=28")),
        ("4*7=28=32-4", ("4*7=28=32-4",)),
        ("4*800=3,200; 3,200-3,172=28", ("4*800=3,200", "3,200-3,172=28")),
    ],
)
def test_equations_alone_are_steps_and_an_answer_behind_hashes_is_none(text: str, steps: tuple[str, ...]) -> None:
    found = collect([_problem(text)], schema.Rationales(source="dataset"), None, {"gsm8k": get("gsm8k")}).rationales
    assert found[0].agrees is True
    (cut,) = cut_all(found, schema.Segments(), [_problem(None)]).steps
    assert cut.segments == steps


@each_row(
    ("output", "rest"),
    [
        ("<reasoning>", "<reasoning>"),  # an answer that is a mark
        ("[THINK]", "[THINK]"),
        ("So 40 + 2 = 42.\n#### 42\n</think>", "So 40 + 2 = 42.\n#### 42\n</think>"),
        ("<think>a</think>\nThe answer is 42.</think>", "The answer is 42."),
        ("I use <scratchpad> notes: 40+2.\n#### 42", "I use <scratchpad> notes: 40+2.\n#### 42"),
        ("The answer is 999.\n</think>\n\n26", "26"),
        ("<think>\nMaybe the answer is 18. Wait", ""),
        ("<think>only</think>", ""),
    ],
)
def test_an_answer_may_name_the_marks_of_thoughts(output: str, rest: str) -> None:
    assert thoughts_apart(output)[1] == rest
