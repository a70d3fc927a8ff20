"""Scripts behind research tables: runs of several seeds, twin steps, near codes, states of coins."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from docs.research import coin_states, long_rationales, near, over_runs, same_steps

from cirf.errors import CirfError
from cirf.records import Problem
from cirf.store.files import write_rows
from cirf.store.run_folder import record

pytestmark = pytest.mark.slow


def evaluated(folder: Path, answers: dict[str, dict[str, int]], task: str = "sums") -> Path:
    for method, by_item in answers.items():
        rows: list[dict[str, Any]] = [{"id": item, "correct": bool(right)} for item, right in by_item.items()]
        write_rows(folder / "evaluation" / method / f"{task}.jsonl", rows)
    return folder


def test_a_question_of_all_runs_counts_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = evaluated(tmp_path / "one", {"ours": {"a": 1, "b": 1, "c": 0}, "theirs": {"a": 0, "b": 1, "c": 1}})
    two = evaluated(tmp_path / "two", {"ours": {"a": 1, "b": 0, "d": 1}, "theirs": {"a": 0, "b": 0, "d": 0}})
    assert over_runs.over([one, two], "ours", "sums") == {"a": 1.0, "b": 0.5}
    over_runs.main(["difference", str(one), str(two), "--methods", "ours", "theirs", "--tasks", "sums"])
    *lines, document = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["sums", "by run"]  # and not the same once more as that of all
    assert lines[-1] == "by run: +0.0, +66.7; +33.3 (-390.2 to +456.9) by their spread alone"  # 12.706 of 1/3 (Student)
    summary = json.loads(document)["all"]
    assert (summary["n"], summary["difference"], summary["wins"], summary["losses"]) == (2, 0.5, 1, 0)
    summary = json.loads(document)["by_run"]
    assert summary["differences"] == pytest.approx([0.0, 2 / 3]) and summary["mean"] == pytest.approx(1 / 3)
    assert (summary["low"], summary["high"]) == pytest.approx((1 / 3 - 12.7062 / 3, 1 / 3 + 12.7062 / 3), abs=1e-4)
    runs, asked = [str(one), str(two)], ["--methods", "ours", "theirs", "--tasks", "sums", "--against-run"]
    over_runs.main(["difference", *runs, *asked, str(two)])
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])["all"]
    assert (summary["n"], summary["difference"]) == (2, 0.75)
    over_runs.main(["difference", *runs, *asked, *runs])
    assert "by run" not in capsys.readouterr().out  # runs named side by side need not belong together
    over_runs.main(["difference", str(one), *asked, *runs])
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])["all"]
    assert (summary["n"], summary["difference"]) == (2, 0.75)  # 1 and 1, less 0 and a half


def test_all_tasks_are_pooled_by_question_in_each_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = tmp_path / "one", tmp_path / "two"
    for folder, right in zip(folders, (1, 0), strict=True):
        evaluated(folder, {"ours": {"a": right, "b": right, "c": right}, "theirs": {"a": 0, "b": 0, "c": 0}})
        evaluated(folder, {"ours": {"a": 0}, "theirs": {"a": 1}}, task="more")  # the same name, another question
    over_runs.main(["difference", *map(str, folders), "--methods", "ours", "theirs", "--tasks", "sums", "more"])
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [(summary[name]["n"], summary[name]["difference"]) for name in ("sums", "more", "all")] == [
        (3, 0.5),
        (1, -1),
        (4, 0.125),
    ]
    assert summary["by_run"]["differences"] == [0.5, -0.25]


def test_a_method_next_to_itself_is_named_by_its_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = evaluated(tmp_path / "one", {"ours": {"a": 1}}), evaluated(tmp_path / "two", {"ours": {"a": 0}})
    over_runs.main(["difference", str(one), "--methods", "ours", "ours", "--tasks", "sums", "--against-run", str(two)])
    assert "between ours and that of two, +100.0 points" in capsys.readouterr().out


def test_a_share_over_several_runs_is_that_of_a_question_s_mean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = evaluated(tmp_path / "one", {"ours": {"a": 1, "b": 1, "c": 0}, "theirs": {"a": 1, "b": 1, "c": 1}})
    two = evaluated(tmp_path / "two", {"ours": {"a": 1, "b": 0, "d": 1}, "theirs": {"a": 1, "b": 0}})

    def summary(*runs: Path, of: tuple[Path, ...] = (one,)) -> tuple[float, int]:
        given = ["--methods", "ours", "--of", "theirs", "--tasks", "sums", "--draws", "100", "--against-run", *map(str, of)]
        over_runs.main(["share", *map(str, runs), *given])
        found = json.loads(capsys.readouterr().out.splitlines()[-1])["ours"]
        assert found["low"] <= found["share"] <= found["high"]
        return round(found["share"], 6), found["n"]

    assert (summary(one), summary(two), summary(one, two)) == ((0.666667, 3), (0.5, 2), (0.75, 2))
    assert summary(one, of=(one, two)) == (1.333333, 2)  # two of two, to one and a half


def test_no_question_in_common_is_refused(tmp_path: Path) -> None:
    one = evaluated(tmp_path / "one", {"ours": {"a": 1}, "theirs": {"b": 1}})
    with pytest.raises(CirfError, match="no question in common"):
        over_runs.main(["difference", str(one), "--methods", "ours", "theirs", "--tasks", "sums"])


# Accuracy on what is not near a training question

USED = "Tom has three red boxes of apples and two blue boxes of pears in his"
LEFT = "Every morning the baker sells forty loaves before noon and twenty more in the"
HELD = "A train with nine cars leaves at dawn and carries eleven people in each of"


def problems(path: Path, **questions: str) -> None:
    write_rows(path, [Problem(id=name, task="sums", question=text, answer="1") for name, text in questions.items()])


def stage(folder: Path, content: str) -> None:
    (folder / "segments").mkdir(parents=True, exist_ok=True)
    (folder / "segments" / "stage.json").write_text(record({"key": "k", "summary": {}, "files": {"segments.jsonl": content}}))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Three questions to learn from, one of them without a rationale and one held out, and tests near to each and to none."""
    problems(tmp_path / "problems" / "train.jsonl", used=f"{USED} shed.", left=f"{LEFT} evening.")
    problems(tmp_path / "problems" / "validation.jsonl", held=f"{HELD} them.")
    write_rows(tmp_path / "segments" / "segments.jsonl", [{"problem": name} for name in ("used", "held")])
    stage(tmp_path, "a")
    asked = {"a": f"{USED} hall.", "b": f"{LEFT} night.", "c": f"{HELD} these.", "d": "How many pears are there?"}
    problems(tmp_path / "problems" / "test" / "sums.jsonl", **asked)
    return tmp_path


