"""Long prose: where it is cut, what its pieces do, what of it is redundant, and what checks and runs say of that."""

import json
import re
import time
from itertools import pairwise
from pathlib import Path

import pytest
import tinyrun
from hypothesis import given
from hypothesis import strategies as st
from tables import each_row

from cirf.methods import get
from cirf.rationales.check import check, some
from cirf.rationales.redundancy import count_left_out, redundant
from cirf.rationales.results import write_results
from cirf.rationales.segmentation import cut_all, segment
from cirf.recipe import schema
from cirf.recipe.load import load
from cirf.records import Problem, Rationale, Steps
from cirf.stages.context import Context
from cirf.store.jsonl import read_rows
from cirf.store.run_folder import RunFolder
from cirf.text.discourse import function_of, pieces
from cirf.text.sentences import sentences

CLIPS = Problem("sums/train/clips", "sums", "She sold 48 clips in April and half as many in May. How many in all?", "72")
PARTS = (
    ("plan", "Okay, there are 48 clips in April and half as many in May."),
    ("work", "Then it takes a division of the first number by two, which is 48 / 2 = 24 clips."),
    ("conclude", "So there are 48 + 24 = 72 clips in all."),
    ("reconsider", "Wait, is it half of April? It says half as many, so yes."),
    ("check", "Let me double-check: 72 - 48 = 24, and 24 is half of 48."),
    ("alternative", "Alternatively, 48 * 1.5 = 72 clips."),
    ("conclude", "So the answer is 72."),
    ("uncertain", "I think that this is right."),
)
ALOUD = "\n\n".join(text for _, text in PARTS)


def bare(text: str) -> str:
    return re.sub(r"\s", "", text)


def test_long_prose_is_cut_where_it_turns() -> None:
    assert segment(ALOUD, "function").segments == tuple(text for _, text in PARTS)
    assert segment(" ".join(text for _, text in PARTS), "function").segments[1:] == tuple(text for _, text in PARTS[2:])
    assert [function_of(text) for _, text in PARTS] == [name for name, _ in PARTS]


def test_what_introduces_a_list_or_formula_stays_with_it() -> None:
    listed = "We list all of the cases here:\n\n1. The first one is even.\n2. It is odd."
    text = f"{listed}\n\nThat leaves:\n\n$x = 3 + 4$\n\nNow add them up."
    assert [part.split("\n")[0] for part in pieces(text, 5, 600)] == [
        "We list all of the cases here:",
        "That leaves:",
        "Now add them up.",
    ]


def test_a_sentence_begins_a_piece_where_both_are_long_enough() -> None:
    first = "There are 12 apples in each of the boxes."
    short = "A box weighs 3 pounds."
    long = "The crates that came by ship hold as many of them, but they weigh 5 pounds each, and 9 are empty."
    then = f"Then {long[0].lower()}{long[1:]}"
    assert pieces(f"{first} {short}", 20, 600) == (f"{first} {short}",)
    assert pieces(f"{first} {short} {long}", 20, 600) == (f"{first} {short}", long)
    assert pieces(f"{first} {short} {then}", 20, 600) == (f"{first} {short} {then}",)


def test_a_paragraph_begins_a_piece_after_a_whole_sentence() -> None:
    lines = ["17 is the first number.", "p = 2 + 15 is the same.", "$$p = 2 + 15 = 17$$", "it is a prime number then."]
    assert pieces("\n\n".join(lines), 20, 600) == (lines[0], f"{lines[1]}\n{lines[2]}\n{lines[3]}")
    assert len(pieces("The numbers are these:\n\n17 and 19, and also 23.", 20, 600)) == 1


def test_who_thinks_on_within_a_paragraph_begins_no_piece() -> None:
    first = "There are 12 apples in each box."
    for said in ("Hmm, maybe not.", "Let me think again.", "Is that right?"):
        assert len(pieces(f"{first} {said}", 5, 600)) == 1 and len(pieces(f"{first}\n\n{said}", 5, 600)) == 2
    for said in ("Hmm, let me check it.", "Hmm, wait a minute.", "Let me check again."):
        assert len(pieces(f"{first} {said}", 5, 600)) == 2


def test_a_short_conclusion_goes_with_the_paragraph_before_it() -> None:
    parts = ["So 3 + 4 = 7, which is option B.", "So the answer is B.", "Wait, let me check that 3 + 4 = 7 is right."]
    assert pieces("\n\n".join(parts), 20, 600) == ("\n".join(parts[:2]), parts[2])
    assert pieces("\n\n".join([parts[0], "Hmm.", parts[2]]), 20, 600) == (parts[0], f"Hmm.\n{parts[2]}")  # others with the next


