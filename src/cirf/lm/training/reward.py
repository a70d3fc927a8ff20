"""Training by reward: the model answers training questions, and answers with a higher reward than the others to their question
become likelier (see `cirf.lm.training.loss`).

Two models are held: the trained one, and a plain copy with merged adapters, in the saved number format, which samples. So
sampling is as fast as in an evaluation and uses the model that is saved. Every draw is seeded by the recipe's seed and the number
of the update: a training resumed from a checkpoint ends with the same bytes. A signal ends an update that has not changed the
weights yet; the resumed training makes it again.
"""

from __future__ import annotations

import contextlib
import copy
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import TrainerControl

from cirf.cpu.linear import in_place
from cirf.cpu.memory import keep_freed_memory, release_freed_memory
from cirf.cpu.number_formats import computed_in
from cirf.cpu.packed import PackedLinear, settle, unpack
from cirf.errors import CirfError
from cirf.lm.adapters import put_adapters
from cirf.lm.decoding.generate import Decoding, Output, generate
from cirf.lm.decoding.prefix_cache import SharedPrompts
from cirf.lm.decoding.sampling import seed_of
from cirf.lm.prompt import encode, end_token
from cirf.lm.training.batches import Feature
from cirf.lm.training.callbacks import StopOnSignal
from cirf.lm.training.checkpoints import clean, complete, disk_errors, latest
from cirf.lm.training.finetune import batch_kernel
from cirf.lm.training.loss import Answer, advantages, divergence, learnable, token_losses, token_weights
from cirf.lm.training.objective import Objective
from cirf.progress import Progress
from cirf.recipe.schema import Finetune, Reward
from cirf.store.files import to_json, write_atomic

LOGITS = 2**26
"""Most logits of one pass: with gradients about five times as many float32 numbers are held."""

_IDLE = 3
"""Updates in a row without a question to learn from, after which the training ends."""

_RECENT = 8
"""Updates whose share of questions with different rewards decides how many to draw."""

_SELDOM = 0.1
"""How likely a question that is always right, or never, is drawn, relative to one that is right half the time."""

Judge = Callable[[int, Output], tuple[float, bool]]
"""Reward of an answer to a question, by number, and whether it is right."""


@dataclass(frozen=True)
class Questions:
    """Rendered prompts of training and held-out questions, each set with its judge, and the most tokens of an answer."""

    training: Sequence[str]
    judge: Judge
    held_out: Sequence[str]
    right: Judge
    cap: int


@dataclass
class _RewardState:
    """The state in a checkpoint besides weights: the progress and the questions seen. ``tries`` holds, by question, how
    many of its answers were right and how many there were."""

    update: int = 0
    asked: int = 0
    idle: int = 0
    seconds: float = 0.0
    sampled: int = 0
    trained: int = 0
    tries: dict[str, list[int]] = field(default_factory=dict)
    losses: list[dict[str, Any]] = field(default_factory=list)
    validation: list[dict[str, Any]] = field(default_factory=list)
    best: dict[str, Any] | None = None
    ended: str | None = None


class _Interrupted(Exception):
    """A signal came during a validation or an update."""


