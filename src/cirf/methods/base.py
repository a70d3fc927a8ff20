"""What a method is: its prompts, its training targets, and how its output is read.

One file per method. A method defines only what is specific to it. The prompt builder, the training loop, decoding, answer parsing
and timing are shared, so two methods differ in a table only where they differ here.

The smallest one that trains says what to write and how to read it back::

    class Backwards(Method):
        name, summary, trained = "backwards", "fine-tuned to write the answer's characters in reverse", True

        def target(self, example: Example) -> str:
            return example.problem.answer[::-1]

        def read(self, output: str) -> tuple[str, str]:
            return "", output[::-1]

Whatever else a method may do is a function here that does nothing until it is overridden.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from cirf.compression.search import Selector
from cirf.errors import CirfError
from cirf.lm.prompt import before_template
from cirf.progress import Progress
from cirf.recipe.schema import Evaluate, Override, Recipe, Reward, Section
from cirf.records import Example, Problem, Steps, Trace
from cirf.store.files import RowLog
from cirf.tasks.parsing.thoughts import thoughts_apart
from cirf.tasks.task import Task

if TYPE_CHECKING:
    from cirf.lm.decoding.generate import Steer
    from cirf.lm.decoding.prefix_cache import Prefiller
    from cirf.lm.training.objective import Curriculum, CurriculumRow, Objective


@dataclass(frozen=True)
class PreparationData:
    """The rationales of training and held-out problems, cut into steps, and the means to work on them; ``held_out`` are the ids
    of the latter.

    ``annotated`` are the same steps with the calculator notes that some data sets hold. ``tokenizer`` loads the backbone's.
    ``answers`` samples the trained model of a method, as an evaluation does, on every problem that has a rationale: a number of
    times, at a temperature and nucleus. It returns the rows of `cirf.evaluation.harness` by problem, kept in ``folder``.
    ``asked`` is the log of what language models answered, by a name of it; it outlives the stage. Files in ``scratch`` survive a
    kill; files in ``folder`` stay, and are `Method.prepared` in training.
    """

    recipe: Recipe
    problems: dict[str, Problem]
    tasks: dict[str, Task]
    steps: Sequence[Steps]
    annotated: Sequence[Steps]
    tokenizer: Callable[[], Any]
    scratch: Path
    progress: Progress
    folder: Path
    held_out: frozenset[str]
    asked: Callable[[str], RowLog]
    answers: Callable[[str, int, float, float], Mapping[str, list[dict[str, Any]]]]


FIXED_LR: dict[str, Any] = {"lr_scheduler_type": "constant", "warmup_steps": 0, "max_grad_norm": 1e9}
"""Keys of training at one learning rate, without clipping, as several publications' code trains."""


class NoSettings(Section):
    """A method that has none."""


