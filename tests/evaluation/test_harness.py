from __future__ import annotations

import dataclasses
import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import each_row

from cirf.errors import CirfError
from cirf.evaluation.harness import (
    Answerer,
    Questions,
    compare_rows,
    evaluate,
    hide,
    judge,
    reading,
    score,
    scores_from_rows,
    solved,
)
from cirf.evaluation.protocols import PROTOCOLS, by_protocol
from cirf.methods import get
from cirf.progress import SILENT
from cirf.recipe.schema import Evaluate, Problems, Recipe, SampledAnswers, TaskEntry
from cirf.records import Problem
from cirf.stages.checks import Check, check, faults, loop, majority_share
from cirf.statistics import wilson
from cirf.store.jsonl import read_rows
from cirf.tasks import get as get_task

RECIPE = Recipe(name="test", problems=Problems(tasks=(TaskEntry(task="svamp"),)))
COT, DIRECT = get("cot", RECIPE), get("direct", RECIPE)
FOURS = Evaluate(batch_size=4)
TASKS = {"svamp": get_task("svamp"), "coin_flip": get_task("coin_flip")}


@dataclass(frozen=True)
class Written:
    text: str
    tokens: int
    truncated: bool


def problems(count: int) -> dict[str, list[Problem]]:
    draw = random.Random(5)
    sums = [
        Problem(f"s{i}", "svamp", f"What is {i} + 1?" + " Think." * draw.randrange(4), str(i + 1), rationale=f"SECRET {i}")
        for i in range(count)
    ]
    coins = [Problem(f"c{i}", "coin_flip", f"Heads up. {i} flips. Still heads up?", "no" if i % 2 else "yes") for i in range(3)]
    return {"svamp": sums, "coin_flip": coins}


class Engine:
    """Answers sums, wrongly where the sum is divisible by five; can die at a given call."""

    def __init__(self, dies_at: int | None = None) -> None:
        self.calls: list[list[str]] = []
        self.dies_at = dies_at

    def __call__(self, prompts, cap, run):
        if len(self.calls) == self.dies_at:
            raise KeyboardInterrupt
        self.calls.append(list(prompts))
        return [self.answer(prompt, len(prompts), run, cap) for prompt in prompts]

    @staticmethod
    def answer(prompt, size, run, cap):
        if "flips" in prompt:
            return Written("I cannot say", 3, True)
        value = int(prompt.split("What is ")[1].split(" ")[0]) + 1
        return Written(
            f"in a batch of {size}, run {run}, cap {cap}\n#### {value + 1 if value % 5 == 0 else value}", 10 + value, False
        )


def go(work: Path, engine, count=20, section=FOURS, method=COT):
    return evaluate(
        Answerer(method, engine, lambda text: f"<user>{text}<end>"), Questions(TASKS, problems(count)), section, work, SILENT
    )


def files(work: Path) -> dict[str, bytes]:
    return {path.relative_to(work).as_posix(): path.read_bytes() for path in sorted(work.rglob("*")) if path.is_file()}


def test_rows_hold_all_that_the_scores_are_made_of(tmp_path):
    scores = go(tmp_path, Engine())
    rows = {name: read_rows(tmp_path / f"{name}.jsonl") for name in TASKS}
    assert scores_from_rows(rows) == scores
    assert [row["id"] for row in rows["svamp"]] == [f"s{i}" for i in range(20)]
    first = rows["svamp"][0]
    assert first["gold"] == "1" and first["parsed"] == "1" and first["correct"] and not first["unparsed"]
    assert first["output"].startswith("in a batch of 4, run 0, cap 512")
    details = json.loads((tmp_path / "scores.json").read_text())
    assert details["method"] == "cot" and details["trained"] is False
    assert details["tasks"]["svamp"]["accuracy"] == 0.8 and details["tasks"]["svamp"]["n"] == 20
    assert details["tasks"]["svamp"]["interval"] == list(wilson(16, 20))
    assert details["tasks"]["svamp"]["tokens"] == pytest.approx(10 + 10.5)
    assert details["tasks"]["coin_flip"] == {
        "accuracy": 0.0,
        "n": 3,
        "interval": list(wilson(0, 3)),
        "tokens": 3.0,
        "truncated": 1.0,
        "unparsed": 1.0,
    }
    assert details["overall"]["accuracy"] == pytest.approx(16 / 23) and details["overall"]["n"] == 23
    assert details["mean_of_tasks"] == pytest.approx(0.4)
    assert sorted(files(tmp_path)) == ["coin_flip.jsonl", "scores.json", "svamp.jsonl"]


