"""Answers of the kinds that BBH brings: truth values, validity, words in order, brackets. What holds for any of them."""

from __future__ import annotations

import re
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import each_row

from cirf.records import AnswerKind
from cirf.tasks.parsing import latex
from cirf.tasks.parsing.answers import equal_answers, parse_answer
from cirf.tasks.parsing.latex import normal_latex, tidy_latex
from cirf.tasks.parsing.sequences import list_words

FRAMES = ("{}", "#### {}", "The answer is {}.", "Answer: {}", "So, after some thought:\n#### {}", "**{}**", "answer: `{}`")
NOISE = ("", "First I look at 3 things.\n", "Step 1: think (well).\nStep 2: done.\n\n")
WORDS = ("ant", "bee", "cat", "dog", "it&t", "eel", "o'hare", "fox-glove", "gnu", "hen")
QUESTION = f"Sort the following words alphabetically: List: {' '.join(WORDS)}"
GIVEN = "< [ ( { ( )"
BRACKETS = f"Complete the rest of the sequence. Input: {GIVEN}"

frames, noises = st.sampled_from(FRAMES), st.sampled_from(NOISE)


@given(st.sampled_from(["True", "False"]), frames, noises)
def test_a_truth_value_is_read_back(answer: str, frame: str, noise: str) -> None:
    assert parse_answer("truth", noise + frame.format(answer)) == answer


@given(st.sampled_from(["valid", "invalid"]), frames, noises)
def test_a_validity_is_read_back(answer: str, frame: str, noise: str) -> None:
    assert parse_answer("validity", noise + frame.format(answer)) == answer


@given(st.permutations(WORDS), st.integers(1, len(WORDS)), frames, noises)
def test_words_in_order_are_read_back(words: list[str], count: int, frame: str, noise: str) -> None:
    answer = " ".join(words[:count])
    text = noise + frame.format(answer)
    clear = "####" in frame or "nswer" in frame or count >= len(WORDS) / 2 or not noise
    assert parse_answer("list", text, question=QUESTION) == (answer if clear else None)


@given(st.permutations(WORDS), st.sampled_from([", ", "\n", "; ", " < ", " -> "]), st.booleans())
def test_how_words_are_set_apart_does_not_matter(words: list[str], between: str, numbered: bool) -> None:
    text = between.join(f"{place}. {word}" if numbered else word for place, word in enumerate(words, 1))
    assert parse_answer("list", text, question=QUESTION) == " ".join(words)
    assert parse_answer("list", f"The answer is:\n{text}", question=QUESTION) == " ".join(words)


@given(st.lists(st.sampled_from(")]}>"), min_size=1, max_size=12), st.sampled_from([" ", "", ", "]), frames, noises)
def test_brackets_are_read_back(signs: list[str], between: str, frame: str, noise: str) -> None:
    text = noise + frame.format(between.join(signs))
    assert parse_answer("brackets", text, question=BRACKETS) == " ".join(signs)


@given(st.lists(st.sampled_from(")]}>"), min_size=1, max_size=12), frames)
def test_the_whole_sequence_said_again_counts_by_what_it_goes_on_with(signs: list[str], frame: str) -> None:
    text = frame.format(f"{GIVEN} {' '.join(signs)}")
    assert parse_answer("brackets", text, question=BRACKETS) == " ".join(signs)
    assert parse_answer("brackets", frame.format(GIVEN), question=BRACKETS) is None


@given(
    st.permutations(WORDS),
    st.sampled_from([" ", "\n", " -> ", ": ", "\nSorted: "]),
    st.sampled_from(["{}", "#### {}", "Answer: {}"]),
)
def test_the_list_said_again_before_its_order_does_not_count(words: list[str], between: str, frame: str) -> None:
    text = frame.format(" ".join(WORDS) + between + " ".join(words))
    assert parse_answer("list", text, question=QUESTION) == " ".join(words)


@given(st.permutations(WORDS), st.permutations(WORDS), st.sampled_from(["", " is a word of it", " comes next"]))
def test_words_below_an_anchored_row_add_nothing(words: list[str], others: list[str], remark: str) -> None:
    text = f"#### {' '.join(words)}\n{' '.join(others[:2])}{remark}"
    assert parse_answer("list", text, question=QUESTION) == " ".join(words)


