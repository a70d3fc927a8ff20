"""SemCoT (He et al. 2025, arXiv 2510.24940; code YinhanHe123/SemCoT, MIT): a small model computes vectors that carry a
rationale's meaning.

A generator, here the guide, reads the question and n places that hold one learned vector; its states there, through a linear
map, go into the prompt of the frozen backbone. They are trained for the answer, and to have the rationale's meaning::

    loss = alpha (1 - cos(T(Z), T(H(rationale)))) + (1 - alpha) CE(answer)

The meaning of a text is given by T, a copy of some middle layers of the backbone (`cirf.methods.soft.encoder`). The steps:

A. a short form of every rationale, by a language model or by a rule;
B. T learns to match each rationale with its short form: its linear map first, then all of it;
C. the guide's linear map is trained with T frozen; then all of the guide, which is the main training.

A, B and the first part of C are made in a stage before the training, whose parts are each done once. A short form of six words::

    "48/2 = 24 clips in May.\\n48+24 = 72 clips in all."   ->   "48/2 = 24 48+24 = 72"
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from cirf.endpoints.fleet import ask
from cirf.endpoints.requests import Answer, Request, fill, read_template
from cirf.errors import CirfError
from cirf.lm.prompt import encode, end_token, prompt_text
from cirf.methods import semcot_release as semcot
from cirf.methods.base import PreparationData, Preset
from cirf.methods.soft.guided import GuidedMethod, GuidedSettings
from cirf.methods.token_skip.scorers import Rules
from cirf.methods.token_skip.shorten import Solution, shorten, word_spans
from cirf.progress import SILENT, Progress
from cirf.recipe import schema
from cirf.recipe.schema import Backbone, Override, Recipe, key
from cirf.records import Problem, Steps
from cirf.store.files import RowLog, to_json, write_atomic

if TYPE_CHECKING:
    import torch

    from cirf.lm.training.objective import Objective
    from cirf.methods.soft.encoder import SentenceEncoder
    from cirf.methods.soft.guide import Guide


_ENCODER, _MEANT, _MAP, _READ = "encoder.safetensors", "meant.safetensors", "map.safetensors", "questions.json"


class SemCotSettings(GuidedSettings):
    """Which guide computes the vectors, and how it is trained."""

    instruction: str = key("", "What the guide reads before the question.")
    alpha: float = key(0.5, "α: weight of the rationale's meaning against the answer; 0: no encoder is made.", ge=0, le=1)
    places: Literal["own", "before"] = key(
        "own", "own: the states at the guide's places. before: those one place before each, as in the SemCoT release."
    )
    attention: Literal["causal", "bidirectional"] = key(
        "causal", "Whether a position of the encoder sees later ones (bidirectional), for which its layers were not trained."
    )
    short_by: Literal["rule", "llm"] = key(
        "rule", "Who writes the short rationales: a rule that keeps the words that matter most, or results.writer's model."
    )
    short_words: int = key(10, "Most words of a short rationale.", unit="words", ge=1)
    map_epochs: int = key(7, "Epochs of each of the two linear maps alone.", unit="epochs", ge=1)
    map_rate: float = key(1e-3, "Learning rate of the linear maps alone.", gt=0)
    encoder_epochs: int = key(2, "Epochs of all of the encoder.", unit="epochs", ge=0)
    encoder_rate: float = key(1e-5, "Learning rate of all of the encoder.", gt=0)
    phase_rows: int = key(4, "Rows an update before the main training; of the encoder, the pairs that are compared.", ge=2)


class SemCot(GuidedMethod):
    """A frozen backbone with vectors of a small model that carry the rationale's meaning."""

    name = "sem_cot"
    summary = (
        "a frozen backbone with vectors of a small model trained to carry the rationale's meaning (needs its own decoding loop)"
    )
    frozen = True
    Settings = SemCotSettings
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": Preset({"n": 5, "answered": 1, "short_by": "llm"}, Override(learning_rate=1e-5, weight_decay=0.01, epochs=2)),
        "semcot": Preset(
            {"n": 5, "answered": 1, "form": "semcot", "places": "before", "attention": "bidirectional", "short_by": "llm"},
            semcot.training(1e-5).model_copy(update={"lora": None, "epochs": 2.0}),
        ),
    }

    def prepared_by(self, recipe: Recipe) -> dict[str, Any]:
        details = super().prepared_by(recipe) | {"max_length": recipe.finetune.max_length}
        if self.settings.short_by == "llm" and self.settings.alpha:
            writer = recipe.results.writer
            models = sorted({endpoint.model for endpoint in writer.endpoints})
            details["writer"] = writer.model_dump(include={"temperature", "top_p", "max_tokens", "unanswered"}) | {
                "models": models
            }
        return details

    def prepare(self, material: PreparationData) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Steps A and B, and the first part of C. They write `_READ` (the guide's texts, one per question), `_MAP`, and if the
        meaning has a weight `_ENCODER` and `_MEANT` [r x 768]. A row's ``given`` is its rationale's number."""
        from cirf.lm.backbone import load_model
        from cirf.methods.soft.guide import load_guide

        settings, section = self.settings, material.recipe.backbone
        names = list(dict.fromkeys(steps.problem for steps in material.steps))
        details = self.guide_texts(material, names)
        numbers = {name: index for index, name in enumerate(names)}
        write_atomic(
            material.folder / _READ, to_json({"texts": details, "rows": [numbers[row.problem] for row in material.steps]})
        )
        briefs = self._briefs(material) if settings.alpha else []
        model = load_model(section.model, section).requires_grad_(False)
        report: dict[str, Any] = {"guide": self.guide, "questions": len(names)}
        encoder = meant = None
        if settings.alpha:
            report |= {"short": dict(Counter(brief.by for brief in briefs))}
            encoder, meant, phases = self._encoder(material, model, briefs)
            report |= phases
        guide = load_guide(self.guide, section, model.get_input_embeddings().weight.shape[1], settings.instruction,
                           settings.places == "before", learned=True)  # fmt: skip
        report["guide_map"] = self.train_map(material, model, guide, encoder, meant)
        rows = [
            {"problem": row.problem, "sample": row.sample, "given": index} | ({"short": briefs[index].text} if briefs else {})
            for index, row in enumerate(material.steps)
        ]
        return rows, report

    def _briefs(self, material: PreparationData) -> list[ShortRationale]:
        words = self.settings.short_words
        if self.settings.short_by == "rule":
            return shorten_by_rule(material.steps, material.problems, words)
        log, writer = material.asked("brief"), material.recipe.results.writer
        return shorten_by_model(material.steps, material.problems, words, writer, log, self._seed, material.progress)

    def _encoder(
        self, material: PreparationData, model: Any, briefs: Sequence[ShortRationale]
    ) -> tuple[SentenceEncoder, Any, dict[str, Any]]:
        """Step B: the encoder, what every rationale means to it [r x 768], and how it went."""
        import torch
        from safetensors.torch import load_file

        from cirf.lm.training.phases import Phase, phase_report, run_phase, save_whole
        from cirf.methods.soft.encoder import SentenceEncoder, TextStates, contrast

        settings, tokenizer = self.settings, material.tokenizer()
        encoder = SentenceEncoder(model, settings.attention, self._seed).requires_grad_(False)
        weights, meanings = material.folder / _ENCODER, material.folder / _MEANT
        if weights.is_file() and meanings.is_file():  # made before a kill
            encoder.load_state_dict(load_file(weights))
            names = ("encoder_map", "encoder") if settings.encoder_epochs else ("encoder_map",)
            return encoder, load_file(meanings)["meant"], {name: phase_report(name, material.scratch) for name in names}
        most = material.recipe.finetune.max_length
        long = [encode(tokenizer, "\n".join(row.segments))[:most] for row in material.steps]
        short = [encode(tokenizer, brief.text or ".")[:most] for brief in briefs]
        training, held_out = _split(material)
        if len(held_out) < settings.phase_rows:
            held_out = []  # too few for a contrastive loss
        read = TextStates(model, encoder.first)

        def pooled(texts: Sequence[list[int]]) -> torch.Tensor:
            return encoder.pooled_texts(read, texts)

        def all_of(texts: Sequence[list[int]]) -> torch.Tensor:
            return _read_all(pooled, texts, settings.phase_rows, material.progress)

        def phase(name: str, loss: Any, epochs: int, rate: float) -> dict[str, Any]:
            made = Phase(name, encoder, loss, training, held_out, epochs, rate, 0.01, settings.phase_rows)
            return run_phase(made, material.scratch, self._seed, material.progress)

        found: dict[str, Any] = {}
        encoder.head.requires_grad_(True)
        known = None if (material.scratch / "encoder_map.safetensors").is_file() else (all_of(long), all_of(short))

        def by_map(rows: Sequence[int]) -> torch.Tensor:
            assert known is not None
            return contrast(encoder.head(known[0][rows]), encoder.head(known[1][rows]))

        def by_all(rows: Sequence[int]) -> torch.Tensor:
            return contrast(*(encoder.head(pooled([texts[row] for row in rows])) for texts in (long, short)))

        found["encoder_map"] = phase("encoder_map", by_map, settings.map_epochs, settings.map_rate)
        if settings.encoder_epochs:
            encoder.requires_grad_(True)
            for part in encoder.modules():
                if isinstance(part, torch.nn.Embedding):
                    part.requires_grad_(False)
            found["encoder"] = phase("encoder", by_all, settings.encoder_epochs, settings.encoder_rate)
        encoder.requires_grad_(False)
        with torch.no_grad():
            meant = encoder.head(all_of(long)).cpu()
        save_whole(encoder.state_dict(), weights)
        save_whole({"meant": meant}, meanings)
        return encoder, meant, found

    def train_map(
        self, material: PreparationData, model: Any, guide: Guide, encoder: SentenceEncoder | None, meant: Any
    ) -> dict[str, Any]:
        """The first part of step C: the linear map of the guide, into `_MAP`, and how it went."""
        from safetensors.torch import load_file

        from cirf.lm.training.batches import Row, tokenise
        from cirf.lm.training.phases import Phase, run_phase, save_whole
        from cirf.methods.soft.loss import FrozenGuideVectors

        settings, tokenizer = self.settings, material.tokenizer()
        self.settle(tokenizer, training=True)
        problems = [material.problems[row.problem] for row in material.steps]
        rows = [
            Row(prompt_text(tokenizer, self.prompt(problem, material.tasks[problem.task])), problem.answer, given=index)
            for index, problem in enumerate(problems)
        ]
        features, dropped = tokenise(rows, tokenizer, material.recipe.finetune.max_length, ends=self.ends)
        by_row = {feature.given: feature for feature in features}
        training, held_out = ([row for row in part if row in by_row] for part in _split(material))
        if not training:
            raise CirfError(f"{self.name}: every training row is longer than finetune.max_length; raise it")
        read = json.loads((material.folder / _READ).read_text(encoding="utf-8"))
        states = material.scratch / "states.safetensors"
        if not states.is_file():
            save_whole({"states": guide.read(read["texts"], settings.n)}, states)
        source = FrozenGuideVectors(
            load_file(states)["states"], read["rows"], model.get_input_embeddings().weight.shape[1], self._seed
        )
        source.module.to(model.device)
        objective = self._objective(source, encoder, meant)
        objective.join(model, material.recipe.finetune, self._seed)
        padding = end_token(tokenizer)

        def loss(numbers: Sequence[int]) -> torch.Tensor:
            batch = objective.collate([by_row[number] for number in numbers], padding)
            found: torch.Tensor = objective.loss(model, {name: value.to(model.device) for name, value in batch.items()}, None)
            return found

        made = Phase("guide_map", source.module, loss, training, held_out, settings.map_epochs, settings.map_rate, 0.01,
                     settings.phase_rows)  # fmt: skip
        report = run_phase(made, material.scratch, self._seed, material.progress)
        save_whole(source.module.state_dict(), material.folder / _MAP)
        return report | {"too_long": len(dropped)}

    def _objective(self, source: Any, encoder: SentenceEncoder | None, meant: Any) -> Any:
        from cirf.methods.soft.loss import SemanticObjective, SoftObjective

        if encoder is None:
            return SoftObjective(self._id, source)
        return SemanticObjective(self._id, source, encoder, meant, self.settings.alpha)

    def objective(self, model: Any, source: Path | str) -> Objective:
        from safetensors.torch import load_file

        from cirf.methods.soft.encoder import SentenceEncoder
        from cirf.methods.soft.guide import load_guide
        from cirf.methods.soft.loss import TrainedGuideVectors

        assert self.prepared is not None
        settings, encoder, meant = self.settings, None, None
        section = Backbone(dtype="float32", device=str(model.device), empty_system=self._empty_system)
        width = model.get_input_embeddings().weight.shape[1]
        guide = load_guide(self.guide, section, width, settings.instruction, settings.places == "before", learned=True)
        guide.projection.load_state_dict(load_file(self.prepared / _MAP))
        if settings.alpha:
            encoder = SentenceEncoder(model, settings.attention, self._seed)
            encoder.load_state_dict(load_file(self.prepared / _ENCODER))
            meant = load_file(self.prepared / _MEANT)["meant"]
        read = json.loads((self.prepared / _READ).read_text(encoding="utf-8"))
        rows = [guide.ids(text, settings.n) for text in read["texts"]]
        objective: Objective = self._objective(TrainedGuideVectors(guide, rows, read["rows"]), encoder, meant)
        return objective

    def keep(self, folder: Path, objective: Objective | None) -> None:
        from cirf.lm.saving import save_model
        from cirf.methods.soft.guide import OWN, SoftPromptSettings, fingerprint, save_soft

        assert objective is not None
        guide: Any = objective.module
        dtype = json.loads((folder / "config.json").read_text(encoding="utf-8"))["dtype"]
        save_model(guide.model, guide.tokenizer, folder / OWN, dtype)
        made_by = fingerprint(guide.model)
        soft = SoftPromptSettings(
            self._holder, self.settings.n, OWN, made_by, self.settings.instruction, guide.shifted, self._empty_system
        )
        save_soft(folder, soft, guide.projection, guide.thought)


def _read_all(pooled: Callable[[Any], Any], texts: Sequence[list[int]], at_once: int, progress: Progress) -> torch.Tensor:
    """The texts' vectors [t x w], ``at_once`` per pass, without gradients."""
    import torch

    parts = []
    with torch.no_grad(), progress.task("reading texts (encoder)", len(texts), "texts") as advance:
        for start in range(0, len(texts), at_once):
            batch = texts[start : start + at_once]
            parts.append(pooled(batch))
            advance(len(batch))
    return torch.cat(parts)


def _split(material: PreparationData) -> tuple[list[int], list[int]]:
    """The numbers of the rationales to train on and of those that are held out."""
    apart: tuple[list[int], list[int]] = ([], [])
    for index, row in enumerate(material.steps):
        apart[row.problem in material.held_out].append(index)
    return apart


TEMPLATE = ("brief", ("question", "rationale", "words"), "the shipped prompt for short rationales")


@dataclass(frozen=True, slots=True)
class ShortRationale:
    """A rationale in a few words on one line, and who wrote it: ``llm``, ``llm, cut`` (it wrote too many) or ``rule``."""

    text: str
    by: str


def shorten_by_rule(steps: Sequence[Steps], problems: Mapping[str, Problem], words: int) -> list[ShortRationale]:
    """Every rationale by the rule: its ``words`` most important words, in their order."""
    texts = ["\n".join(row.segments) for row in steps]
    solved = [problems[row.problem] for row in steps]
    cut = _cut(texts, [problem.question for problem in solved], [problem.answer for problem in solved], words)
    return [ShortRationale(text, "rule") for text in cut]


def shorten_by_model(
    steps: Sequence[Steps],
    problems: Mapping[str, Problem],
    words: int,
    section: schema.ResultWriter,
    log: RowLog,
    seed: int,
    progress: Progress = SILENT,
) -> list[ShortRationale]:
    """Every rationale by a language model, of the servers that also write results; ``log`` keeps the answers, and only missing
    ones are requested. Too many words are cut by the rule, which also writes where there is no answer.

    ``CirfError`` where no server is named or they have several models, or as `ask` does.
    """
    models = {endpoint.model for endpoint in section.endpoints}
    if len(models) != 1:
        why = "all must have the same model" if models else "empty although a model is to shorten rationales; name one server"
        raise CirfError(f"results.writer.endpoints: {why}")
    template = read_template(None, *TEMPLATE)
    model = models.pop()
    requests = [_request(row, problems[row.problem], words, template, model, section, seed) for row in steps]
    answers, _ = ask(requests, section, log, progress, "short rationales")
    lines = [_line(answers.get(request.key)) for request in requests]
    questions, golds = zip(*((problems[row.problem].question, problems[row.problem].answer) for row in steps), strict=True)
    cut = _cut(lines, questions, golds, words)
    rule = shorten_by_rule(steps, problems, words)
    return [
        fallback if not text else ShortRationale(text, "llm" if text == whole else "llm, cut")
        for whole, text, fallback in zip(lines, cut, rule, strict=True)
    ]


def _request(
    row: Steps, problem: Problem, words: int, template: str, model: str, section: schema.ResultWriter, seed: int
) -> Request:
    values = {"question": problem.question, "rationale": "\n".join(row.segments), "words": str(words)}
    number = int.from_bytes(hashlib.sha256(f"{seed}/brief/{row.problem}/{row.sample}".encode()).digest()[:4], "big") >> 1
    messages = (("user", fill(template, values)),)
    return Request(model, messages, number, section.temperature, section.top_p, section.max_tokens)


def _line(answer: Answer | None) -> str:
    return "" if answer is None else " ".join(answer.text.split())


def _cut(texts: Sequence[str], questions: Sequence[str], answers: Sequence[str], most: int) -> list[str]:
    """Texts on one line, of those with more than ``most`` words the most important ones."""
    solutions = [Solution(question, text, answer) for question, text, answer in zip(questions, texts, answers, strict=True)]
    made = []
    for text, words in zip(texts, Rules().score(solutions), strict=True):
        kept = text if len(words) <= most else shorten(text, words, most / len(words), lambda left: len(word_spans(left))).text
        made.append(" ".join(kept.split()))
    return made
