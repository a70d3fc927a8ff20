"""An answer as lines: shown piece by piece it is what is shown at once, and each line comes as soon as it is certain."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cirf.commands.ask import Lines
from cirf.lm.decoding.generate import generate_one
from cirf.lm.decoding.trace_grammar import Steering
from cirf.lm.prompt import prompt_text
from cirf.serving.model import Served

QUESTIONS = ["Hi?", "What is 12 plus 7?", "Anna has 3 apples and buys 4 more. How many apples are there now?", "0 1 2" * 9]
TRACE = ["<cirf>", "</cirf>", "<cirf_000>", "<cirf_003>", "<cirf_0", "<ci", "48", " ", "\n", "é", "�", "<", "yes"]
PROSE = ["#### ", "####", "#", " ", "\n", "4 + 8 = 12", "72", "�"]


def at_once(served: Served, text: str, cut: bool = False) -> str:
    return Lines(served).more(text, over=True, cut=cut)


def in_pieces(served: Served, texts: list[str], whole: str, cut: bool = False) -> str:
    lines = Lines(served)
    return "".join([lines.more(text, over=False) for text in texts]) + lines.more(whole, over=True, cut=cut)


@pytest.mark.parametrize("name", ["traces", "prose"])
@pytest.mark.parametrize("steering", [None, Steering(), Steering(budget=2, result_tokens=3), Steering(results=False)])
def test_what_a_model_writes_is_shown_alike(models: list[Served], name: str, steering: Steering | None) -> None:
    served = next(one for one in models if one.name == name)
    for question in QUESTIONS:
        texts: list[str] = []
        made = generate_one(
            served.model,
            served.tokenizer,
            prompt_text(served.tokenizer, question),
            served.cap,
            on_text=texts.append,
            steer=served.steer(steering),
        )
        assert len(texts) == made.tokens == len(made.ids) > 1
        shown = in_pieces(served, texts, made.text, made.truncated)
        assert shown == at_once(served, made.text, made.truncated) and shown.endswith("\n")


@given(pieces=st.lists(st.sampled_from(TRACE), max_size=14), opened=st.booleans(), cut=st.booleans())
def test_any_trace_is_shown_alike(traces: Served, pieces: list[str], opened: bool, cut: bool) -> None:
    whole, served = "".join(pieces), dataclasses.replace(traces, opened=opened)
    shown = in_pieces(served, [whole[:end] for end in range(len(whole))], whole, cut)
    assert shown == at_once(served, whole, cut)
    answer = served.read(whole, cut).answer
    assert shown.endswith(f"{answer}\n") and not (cut and "</cirf>" not in whole and answer)


@given(pieces=st.lists(st.sampled_from(PROSE), max_size=10))
def test_any_prose_is_shown_alike(prose: Served, pieces: list[str]) -> None:
    whole = "".join(pieces)
    assert in_pieces(prose, [whole[:end] for end in range(len(whole))], whole) == at_once(prose, whole)


def test_a_step_is_shown_once_its_result_is_whole_and_the_answer_as_it_comes(traces: Served) -> None:
    lines = Lines(traces)
    first = f"  <cirf_000>   {'adds':28} 48\n"
    assert lines.more("<cirf_000>48", over=False) == ""
    assert lines.more("<cirf_000>48<cirf_003>", over=False) == first
    assert lines.more("<cirf_000>48<cirf_003>72</ci", over=False) == ""
    assert lines.more("<cirf_000>48<cirf_003>72</cirf>", over=False) == first.replace("000", "003").replace(
        "adds   ", "divides"
    ).replace("48", "72")
    assert lines.more("<cirf_000>48<cirf_003>72</cirf>7", over=False) == "7"
    assert lines.more("<cirf_000>48<cirf_003>72</cirf>72", over=True) == "2\n"


def test_prose_comes_as_it_is_written_and_its_answer_on_a_line_of_its_own(prose: Served) -> None:
    lines = Lines(prose)
    assert lines.more("4 + 8 = 12", over=False) == "4 + 8 = 12"
    assert lines.more("4 + 8 = 12\n#### 1", over=False) == ""
    assert lines.more("4 + 8 = 12\n#### 1\nno:\n#### ", over=False) == "\n#### 1\nno:"
    assert lines.more("4 + 8 = 12\n#### 1\nno:\n#### 12", over=True) == "\n12\n"
