"""Self-consistency: of many sampled answers the one that most of them give, and what it is worth (Wang et al., 2022).

A worked example: the votes 9, 2.0, 2, 2 say 2, with three quarters that agree; 8, (unparsed), 3, (unparsed) say 8, the first
of two that one vote each is for, with one quarter. An unparsed answer counts in the share that agrees and wins no majority; a
truncated one counts as what is parsed in it, as in any evaluation.

With ``m`` votes drawn, the accuracy of ``n`` votes is the mean over the ``m // n`` groups of ``n`` that follow each other.

Votes are drawn once and kept, one row a question, ``<task>.jsonl``::

    {"id": "test-3", "prompt": "Natalia ...", "gold": "72",
     "votes": [{"output": "<cirf_016>...</cirf>72", "parsed": "72", "correct": true, "tokens": 9, "truncated": false}, ...]}

What the model wrote is in a log that outlives the rows, one line a draw, so that only missing votes are drawn::

    {"key": "3f0c...", "task": "svamp", "id": "test-3", "first": 0, "outputs": [["<cirf_016>...</cirf>72", 9, false], ...]}

A server's votes are requested all at once; the log is then the client's (`cirf.endpoints.fleet`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cirf.errors import CirfError
from cirf.evaluation.harness import Output, Row, hide, judge, reading
from cirf.methods import get
from cirf.progress import Progress
from cirf.recipe.schema import Evaluate, Recipe
from cirf.records import Problem
from cirf.stages import keys, scores
from cirf.stages.context import Context
from cirf.stages.models import load_for, source_of, tokenizer_for
from cirf.statistics import compare, corrected, mean, wilson
from cirf.store.files import RowLog, hash_json, to_json, write_atomic, write_rows
from cirf.store.run_folder import StagePlan

if TYPE_CHECKING:
    from cirf.evaluation.engines import VllmEngine
    from cirf.methods.base import Method
    from cirf.tasks.task import Task


def decide(task: Task, problem: Problem, votes: Sequence[Row]) -> Majority:
    """The majority of votes; two answers are one where the task takes one for the other."""

    def same(one: str, other: str) -> bool:
        return one == other or task.equal(one, dataclasses.replace(hide(problem), answer=other))

    return majority([vote["parsed"] for vote in votes], same)


@dataclasses.dataclass(frozen=True, slots=True)
class VotedQuestion:
    """A question with its votes, and the row of the one answer that they are compared with, if there is one."""

    name: str
    task: Task
    problem: Problem
    votes: Sequence[Row]
    alone: Row | None = None


def curve(items: Sequence[VotedQuestion], counts: Sequence[int]) -> list[dict[str, Any]]:
    """What each number of votes answers, one row a number.

    ``accuracy`` with its 95 % ``interval`` (Wilson's, over the ``n`` questions); the means of the share of votes that agree
    (``agreement``) and of the ``tokens`` of all votes of an answer; ``unparsed`` is the share of answers where no vote could
    be read, ``truncated`` the share of votes that the cap cut off. Where the items have an answer to compare with,
    ``against`` is the paired comparison with it, corrected for all numbers of votes (Holm). A vote that a server did not give
    counts as unparsed, with the mean tokens of those given.

    ``CirfError``: more votes are requested than were drawn; ``ValueError``: no items.
    """
    drawn = min(len(item.votes) for item in items)
    if max(counts) > drawn:
        raise CirfError(f"evaluate.voting.votes: {max(counts)} votes are requested, {drawn} were drawn; run again")
    points, solved = [], {}
    given = mean([vote["tokens"] for item in items for vote in item.votes if "failed" not in vote] or [0.0])
    for count in sorted(set(counts)):
        outcomes = [_GroupOutcomes(item, count, given) for item in items]
        point: dict[str, Any] = {"votes": count, **share_of([mean(one.solved) for one in outcomes])}
        point |= {
            key: mean([mean(getattr(one, key)) for one in outcomes]) for key in ("agreement", "tokens", "unparsed", "truncated")
        }
        points.append(point)
        solved[count] = {f"{one.item.name}/{one.item.problem.id}": mean(one.solved) for one in outcomes}
    alone = {f"{item.name}/{item.problem.id}": float(item.alone["correct"]) for item in items if item.alone is not None}
    if alone:
        compared = corrected({str(count): compare(values, alone) for count, values in solved.items()})
        for point in points:
            point["against"] = compared[str(point["votes"])].to_dict()
    return points


class _GroupOutcomes:
    """What the groups of ``count`` votes on one question say: a list each, one value a group."""

    def __init__(self, item: VotedQuestion, count: int, missing: float) -> None:
        """``missing``: the tokens of a vote that a server did not give."""
        self.item = item
        groups = [item.votes[start : start + count] for start in range(0, len(item.votes) - count + 1, count)]
        decisions = [decide(item.task, item.problem, group) for group in groups]
        self.solved = [t.place is not None and bool(g[t.place]["correct"]) for t, g in zip(decisions, groups, strict=True)]
        self.agreement = [t.share for t in decisions]
        self.unparsed = [t.place is None for t in decisions]
        self.truncated = [mean([vote["truncated"] for vote in group]) for group in groups]
        self.tokens = [sum(missing if "failed" in vote else vote["tokens"] for vote in group) for group in groups]


def answered_alone(rows: Sequence[Row]) -> dict[str, Any]:
    """The numbers of the one answer that votes are compared with, as in `curve`."""
    found = share_of([row["correct"] for row in rows])
    return found | {key: mean([row[key] for row in rows]) for key in ("unparsed", "truncated", "tokens")}


def share_of(values: Sequence[float]) -> dict[str, Any]:
    """The mean of values between 0 and 1 as an accuracy, with its 95 % interval (Wilson's, over questions)."""
    share, n = mean(values), len(values)
    return {"accuracy": share, "n": n, "interval": list(wilson(min(share * n, n), n))}


class Majority(NamedTuple):
    """The place of the first vote for the answer that most votes give (``None``: none could be read), and its share."""

    place: int | None
    share: float


def majority(answers: Sequence[str | None], same: Callable[[str, str], bool]) -> Majority:
    """The answer that most of these votes give, of equally many the one given first; ``same``: whether two answers are one.
    ``ValueError``: no votes."""
    if not answers:
        raise ValueError("a majority of no votes")
    groups: list[list[int]] = []  # the places of the votes for one answer
    for place, answer in enumerate(answers):
        if answer is None:
            continue
        home = next((group for group in groups if same(answer, str(answers[group[0]]))), None)
        if home is None:
            groups.append([place])
        else:
            home.append(place)
    most = max(groups, key=len, default=None)
    return Majority(None, 0.0) if most is None else Majority(most[0], len(most) / len(answers))


@dataclass(frozen=True, slots=True)
class Wanted:
    """Answers to a rendered prompt: the number of the first one, and how many."""

    prompt: str
    first: int
    count: int


Draw = Callable[[Sequence[Wanted], int], Sequence[Sequence[Output]]]
"""What is wanted of each prompt, and a cap in tokens, to the sampled outputs of each. An answer must depend on its prompt, the
cap and its number alone."""


class Sampler(NamedTuple):
    """A model that votes: ``draw``, the template of its prompts, and all else that an output depends on, besides prompt and cap:
    the model, sampling, seed, number format. ``at_once``: how many questions are drawn together."""

    draw: Draw
    render_prompt: Callable[[str], str]
    how: Mapping[str, Any]
    at_once: int = 1


class StoredSample(NamedTuple):
    """One stored sampled output; ``tokens`` with the end token."""

    text: str
    tokens: int
    truncated: bool


@dataclass(frozen=True, slots=True)
class VoteSource:
    """Who votes on what: the method, its tasks, and how many tokens it may write."""

    method: Method
    tasks: Mapping[str, Task]
    section: Evaluate

    def prompt(self, name: str, problem: Problem) -> str:
        return self.method.prompt(hide(problem), self.tasks[name])

    def cap(self, name: str) -> int:
        return self.method.budget(self.tasks[name], self.section)

    def read(self, name: str, problem: Problem, outputs: Sequence[Output], rendered: str = "") -> list[Row]:
        """The votes that outputs are; ``rendered`` is their rendered prompt, where it is known."""
        task = self.tasks[name]
        found = []
        for output in outputs:
            parsed, correct = judge(reading(self.method, output, rendered).answer, problem, task)
            row = {"output": output.text, "parsed": parsed, "correct": correct}
            failed = {"failed": why} if (why := getattr(output, "failed", "")) else {}
            found.append(row | {"tokens": output.tokens, "truncated": output.truncated} | failed)
        return found

    def row(self, name: str, problem: Problem, prompt: str, outputs: Sequence[Output], rendered: str = "") -> Row:
        """A question with its votes."""
        votes = self.read(name, problem, outputs, rendered)
        return {"id": problem.id, "prompt": prompt, "gold": problem.answer, "votes": votes}


def request_votes(
    asked: VoteSource,
    generate: Callable[[Sequence[str], int, Sequence[int]], Sequence[Output]],
    test: Mapping[str, Sequence[Problem]],
    count: int,
    work: Path,
) -> list[str]:
    """``count`` votes on every problem into ``work/<task>.jsonl``, by a server's ``generate`` (`cirf.evaluation.engines.asker`),
    which keeps what is answered; returns warnings of votes that the server failed to give or that are thoughts alone, which
    count as unparsed."""
    votes: list[Row] = []
    for name, problems in test.items():
        prompts = [asked.prompt(name, problem) for problem in problems]
        turns = [prompt for prompt in prompts for _ in range(count)]
        outputs = generate(turns, asked.cap(name), [*range(count)] * len(prompts))
        each = [outputs[start : start + count] for start in range(0, len(outputs), count)]
        rows = [asked.row(name, *given) for given in zip(problems, prompts, each, strict=True)]
        votes += [vote for row in rows for vote in row["votes"]]
        write_rows(work / f"{name}.jsonl", rows)
    failed = sum("failed" in vote for vote in votes)
    warnings = [f"WARNING: {failed:,} votes were not given by the server and count as unparsed"] if failed else []
    return [*warnings, *scores.without_content(asked.method, votes, "votes")]


def draw_votes(
    asked: VoteSource,
    sampler: Sampler,
    test: Mapping[str, Sequence[Problem]],
    count: int,
    log: RowLog,
    work: Path,
    progress: Progress,
) -> int:
    """``count`` votes on every problem into ``work/<task>.jsonl``; returns the number of problems.

    Outputs of the same sampler that ``log`` holds are taken from it, the first ones if it has more than requested; further ones
    are drawn and added to it, ``sampler.at_once`` questions together. A killed draw goes on where it was. ``CirfError``: no
    problems.
    """
    if not any(test.values()):
        raise CirfError("evaluate.voting: there is no test problem to vote on")
    kept: dict[str, list[StoredSample]] = {}

    def keep(row: Mapping[str, Any]) -> None:
        before = kept.setdefault(row["key"], [])
        before[row["first"] :] = [StoredSample(*output) for output in row["outputs"]]

    log.read(keep)
    for name, problems in test.items():
        prompts = [asked.prompt(name, problem) for problem in problems]
        rendered = [sampler.render_prompt(prompt) for prompt in prompts]
        asking = [hash_json({**sampler.how, "prompt": text, "cap": asked.cap(name)}) for text in rendered]
        done = sum(len(kept.get(key, ())) >= count for key in asking)
        first_of = {key: i for i, key in reversed([*enumerate(asking)])}  # a question may occur twice
        missing = [i for i, key in enumerate(asking) if first_of[key] == i and len(kept.setdefault(key, [])) < count]
        with progress.task(f"{count} votes on {name}", len(problems), "problems", done) as advance:
            for start in range(0, len(missing), sampler.at_once):
                batch = missing[start : start + sampler.at_once]
                wanted = [Wanted(rendered[i], len(kept[asking[i]]), count - len(kept[asking[i]])) for i in batch]
                drawn = sampler.draw(wanted, asked.cap(name))
                for i, one, outputs in zip(batch, wanted, drawn, strict=True):
                    fresh = [StoredSample(o.text, o.tokens, o.truncated) for o in outputs]
                    log.append({"key": asking[i], "task": name, "id": problems[i].id, "first": one.first, "outputs": fresh})
                    kept[asking[i]] += fresh
                    advance(1)
        each = zip(problems, prompts, rendered, asking, strict=True)
        rows = [asked.row(name, problem, prompt, kept[key][:count], text) for problem, prompt, text, key in each]
        write_rows(work / f"{name}.jsonl", rows)
    return sum(map(len, test.values()))


_PROSE = ("sft_cot", "cot")


def compared_with(recipe: Recipe) -> str | None:
    """The method whose one answer votes are compared with: the recipe's chain-of-thought, the trained one first; ``None`` where
    there is none."""
    return next((name for name in _PROSE if name in recipe.methods and name != recipe.evaluate.voting.method), None)


def _test(context: Context) -> dict[str, list[Problem]]:
    return {name: rows[: context.recipe.evaluate.voting.problems] for name, rows in context.test().items() if rows}


def drawing(context: Context, name: str, answering: StagePlan | str | None, work: Path) -> dict[str, Any]:
    """Draw the votes of a method, as many as its largest number asks for, or take those that were drawn before. ``answering``:
    the model, ``None`` where a server answers."""
    from cirf.lm import backbone

    recipe, section = context.recipe, context.recipe.evaluate.voting
    method, test = get(name, recipe), _test(context)
    vote_source = VoteSource(method, context.tasks, recipe.evaluate)
    if answering is None:
        sampling = recipe.evaluate.model_copy(update={"temperature": section.temperature, "top_p": section.top_p})
        server = scores.server_of(recipe.evaluate, name)
        log = context.asked(f"served-votes-{name}-{hash_json(server)[:8]}")  # for another may serve other weights by that name
        generate = scores.served(context, method, sampling, log, context.progress)
        notes = [f"answered by {server}", *request_votes(vote_source, generate, test, max(section.votes), work)]
        return {"rows": sum(map(len, test.values())), "notes": notes, "engine": server}
    how = keys.drawn(recipe, method) | {
        "model": answering if isinstance(answering, str) else context.folder.content(answering.name)
    }
    log = context.asked(f"votes-{name}")
    with scores.vllm_of(context, method, recipe.evaluate) as running:
        draw = _by_transformers(context, method) if running is None else _by_vllm(context, running)
        at_once = 1 if running is None else recipe.evaluate.batch_size
        sampler = Sampler(draw, partial(backbone.prompt_text, tokenizer_for(context, name)), how, at_once)
        drawn = {"rows": draw_votes(vote_source, sampler, test, max(section.votes), log, work, context.progress)}
    if running is None:
        return drawn
    engine = scores.vllm_name(context, running)
    return drawn | {"notes": [f"answered by {engine}"], "engine": engine}


def _by_transformers(context: Context, method: Method) -> Draw:
    """Draws votes with the run's model, which computes a prompt once for all of its votes."""
    from cirf.lm.decoding import generate as decode

    section = context.recipe.evaluate.voting
    model, tokenizer = load_for(context, method.name)
    prefixes = scores.beginnings(method, context.tasks, model, tokenizer, source_of(context, method.name))
    steer = method.steer(model, tokenizer)
    decoding = decode.Decoding(section.temperature, section.top_p, context.recipe.seed, prefixes, steer)

    def draw(wanted: Sequence[Wanted], cap: int) -> Sequence[Sequence[Output]]:
        return [decode.sample_many(model, tokenizer, one.prompt, cap, one.count, decoding, one.first) for one in wanted]

    return draw


def _by_vllm(context: Context, running: VllmEngine) -> Draw:
    """The same with vLLM, which draws the votes on all prompts together."""
    section, seed = context.recipe.evaluate.voting, context.recipe.seed

    def draw(wanted: Sequence[Wanted], cap: int) -> Sequence[Sequence[Output]]:
        prompts = [one.prompt for one in wanted for _ in range(one.count)]
        numbers = [number for one in wanted for number in range(one.first, one.first + one.count)]
        made = iter(running.generate(prompts, cap, section.temperature, section.top_p, seed, numbers))
        return [[next(made) for _ in range(one.count)] for one in wanted]

    return draw


def voting(context: Context, name: str, work: Path) -> dict[str, Any]:
    """Find the majority answers of 1, 2, ... votes; ``voting.json`` holds the curve. No model is needed."""
    recipe, section = context.recipe, context.recipe.evaluate.voting
    other = compared_with(recipe)
    items = []
    for task, problems in _test(context).items():
        alone: dict[str, Any] = {}
        for row in context.rows(f"evaluation/{other}", f"{task}.jsonl") if other else ():
            alone.setdefault(row["id"], row)  # the first run
        drawn = {row["id"]: row["votes"] for row in context.rows(f"votes/{name}", f"{task}.jsonl")}
        items += [VotedQuestion(task, context.tasks[task], p, drawn[p.id], alone[p.id] if other else None) for p in problems]
    found: dict[str, Any] = {"method": name, "against": other}
    drawing_by = (context.folder.manifest(f"votes/{name}") or {})["summary"]
    if "engine" in drawing_by:
        found["engine"] = drawing_by["engine"]
    if failed := sum("failed" in vote for item in items for vote in item.votes):
        found["failed"] = failed
    found["curve"] = curve(items, section.votes)
    if other is not None:
        found["alone"] = answered_alone([item.alone for item in items if item.alone is not None])
    write_atomic(work / "voting.json", to_json(found))
    return {"rows": len(items)}
