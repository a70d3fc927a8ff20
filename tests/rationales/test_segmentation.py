"""Steps: what marks them, what does not, and what becomes of the text around them."""

import time
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import each_row

from cirf.errors import CirfError
from cirf.rationales.segmentation import PAPER_SHARE_DROPPED, clean_segments, cut, cut_all, segment, spread, steps_of
from cirf.recipe import schema
from cirf.records import Problem, Rationale
from cirf.text.normalise import normalise
from cirf.text.sentences import sentences


@each_row(
    "text",
    [
        "Step 1: add them\nStep 2: halve it",
        "Step 1 - add them\nStep 2 - halve it",
        "STEP 1. add them\nSTEP 2. halve it",
        "① add them ② halve it",
        "1\ufe0f\u20e3 add them\n2\ufe0f\u20e3 halve it",
        "第一步：add them\n第二步：halve it",
        "第1步 add them\n第2步 halve it",
        "Step 1: add them\\nStep 2: halve it",
        "Step one: add them\nStep two: halve it",
        "**Step 1:** add them\n**Step 2:** halve it",
        "### Step 1: add them\n\n### Step 2: halve it",
        "#### Step 1\nadd them\n#### Step 2\nhalve it",
        "1. add them\n2. halve it",
        "1) add them\n2) halve it",
        "(1) add them\n(2) halve it",
        "(0) add them\n(1) halve it",
        "**1.** add them\n**2.** halve it",
        "1. **add them**\n2. **halve it**",
        "To solve this:\n\n1. add them\n\n2. halve it",
        "Step 1 of 2: add them\nStep 2 of 2: halve it",
        "Step 1/2: add them\nStep 2/2: halve it",
        "[Step 1] add them\n[Step 2] halve it",
        "Step-1: add them\nStep-2: halve it",
        "> **Step 1:** add them\n> **Step 2:** halve it",
        "<p><b>Step 1:</b> add them</p>\n<p><b>Step 2:</b> halve it</p>",
        "Stap 1: add them\nStap 2: halve it",
        "步骤1：add them\n步骤2：halve it",
        "ステップ１：add them\nステップ２：halve it",
        "1단계: add them\n2단계: halve it",
        "1、add them\n2、halve it",
        "❶ add them\n❷ halve it",
        "[1] add them\n[2] halve it",
        "#1: add them\n#2: halve it",
        "1 - add them\n2 - halve it",
        "1/ add them\n2/ halve it",
    ],
)
def test_ordinal_forms(text: str) -> None:
    found = segment(text, "ordinal")
    assert [part.rstrip(".").casefold() for part in found.segments] == ["add them", "halve it"]
    assert found.rule == "ordinal"


def test_numbers_left_out_of_a_list_are_let_pass() -> None:
    assert segment("1. Add them.\n3. Halve it.\n5. Round it.", "auto").segments == ("Add them.", "Halve it.", "Round it.")
    assert segment("1. Add.\n2. Halve.\n4. Round.\n5. Say.", "auto").segments == ("Add.", "Halve.", "Round.", "Say.")
    assert segment("Each has 3 * 5 = 15.\n1. Halve it.\n2. Round it.", "auto").segments[0] == "Each has 3 * 5 = 15."
    assert segment("### Step 1 – a\n### Step 2 – b", "auto").segments == ("a", "b")
    assert segment("2. Add.\n4. Halve.", "auto").rule == "line"
    assert (
        segment("1. Wages:\n5. is what she gets\n2. Hours:\n3. is the rest", "auto").segments[0] == "Wages:\n5. is what she gets"
    )


def test_inline_marks_need_a_boundary() -> None:
    assert segment("Step 1: Add. Step 2: Halve. Done.", "ordinal").segments == ("Add.", "Halve. Done.")
    assert segment("We have: (1) Add them; (2) Halve it.", "ordinal").segments == ("Add them;", "Halve it.")
    assert segment("First do it: 1. Add them. 2. Halve it.", "ordinal").segments == ("Add them.", "Halve it.")
    assert segment("Look at No. 1. Then see No. 2. Good.", "ordinal").segments == ()