@pytest.mark.parametrize(
    ("text", "truncated", "answer", "formed"),
    [
        ("<cirf_001>1</cirf>1", False, "1", True),
        ("<cirf_001>1</cirf>1", True, "1", False),
        ("<cirf_001>1", False, "1", False),  # it ended without its delimiter: what it held last is the answer
        ("<cirf_001>1", True, "", False),
    ],
)
def test_a_row_shows_whether_a_trace_is_well_formed(tmp_path, text, truncated, answer, formed):
    def generate(prompts, cap, run):
        return [Written(text, 5, truncated)]

    method = get("cirf_full", RECIPE)
    scores = evaluate(Answerer(method, generate, str), Questions(TASKS, {"svamp": problems(1)["svamp"]}), FOURS, tmp_path, SILENT)
    (row,) = read_rows(tmp_path / "svamp.jsonl")
    assert (row["answer"], row["correct"], row["well_formed"]) == (answer, answer == "1", formed)
    assert scores.overall.well_formed == scores.tasks["svamp"].to_dict()["well_formed"] == formed


PROBLEM = Problem("s", "svamp", "What is 19 + 7?", "26")
READ = ("cot", "direct", "sft_cot", "direct_sft", "chain_of_draft", "cirf_full")


@each_row(
    ("methods", "text", "parsed", "thoughts"),
    [
        (READ, "let me add. The answer is 999.\n</think>\n\n26", "26", "The answer is 999."),
        (READ, "<think>\nThe answer is 999.\n#### 999\n</think>\n\n#### 26", "26", "#### 999"),
        (READ, "<think>\nMaybe the answer is 26. Wait", None, "Maybe the answer is 26."),
        (READ, "<think>19 + 7 = 26\n#### 26</think>\n", None, "#### 26"),
        (READ, "<|channel|>analysis<|message|>999?<|end|><|start|>assistant<|channel|>final<|message|>26", "26", "999?"),
        (READ, "<think>\n\n</think>\n\n26", "26", ""),
        (("cot", "sft_cot"), "The answer is 26. <think>Check: the answer is 999.", "26", "999"),
        (("cot", "sft_cot"), "<think>999</think>19 + 7 = 26\n#### 26", "26", "999"),
        (("cirf_full",), "<think>999</think><cirf><cirf_001>26</cirf>26", "26", "999\n\n<cirf_001>26"),
        (("cirf_full",), "<think><cirf_001>19+7=26<cirf_002>26</think>26", "26", "<cirf_001>19+7=26<cirf_002>26"),
        (("cirf_full",), "<think><cirf_001>19+7=26<cirf_002>26", None, "<cirf_002>26"),
        # no thoughts
        (READ, "26", "26", ""),
        (("cirf_full",), "<cirf><cirf_001>19+7=26</cirf>26", "26", "<cirf_001>19+7=26"),
        (("cot",), "I think <b>19 + 7</b> = 26. The answer is 26.", "26", "I think"),
        (("cot",), "<sum>19 + 7</sum> The answer is 26.", "26", "<sum>19 + 7</sum>"),
    ],
)
def test_thoughts_are_part_of_the_trace_and_hold_no_answer(methods, text, parsed, thoughts):
    for name in methods:
        found = reading(get(name, RECIPE), Written(text, 5, False))
        assert judge(found.answer, PROBLEM, TASKS["svamp"])[0] == parsed, name
        assert thoughts in found.trace and "</think>" not in found.trace, name


