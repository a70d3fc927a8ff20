"""Which stages a run has: what each reads of the recipe, what it is made from, and the function that makes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from cirf.compression.search import Selector
from cirf.errors import CirfError
from cirf.methods import SCORED_BY, get, learners
from cirf.methods.base import Method
from cirf.stages import checks, codes, compress, data, keys, lineage, models, probes, rewards, scores, timing, votes
from cirf.stages.context import Context
from cirf.stages.lineage import model_hash, problem_files, rationale_files, result_files, teacher_prompt, writer_prompt
from cirf.store.run_folder import StagePart, StagePlan

if TYPE_CHECKING:
    from cirf.tasks.task import Task

Input = StagePlan | StagePart | str
"""What a stage is made from: another stage, some files of one, or the hash of what is outside the run."""

Maker = Callable[..., Mapping[str, Any]]


def plans(context: Context) -> list[StagePlan]:
    """Every stage that the recipe asks for, in the order in which they run."""
    return Planner(context).plan()


class Planner:
    """The stages of one run. Each function adds those of one part of the picture in `cirf.run`, and keeps what later stages are
    made from."""

    def __init__(self, context: Context) -> None:
        self.context, self.recipe = context, context.recipe
        self.methods = [get(name, self.recipe) for name in self.recipe.methods]
        self.learners = [method for method in learners(self.recipe) if method.reward is None]
        self.seed = {"seed": self.recipe.seed}
        self.rules = {"rules": {name: task.rules for name, task in context.tasks.items()}}
        self.tasks = {"tasks": {name: _identity(task) for name, task in context.tasks.items()}}
        self.stages: dict[str, StagePlan] = {}
        self.steps: dict[str, Input] = {}
        """The training questions and their rationales in segments."""
        self.functional: dict[str, Input] = {}
        """The traces and the codebook that they are written in."""
        self.answering: dict[str, Input] = {}
        """The test questions, and each model that answers them here."""
        self.models: dict[str, StagePlan] = {}
        self.scoring: list[StagePlan] = []
        """The training of the model that pruning scores results with: part of the run only where something is pruned."""

    def plan(self) -> list[StagePlan]:
        """All stages in order; where K is still to be chosen, those up to the choice."""
        coded = any(method.functional for method in self.learners) or bool(self.recipe.codebook.sizes)
        self._problems()
        if coded or self.learners:
            self._rationales()
        if coded or any(method.results for method in self.learners):
            self._results()
        if coded:
            books = self._codebooks()
            if self.recipe.codebook.auto and any(method.functional for method in self.learners):
                self._choice_of_size(books)
                if self.recipe.codebook.size == "auto":  # until it is chosen the later stages are unknown
                    return [*self.stages.values()]
            self._traces(books[self.recipe.codebook.codes])
        for method in self.methods:
            self._answers(method)
        self._latency()
        if self.recipe.evaluate.voting.votes:
            self._votes()
        return [*self.stages.values()]

    def _add(
        self, name: str, section: Mapping[str, Any], inputs: Mapping[str, Input], make: Maker, *given: Any, **more: Any
    ) -> StagePlan:
        """Add a stage made by ``make``, a function of the context, what is ``given``, and the stage's folder."""
        self.stages[name] = StagePlan(name, section, inputs, partial(make, self.context, *given), **more)
        return self.stages[name]

    def _problems(self) -> None:
        recipe = self.recipe
        learning = {"trains": lineage.trains(recipe), "answering": [origin.methods for origin in lineage.origins(recipe)]}
        drawn = keys.problems(recipe) | self.seed | self.rules | learning
        problems = self._add("problems", drawn, problem_files(recipe) | lineage.lineage_files(recipe), data.problems, version=11)
        self.steps["problems"] = StagePart(problems, ("train.jsonl", "validation.jsonl"))
        self.answering["problems"] = StagePart(problems, ("test/",))

    def _rationales(self) -> None:
        section, learnt = self.recipe.rationales, {"problems": self.steps["problems"]}
        found = learnt | rationale_files(self.recipe)
        if section.source == "teacher":
            asking = (
                keys.asking(section.teacher)
                | section.model_dump(include={"per_problem", "check", "part"})
                | self.seed
                | self.rules
            )
            asking |= {"segments": keys.segments(self.recipe), "template": teacher_prompt(self.recipe)}
            found["teacher"] = self._add("teacher", asking, learnt, data.teacher, version=3)
        gathered = section.model_dump(exclude={"teacher"}) | self.rules
        rationales = self._add("rationales", gathered, found, data.rationales, version=9)
        cut = keys.segments(self.recipe) | keys.drawing(self.recipe) | keys.left_out_scores(self.recipe)
        self.steps["segments"] = self._add("segments", cut, learnt | {"rationales": rationales}, data.segments, version=11)

    def _results(self) -> None:
        written = keys.results(self.recipe) | self.rules
        if self.recipe.results.by == "llm":
            written |= self.seed | {"writer": keys.asking(self.recipe.results.writer), "template": writer_prompt(self.recipe)}
        version = 11 if self.recipe.results.by == "llm" or self.recipe.results.values == "used" else 10
        self._add("results", written, self.steps | result_files(self.recipe), data.results, version=version)

    def _codebooks(self) -> dict[int, StagePlan]:
        recipe = self.recipe
        embeddings = self._add("embeddings", keys.embedding(recipe), self.steps, codes.embeddings, divided=True)

        def book(size: int) -> StagePlan:
            how, vectors = keys.codebook(recipe, size), self.steps | {"embeddings": embeddings}
            return self._add(f"codebook-{size}", how, vectors, codes.codebook, size, version=3, divided=True)

        return {size: book(size) for size in dict.fromkeys((recipe.codebook.codes, *recipe.codebook.sizes))}

    def _choice_of_size(self, books: Mapping[int, StagePlan]) -> None:
        """For each size traces and a short training that answers held-out questions, and the choice of K by these."""
        method, results = get(SCORED_BY, self.recipe), self.stages["results"]
        trials: dict[str, Input] = {}
        offered = sorted(set(self.recipe.codebook.sizes))
        for size in offered:
            read = {"problems": self.steps["problems"], "results": results, "codebook": books[size]}
            traces = self._add(codes.traced(size), {}, read, codes.traces, size)
            how = keys.size_trial(self.recipe, method, size) | self.rules | self.tasks | self._asking([method])
            given = self.steps | {"results": results, "codebook": books[size], "traces": traces}
            trial = self._add(f"sized/{size}", how, given, codes.trial, size, together=True)
            trials[trial.name] = trial
        self._add(codes.CHOICE, {}, trials, codes.choose, offered)

    def _traces(self, book: StagePlan) -> None:
        read = {"problems": self.steps["problems"], "results": self.stages["results"], "codebook": book}
        section = self.recipe.segments
        joined = section.model_dump(include={"adjacent"}) if section.adjacent == "merge" else {}
        self.functional = {"traces": self._add("traces", joined, read, data.traces), "codebook": book}
        self.scoring = self._training(get(SCORED_BY, self.recipe), self.steps | self.functional)

    def _model(self, method: Method) -> Input:
        """What the answers of a method are made by: the stage that trains its model, or the hash of a model from elsewhere."""
        if method.learner in self.recipe.models:
            return model_hash(self.recipe.models[method.learner])
        if not method.trained:
            return model_hash(self.recipe.backbone.model, self.recipe.backbone.revision)
        if method.learner not in self.models:
            self.models[method.learner] = self._trained(get(method.learner, self.recipe))
        return self.models[method.learner]

    def _trained(self, method: Method) -> StagePlan:
        """The stage that ends in a method's own model, after those that it is made from."""
        if method.reward is not None:
            given = {"problems": self.steps["problems"], "start": self._model(get(str(method.start), self.recipe))}
            budget = keys.budget([method], self.context.tasks, self.recipe.evaluate)
            how = keys.rewarding(self.recipe, method) | self.rules | self.tasks | budget
            return self._add(f"models/{method.name}", how, given, rewards.train, method.name)
        inputs = self.steps | (self.functional if method.functional else {})
        if method.results:
            inputs |= {"results": self.stages["results"]}
        if method.prepares():
            judges = {f"model/{name}": self._model(get(name, self.recipe)) for name in method.needs()}
            how = keys.preparing(self.recipe, method) | self.rules
            made = self._add(f"prepared/{method.name}", how, self.steps | judges, data.prepare, method.name)
            inputs["prepared"] = made
        if method.pruning:
            self._keep(self.scoring)
            inputs["traces"] = self._compressed(method)
        if method.start:
            inputs["start"] = self._model(get(method.start, self.recipe))
        return self._keep(self.scoring if method.name == SCORED_BY else self._training(method, inputs))

    def _keep(self, stages: Sequence[StagePlan]) -> StagePlan:
        """The last of the stages, all of which are part of the run now."""
        for stage in stages:
            self.stages.setdefault(stage.name, stage)
        return stages[-1]

    def _training(self, method: Method, inputs: Mapping[str, Input]) -> list[StagePlan]:
        """The stages that end in a method's model: its training, after one a learning rate where there are several to try."""
        recipe, name, context = self.recipe, method.name, self.context
        section, epochs = recipe.finetune, recipe.finetune.trial_epochs
        rates = section.tried(name, method.training)
        whole = section.resolved(name, method.training).epochs
        if rates and whole != "auto" and epochs >= whole:
            longer = f"trials of {epochs:g} epochs are no shorter than the training of {name}, {whole:g}"
            raise CirfError(f"finetune.trial_epochs: {longer}; lower it")
        if len(rates) == 1:  # nothing to choose
            section, rates = section.alone(name, rates[0]), ()
        how = keys.training(recipe, section, method) | self.tasks
        whole_training = StagePlan(
            f"models/{name}", how, inputs, partial(models.finetune, context, name, section), 2, together=True
        )
        if not rates:
            return [whole_training]

        def trial(rate: float) -> StagePlan:
            how = keys.training(recipe, section.alone(name, rate, epochs), method) | self.tasks | {"kept": False}
            make = partial(models.trial, context, name, rate)
            return StagePlan(f"trials/{name}/{rate}", how, inputs, make, 2, together=True)

        trials = {stage.name: stage for stage in map(trial, rates)}
        best = partial(models.train_best, context, name, rates)
        return [*trials.values(), replace(whole_training, inputs={**inputs, **trials}, make=best)]

    def _compressed(self, method: Method) -> StagePlan:
        """The stage of a method's compressed traces, after the searches that they are made from."""
        section, traces = self.recipe.compression, self.functional["traces"]
        scored = section.model_dump(include={"dtype", "batch_tokens"}) | {
            "backbone": self.recipe.backbone.model_dump(include={"attn_implementation", "empty_system"})
        }
        inputs = {"model": self.scoring[-1], "traces": traces}

        def search(selector: Selector) -> StagePlan:
            how = scored | {"limit": str(compress.limit(section, selector))}
            return self._add(f"compression/{selector}", how, inputs, compress.search_removals, selector, divided=True)

        searches = {stage.name: stage for stage in map(search, compress.rests_on(section, method))}
        by, searched = {"by": compress.rule(section, method)}, {"traces": traces} | searches
        return self._add(f"compressed/{method.name}", by, searched, compress.pruned_traces, method.name)

    def _answers(self, method: Method) -> None:
        """What a method answers: held-out questions, test questions, those of sampled runs and of probes."""
        recipe, name, model = self.recipe, method.name, self._model(method)
        inputs = {"problems": self.answering["problems"], "model": model}
        judged = self._judging([method])
        if recipe.evaluate.check_questions and isinstance(model, StagePlan) and method.learner == name:
            held_out = {"problems": self.steps["problems"], "model": model}
            how = keys.checking(recipe, method) | judged
            self._add(f"checks/{name}", how, held_out, checks.checking, name, version=2, divided=True)
        served = name in recipe.evaluate.endpoints  # then its model answers, whatever the run's is
        evaluated = {"problems": self.answering["problems"]} if served else inputs
        how = keys.evaluation(recipe, method, recipe.evaluate) | judged
        self._add(f"evaluation/{name}", how, evaluated, scores.evaluate, name, recipe.evaluate, version=2, divided=True)
        if drawing := keys.sampled(recipe.evaluate):
            how = keys.evaluation(recipe, method, drawing) | judged
            self._add(f"sampled/{name}", how, evaluated, scores.evaluate, name, drawing, version=2, divided=True)
        if names := probes.names_for(method, recipe):
            how = keys.probing(recipe, method, names) | judged
            self._add(f"probes/{name}", how, inputs, probes.probing, name, version=3)
        if not served:
            self.answering[f"model/{name}"] = model

    def _latency(self) -> None:
        section = self.recipe.evaluate
        here = [method for method in self.methods if method.name not in section.endpoints]
        if not here or not section.latency_questions:
            return
        repeated = {"latency_runs"} if section.temperature > 0 and section.latency_runs > 1 else set()
        timed = keys.timing(self.recipe, here, {"latency_questions", "latency_warmup"} | repeated)
        self._add("latency", timed | self._judging(here), self.answering, timing.latency)

    def _votes(self) -> None:
        """The votes of a method, and their results. Only drawing needs the model."""
        recipe, section = self.recipe, self.recipe.evaluate.voting
        name, other = section.method, votes.compared_with(recipe)
        if name not in recipe.methods:
            raise CirfError(f"evaluate.voting.method: {name} is none of the methods ({', '.join(recipe.methods)}); add it")
        voter, problems = get(name, recipe), self.answering["problems"]
        model = self.answering.get(f"model/{name}")  # none where a server answers
        drawn = keys.drawn(recipe, voter) | {"votes": max(section.votes), "problems": section.problems} | self._judging([voter])
        inputs = {"problems": problems} | ({"model": model} if model else {})
        drawing = self._add(f"votes/{name}", drawn, inputs, votes.drawing, name, model, version=2)
        counted: dict[str, Input] = {"problems": problems, "votes": drawing}
        if other is not None:
            counted["alone"] = StagePart(
                self.stages[f"evaluation/{other}"], tuple(f"{task}.jsonl" for task in self.context.tasks)
            )
        by = {key: value for key, value in drawn["evaluate"].items() if key in ("engine", "endpoint")}
        how = {"voting": section.model_dump(include={"votes", "problems"}) | {"against": other}} | by | self.rules
        self._add(f"voting/{name}", how, counted, votes.voting, name, version=3)

    def _judging(self, methods: Sequence[Method]) -> dict[str, Any]:
        """What answers and verdicts depend on besides the models: the tasks' rules, and their wordings if an untrained method is
        prompted with them."""
        wordings = {"wordings": {name: task.wordings for name, task in self.context.tasks.items()}}
        return self.rules | ({} if all(method.trained for method in methods) else wordings) | self._asking(methods)

    def _asking(self, methods: Sequence[Method]) -> dict[str, Any]:
        """The openings of prompts, and the methods' caps within the one budget."""
        tasks = self.context.tasks
        return scores.key(methods, tasks) | keys.budget(methods, tasks, self.recipe.evaluate)


def _identity(task: Task) -> list[Any]:
    """What identifies a task where only its prompts count."""
    return [task.name, task.version, *([task.origin] if task.origin else [])]