def test_auto_cuts_what_thinks_aloud_by_function() -> None:
    listed = "Hmm, let me list them.\n1. One is odd.\n2. Two is even.\n\n"
    assert segment(listed + 4 * ALOUD, "auto").rule == "function"
    assert segment(ALOUD, "auto").rule == "line"  # short
    steps = "\n".join(f"Step {place}: {'add the next number to it ' * 4}" for place in range(1, 20))
    assert segment(steps, "auto").rule == "ordinal"
    lines = "\n\n".join(f"The part of number {place} is added, and so on." for place in range(40))
    assert segment(lines, "auto").rule == "function"  # as lines they would be too many
    assert cut_all([Rationale("a", 0, lines, "x")], schema.Segments(), []).report["kept"] == 1


FILLER = "The crates that came by ship hold as many of them, but they weigh five pounds each. Nine are empty."


def test_auto_cuts_milder_thinking_by_function_too() -> None:
    puzzle = ("Alright, let me work through it.", "Wait, let me verify that.", "Let me consider the cat.", "Hmm, it is so.")
    mild = "\n\n".join(f"{opening} {FILLER} {FILLER}" for opening in puzzle)
    planned = ("First, I'll count the crates.", "Next, I need to weigh them.", "To do so, I can add.", "So it is 9.")
    plan = "\n\n".join(f"{said} {FILLER} {FILLER}" for said in planned)
    assert segment(mild, "auto").rule == segment(plan, "auto").rule == "function"
    assert segment("\n\n".join(f"{said} {FILLER}" for said in planned), "auto").rule == "line"  # short
    apart = "\n".join(f"I need {FILLER.replace('. Nine', ', and nine')}" for _ in range(9))
    assert segment(apart, "auto").rule == "line"  # one step a line
    numbered = "\n".join(f"{place}. I'll begin. {FILLER} {FILLER}" for place in range(1, 6))
    assert segment(numbered, "auto").rule == "ordinal"
    ours = "\n\n".join(f"We need it. Let's see them all. {FILLER} {FILLER}" for _ in range(5))
    assert segment(ours, "auto").rule == "line"


said = st.sampled_from(
    [*(text for _, text in PARTS), "x = 3:", "$$y$$", "hmm", "第一步。然后", "a. b. c", "word " * 200, "z" * 1500]
)
texts = st.one_of(
    st.text(), st.lists(st.tuples(said, st.sampled_from([" ", "\n", "\n\n", ""]))).map(lambda each: "".join(map("".join, each)))
)


@given(texts, st.integers(1, 60), st.integers(120, 700))
def test_pieces_give_the_text_back_and_keep_their_bounds(text: str, shortest: int, longest: int) -> None:
    found = pieces(text, shortest, longest)
    assert bare("".join(found)) == bare(text) and all(map(str.strip, found))
    assert found == pieces(text, shortest, longest)
    assert all(len(piece) <= longest for piece in found)
    for one, other in pairwise(found):
        assert min(len(one), len(other)) >= shortest or len(one) + 1 + len(other) > longest