def test_a_form_is_that_of_what_follows_the_thoughts():
    assert not reading(get("sft_cot", RECIPE), Written("<think>19 + 7\n#### 26</think>", 5, False)).formed
    assert reading(get("cirf_full", RECIPE), Written("<think>a</think><cirf><cirf_001>26</cirf>26", 5, False)).formed
    thinking = Recipe(**RECIPE.model_dump() | {"vocabulary": {"delimiters": "think", "opening": "written"}})
    for name, recipe in (("cirf_full", RECIPE), ("cirf_full", thinking)):
        start, end = ("<cirf>", "</cirf>") if recipe is RECIPE else ("<think>", "</think>")
        found = reading(get(name, recipe), Written(f"{start}<cirf_001>7<cirf_002>26{end}26", 5, False))
        assert found == ("<cirf_001>7<cirf_002>26", "26", True)
        found = reading(get(name, recipe), Written(f"{start}<cirf_001>7<cirf_002>26", 5, False))
        assert found == ("<cirf_001>7<cirf_002>", "26", False)


@pytest.mark.parametrize(("method", "parsed"), [("cot", None), ("sft_cot", "26")])
@pytest.mark.parametrize("ends", ["<think>\n", "<think>"])
def test_an_untrained_model_begins_within_thoughts_that_its_prompt_opens(tmp_path, method, parsed, ends):
    """A trained one was taught to answer there."""

    def generate(prompts, cap, run):
        return [Written(text, 5, False) for text in ("The answer is 26.", "The answer is 999.</think>26")[: len(prompts)]]

    both = [PROBLEM, dataclasses.replace(PROBLEM, id="t")]
    answerer = Answerer(get(method, RECIPE), generate, lambda turn: f"{turn}<end>{ends}")
    evaluate(answerer, Questions(TASKS, {"svamp": both}), FOURS, tmp_path, SILENT)
    first, second = read_rows(tmp_path / "svamp.jsonl")
    assert (first["parsed"], second["parsed"]) == (parsed, "26")
    assert first["output"] == "The answer is 26." and "999" in second["trace"]


def test_a_read_of_ones_own_gets_the_marks_of_its_form():
    class Thinks(type(DIRECT)):
        def read(self, output):
            return tuple(output.split("</think>"))

    assert reading(Thinks(RECIPE), Written("<think>7</think>26", 5, False))[:2] == ("<think>7", "26")


def test_a_method_that_was_taught_no_form_has_none(tmp_path):
    assert go(tmp_path, Engine(), method=DIRECT).overall.well_formed is None
    assert not any("well_formed" in row for row in read_rows(tmp_path / "svamp.jsonl"))
    assert "well_formed" not in json.loads((tmp_path / "scores.json").read_text())["overall"]


def test_batches_hold_prompts_of_like_length(tmp_path):
    engine = Engine()
    go(tmp_path, engine, 30)
    lengths = [len(prompt) for call in engine.calls if "What" in call[0] for prompt in call]
    assert lengths == sorted(lengths)
    assert [len(call) for call in engine.calls] == [4] * 7 + [2, 3]


def test_the_answer_never_enters_a_prompt_or_the_parser(tmp_path):
    seen = []

    class Nosy:
        name, summary, trained, functional = "nosy", "", False, False

        def prompt(self, problem, task):
            seen.append(problem)
            return f"{task.render(problem)} {problem.answer} {problem.rationale}"

        def read(self, output):
            return "", output

        def set_aside(self, output):
            return "", output

        def well_formed(self, output):
            return None

        def budget(self, task, section):
            return 8

    parsed_with = []
    task = dataclasses.replace(TASKS["svamp"])

    class Watched:
        def __getattr__(self, name):
            return getattr(task, name)

        def parse(self, text, problem):
            parsed_with.append(problem)
            return task.parse(text, problem)

    test = {"svamp": [Problem(f"{i}", "svamp", f"What is {i} + 1?", str(700 + i), rationale=f"SECRET {i}") for i in range(5)]}
    prompts = []

    def generate(batch, cap, run):
        prompts.extend(batch)
        return [Written("7", 1, False)] * len(batch)

    evaluate(Answerer(Nosy(), generate, str), Questions({"svamp": Watched()}, test), Evaluate(), tmp_path, SILENT)
    assert len(seen) == len(parsed_with) == 5
    assert all(problem.answer == "" and problem.rationale is None for problem in seen + parsed_with)
    assert not any("70" in prompt or "SECRET" in prompt for prompt in prompts)


