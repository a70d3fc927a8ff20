"""Layouts of rows that other tools write: each comes to the same question, steps and answer, else one line says why."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from tables import each_row

from cirf.errors import CirfError
from cirf.rationales.collect import gather
from cirf.rationales.segmentation import cut_all
from cirf.rationales.thoughts import rationale_of
from cirf.recipe import schema
from cirf.recipe.schema import Problems, TaskEntry
from cirf.store.jsonl import RowError
from cirf.tasks.loading.layouts import plain_row
from cirf.tasks.loading.load import load_problems
from cirf.tasks.own_rows import build_task, read_split, row_notes, rows_in_memory, train_path

ASKED = "Noor has 4 boxes with 8 beads and gives 4 away. How many are left?"
STEPS = ("Noor has 4 * 8 = 32 beads.", "Then 32 - 4 = 28 are left.")
WORK = "\n".join(STEPS)
USER = {"role": "user", "content": ASKED}


def assistant(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


TARGETS = [
    f"{WORK}\n#### 28",
    f"{WORK}\nThe answer is 28.",
    f"{WORK}\n**Final answer:** 28",
    f"{WORK}\n\n$\\boxed{{28}}$",
    f"{WORK}\nThe answer is $\\boxed{{28}}$.",
    f"{WORK}\nThe answer is 28 beads.",
    f"<think>{WORK}</think>\n28",
    f"<think>{WORK}</think>\nThe answer is \\boxed{{28}}.",
    f"<think>{WORK}</think>\n<answer>28</answer>",
    f"{WORK}\n</think>\n\nThe answer is 28.",
    f"<working>{WORK}</working>\n28",
]
CHATML = f"<|im_start|>user\n{ASKED}<|im_end|>\n<|im_start|>assistant\n"
LLAMA = "<|start_header_id|>{}<|end_header_id|>\n\n{}<|eot_id|>"
LAYOUTS: list[dict[str, Any]] = [
    {"text": f"{CHATML}{TARGETS[1]}<|im_end|>\n"},
    {"text": f"<|begin_of_text|>{LLAMA.format('user', ASKED)}{LLAMA.format('assistant', TARGETS[0])}"},
    {"text": f"<s>[INST] {ASKED} [/INST] {TARGETS[0]}</s>"},
    {"text": f"Below is an instruction.\n\n### Instruction:\n{ASKED}\n\n### Response:\n{TARGETS[1]}"},
    {"text": f"Question: {ASKED}\nAnswer: {WORK}\nAnswer: 28"},
    {"prompt": CHATML, "completion": f"{TARGETS[1]}<|im_end|>"},
    {"prompt": ASKED, "completion": f"{TARGETS[1]}</s>"},
    {"chosen": f"\n\nHuman: {ASKED}\n\nAssistant: {TARGETS[1]}", "rejected": f"\n\nHuman: {ASKED}\n\nAssistant: 5"},
    {"messages": [USER], "choices": [{"message": assistant(TARGETS[0])}]},
    {
        "request": {"body": {"messages": [USER]}},
        "response": {"body": {"choices": [{"message": assistant("28", reasoning_content=WORK)}]}},
    },
    {
        "problem": ASKED,
        "solution": "It is 28.",
        "answer": "28",
        "generations": ["So it is \\boxed{28}", TARGETS[1]],
        "correctness_math_verify": [False, True],
    },
    {"text": f"<｜begin▁of▁sentence｜><｜User｜>{ASKED}<｜Assistant｜><think>\n{WORK}\n</think>\n\n28<｜end▁of▁sentence｜>"},
    {"text": f"<｜User｜>{ASKED}<｜Assistant｜>{TARGETS[1]}"},
    {"prompt": f"<｜User｜>{ASKED}<｜Assistant｜>", "completion": f"{TARGETS[1]}<｜end▁of▁sentence｜>"},
    {"messages": [USER, assistant("28", reasoning_details=[{"type": "reasoning.text", "text": WORK, "format": "x"}])]},
    {"messages": [USER, assistant("28", reasoning_details=[{"type": "reasoning.summary", "summary": line} for line in STEPS])]},
    {
        "messages": [
            USER,
            assistant("28", reasoning=None, reasoning_details=[{"type": "reasoning.encrypted", "data": "x"}, {"text": WORK}]),
        ]
    },
    {
        "messages": [
            USER,
            assistant([{"type": "thinking", "thinking": [{"type": "text", "text": WORK}]}, {"type": "text", "text": "28"}]),
        ]
    },
    {"question": ASKED, "answer": "28", "think": WORK},
    {"question": ASKED, "answer": "28", "reasoning_details": [{"type": "reasoning.text", "text": WORK}]},
    {"question": ASKED, "answer": 28, "responses": ["I guess 5.\n#### 5", TARGETS[1]]},
    {"question": ASKED, "answer": 28, "steps": WORK},
    {"Q": ASKED, "A": 28, "why": WORK},
    {"Frage": ASKED, "Antwort": "28", "Begr\u00fcndung": WORK},
    {"pregunta": ASKED, "respuesta": "28", "razonamiento": WORK},
    {"question": ASKED, "r\u00e9ponse": "28", "raisonnement": WORK},
    {"\u95ee\u9898": ASKED, "\u7b54\u6848": 28, "\u89e3\u6790": WORK},
    {
        "\u0432\u043e\u043f\u0440\u043e\u0441": ASKED,
        "\u043e\u0442\u0432\u0435\u0442": 28,
        "\u0440\u0435\u0448\u0435\u043d\u0438\u0435": WORK,
    },
    {"q_text": ASKED, "q_ans": "28", "taskB": WORK},
    {"problem": ASKED, "generation": TARGETS[6], "expected_answer": "28"},
    {"question": ASKED, "answer": "28", "rationale": WORK},
    {"question": ASKED, "answer": "28", "steps": list(STEPS)},
    {"question": ASKED, "answer": 28, "cot": WORK},
    {"question": ASKED, "answer": "28", "reasoning_content": WORK},
    {"question": ASKED, "answer": f"{WORK}\n#### 28"},
    {"question": ASKED, "answer": f"<think>{WORK}</think>28"},
    {"question": ASKED, "answer": f"{WORK}\nThe answer is 28."},
    {"question": ASKED, "answer": ["28"], "rationale": WORK},
    {"problem": ASKED, "generated_solution": WORK, "expected_answer": "28"},
    {"prompt": ASKED, "chosen": TARGETS[1], "rejected": "The answer is 5."},
    {"prompt": ASKED, "chosen": [USER, assistant(TARGETS[1])], "rejected": [USER, assistant("5")]},
    {"prompt": [USER], "chosen": [assistant(TARGETS[1])]},
    {"problem": ASKED, "solution": WORK, "answer": "28"},
    {"problem": ASKED, "solution": list(STEPS), "answer": "28"},
    {"instruction": ASKED, "input": "", "output": TARGETS[1]},
    {"query": ASKED, "response": f"{WORK}\nThe answer is: 28"},
    {"prompt": [USER], "completion": [assistant(TARGETS[0])]},
    {"prompt": ASKED, "completion": "28", "reasoning_content": WORK},
    {"Question": ASKED, "Final Answer": "28", "Chain of Thought": WORK},
    {"question": ASKED, "answer": "28", "explanation": WORK},
    {"question": ASKED, "answer": "28", "answer_index": 2, "cot_content": WORK},
    {"Question": ASKED, "Complex_CoT": WORK, "Response": "The answer is 28."},
    {"question": ASKED, "answer": 28, "abstractive_explanation": WORK},
    {"question": ASKED, "answer": 28, "proof": WORK},
    {"question": ASKED, "final_answer": "28", "r1_solution_1": f"<think>{WORK}</think>\n28"},
    {"question": ASKED, "answer": 28, "fact1": STEPS[0], "fact2": STEPS[1]},
    {"question": ASKED, "answers_spans": {"spans": ["28"], "types": ["number"]}, "explanation": WORK},
    {"role_1": "Asker", "topic;": "Sums", "message_1": ASKED, "message_2": TARGETS[1]},
    {"question": ASKED, "answer": WORK},
    {"question": ASKED, "answer": f"{WORK} I hope this helps!"},
    {"question": ASKED, "label": 28, "facts": list(STEPS)},
    {"input": ASKED, "target": "28", "rationale": WORK},
    {"input": ASKED, "output": f"{WORK}\n\n**Answer:** Rs. 28"},
    {"messages": [USER, assistant("28", reasoning_content=WORK)]},
    {"messages": [USER, assistant("The answer is 28.", reasoning=WORK)]},
    {"messages": [USER, assistant("28", thinking=WORK)]},
    {"messages": [USER, assistant([{"type": "thinking", "thinking": WORK}, {"type": "text", "text": "28"}])]},
    {"messages": [USER, assistant([{"type": "reasoning", "text": WORK}, {"type": "text", "text": "28"}])]},
    {"messages": json.dumps([USER, assistant(TARGETS[0])])},
    {"prompt": ASKED, "completion": assistant(TARGETS[0])},
    {"question": ASKED, "answer": "28", "rationale": list(STEPS)},
    {"question": ASKED, "answer": "28", "cot": list(STEPS)},
    {"messages": [USER, assistant(TARGETS[2])], "answer": "28"},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": ASKED}]}, assistant(TARGETS[0])]},
    {"conversations": [{"from": "human", "value": ASKED}, {"from": "gpt", "value": TARGETS[3]}]},
    {"contents": [{"role": "user", "parts": [{"text": ASKED}]}, {"role": "model", "parts": [{"text": TARGETS[0]}]}]},
    {"contents": [{"role": "user", "parts": [ASKED]}, {"role": "model", "parts": [{"text": WORK, "thought": True}, "28"]}]},
    {"input": [USER], "output": [{"type": "reasoning", "summary": [{"text": WORK}]}, assistant([{"text": "28"}])]},
    {"dialog": [{"speaker": "user", "text": ASKED}, {"speaker": "bot", "text": TARGETS[1]}]},
    {"conversation": [{"input": ASKED, "output": TARGETS[1]}]},
    {"question": ASKED, "answer": "twenty-eight", "reason": WORK},
    {"question": ASKED, "answers": ["28", " 28 "], "justification": WORK},
    {"question": ASKED, "answer": {"value": "28", "aliases": ["28 beads"]}, "rationale": WORK},
    {"question": ASKED, "answers": {"text": ["28", "28 beads"], "answer_start": [3, 3]}, "rationale": WORK},
    {"question": ASKED, "answer": "Noor has **28** beads left.", "reasoning": WORK},
    {"messages": [USER, assistant("Noor has 28 beads left.", reasoning_content=WORK)]},
    {"question": ASKED, "rationale": TARGETS[1]},
    {"question": ASKED, "answer": 28, "rationale": [{"step": 1, "thought": STEPS[0]}, {"step": 2, "thought": STEPS[1]}]},
    {"problem": ASKED, "answer": 28, "steps": {"step_1": STEPS[0], "step_2": STEPS[1]}},
    {"row_idx": 0, "row": {"question": ASKED, "answer": TARGETS[0]}},
    {"question": {"stem": ASKED}, "answerKey": "28", "explanation": WORK},
    *({"prompt": ASKED, "completion": target} for target in TARGETS),
    *({"messages": [USER, assistant(target)]} for target in TARGETS),
]


def read(tmp_path: Path, *rows: dict[str, Any], **keys: Any) -> Any:
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    entry = TaskEntry.model_validate({"task": "jsonl", "train_file": str(path), **keys})
    task = build_task(entry, None)
    return task, read_split(train_path(entry, None), task.answer, columns=entry.columns, delimiter=entry.delimiter)


@pytest.mark.parametrize("row", LAYOUTS, ids=lambda row: json.dumps(row)[:60] if isinstance(row, dict) else None)
def test_every_layout_comes_to_the_same_row(tmp_path: Path, row: dict[str, Any]) -> None:
    task, problems = read(tmp_path, row)
    (problem,) = problems
    assert (task.answer, problem.question, problem.answer) == ("number", ASKED, "28")
    found = gather([problem], schema.Rationales(), None, {"": task}).rationales
    (cut,) = cut_all(found, schema.Segments(), problems).steps
    found_steps = (step.removesuffix("\nFinal answer: 28") for step in cut.segments)
    assert tuple(step for step in found_steps if step not in ("28", "The answer is 28.")) == STEPS
    assert found[0].agrees is not False


def test_a_system_prompt_and_earlier_turns_belong_to_the_question() -> None:
    system = {"role": "system", "content": "Count beads."}
    earlier = [{"role": "user", "content": "Hello"}, assistant("Hello!", reasoning_content="They greet.")]
    row = plain_row({"messages": [system, *earlier, USER, assistant(TARGETS[0]), {"role": "user", "content": "Thanks"}]}, "here")
    assert row["question"] == f"Count beads.\n\nUser: Hello\nAssistant: Hello!\nUser: {ASKED}"
    assert (row["rationale"], row["answer"]) == (WORK, "28")
    for apart in (
        {"systemInstruction": {"parts": [{"text": "Count beads."}]}, "messages": [*earlier, USER, assistant(TARGETS[0])]},
        {"system": "Count beads.", "instruction": ASKED, "history": [["Hello", "Hello!"]], "output": TARGETS[0]},
    ):
        assert plain_row(apart, "here")["question"] == row["question"]


def test_of_an_answer_in_a_sentence_the_number_that_is_worked_out_or_yes_or_no_is_taken() -> None:
    for given, rationale, answer in (
        ("Yes, it is even.", "It ends in 8, so yes.", "Yes"),
        ("There are 5 boxes in all.", WORK, "There are 5 boxes in all."),
        ("She is back on the 28 of May.", WORK, "She is back on the 28 of May."),
        ("28 beads", WORK, "28 beads"),
    ):
        assert plain_row({"question": ASKED, "answer": given, "rationale": rationale}, "here")["answer"] == answer
    row = plain_row({"question": "Is 28 even?", "answer": "Yes, because it ends in 8."}, "here")
    assert (row["answer"], row["rationale"]) == ("Yes", "because it ends in 8.")


def test_a_program_is_worked_out() -> None:
    report = {"pre_text": ["We report."], "table": [["", "2019"], ["cost", "$50"]], "post_text": ["Costs rose."]}
    qa = {"question": "By how much?", "answer": "80 %", "program": "subtract(90, 50), divide(#0, 50)", "exe_ans": 0.8}
    row = plain_row({**report, "qa": qa}, "here")
    assert row["question"] == "We report.\n| 2019\ncost | $50\nCosts rose.\n\nBy how much?"
    assert (row["rationale"], row["answer"]) == ("90 - 50 = 40\n40 / 50 = 0.8", 0.8)
    for program in ("table_max(cost, none)", "divide(3, 0)", "add(#3, 1)", "print(1)"):
        assert "rationale" not in plain_row({"question": "How much?", "program": program, "exe_ans": 3}, "here")


def test_numbers_of_labels_become_their_names() -> None:
    def answers(*rows: dict[str, Any]) -> tuple[str, list[str]]:
        task, problems = rows_in_memory([{"text": f"Row {number}.", **row} for number, row in enumerate(rows)], "mine")
        return task.answer, [problem.answer for problem in problems]

    names = ["for", "open", "against"]
    assert answers(*({"label": place, "label_text": names[place]} for place in (2, 0, 1, 0))) == (
        "text",
        ["against", "for", "open", "for"],
    )
    assert answers(*({"label": place, "label_names": names} for place in (2, 0))) == ("text", ["against", "for"])
    assert answers({"label": 0, "label_text": "for"}, {"label": 1, "label_text": "for"}) == ("text", ["0", "1"])
    assert answers({"answer": 0}, {"answer": 1}) == ("number", ["0", "1"])


def test_numbers_of_labels_without_names_get_a_note(tmp_path: Path) -> None:
    task, _ = read(tmp_path, *({"premise": "Ann sits.", "hypothesis": f"It is {n}.", "label": n % 3} for n in range(4)))
    assert task.answer == "text"
    (note,) = row_notes(TaskEntry(task="jsonl", train_file=str(tmp_path / "mine.jsonl")), None)
    assert note.startswith("the answers are numbers of labels")


def test_two_texts_are_a_question_and_labels_an_answer() -> None:
    pair = {"Sentence1": "Dogs run.", "Sentence2": "Dogs sleep.", "gold_label": "contradiction", "Explanation_1": "They run."}
    row = plain_row(pair, "here")
    assert (row["question"], row["answer"]) == ("Sentence 1: Dogs run.\nSentence 2: Dogs sleep.", "contradiction")
    row = plain_row({"premises": ["Bo is red.", "Red is warm."], "conclusion": "Bo is warm.", "label": "True"}, "here")
    assert row["question"] == "Premises: Bo is red.\nRed is warm.\nConclusion: Bo is warm."
    assert plain_row({"text": "It crashes, give it back.", "labels": ["bug", "refund"]}, "here")["answer"] == "bug, refund"
    assert (
        plain_row({"claim": "Dogs sleep.", "verdict": "SUPPORTS", "justification": "All dogs sleep."}, "here")["answer"]
        == "SUPPORTS"
    )
    with pytest.raises(RowError, match="the field answer is missing"):
        plain_row({"question": ASKED, "rationale": "It is 4 of 5.", "category": "sums"}, "here, line 1")


def test_a_class_is_the_answer_where_the_rationale_ends_with_it() -> None:
    row = {"email": "It never came!", "explanation": "It is late.\nThis is on Shipping Issues.", "category": "shipping_issues"}
    read_row = plain_row(row, "here")
    assert (read_row["question"], read_row["answer"]) == ("It never came!", "shipping_issues")
    rated = {"review": "Loud.", "reasoning": "Noise is bad. The guest gives 1 star.", "rating": 1}
    assert plain_row(rated, "here")["answer"] == "1"
    solved = {"question": "What is the area?", "rationale": "Geometry helps.\nSo the answer is 12.", "category": "geometry"}
    assert plain_row(solved, "here")["answer"] == "12"
    unsaid = [row | {"explanation": said} for said in ("It is late.", "This is not shipping issues.", "Shipping issues cost us.")]
    for other in (*unsaid, {"question": "How many?", "rationale": "That leaves 4 for each of 2 kids.", "score": 2}):
        with pytest.raises(RowError, match="the field answer is missing"):
            plain_row(other, "here, line 1")
    with pytest.raises(RowError, match="the field question is missing"):
        plain_row({"email": "bob@x.org", "question_text": "What is 2+2?", "answer": "4"}, "here, line 1")


def test_tables_steps_and_code_are_read_as_a_whole() -> None:
    table = {"header": ["pens", "cups"], "rows": [["7", "2"]]}
    assert (
        plain_row({"question": "How many?", "table": table, "answer": 7}, "here")["question"] == "pens | cups\n7 | 2\n\nHow many?"
    )
    assert plain_row({"question": ASKED, "answer": 28, "reasoning": {"steps": list(STEPS)}}, "here")["rationale"] == WORK
    row = plain_row({"prompt": "Write SQL.", "completion": "<think>All rows.</think>\n```sql\nSELECT 1\nFROM x;\n```"}, "here")
    assert (row["answer"], row["rationale"]) == ("SELECT 1\nFROM x;", "All rows.")


def test_where_a_rationale_follows_the_thoughts_it_is_the_rationale(tmp_path: Path) -> None:
    _, problems = read(tmp_path, {"prompt": ASKED, "completion": f"<think>Hm, 9? No.</think>{WORK}\n#### 28"})
    (found,) = gather(problems, schema.Rationales(), None, {"": build_task_of(tmp_path)}).rationales
    assert "Hm" not in found.text and found.text.startswith(WORK)


def build_task_of(tmp_path: Path) -> Any:
    return build_task(TaskEntry.model_validate({"task": "jsonl", "train_file": str(tmp_path / "mine.jsonl")}), None)


def test_other_kinds_of_answers_are_found_in_texts_too(tmp_path: Path) -> None:
    pick = {"prompt": "Which flies?", "choices": ["a roof", "a bird"], "completion": "Roofs stay.\nBirds fly.\nThe answer is B."}
    assert [(p.answer, p.rationale) for p in read(tmp_path, pick)[1]] == [("B", "Roofs stay.\nBirds fly.")]
    flies = {"prompt": "Do roofs fly?", "completion": "Roofs stay.\nThe answer is no."}
    task, problems = read(tmp_path, flies)
    assert (task.answer, problems[0].answer, problems[0].rationale) == ("yesno", "no", "Roofs stay.")


def test_answers_that_only_look_like_layouts_stay_as_they_are() -> None:
    for row in (
        {"question": "q", "answer": "Paris"},
        {"question": "q", "answer": "a\nb"},
        {"question": "q", "answer": "I say so. The answer is simple."},
        {"question": "q", "answer": 7, "steps": 3},
        {"question": "q", "answer": "7", "rationale": "r", "solution": "s", "messages": []},
    ):
        assert plain_row(row, "here") == row


@each_row(
    ("closing", "answer"),
    [
        ("So 28 beads are left.", "28"),
        ("Therefore, of 32 beads she has **28** left.", "28"),
        ("### Conclusion\nNoor has 28 beads.", "28"),
        ("Thus, the final answer is:\n\\[\n\\text{There are } 28 \\text{ beads.}\n\\]", "28"),
        ("The final answer is that 28 beads are left.", "28"),
        ("**Total:** $32 - $4 = **$28**", "28"),
        ("Output:\n```\n[1, 2]\n```", "[1, 2]"),
        ("**Conclusion:** False", "False"),
        ("Score: 4", "4"),
        ("She has **28** beads. I hope this helps! Let me know if you have 3 more questions.", "28"),
        ("The number that is left is 28.", "28"),
        ("The number that is left is 27.", None),
        ("Each box holds 8.", None),
        ("Each of the 2 takes 28 / 2 = 14 beads.", "14"),
        ("28 / 2 = 14. Hope this helps!", "14"),
        ("28 / 2 = 14. Happy to help! 😊", "14"),
        ("So 28 are left. Let me know how it goes!", "28"),
        ("28 / 2 = 14, and 4 / 2 = 2 are given.", None),
        ("28 + 4 = 32.", None),
        ("They take 28 / 2 = 14 beads and 2 are lost.", None),
        ("Check that 14 * 2 = 28.", None),
        ("Since 28 / 2 = 14.", None),
        ("Now add 28.", None),
        ("\n**28** 😊", "28"),
        ("\n∴ **x = 28**", "x = 28"),
        ("So x = 7 and x = -7.", None),
        ("The number of beads is **28**. Let me know if you have more questions!", "28"),
        ("Therefore the correct choice is **B**.", "B"),
        ("The angle at C is right and it is a triangle. C is right. So its area is 4.", "4"),
        ("The only option is to pay 32 - 4 = 28. So she pays 28.", "28"),
        ("I hope this helps! The answer is 28.", "28"),
        ("If you need more than 4, you pay 7 each. So she pays 28.", "28"),
        ("Score: 4\nSo she won by 3.", "3"),
        ("[Step 1] 4 * 8 = 32\n[Step 2] So 28 are left.\n#### 28\n[end]", "28"),
        ("```\n4 * 7 = 28\nThe answer is 28\n```", "28"),
        ("She has 28. Note that the price is **$4**.", None),
        ("So she gives 4 of 32 away.", None),
        ("Finally, subtract 4.", None),
        ("So it is more than 4.", None),
        ("So x > 4.", None),
        ("So x = 32 - 4", None),
        ("So it's not 4.", None),
        ("Therefore, by theorem 4, it holds.", None),
        ("Result: x = 4 or x = 5", None),
        ("Total: 32 - 4", None),
        ("28 are left.", "28"),
        ("each = 4\ntotal = beads - each\nprint(total)", None),
        ("total = 28 * boxes", None),
        ("answer = beads - given", None),
        ("answer = max(beads, given)", None),
        ("    result = a + b\n    return result\nprint(solve())", None),
        ("Result = 28", "28"),
        ("That makes 28 in total.", "28"),
        ("This leaves 28 beads.", "28"),
        ("Thirty-two less four is 28. So twenty-eight are left.", "28"),
        ("So the bus arrives at 9:05.", "9:05"),
        ("Therefore the film ends at 10:00 pm.", "10:00 pm"),
        ("Thus she is back at 3 pm.", "3 pm"),
        ("So she leaves at 9:05 and is back at 9:50.", None),
        ("So its capital is Lima.", "Lima"),
        ("Hence the composer was Ludwig van Beethoven.", "Ludwig van Beethoven"),
        ("So she is tired.", None),
        ("So the firm made a loss of $4.", None),
        ("So her account is overdrawn by $4.", None),
        ("So the share is down 12%.", None),
        ("So it is now 2 degrees below zero.", "-2"),
        ("Thus the lake is at minus 7 °C.", "-7"),
        ("So x is negative 3.", "-3"),
        ("The answer is minus 4.", "-4"),
        ("The obvious answer is 100. But each takes 5 minutes. So it takes 5 minutes.", "5"),
        ("The tempting answer is 24. That is wrong, as it doubles. So it is day 47.", "47"),
        ("The answer is 28. But mind the string!", "28"),
        ("The answer is 28. However, 28 + 5 = 33 is odd.", "28"),
    ],
)
def test_a_text_that_names_no_answer_has_the_one_it_concludes_with(closing: str, answer: str | None) -> None:
    row = plain_row({"prompt": ASKED, "completion": f"{WORK}\n{closing}"}, "here", answered=False)
    assert row.get("answer") == answer and row["rationale"].startswith(WORK)


def test_a_text_may_open_with_its_answer() -> None:
    for word in ("Yes", "no", "**True**", "Ja", "Non", "S\u00ed"):
        for mark in (",", "."):
            numbered = plain_row({"prompt": "Is it even?", "completion": f"{word}{mark} It is 2 times 14, so it is."}, "here")
            assert numbered["rationale"] == "It is 2 times 14, so it is."
        row = plain_row({"prompt": "Do birds fly?", "completion": f"{word}, birds have wings.\nWings carry them."}, "here")
        assert (row["answer"], row["rationale"]) == (word.strip("*"), "birds have wings.\nWings carry them.")


def test_what_a_question_is_about_comes_before_it() -> None:
    for name in ("context", "passage", "hint", "text", "sentence", "email", "input", "schema", "theory"):
        assert plain_row({name: "Bo has 2 pens.", "question": "How many?", "answer": 2}, "here")["question"] == (
            "Bo has 2 pens.\n\nHow many?"
        )
    for name, about in (("code", "What does the code return?"), ("snippet", "Its output?"), ("review", "Is it good?")):
        for question in ("How many?", "Write a program.", about):  # else a solution or a note
            row = plain_row({name: "return 2 * 3 + 1", "question": question, "answer": 2}, "here")
            assert row["question"] == ("return 2 * 3 + 1\n\n" if question == about else "") + question
    solved = {"question": "Two boxes of 4 pens are how many?", "answer": 8, "text": "Each box has 4 pens. So 2 * 4 = 8 pens."}
    assert plain_row(solved, "here")["question"] == solved["question"]
    for other in (
        {"text": "pens"},  # a note
        {"text": "Question: How many? Answer: 2"},  # a prompt
        {"text": "Think: one and one make two.", "rationale": "One and one make two."},
        {"title": "Bo has 2 pens."},
    ):
        assert plain_row({"question": "How many?", "answer": 2, **other}, "here")["question"] == "How many?"
    pair = {"premise": "Bo sings.", "hypothesis": "Bo is silent.", "label": "contradiction", "explanation": "Who sings is heard."}
    row = plain_row(pair, "here")
    assert (row["question"], row["answer"]) == ("Premise: Bo sings.\nHypothesis: Bo is silent.", "contradiction")


def test_a_context_may_be_a_list_or_a_premise() -> None:
    asked = {"question": "What is the cause?", "answer": "It rained."}
    for more in (
        {"context": ["One.", "Two."]},
        {"context": {"contexts": ["One.", "Two."], "labels": []}},
        {"premise": "One.\nTwo."},
    ):
        assert plain_row(asked | more, "here")["question"] == "One.\nTwo.\n\nWhat is the cause?"
    for context in (
        {"title": ["Rain", "Sun"], "sentences": [["It is wet.", " It falls."], ["It is hot."]]},
        [["Rain", ["It is wet.", "It falls."]], ["Sun", ["It is hot."]]],
    ):  # HotpotQA's
        question = plain_row(asked | {"context": context}, "here")["question"]
        assert question == "Rain: It is wet. It falls.\nSun: It is hot.\n\nWhat is the cause?"


def test_a_label_in_front_of_a_short_answer_is_no_part_of_it() -> None:
    for text, answer in (
        ("Label: positive", "positive"),
        ("Total: 28 beads", "28"),
        ("The answer is 28!", "28"),
        ("Output of it", "Output of it"),
    ):
        assert plain_row({"prompt": "q", "completion": text}, "here")["answer"] == answer
    for text in ("Result: we find that it works", "Result: we find that it works.\nAll is well here."):
        with pytest.raises(RowError, match="no answer is found"):
            plain_row({"prompt": "q", "completion": text}, "rows, row 0")


def test_a_number_in_front_is_no_answer() -> None:
    for text in ("No. of beads: 32.\nShe gives 4.", "Yes, let's see. 28 are left over.\nThat is many."):
        assert "answer" not in plain_row({"prompt": ASKED, "completion": text}, "here", answered=False)


@pytest.mark.parametrize("name", ["label", "correct"])
def test_a_mark_of_a_solution_is_no_answer(name: str) -> None:
    row = {"question": ASKED, "response": TARGETS[0]}
    for right in (True, 1, "1", "True"):
        assert plain_row({**row, name: right}, "here")["answer"] == "28"
    for wrong in (False, 0, "false"):
        with pytest.raises(RowError, match=f"{name} is .*, else name the column answer"):
            plain_row({**row, name: wrong}, "rows, row 0")
        if name == "label":
            assert plain_row({**row, "answer": 28, name: wrong}, "here")["answer"] == 28
        else:
            with pytest.raises(RowError, match=f"{name} is .*, else rename the column"):
                plain_row({**row, "answer": 28, name: wrong}, "rows, row 0")
    assert plain_row({"question": "Is it so?", name: False}, "here")["answer"] is False
    placed = plain_row({"question": "Which?", "choices": FRUIT, "solution": "One eats apples.", name: 0}, "here")
    assert (placed["answer"], placed["rationale"]) == (0, "One eats apples.")


def test_a_label_marks_a_rationale_that_calls_another_number_the_answer() -> None:
    row = {"question": ASKED, "rationale": TARGETS[1]}
    assert plain_row({**row, "label": 1}, "here")["answer"] == "28"
    with pytest.raises(RowError, match="label is 0: leave the row out"):
        plain_row({**row, "label": 0}, "rows, row 0")
    for rationale in ("It is so.\nThe answer is neutral.", "It is so.\nThe answer is 1.", "It is so."):
        assert plain_row({"question": "Is it?", "rationale": rationale, "label": 0}, "here")["answer"] == 0


def test_calls_of_tools_and_what_they_return_belong_to_the_rationale() -> None:
    call = {"function": {"name": "calc", "arguments": json.dumps({"expression": "4*8"})}}
    turns = [USER, assistant("I multiply.", tool_calls=[call]), {"role": "tool", "content": "32"}]
    for last in (assistant(f"{STEPS[1]}\nThe answer is 28."), assistant("28", reasoning_content=STEPS[1])):
        row = plain_row({"messages": [*turns, last]}, "here")
        thought = row["rationale"].replace("<think>", "").replace("</think>", "").strip()
        assert (row["question"], row["answer"], thought) == (ASKED, "28", f"I multiply.\ncalc(4*8) = 32\n{STEPS[1]}")
    use = [{"type": "text", "text": "I multiply."}, {"type": "tool_use", "name": "calc", "input": {"expression": "4*8"}}]
    result = {"role": "user", "content": [{"type": "tool_result", "content": "32"}]}
    row = plain_row({"messages": [USER, assistant(use), result, assistant(f"{STEPS[1]}\nThe answer is 28.")]}, "here")
    assert (row["question"], row["rationale"]) == (ASKED, f"I multiply.\ncalc(4*8) = 32\n{STEPS[1]}")


@pytest.mark.parametrize("calls", ["tool_calls", "content"])
def test_a_last_turn_that_only_calls_tools_has_no_answer(calls: str) -> None:
    beside = [{"function": {"name": "calc", "arguments": '{"expression": "4*8"}'}}]
    last = assistant([{"type": "tool_use", "name": "calc", "input": {"expression": "4*8"}}])
    last = assistant(None, tool_calls=beside) if calls == "tool_calls" else last
    for before, after in (({}, []), ({"reasoning_content": WORK}, [{"role": "tool", "content": "32"}])):
        with pytest.raises(RowError, match="the assistant's last turn only calls tools; add its answer"):
            plain_row({"messages": [USER, last | before, *after]}, "rows, row 0")


def test_what_comes_before_the_first_turn_of_deepseek_is_its_system_prompt() -> None:
    text = f"<｜begin▁of▁sentence｜>Be brief.<｜User｜>{ASKED}<｜Assistant｜>{TARGETS[1]}<｜end▁of▁sentence｜>"
    row = plain_row({"text": text}, "here")
    assert (row["question"], row["answer"]) == (f"Be brief.\n\n{ASKED}", "28")


def test_of_several_solutions_none_of_which_is_right_none_is_taken() -> None:
    row = {"problem": ASKED, "solution": WORK, "answer": "28", "generations": ["a b", "c d"], "correctness": [False, False]}
    assert plain_row(row, "here")["rationale"] == WORK


def test_a_text_that_only_has_words_of_a_chat_in_it_stays_as_it_is() -> None:
    for text in (f"{ASKED}\nAnswer: in words", "Question: Which?\nHint: the first", "Input: 1\nOutput: 2\nWhat is the rule?"):
        assert plain_row({"prompt": text, "answer": "x"}, "here")["question"] == text
    row = plain_row({"prompt": ASKED, "response": f"Question: {ASKED}\nAnswer: {WORK}\n#### 28"}, "here")
    assert (row["question"], row["answer"]) == (ASKED, "28")


@pytest.mark.parametrize(
    ("question", "more"),
    [
        ("Question: Which is a fruit?\nA: apple\nB: car\nC: hat\nAnswer:", {"answer": "A", "rationale": "An apple is."}),
        ("Question: Which is a fruit?\nA: apple\nB: car", {"completion": "An apple is.\nThe answer is A."}),
        ("Question: Is the sky blue?\nAnswer: It is.\nIs this right?", {"completion": "The sky is blue.\nThe answer is yes."}),
        ("User: It is broken.\nAssistant: Sorry.", {"label": "complaint", "rationale": "It is broken. So it is one."}),
    ],
)
def test_a_question_about_a_chat_or_with_lettered_options_is_whole(question: str, more: dict[str, str]) -> None:
    asked = plain_row({"prompt": question, **more}, "row 1")["question"]
    assert asked == question or asked == question.removeprefix("Question: ").removesuffix("\nAnswer:")


def test_an_instruction_about_a_chat_stays_next_to_it() -> None:
    for chat in ("User: It is broken.\nAssistant: Sorry.", "User: It is broken.\nAssistant: Sorry.\nUser: Money back!"):
        row = plain_row({"instruction": "Is it polite?", "input": chat, "output": "It is so.\nThe answer is yes."}, "row 1")
        assert (row["question"], row["answer"]) == (f"Is it polite?\n\n{chat}", "yes")


@pytest.mark.parametrize("prompt", [CHATML, [USER], f"Question: {ASKED}\nAnswer: ", f"Human: {ASKED}\n\nAssistant:"])
def test_a_chat_without_its_answer_has_it_in_a_column(prompt: Any) -> None:
    row = plain_row({"prompt": prompt, "answer": "28"}, "row 1")
    assert (row["question"], row["answer"], row.get("rationale")) == (ASKED, "28", None)


def test_several_texts_without_the_answer_replace_no_solution() -> None:
    row = {"question": ASKED, "answer": "28", "samples": ["hat bat", "It is 5.\n#### 5"]}
    assert "rationale" not in plain_row(row, "row 1")
    assert plain_row({**row, "solution": WORK}, "row 1")["rationale"] == WORK
    assert plain_row({"question": ASKED, "response": TARGETS[1], "responses": ["#### 5", "#### 6"]}, "row 1")["answer"] == "28"


KINDS = [
    ("text", ("Seven", "Ten"), "The film is called {}.", "number words, read as names; if they are numbers, set answer: number"),
    ("number", ("Seven", "Ten"), "There were some, and {0} is what remains. So {1}.", None),
    ("yesno", ("y", "n"), "It is so.", "letters, read as no and yes; if they are names, set answer: text"),
    ("text", ("Y", "f"), "It is so.", None),
    ("number", (0, 1), "It is so.", "0 and 1, read as numbers; if they mean no and yes, set answer: yesno"),
    ("text", ("S\u00ed", "No"), "Es as\u00ed.", None),
    ("text", ("yes", "no", "maybe"), "It is so.", None),
]


@pytest.mark.parametrize(("kind", "answers", "rationale", "note"), KINDS)
def test_answers_that_may_mean_two_things_get_a_note(
    tmp_path: Path, kind: str, answers: tuple[Any, ...], rationale: str, note: str | None
) -> None:
    rows = [
        {"question": f"Which, {n}?", "answer": answer, "rationale": rationale.format(answer, str(answer).lower())}
        for n, answer in enumerate(answers * 4)
    ]
    assert read(tmp_path, *rows)[0].answer == kind
    assert row_notes(TaskEntry(task="jsonl", train_file=str(tmp_path / "mine.jsonl")), None) == (
        [f"the answers are {note}"] if note else []
    )
    if answers == (0, 1):
        assert {problem.answer for problem in read(tmp_path, *rows, answer="yesno")[1]} == {"yes", "no"}


def test_working_next_to_a_final_answer_is_the_rationale() -> None:
    row = plain_row({"question": ASKED, "answer": WORK, "final_answer": "28"}, "here")
    assert (row["answer"], row["rationale"]) == ("28", WORK)


def test_a_long_answer_that_calculates_has_the_number_that_it_concludes_with() -> None:
    for end in ("\nTherefore, the result is 28.", "\nThe answer is 28.\nI hope this helps!"):
        row = plain_row({"question": ASKED, "answer": WORK + end}, "here")
        assert (row["answer"], row["rationale"].startswith(WORK)) == ("28", True)
    for text in (
        f"{WORK}\nBeads are nice.",
        "She had a long day and went home late. It was so hot that the shop closed. So 3 were left.",
    ):
        assert plain_row({"question": ASKED, "answer": text}, "here")["answer"] == text


def test_a_target_that_only_repeats_the_answer_is_no_rationale() -> None:
    for target in ("28", " 28 ", "train"):
        assert "rationale" not in plain_row({"question": ASKED, "answer": 28, "target": target}, "here")


def test_facts_next_to_reasoning_are_no_rationale() -> None:
    row = {"question": ASKED, "answer": 28, "facts": ["Beads are small."]}
    assert plain_row(row | {"reasoning": WORK}, "here")["rationale"] == WORK
    assert plain_row(row | {"solution": WORK}, "here")["rationale"] == WORK


FRUIT = ["apple", "chair", "lamp"]
OPTIONS: list[dict[str, Any]] = [
    {"choices": ["A) apple", "B) chair", "C) lamp"], "answer": "(b)"},
    {"options": FRUIT, "answer": "B. chair"},
    {"options": FRUIT, "answer_idx": "B"},
    {"options": "a ) apple , b ) chair , c ) lamp", "correct": "b"},
    {"choices": {"label": ["A", "B", "C"], "text": FRUIT}, "answerKey": "B"},
    {"choices": {"label": ["1", "2", "3"], "text": FRUIT}, "answerKey": "2"},
    {"options": {"A": "apple", "B": "chair", "C": "lamp"}, "answer": "chair"},
    {"options": {"C": "lamp", "A": "apple", "B": "chair", "D": None}, "answer": "(b)"},
    {"choices": {"label": ["P", "Q", "R"], "text": FRUIT}, "answer": "(q)"},
    {"options": {"1": "apple", "2": None, "3": "chair", "4": "lamp"}, "answer": 3},
    {"options": json.dumps(FRUIT), "answer": "chair"},
    {"options": "apple\nchair\nlamp", "answer": "b"},
    {
        "choices": [{"label": "A", "text": "apple"}, {"label": "B", "text": "chair"}, {"label": "C", "text": "lamp"}],
        "answer": "B",
    },
    {"A": "apple", "B": "chair", "C": "lamp", "Answer": "B"},
    {"option_1": "apple", "option_2": "chair", "option_3": "lamp", "answer": "option B"},
    {"opa": "apple", "opb": "chair", "opc": "lamp", "answer": "b)"},
    {"q_op1": "apple", "q_op2": "chair", "q_op3": "lamp", "answer": "chair"},
    {
        "options": [{"key": "A", "value": "apple"}, {"key": "B", "value": "chair"}, {"key": "C", "value": "lamp"}],
        "answer": "chair",
    },
    {"answers": FRUIT, "label": "B"},
    {"ra": 2, "answers": [{"aid": place, "atext": text} for place, text in enumerate(FRUIT, 1)]},
    {"options": FRUIT, "response": "One sits on a chair.\nSo a chair is for sitting."},
    {"option_1": "apple", "option_2": "chair", "option_3": "lamp", "correct_option": "option_2"},
    {"choices": [{"text": text, "is_correct": text == "chair"} for text in FRUIT]},
    {"choices": FRUIT, "labels": [0, 1, 0]},
    {
        "question": {
            "stem": "Where does one sit?",
            "choices": [{"label": "A", "text": "apple"}, {"label": "B", "text": "chair"}, {"label": "C", "text": "lamp"}],
        },
        "answerKey": "B",
    },
]


def test_options_in_columns_of_wrong_ones_are_each_there_once_and_in_no_order_that_tells() -> None:
    def read_row(**row: Any) -> dict[str, Any]:
        return plain_row({"question": "Where?", **row}, "here")

    listed = [read_row(question=f"Where is {n}?", mc1_targets={"choices": FRUIT, "labels": [1, 0, 0]}) for n in range(60)]
    assert {row["answer"] for row in listed} == {"A", "B", "C"}
    assert {row["choices"][ord(row["answer"]) - 65] for row in listed} == {FRUIT[0]}
    row = read_row(answer="chair", distractors=["lamp", "Lamp", "chair", "apple"])
    assert sorted(row["choices"]) == ["apple", "chair", "lamp"] and row["choices"][ord(row["answer"]) - 65] == "chair"
    assert "choices" not in read_row(answer="B", distractor1="A", distractor2="C")
    for none in ({"wrong": 0}, {"incorrect": "no"}, {"incorrect_answers": []}, {"wrong_answer": "5"}):
        assert "choices" not in read_row(answer="4", **none)
    assert read_row(choices=FRUIT, labels=[0, 1, 2], label=0)["answer"] == 0


def test_columns_that_only_look_like_a_field_are_not_taken_for_it() -> None:
    solved = plain_row(
        {"problem": "2 + 2?", "solution": "2+2=4\nThe answer is 4.", "reason": "verified", "analysis": "ok"}, "here"
    )
    assert (solved["rationale"], solved["answer"]) == ("2+2=4", "4")
    for note in ({"reason": "none"}, {"support": "high"}):
        assert "rationale" not in plain_row({"question": "2 + 2?", "answer": "4", **note}, "here")
    for data in ([1, 2], ["b", "a"], {"a": 1}):
        assert plain_row({"instruction": "Sort.", "input": data, "output": "1"}, "here")["question"] == "Sort."
    with pytest.raises(RowError, match="the field question is missing"):
        plain_row({"text": "Chapter 0", "exercise": "What do 2 and 2 make?", "answer": "4"}, "mine, line 1")
    steps = plain_row({"question": "2 + 2?", "answer": "4", "steps": [{"kind": "sum", "text": "2+2=4"}]}, "here")
    assert steps["rationale"] == "2+2=4"
    assert plain_row({"question": "Title?", "answer": "No, Honestly", "rationale": "It ran."}, "here")["answer"] == "No, Honestly"
    with pytest.raises(RowError, match="label is 'incorrect': leave the row out"):
        plain_row({"problem": "2 + 3?", "solution": "2+3=6\nThe answer is 6.", "label": "incorrect"}, "mine, line 1")
    numbered = [{"question": f"{n}?", "answer": n % 3, "category_name": f"Grade {n % 3}"} for n in range(9)]
    assert rows_in_memory(numbered, "mine")[0].answer == "number"


@pytest.mark.parametrize("row", OPTIONS, ids=lambda row: json.dumps(row)[:60])
def test_options_are_read_in_every_layout(tmp_path: Path, row: dict[str, Any]) -> None:
    task, (problem,) = read(tmp_path, {"question": "Where does one sit?", **row})
    assert (task.answer, problem.answer, problem.choices) == ("option", "B", tuple(FRUIT))


@pytest.mark.parametrize(
    "wrong",
    [
        {"distractor1": "apple", "distractor2": "lamp"},
        {"Incorrect Answer 1": "apple\n", "Incorrect Answer 2": "lamp", "Pre-Revision Incorrect Answer 1": "pear"},
        {"incorrect_answers": ["lamp", "apple"]},
        {"distractors": ["apple", "lamp"]},
    ],
)
def test_wrong_options_in_columns_of_their_own_are_options(wrong: dict[str, Any]) -> None:
    places = set[str]()
    for number in range(12):
        row = {"question": f"Where does Ann sit on day {number}?", "Correct Answer": "chair", **wrong}
        task, (problem,) = rows_in_memory([row], "mine")
        assert task.answer == "option" and sorted(problem.choices or ()) == FRUIT
        assert (problem.choices or ())[ord(problem.answer) - 65] == "chair"
        places.add(problem.answer)
    assert places == {"A", "B", "C"}  # the place of the right one says nothing


def test_several_right_options_may_be_a_list() -> None:
    rows = [{"question": "Which?", "choices": FRUIT, "answer": answer} for answer in (["A", "C"], ["B"])]
    task, problems = rows_in_memory(rows, "mine")
    assert (task.answer, [problem.answer for problem in problems]) == ("text", ["A, C", "B"])


def test_a_blank_column_among_options_is_left_out() -> None:
    row = {"question": "Which?", "A": "apple", "B": "", "C": "chair", "D": None}
    found = plain_row(row | {"answer": "C"}, "here")
    assert (found["choices"], found["answer"]) == (["apple", "chair"], "B")
    with pytest.raises(RowError, match="answer 'b' is an option that is blank"):
        plain_row(row | {"answer": "B"}, "rows, row 0")


def test_columns_that_only_look_like_options_are_none() -> None:
    for row in (
        {"question": "What is the larger of a and b?", "a": 3, "b": "4", "answer": 4},
        {"question": ASKED, "answer": "28", "answer1": "28", "answer2": "27"},
        {"question": ASKED, "answer": "28 beads", "answers": ["28 beads", "28"]},
        {"question": ASKED, "answer": "many", "answer_1": "many", "answer_2": "a lot", 3: "unnamed"},
    ):
        assert "choices" not in plain_row(row, "here")
    assert plain_row({"question": "Which?", "a": 3, "b": 4, "answer": "b"}, "here")["choices"] == ["3", "4"]


def test_options_that_may_be_read_in_two_ways_are_refused() -> None:
    for row, message in (
        ({"options": {"1": "3", "2": "1"}, "answer": "1"}, "one option's label and another option's text"),
        ({"options": [["A", "apple"], ["B", "chair"]], "answer": "B"}, "in a form that is not read"),
        ({"options": {"A": True, "B": False}, "answer": "B"}, "in a form that is not read"),
    ):
        with pytest.raises(RowError, match=message):
            plain_row({"question": "Which?", **row}, "rows, row 0")


@pytest.mark.parametrize(
    "listed",
    [
        "\nA) apple\nB) chair\nC) lamp",
        " Options: (a) apple (b) chair (c) lamp",
        "\nA. apple\nB. chair\nC. lamp\n\nAnswer:",
        "\nA) apple\nB) chair\nC) lamp\nRespond with the letter.",
    ],
)
def test_a_question_may_list_its_options_itself(tmp_path: Path, listed: str) -> None:
    asked = f"Where does one sit?{listed}"
    task, (problem,) = read(tmp_path, {"question": asked, "answer": "B"})
    assert (task.answer, problem.answer, problem.choices) == ("option", "B", tuple(FRUIT))
    assert task.render(problem) == asked.strip()
    assert read(tmp_path, {"question": asked, "answer": "chair"})[0].answer == "text"


@pytest.mark.parametrize(("answers", "letters"), [((0, 2, 1), "ACB"), (("1", "3", "2"), "ACB"), ((1.0, 3.0, 2.0), "ACB")])
def test_places_of_options_become_letters(tmp_path: Path, answers: tuple[Any, ...], letters: str) -> None:
    rows = [{"question": f"Which? {place}", "choices": FRUIT, "answer": answer} for place, answer in enumerate(answers)]
    assert "".join(problem.answer for problem in read(tmp_path, *rows)[1]) == letters


def test_places_that_may_count_from_zero_or_one_are_refused(tmp_path: Path) -> None:
    for answers in ((1, 2, 1), (0, 3, 1)):
        rows = [{"question": f"Which? {place}", "choices": FRUIT, "answer": answer} for place, answer in enumerate(answers)]
        with pytest.raises(CirfError, match="is a number and none of the choices; write a letter from A to C"):
            read(tmp_path, *rows)
    rows = [{"question": f"How many? {n}", "choices": ["0", "1", "2"], "answer": n} for n in (2, 1, 0)]
    assert [problem.answer for problem in read(tmp_path, *rows)[1]] == ["C", "B", "A"]


@pytest.mark.parametrize("closing", ["The answer is 28.", "\\boxed{28}", "#### 28"])
def test_a_sentence_that_states_the_answer_is_no_part_of_the_rationale(closing: str) -> None:
    for space in (" ", "\n"):
        row = plain_row({"prompt": ASKED, "completion": f"{' '.join(STEPS)}{space}{closing}"}, "here")
        assert (row["rationale"], row["answer"]) == (" ".join(STEPS), "28")


@pytest.mark.parametrize(
    ("written", "answer"),
    [
        ("**Lima**", "Lima"),
        ("`Madrid`", "Madrid"),
        ('"Lima"', "Lima"),
        ("“New York.”", "New York"),
        ("Nairobi.", "Nairobi"),
        ("**`x + 1`**.", "x + 1"),
        ("**25**", "25"),
        ("Washington, D.C.", "Washington, D.C."),
        ("Apple Inc.", "Apple Inc."),
        ("*A* and *B*", "*A* and *B*"),
        ('"A" or "B"', '"A" or "B"'),
        ("She wins because she is fast.", "She wins because she is fast."),
        ("and so on...", "and so on..."),
    ],
)
def test_an_answer_has_no_marks_around_it(written: str, answer: str) -> None:
    assert plain_row({"question": "Which?", "answer": written}, "here")["answer"] == answer
    turns = [{"role": "user", "content": "Which?"}, assistant(f"<think>\nLet me see.\n</think>\n\n{written}")]
    assert plain_row({"messages": turns}, "here")["answer"] == answer


@pytest.mark.parametrize(
    ("question", "answer", "letter"),
    [
        ("Total? [A] 9 Ω [B] 2 Ω [C] 4.5 Ω", "B", "B"),
        ("Which?\n[A] tea\n[B] milk", "[B]", "B"),
        ("Which gas? [A] O2 [B] N2", "(a)", "A"),
        ("Where?\nA) (1, 2)\nB) (2, 1)", "**A**", "A"),
        ("Where?\nA) here\nB) there", "`B`.", "B"),
    ],
)
def test_options_in_square_brackets_and_answers_in_bold_are_read(question: str, answer: str, letter: str) -> None:
    task, [problem] = rows_in_memory([{"question": question, "answer": answer}], "mine")
    assert (task.answer, problem.answer) == ("option", letter)


def test_a_letter_at_the_end_says_which_option() -> None:
    choices = {"question": "Which?", "choices": ["6", "12", "36"]}
    for answer, letter in (("6 squared, which is 36 (C).", "C"), ("6 doubled (B)", "B"), ("6 as it is (A)", "A")):
        assert rows_in_memory([{**choices, "answer": answer}], "mine")[1][0].answer == letter


def test_evidence_comes_before_its_claim() -> None:
    for evidence in ("One. Two.", ["One.", "Two."]):
        row = plain_row({"claim": "He won.", "evidence": evidence, "label": "supported"}, "here")
        assert row["question"].split() == ["One.", "Two.", "He", "won."]
    assert plain_row({"question": "Did he?", "evidence": "One.", "answer": "supported"}, "here")["question"] == "Did he?"


def test_a_loss_in_words_keeps_its_sentence() -> None:
    for given, answer in (
        ("The firm made a loss of $28.", "The firm made a loss of $28."),
        ("The pond is 28 m below sea level.", "The pond is 28 m below sea level."),
        ("It is 28 degrees in it.", "28"),
    ):
        assert plain_row({"question": "How much?", "answer": given, "rationale": WORK}, "here")["answer"] == answer


def test_a_short_answer_may_have_a_full_stop() -> None:
    for text, answer in (("Dr. No", "Dr. No"), ("a bird.", "a bird"), ("1.5", "1.5")):
        assert plain_row({"prompt": "q", "completion": text}, "here")["answer"] == answer


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"comment": "a", "label": 1}, "the field question is missing; .* this has comment, label; say which .* --columns"),
        ({"question": "q", "score": 1}, "the field answer is missing; .* this has question, score"),
        ({"query": "q", "tool": "forecast"}, "the field answer is missing; .* question=query,answer=tool "),
        ({"exercise": "Add 3 to 4 twice.", "answer": 7}, "the field question is missing; .* question=exercise,answer=answer "),
        ({"q1": "How many pens has Ann?", "w": "She has 3 pens and 4.", "k": "7"}, ".* question=q1,answer=k "),
        ({"sub_topic": "Sums", "m1": "Add 3 to 4 twice.", "m2": "4 + 3 + 3 makes 10."}, ".* question=m1,completion=m2 "),
        ({"prompt": "q", "completion": f"{'So it goes. ' * 20}\nAnd on."}, "no answer is found in its text; end it with `####"),
        (
            {"prompt": "q", "completion": "4 * 8 = 32 beads. 32 - 4 = 28 are left. She looks for more."},
            "no answer is found in its text",
        ),
        ({"question": "q", "answer": "beads = 32\nanswer = beads - given"}, "no answer is found in its text"),
        ({"messages": [USER]}, "the conversation has no turn of the assistant"),
        ({"response": {"choices": [{"message": assistant("7")}]}}, "a model's answer without its question; add the `messages`"),
        ({"messages": [assistant("7")]}, "the conversation has no turn of the user"),
        ({"messages": [USER, assistant("")]}, "the assistant's last turn is empty"),
        ({"messages": [USER, {**assistant(""), "content": None, "reasoning_content": "Hm."}]}, ".*has thoughts but no answer"),
        ({"messages": ["hello"]}, "a turn of the conversation is not an object with role and content"),
        ({"messages": [USER, {"role": "assistant", "content": 7}]}, "the content of a turn is not a text"),
    ],
)
def test_what_is_missing_gets_one_line(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    with pytest.raises(CirfError, match=rf"mine\.jsonl, line 1: {message}") as caught:
        read(tmp_path, row)
    assert "\n" not in str(caught.value)


def test_columns_of_the_recipe_name_what_is_which(tmp_path: Path) -> None:
    row = {"exercise": ASKED, "key": "28", "how": WORK, "number": "x1", "answer": "no"}
    columns = {"question": "exercise", "answer": "key", "rationale": "how", "id": "number"}
    (problem,) = read(tmp_path, row, columns=columns)[1]
    assert (problem.question, problem.answer, problem.rationale, problem.id) == (ASKED, "28", WORK, "x1")
    (problem,) = read(tmp_path, {"exercise": ASKED, "all": TARGETS[0]}, columns={"question": "exercise", "completion": "all"})[1]
    assert (problem.question, problem.answer, problem.rationale) == (ASKED, "28", WORK)
    with pytest.raises(RowError, match=r"no column .task.; columns .--columns. name it for question, and the row has exercise"):
        read(tmp_path, row, columns={"question": "task"})
    with pytest.raises(ValueError, match="columns: quesion is not a field of a row; name question, answer"):
        TaskEntry.model_validate({"task": "jsonl", "columns": {"quesion": "a"}})
    with pytest.raises(CirfError, match="columns is for jsonl tasks"):
        load_problems(Problems.model_validate({"tasks": [{"task": "chain_sum", "columns": {"question": "a"}}]}), 1)


def test_columns_may_lead_into_objects_and_lists(tmp_path: Path) -> None:
    row = {"qa": {"question": ASKED, "answers": {"text": ["28"]}}, "notes": [{"by": "x", "text": WORK}]}
    columns = {"question": "qa.question", "answer": "qa.answers.text.0", "rationale": "notes.0.text"}
    (problem,) = read(tmp_path, row, columns=columns)[1]
    assert (problem.question, problem.answer, problem.rationale) == (ASKED, "28", WORK)
    with pytest.raises(CirfError, match=r"this has qa\.asked, qa\.answers\.text, notes\.0\.by, notes\.0\.text; say which"):
        read(tmp_path, {**row, "qa": {"asked": ASKED, "answers": {"text": ["28"]}}})
    with pytest.raises(CirfError, match=r"no column 'notes\.1\.text'"):
        read(tmp_path, row, columns={**columns, "rationale": "notes.1.text"})
    with pytest.raises(
        CirfError, match=r"question is an object, expected a string; name a part of it .* question\.asked, question\.n"
    ):
        read(tmp_path, {"question": {"asked": ASKED, "n": 1}, "answer": 7})
    with pytest.raises(CirfError, match=r"answer is a list, .*; write it as one text"):
        read(tmp_path, {"question": ASKED, "answer": ["one", "two"]})
    assert read(tmp_path, {"question": ASKED, "answer": [1, 2.5]})[1][0].answer == "[1, 2.5]"


def test_a_column_may_come_before_the_question(tmp_path: Path) -> None:
    row = {"asked": "How many?", "text": "Ann has 7 pens.", "table": [["pens", "7"], ["cups", "2"]], "answer": 7}
    columns = {"question": "asked", "context": "text"}
    assert read(tmp_path, row, columns=columns)[1][0].question == "Ann has 7 pens.\n\nHow many?"
    assert read(tmp_path, row, columns={**columns, "context": "table"})[1][0].question == "pens | 7\ncups | 2\n\nHow many?"
    with pytest.raises(CirfError, match="answer is no text and no list of texts"):
        read(tmp_path, row, columns={**columns, "context": "answer"})


def test_columns_that_are_not_read_are_named(tmp_path: Path) -> None:
    def notes(**columns: str) -> list[str]:
        entry = TaskEntry.model_validate({"task": "jsonl", "train_file": str(tmp_path / "mine.jsonl"), "columns": columns})
        return row_notes(entry, None)

    rows = [
        {
            "question": f"How many pens has Ann in box {number}?",
            "story": f"Ann has {number} pens in a red box.",
            "why": f"The box of Ann holds {number} pens.",
            "answer": f"Count them.\nThat makes {number} pens.\n#### {number}",
            "source": "a book of sums for schools",
        }
        for number in range(3, 9)
    ]
    read(tmp_path, *rows)
    assert [note.partition(";")[0] for note in notes()] == ["columns that are not read: why"]
    quoted = [{**row, "why": "So.", "clue": row["answer"].partition("\n####")[0].replace("Count", "Do count")} for row in rows]
    read(tmp_path, *({**row, "answer": f"So we look and find it, as said.\n{row['answer']}"} for row in quoted))
    assert [note.partition(";")[0] for note in notes()] == ["columns that are not read: clue"]
    read(tmp_path, *rows)
    assert notes(question="question", context="story", rationale="why") == []
    read(tmp_path, *({**row, "why": "So.", "label": number % 2} for number, row in enumerate(rows)))
    (note,) = notes()
    assert note.startswith("columns that are not read: label;") and note.endswith("leave out rows that one marks as wrong")
    read(tmp_path, *({"question": f"{n}?", "answer": "so" if n % 2 else "not", "label": n % 2} for n in range(6)))
    assert notes() == []


def test_a_conversation_with_thoughts_beside_its_turns_is_read(tmp_path: Path) -> None:
    said = "We count the {0} pens of box {0} one after the other, and then once more from the end of it.\nThe answer is {0}."
    turns = [
        [
            {"role": "user", "content": f"How many pens are in box {n}?"},
            assistant(said.format(n), reasoning_content=f"Box {n} {WORK}"),
        ]
        for n in range(3, 9)
    ]
    entry = TaskEntry.model_validate({"task": "jsonl", "train_file": str(tmp_path / "mine.jsonl")})
    read(tmp_path, *({"messages": each} for each in turns))
    assert row_notes(entry, None) == []
    read(tmp_path, *({"question": f"What is {n}?", "answer": n, "messages": each} for n, each in enumerate(turns)))
    (note,) = row_notes(entry, None)
    assert note.startswith("columns that are not read: messages")


@pytest.mark.parametrize("marks", [["|||"], ["[[T]]", "[[/T]]"]])
def test_a_declared_delimiter_is_obeyed_in_every_layout(tmp_path: Path, marks: list[str]) -> None:
    text = f"{WORK} ||| 28" if len(marks) == 1 else f"[[T]]{WORK}[[/T]] 28"
    rows: list[dict[str, Any]] = [
        {"prompt": ASKED, "completion": text},
        {"question": ASKED, "answer": text},
        {"question": ASKED, "rationale": text},
        {"messages": [USER, assistant(text)]},
        {"question": ASKED, "answer": "28", "solution": text},
    ]
    _, problems = read(tmp_path, *rows, delimiter=marks)
    assert all((row.question, row.answer) == (ASKED, "28") for row in problems)
    assert {rationale_of(row.rationale).removesuffix("\n#### 28") for row in problems} == {WORK}


def test_rows_by_their_ids_are_rows(tmp_path: Path) -> None:
    path = tmp_path / "theirs.json"
    path.write_text(json.dumps({"x1": {"question": "2 + 2?", "answer": 4}, "x2": {"question": "2 + 3?", "answer": 5}}))
    entry = TaskEntry.model_validate({"task": "jsonl", "train_file": str(path)})
    assert [(row.id, row.answer) for row in read_split(train_path(entry, None), "number") or ()] == [("x1", "4"), ("x2", "5")]


def test_rationale_files_have_the_same_layouts(tmp_path: Path) -> None:
    from cirf.rationales.files import read_rationales

    path = tmp_path / "theirs.json"
    theirs = [{"messages": [USER, assistant(TARGETS[0])]}, {"question": ASKED, "completion": f"{WORK}\nDone."}]
    path.write_text(json.dumps(theirs))
    rows = read_rationales(path)
    assert [(row.question, row.rationale, row.answer) for row in rows] == [(ASKED, WORK, "28"), (ASKED, f"{WORK}\nDone.", None)]


def test_a_statement_is_a_question_and_several_letters_are_an_answer() -> None:
    _, problems = rows_in_memory([{"statement": "9 is prime.", "answer": "FALSE"}], "mine")
    assert (problems[0].question, problems[0].answer) == ("9 is prime.", "no")
    rows = [{"question": "Which are even?", "choices": ["2", "3", "4"], "answer": answer} for answer in ("A, C", "A and C", "B")]
    task, problems = rows_in_memory(rows, "mine")
    assert task.answer == "text" and task.equal("A,C", problems[0])
    assert rows_in_memory(rows[2:], "mine")[0].answer == "option"


@pytest.mark.parametrize(("end", "answer"), [("**True**", "yes"), ("True.", "yes"), ("**7 > 3**", None), ("**Note**", None)])
def test_a_last_paragraph_alone_is_the_answer(end: str, answer: str | None) -> None:
    row = {"prompt": "Is 3 + 4 > 6?", "completion": f"First, 3 + 4 = 7.\nThen 7 is more than 6.\n\n{end}"}
    if end == "**Note**":
        with pytest.raises(RowError, match="no answer is found"):
            plain_row(row, "row 1")
        return
    _, problems = rows_in_memory([row], "mine")
    assert problems[0].answer == (answer or "7 > 3")
    assert problems[0].rationale == "First, 3 + 4 = 7.\nThen 7 is more than 6."


@each_row(
    "closing",
    [
        "The answer is 5 apples.",
        "Final answer: 5 apples",
        "The answer is 5.",
        "The answer is B because it fits.",
        "The answer is **B** since 3 + 2 = 5.",
        "The answer is (B) 5 apples.",
        "The correct option is B) 5 apples.",
        "**Total:** 5 apples",
        "So Tom has 5 apples.",
        "#### B",
        "#### 5 apples",
    ],
)
def test_what_a_text_concludes_with_is_matched_with_the_options_of_its_row(closing: str) -> None:
    choices = ["3 apples", "5 apples", "15 apples"]
    texts = (f"<think>3 + 2 is 5.</think>\n{closing}", f"3 + 2 is 5.\n{closing}")
    for text, field in itertools.product(texts, ("completion", "rationale")):
        row = plain_row({"question": "How many?", "choices": choices, field: text}, "here")
        assert (row["answer"], row["choices"]) == ("B", choices) and "3 + 2 is 5." in row["rationale"]


@each_row(
    ("choices", "closing", "answer"),
    [
        (["$10", "$15"], "The answer is $15.", "B"),
        (["10 km/h", "15 km/h"], "The answer is 15 km/h.", "B"),
        (["5 m", "5 km"], "The answer is 5.", "5"),  # either
        (["5", "5 or 6"], "The answer is 5 or 6.", "B"),
        (["oxygen", "carbon dioxide"], "The answer is helium.", "helium"),
        (["oxygen", "carbon dioxide"], "The answer is A or B.", "A or B"),
        (["oxygen", "carbon dioxide"], "The answer is A, B.", "A, B"),
        (["yes", "no"], "The answer is no.", "B"),
    ],
)
def test_an_option_that_a_text_does_not_settle_is_not_guessed(choices: list[str], closing: str, answer: str) -> None:
    row = plain_row({"question": "Which?", "choices": choices, "completion": f"We look.\n{closing}"}, "here")
    assert row["answer"] == answer


def test_options_that_a_question_lists_count_where_their_letter_is_said() -> None:
    asked = "Which do we breathe out?\nA) oxygen\nB) carbon dioxide"
    for closing in ("The answer is B because it fits.", "The correct option is B) carbon dioxide.", "The answer is B."):
        row = plain_row({"question": asked, "completion": f"We look.\n{closing}"}, "here")
        assert (row["answer"], row["choices"]) == ("B", ["oxygen", "carbon dioxide"])
    parts = "Solve both.\n(a) x - 1 = 2\n(b) y - 1 = 3"
    for closing, answer in (("The answer is (a) 3, (b) 4.", "(a) 3, (b) 4"), ("The answer is A 3.", "A 3")):
        row = plain_row({"question": parts, "completion": f"We add 1.\n{closing}"}, "here")
        assert row["answer"] == answer and "choices" not in row


@each_row(
    ("closing", "answer"),
    [
        ("\n=== ANSWER ===\n28", "28"),
        ("\n=== ANSWER ===\nParis", "Paris"),
        ("\n## Final answer\n\n28 beads", "28"),
        ("- Answer\n- -5", "-5"),
        ("## Answer\nNew York City.", "New York City"),
        ("The answer is therefore 28.", "28"),
        ("The answer is, hence, 28.", "28"),
        ("The answer is thus clearly Paris.", "Paris"),
        ("The answer is approximately 28.", "28"),
        ("The answer is Simply Red.", "Simply Red"),
        ("The answer is just.", "just"),
        ("The answer is \\boxed{5!}", "5!"),
        ("<Final>28</Final>", "28"),
        ("<|answer|>28<|/answer|>", "28"),
    ],
)
def test_no_heading_lead_or_mark_is_part_of_an_answer(closing: str, answer: str) -> None:
    row = plain_row({"prompt": ASKED, "completion": f"{WORK}\n{closing}"}, "here")
    assert (row["answer"], row["rationale"]) == (answer, WORK)


def test_a_sentence_below_a_heading_is_read_as_a_sentence() -> None:
    row = plain_row({"prompt": ASKED, "completion": f"{STEPS[0]}\n\n## Answer\nSo the number of beads is 28."}, "here")
    assert row["answer"] == "28" and "So the number" in row["rationale"]


@each_row("end", ["<Final>28</Final>", "<|answer|>28<|/answer|>", "[ANSWER]28[/ANSWER]", "<final_answer>28</final_answer>"])
def test_marks_of_an_answer_after_thoughts_are_no_part_of_it(end: str) -> None:
    for before, after in (("<reasoning>", "</reasoning> "), ("<|thinking|>", "<|/thinking|>")):
        row = plain_row({"prompt": ASKED, "completion": f"{before}{WORK}{after}{end}"}, "here")
        assert (row["answer"], row["rationale"]) == ("28", WORK)


@pytest.mark.parametrize("closed", ["", "</think>", "</think>\n"])
def test_thoughts_alone_are_read_where_they_end_in_an_answer(closed: str) -> None:
    row = plain_row({"prompt": ASKED, "completion": f"<think>{WORK}\nSo the answer is 28.{closed}"}, "here")
    assert (row["answer"], row["rationale"]) == ("28", WORK)
    others = (f"The answer is 5? No.\n{WORK}", f"{WORK}\nThe answer is not 5.")
    for text in (f"<think>{said}{closed}" for said in (WORK, *others)):
        with pytest.raises(RowError, match="no answer is found"):
            plain_row({"prompt": ASKED, "completion": text}, "rows, row 0")


@each_row(
    ("choices", "said", "answer"),
    [
        (["x<3", "x>3", "3"], "x < 3", "A"),
        (["y=2x+3", "y=2x", "3"], "y = 2x + 3", "A"),
        (["ice-cream", "ice", "cream"], "ice cream", "A"),
        (["well known", "known"], "well-known", "A"),
        (["2 : 3", "3 : 2", "2", "3"], "2:3", "A"),
        (["−3", "3", "0"], "-3", "A"),
        (["\\frac{1}{2}", "\\frac{1}{3}", "1"], "\\frac{1}{2}", "A"),
        (["$\\sqrt{2}$", "$\\sqrt{3}$", "2", "3"], "$\\sqrt{2}$", "A"),
        (["1.5", "1", "5"], "1.50", "A"),
        (["Dr. No", "No", "Yes"], "Dr. No", "A"),
        (["5", "-5"], "x = -5", "B"),
        (["a/b", "a", "b"], "a / b", "A"),
        (["3x^2", "3x", "3"], "3x", "B"),
        (["E. coli", "S. aureus"], "E. coli", "A"),
        (["x>3", "x<3"], "(B) $x < 3$", "B"),
        (["3 apples", "5 apples"], "B: 5 apples", "B"),
        (["3 apples", "5 apples"], "6 apples", None),
        (["3 apples", "5 apples"], "B: 3 apples", None),
        (["5", "10", "0"], "-5", None),
        (["2 sin x", "sin x"], "3 sin x", None),
        (["1", "2"], "12", None),
        (["2", "3"], "2:3", None),
    ],
)
def test_an_option_is_the_one_that_equals_what_the_text_says(choices: list[str], said: str, answer: str | None) -> None:
    for closing in (f"The answer is {said}.", f"#### {said}", f"So \\boxed{{{said}}}"):
        row = {"question": "Which?", "choices": choices, "completion": f"We look.\n{closing}"}
        if answer is not None:
            _, (problem,) = rows_in_memory([row], "mine")
            assert problem.answer == answer
        else:
            with pytest.raises(CirfError, match=r"choices|option"):
                rows_in_memory([row], "mine")


@each_row(
    ("text", "answer"),
    [
        ("It is in Italy. The answer is C. B is right only for England.", "C"),
        ("It is in Italy. The answer is C. You might think the answer is B.", "C"),
        ("One might think the answer is B. But it is in Italy. So it is Rome.", "C"),
        ("I would say the answer is A? No. I would say the answer is C.", "C"),
        ("The answer is C because it is in Italy.", "C"),
        ("It is in Italy. C is correct.", "C"),
        ("The answer would be B if it were England. But it is France, so A.", None),
    ],
)
def test_what_a_text_outright_calls_the_answer_counts(text: str, answer: str | None) -> None:
    row = {"question": "Which?", "choices": ["Paris", "London", "Rome"], "completion": text}
    if answer is not None:
        _, (problem,) = rows_in_memory([row], "mine")
        assert problem.answer == answer
    else:
        with pytest.raises(CirfError, match="not among the choices"):
            rows_in_memory([row], "mine")


def test_a_letter_that_is_right_elsewhere_is_no_option_of_a_question() -> None:
    asked = "Which is in England?\nA) Paris\nB) London\nC) Rome"
    row = plain_row({"question": asked, "completion": "A is right about France, but not here. The answer is London."}, "here")
    assert row["answer"] == "London"


@each_row(
    ("line", "answer"),
    [
        *((line, "28") for line in ("x = 28", "4 * 7 = 28", "So 28", "Total: 28", "Therefore, 28 beads")),
        *((line, "28") for line in ("Ann has 28 beads left", "28 beads!", "28 beads", "28", "So she has 28 beads.")),
        ("New York City", "New York City"),
        ("November 5, 1990", "November 5, 1990"),
        ("yes", "yes"),
        ("No, because 28 is less.", "No"),
        ("May 3", "May 3"),
        ("x + 1", "x + 1"),
    ],
)
def test_a_line_below_a_heading_is_read_as_a_last_line(line: str, answer: str) -> None:
    for heading in ("## Answer", "### Final Answer", "**Answer**", "**Answer:**"):
        row = plain_row({"prompt": ASKED, "completion": f"{WORK}\n\n{heading}\n{line}"}, "here")
        assert row["answer"] == answer and row["rationale"].startswith(WORK)


@pytest.mark.parametrize("sharegpt", [False, True])
def test_a_last_turn_of_thoughts_alone_calls_no_tools(sharegpt: bool) -> None:
    def chat(thought: str) -> dict[str, Any]:
        said = f"<think>{thought}</think>"
        turns = [{"from": "human", "value": ASKED}, {"from": "gpt", "value": said}]
        return {"conversations": turns} if sharegpt else {"messages": [USER, assistant(said)]}

    row = plain_row(chat(WORK) | {"answer": "28"}, "here")
    assert (row["question"], row["answer"]) == (ASKED, "28")
    row = plain_row(chat(f"{WORK}\nSo the answer is 28."), "here")
    assert (row["answer"], row["rationale"]) == ("28", WORK)


@each_row(
    ("end", "answer"),
    [
        ("Rounds: quarter, semi, <final>. So 4 * 7 = 28.", "28"),
        ("In [final] version [/final] we have it all. So 28.", "28"),
        ("[answer]: 28 [/answer]", "28"),
        ("[Final Answer] 28 [/Final Answer]", "28"),
        ("It is <|answer|>28<|/answer|>", "28"),
        ("It is <answer>28</answer>", "28"),
    ],
)
def test_marks_of_an_answer_are_a_pair_at_the_front_of_a_line(end: str, answer: str) -> None:
    assert plain_row({"prompt": ASKED, "completion": f"{WORK}\n{end}"}, "here")["answer"] == answer


@pytest.mark.parametrize("marks", [["|||"], ["[[T]]", "[[/T]]"]])
def test_a_delimiter_in_an_answer_or_after_it_is_no_part_of_it(marks: list[str]) -> None:
    answers = {1: ["10 ||| 28", "28 |||"], 2: ["[[T]]10[[/T]] 28", "28 [[/T]]", "[[T]]10[[/T]] 28 [[/T]]"]}
    for answer in answers[len(marks)]:
        row = plain_row({"question": ASKED, "rationale": WORK, "answer": answer}, "here", delimiter=marks)
        assert (row["answer"], row["rationale"]) == ("28", WORK)
    text = f"{WORK} ||| 28 |||" if len(marks) == 1 else f"[[T]]{WORK}[[/T]] 28 [[/T]]"
    row = plain_row({"question": ASKED, "completion": text}, "here", delimiter=marks)
    assert (row["answer"], row["rationale"]) == ("28", WORK)


def test_an_option_named_in_passing_is_not_the_answer() -> None:
    text = "The answer must be a place with a home of one's own. Of the above, only a town has them."
    row = plain_row({"question": "Where?", "choices": ["street", "home", "town"], "completion": text}, "here")
    assert row["answer"] not in ("B", "home")