@pytest.mark.parametrize("filling", ["x", "a. b. ", "Wait. ", "Let me check 3 + 4 = 7. ", "\n\na", "so, so, "])
@pytest.mark.parametrize("by", ["auto", "function"])
@pytest.mark.parametrize("length", [40_000, pytest.param(200_000, marks=pytest.mark.slow)])
def test_a_long_text_is_cut_in_linear_time(filling: str, by: str, length: int) -> None:
    text = filling * (length // len(filling))
    started = time.process_time()
    cut_all([Rationale(CLIPS.id, 0, text, "x")], schema.Segments(by=by, redundant="drop"), [CLIPS])  # type: ignore[arg-type]
    assert time.process_time() - started < 5  # each takes under half a second; those that grew with a power took minutes


def test_a_line_of_many_stops_is_read_in_linear_time() -> None:
    started = time.process_time()
    assert len(sentences("a. b. " * 150_000)) == 1
    assert time.process_time() - started < 5  # half a second; with the square of the length 20


def test_what_comes_after_the_settled_answer_is_redundant() -> None:
    found = redundant([text for _, text in PARTS], CLIPS)
    assert [(row.place, row.why, row.function) for row in found] == [
        (3, "settled", "reconsider"),
        (4, "settled", "check"),
        (5, "settled", "alternative"),
        (7, "settled", "uncertain"),
    ]


@each_row(
    ("answer", "choices", "steps", "gone"),
    [
        ("72", None, ("So the answer is 70.", "Wait, 24 was left out.", "The answer is 72.", "Let me check."), (3,)),
        ("72", None, ("The answer is 72.", "Wait, no.", "The answer is 70."), ()),  # not settled: it ends in another
        ("72", None, ("First 8 * 9 = 72.", "Those are 72 / 2 = 36 pairs.", "And 36 * 2 = 72."), ()),  # a number on the way
        ("72", None, ("First 8 * 9 = 72.", "So those are 72 / 2 = 36 pairs.", "And 36 * 2 = 72.", "The answer is 72."), ()),
        ("B", ("tree", "water"), ("The answer is B.", "Hmm, fish do not climb.", "So the answer is B."), (1,)),
        ("yes", None, ("So the answer is yes.", "But is it? I think so.", "The answer is yes."), (1,)),
        ("Paris", None, ("So the answer is Paris.", "Wait, is it?", "The answer is Paris."), (1,)),
        ("Rome", None, ("I remember it.", "It is in Italy."), ()),
        ("72", None, ("8 * 9 = 72.", "Wait, check 72 - 48 = 24.", "The answer is 72.", "So, as it is 48, 72 is right."), (1, 3)),
        ("72", None, ("So 8 * 9 = 72.", "Let me check: 9 * 8 = 72.", "So it comes to 72.00."), (1,)),
    ],
)
def test_an_answer_is_settled_unless_another_follows(answer, choices, steps, gone) -> None:
    assert tuple(row.place for row in redundant(steps, Problem("a", "t", "q?", answer, choices))) == gone


BOXES = "A room has 3 rows of 4 boxes. Half are empty, the others hold 2 pens each. How many pens?"
TIMES = ("10:40", "10:50")


@each_row(
    ("question", "answer", "choices", "steps", "gone"),
    [
        (  # an equal number on the way, before a number that is new
            BOXES,
            "12",
            None,
            (
                "3 * 4 = 12 boxes.",
                "But half are empty, so 6 are full.",
                "Each holds 2, so 6 * 2 = 12 pens.",
                "So the answer is 12.",
            ),
            (),
        ),
        (BOXES, "12", None, ("3 * 4 = 12.", "So 12 in all.", "Half are full: 12 / 2 = 6.", "6 * 2 = 12.", "So it is 12."), ()),
        (
            BOXES,
            "12",
            None,
            ("3 * 4 = 12.", "Let me check: 12 / 4 = 3.", "But only 6 are full.", "6 * 2 = 12.", "So it is 12."),
            (),
        ),
        (
            "q?",
            "5",
            None,
            ("2 + 3 = 5.", "So she has 5, and Bob twice that.", "2 * 5 = 10. Half is 10 / 2 = 5.", "So it is 5."),
            (),
        ),
        ("q?", "5", None, ("2 + 3 = 5.", "Yes, it is 5.", "I like it.", "So it is 5."), (1, 2)),
        ("q?", "5", None, ("2 + 3 = 5.", "Wait, I see 2 and 3. So 2 + 3 = 5.", "So it is 5."), (1,)),  # the same once more
        ("2, 3, 3?", "5", None, ("2 + 3 = 5.", "But 3 go: 5 - 3 = 2, and 2 + 3 = 5.", "So it is 5."), ()),
        ("q?", "5", None, ("2 + 3 = 5.", "But that is odd.", "Let me check: 3 + 2 = 5.", "So it is 5."), ()),  # not confirmed
        ("q?", "5", None, ("2 + 3 = 5.", "Let me check: 9 - 4 = 5.", "So the answer is 5, which is 9 less 4."), ()),  # 9 is used
        # guesses, suppositions, questions
        ("q?", "B", TIMES, ("Hmm, maybe the answer is B.", "The bus takes a while.", "So the answer is B."), ()),
        ("q?", "B", TIMES, ("Is the answer B?", "The bus takes a while.", "So the answer is B."), ()),
        ("q?", "yes", None, ("So the answer is yes, if it is even.", "Else it works, too.", "So the answer is yes."), ()),
        ("q?", "yes", None, ("So the answer is yes, even if it is odd.", "It works.", "So the answer is yes."), (1,)),
        (
            "q?",
            "yes",
            None,
            ("The answer is yes.", "Wait, no. That was the other case.", "But it works.", "The answer is yes."),
            (),
        ),
        # what concludes and states the answer
        ("When?", "B", TIMES, ("So she arrives at 10:50, which is option B.", "It was late.", "So the answer is B."), (1,)),
        ("When does she arrive?", "B", TIMES, ("So she arrives at 10:50.", "It was late.", "So the answer is B."), (1,)),
        ("When does she arrive?", "B", TIMES, ("So the bus leaves at 10:50.", "It was late.", "So the answer is B."), ()),
        ("When?", "B", TIMES, ("So option B is a time.", "It was late.", "So the answer is B."), ()),
        ("Who owns the cat?", "Carol", None, ("So Carol owns the cat.", "Is that so?", "So the answer is Carol."), (1,)),
        ("Who owns the cat?", "Carol", None, ("So Carol has no dog.", "Ann has it.", "So the answer is Carol."), ()),
        ("Who owns the cat?", "Carol", None, ("So Carol does not own it.", "Or does she?", "So the answer is Carol."), ()),
        ("Who is taller, Ann or Bo?", "Bo", None, ("So Ann is taller than Bo.", "Or is she?", "So the answer is Bo."), ()),
    ],
)
def test_guesses_and_equal_numbers_on_the_way_settle_nothing(question, answer, choices, steps, gone) -> None:
    assert tuple(row.place for row in redundant(steps, Problem("a", "t", question, answer, choices))) == gone


@pytest.mark.parametrize(
    "check",
    [
        "Let me also check it: ",
        "Hmm, let me check: ",
        "Let me re-verify: ",
        "Plugging it back in, ",
        "Let me just double check: ",
        "To verify, ",
        "Checking: ",
        "As a sanity check, ",
        "Wait, maybe I should double-check that: ",
        "Let me add them up again: ",
    ],
)
def test_checks_after_the_number_are_redundant(check: str) -> None:
    steps = ("84 / 6 = 14, so each gets 14.", f"{check}6 * 14 = 84.", "So the answer is 14.")
    assert [(row.place, row.function) for row in redundant(steps, Problem("a", "t", "q?", "14"))] == [(1, "check")]


@each_row(
    ("piece", "function"),
    [
        ("But hold on, let me double-check the sum.", "check"),
        ("Is that right?", "check"),
        ("Just to be sure, I add them.", "check"),
        ("Okay, let me go through it once more.", "check"),
        ("Plugging in the values, we get 4.", "work"),
        ("Test scores were 12 and 14.", "work"),
        ("To add them, take 3.", "work"),
        ("Hmm, that's not right.", "reconsider"),
        ("Oops, I forgot one.", "reconsider"),
        ("Let me re-read the problem.", "reconsider"),
        ("Hmm, let us see.", "work"),
        ("Hmm, I remember it.", "recall"),
        ("Hmm, maybe it is 4.", "uncertain"),
        ("Let me try a different approach.", "alternative"),
        ("Maybe there's a better way.", "alternative"),
        ("Wait, another idea: take 3.", "alternative"),
        ("Another 6 boxes are red.", "work"),
        ("Instead of 12 there are 6.", "work"),
        ("Okay, so the answer is 5.", "conclude"),
        ("Okay, so I need the sum.", "plan"),
        ("Putting it all together, it is 5.", "conclude"),
    ],
)
def test_interjections_and_adverbs_do_not_hide_what_a_piece_does(piece: str, function: str) -> None:
    assert function_of(piece) == function


def test_a_repetition_says_nothing_new() -> None:
    first = "The side of the square is the root of its area, which is 9."
    steps = [
        first,
        "Now double it.",
        f"Wait, now {first.lower()}",
        "The side of the square is the root of its area, which is 16.",
        first,
    ]
    assert [(row.place, row.why) for row in redundant(steps, CLIPS)] == [(2, "repeats")]  # 16 is new; the last step stays


@given(st.lists(st.one_of(said, st.text()), min_size=1, max_size=12), st.sampled_from(["72", "yes", "B", "Rome"]))
def test_the_last_conclusion_is_never_left_out(steps: list[str], answer: str) -> None:
    problem = Problem("a", "t", "q?", answer, ("tree", "water") if answer == "B" else None)
    gone = {row.place for row in redundant(steps, problem)}
    assert len(gone) < len(steps)
    concluding = [place for place, step in enumerate(steps) if f"answer is {answer}" in step]
    assert not concluding or concluding[-1] not in gone
    assert gone == {row.place for row in redundant(steps, problem)}


def test_the_certificate_counts_what_went() -> None:
    section = schema.Segments(by="function", redundant="drop")
    cut = cut_all([Rationale(CLIPS.id, 0, ALOUD, "x")], section, [CLIPS])
    assert cut.steps[0].segments == tuple(PARTS[place][1] for place in (0, 1, 2, 6))
    summary = count_left_out(cut.redundant, cut.steps[0].segments, lambda text: len(text.split()))
    assert summary["of_tokens"] == len(ALOUD.split()) and summary["steps"] == 4 and summary["rationales"] == 1
    assert summary["by"]["settled"]["check"] == {"steps": 1, "tokens": len(PARTS[4][1].split())}
    assert summary["tokens"] == sum(count["tokens"] for count in summary["by"]["settled"].values())
    assert cut_all([Rationale(CLIPS.id, 0, ALOUD, "x")], schema.Segments(by="function"), [CLIPS]).redundant == []


def test_steps_by_function_have_results_where_they_conclude(tasks) -> None:
    steps = Steps(CLIPS.id, 0, "function", tuple(text for _, text in PARTS))
    written = write_results([steps], [CLIPS], tasks, schema.Results(working="drop"))
    assert written == [("", "24", "72", "", "24", "72", "", "")]  # said again, 72 is no new result


def test_of_many_long_rationales_some_are_looked_at(tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    long = "Step 1: 3 + 4 = 7\nStep 2: That is all."
    monkeypatch.setattr("cirf.rationales.check.MOST_CHARACTERS", 8 * len(long) - 1)
    problems = [Problem(f"sums/{place}", "sums", f"How many, {place}?", "7", rationale=long) for place in range(16)]
    found = check(problems, schema.Rationales(), schema.Segments(), schema.Results(), tasks, lambda text: 1)
    assert found.looked_at == 7 and (found.total.problems, found.total.usable, found.total.steps_total) == (16, 16, 32)
    assert [problem.id for problem in some(problems, 4 * len(long))] == [f"sums/{place}" for place in (0, 4, 8, 12)]
    assert some(problems[:3]) == problems[:3]


def test_a_run_and_a_check_say_what_was_left_out(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    rows = [
        {"question": f"Box {place} has 48 clips and half as many. How many?", "answer": "72", "rationale": ALOUD}
        for place in range(6)
    ]
    train = tinyrun.write_jsonl(tmp_path / "mine.jsonl", rows)
    recipe = workshop.recipe(tmp_path / "r.yaml", train=train, segments__by="function", segments__redundant="drop")
    checked = tinyrun.cirf("check", recipe)
    assert checked.code == 0 and re.search(
        r"redundant: [\d,]+ of [\d,]+ tokens \(\d\d%\) are left out: .* check \(settled\)", checked.out
    )
    made = tinyrun.cirf("run", recipe, "--out", tmp_path / "run", "--until", "segments")
    assert made.code == 0 and "log-likelihood of the answer" in made.err + made.out
    summary = json.loads((tmp_path / "run/segments/report.json").read_text())["redundant"]
    assert (
        summary["log_likelihood"]["rationales"] == 6
        and summary["log_likelihood"]["with"] < 0 > summary["log_likelihood"]["without"]
    )
    left = read_rows(tmp_path / "run/segments/redundant.jsonl")
    assert summary["steps"] == len(left) == 24 and {row["why"] for row in left} == {"settled"}


def test_adjacent_steps_of_one_code_may_share_a_token(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    keys = {"codebook__size": 2, "segments__adjacent": "merge", "methods": ["cirf_full"]}
    recipe = workshop.recipe(tmp_path / "r.yaml", **keys)
    assert tinyrun.cirf("run", recipe, "--out", tmp_path / "run", "--until", "traces").code == 0
    context = Context(load(str(recipe), []), RunFolder(tmp_path / "run"))
    codes = {row["problem"]: row["codes"] for row in context.rows("codebook-2", "codes.jsonl")}
    results = {row["problem"]: row["results"] for row in context.rows("results", "results.jsonl")}
    whole = {steps.problem: steps.segments for steps in context.steps()}
    assert any(one == other for found in codes.values() for one, other in pairwise(found))
    for example in [each for part in context.examples(get("cirf_full", context.recipe)) for each in part]:
        trace, found = example.trace, codes[example.problem.id]
        assert list(trace.codes) == [code for place, code in enumerate(found) if place == 0 or found[place - 1] != code]
        assert trace.results[-1] == results[example.problem.id][-1]  # each step of these sums has one
        assert len(example.segments) == len(trace.codes) and "\n".join(example.segments) == "\n".join(whole[example.problem.id])


def test_work_after_a_check_that_holds_is_no_part_of_the_check() -> None:
    steps = (
        "The first number is 12 - 2 = 10.",
        "To verify, 10 + 2 = 12. Correct.",
        "The second number is three times as large: 10 * 3 = 30.",
        "The third number is a third of the second: 30 / 3 = 10.",
        "So the third number is 10.",
    )
    problem = Problem(
        "p", "numbers", "The first is 12 less 2, the second 3 times that, the third a third. What is the third?", "10"
    )
    assert not [each.place for each in redundant(steps, problem) if each.place in (0, 2, 3)]