@each_row(
    "text",
    [
        "The price is 3.5 dollars.\n1.50 is the change.\n2.50 is the rest.",
        "See No. 4 and Fig. 2 for it.",
        "$1.50 and $2.50 make $4.",
        "The counts are 1, 2, 3 and 4.",
        "He was born in 1999. He left in 2001.",
        "Plain words.",
        "Use 2. then 5.",
        "",
    ],
)
def test_no_marks(text: str) -> None:
    assert segment(text, "ordinal").segments == ()


def test_decimals_inside_steps_do_not_split() -> None:
    text = "1. The price is\n3.5 dollars by No. 4.\n2. Add 2.5 to get 6."
    assert segment(text, "auto").segments == ("The price is\n3.5 dollars by No. 4.", "Add 2.5 to get 6.")


def test_a_plan_gives_no_double_steps() -> None:
    text = "We will:\n1. **Add them.**\n2. **Halve it.**\n\n### Step 1: Add\n2 + 4 = 6\n\n### Step 2: Halve\n6 / 2 = 3"
    assert segment(text, "auto").segments == ("Add\n2 + 4 = 6", "Halve\n6 / 2 = 3")
    again = "1. Add\n2. Halve\n\nNow:\n1. Add: 2 + 4 = 6\n2. Halve: 6 / 2 = 3"
    assert segment(again, "auto").segments == ("Add: 2 + 4 = 6", "Halve: 6 / 2 = 3")


def test_numbered_facts_inside_steps_stay_inside() -> None:
    text = "### Step 1: Monday\n1. Wage: $5\n2. Hours: 7\n### Step 2: Tuesday\n1. Wage: $5\n2. Hours: 2\n### Step 3: Sum\n45"
    assert len(segment(text, "auto").segments) == 3


@pytest.mark.parametrize(
    ("after", "steps"),
    [
        ("The largest is 6 kg. So Cem is first.", 4),
        ("Max is the cheapest one.", 4),
        ("Therefore, Cem is first.", 3),  # closes the last step
        ("In short:\n6 kg", 3),
        ("Cem wins.\n\nHe is first.", 3),
    ],
)
def test_a_list_without_blank_lines_ends_at_one(after: str, steps: int) -> None:
    items = "1. Al: 4 + 1 = 5 kg\n2. Bea: 3 + 1 = 4 kg\n3. Cem: 5 + 1 = 6 kg"
    assert len(segment(f"{items}\n\n{after}", "auto").segments) == steps
    apart = items.replace("\n", "\n\n")
    assert len(segment(f"{apart}\n\n{after}", "auto").segments) == 3


def test_conclusions() -> None:
    steps = "Step 1: 2 + 4 = 6\nStep 2: 6 / 2 = 3"
    assert segment(f"{steps}\nSo each has 3.", "auto").segments[-1] == "6 / 2 = 3\nSo each has 3."
    headed = segment(f"{steps}\n\n### Conclusion\nEach of them has 3.", "auto").segments
    assert headed[1:] == ("6 / 2 = 3\nConclusion:\nEach of them has 3.",)
    assert len(segment(f"{steps}\n**Conclusion:** the answer is 3", "auto").segments) == 2
    assert segment(f"{steps}\n\n**Final Answer:** 3", "auto").segments[1:] == ("6 / 2 = 3\nFinal Answer: 3",)
    assert segment(f"{steps}\n#### 3", "auto").segments == ("2 + 4 = 6", "6 / 2 = 3")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("### Add\n2 + 3 = 5\n### Double\n2 * 5 = 10", ("Add:\n2 + 3 = 5", "Double:\n2 * 5 = 10")),
        ("**Add**\n2 + 3 = 5\n2 * 5 = 10\n**Answer**\n10", ("Add:\n2 + 3 = 5", "2 * 5 = 10\nAnswer:\n10")),
        ("2 + 3 = 5\n2 * 5 = 10\nFinal answer:", ("2 + 3 = 5", "2 * 5 = 10\nFinal answer:")),
    ],
)
@pytest.mark.parametrize("by", ["auto", "line", "sentence"])
def test_a_heading_is_no_step(text: str, parts: tuple[str, ...], by: str) -> None:
    assert segment(text, by).segments == parts