def test_only_questions_with_a_rationale_count_as_learned(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verdicts = run / "archive"
    stage(verdicts, "a")
    rows = [{"id": item, "correct": right} for item, right in (("a", True), ("b", True), ("c", True), ("d", False))]
    write_rows(verdicts / "evaluation" / "ours" / "sums.jsonl", rows)
    assert near.clear(run, "sums", near.learned_from(run)) == {"b", "d"}
    near.main([str(run), "--methods", "ours", "--tasks", "sums", "--verdicts", str(verdicts)])
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])["ours"]
    assert (summary["n"], summary["accuracy"], summary["mean"]) == (2, 0.5, 0.5)


def test_a_benchmark_counts_as_much_as_another_in_the_mean_of_them(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for task, right in (("sums", {"a": 1, "b": 0, "c": 1, "d": 0}), ("more", {"e": 1, "f": 1, "g": 0})):
        rows = [{"id": item, "correct": bool(value)} for item, value in right.items()]
        write_rows(run / "evaluation" / "ours" / f"{task}.jsonl", rows)
    problems(run / "problems" / "test" / "more.jsonl", e="Who sells loaves?", g=f"{USED} cellar.", f=f"{HELD} all.")
    near.main([str(run), "--methods", "ours", "--tasks", "sums", "more"])
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])["ours"]
    assert (summary["n"], round(summary["accuracy"], 4), summary["mean"]) == (3, 0.3333, 0.5)  # none of two, one of one