class RewardTraining:
    """One training; `run` does it."""

    def __init__(
        self, model: Any, policy: Any, tokenizer: Any, questions: Questions, settings: Reward, section: Finetune, seed: int
    ) -> None:
        """``model`` is loaded to train as ``settings.adaptation`` says, ``policy`` to answer; both are changed. ``CirfError``:
        there is no question."""
        if not questions.training:
            raise CirfError("reward: there is no training question; see problems.tasks")
        self.policy, self.tokenizer, self.questions, self.settings, self.seed = policy, tokenizer, questions, settings, seed
        self.encoded = {prompt: tuple(encode(tokenizer, prompt)) for prompt in {*questions.training}}
        self._base, self._section = model, section
        torch.manual_seed(seed)
        model.requires_grad_(settings.adaptation == "full")
        self.model = model
        if settings.adaptation == "lora":
            self.model = put_adapters(model, settings.lora.model_copy(update={"dropout": 0.0}))
        self.model.eval()  # no dropout between an answer and its gradient
        self.trained = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        self.optimizer = torch.optim.AdamW(
            self.trained.values(),
            lr=settings.learning_rate,
            betas=(section.adam_beta1, section.adam_beta2),
            eps=section.adam_epsilon,
            weight_decay=0.0,
        )
        settle(policy)
        self.state, self.stop = _RewardState(), StopOnSignal()
        self.best: dict[str, torch.Tensor] = {}
        self.objective = Objective()

    def run(self, work: Path, progress: Progress, title: str) -> tuple[dict[str, Any], dict[str, float]]:
        """Train, going on from the last checkpoint under ``work/checkpoints``; the history and what a clock measured. The policy
        is then the model to keep."""
        root, device = work / "checkpoints", self.model.device
        if device.type == "cpu":
            keep_freed_memory()
        self._resume(root)
        longest = max(map(len, self.encoded.values())) + self.questions.cap
        stop = self.stop
        kernel = batch_kernel(self._base, self.objective, longest, str(device))
        bar = progress.task(title, self.settings.max_steps, "updates", self.state.update)
        with disk_errors(root), kernel, in_place(self.model), stop.listening(), bar as advance:
            before = time.perf_counter() - self.state.seconds
            with self._saved_if_interrupted(root):
                self._validate()
                while self.state.update < self.settings.max_steps and self.state.ended is None:
                    row = self._update()
                    self.state.losses.append(row)
                    self._validate()
                    self.state.seconds = time.perf_counter() - before
                    control = TrainerControl(should_save=self.state.update % self.settings.save_steps == 0)
                    stop.on_step_end(None, None, control)
                    if control.should_save:
                        self._save(root)
                        stop.on_save(None, None, control)
                    release_freed_memory()
                    advance(1, self._line(row))
        state = self.state
        if self.best and state.best is not None and state.best["update"] < state.update:
            self._load(self.best)
        unpack(self.policy)
        seconds = max(state.seconds, 1e-9)
        timings = {
            "training_seconds": round(seconds, 3),
            "updates": state.update,
            "tokens_per_second": round(state.trained / seconds, 1),
            "sampled_tokens_per_second": round(state.sampled / seconds, 1),
        }
        return self._history(), timings

    @contextlib.contextmanager
    def _saved_if_interrupted(self, root: Path) -> Iterator[None]:
        """Save the last finished update where a signal ends what is within, and act on the signal."""
        try:
            yield
        except _Interrupted:
            if self.state.update > len(self.state.losses):
                self.state = self._before
            if latest(root) != root / f"checkpoint-{self.state.update}":
                self._save(root)
            self.stop.on_save(None, None, None)

    def _listen(self, *unused: Any) -> Any:
        """Raise `_Interrupted` if a signal came. Returns the last argument: it is a logits processor, too."""
        if self.stop.came:
            raise _Interrupted
        return unused[-1] if unused else None

    def _update(self) -> dict[str, Any]:
        began, self._before = time.perf_counter(), copy.deepcopy(self.state)
        state, drawn, groups = self.state, list[list[Answer]](), list[list[Answer]]()
        state.update += 1
        recent = state.losses[-_RECENT:]
        learned, asked = sum(row["learned"] for row in recent), sum(row["questions"] for row in recent)
        seen = set[int]()
        for number in range(self.settings.draws):
            missing = self.settings.questions - len(groups)
            if missing <= 0 or len(seen) == len(self.questions.training):
                break
            known = asked + len(drawn)
            share = (learned + len(groups)) / known if known else 1.0
            wanted = min(math.ceil(missing / max(share, 0.1)), 2 * self.settings.questions)
            chosen = self.choose(number, wanted, seen)
            seen |= {*chosen}
            fresh = self._draw(number, chosen)
            drawn += fresh
            groups += [kept for group in fresh if (kept := learnable(group, self.settings))]
        sampling = time.perf_counter() - began
        every = [answer for group in drawn for answer in group]
        shares = [fmean(answer.right for answer in group) for group in drawn]
        state.idle = 0 if groups else state.idle + 1
        row: dict[str, Any] = {
            "update": state.update,
            "reward": round(fmean(answer.reward for answer in every), 6),
            "right": round(fmean(answer.right for answer in every), 6),
            "tokens": round(fmean(len(answer.ids) for answer in every), 3),
            "truncated": round(fmean(answer.truncated for answer in every), 6),
            "questions": len(drawn),
            "learned": len(groups),
            "all_right": sum(share == 1 for share in shares),
            "all_wrong": sum(share == 0 for share in shares),
        }
        row |= self.optimize(groups) if groups else {"loss": 0.0, "gradient_norm": 0.0, "learning_rate": 0.0}
        state.sampled += sum(len(answer.ids) for answer in every)
        state.trained += sum(len(answer.ids) for group in groups for answer in group)
        self._rates = (sampling, time.perf_counter() - began, sum(len(answer.ids) for answer in every))
        if state.idle == _IDLE:
            state.ended = f"no question had answers of different reward in {_IDLE} updates"
        elif groups and row["entropy"] < self.settings.min_entropy:
            state.ended = f"the entropy of a token fell to {row['entropy']:.3g} (reward.min_entropy)"
        return row

    def _draw(self, number: int, chosen: Sequence[int]) -> list[list[Answer]]:
        """Answers to the chosen questions, in one batch; a list for each question."""
        settings, prompts = self.settings, self.questions.training
        rows = [question for question in chosen for _ in range(settings.num_generations)]
        seeds = [seed_of(f"{self.seed} {self.state.update} {number} {index}") for index in range(len(rows))]
        prefixes = SharedPrompts(self.policy)
        decoding = Decoding(settings.temperature, settings.top_p, prefixes=prefixes, steer=lambda: (self._listen,))
        asked = [prompts[question] for question in rows]
        outputs = generate(self.policy, self.tokenizer, asked, self.questions.cap, decoding, batch_size=len(rows), seeds=seeds)
        groups = []
        for index, question in enumerate(chosen):
            group = []
            for output in outputs[index * settings.num_generations : (index + 1) * settings.num_generations]:
                reward, right = self.questions.judge(question, output)
                group.append(Answer(self.encoded[prompts[question]], output.ids, reward, right, output.truncated))
            tries = self.state.tries.setdefault(str(question), [0, 0])
            tries[0], tries[1] = tries[0] + sum(answer.right for answer in group), tries[1] + len(group)
            groups.append(self._shuffled(group, number, question) if settings.shuffle else group)
        return groups

    def choose(self, number: int, size: int, asked: Set[int]) -> list[int]:
        """The next ``size`` questions that were not ``asked`` in this update, or all where there are fewer."""
        state, count = self.state, len(self.questions.training)
        size = min(size, count - len(asked))
        if self.settings.choose == "success":
            chance = Random(f"questions {self.seed} {state.update} {number}")
            smoothed = [(state.tries.get(str(place), [0, 0])) for place in range(count)]
            shares = [(right + 1) / (tried + 2) for right, tried in smoothed]
            keys = [math.log(1 - chance.random()) / max(_SELDOM, 4 * share * (1 - share)) for share in shares]
            likeliest = sorted(range(count), key=lambda place: -keys[place])  # Efraimidis and Spirakis 2006
            return [place for place in likeliest if place not in asked][:size]
        chosen: list[int] = []
        while len(chosen) < size:
            turn, place = divmod(state.asked, count)
            order = list(range(count))
            Random(f"questions {self.seed} {turn}").shuffle(order)
            chosen += [] if order[place] in asked or order[place] in chosen else [order[place]]
            state.asked += 1
        return chosen

    def _shuffled(self, group: list[Answer], number: int, question: int) -> list[Answer]:
        """The answers with each other's rewards."""
        rewards = [answer.reward for answer in group]
        Random(f"rewards {self.seed} {self.state.update} {number} {question}").shuffle(rewards)
        return [replace(answer, reward=reward) for answer, reward in zip(group, rewards, strict=True)]

    def optimize(self, groups: Sequence[Sequence[Answer]]) -> dict[str, float]:
        """Update the weights on groups of answers; the measures of the update."""
        settings, state = self.settings, self.state
        answers = [answer for group in groups for answer in group]
        weights = token_weights([len(answer.ids) for answer in answers], settings.loss_type, self.questions.cap)
        rows = list(zip(answers, advantages(groups, settings.scale_rewards), weights, strict=True))
        passes = list(self._passes(rows))
        rate = settings.learning_rate * min(1.0, state.update / max(1, settings.warmup_steps))
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        measured = bool(settings.beta) or (settings.adaptation == "lora" and state.update % settings.eval_steps == 0)
        old: list[torch.Tensor] = []
        for turn in range(settings.num_iterations):
            total, entropy, apart, tokens = 0.0, 0.0, 0.0, 0
            for index, part in enumerate(passes):
                if turn == 0:
                    self._listen()
                made = self._pass(part, old[index] if turn else None, measured)
                made["loss"].backward()
                old += [] if turn else [made["logs"]]
                total, entropy = total + made["loss"].item(), entropy + made["entropy"]
                apart, tokens = apart + made["kl"], tokens + len(made["logs"])
            norm = torch.nn.utils.clip_grad_norm_(self.trained.values(), self._section.max_grad_norm)
            if not (math.isfinite(total) and math.isfinite(norm)):
                raise CirfError(f"reward: the loss of update {state.update} is not a number; lower reward.learning_rate")
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            if turn == 0:
                measures = {"entropy": round(entropy / tokens, 6)} | ({"kl": round(apart / tokens, 6)} if measured else {})
        self._sync()
        return {"loss": total, "gradient_norm": float(norm), "learning_rate": rate} | measures

    def _passes(self, rows: Sequence[tuple[Answer, float, float]]) -> Iterator[list[tuple[Answer, float, float]]]:
        """The rows in parts that fit the limit of logits."""
        most = LOGITS // self._base.get_input_embeddings().weight.shape[0]
        part: list[tuple[Answer, float, float]] = []
        for row in rows:
            if part and sum(len(answer.ids) for answer, _, _ in [*part, row]) > most:
                yield part
                part = []
            part.append(row)
        yield part

    def _pass(self, rows: Sequence[tuple[Answer, float, float]], old: torch.Tensor | None, measured: bool) -> dict[str, Any]:
        """Of rows (answer, advantage, weight of a token): the loss, log-probabilities [n], and sums of entropy and divergence."""
        device = self.model.device
        features = [Feature((*answer.prompt, *answer.ids), len(answer.prompt)) for answer, _, _ in rows]
        batch = {name: part.to(device) for name, part in self.objective.collate(features, end_token(self.tokenizer)).items()}
        counts = torch.tensor([len(answer.ids) for answer, _, _ in rows])
        advantage, weight = (torch.tensor([row[place] for row in rows]).repeat_interleave(counts).to(device) for place in (1, 2))
        reference = None
        if measured:
            with torch.no_grad(), self.model.disable_adapter():
                reference = self._logs(batch)[0]
        logs, entropy = self._logs(batch)
        losses = token_losses(logs, logs.detach() if old is None else old, advantage, self.settings)
        apart = 0.0
        if reference is not None:
            kl = divergence(logs, reference)
            apart = float(kl.detach().sum())
            losses = losses + self.settings.beta * kl if self.settings.beta else losses
        return {"loss": losses @ weight, "logs": logs.detach(), "entropy": entropy, "kl": apart}

    def _logs(self, batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, float]:
        """Log-probabilities [n] of a batch's targets at the temperature of sampling, and the sum of their entropies."""
        device = self.model.device.type
        cast = self._section.bf16 and computed_in("bfloat16", str(self.model.device)) == "bfloat16"
        with torch.autocast(device, torch.bfloat16, enabled=cast):
            logits, targets = self.objective.logits(self.model, batch)
        every = (logits / self.settings.temperature).log_softmax(dim=1)
        with torch.no_grad():
            entropy = -float((every.exp() * every).sum())
        return every.gather(1, targets[:, None])[:, 0], entropy

    def _validate(self) -> None:
        """Validate where it is time, and keep the best model."""
        settings, state = self.settings, self.state
        prompts = self.questions.held_out
        last = state.update == settings.max_steps or state.ended is not None
        known = state.validation[-1]["update"] if state.validation else -1
        if not prompts or known == state.update or not (state.update % settings.eval_steps == 0 or last):
            return
        greedy = Decoding(steer=lambda: (self._listen,))
        outputs = generate(self.policy, self.tokenizer, prompts, self.questions.cap, greedy, batch_size=64)
        judged = [self.questions.right(index, output) for index, output in enumerate(outputs)]
        row = {
            "update": state.update,
            "right": round(fmean(right for _, right in judged), 6),
            "reward": round(fmean(reward for reward, _ in judged), 6),
            "tokens": round(fmean(output.tokens for output in outputs), 3),
            "truncated": round(fmean(output.truncated for output in outputs), 6),
        }
        state.validation.append(row)
        if state.best is None or (row["right"], row["reward"]) > (state.best["right"], state.best["reward"]):
            state.best = row
            self.best = {name: p.detach().to("cpu", copy=True) for name, p in self.trained.items()}
        elif (
            settings.max_fall is not None
            and row["right"] < state.best["right"]
            and row["right"] <= state.best["right"] - settings.max_fall
            and state.ended is None
        ):
            fell = f"from {state.best['right']:.1%} to {row['right']:.1%}"
            state.ended = f"validation accuracy fell {fell} (reward.max_fall)"

    @torch.no_grad()
    def _sync(self) -> None:
        """The trained weights into the policy."""
        for name, weight in self._merged():
            layer, _, own = name.rpartition(".")
            part = self.policy.get_submodule(layer)
            if own == "weight" and isinstance(part, PackedLinear):
                part.load(weight.to(self.policy.dtype))
            else:
                getattr(part, own).copy_(weight)

    def _merged(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The policy's weights that training changes, by name."""
        if self.settings.adaptation == "full":
            yield from self._base.named_parameters(remove_duplicate=False)
            return
        for name, layer in self._base.named_modules():
            if hasattr(layer, "get_delta_weight"):
                merged = layer.base_layer.weight.float() + layer.get_delta_weight(layer.active_adapters[0]).float()
                yield f"{name}.weight", merged

    @torch.no_grad()
    def _load(self, weights: dict[str, torch.Tensor]) -> None:
        for name, parameter in self.trained.items():
            parameter.copy_(weights[name])
        self._sync()

    def _save(self, root: Path) -> None:
        folder = root / f"checkpoint-{self.state.update}"
        folder.mkdir(parents=True, exist_ok=True)
        save_file({name: p.detach().contiguous() for name, p in self.trained.items()}, folder / "trainable.safetensors")
        if self.best:
            save_file(self.best, folder / "best.safetensors")
        torch.save(self.optimizer.state_dict(), folder / "optimizer.pt")
        write_atomic(folder / "state.json", to_json(self.state.__dict__))
        complete(folder)

    def _resume(self, root: Path) -> None:
        folder = latest(root)
        clean(root)
        if folder is None:
            return
        self.state = _RewardState(**json.loads((folder / "state.json").read_text()))
        with contextlib.suppress(FileNotFoundError):
            self.best = load_file(folder / "best.safetensors")
        self.optimizer.load_state_dict(torch.load(folder / "optimizer.pt", weights_only=True))
        self._load(load_file(folder / "trainable.safetensors"))

    def _line(self, row: dict[str, Any]) -> str:
        sampling, whole, tokens = self._rates
        line = f"reward {row['reward']:.3g}, {row['right']:.0%} right, {row['tokens']:.1f} tokens"
        line += f", entropy {row['entropy']:.2f}" if "entropy" in row else ", nothing to learn from"
        line += f", KL {row['kl']:.3g}" if "kl" in row else ""
        line += f", {tokens / sampling:,.0f} tokens/s sampled ({sampling / whole:.0%} of the time)"
        validated = self.state.validation
        return line + (f", validation {validated[-1]['right']:.1%}" if validated else "")

    def _history(self) -> dict[str, Any]:
        state, settings = self.state, self.settings
        counts = {"parameters": sum(p.numel() for p in self.policy.parameters())}
        counts["trainable_parameters"] = sum(p.numel() for p in self.trained.values())
        best = {} if state.best is None else {"best_update": state.best["update"], "best_right": state.best["right"]}
        history: dict[str, Any] = {
            "adaptation": settings.adaptation,
            "rows": len(self.questions.training),
            "validation_rows": len(self.questions.held_out),
            "updates": state.update,
            "learning_rate": settings.learning_rate,
            "answers": sum(row["questions"] for row in state.losses) * settings.num_generations,
            **counts,
            **best,
            "losses": state.losses,
            "validation": state.validation,
        }
        return history | ({} if state.ended is None else {"ended": state.ended})