@pytest.mark.parametrize(
    "closing",
    [
        "Answer: 100",
        "**Answer:** 100",
        "Final answer: 100 litres",
        "### Answer\n100",
        "**Final Answer**\n\\boxed{100}",
        "ANSWER - 100",
        "=== FINAL ANSWER ===\n100",
        "**Final Answer**\nThe cows give \\boxed{100} litres.",
        "**100**",
        "100 litres",
    ],
)
@pytest.mark.parametrize("by", ["auto", "line", "sentence", "function"])
def test_an_answer_that_is_only_repeated_is_no_step(closing: str, by: Literal["auto", "line", "sentence", "function"]) -> None:
    steps = ("There are 12 + 8 = 20 cows.", "So they give 20 * 5 = 100 litres.")
    found = segment("\n\n".join([*steps, closing]), by).segments
    assert (
        len(found) == 2 and found[0] == steps[0] and found[1].startswith(f"{steps[1]}\n") and "100" in found[1][len(steps[1]) :]
    )


@pytest.mark.parametrize(
    "last",
    ["So the answer is 100.", "Answer: 20 * 5 = 100", "120", "The answers differ: 100 is one of them.", "Answer B is red."],
)
def test_a_last_step_that_says_more_stays_one(last: str) -> None:
    assert len(segment(f"There are 12 + 8 = 20 cows.\nThey give 20 * 5 = 100 litres.\n{last}", "line").segments) == 3


ITEMS = ("Count them:", "Take 4 away: 28.", "The answer is 28.")


@pytest.mark.parametrize("indent", ["", "  ", "    ", "\t"])
@pytest.mark.parametrize("inner", ["{}.", "{})", "({})"])
@pytest.mark.parametrize("outer", ["{}.", "{})", "**{}.**", "Step {}:"])
@pytest.mark.parametrize("count", [2, 4])
def test_a_list_within_an_item_is_a_part_of_it(outer: str, inner: str, indent: str, count: int) -> None:
    listed = "".join(f"\n{indent}{inner.format(place)} part {place}" for place in range(1, count + 1))
    if not indent and count == 4 and outer.strip("*") == inner:
        return  # the outer 2 and 3 could be the inner ones
    lines = [f"{outer.format(place)} {item}{listed if place == 1 else ''}" for place, item in enumerate(ITEMS, 1)]
    found = segment("\n".join(lines), "auto").segments
    assert len(found) == 3 and found[0].count("part") == count and found[1:] == ITEMS[1:]
    last = [f"{outer.format(place)} {item}{listed if place == 3 else ''}" for place, item in enumerate(ITEMS, 1)]
    if indent or outer.strip("*") != inner:
        assert [part.split("\n")[0] for part in segment("\n".join(last), "auto").segments] == list(ITEMS)


def test_items_that_are_all_indented_are_steps() -> None:
    text = "   1. Count\n   2. Add\n   3. Stop"
    assert segment(text, "auto").segments == segment(text.strip(), "auto").segments == ("Count", "Add", "Stop")


DONE = ("4 * 8 = 32", "32 - 4 = 28", "The answer is 28.")


@pytest.mark.parametrize("draft", ["Think of {}", "Noor has {} + 8 = 12 beads."])
@pytest.mark.parametrize("mark", ["{}.", "Step {}:", "({})"])
@pytest.mark.parametrize(
    ("before", "between", "first"),
    [
        ("Plan:\n", "\n\nNow do it:\n", 2),
        ("Plan:\n", "\n\nSolution:\n", 4),
        ("My plan\n", "\n\n", 4),
        ("", "\nWait, let me redo this.\n", 2),
        ("", "\nThat is wrong. I try again.\n", 4),
        ("", "\nActually, that is not right.\n", 4),
        ("", ". Oops, that is incorrect.\n", 4),
    ],
)
def test_of_two_series_the_steps_that_count_are_taken(mark: str, before: str, between: str, first: int, draft: str) -> None:
    drafted = "\n".join(f"{mark.format(place)} {draft.format(place)}" for place in range(1, first + 1))
    steps = "\n".join(f"{mark.format(place)} {text}" for place, text in enumerate(DONE, 1))
    assert segment(f"{before}{drafted}{between}{steps}", "auto").segments == DONE