def test_verdicts_on_other_questions_are_refused(run: Path) -> None:
    write_rows(run / "evaluation" / "ours" / "sums.jsonl", [{"id": item, "correct": True} for item in "abc"])
    with pytest.raises(CirfError, match="sums: ours was asked other questions"):
        near.main([str(run), "--methods", "ours", "--tasks", "sums"])


def test_verdicts_of_what_learned_from_other_questions_are_refused(run: Path) -> None:
    verdicts = run / "archive"
    write_rows(verdicts / "evaluation" / "ours" / "sums.jsonl", [{"id": item, "correct": True} for item in "abcd"])
    asked = [str(run), "--methods", "ours", "--tasks", "sums", "--verdicts", str(verdicts)]
    with pytest.raises(CirfError, match="archive/segments: the stage is not finished"):
        near.main(asked)
    stage(verdicts, "b")
    with pytest.raises(CirfError, match="learned from other rationales"):
        near.main(asked)
    stage(verdicts, "a")
    near.main(asked)


def test_a_task_that_is_all_near_is_refused(run: Path) -> None:
    problems(run / "problems" / "test" / "sums.jsonl", a=f"{USED} hall.")
    with pytest.raises(CirfError, match="every test question is near"):
        near.clear(run, "sums", near.learned_from(run))


# Steps that say the same and have different codes


def test_the_same_step_with_two_codes_costs_its_entropy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_rows(tmp_path / "problems" / "validation.jsonl", [{"id": "held"}])
    rows = {
        "a": (["Add 3 and 4.", "So 1,200.5"], [1, 2]),
        "b": (["add 30 and 4.", "So 1,200.5"], [0, 2]),
        "held": (["So 1,200.5"], [7]),
    }
    segments = [{"problem": name, "sample": 0, "segments": steps} for name, (steps, _) in rows.items()]
    segments.append({"problem": "a", "sample": 1, "segments": ["Add 5 and 6."]})  # of the same question, with a code of its own
    write_rows(tmp_path / "segments" / "segments.jsonl", segments)
    codes = [{"problem": name, "sample": 0, "codes": held} for name, (_, held) in rows.items()]
    codes.insert(0, {"problem": "a", "sample": 1, "codes": [1]})
    write_rows(tmp_path / "codebook-8" / "codes.jsonl", codes)
    same_steps.main([str(tmp_path), "--size", "8"])
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert summary["same"] == {"steps": 5, "twins": 2, "several": 0, "nats": 0.0}
    assert [summary["masked"][key] for key in ("steps", "twins", "several")] == [5, 5, 3]
    assert summary["masked"]["nats"] == pytest.approx((2 * math.log(3 / 2) + math.log(3)) / 5)
    assert same_steps.masked("Is 4.") != same_steps.masked("is 4")


# Where traces of Coin Flip go wrong: each state against the one that the trace wrote before it

QUESTION = "A coin is heads up. ann-mai flips the coin. De Bo does not flip the coin. cy flips the coin. Is it still heads up?"
TOKENS = "<cirf><cirf_021>heads ann-mai<cirf_010>tails de bo<cirf_020>tails cy<cirf_010>heads</cirf>"
LINES = "heads\nann-mai tails\nde bo tails\ncy heads"
GOOD: dict[str, Any] = {"id": "a", "prompt": QUESTION, "trace": TOKENS}


@pytest.mark.parametrize("trace", [TOKENS, LINES])
def test_both_forms_of_a_sound_trace_are_read(trace: str) -> None:
    found = coin_states.read(QUESTION, trace)
    assert found.whole
    assert found.sound
    assert [(state.flips, state.before, state.after) for state in found.states] == [
        (True, "heads", "tails"),
        (False, "tails", "tails"),
        (True, "tails", "heads"),
    ]
    tokens = ["<cirf_010>", "<cirf_020>", "<cirf_010>"] if trace == TOKENS else [""] * 3
    assert [state.token for state in found.states] == tokens


