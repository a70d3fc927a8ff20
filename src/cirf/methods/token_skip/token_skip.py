"""TokenSkip (Xia et al. 2025): rationales without their less important words, at the length that the prompt asks for.

Every rationale is trained on once, at one of several ratios drawn by the seed; a ratio below 1 is written in the prompt, so that
it can be chosen when answering::

    How many clips?              48/2 = 24 clips in May.\\n48+24 = 72 in all.\\n#### 72
    How many clips?\\nRatio: 0.5  48/2 = 24\\n48+24 = 72\\n#### 72

At ratio 1 prompt and target are those of `sft_cot`. When answering, the ratio is in the saved chat template, so every engine
requests it. A scorer decides which words matter; the published one is a classifier from the hub (LLMLingua-2), the others need no
download.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from random import Random
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from cirf.errors import CirfError
from cirf.lm.prompt import encode
from cirf.methods.base import PreparationData, Preset, around_turn
from cirf.methods.prose.cot import CalculatorSettings, Prose, prose_target
from cirf.methods.token_skip.scorers import make_scorer
from cirf.methods.token_skip.shorten import ForcedWords, Solution, Word, shorten
from cirf.recipe.schema import Lora, Override, Recipe, key
from cirf.records import Example
from cirf.store.files import RowLog
from cirf.tasks.task import Task

Ratio = Annotated[float, Field(gt=0.0, le=1.0)]
WINDOW = 64  # rationales scored between two writes


class SkipSettings(CalculatorSettings):
    """Which words go, and how many."""

    scorer: Literal["llmlingua2", "rules", "random"] = key(
        "rules",
        "The scorer of words: a classifier trained to shorten texts (llmlingua2, from the hub), rules (numbers "
        "first, function words last), or chance, the control.",
    )
    scorer_model: str | None = key(None, "The classifier of llmlingua2: a hub id or a folder; null: the large published one.")
    ratios: tuple[Ratio, ...] = key((1.0, 0.9, 0.8, 0.7, 0.6, 0.5), "Shares of its tokens at which a rationale is trained on.")
    ratio: Ratio = key(0.5, "The share asked for when answering.")
    longest: int = key(500, "A longer rationale is not shortened.", unit="tokens", ge=1)
    keep_numbers: bool = key(False, "Keep every word with a digit, whatever it weighs.")
    keep: tuple[str, ...] = key((), "Keep every word that holds one of these, such as Step.")


class TokenSkip(Prose):
    """Fine-tuned on rationales without their less important words."""

    name = "token_skip"
    summary = "fine-tuned on rationales without their less important words, at a share of the length that the prompt asks for"
    trained = True
    Settings = SkipSettings
    answering = frozenset({"ratio", *CalculatorSettings.model_fields})
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": Preset(
            {"scorer": "llmlingua2"}, Override(learning_rate=1e-4, weight_decay=0.01, epochs=10, lora=Lora(rank=128, alpha=32))
        ),
        "official": Preset(
            {"scorer": "llmlingua2"},
            Override(
                learning_rate=5e-5,
                epochs=3,
                batch_size=4,
                gradient_accumulation_steps=2,
                lr_scheduler_type="cosine",
                min_lr_ratio=0.0,
                warmup_steps=10**9,
                lora=Lora(rank=8, alpha=16),
            ),
        ),
    }

    def check(self, recipe: Recipe) -> None:
        """``CirfError`` for a ratio beyond those that are taught, and for a model that the scorer does not ask."""
        settings = self.settings
        if not settings.ratios or not min(settings.ratios) <= settings.ratio <= max(settings.ratios):
            raise CirfError(f"{self.name}: ratio {settings.ratio:g} is not among the trained ratios; add it to ratios")
        if settings.scorer_model is not None and settings.scorer in ("rules", "random"):
            raise CirfError(f"{self.name}: {settings.scorer} uses no model, so scorer_model has no effect; remove it")

    def caveats(self) -> tuple[str, ...]:
        ratio, taught = self.settings.ratio, self.settings.ratios
        return () if ratio in taught else (f"asked for ratio {ratio:g}, which was not trained",)

    def training_prompt(self, example: Example, task: Task) -> str:
        """The question, and the ratio at which this rationale is taught where it is below 1."""
        return self.prompt(example.problem, task) + _asking((example.prepared or {}).get("ratio", 1.0))

    def settle(self, tokenizer: Any, training: bool) -> None:
        if not training and (asking := _asking(self.settings.ratio)):
            tokenizer.chat_template = around_turn(tokenizer.chat_template, "", asking)

    def target(self, example: Example) -> str:
        text = "\n".join(example.segments) if example.prepared is None else example.prepared["text"]
        return prose_target([text] if text else [], example.problem.answer)

    @property
    def reads(self) -> tuple[str, ...]:
        return () if self.settings.scorer_model is None else (self.settings.scorer_model,)

    def prepare(self, material: PreparationData) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Every rationale at its ratio, with the share of its tokens that is really left."""
        tokenizer = material.tokenizer()

        def count(text: str) -> int:
            return len(encode(tokenizer, text))

        solved = [(material.problems[steps.problem], "\n".join(steps.segments)) for steps in material.steps]
        texts = [Solution(problem.question, text, problem.answer) for problem, text in solved]
        force = ForcedWords(self.settings.keep_numbers, self.settings.keep)
        rows: list[dict[str, Any]] = []
        for steps, text, words in zip(material.steps, texts, self._weigh(material, texts), strict=True):
            ratio = Random(f"ratio {self._seed} {steps.problem} {steps.sample}").choice(self.settings.ratios)
            if count(text.rationale) > self.settings.longest:
                ratio = 1.0
            left = shorten(text.rationale, words, ratio, count, force)
            kept = {"ratio": ratio, "achieved": round(left.ratio, 4), "tokens": left.tokens, "text": left.text}
            rows.append({"problem": steps.problem, "sample": steps.sample} | kept)
        details = achieved(rows)
        shares = ", ".join(f"{row['achieved']:.2f} for {ratio}" for ratio, row in details.items())
        note = f"share of the tokens left by {self.settings.scorer}: {shares}"
        return rows, {"scorer": self.settings.scorer, "ratios": details, "note": note}

    def _weigh(self, material: PreparationData, texts: Sequence[Solution]) -> list[list[Word]]:
        """The words of all rationales; those that a model has weighed before a kill are not weighed again."""
        settings = self.settings
        make = partial(make_scorer, settings.scorer, material.recipe.backbone, settings.scorer_model, self._seed)
        if settings.scorer != "llmlingua2":
            return make().score(texts, material.progress)
        log = RowLog(material.scratch / "importance.jsonl")
        windows = log.read(lambda window: [[Word(*word) for word in words] for words in window["words"]])
        known = [words for window in windows for words in window]
        scorer = make() if len(known) < len(texts) else None
        with material.progress.task(f"weighing words ({settings.scorer})", len(texts), "rationales", len(known)) as advance:
            while scorer is not None and len(known) < len(texts):
                found = scorer.score(texts[len(known) : len(known) + WINDOW])
                log.append({"words": found})  # a window a line, so that a kill leaves whole ones
                known += found
                advance(len(found))
        return known


def achieved(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """By the ratio asked for: how many rows, the mean share of tokens left and the mean number of tokens."""
    details = {}
    for ratio in sorted({row["ratio"] for row in rows}, reverse=True):
        found = [row for row in rows if row["ratio"] == ratio]
        details[str(ratio)] = {
            "rows": len(found),
            "achieved": round(sum(row["achieved"] for row in found) / len(found), 4),
            "tokens": round(sum(row["tokens"] for row in found) / len(found), 1),
        }
    return details


def _asking(ratio: float) -> str:
    """The text after a question."""
    return "" if ratio == 1 else f"\nRatio: {ratio:g}"