@pytest.mark.parametrize(
    ("before", "kept"),
    [
        ("Attempt 1: 4 + 8 = 12, which is too few.\nAttempt 2:\n", 3),
        ("Step 1: 4 + 8 = 12. No, that is wrong.\n", 3),
        ("He has 4 + 8 = 12. That is a mistake, so start again.\n", 3),
        ("There are 4 + 8 = 12 beads in all.\n", 4),
        ("She was wrong to count bags; 4 + 8 = 12 beads.\n", 4),
        ("Starting again from the bags, 4 + 8 = 12 beads.\n", 4),
        ("Try 2 of the bags first: 4 + 8 = 12 beads.\n", 4),
    ],
)
def test_a_calculation_before_the_steps_counts_unless_they_replace_it(before: str, kept: int) -> None:
    steps = "\n".join(f"Step {place}: {text}" for place, text in enumerate(DONE, 1))
    assert len(segment(before + steps, "auto").segments) == kept
    assert len(segment(f"Let me see. {steps}", "auto").segments) == 3  # the first mark is within a line


@pytest.mark.parametrize(
    "line",
    [
        "Let me count the boxes that stand in row number {0} of the long hall behind the shop: {0} * 4 = {1} boxes.",
        "({0}) I need the boxes that stand in row number {0} of the long hall behind the shop: {0} * 4 = {1} boxes.",
        "### Part {0}\nLet me count the boxes of row {0}. I should take all that stand behind the shop: {0} * 4 = {1} boxes.",
    ],
)
def test_a_step_a_line_is_no_thinking_aloud(line: str) -> None:
    text = "\n".join(line.format(place, 4 * place) for place in range(1, 10))
    found = segment(text, "auto")
    assert len(text) >= 800 and found.rule != "function" and len(found.segments) >= 9, found


def test_a_last_step_that_begins_as_an_answer_is_a_step() -> None:
    text = "12 - 2 = 10 pens are left.\nFinal answer - add the 7 that she buys to get 17 pens."
    assert len(segment(text, "auto").segments) == 2


@pytest.mark.parametrize("heading", ["Solution:", "**Working:**", "Let's carry it out:\n"])
@pytest.mark.parametrize("mark", ["{}.", "Step {}:"])
def test_a_numbered_plan_is_no_part_of_the_prose_that_carries_it_out(mark: str, heading: str) -> None:
    plan = "\n".join(f"{mark.format(place)} Think of {place}" for place in (1, 2))
    done = "\n".join(DONE)
    assert segment(f"Plan:\n{plan}\n\n{heading}\n{done}", "auto").segments == DONE
    for text in (f"Plan:\n{plan}\n\n{heading}\n28", f"Facts:\n{plan}\n\n{heading}\n{done}", f"Plan:\n{plan}\n\nAnswer:\n{done}"):
        assert len(segment(text, "auto").segments) == 2


def test_a_summary_or_a_step_taken_up_again_replaces_nothing() -> None:
    steps = "\n".join(f"{place}. {text}" for place, text in enumerate(DONE, 1))
    assert len(segment(f"{steps}\n\nIn summary:\n1. Multiply\n2. Subtract", "auto").segments) == 3
    again = "Step 1: 4 * 8 = 32\nStep 2: 32 - 3 = 29\nWait.\nStep 2: 32 - 4 = 28\nStep 3: It is 28."
    assert segment(again, "auto").segments == ("4 * 8 = 32", "32 - 3 = 29\nWait.", "32 - 4 = 28", "It is 28.")


@pytest.mark.parametrize("heading", ["Verification:", "**Check:**", "Let me verify the answer.", "In summary:"])
@pytest.mark.parametrize("mark", ["{}.", "Step {}:"])
@pytest.mark.parametrize("count", [3, 4])
def test_a_check_that_is_as_long_as_the_steps_replaces_nothing(mark: str, heading: str, count: int) -> None:
    steps = "\n".join(f"{mark.format(place)} {text}" for place, text in enumerate(DONE, 1))
    check = "\n".join(f"{mark.format(place)} Look back at {place}" for place in range(1, count + 1))
    found = segment(f"{steps}\n\n{heading}\n{check}", "auto").segments
    assert len(found) == 3 and found[:2] == DONE[:2] and found[2].startswith(DONE[2])


