"""From a trained model to one that was trained on by reward: its answers to training questions, and their rewards."""

from __future__ import annotations

import gc
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cirf.errors import CirfError
from cirf.evaluation.harness import hide, judge, read
from cirf.methods import get
from cirf.stages.context import Context
from cirf.store.files import to_json, write_atomic
from cirf.user_code import read_user_code

if TYPE_CHECKING:
    from cirf.evaluation.harness import Output
    from cirf.methods.base import Method
    from cirf.recipe.schema import Reward
    from cirf.records import Problem
    from cirf.tasks.task import Task

Score = Callable[[Mapping[str, Any]], float]
"""A user's own reward of one answer."""


def train(context: Context, name: str, work: Path) -> dict[str, Any]:
    """Train a variant on from its start's model by reward, and save a plain, merged checkpoint, that of the best validation."""
    from cirf.lm import backbone
    from cirf.lm.saving import save_model
    from cirf.lm.training.reward import RewardTraining
    from cirf.stages.models import release, save_asking, source_of, template_of

    recipe = context.recipe
    method = get(name, recipe)
    how = method.reward
    assert how is not None and method.start is not None
    release(context)
    source = source_of(context, method.start)
    tokenizer = backbone.load_tokenizer(source, recipe.backbone)
    tokenizer.chat_template = template_of(context, name, source, tokenizer, tokenizer.chat_template)
    model = backbone.load_model(source, recipe.backbone, training=how.adaptation)
    policy = backbone.load_model(source, recipe.backbone)
    questions = _questions(context, method, partial(backbone.prompt_text, tokenizer))
    training = RewardTraining(model, policy, tokenizer, questions, how, recipe.finetune, recipe.seed)
    history, timings = training.run(work / "scratch", context.progress, f"training {name} by reward")
    if "ended" in history:
        history["ended"] = f"the training of {name} by reward ended after {history['updates']} updates: {history['ended']}"
    write_atomic(work / "history.json", to_json({"method": name, "start": method.start} | history))
    write_atomic(work / "timings.json", to_json(timings))
    save_asking(method, source, work)
    save_model(policy, tokenizer, work, recipe.backbone.dtype, recipe.vocabulary.delimiters if method.functional else None)
    if (Path(source) / "functions.json").is_file():
        shutil.copyfile(Path(source) / "functions.json", work / "functions.json")
    del model, policy, training
    gc.collect()
    return {"rows": history["answers"], "notes": _notes(history) + unchanged({"method": name, "start": method.start} | history)}


def unchanged(history: Mapping[str, Any]) -> list[str]:
    """A sentence where the best model of a training by reward is the one that it started from."""
    if history.get("best_update") != 0:
        return []
    return [f"the model of {history['method']} is its start, {history['start']}: no update was better"]


def _notes(history: Mapping[str, Any]) -> list[str]:
    notes = []
    if history["validation"]:
        first, best = history["validation"][0]["right"], history["best_right"]
        notes.append(f"{first:.1%} of the validation answers were right before, {best:.1%} after update {history['best_update']}")
    rows = history["losses"]
    drawn = sum(row["questions"] for row in rows)
    if drawn:
        right, wrong = (sum(row[key] for row in rows) / drawn for key in ("all_right", "all_wrong"))
        notes.append(f"of the questions drawn, {right:.0%} had right answers alone and {wrong:.0%} wrong ones alone")
    return notes + ([f"WARNING: {history['ended']}"] if "ended" in history else [])


def _questions(context: Context, method: Method, render: Callable[[str], str]) -> Any:
    from cirf.lm.training.reward import Questions

    how, tasks = method.reward, context.tasks
    assert how is not None
    training, held_out = context.train(), context.validation()[: how.eval_questions]
    score = None if how.function is None else own_reward(how.function)
    cap = most_tokens(context, method, training)
    prompts = [[render(method.prompt(hide(one), tasks[one.task])) for one in part] for part in (training, held_out)]

    def judged(problems: Sequence[Problem], place: int, output: Output) -> tuple[float, bool]:
        problem = problems[place]
        return rewarded(method, tasks[problem.task], how, score, problem, output)

    return Questions(prompts[0], partial(judged, training), prompts[1], partial(judged, held_out), cap)