@pytest.mark.parametrize(
    ("trace", "whole", "wrong", "states"),
    [
        ("heads\nann-mai heads\nde bo heads\ncy tails", True, 1, 3),  # one mistake, though every state behind it is another
        ("heads\nann-mai tails\ncy heads", False, 0, 2),  # someone is left out
        (f"{LINES}\nzed tails", False, 0, 3),  # someone whom nobody named
        ("heads\nann-mai tails\nde po tails\ncy heads", False, 0, 2),  # misspelt
        ("heads\nde bo heads\nann-mai tails\ncy heads", False, 0, 3),  # another order
        ("tails\nann-mai heads\nde bo heads\ncy tails", False, 0, 3),  # the question begins otherwise
        ("", False, 0, 0),
    ],
)
def test_what_is_not_sound(trace: str, whole: bool, wrong: int, states: int) -> None:
    found = coin_states.read(QUESTION, trace)
    assert (len(found.states), sum(not state.right for state in found.states)) == (states, wrong)
    assert (found.whole, found.sound) == (whole, False)


def test_two_methods_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_rows(tmp_path / "one/evaluation/ours/coin_flip.jsonl", [GOOD])
    write_rows(
        tmp_path / "two/evaluation/theirs/coin_flip.jsonl", [{**GOOD, "trace": "heads\nann-mai tails\nde bo heads\ncy heads"}]
    )
    coin_states.main([str(tmp_path / "one"), "--methods", "ours", "theirs", "--against-run", str(tmp_path / "two")])
    ours, theirs, difference, document = capsys.readouterr().out.splitlines()
    summary = "3 of 3 functional tokens right; states right after these 3 of 3, after the others 0 of 0"
    assert ours == f"ours: 0 of 3 states wrong {{}}; of 1 traces 1 whole, 1 sound; {summary}"
    assert theirs == (
        "theirs: 2 of 3 states wrong {'flips heads': 1, 'keeps tails': 1}; of 1 traces 1 whole, 0 sound; "
        "no functional tokens that show who flips"
    )
    assert difference.startswith("sound: ")
    assert json.loads(document)["difference"] == 1


def test_a_functional_token_means_what_it_mostly_is_before() -> None:
    strayed = TOKENS.replace("<cirf_020>tails", "<cirf_010>heads")
    readings = {name: coin_states.read(QUESTION, trace) for name, trace in (("a", TOKENS), ("b", TOKENS), ("c", strayed))}
    assert coin_states.token_summary(readings) == (
        "8 of 9 functional tokens right; states right after these 7 of 8, after the others 0 of 1"
    )
    single = {"a": coin_states.read(QUESTION, TOKENS.replace("_020", "_010"))}
    assert coin_states.token_summary(single) == "no functional tokens that show who flips"


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{**GOOD, "prompt": ""}], "an archive keeps none"),
        ([{**GOOD, "prompt": "How many?"}], "no question about a coin"),
        ([{**GOOD, "trace": "<cirf><cirf_021>heads<cirf_010></cirf>"}], "no trace names anyone"),
        ([GOOD, GOOD], "several answers to a"),
        ([{**GOOD, "id": "b"}], "not asked the same questions"),
    ],
)
def test_what_cannot_be_held_against_another_is_refused(tmp_path: Path, rows: list[dict[str, Any]], said: str) -> None:
    write_rows(tmp_path / "evaluation/one/coin_flip.jsonl", rows)
    write_rows(tmp_path / "evaluation/two/coin_flip.jsonl", [GOOD])
    with pytest.raises(CirfError, match=said):
        coin_states.main([str(tmp_path), "--methods", "one", "two"])


def test_figures_of_long_rationales_have_a_value_a_file() -> None:
    measured = {
        file: {"boundaries": {"auto": {"f1": f1, "cuts": 3}}, "codes": {"opening words": {"ami": f1 / 2, "purity": 0.5}}}
        for file, f1 in (("one", 0.5), ("two", 0.25))
    }
    made = long_rationales.entries(measured, "a command")
    assert made["cuts"] == {"command": "a command", "rows": [{"label": "auto", "f1": {"one": 0.5, "two": 0.25}}]}
    assert made["cut-codes"]["rows"] == [{"label": "opening words", "ami": {"one": 0.25, "two": 0.125}}]