@pytest.mark.parametrize("mark", ["{}.", "Step {}:"])
@pytest.mark.parametrize("heading", ["Part {}:", "### Case {}: a few", "Question {}"])
def test_the_steps_of_every_part_are_steps(mark: str, heading: str) -> None:
    steps = "\n".join(f"{mark.format(place)} {text}" for place, text in enumerate(DONE, 1))
    text = f"{heading.format(1)}\n{steps}\n{heading.format(2)}\n{mark.format(1)} 9 - 2 = 7\n{mark.format(2)} 7 + 1 = 8"
    found = segment(text, "auto").segments
    assert [part.split("\n")[0] for part in found] == [*DONE, "9 - 2 = 7", "7 + 1 = 8"]


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("Salt raises it [1].\nSo it boils later.\n\n[1] A book\n[2] Another book", 4),
        ("We look for the best.\n#1 is Ann.\n#2 is Bo.\nSo it is Ann.", 4),
        ("Step 1 of 2 is easy.\nStep 2 of 2 is hard.\nSo it is done.", 3),
    ],
)
def test_references_and_ranks_are_no_marks(text: str, steps: int) -> None:
    found = segment(text, "auto")
    assert (found.rule, len(found.segments)) == ("line", steps)


@pytest.mark.parametrize("heading", ["To answer the question:", "Let us check each option:", "Answer:"])
def test_longer_steps_after_what_is_given_are_the_steps(heading: str) -> None:
    steps = "\n".join(f"{place}. {text}" for place, text in enumerate(DONE, 1))
    assert segment(f"We know:\n1. She has 32.\n2. He has 4.\n\n{heading}\n{steps}", "auto").segments == DONE


@pytest.mark.parametrize("own", ["2 are left over.", "B is incorrect.", "It goes on again."])
def test_what_the_last_step_says_makes_no_list_after_it_the_steps(own: str) -> None:
    steps = "\n".join(f"{place}. {text}" for place, text in enumerate(DONE, 1))
    found = segment(f"{steps} {own}\n\nTwo notes:\n1. All is whole.\n2. None is less.", "auto").segments
    assert len(found) == 3 and found[:2] == DONE[:2]


def test_what_introduces_a_formula_or_names_an_option_is_one_step() -> None:
    assert segment("The speed is\n\\[ v = 3 * 4 = 12 \\]\nSo it is 12.", "auto").segments == (
        "The speed is\nv = 3 * 4 = 12",
        "So it is 12.",
    )
    parts = segment("It is hot. The answer is B. Tea.", "auto", ("Ice", "Tea")).segments
    assert parts == ("It is hot.", "The answer is B. Tea.")
    assert segment("7 / 2 = 3.5\n#### 3.5", "auto").segments == ("7 / 2 = 3.5",)  # no step that is numbered 3


def test_differences_are_no_marks() -> None:
    assert segment("1 - 0 = 1\n2 - 1 = 1\n\n3 - x = 1", "auto").segments == ("1 - 0 = 1", "2 - 1 = 1", "3 - x = 1")


def test_empty_steps_are_left_out() -> None:
    assert segment("Step 1:\nStep 2: Add\nStep 3:", "ordinal").segments == ("Add",)


def test_one_step_mark_is_a_fit_but_a_lone_number_is_not() -> None:
    assert segment("Step 1: All at once.", "ordinal").segments == ("All at once.",)
    assert segment("1. All at once.", "ordinal").segments == ()


def test_words_of_order() -> None:
    text = "First, add them. Then look. Second, halve it. Finally, write it down."
    assert segment(text, "ordinal").segments == ("add them. Then look.", "halve it.", "write it down.")
    assert segment(text, "auto").rule == "sentence"


def test_lines_and_annotations() -> None:
    found = segment("48/2 = <<48/2=24>>24 in May.\n\n48+24 = 72 in all.\n#### 72", "auto")
    assert found.rule == "line"
    assert found.segments == ("48/2 = <<48/2=24>>24 in May.", "48+24 = 72 in all.")


@pytest.mark.parametrize(
    "front", ["Let's think step by step. ", "A: Let's think step by step.\n", "Let us think about it step-by-step: "]
)
def test_an_announcement_to_think_is_no_step(front: str) -> None:
    assert segment(f"{front}Fish swim. So they get wet.", "auto").segments == ("Fish swim.", "So they get wet.")


def test_a_stop_between_blanks_ends_a_line_of_lower_case_text() -> None:
    text = "the price is rs . 45 . then the no . of pens is x . so x = 9 . answer : c"
    assert segment(text, "auto").segments == (
        "the price is rs . 45.",
        "then the no . of pens is x.",
        "so x = 9.\nanswer : c",
    )


OPTIONS = (
    "See.\n\nA. **tree** - Fish do not climb.\n\nB. **water** - They swim.\n\nC. **roof** - No.\n\nThus, the answer is **B**."
)


