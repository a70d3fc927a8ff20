"""Plain form: markup goes, words and digits stay, twice is once. Whom or what a step is about, in the words of its question."""

from __future__ import annotations

import re

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tables import each_row

from cirf.text.normalise import normalise
from cirf.text.subjects import subjects, with_next_subject

PIECES = [
    "**", "*", "__", "_", "`", "```", "# ", "### ", "#### ", "- ", "\u2022 ", "\n", "\n\n", " ", "\u00a0", "\t", "\\[", "\\]",
    "\\(", "\\)", "$", "$$", "\\text{", "\\boxed{", "\\frac{", "}{", "}", "{", "\\times", "\\div", "\\cdot", "\\%", "\\$",
    "\\\\", "\\,", "\\sqrt{", "\\binom{", "^{", "^\\circ", "\\left(", "\\right)", "\\begin{align*}", "\\end{align*}", "&",
    "\u00d7", "\u2212", "\u00f7", "<<", ">>", "Step 1: ", "1. ", "A. ", "Conclusion", "7", "3.5", "12", "word", "Total", "=",
    "+", "-", "x", ".", ":", "(", ")", "---", "\u200b", "\r\n", "<br>", "\\unknown", "\\", "~",
]  # fmt: skip
texts = st.one_of(st.text(max_size=60), st.lists(st.sampled_from(PIECES), max_size=30).map("".join))


@each_row(
    ("raw", "plain"),
    [
        ("### Step 2: **Add** them", "Step 2: Add them"),
        ("**Step 2:** add", "Step 2: add"),
        ('<step id="1">add</step>\n<step id="2">halve</step>', "add\n\nhalve"),
        (r"add\n\n2 + 3 = 5\nHalve", "add\n\n2 + 3 = 5\nHalve"),
        (r"$a \neq b$ and \nabla", r"a ≠ b and \nabla"),
        ("### Step 1 – a", "Step 1 – a"),
        ("### 2. Add them", "2. Add them"),
        ("### Step by step", "Step by step:"),
        ("### Conclusion\nDone", "Conclusion:\nDone"),
        ("- 2 adults\n* **5** children", "2 adults\n5 children"),
        ("\\[\n\\text{Total} = 2 + 5 = 7\n\\]", "Total = 2 + 5 = 7"),
        ("so \\( \\boxed{56} \\).", "so 56."),
        ("\\frac{35}{5} = 7", "35/5 = 7"),
        ("n = \\frac{\\text{All pens}}{4}", "n = (All pens)/4"),
        ("1\\frac{1}{2} cups", "1 1/2 cups"),
        ("7 \\times 8, 8\\div2, 3 \\cdot 4", "7 * 8, 8/2, 3 * 4"),
        ("7 × 8 and 8 ÷ 2 and 5 − 3", "7 * 8 and 8 / 2 and 5 - 3"),
        ("5 \\, \\text{dollars/hour}", "5 dollars/hour"),
        ("20\\% of \\$40", "20% of $40"),
        ("$x = 5$ holds", "x = 5 holds"),
        ("$3x > 9$ at $(2, 3)$, for $5 or $6", "3x > 9 at (2, 3), for $5 or $6"),
        ("\\begin{align*} a &= 1 \\\\ b &= 2 \\end{align*}", "a = 1\nb = 2"),
        ("use `print` here", "use print here"),
        ("1{,}000 * 2", "1,000 * 2"),
        ("30^\\circ and x^{2} and x^{n + 1}", "30° and x^2 and x^(n + 1)"),
        ("10^{-7} and \\sqrt2", "10^-7 and √2"),
        ("x^{12}", "x^12"),
        ("a\u00a0b\u200b  c\r\nd", "a b c\nd"),
        ("a\n\n\n\nb", "a\n\nb"),
        ("24 clips\n#### 72", "24 clips\n#### 72"),
        ("#### Step 2: Add\nbody", "Step 2: Add\nbody"),
        ("Therefore, the final answer is **72**.", "Therefore, the final answer is 72."),
    ],
)
def test_forms(raw: str, plain: str) -> None:
    assert normalise(raw) == plain


@each_row(
    "text",
    [
        "It costs $3 and $5, that is $8.",
        "$48/2=$24 each, so $24+$24=$48",
        "He has $20 - $10 = $10",
        "2*3*4 = 24 and 2 ** 3 = 8",
        "-5 + 3 = -2",
        "snake_case_name and ___ blank",
        "A is #1 of 4",
        "× 4 = 12",
    ],
)
def test_leaves_plain_text_alone(text: str) -> None:
    assert normalise(text) == text


def test_annotations_are_dropped_or_kept() -> None:
    text = "48/2 = <<48/2=24>>24 clips"
    assert normalise(text) == "48/2 = 24 clips"
    assert normalise(text, annotations="keep") == text
    assert normalise(normalise(text, annotations="keep")) == normalise(text)


@given(texts)
@settings(max_examples=50, deadline=None)
@example("**a*")
@example("\\\\frac{1}{2}")
@example("$\\$1$")
@example("a" + "\\" * 1001)
@example("- " * 150 + "x")
@example("# " * 150 + "x")
@example("\\text{" * 90 + "x" + "}" * 90)
def test_twice_is_once(text: str) -> None:
    once = normalise(text)
    assert normalise(once) == once
    kept = normalise(text, annotations="keep")
    assert normalise(kept, annotations="keep") == kept


@given(texts)
@settings(max_examples=50, deadline=None)
def test_no_digit_is_lost(text: str) -> None:
    assert re.findall(r"[0-9]", normalise(text, annotations="keep")) == re.findall(r"[0-9]", text)
    if "<" not in text:
        assert re.findall(r"[0-9]", normalise(text)) == re.findall(r"[0-9]", text)