@given(st.lists(st.sampled_from(["close", "the", "open", "then", "first"]), min_size=2, max_size=6), st.sampled_from("([{<)]}>"))
def test_brackets_in_prose_are_no_answer(words: list[str], sign: str) -> None:
    text = f"We {f' {sign} '.join(words)} one"
    assert parse_answer("brackets", text, question=BRACKETS) is None


def test_equality() -> None:
    assert equal_answers("brackets", "]>", "] >")
    assert not equal_answers("brackets", "] )", ") ]")
    assert equal_answers("list", "a b", "a b")
    assert not equal_answers("list", "b a", "a b")
    assert not equal_answers("truth", "True", "False")


def test_words_without_a_question() -> None:
    assert list_words("What is it?") == ()
    for text in ("red, green and blue", "Colours: red green blue", "1. red\n2. green\n3. blue", "#### red green blue"):
        assert parse_answer("list", text) == "red green blue"


@pytest.mark.parametrize(
    ("kind", "answer", "form"),
    [
        ("truth", "True", "True|False"),
        ("validity", "invalid", "(in)?valid"),
        ("list", "b a", "(a|b)( (a|b))*"),
        ("brackets", ") ]", r"[\[\](){}<>]( [\[\](){}<>])*"),
        ("latex", "x^2", r"(?s)\s*\S.*"),
    ],
)
@given(data=st.data())
def test_any_text_is_read_without_a_fault(kind: AnswerKind, answer: str, form: str, data: st.DataObject) -> None:
    question = BRACKETS if kind == "brackets" else "Sort: List: a b"
    pieces = st.sampled_from(
        [answer, f" {answer}\n", "\n#### ", "not ", ", ", "$", "\\boxed{", "}", "The answer is ", ". ", "?\n"]
    )
    text = data.draw(st.text(max_size=300) | st.lists(pieces | st.text(max_size=3), max_size=12).map("".join))
    found = parse_answer(kind, text, question=question)
    assert re.fullmatch(form, answer if found is None else found)
    assert parse_answer(kind, f"#### {answer}", question=question) == answer


@each_row(
    "text",
    [
        "#### " * 1_000, "answer to " * 500, r"\boxed{" * 500, "( [ { <" * 1_000, "not valid " * 750, "$" * 2_500,
        "whether it is " * 500, "a b " * 1_250, r"\(" * 2_000, r"\[ x " * 1_250, "{" * 5_000, "valid or " * 750,
        "\\" * 5_000, "<" * 5_000, "(" * 5_000, "((a)" * 1_250, "a, " * 2_000, r"\text{" * 750, "twenty-" * 1_250,
        "1 " * 2_500, "= 3 " * 1_250, "neither " * 750, "no because " * 500, "a -> " * 1_250, ") then " * 1_000,
    ],
)  # fmt: skip
def test_hostile_texts_do_not_stall(text: str) -> None:
    started = time.process_time()
    for kind in ("number", "option", "yesno", "truth", "validity", "list", "brackets", "latex", "text"):
        parse_answer(kind, text, ("roof", "room"), BRACKETS if kind == "brackets" else "Sort: List: a b")
    assert time.process_time() - started < 3


# Answers in LaTeX: what is the same, what is not, and that no formula holds the evaluation up