def test_options() -> None:
    choices = ("tree", "water", "roof")
    found = segment(OPTIONS, "auto", choices)
    assert found.rule == "option"
    assert found.segments == ("A. tree - Fish do not climb.", "B. water - They swim.", "C. roof - No.", "Thus, the answer is B.")
    assert segment(OPTIONS, "auto").rule == "line"
    numbered = "1. **A. tree**: no\n2. **B. water**: yes\n3. **C. roof**: no\n\nTherefore B."
    assert segment(numbered, "auto", choices).segments == ("A. tree: no", "B. water: yes", "C. roof: no", "Therefore B.")
    assert segment("(A) tree: no\n(B) water: yes\nSo it is (B).", "option", choices).segments[-1] == "So it is (B)."
    assert segment("Fish need water. A fish cannot climb.", "option", choices).segments == ()


def test_options_may_be_gone_through_in_one_step() -> None:
    choices = ("tree", "water", "roof")
    together = schema.Segments(options="together")
    rule, steps = steps_of(OPTIONS, together, choices)
    each = steps_of(OPTIONS, schema.Segments(), choices)[1]
    plain = [text for text, _ in steps]
    assert rule == "option"
    assert plain == ["A. tree - Fish do not climb.\nB. water - They swim.\nC. roof - No.", "Thus, the answer is B."]
    assert "\n".join(plain) == "\n".join(text for text, _ in each), "the solution reads as it does in steps of their own"
    assert [text for text, _ in steps_of(OPTIONS.split("Thus")[0], together, choices)[1]] == plain[:1]
    for closing in ("Answer B: water is best.", "(B) is the right one.", "B. water"):
        text = OPTIONS.replace("Thus, the answer is **B**.", closing)
        assert [plain for plain, _ in steps_of(text, together, choices)[1]][1:] == [closing], (
            "what concludes is a step of its own"
        )
    numbers = "A. 12: 3*4 = 12 in all. Yes.\nB. 20: 4*5 = 20. And 20 - 1 = 19.\n\nSo 2 + 2 = 4. And 4 * 3 = 12."
    split = together.model_copy(update={"equations": "split"})
    assert [plain for plain, _ in steps_of(numbers, split, ("12", "20"))[1]][1:] == ["So 2 + 2 = 4.", "And 4 * 3 = 12."]
    for text in ("", "No options here."):
        assert steps_of(text, together.model_copy(update={"by": "option"}), choices) == ("option", [])
    assert steps_of("1. Add.\n2. Halve.", together, choices) == steps_of("1. Add.\n2. Halve.", schema.Segments(), choices)


@each_row(
    ("text", "parts"),
    [
        ("He has 16. 16 - 9 = 7.", ("He has 16.", "16 - 9 = 7.")),
        ("(a) He has 16. (b) He eats 9.", ("(a) He has 16.", "(b) He eats 9.")),
        ("It costs $1.50 at No. 4 Main St. in town. Good.", ("It costs $1.50 at No. 4 Main St. in town.", "Good.")),
        ("Some fruit, e.g. Apples, i.e. Fuji. Then more.", ("Some fruit, e.g. Apples, i.e. Fuji.", "Then more.")),
        ("George W. Bush met J. Smith. They sat.", ("George W. Bush met J. Smith.", "They sat.")),
        ("George H. W. Bush was president. He sat.", ("George H. W. Bush was president.", "He sat.")),
        ("The answer is C. Nothing else fits.", ("The answer is C.", "Nothing else fits.")),
        (
            "It lies south of the U.S. Of the above, only Mexico does.",
            ("It lies south of the U.S.", "Of the above, only Mexico does."),
        ),
        ("So 11 + x = 16. x = 5.", ("So 11 + x = 16.", "x = 5.")),
        ("Is it 5? Yes! It is.", ("Is it 5?", "Yes!", "It is.")),
        ("Mr. Fox has 3.5 kg. Dr. Hare has 2.", ("Mr. Fox has 3.5 kg.", "Dr. Hare has 2.")),
        ("One\ntwo", ("One", "two")),
        (
            "\u4e09\u52a0\u56db\u3002\u7b54\u6848\u662f\u4e03\u3002",
            ("\u4e09\u52a0\u56db\u3002", "\u7b54\u6848\u662f\u4e03\u3002"),
        ),
    ],
)
def test_sentences(text: str, parts: tuple[str, ...]) -> None:
    assert sentences(text) == parts


