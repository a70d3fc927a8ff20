"""Training by reward: its loss against plain torch, its controls, its accounting of truncated answers, and its resumption."""

from __future__ import annotations

import copy
import json
import math
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from cirf.cpu.packed import PackedLinear, can_pack
from cirf.errors import CirfError
from cirf.lm.decoding.generate import Decoding, Output, generate
from cirf.lm.decoding.prefix_cache import SharedPrompts
from cirf.lm.training.loss import Answer, advantages, divergence, learnable, token_losses, token_weights
from cirf.lm.training.reward import Judge, Questions, RewardTraining
from cirf.progress import SILENT
from cirf.recipe.schema import Finetune, Reward

CAP = 6
FINETUNE = Finetune(bf16=False, max_grad_norm=1e9)


def _even(place: int, output: Output) -> tuple[float, bool]:
    """Right is an answer whose first token has an even id."""
    right = output.ids[0] % 2 == 0
    return float(right), right


def _ending(tiny: Any) -> Any:
    """A tiny model that ends an answer at each token in about one of five cases: left to itself it would never."""
    model = tiny.build_model(scale=1.0)
    model.generation_config.eos_token_id = list(range(300, 390))
    return model


def _training(tiny: Any, tokenizer: Any, judge: Judge = _even, asked: int = 6, model: Any = None, **keys: Any) -> RewardTraining:
    given: dict[str, Any] = {
        "max_steps": 1,
        "questions": 2,
        "num_generations": 4,
        "warmup_steps": 0,
        "eval_questions": 3,
        "draws": 3,
        "save_steps": 100,
    }
    how = Reward(**given | {"adaptation": "full", "learning_rate": 0.01, "min_entropy": 0.0, "max_fall": None} | keys)
    prompts = [f"<|im_start|>user\nWhat is {place} plus 7?<|im_end|>\n<|im_start|>assistant\n" for place in range(asked)]
    questions = Questions(prompts, judge, prompts[: how.eval_questions], judge, CAP)
    model = _ending(tiny) if model is None else model
    return RewardTraining(model, copy.deepcopy(model).eval(), tokenizer, questions, how, FINETUNE, 0)


def _weights(training: RewardTraining) -> dict[str, torch.Tensor]:
    return {name: weight.clone() for name, weight in training.policy.state_dict().items()}


def _plain(model: Any, groups: Sequence[Sequence[Answer]], how: Reward) -> Any:
    """The first update's loss, token by token, from the formulas of the papers: no batch, no clipping, no weights."""
    counted = [[one for one in group if not (how.mask_truncated_completions and one.truncated)] for group in groups]
    counted = [group for group in counted if len({one.reward for one in group}) > 1]
    rewards = torch.tensor([one.reward for group in counted for one in group])
    total: Any = 0.0
    answers, tokens = sum(map(len, counted)), sum(len(one.ids) for group in counted for one in group)
    for group in counted:
        own = torch.tensor([one.reward for one in group])
        for one in group:
            advantage = one.reward - own.mean()
            if how.scale_rewards != "none":
                advantage = advantage / ((own if how.scale_rewards == "group" else rewards).std() + 1e-4)
            ids = torch.tensor([[*one.prompt, *one.ids]])
            logs = (model(ids).logits[0, len(one.prompt) - 1 : -1] / how.temperature).log_softmax(-1)
            written = logs[range(len(one.ids)), list(one.ids)]
            by = {"grpo": answers * len(one.ids), "dr_grpo": answers * CAP, "bnpo": tokens, "dapo": tokens}[how.loss_type]
            total = total - advantage * written.sum() / by
    return total


