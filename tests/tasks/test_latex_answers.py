"""Answers in LaTeX: what is the same, what is not, and that no formula holds the evaluation up."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cirf.tasks.answers import equal_answers, parse_answer
from cirf.tasks.parsing import symbolic
from cirf.tasks.parsing.latex import normal_latex, tidy_latex

SAME = [
    ("0.5", r"\frac{1}{2}"), (r"\frac12", "1/2"), (r"\dfrac{ 1 }{ 2 }", r"\tfrac{1}{2}"), (r"\sqrt2", r"\sqrt{2}"),
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


@pytest.mark.parametrize(("one", "other"), SAME)
def test_the_same(one: str, other: str) -> None:
    assert equal_answers("latex", one, other)
    assert equal_answers("latex", other, one)


@pytest.mark.parametrize(("one", "other"), OTHER)
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


@pytest.mark.parametrize("monster", ["9^{9^{9^{9^{9}}}}", "(10^{10})!"])
def test_a_monster_is_unequal_within_the_limit_and_the_next_pair_is_fine(monster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    symbolic._SHARED.stop()
    monkeypatch.setattr(symbolic, "LIMIT", 1.0)
    assert equal_answers("latex", f"2(k+{len(monster)})", f"2k+{2 * len(monster)}")
    started = time.monotonic()
    assert not symbolic.same_formula(monster, r"\sqrt{7}")
    assert time.monotonic() - started < symbolic._CLOCK + 15  # by the clock, on a busy machine
    symbolic._SHARED.stop()
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


def test_a_process_that_died_is_started_again() -> None:
    assert equal_answers("latex", "2(k+11)", "2k+22")
    worker = symbolic._SHARED.process
    assert worker is not None
    worker.kill()
    worker.wait()
    assert equal_answers("latex", "2(k+12)", "2k+24")
    assert symbolic._SHARED.process is not worker


def test_spelt_alike_needs_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cirf.tasks.parsing.latex.same_formula", lambda *pair: pytest.fail(f"asked for {pair}"))
    assert equal_answers("latex", r"\dfrac{3}{4}", r"\frac34")
    assert equal_answers("latex", "1,000", "1000.0")
    assert not equal_answers("latex", "17", "18")