pieces = st.sampled_from(
    [
        "Step 1: ",
        "Step 2: ",
        "1. ",
        "2. ",
        "(1) ",
        "A. ",
        "B. ",
        "Conclusion: ",
        "#### 7",
        "\n",
        "\n\n",
        " ",
        "Ann has 3.5 pens. ",
        "2 + 2 = 4",
        "**",
        "First, ",
    ]
)


@given(st.lists(pieces, max_size=25).map("".join), st.sampled_from(["auto", "ordinal", "line", "sentence", "option"]))
@settings(max_examples=50, deadline=None)
def test_segments_are_ordered_pieces_of_the_text(text: str, by: str) -> None:
    plain = " ".join(normalise(text, annotations="keep").split())
    found = segment(text, by, ("x", "y", "z"))
    assert found.rule == by or by == "auto"
    at = 0
    for part in found.segments:
        assert part == part.strip() != ""
        place = plain.find(" ".join(part.split()), at)
        assert place >= at
        at = place + len(" ".join(part.split()))
    body = plain.removesuffix("#### 7").strip()
    if by in ("auto", "line", "sentence") and body and "####" not in body:
        assert found.segments


def rationale(problem: str, text: str) -> Rationale:
    return Rationale(problem, 0, text, "test")


def test_cut_counts_and_keeps_both_forms() -> None:
    rows = [
        rationale("a", "Step 1: 3+4 = <<3+4=7>>7\nStep 2: done now"),
        rationale("b", "no marks here"),
        rationale("c", "#### 4"),
        rationale("d", "Step 1: a\nStep 2: b\nStep 3: c\nStep 4: d"),
        rationale("e", "Step 1: only one"),
    ]
    result = cut(rows, schema.Segments(by="ordinal", minimum=2, maximum=3), [])
    assert [row.problem for row in result.steps] == ["a"]
    assert result.steps[0].segments == ("3+4 = 7", "done now")
    assert result.annotated[0].segments == ("3+4 = <<3+4=7>>7", "done now")
    assert {row.problem: row.reason for row in result.dropped} == {
        "b": "no segment",
        "c": "empty rationale",
        "d": "too many steps",
        "e": "too few steps",
    }
    assert {row.stage for row in result.dropped} == {"segments"}
    report = result.report
    assert (report["rows"], report["kept"], report["dropped"], report["share_dropped"]) == (5, 1, 4, 0.8)
    assert report["paper_share_dropped"] == PAPER_SHARE_DROPPED == 0.008
    assert report["rules"] == {"ordinal": 1}


def test_one_rationale_is_cleaned_as_all_are() -> None:
    text = "**Step 1:** 3+4 = <<3+4=7>>7\nStep 2: <<7=7>>\nStep 3: \\( 7 \\times 2 = 14 \\)"
    alone = clean_segments(text, "auto")
    assert alone == ("ordinal", [("3+4 = 7", "3+4 = <<3+4=7>>7"), ("7 * 2 = 14", "7 * 2 = 14")])
    assert cut([rationale("a", text)], schema.Segments(), []).steps[0].segments == tuple(plain for plain, _ in alone[1])


def test_cut_uses_the_choices_of_each_problem() -> None:
    problem = Problem("d", "picks", "Where do fish live?", "B", choices=("tree", "water", "roof"))
    result = cut([rationale("d", OPTIONS), rationale("other", OPTIONS)], schema.Segments(), [problem])
    assert [row.rule for row in result.steps] == ["option", "line"]


def test_nothing_left_is_one_clear_sentence() -> None:
    rows = [rationale("a", "no marks"), rationale("b", "none here")]
    with pytest.raises(
        CirfError, match=r"segments\.by=ordinal: none of 2 rationales .*no segment: 2.*problem a.*segments\.by=auto"
    ):
        cut(rows, schema.Segments(by="ordinal"), [])
    assert cut_all(rows, schema.Segments(by="ordinal"), []).steps == []
    assert cut([], schema.Segments(), []).report["share_dropped"] == 0.0