@pytest.mark.parametrize(
    "keys",
    [
        {"loss_type": "grpo", "scale_rewards": "group"},
        {"loss_type": "dr_grpo"},
        {"loss_type": "bnpo", "scale_rewards": "batch", "temperature": 0.8},
        {"loss_type": "dapo", "mask_truncated_completions": True},
    ],
    ids=lambda keys: str(keys["loss_type"]),
)
def test_an_update_is_that_of_plain_torch(
    tiny: Any, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: dict[str, Any]
) -> None:
    drawn: list[Any] = []
    learn = RewardTraining.optimize

    def watched(self: RewardTraining, groups: Any) -> dict[str, float]:
        drawn.extend(groups)
        return learn(self, groups)

    monkeypatch.setattr(RewardTraining, "optimize", watched)
    training = _training(tiny, tokenizer, eval_questions=0, **keys)
    reference = _ending(tiny)
    training.run(tmp_path, SILENT, "")
    ends = {one.truncated for group in drawn for one in group}
    assert ends == ({False} if training.settings.mask_truncated_completions else {True, False})
    optimizer = torch.optim.AdamW(reference.parameters(), lr=0.01, weight_decay=0.0)
    reference.requires_grad_(True)
    _plain(reference, drawn, training.settings).backward()
    optimizer.step()
    found, wanted = _weights(training), reference.state_dict()
    moved = max(
        float((wanted[name] - weight).abs().max()) for name, weight in _training(tiny, tokenizer).policy.state_dict().items()
    )
    assert moved > 5e-3
    for name, weight in found.items():  # Adam's first step is the gradient's sign, so one near zero may differ
        assert ((weight - wanted[name]).abs() > 1e-3).float().mean() < 0.01, name


def test_truncated_answers_count_above_and_below_or_nowhere() -> None:
    whole, cut = Answer((1,), (5, 6), 1.0, True, False), Answer((1,), (5, 6, 7, 8), 0.0, False, True)
    third = Answer((1,), (5,), 0.0, False, False)
    kept = learnable([whole, cut, third], Reward())
    assert kept == [whole, cut, third] and advantages([kept], "none") == pytest.approx([2 / 3, -1 / 3, -1 / 3])
    assert token_weights([2, 4, 1], "dapo", 9) == [1 / 7] * 3
    assert token_weights([2, 4, 1], "grpo", 9) == pytest.approx([1 / 6, 1 / 12, 1 / 3])
    assert token_weights([2, 4, 1], "dr_grpo", 9) == [1 / 27] * 3
    left = learnable([whole, cut, third], Reward(mask_truncated_completions=True))
    assert left == [whole, third] and advantages([left], "none") == [0.5, -0.5]
    assert learnable([whole, cut], Reward(mask_truncated_completions=True)) == []
    assert advantages([[whole, third], [whole, cut, third]], "group")[:2] == pytest.approx(
        [0.5 / 0.7072, -0.5 / 0.7072], rel=1e-3
    )


@pytest.mark.parametrize("adaptation", ["lora", "full"])
def test_a_constant_reward_changes_no_byte_and_ends_soon(tiny: Any, tokenizer: Any, tmp_path: Path, adaptation: Any) -> None:
    training = _training(
        tiny, tokenizer, lambda place, output: (1.0, output.ids[0] % 2 == 0), max_steps=9, adaptation=adaptation, beta=0.0
    )
    before = _weights(training)
    history, _ = training.run(tmp_path, SILENT, "")
    assert all(torch.equal(weight, before[name]) for name, weight in _weights(training).items())
    assert history["ended"].startswith("no question had answers of different reward") and history["updates"] == 3
    assert all(row["learned"] == 0 and row["questions"] >= 6 for row in history["losses"])


def test_groups_without_advantage_give_no_divergence_either(tiny: Any, tokenizer: Any, tmp_path: Path) -> None:
    """With a KL term: question 0 alone has answers of different reward."""

    def judge(place: int, output: Output) -> tuple[float, bool]:
        return (_even(place, output)[0] if place == 0 else 1.0), True

    kept: list[dict[str, torch.Tensor]] = []
    for questions in (1, 4):
        own = (lambda place, output: judge(0, output)) if questions == 1 else judge
        keys: dict[str, Any] = {"adaptation": "lora", "beta": 0.5, "questions": questions, "draws": 1, "max_steps": 2}
        training = _training(tiny, tokenizer, own, questions, eval_questions=0, **keys)
        draws = training.choose
        training.choose = lambda *how, draws=draws: sorted(draws(*how))  # type: ignore[method-assign]
        training.run(tmp_path / str(questions), SILENT, "")
        kept.append(_weights(training))
    assert all(torch.allclose(weight, kept[1][name], atol=1e-5) for name, weight in kept[0].items())
    start = _ending(tiny).state_dict()
    assert max(float((weight - start[name]).abs().max()) for name, weight in kept[0].items()) > 1e-4