@dataclass(frozen=True)
class Preset:
    """Settings of a method as one source has them, and how that source trains it (keys of the recipe's `finetune`)."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    training: Override = field(default_factory=Override)


class Method:
    """A way of answering questions with one backbone.

    ``name`` is the method's, or in a run the variant's; ``summary`` is for lists. ``trained``: whether it fine-tunes.
    ``functional``: whether it needs the functional tokens in the vocabulary. ``results``: whether its examples hold the results
    of steps without functional tokens. ``pruning``: the search for results to remove from its traces (``None``: none). ``caps``
    are the keys of the recipe's `evaluate` that its cap reads. ``ends``: whether the end token is a target. ``tokens`` are new
    tokens besides the functional ones. They start at the rows of the token ``tokens_like`` (``None``: at the mean row);
    ``tokens_learn``: whether adapter training also trains their rows. ``start`` names the method whose trained model it is
    fine-tuned from (``None``: the backbone). ``latents``: the number of latent vectors before the answer, which engines for
    tokens alone cannot compute. They are the model's own states, or come from a smaller model, the ``guide`` (a folder, a hub id
    or ``bundled:NAME``). ``frozen``: only the objective's module is trained, not the backbone. ``steered``: whether processors of
    logits hold its answers to a form (`steer`). ``version`` grows when a change would change its rows or readings.

    ``Settings`` is the schema of its own settings, of which those in ``answering`` matter only when it answers, not when it is
    trained. Those in ``quiet`` are not reported at their defaults, so earlier artefacts stay valid; ``presets`` are sets of them.
    """

    name: str = ""
    summary: str = ""
    trained: bool = False
    functional: bool = False
    results: bool = False
    pruning: Selector | None = None
    caps: tuple[str, ...] = ()
    ends: bool = True
    tokens: tuple[str, ...] = ()
    tokens_like: str | None = None
    tokens_learn: bool = True
    start: str | None = None
    latents: int = 0
    guide: str | None = None
    frozen: bool = False
    steered: bool = False
    version: int = 1
    Settings: ClassVar[type[Section]] = NoSettings
    answering: ClassVar[frozenset[str]] = frozenset()
    quiet: ClassVar[frozenset[str]] = frozenset()
    presets: ClassVar[Mapping[str, Preset]] = {}

    def __init__(self, recipe: Recipe, settings: Any = None) -> None:
        """``settings`` is a ``Settings``; ``None``: the defaults."""
        self.settings: Any = self.Settings() if settings is None else settings
        self._seed = recipe.seed
        self.training = Override()
        """How its preset trains it."""
        self.learner = self.name
        """The method whose model answers for it: itself, unless a variant takes another's."""
        self.origin = ""
        """Hash of the file it comes from, for a method of the user's own."""
        self.reward: Reward | None = None
        """How it is trained on by reward, for a variant that is."""
        self.prepared: Path | None = None
        """The folder of what it prepared, while it is trained."""

    def prompt(self, problem: Problem, task: Task) -> str:
        """The user turn: the question alone. It may read the question and the options, never the answer or the rationale."""
        return task.render(problem)

    def training_prompt(self, example: Example, task: Task) -> str:
        """The user turn of a training row: the same, unless the method teaches several ways of asking."""
        return self.prompt(example.problem, task)

    def retrace(self, traces: Sequence[Trace]) -> list[Trace]:
        """The traces of all training and validation rows as a functional method writes them: unchanged, except for a control."""
        return list(traces)

    def target(self, example: Example) -> str:
        """The training target after the prompt, without the end token. Untrained methods raise ``TypeError``."""
        raise TypeError(f"{self.name} is not trained")

    def set_aside(self, output: str) -> tuple[str, str]:
        """The thoughts in an output (``<think>...</think>``), which hold no answer, and the rest, which `read` gets. A `read` of
        the user's own gets the whole output, since marks of thoughts may belong to its form."""
        return ("", output) if self.reads_marks else thoughts_apart(output)

    @property
    def reads_marks(self) -> bool:
        """Whether `read` is of the user's own, to which marks of thoughts may be part of the form."""
        return not type(self).read.__module__.startswith("cirf.")

    def read(self, output: str) -> tuple[str, str]:
        """An output's two halves: the reasoning, and the text that the task's parser reads the answer from."""
        return "", output

    def well_formed(self, output: str) -> bool | None:
        """Whether a finished output has the form of the targets; ``None``: they have no fixed form."""
        return None

    def cap(self, task: Task, section: Evaluate) -> int:
        """Most tokens that may be generated: the task's cap of an answer."""
        return task.cap

    def budget(self, task: Task, section: Evaluate) -> int:
        """Most tokens that are generated: its cap, or the recipe's budget less its latent vectors.
        ``CirfError`` if none are left."""
        cap, budget, vectors = self.cap(task, section), section.max_completion_tokens, self.latents_answering
        if budget is None:
            return cap
        if budget <= vectors:
            raise CirfError(
                f"evaluate.max_completion_tokens: {budget}, but {self.name} answers after {vectors} vectors; raise it"
            )
        return min(cap, budget - vectors)

    @property
    def latents_answering(self) -> int:
        """The number of latent vectors when answering, where it is not that of training."""
        return self.latents

    def openings(self, task: Task) -> tuple[str, ...]:
        """The shared prefixes of its prompts to a task, computed once for all questions."""
        return ()

    def check(self, recipe: Recipe) -> None:
        """``CirfError`` for settings that do not fit a recipe; called before any work."""

    def caveats(self) -> tuple[str, ...]:
        """Caveats about its results that follow from its settings; the run and the report state them."""
        return ()

    def settle(self, tokenizer: Any, training: bool) -> None:
        """Change the tokenizer's chat template where the method puts something into every prompt. Called once the new tokens
        are there, for training and again for the model that is saved."""

    def needs(self) -> tuple[str, ...]:
        """Methods whose trained models `prepare` reads."""
        return ()

    def prepares(self) -> bool:
        """Whether `prepare` is called: where a method has its own."""
        return type(self).prepare is not Method.prepare

    def prepared_by(self, recipe: Recipe) -> dict[str, Any]:
        """What `prepare` reads of the recipe besides the backbone, the seed and the method's own settings."""
        return {}

    @property
    def reads(self) -> tuple[str, ...]:
        """Folders, hub ids or ``bundled:NAME`` of the models that `prepare` reads, which count by their content."""
        return (self.guide,) if self.guide else ()

    def prepare(self, material: PreparationData) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Prepare the rationales before training, in a separate stage: one row each with ``problem`` and ``sample``, available as
        an example's ``prepared``, and a report. A row's ``given`` is a number by which the objective finds the row's data
        (`cirf.lm.training.batches.Feature.given`)."""
        raise TypeError(f"{self.name} prepares nothing")

    def curriculum(
        self, train: Sequence[CurriculumRow], validation: Sequence[CurriculumRow], tokenizer: Any, epochs: float, updates: int
    ) -> Curriculum | None:
        """How the rows change during training, at ``updates`` updates per epoch; ``None``: they do not."""
        return None

    def objective(self, model: Any, source: Path | str) -> Objective | None:
        """What the training of ``model`` minimises, which was loaded from ``source`` and has its new tokens; ``None``: the
        cross-entropy of the targets."""
        return None

    def keep(self, folder: Path, objective: Objective | None) -> None:
        """Write the files that a trained model needs besides its weights; ``objective`` is as training left it."""

    def beginnings(self, model: Any, tokenizer: Any, source: Path | str) -> Prefiller | None:
        """What its model, loaded from ``source``, does with a prompt before it answers; ``None``: it only reads it."""
        return None

    def steer(self, model: Any, tokenizer: Any) -> Steer:
        """What makes the logits processors that hold its answers to a form, batch by batch; ``tuple``: nothing does."""
        return tuple

    @property
    def base(self) -> str:
        """The method's own name, whatever a variant calls it."""
        return type(self).name

    @property
    def identity(self) -> dict[str, Any]:
        """What of the method's own decides its rows and answers; empty for one without settings that goes by its own name."""
        details = self.settings.model_dump(mode="json", exclude=self._unsaid)
        own = {"settings": details} if details else {}
        own |= {"method": self.base} if self.base != self.name else {}
        return own | ({"origin": self.origin} if self.origin else {}) | ({"version": self.version} if self.version > 1 else {})

    @property
    def asked_by(self) -> dict[str, Any]:
        """Of the settings, those that matter only when answering."""
        details: dict[str, Any] = self.settings.model_dump(mode="json", include=set(self.answering) - self._unsaid)
        return details

    @property
    def taught_by(self) -> dict[str, Any]:
        """Of the identity, what its training depends on."""
        kept = self.settings.model_dump(mode="json", exclude=self._unsaid | self.answering)
        found = {key: value for key, value in self.identity.items() if key != "settings"} | ({"settings": kept} if kept else {})
        training = self.training.model_dump(exclude_none=True)
        by_reward = {} if self.reward is None else {"reward": self.reward.model_dump(mode="json", exclude={"save_steps"})}
        return found | ({"preset": training} if training else {}) | by_reward

    @property
    def _unsaid(self) -> set[str]:
        """Quiet settings at their defaults."""
        fields = type(self.settings).model_fields
        return {name for name in self.quiet & set(fields) if getattr(self.settings, name) == fields[name].default}


def around_turn(template: str, before: str, after: str) -> str:
    """A chat template that puts ``before`` and ``after`` around the text of the user's turn which is to be answered."""
    return before_template(
        template,
        "{%- if add_generation_prompt and messages and messages[-1]['role'] == 'user' %}"
        "{%- set messages = (messages | list)[:-1] + [{'role': 'user', 'content': "
        f"{_quoted(before)} + messages[-1]['content'] + {_quoted(after)}}}] %}}"
        "{%- endif -%}\n",
    )


def at_head_of_answer(template: str, text: str) -> str:
    """A chat template that puts ``text`` at the head of the assistant's turn, after its opening; twice is once."""
    added = "{{ " + _quoted(text) + " if add_generation_prompt else '' }}"
    return template if template.endswith(added) else template.removesuffix("\n") + added


def _quoted(text: str) -> str:
    """A string of the template language."""
    if "'" in text or "\\" in text:
        raise CirfError(f"a chat template cannot hold {text!r}; use a text without quotes and backslashes")
    return "'" + text.replace("\n", "\\n") + "'"