@given(st.lists(st.integers(1, 40), min_size=1, max_size=60))
def test_spread_matches_statistics(values: list[int]) -> None:
    import statistics

    found = spread(values)
    assert found["mean"] == pytest.approx(statistics.fmean(values), abs=1e-3)
    assert found["median"] == statistics.median(values)
    assert sum(value <= found["p95"] for value in values) >= 0.95 * len(values)
    assert sum(value < found["p95"] for value in values) < 0.95 * len(values)


@pytest.mark.parametrize("filling", [".", ". ", "?!", "e.g. 5 ", "Xy A. ", "1+1=2 ", "the answer ", "-"])
@pytest.mark.parametrize("by", ["auto", "sentence"])
def test_long_lines_are_cut_in_a_time_that_grows_with_their_length(filling: str, by: Literal["auto", "sentence"]) -> None:
    text = "Total" + filling * (20_000 // len(filling)) + "5"
    started = time.process_time()
    cut_all([rationale("a", text)], schema.Segments(by=by, equations="split"), [])
    assert time.process_time() - started < 1.6  # each takes under a third; one that grows with the square many seconds


@pytest.mark.parametrize(
    "front",
    [
        *("The answer is B.", "Ans. (b) the axe.", "Correct option: B\n", "Yes.", "Answer: 'b' i.e., axe."),
        *("Ans. is 'b' i.e., the axe\n", "B i.e. the axe."),
    ],
)
def test_an_answer_in_front_of_its_reasons_is_no_step(front: str) -> None:
    reasons = ("Axes are sharp.", "Spoons are blunt.")
    assert segment(f"{front} {' '.join(reasons)}", "auto").segments == reasons
    if front == "The answer is B.":
        assert segment(f"{front} An axe. {' '.join(reasons)}", "auto", ["a spoon", "an axe"]).segments == reasons


@pytest.mark.parametrize(
    "front", ["The answer must be sharp.", "The answer is one that cuts.", "Option A is blunt.", "No spoon cuts."]
)
def test_a_first_sentence_that_reasons_is_a_step(front: str) -> None:
    assert segment(f"{front} Axes are sharp.", "auto").segments == (front, "Axes are sharp.")


@pytest.mark.parametrize(
    "front", ["Answer: B.", "The answer is 72 clips.", "Answer:\n28\n", "Correct answer: (B) a lamp.", "No."]
)
def test_an_answer_in_front_is_no_step(front: str) -> None:
    assert segment(f"{front} She sold clips.\nThen she left.", "line").segments[0] == "She sold clips."


@pytest.mark.parametrize(
    "first",
    [
        "Answer:\nShe sold 24 clips.",
        "Answer: She sold 24 clips.",
        "Answer: 48/2 = 24 clips.",
        "No. of clips: 24.",
        "No. 3 is odd.",
    ],
)
def test_a_first_step_is_no_answer_in_front(first: str) -> None:
    found = segment(f"{first}\nThen she sold 48.", "line").segments
    assert " ".join(" ".join(found).split()).startswith(" ".join(first.split()))


@each_row(
    ("text", "steps"),
    [
        ("Speed = way / time\n= 90 / 1.5\n= 60 km/h\nAnswer B", ("Speed = way / time = 90 / 1.5 = 60 km/h", "Answer B")),
        ("| year | 2019 |\n|---|---|\n| sales | 7 |\n| costs | 5 |", ("| year | 2019 |\n| sales | 7 |", "| costs | 5 |")),
        ("P = 1/4.\nSo it is small.\n\n\\[\n\\boxed{\\frac{1}{4}}\n\\]", ("P = 1/4.", "So it is small.")),
        ("P = 1/4.\nSo it is:\n\\[\n\\boxed{4}\n\\]", ("P = 1/4.", "So it is:\n4")),
        ("Let X be it.\nX + 1 = 3\n=> X = 2", ("Let X be it.", "X + 1 = 3", "=> X = 2")),
        ("(1) A: b, B: c.\n(2) A: c, B: b.\nAt the end, A has c.", ("A: b, B: c.", "A: c, B: b.", "At the end, A has c.")),
        ("There are 9 rows of 11 trees:\n9 * 11 = 99\nSo 99.", ("There are 9 rows of 11 trees:\n9 * 11 = 99", "So 99.")),
    ],
)
def test_a_line_that_goes_on_with_another_is_no_step(text: str, steps: tuple[str, ...]) -> None:
    assert segment(text, "auto").segments == steps