def test_a_ratio_beyond_its_bound_has_no_gradient_where_it_would_go_further() -> None:
    ratios, advantage = torch.tensor([1.0, 1.3, 0.7, 1.3, 0.7, 1.5]), torch.tensor([2.0, 2.0, 2.0, -2.0, -2.0, 2.0])
    logs = ratios.log().requires_grad_(True)
    loss = token_losses(logs, torch.zeros(6), advantage, Reward(epsilon=0.2)).sum()
    wanted = torch.where(torch.tensor([True, False, True, True, False, False]), -advantage * ratios, 0.0)
    assert torch.allclose(torch.autograd.grad(loss, logs)[0], wanted)
    loss = token_losses(logs, torch.zeros(6), advantage, Reward(epsilon=0.2, epsilon_high=0.6)).sum()
    assert float(torch.autograd.grad(loss, logs)[0][5]) == pytest.approx(-3.0)


def test_divergence_is_nothing_at_the_reference_and_grows_away_from_it(tiny: Any, tokenizer: Any, tmp_path: Path) -> None:
    logs = torch.tensor([-1.0, -2.0, -0.5], requires_grad=True)
    found = divergence(logs, torch.tensor([-1.0, -1.0, -1.0]))
    assert found.tolist() == pytest.approx([0, math.e - 2, math.exp(-0.5) - 0.5])
    slope = torch.autograd.grad(found.sum(), logs)[0]
    assert slope.tolist() == pytest.approx([0, 1 - math.e, 1 - math.exp(-0.5)])

    def apart(**keys: Any) -> float:
        training = _training(
            tiny, tokenizer, adaptation="lora", max_steps=12, learning_rate=2e-3, eval_steps=1, eval_questions=0, **keys
        )
        return float(training.run(tmp_path / str(len(keys)), SILENT, "")[0]["losses"][-1]["kl"])

    assert apart(beta=100.0) < 0.5 * apart()


def test_reward_rises_and_that_of_a_shuffled_control_does_not(tiny: Any, tokenizer: Any, tmp_path: Path) -> None:
    def shares(**keys: Any) -> tuple[float, float]:
        training = _training(
            tiny, tokenizer, max_steps=16, questions=4, num_generations=8, learning_rate=0.02, eval_questions=0, **keys
        )
        rows = training.run(tmp_path / str(len(keys)), SILENT, "")[0]["losses"]
        return tuple(sum(row["right"] for row in part) / len(part) for part in (rows[:5], rows[-5:]))

    before, after = shares()
    assert before < 0.65 and after > before + 0.25
    before, after = shares(shuffle=True)
    assert abs(after - before) < 0.2


@pytest.mark.parametrize(
    "keys",
    [{"adaptation": "full"}, pytest.param({"adaptation": "lora", "choose": "success", "beta": 0.1}, marks=pytest.mark.slow)],
)
def test_a_kill_changes_no_byte(tiny: Any, tokenizer: Any, tmp_path: Path, keys: dict[str, Any]) -> None:
    given: dict[str, Any] = {"max_steps": 7, "save_steps": 2, "eval_steps": 3, **keys}
    whole = _training(tiny, tokenizer, **given)
    history, _ = whole.run(tmp_path / "whole", SILENT, "")

    def killing(place: int, output: Output) -> tuple[float, bool]:
        killed.state.update == 6 and (_ for _ in ()).throw(KeyboardInterrupt)
        return _even(place, output)

    killed = _training(tiny, tokenizer, killing, **given)
    with pytest.raises(KeyboardInterrupt):
        killed.run(tmp_path / "killed", SILENT, "")
    (tmp_path / "killed" / "checkpoints" / "checkpoint-6").mkdir()  # as far as a kill let it come
    again = _training(tiny, tokenizer, **given)
    assert json.dumps(again.run(tmp_path / "killed", SILENT, "")[0]) == json.dumps(history)
    assert all(torch.equal(weight, _weights(again)[name]) for name, weight in _weights(whole).items())


