"""The input of analyses: one run, or the runs of a sweep, each with its report's data and its files, read on first access.

The paper's own values, marked as theirs wherever they are shown, are in ``published.json``, a list of rows a table; accuracies
are in percent, times in seconds an answer.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

from cirf.analysis.names import display_names
from cirf.lm.vocabulary import parse_trace
from cirf.store.jsonl import read_rows
from cirf.store.view import RunView

PAPER = "paper"  # the source of rows from the paper


@cache
def _tables() -> Any:
    return json.loads((files("cirf.analysis") / "published.json").read_text(encoding="utf-8"))


def published(table: str) -> list[dict[str, Any]]:
    """The rows of one of the paper's tables, each with ``source`` set to ``paper``."""
    return [{"source": PAPER, **row} for row in _tables()[table]]


Row = dict[str, Any]
Tables = Mapping[str, Sequence[Row]]  # rows of an evaluation, by task


class Run:
    """A run's folder, opened by its recipe. ``name`` identifies it in a sweep; ``part`` and ``settings``: the sweep's part and
    the run's settings (dotted recipe keys), empty for a run alone. ``collect`` gives the data of its report (``report.json``);
    ``warning``: a warning for the reader."""

    def __init__(
        self,
        folder: Path,
        collect: Callable[[], Mapping[str, Any]],
        stages: Collection[str] | None = None,
        *,
        name: str = "",
        part: str = "",
        settings: Mapping[str, Any] | None = None,
        warning: str = "",
    ) -> None:
        self.folder, self.name, self.part, self.warning = folder, name or folder.name, part, warning
        self.settings: Mapping[str, Any] = settings or {}
        self.shown = RunView(folder, stages)
        self._collect = collect
        self._answers: dict[str, Tables] = {}
        self._coded: dict[int, Sequence[Row]] = {}

    @property
    def source(self) -> str:
        """Its name in tables with the paper and other runs; one of a sweep's runs has a part or settings."""
        return self.name if self.part or self.settings else "this run"

    @cached_property
    def data(self) -> Mapping[str, Any]:
        return self._collect()

    @property
    def recipe(self) -> Mapping[str, Any]:
        recipe: Mapping[str, Any] = self.data["recipe"]
        return recipe

    def key(self, dotted: str) -> Any:
        """A key of the recipe, such as ``codebook.size``; ``None`` where there is none."""
        value: Any = self.recipe
        for part in dotted.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value

    def file(self, stage: str, name: str) -> Path | None:
        """A file of a finished stage; ``None`` if there is none."""
        path = self.shown.at(stage) / name
        return path if path.is_file() else None

    def _rows(self, stage: str, name: str) -> list[Row]:
        path = self.file(stage, name)
        return [] if path is None else read_rows(path)

    @cached_property
    def methods(self) -> Mapping[str, Mapping[str, Any]]:
        methods: Mapping[str, Mapping[str, Any]] = self.data["methods"]
        return methods

    @cached_property
    def titles(self) -> Mapping[str, str]:
        return display_names(list(self.methods), self.recipe.get("variants", {}))

    def answers(self, method: str) -> Tables:
        """The evaluation's rows of a method, by task in the report's order."""
        if method not in self._answers:
            tasks = self.methods.get(method, {}).get("tasks", {})
            self._answers[method] = {task: self._rows(f"evaluation/{method}", f"{task}.jsonl") for task in tasks}
        return self._answers[method]

    @cached_property
    def trained_on(self) -> frozenset[str]:
        """Tasks with training problems: the others are out of domain."""
        return frozenset(self.data["data"]["train"])

    @cached_property
    def problems(self) -> Mapping[str, Row]:
        return {row["id"]: row for row in self._rows("problems", "train.jsonl")}

    @cached_property
    def rationales(self) -> Mapping[tuple[str, int], str]:
        return {(row["problem"], row["sample"]): row["text"] for row in self._rows("rationales", "rationales.jsonl")}

    @cached_property
    def traces(self) -> Mapping[tuple[str, int], Row]:
        """Functional traces of training rationales (``codes``, ``results``, ``answer``), by problem and sample."""
        return {(row["problem"], row["sample"]): row for row in self._rows("traces", "traces.jsonl")}

    @cached_property
    def tokenizer(self) -> Any:
        """The backbone's tokenizer; loading it takes seconds. ``CirfError`` if it is not on this machine."""
        from cirf.lm.backbone import load_tokenizer
        from cirf.recipe.schema import Backbone

        section = Backbone.model_validate(self.recipe["backbone"])
        return load_tokenizer(section.model, section)

    @property
    def codebook(self) -> str:
        return f"codebook-{self.key('codebook.size')}"

    def coded(self, size: int) -> Sequence[Row]:
        """Rationales that models are trained on, by the codebook of that size: ``problem``, ``sample``, ``task``, ``codes``."""
        if size not in self._coded:
            codes = self._rows(f"codebook-{size}", "codes.jsonl")
            tasks = {name: problem["task"] for name, problem in self.problems.items()}
            self._coded[size] = [row | {"task": tasks[row["problem"]]} for row in codes if row["problem"] in tasks]
        return self._coded[size]

    @cached_property
    def training_codes(self) -> Mapping[tuple[str, int], list[int]]:
        return {(row["problem"], row["sample"]): row["codes"] for row in self.coded(self.key("codebook.size"))}

    @cached_property
    def training_tasks(self) -> Mapping[str, str]:
        return {row["problem"]: row["task"] for row in self.coded(self.key("codebook.size"))}


@dataclass(frozen=True)
class Source:
    """One run or several. ``paper``: show the paper's values next to ours, marked as theirs."""

    runs: Sequence[Run]
    paper: bool = False

    @property
    def single(self) -> Run:
        """The only run; of several the first."""
        return self.runs[0]

    def first(self, fits: Callable[[Run], object]) -> Run:
        """The first run that has what is needed; the first of all where none has."""
        return next((run for run in self.runs if fits(run)), self.single)

    def notes(self, run: Run) -> list[str]:
        """A note on which of several runs an analysis of a single run uses. Empty if there is only one."""
        several = len({one.folder.resolve() for one in self.runs})
        return [f"This is of {run.name} alone, the first of {several} runs that has what it needs."] if several > 1 else []


_EDGE = re.compile(r"<(?:cirf|think)>")
_END = re.compile(r"</(?:cirf|think)>")


def read_codes(output: str) -> list[tuple[int | None, str]]:
    """Each functional token of a trace with the text after it, up to the closing delimiter: of
    ``<cirf><cirf_016>48<cirf_023>72</cirf>72`` it is ``[(16, "48"), (23, "72")]``. A token without a result has an empty text;
    text before the first token has ``None``."""
    steps = parse_trace(_EDGE.sub("", _END.split(output, maxsplit=1)[0]))
    return [(code, text.strip()) for code, text in steps if code is not None or text.strip()]


def is_functional(output: str) -> bool:
    return any(code is not None for code, _ in parse_trace(output))
