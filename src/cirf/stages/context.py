"""What every stage is given: the recipe, the run's folder, and the artefacts read back as records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from random import Random
from typing import TYPE_CHECKING, Any

from cirf.errors import CirfError
from cirf.progress import SILENT, Progress
from cirf.recipe.schema import Recipe
from cirf.records import Example, Problem, Rationale, Steps, Trace
from cirf.store.files import RowLog, load_object
from cirf.store.jsonl import read_rows
from cirf.store.run_folder import RunFolder

if TYPE_CHECKING:
    from cirf.methods.base import Method
    from cirf.tasks.task import Task


@dataclass
class Context:
    """One run at work."""

    recipe: Recipe
    folder: RunFolder
    progress: Progress = SILENT
    loaded: dict[str, Any] = field(default_factory=dict)
    """The language model in memory, by the folder it came from; at most one."""
    traced: str = "traces"
    """The stage whose traces methods without pruning are trained on."""

    @cached_property
    def tasks(self) -> dict[str, Task]:
        """The tasks of this run by their name in tables."""
        from cirf.tasks import resolve

        return resolve(self.recipe.problems)

    @cached_property
    def width(self) -> int:
        """Width of a code: the backbone's, unless the recipe names the same number itself."""
        from cirf.assets import resolve
        from cirf.lm.backbone import embedding_width

        wanted = self.recipe.codebook.dimension
        width = embedding_width(resolve(self.recipe.backbone.model, self.progress), self.recipe.backbone)
        if wanted not in ("backbone", width):
            raise CirfError(f"codebook.dimension: {wanted}, but the backbone's embeddings are {width} wide; use backbone")
        return width

    def run_seed(self, run: int) -> int:
        """The seed of a sampled run, the recipe's for the first."""
        return self.recipe.seed if run == 0 else Random(f"{self.recipe.seed} {run}").getrandbits(31)

    def rows(self, stage: str, name: str) -> list[dict[str, Any]]:
        """The rows of a finished stage's JSONL file."""
        return read_rows(self.folder.folder(stage) / name)

    def report(self, stage: str, name: str = "report.json") -> dict[str, Any]:
        """A finished stage's report."""
        path = self.folder.folder(stage) / name
        if (loaded := load_object(path)) is None:
            raise CirfError(f"{path}: missing; remove the folder {path.parent} and run again")
        return loaded

    def asked(self, what: str) -> RowLog:
        """The log of language models' answers, kept outside the stages: answers cost time and money, so they outlive the stage
        that requested them."""
        return RowLog(self.folder.root / "asked" / f"{what}.jsonl")

    def train(self) -> list[Problem]:
        return [Problem.from_dict(row) for row in self.rows("problems", "train.jsonl")]

    def validation(self) -> list[Problem]:
        """The held-out part of the training problems."""
        return [Problem.from_dict(row) for row in self.rows("problems", "validation.jsonl")]

    def held_out(self, count: int) -> dict[str, list[Problem]]:
        """The first ``count`` held-out problems by task."""
        first = self.validation()[:count]
        by_task = {task: [problem for problem in first if problem.task == task] for task in self.tasks}
        return {task: problems for task, problems in by_task.items() if problems}

    def test(self) -> dict[str, list[Problem]]:
        return {name: [Problem.from_dict(row) for row in self.rows("problems", f"test/{name}.jsonl")] for name in self.tasks}

    def rationales(self) -> list[Rationale]:
        """The worked solutions of training and validation problems."""
        return [Rationale.from_dict(row) for row in self.rows("rationales", "rationales.jsonl")]

    def steps(self) -> list[Steps]:
        return [Steps.from_dict(row) for row in self.rows("segments", "segments.jsonl")]

    def traces(self, stage: str = "traces") -> list[Trace]:
        """The solutions in functional form, as a stage has them."""
        return [Trace.from_dict(row) for row in self.rows(stage, "traces.jsonl")]

    def examples(self, method: Method) -> tuple[list[Example], list[Example]]:
        """Training and validation examples of a method in the order of the segments; bare answers for traces if it has none,
        results without codes if that is enough, and what it prepared itself."""
        training = {problem.id: problem for problem in self.train()}
        held_out = {problem.id: problem for problem in self.validation()}
        traces: dict[tuple[str, int], Trace] = {}
        if method.functional:
            stage = f"compressed/{method.name}" if method.pruning else self.traced
            traces = {(trace.problem, trace.sample): trace for trace in method.retrace(self.traces(stage))}
        results: dict[tuple[str, int], tuple[str, ...]] = {}
        if method.results:
            results = {(row["problem"], row["sample"]): tuple(row["results"]) for row in self.rows("results", "results.jsonl")}
        prepared: dict[tuple[str, int], dict[str, Any]] = {}
        if method.prepares():
            prepared = {(row["problem"], row["sample"]): row for row in self.rows(f"prepared/{method.name}", "rows.jsonl")}
        merging = method.functional and self.recipe.segments.adjacent == "merge"
        runs = self.rows(f"codebook-{self.recipe.codebook.codes}", "codes.jsonl") if merging else ()
        codes = {(row["problem"], row["sample"]): row["codes"] for row in runs}
        split: tuple[list[Example], list[Example]] = ([], [])
        for steps in self.steps():
            inside = steps.problem in training
            problem = training[steps.problem] if inside else held_out[steps.problem]
            where = (steps.problem, steps.sample)
            bare = Trace(*where, (), results.get(where, ()), problem.answer)
            trace = traces[where] if method.functional else bare
            segments = _merged(steps.segments, codes[where]) if merging else steps.segments
            split[0 if inside else 1].append(Example(problem, segments, trace, prepared.get(where)))
        return split


def _merged(segments: Sequence[str], codes: Sequence[int]) -> tuple[str, ...]:
    """Adjacent steps of one code as one, as their trace has them (``segments.adjacent``)."""
    paired = zip(codes, segments, strict=True)
    return tuple("\n".join(text for _, text in run) for _, run in groupby(paired, key=itemgetter(0)))