def test_marks_in_a_row_go_at_once_but_an_answers_stay() -> None:
    assert normalise("- " * 1000 + "5 apples") == "5 apples" and normalise("# " * 1000 + "Count") == "Count:"
    assert normalise("so\n# #### 72") == "so\n#### 72" and normalise("so\n#### # 72") == "so\n#### # 72"


@each_row("mark", ["\\[ a ", "\\( a ", "**a ", "*a ", "$$ a ", "$a ", "`a ", "__a "])
def test_marks_that_no_other_closes_hide_nothing(mark: str) -> None:
    """Read in a time that grows with the text's length; a formula behind them is found all the same."""
    plain = normalise(mark * 3000 + r"\n\[ 2 + 5 = 7 \]")
    assert plain.count("a") == 3000 and plain.endswith("2 + 5 = 7")


@given(texts)
@settings(max_examples=50, deadline=None)
def test_plain_text_that_is_passed_over_is_what_it_would_become(text: str) -> None:
    """An invisible sign goes first of all, and with it no text is plain."""
    for way in ("drop", "keep"):
        assert normalise(f"\N{ZERO WIDTH SPACE}{text}", way) == normalise(text, way)


def test_rules_of_tables_and_code_of_drawings_are_left_out() -> None:
    assert normalise("| a | b |\n|---|:-:|\n| 1 | 2 |") == "| a | b |\n\n| 1 | 2 |"
    assert normalise("So 2.\n[asy]\nint i = 3;\n[/asy]") == "So 2."


COIN = "A coin is heads up. mundt flips the coin. o'neil does not flip the coin. Is the coin still heads up?"
AGES = "Freyja is 10 years old, and Eli is 9. Sarah is twice as old as Eli. How old are Sarah and Freyja in total?"

FOUND = [
    (COIN, ["Initially, the coin is heads up.", "Mundt flips it: tails.", "O'Neil does not."], ("", "mundt", "o'neil")),
    (COIN, ["The coin is heads up.", "Then Mundt's turn: tails.", "Action: O'Neil waits."], ("", "mundt", "o'neil")),
    (COIN, ["Action by Mundt: Mundt flips it.", "Action by O'Neil: O'Neil waits."], ("mundt", "o'neil")),
    (AGES, ["Sarah is 2 * 9 = 18.", "So Freyja is 10.", "In total 18 + 10 = 28."], ("Sarah", "Freyja", "")),
    # all of one, or none: nothing shows how far a list has come
    (AGES, ["Sarah is 2 * 9 = 18.", "Sarah is 18.", "In total 28."], ("", "", "")),
    (AGES, ["2 * 9 = 18.", "18 + 10 = 28."], ("", "")),
    # common words and numbers name nothing, and what is no word of the question is nobody of it
    (AGES, ["How old is Sarah?", "Is Eli 9?", "10 + 18 = 28."], ("", "", "")),
    (AGES, ["Anna is 9.", "Sar is 18.", "Eli is 9.", "Sarah is 18."], ("", "", "Eli", "Sarah")),
    ("Will has 5 pens and Mark 3.", ["Will has 5.", "And then Mark has 3."], ("Will", "Mark")),
    ("O’Neil has 5 and Jose\u0301 3.", ["O'Neil has 5.", "Jos\u00e9 has 3."], ("O’Neil", "Jos\u00e9")),
    ("Of A, B and C which is it?", ["A. It is red.", "B. It is blue.", "C. It is green."], ("", "", "")),
    (AGES, ["", "Sarah is 18.", "***", "Eli is 9."], ("", "Sarah", "", "Eli")),
]


@each_row(("question", "steps", "expected"), FOUND)
def test_a_step_is_about_the_word_it_opens_with(question: str, steps: list[str], expected: tuple[str, ...]) -> None:
    assert subjects(steps, question) == expected


WORDS = st.lists(st.sampled_from(["Ann", "bob", "Bob's", "the", "So", "12", "has", "\n", ":", "Ünal", "李", ""]), max_size=6)


@given(st.lists(WORDS.map(" ".join), max_size=5), WORDS.map(" ".join))
def test_a_subject_is_a_word_of_the_question(steps: list[str], question: str) -> None:
    made = subjects(steps, question)
    assert len(made) == len(steps)
    assert all(re.search(rf"\b{re.escape(subject)}\b", question) for subject in made if subject)
    assert len({subject for subject in made if subject}) != 1


@given(st.lists(st.tuples(st.text(max_size=4), st.sampled_from(["", "ann", "bob"])), max_size=5))
def test_it_is_before_the_step_behind_the_result_before(steps: list[tuple[str, str]]) -> None:
    results, summary = [result for result, _ in steps], [subject for _, subject in steps]
    made = with_next_subject(results, summary)
    assert len(made) == len(results)
    for place, (new, old) in enumerate(zip(made, results, strict=True)):
        after = summary[place + 1] if place + 1 < len(summary) else ""
        assert new == (f"{old} {after}" if after else old)


def test_aligned_formulas_without_brackets_and_groups_of_digits() -> None:
    aligned = "We have\n\\begin{align*}\n7x + 3 &= 24 \\\\\nx &= 3.\n\\end{align*}"
    assert normalise(aligned).split() == ["We", "have", "7x", "+", "3", "=", "24", "x", "=", "3."]
    assert normalise("1\u00a0555 + 2 = 1\u202f557") == "1555 + 2 = 1557"
    assert normalise("It is $\\boxed{\\$12}$.") == "It is $12."