@given(st.text(min_size=1), st.text(), st.none() | st.text())
def test_hiding_takes_answer_and_rationale_and_nothing_else(question, answer, rationale):
    problem = Problem("i", "t", question, answer, ("a", "b"), rationale)
    assert hide(problem) == Problem("i", "t", question, "", ("a", "b"), None)


@pytest.mark.parametrize("dies_at", range(6))
def test_a_killed_evaluation_goes_on_and_ends_with_the_same_bytes(tmp_path, dies_at):
    whole = Engine()
    go(tmp_path / "whole", whole)
    killed, again = Engine(dies_at), Engine()
    with pytest.raises(KeyboardInterrupt):
        go(tmp_path / "part", killed)
    go(tmp_path / "part", again)
    assert files(tmp_path / "part") == files(tmp_path / "whole")
    assert killed.calls + again.calls == whole.calls


@pytest.mark.parametrize("kept", [0.1, 0.35, 0.5, 0.77, 0.95])
def test_a_log_torn_anywhere_is_mended(tmp_path, kept):
    go(tmp_path / "whole", Engine())
    with pytest.raises(KeyboardInterrupt):
        go(tmp_path / "part", Engine(4))
    log = tmp_path / "part" / "scratch" / "svamp.jsonl"
    data = log.read_bytes()
    log.write_bytes(data[: int(len(data) * kept)])
    go(tmp_path / "part", Engine())
    assert files(tmp_path / "part") == files(tmp_path / "whole")


def test_a_changed_letter_in_the_log_is_named_by_its_line(tmp_path):
    log = tmp_path / "scratch" / "svamp.jsonl"
    log.parent.mkdir(parents=True)
    log.write_text(json.dumps({"id": "svamp/1", "run": 0, "prompt": "?", "cprrect": True}) + "\n")
    with pytest.raises(CirfError, match=r"svamp\.jsonl, line 1: damaged; remove the line"):
        go(tmp_path, Engine())


def test_a_finished_evaluation_generates_nothing(tmp_path):
    first = go(tmp_path, Engine())
    before = files(tmp_path)
    engine = Engine()
    assert go(tmp_path, engine) == first
    assert engine.calls == [] and files(tmp_path) == before


def test_rows_of_other_questions_are_not_taken_for_ours(tmp_path):
    go(tmp_path, Engine())
    with pytest.raises(CirfError, match=r"svamp\.jsonl: holds rows of another evaluation .* remove the folder"):
        go(tmp_path, Engine(), method=DIRECT)


def test_several_runs_are_averaged_and_add_no_questions(tmp_path):
    def noisy(prompts, cap, run):
        return [Written("#### 1" if run == 0 else "#### 2", 4, False) for _ in prompts]

    test = {"svamp": problems(4)["svamp"]}
    section = Evaluate(temperature=0.7, runs=3, batch_size=3)
    scores = evaluate(Answerer(COT, noisy, str), Questions(TASKS, test), section, tmp_path, SILENT)
    assert scores.overall.runs == (0.25, 0.25, 0.25)
    assert scores.overall.n == 4 and scores.overall.interval == pytest.approx(wilson(1, 4))
    rows = read_rows(tmp_path / "svamp.jsonl")
    assert [(row["run"], row["id"]) for row in rows] == [(run, f"s{i}") for run in range(3) for i in range(4)]
    assert scores.overall.to_dict()["runs"] == [0.25, 0.25, 0.25]
    assert solved({"svamp": rows})["svamp/s1"] == pytest.approx(2 / 3)


def test_greedy_runs_once(tmp_path):
    scores = go(tmp_path, Engine(), section=Evaluate(temperature=0.0, runs=3, batch_size=4))
    assert len(scores.overall.runs) == 1 and "runs" not in scores.overall.to_dict()


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ({}, "no test problem"),
        ({"svamp": []}, "no test problem"),
        ({"svamp": problems(2)["svamp"] * 2}, "two test problems have the id 's0'"),
        ({"a/b": problems(2)["svamp"]}, "name must be able to name a file"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path, test, message):
    with pytest.raises(CirfError, match=message):
        evaluate(Answerer(COT, Engine(), str), Questions({**TASKS, "a/b": TASKS["svamp"]}, test), Evaluate(), tmp_path, SILENT)