def test_a_signal_within_an_update_ends_it_and_changes_no_byte(tiny: Any, tokenizer: Any, tmp_path: Path) -> None:
    """In update 3, whose first draw is judged, and in the validation before the first one."""
    given: dict[str, Any] = {"max_steps": 4, "eval_steps": 2, "save_steps": 100, "questions": 6, "choose": "success"}
    whole = _training(tiny, tokenizer, **given)
    history, _ = whole.run(tmp_path / "whole", SILENT, "")
    work, judged = tmp_path / "stopped", list[int]()

    def stopped(at: int) -> None:
        def stopping(place: int, output: Output) -> tuple[float, bool]:
            judged.append(training.state.update)
            if training.state.update == at and judged.count(at) == 1:
                signal.raise_signal(signal.SIGTERM)
            return _even(place, output)

        training = _training(tiny, tokenizer, stopping, **given)
        with pytest.raises(SystemExit):
            training.run(work, SILENT, "")

    stopped(0)  # a validation, that is here already over: its answers are kept
    assert [path.name for path in (work / "checkpoints").iterdir()] == ["checkpoint-0"] and judged.count(0) == 3
    judged.clear()
    stopped(3)
    assert [path.name for path in (work / "checkpoints").iterdir()] == ["checkpoint-2"] and judged.count(0) == 0
    assert judged.count(3) == whole.settings.num_generations * 6  # no second draw, and no gradient
    again = _training(tiny, tokenizer, **given)
    assert json.dumps(again.run(work, SILENT, "")[0]) == json.dumps(history)
    assert all(torch.equal(weight, _weights(again)[name]) for name, weight in _weights(whole).items())


@pytest.mark.skipif(not can_pack(torch.zeros(8, 8)), reason="this torch has no oneDNN that packs weights")
@pytest.mark.parametrize("adaptation", ["lora", "full"])
def test_the_packed_model_that_samples_follows_the_trained_one(
    tiny: Any, tokenizer: Any, tmp_path: Path, adaptation: Any
) -> None:
    given, sampled = torch.tensor([[5, 7, 11, 13]]), dict[int, torch.Tensor]()

    def logits(model: Any) -> torch.Tensor:
        with torch.no_grad():
            made: torch.Tensor = model(input_ids=given).logits
        return made

    def held_out(place: int, output: Output) -> tuple[float, bool]:
        assert any(isinstance(module, PackedLinear) for module in training.policy.modules())
        sampled[training.state.update] = logits(training.policy)
        return float(training.state.update), True  # so that the last model is the best

    model = tiny.build_model(scale=1.0, width=256)  # wide enough to be packed
    training = _training(tiny, tokenizer, model=model, max_steps=2, eval_steps=1, adaptation=adaptation, learning_rate=0.001)
    asked = training.questions
    training.questions = Questions(asked.training, _even, asked.held_out, held_out, CAP)
    training.run(tmp_path, SILENT, "")
    assert float((sampled[0] - sampled[1]).abs().max()) > 0.01 < float((sampled[1] - sampled[2]).abs().max())
    assert torch.allclose(logits(training.model), sampled[2], atol=1e-3)
    assert torch.allclose(logits(training.policy), sampled[2], atol=1e-3)
    assert not any(isinstance(module, PackedLinear) for module in training.policy.modules())
    assert training.policy.lm_head.weight is training.policy.get_input_embeddings().weight


def test_there_is_no_dropout_between_an_answer_and_its_gradient(tiny: Any, tokenizer: Any, tmp_path: Path) -> None:
    found = []
    for dropout in (0.0, 0.5):
        model = _ending(tiny)
        model.config.attention_dropout = dropout
        for layer in model.model.layers:
            layer.self_attn.attention_dropout = dropout
        lora = {"rank": 4, "alpha": 8, "dropout": dropout}
        training = _training(tiny, tokenizer, model=model.train(), max_steps=2, adaptation="lora", lora=lora)
        found.append(training.run(tmp_path / str(dropout), SILENT, "")[0]["losses"])
    assert found[0] == found[1] and found[0][-1]["learned"]


def test_the_first_update_draws_by_the_share_of_its_own_questions(tiny: Any, tokenizer: Any, tmp_path: Path) -> None:
    """One in four of 64 questions has answers of different reward: the second draw of 8 is as large as a draw may be."""
    order, drawn = _asked(
        tiny,
        tokenizer,
        tmp_path,
        lambda place, output: (float(output.ids[0] % 2) if place % 4 == 0 else 1.0, True),
        asked=64,
        questions=8,
        draws=2,
        num_generations=16,
        max_completion_length=1,
        choose="success",
    )
    useful = sum(place % 4 == 0 for place in order[:8])
    assert 0 < useful < 8 and drawn == [8 + min(16, math.ceil((8 - useful) / (useful / 8)))]