def most_tokens(context: Context, method: Method, training: Sequence[Problem]) -> int:
    """The cap of a sampled answer to a training question, the end token included."""
    assert method.reward is not None
    tasks = dict.fromkeys(one.task for one in training)
    caps = [method.budget(context.tasks[task], context.recipe.evaluate) for task in tasks]
    return int(min(max(caps, default=1), method.reward.max_completion_length or math.inf))


def rewarded(
    method: Method, task: Task, how: Reward, score: Score | None, problem: Problem, output: Output
) -> tuple[float, bool]:
    """The reward of one answer, and whether it is right; a truncated one never is."""
    trace, answer = read(method, output)
    parsed, right = judge(answer, problem, task)
    right = right and not output.truncated
    formed = bool(method.well_formed(output.text)) and not output.truncated
    reward = how.right * right + how.form * formed - how.token_price * output.tokens
    if score is not None:
        facts = {"question": problem.question, "gold": problem.answer, "output": output.text, "trace": trace, "answer": answer}
        judged = {"parsed": parsed, "correct": right, "well_formed": formed}
        reward += score({**facts, **judged, "tokens": output.tokens, "truncated": output.truncated})
    return reward, right


def own_reward(path: str) -> Score:
    """The ``REWARD`` of a user's file. ``CirfError`` if there is none; for an answer, if it fails or returns no number."""
    function = read_user_code(path, "reward.function names it as a reward of your own")[0].get("REWARD")
    if not callable(function):
        raise CirfError(f"{path}: defines no REWARD; end the file with REWARD = your_function, which takes one answer as a dict")

    def score(answer: Mapping[str, Any]) -> float:
        asked = repr(answer["question"][:80])
        try:
            value = float(function(dict(answer)))
        except Exception as error:
            reason = " ".join(str(error).split())[:200]
            raise CirfError(f"{path}: REWARD failed on an answer to {asked}: {type(error).__name__}: {reason}") from None
        if not math.isfinite(value):
            raise CirfError(f"{path}: REWARD gave {value} for an answer to {asked}; it must be a finite number")
        return value

    return score


def for_trl(run: str | Path, name: str) -> tuple[str, list[dict[str, Any]], Callable[..., list[float]]]:
    """What TRL's ``GRPOTrainer`` trains a variant of a run on: the folder of its start's model, rows of a rendered ``prompt``
    and the number of its ``question``, and the reward function. ``CirfError``: the variant is not trained by reward."""
    from cirf.lm.backbone import load_tokenizer, prompt_text
    from cirf.lm.decoding.generate import output_of
    from cirf.lm.prompt import stop_ids, unloaded
    from cirf.lm.training.batches import beginning_of
    from cirf.recipe.load import load
    from cirf.stages.models import source_of, template_of
    from cirf.store.run_folder import RunFolder

    context = Context(load(str(Path(run) / "recipe.yaml")), RunFolder(Path(run)))
    method = get(name, context.recipe)
    if method.reward is None or method.start is None:
        raise CirfError(f"{run}: {name} is not trained by reward; name a variant that has `reward`")
    source = source_of(context, method.start)
    tokenizer = load_tokenizer(source, context.recipe.backbone)
    tokenizer.chat_template = template_of(context, name, source, tokenizer, tokenizer.chat_template)
    questions = _questions(context, method, partial(prompt_text, tokenizer))
    stops = stop_ids(unloaded(str(source)), tokenizer)
    beginning = beginning_of(tokenizer)  # TRL's tokenizer adds it itself

    def reward(completion_ids: Sequence[Sequence[int]], question: Sequence[int], **more: Any) -> list[float]:
        outputs = [output_of(tokenizer, list(ids), stops) for ids in completion_ids]
        return [questions.judge(place, output)[0] for place, output in zip(question, outputs, strict=True)]

    rows = [{"prompt": prompt.removeprefix(beginning), "question": place} for place, prompt in enumerate(questions.training)]
    return str(source), rows, reward