def test_scores_do_not_depend_on_the_order_of_rows(tmp_path):
    go(tmp_path, Engine())
    rows = read_rows(tmp_path / "svamp.jsonl")
    assert score(rows) == score(rows[::-1]) == score(random.Random(0).sample(rows, len(rows)))


def test_scoring_nothing_is_an_error():
    with pytest.raises(ValueError, match="at least one"):
        score([])


def test_methods_are_compared_on_shared_items():
    def row(item, correct):
        return {"id": item, "run": 0, "correct": correct}

    found = compare_rows({"t": [row("a", True), row("b", True)]}, {"t": [row("b", False)], "u": [row("a", True)]})
    assert found is not None and (found.n, found.wins, found.losses) == (1, 1, 0)
    assert compare_rows({"t": [row("a", True)]}, {"u": [row("a", True)]}) is None


def test_subsets_are_scored_apart() -> None:
    row = {"run": 0, "tokens": 1, "truncated": False, "unparsed": False}
    made = [{**row, "id": f"{n}", "correct": n < 3, "subset": "ab"[n % 2]} for n in range(4)]
    plain = [{key: value for key, value in row.items() if key != "subset"} for row in made]
    scores = scores_from_rows({"parts": made, "whole": plain})
    assert {name: score.accuracy for name, score in scores.subsets["parts"].items()} == {"a": 1.0, "b": 0.5}
    details = scores.to_dict()["tasks"]
    assert details["parts"]["subsets"]["b"]["n"] == 2 and "subsets" not in details["whole"]


# Protocols set what they say and nothing else, and applying one twice changes nothing

ENTRIES = (
    TaskEntry(task="gsm8k", train=7, test=3),
    TaskEntry(task="multiarith", test_from_train=5),
    TaskEntry(task="coin_flip", name="coins"),
    TaskEntry(task="jsonl", name="mine", train_file="mine.jsonl", test=9),
    TaskEntry(task="jsonl", name="theirs", train_file="theirs.jsonl", test_file="test.jsonl", test=9),
)


def asked(protocol: str) -> Recipe:
    section = Evaluate(protocol=protocol, temperature=0.3, top_p=0.5, runs=9, sampled=SampledAnswers(runs=2, temperature=1.1))
    return by_protocol(Recipe(name="x", problems=Problems(tasks=ENTRIES), evaluate=section))


def test_own_is_as_the_keys_say() -> None:
    recipe = asked("own")
    assert recipe.problems.tasks == ENTRIES
    assert (recipe.evaluate.temperature, recipe.evaluate.runs, recipe.evaluate.sampled.runs) == (0.3, 9, 2)


@pytest.mark.parametrize(
    ("protocol", "rows", "drawn", "sampled"),
    [
        ("quick", [50, 50, 50], (0.0, 1.0, 1), 0),
        ("full", [None, None, None], (0.0, 1.0, 1), 3),
        ("paper", [200, 180, 200], (0.7, 0.95, 3), 0),
    ],
)
def test_a_protocol_says_which_problems_and_how_they_are_answered(
    protocol: str, rows: list[int | None], drawn: tuple[float, float, int], sampled: int
) -> None:
    recipe = asked(protocol)
    published, (mine, theirs) = recipe.problems.tasks[:3], recipe.problems.tasks[3:]
    assert [entry.test for entry in published] == rows
    assert not any(entry.test_from_train for entry in published)
    assert mine == ENTRIES[3]  # cut from the training file: another cut would be another training set
    assert theirs.test == PROTOCOLS[protocol].rows
    assert published[0].train == 7
    section = recipe.evaluate
    assert (section.temperature, section.top_p, section.runs) == drawn
    assert (section.sampled.runs, section.sampled.temperature, section.sampled.top_p) == (sampled, 0.7, 0.95)
    assert by_protocol(recipe) == recipe