def test_the_best_model_of_validation_is_kept_and_a_fall_ends_the_training(tiny: Any, tokenizer: Any, tmp_path: Path) -> None:
    seen: dict[int, dict[str, torch.Tensor]] = {}

    def held_out(place: int, output: Output) -> tuple[float, bool]:
        seen[training.state.update] = _weights(training)
        right = training.state.update < 4 if place else training.state.update == 2
        return float(right), right

    training = _training(tiny, tokenizer, max_steps=9, eval_steps=2, max_fall=0.5)
    training.questions = Questions(training.questions.training, _even, training.questions.held_out, held_out, CAP)
    history, _ = training.run(tmp_path, SILENT, "")
    assert history["best_update"] == 2 and history["updates"] == 4 and "fell from 100.0% to 0.0%" in history["ended"]
    assert all(torch.equal(weight, seen[2][name]) for name, weight in _weights(training).items())


def test_a_low_entropy_ends_the_training(tiny: Any, tokenizer: Any, tmp_path: Path) -> None:
    history, _ = _training(tiny, tokenizer, max_steps=9, min_entropy=50.0).run(tmp_path, SILENT, "")
    assert history["updates"] == 1 and "min_entropy" in history["ended"]


def _asked(tiny: Any, tokenizer: Any, work: Path, judge: Judge, **keys: Any) -> tuple[list[int], list[int]]:
    """The questions of a training in the order in which they were drawn, and how many each update drew."""
    order: list[int] = []

    def watched(place: int, output: Output) -> tuple[float, bool]:
        order.append(place)
        return judge(place, output)

    training = _training(tiny, tokenizer, watched, eval_questions=0, learning_rate=1e-9, **keys)
    history = training.run(work, SILENT, "")[0]
    return order[:: training.settings.num_generations], [row["questions"] for row in history["losses"]]


def test_each_question_comes_once_a_pass(tiny: Any, tokenizer: Any, tmp_path: Path) -> None:
    order, _ = _asked(tiny, tokenizer, tmp_path, lambda place, output: (1.0, True), max_steps=3, draws=1)
    assert sorted(order[:6]) == list(range(6))


@pytest.mark.parametrize("choose", ["uniform", "success"])
def test_no_question_is_drawn_twice_in_an_update(tiny: Any, tokenizer: Any, tmp_path: Path, choose: str) -> None:
    keys: dict[str, Any] = {"max_steps": 4, "questions": 6, "draws": 4, "asked": 7, "choose": choose}
    order, drawn = _asked(tiny, tokenizer, tmp_path, lambda place, output: (float(place > 3) * output.ids[0], True), **keys)
    for count in drawn:
        update, order = order[:count], order[count:]
        assert len(set(update)) == count <= 7
    assert max(drawn) == 7


@pytest.mark.slow
def test_questions_that_are_sometimes_right_are_preferred(tiny: Any, tokenizer: Any, tmp_path: Path) -> None:
    def judge(place: int, output: Output) -> tuple[float, bool]:
        right = output.ids[0] % 2 == 0 if place > 1 else place == 1
        return float(right), right

    order, _ = _asked(
        tiny, tokenizer, tmp_path, judge, max_steps=60, draws=1, num_generations=8, choose="success", max_completion_length=1
    )
    counts = [order.count(question) for question in range(6)]
    assert max(counts[:2]) < 0.6 * min(counts[2:])


def test_answers_to_shared_prompts_are_those_to_each_alone(tiny: Any, tokenizer: Any) -> None:
    model = tiny.build_model(scale=1.0)
    prompts = [text for text in ("What is 1?", "What is 12 plus 7 and three more?", "No") for _ in range(3)]
    shared, alone = (
        generate(model, tokenizer, prompts, CAP, Decoding(1.0, prefixes=prefixes), batch_size=9, seeds=range(9))
        for prefixes in (SharedPrompts(model), None)
    )
    assert shared == alone


def test_without_questions_there_is_a_sentence(tiny: Any, tokenizer: Any) -> None:
    with pytest.raises(CirfError, match="no training question"):
        _training(tiny, tokenizer, asked=0)