SAME = [
    ("0.5", r"\frac{1}{2}"), (r"\frac12", "1/2"), (r"\dfrac{ 1 }{ 2 }", r"\tfrac{1}{2}"), (r"\sqrt2", r"\sqrt{2}"),
    ("\u221a29", r"\sqrt{29}"),
    (r"7(\sqrt3+1)", r"7 \sqrt{3} + 7"), ("2(k+3)", "2k+6"), ("y = 3x + 2", "y=2+3x"), ("3x+2", "y = 3x + 2"), ("x=5", "5"),
    (r"x \in [-1,4]", r"\left[-1, 4\right]"), (r"35^\circ", "35"), (r"\$12.50", "12.5"), (r"40\%", "40"), (r"1,\!234", "1234"),
    (r"12\text{ cm}^2", "12"), (r"2 \pm \sqrt{3}", r"2+\sqrt3, 2-\sqrt3"), ("3,-1", "-1, 3"), (r"\text{west}", "West"),
    (r"\text{(C)}", "C"), ("231_4", "231_{4}"), ("231", "231_4"), ("3+2i", "2i+3"),
    (r"\frac{\sqrt{5}}{5}", r"\frac{1}{\sqrt{5}}"),
    (r"\begin{pmatrix} 1 \\ -2 \end{pmatrix}", r"\begin{pmatrix}1\\-2\end{pmatrix}"), (r"(1,3) \cup (5,8)", r"(1,3)\cup(5,8)"),
    (r"4\cdot 10^3", "4000"), (r"\left(\frac{2}{5},1\right]", r"(0.4,1]"), (r"18\pi", r"\pi \cdot 18"), ("−3", "-3"),
]  # fmt: skip
OTHER = [
    ("0.5", "0.51"), ("(1,2)", "(1,2]"), ("(2,1)", "(1,2)"), (r"\text{west}", r"\text{east}"), ("231_4", "231_5"),
    ("3+2i", "3-2i"),
    (r"\sqrt{2}", "1.41"), ("x+1", "x-1"), ("2k+6", "2k+7"), (r"\frac{1}{3}", "0.33"), ("", "1"), (r"\pi", "3.14"), ("12", "1,2"),
    (r"\begin{pmatrix} 1 \\ -2 \end{pmatrix}", r"\begin{pmatrix} -2 \\ 1 \end{pmatrix}"), ("5x-7=0", "5x+7=0"),
]  # fmt: skip


@each_row(("one", "other"), SAME)
def test_the_same(one: str, other: str) -> None:
    assert equal_answers("latex", one, other)
    assert equal_answers("latex", other, one)


@each_row(("one", "other"), OTHER)
def test_not_the_same(one: str, other: str) -> None:
    assert not equal_answers("latex", one, other)
    assert not equal_answers("latex", other, one)


CANONICAL = st.sampled_from([tidy_latex(text) for pair in SAME for text in pair])


@given(
    CANONICAL,
    st.sampled_from(
        [r"\boxed{{{}}}", "#### ${}$", "The answer is ${}$.", r"So \[ {} \]", r"Thus it is \({}\).", r"$\boxed{{{}}}$"]
    ),
    st.sampled_from(["", "First $x = 3$.\n", "We have $1 + 1 = 2$, so \n\n"]),
)
@settings(deadline=None)
def test_a_formula_is_read_back(answer: str, frame: str, noise: str) -> None:
    read = parse_answer("latex", noise + frame.format(answer))
    assert read is not None
    assert normal_latex(read) == normal_latex(answer)


@given(st.text(alphabet="0123456789\\{}()[]$^_+-*/=., xyfracsqtboe", max_size=60))
@settings(deadline=None)
def test_normal_forms_and_tidying_never_fail(text: str) -> None:
    assert tidy_latex(tidy_latex(text)) == tidy_latex(text)
    assert equal_answers("latex", text, text)
    normal_latex(text)


@pytest.mark.parametrize("monster", ["9^{9^{9^{9^{9}}}}", pytest.param("(10^{10})!", marks=pytest.mark.slow)])
def test_a_huge_formula_is_unequal_within_the_limit_and_a_process_that_died_is_started_again(
    monster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert equal_answers("latex", "2(k+11)", "2k+22")
    worker = latex.COMPARER.process
    assert worker is not None
    worker.kill()
    worker.wait()
    monkeypatch.setattr(latex, "LIMIT", 1.0)
    assert equal_answers("latex", f"2(k+{len(monster)})", f"2k+{2 * len(monster)}")
    assert latex.COMPARER.process is not worker
    started = time.monotonic()
    assert not latex.same_formula(monster, r"\sqrt{7}")
    assert time.monotonic() - started < latex._CLOCK + 15  # by the clock, on a busy machine
    latex.COMPARER.stop()
    assert equal_answers("latex", f"2(m+{len(monster)})", f"2m+{2 * len(monster)}")


def test_it_works_outside_the_main_thread() -> None:
    found: list[bool] = []

    def compare(number: int) -> None:
        found.append(equal_answers("latex", f"3(m+{number})", f"3m+{3 * number}"))

    threads = [threading.Thread(target=compare, args=(number,)) for number in range(2, 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 6


def test_spelt_alike_needs_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cirf.tasks.parsing.latex.same_formula", lambda *pair: pytest.fail(f"asked for {pair}"))
    assert equal_answers("latex", r"\dfrac{3}{4}", r"\frac34")
    assert equal_answers("latex", "1,000", "1000.0")
    assert not equal_answers("latex", "17", "18")