def test_the_paper_asks_500_of_what_nothing_can_be_trained_on(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(
        "from cirf.tasks.task import Task\n"
        "TASK = Task('o', 'O', 's', 'number', lambda *_: '', row=lambda row: None, files={'test': 'x.jsonl'})\n"
    )
    entries = (
        *(TaskEntry(task=task) for task in ("math500", "bbh", "strategyqa", "scienceqa")),
        TaskEntry(task="jsonl", name="rows", test_file="rows.jsonl"),
        TaskEntry(task=str(own), name="own"),
        TaskEntry(task=str(own), name="given", test_file="rows.jsonl"),
        TaskEntry(task=str(own), name="learnt", train_file="a.jsonl", test_file="rows.jsonl"),
        TaskEntry(task="chain_sum"),
    )
    recipe = by_protocol(Recipe(name="x", problems=Problems(tasks=entries), evaluate=Evaluate(protocol="paper")))
    assert [entry.test for entry in recipe.problems.tasks] == [500] * 7 + [200] * 2


# Whether a trained model works at all, judged by its answers to held-out questions


def _row(output: str, right: bool = False, truncated: bool = False, **more: Any) -> dict[str, Any]:
    return {"output": output, "correct": right, "truncated": truncated, **more}


@each_row(
    ("output", "said"),
    [
        ("<cirf_003>4<cirf_028><cirf_028><cirf_028><cirf_028><cirf_028>", "<cirf_028>"),
        ("<cirf_001>" + "12<cirf_002>" * 6, "<cirf_002>12"),
        ("so " * 9, "so "),
        ("<cirf_001>24<cirf_006>72</cirf>72", ""),
        ("1" * 4, ""),  # a long number is no loop
        ("          ", ""),
        ("", ""),
    ],
)
def test_a_loop_is_named_by_what_it_repeats(output: str, said: str) -> None:
    assert loop(output) == said


@given(st.text("ab<> ", max_size=12), st.text("ab<>1", min_size=1, max_size=8), st.integers(5, 9))
def test_whatever_is_said_over_and_over_is_a_loop(before: str, said: str, times: int) -> None:
    assert loop(before + said * times)


def test_shares_and_loops_are_counted() -> None:
    rows = [
        _row("<cirf_001>2</cirf>2", True, well_formed=True),
        _row("<cirf_001>" * 8, truncated=True, well_formed=False),
        _row("<cirf_001>" * 9, truncated=True, well_formed=False),
        _row("<cirf_001>7", well_formed=False),
    ]
    found = check(rows, 0.5)
    assert found == Check(4, 0.25, 0.5, 0.5, 0.25, {"<cirf_001>": 2})
    (bad,) = faults("cirf_full", found)
    assert "only 25% of its answers to 4 held-out questions are well-formed" in bad and "50% are truncated" in bad
    assert "2 repeat '<cirf_001>'" in bad and "finetune.epochs" in bad and "finetune.new_token_lr_multiplier" in bad


def test_settings_that_complete_traces_are_named_where_most_are_well_formed_without_them() -> None:
    rows = [_row("x", True, well_formed=True)] * 3 + [_row("y", truncated=True, well_formed=False)]
    assert faults("cirf_full", check(rows, 0.5), {"budget": 6}) == [
        "cirf_full: without its settings (budget 6) 75% of its answers to 4 held-out questions are well-formed; "
        "other engines need them too (docs/how-to/steering.md)"
    ]
    assert "not trained enough" in faults("cirf_full", check(rows[2:] + rows[3:], 0.5), {"budget": 6})[0]


def test_a_model_that_works_has_no_fault() -> None:
    assert faults("m", check([_row("x", True, well_formed=True), _row("x", True, well_formed=True)], 0.5)) == []
    half = [_row("x"), _row("y", True)] * 15
    (details,) = faults("direct_sft", check(half, 0.5))
    assert "no better than the most frequent answer: 50% of 30" in details and "rows" in details, (
        "a bare answer has no form to miss"
    )
    assert faults("direct_sft", check(half[:8], 0.5)) == [], "eight questions are too few"


def test_the_most_frequent_training_answer_is_the_majority() -> None:
    assert majority_share(["a", "b", "b"], ["b", "a", "b", "c"]) == 0.5
    assert majority_share([], ["a"]) == majority_share(["a"], []) == 0.0
