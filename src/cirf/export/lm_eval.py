"""Tasks for EleutherAI's lm-evaluation-harness: a YAML file and a file of rows each, to be found with ``--include_path``; and a
Python file each for inspect_ai, which reads the same rows and answers.

Two forms. ``generate``: the prompt and cap are a method's, and the answer is read after the last
``</cirf>``, ``</think>``, ``####`` or functional token; so our models are evaluated unchanged, and the harness does not need this
package. ``choice``: the likelihood of each answer after the question, for tasks whose answers can be listed; it compares a model
before and after fine-tuning independently of the form of its answers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cirf.errors import CirfError
from cirf.evaluation.harness import hide
from cirf.records import Problem
from cirf.store.files import write_atomic, write_rows

if TYPE_CHECKING:
    from cirf.methods.base import Method
    from cirf.recipe.schema import Evaluate
    from cirf.tasks.task import Task

Form = Literal["generate", "choice"]

_ANSWER = r"(?s)\A(?:.*(?:</cirf>|</think>|####|<cirf_\d{3,}>))?\s*(.*?)\s*\Z"
_INSPECT = '''"""{name}: a task of inspect_ai (inspect eval FILE --model ...). The answer follows the trace or the mark."""

import re
from pathlib import Path

from inspect_ai import Task, task
from inspect_ai.dataset import FieldSpec, json_dataset
from inspect_ai.model import GenerateConfig
from inspect_ai.scorer import CORRECT, INCORRECT, Score, accuracy, scorer, stderr
from inspect_ai.solver import generate

ANSWER = re.compile({answer!r})
IGNORED = re.compile({ignored!r})


@scorer(metrics=[accuracy(), stderr()])
def stated():
    async def score(state, target):
        said = ANSWER.fullmatch(state.output.completion)[1]
        right = IGNORED.sub("", said).lower() == IGNORED.sub("", target.text).lower()
        return Score(value=CORRECT if right else INCORRECT, answer=said, explanation=state.output.completion)

    return score


@task
def {name}():
    rows = json_dataset(str(Path(__file__).with_suffix(".jsonl")), FieldSpec(input="prompt", target="answer", id="id"))
    return Task(dataset=rows, solver=generate(), scorer=stated(), config=GenerateConfig(max_tokens={cap}, temperature=0.0))
'''
_IGNORED = [r"(?<=\d),(?=\d{3})", r"^\$", r"%$", r"\.0*$"]


def write_task(
    folder: Path,
    name: str,
    task: Task,
    problems: Sequence[Problem],
    form: Form,
    method: Method,
    section: Evaluate,
) -> str:
    """Write ``cirf_NAME[_METHOD][_choice].yaml`` and its rows, and where answers are generated ``.py`` for inspect_ai; returns
    the task's name in the harness.

    For generated answers, ``method`` gives prompt and cap as in an evaluation with the keys of ``section``; the
    name includes it unless its model writes functional tokens. The rows' paths are absolute, so that the harness can start in any
    folder. ``CirfError``: no problems, or answers that cannot be listed.
    """
    import yaml

    if not problems:
        raise CirfError(f"{name}: there are no test problems to write")
    there = f"cirf_{name}" + ("_choice" if form == "choice" else "" if method.functional else f"_{method.name}")
    rows = folder / f"{there}.jsonl"
    summary: dict[str, Any] = {
        "task": there,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(rows.resolve())}},
        "test_split": "test",
        "output_type": "multiple_choice" if form == "choice" else "generate_until",
        "doc_to_text": "{{prompt}}",
        "metadata": {"version": task.version},
    }
    if form == "choice":
        write_rows(rows, [_listed(name, problem) for problem in problems])
        summary |= {"doc_to_choice": "{{choices}}", "doc_to_target": "{{gold}}"}
        summary["metric_list"] = [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}]
    else:
        asked = [(problem, method.prompt(hide(problem), task)) for problem in problems]
        write_rows(rows, [{"id": problem.id, "prompt": prompt, "answer": problem.answer} for problem, prompt in asked])
        exact = {"metric": "exact_match", "aggregation": "mean", "higher_is_better": True, "ignore_case": True}
        summary |= {
            "doc_to_target": "{{answer}}",
            "generation_kwargs": {"until": [], "do_sample": False, "max_gen_toks": method.budget(task, section)},
            "filter_list": [
                {"name": "answer", "filter": [{"function": "regex", "regex_pattern": _ANSWER}, {"function": "take_first"}]}
            ],
            "metric_list": [exact | {"regexes_to_ignore": _IGNORED}],
        }
        called = re.sub(r"\W", "_", there)
        filled = {"answer": _ANSWER, "ignored": "|".join(_IGNORED), "cap": method.budget(task, section)}
        write_atomic(folder / f"{there}.py", _INSPECT.format(name=called, **filled))
    write_atomic(folder / f"{there}.yaml", yaml.safe_dump(summary, sort_keys=False, width=1000))
    return there


def _listed(name: str, problem: Problem) -> dict[str, Any]:
    """A row whose answers can be listed: the options' texts, or yes and no."""
    if problem.choices and len(problem.answer) == 1 and problem.answer.isupper():
        choices, gold = list(problem.choices), ord(problem.answer) - ord("A")
    elif problem.answer in ("yes", "no"):
        choices, gold = ["yes", "no"], ("yes", "no").index(problem.answer)
    else:
        raise CirfError(f"{name}: its answers cannot be listed; write it without --choice")
    return {"id": problem.id, "prompt": f"Question: {problem.question}\nAnswer:", "choices": choices, "gold": gold}
