"""The methods: what they ask, what they teach, how they read; and that no prompt ever knows the answer."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tables import each_row

from cirf import methods, tasks
from cirf.errors import CirfError
from cirf.methods.base import around_turn, at_head_of_answer
from cirf.recipe.schema import Evaluate, Recipe
from cirf.records import Example, Problem, Trace
from cirf.tasks.task import Task


def recipe(**vocabulary: str) -> Recipe:
    return Recipe.model_validate(
        {"name": "r", "problems": {"tasks": [{"task": "gsm8k"}]}, "codebook": {"size": 8}, "vocabulary": vocabulary}
    )


def answers(task: Task, choices: tuple[str, ...] | None) -> st.SearchStrategy[str]:
    if task.answer == "number":
        return st.integers(-9999, 9999).map(str)
    if task.answer == "yesno":
        return st.sampled_from(["yes", "no"])
    return st.sampled_from([chr(65 + place) for place in range(len(choices or "ABCD"))])


words = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=40)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Task, Problem, Problem]:
    """A task and a problem of its kind, and the same problem with another answer and rationale."""
    task = tasks.get(draw(st.sampled_from(tasks.names())))
    choices = tuple(draw(st.lists(words, min_size=2, max_size=5, unique=True))) if task.answer == "option" else None
    one, other = draw(answers(task, choices)), draw(answers(task, choices))
    assume(one != other)
    problem = Problem(draw(words), task.name, draw(words), one, choices, draw(st.none() | words))
    return task, problem, dataclasses.replace(problem, answer=other, rationale=draw(st.none() | words))


@settings(max_examples=30)
@given(case=cases())
def test_a_prompt_does_not_depend_on_answer_or_rationale(case: tuple[Task, Problem, Problem]) -> None:
    task, problem, other = case
    for name in methods.names():
        method = methods.get(name, recipe())
        asked = method.prompt(problem, task)
        assert asked == method.prompt(other, task), name
        assert problem.question in asked and all(choice in asked for choice in problem.choices or ()), name


@each_row("name", methods.names())
def test_every_registered_task_renders_its_real_problems_without_the_answer(name: str) -> None:
    method = methods.get(name, recipe())
    for task in map(tasks.get, tasks.names()):
        if task.make is None:
            continue
        options = {key: option.default for key, option in task.options.items()}
        made = [task.make(3, index, options) for index in range(20)]
        for problem in filter(None, made):
            changed = dataclasses.replace(problem, answer="nothing", rationale="nothing")
            assert method.prompt(problem, task) == method.prompt(changed, task)


def example(answer: str = "72", segments: tuple[str, ...] = ("48/2 = 24 in May.", "48+24 = 72 in all.")) -> Example:
    problem = Problem("p", "gsm8k", "How many clips?", answer)
    prepared = {"lines": ["48/2=24", "48+24=72"], "ratio": 0.5, "text": "48/2 = 24\n48+24 = 72"}
    return Example(problem, segments, Trace("p", 0, (1, 6), ("24", "72"), answer), prepared)


PRUNED = ("cirf_zero", "cirf_fast", "cirf_faster", "cirf_lean")
THINKING = ("coconut", "codi", "sim_cot", "soft_cot", "sem_cot")


TRACED = ("cirf_full", "cirf_subjects", "cirf_after_cot", "cirf_subjects_after_cot")


def test_targets_are_the_papers_forms() -> None:
    wanted = {
        "cirf_full": "<cirf_001>24<cirf_006>72</cirf>72",  # the prompt ends with <cirf>
        "cirf_bare": "<cirf_001><cirf_006></cirf>72",
        "cirf_self": "<cirf_001>24<cirf_006>72</cirf>72",  # where no sample was right
        "direct_sft": "72",
        "sft_cot": "48/2 = 24 in May.\n48+24 = 72 in all.\n#### 72",
        "terse": "24\n72\n#### 72",
        "terse_subjects": "24\n72\n#### 72",
        "terse_equations": "48/2=24\n48+24=72\n#### 72",
        "token_skip": "48/2 = 24\n48+24 = 72\n#### 72",
        "pause": "72",
        "filler": "72",
        "soft_cot": "72",
        "sem_cot": "72",
    }
    wanted |= dict.fromkeys(TRACED, wanted["cirf_full"])
    wanted["icot_si"] = wanted["coconut"] = wanted["sim_cot"] = wanted["sft_cot"]  # at first; then it loses its beginning
    wanted["codi"] = "48/2 = 24 in May.\nThe answer is: 72"  # the teacher's
    wanted |= dict.fromkeys(PRUNED, wanted["cirf_full"])  # of a trace as it is: what is pruned is empty there already
    trained = [name for name in methods.names() if methods.get(name, recipe()).trained]
    assert {name: methods.get(name, recipe()).target(example()) for name in trained} == wanted
    thinking = methods.get("cirf_full", recipe(delimiters="think", opening="written")).target(example())
    assert thinking == "<think><cirf_001>24<cirf_006>72</think>72"


@pytest.mark.parametrize("name", [name for name in methods.names() if methods.get(name, recipe()).trained])
@pytest.mark.parametrize("answer", ["72", "-3.5", "1/2"])
def test_what_a_method_teaches_it_reads_back(name: str, answer: str) -> None:
    method, task, taught = methods.get(name, recipe()), tasks.get("gsm8k"), example(answer)
    trace, said = method.read(method.target(taught))
    parsed = task.parse(said, taught.problem)
    assert parsed is not None and task.equal(parsed, taught.problem)
    assert ("24" in trace) == (name not in ("direct_sft", "cirf_bare", "pause", "filler", "soft_cot", "sem_cot"))


def test_a_trace_that_never_closes_is_read_and_is_not_well_formed() -> None:
    method = methods.get("cirf_full", recipe())
    assert method.read("<cirf_001>24<cirf_006>7") == ("<cirf_001>24<cirf_006>", "7")
    assert not method.well_formed("<cirf_001>24<cirf_006>7") and method.well_formed("<cirf_001>24</cirf>72")
    assert method.read("72") == ("", "72") and not method.well_formed("72")
    prose = methods.get("sft_cot", recipe())
    assert prose.well_formed("so 72\n#### 72") and not prose.well_formed("so 72\n####")
    assert methods.get("direct_sft", recipe()).well_formed("72") is None, "a bare answer has no form that could be missed"


def test_prose_is_read_after_its_last_mark() -> None:
    method, task, problem = methods.get("sft_cot", recipe()), tasks.get("gsm8k"), example().problem
    trace, said = method.read("First 24.\n#### 24\nNo, wait.\n#### 72")
    assert trace == "First 24.\n#### 24\nNo, wait." and task.parse(said, problem) == "72"
    assert method.read("It is 72.") == ("It is 72.", "It is 72.")
    for cut_off in ("It is 72.\n####", "It is 72.\n#### \n"):
        assert task.parse(method.read(cut_off)[1], problem) == "72"


def test_of_untaught_prose_all_is_read_so_that_a_heading_is_no_answer() -> None:
    method, task, problem = methods.get("cot", recipe()), tasks.get("gsm8k"), example().problem
    for said in (
        "The answer is 72.\n#### Done",
        "#### Step 1\n48 + 24 = 72\n#### 72",
        "It is 72.\n####",
        "The answer is 72.\n#### Step 5: check",
    ):
        assert task.parse(method.read(said)[1], problem) == "72", said


@each_row("name", methods.names())
def test_a_method_is_either_trained_or_refuses_to_teach(name: str) -> None:
    method = methods.get(name, recipe())
    assert method.name == name and method.summary
    assert method.trained or not method.functional
    if not method.trained:
        with pytest.raises(TypeError):
            method.target(example())


def test_caps_are_the_recipes_for_reasoning_and_the_tasks_for_answers() -> None:
    section, task = Evaluate(max_new_tokens=300, max_trace_tokens=50), tasks.get("gsm8k")
    caps = {name: methods.get(name, recipe()).cap(task, section) for name in methods.names()}
    prose = {
        "cot": 300,
        "chain_of_draft": 300,
        "sft_cot": 300,
        "terse": 300,
        "terse_subjects": 300,
        "terse_equations": 300,
        "token_skip": 300,
        "icot_si": task.cap + 8,
    }
    functional = dict.fromkeys((*TRACED, "cirf_bare", "cirf_self", *PRUNED), 50 + task.cap)
    assert caps == functional | dict.fromkeys(("direct", "direct_sft", "pause", "filler", *THINKING), task.cap) | prose


def test_one_budget_holds_for_every_method_with_its_thoughts() -> None:
    task, own = tasks.get("math500"), Evaluate()
    one = Evaluate(max_completion_tokens=512)
    made = {name: methods.get(name, recipe()) for name in methods.names()}
    assert {made[name].budget(task, own) for name in ("cirf_full", "icot_si", "direct")} == {640, 520, 512}
    assert {name: method.budget(task, one) + method.latents for name, method in made.items()} == dict.fromkeys(made, 512)
    assert made["coconut"].latents and made["codi"].latents
    short = tasks.get("gsm8k")
    assert made["direct_sft"].budget(short, one) == short.cap and made["cirf_full"].budget(short, one) == 128 + short.cap
    with pytest.raises(CirfError, match=r"max_completion_tokens: 4, but codi answers after 6 vectors"):
        made["codi"].budget(short, Evaluate(max_completion_tokens=4))


def test_an_unknown_method_names_the_nearest() -> None:
    with pytest.raises(CirfError, match=r"no method 'cirf-full'; the nearest is 'cirf_full'"):
        methods.get("cirf-full", recipe())


def test_what_is_at_the_head_of_an_answer_leaves_the_rest_of_a_template_as_it_is() -> None:
    def shown(template: str, generation: bool) -> str:
        from transformers.utils.chat_template_utils import render_jinja_template

        turns = [{"role": "user", "content": "How many?"}]
        return str(render_jinja_template([turns], chat_template=template, add_generation_prompt=generation)[0][0])

    for end in ("Answer: ", "Answer:\n", "{% if add_generation_prompt %}A: {% endif %}\n", "{% if true %}x{% endif %}\n\n"):
        template = "{{ messages[0]['content'] }} " + end
        for generation in (True, False):
            head = "<pause>" if generation else ""
            assert shown(at_head_of_answer(template, "<pause>"), generation) == shown(template, generation) + head
    assert "How many?\nRatio: 0.5" in shown(around_turn("{{ messages[0]['content'] }}", "", "\nRatio: 0.5"), True)
