"""Training: what is trained, what comes out, and that the saved model needs nothing of ours. When a training is looked at, and
how one that is not worth its time ends.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import tiny
import tinyrun
import torch
from hypothesis import given
from hypothesis import strategies as st

from cirf.errors import CirfError
from cirf.lm.decoding.generate import generate
from cirf.lm.prompt import end_token, prompt_text, settle_template
from cirf.lm.saving import save_model
from cirf.lm.training import trainer
from cirf.lm.training.batches import Row, tokenise
from cirf.lm.training.batches import Row as Row_of_glance
from cirf.lm.training.callbacks import check_update
from cirf.lm.training.checkpoints import latest
from cirf.lm.training.finetune import TrainableRows, finetune
from cirf.lm.training.history import History
from cirf.lm.training.objective import Objective
from cirf.lm.training.spec import TrainingSpec
from cirf.lm.vocabulary import extend, read_trace, token_names
from cirf.recipe import schema


def _section(adaptation: str = "full", **keys: Any) -> schema.Finetune:
    base: dict[str, Any] = {
        "adaptation": adaptation,
        "lora": {"rank": 8, "alpha": 16},
        "epochs": 1,
        "batch_size": 4,
        "gradient_accumulation_steps": 1,
        "learning_rate": 1e-2,
        "warmup_steps": 2,
        "weight_decay": 0.0,
        "bf16": False,
    }
    return schema.Finetune.model_validate(base | keys)


def _rows(tokenizer: Any, count: int = 8) -> list[Row]:
    targets = [f"<cirf><cirf_00{i % 8}>{i}<cirf_00{(i + 3) % 8}></cirf>{2 * i + 1}" for i in range(count)]
    return [Row(prompt_text(tokenizer, f"What is {i} plus {i + 1}?"), target) for i, target in enumerate(targets)]


@pytest.mark.parametrize(
    ("kind", "tied", "adaptation"), [pytest.param("llama", True, "full", marks=pytest.mark.slow), ("llama", False, "lora")]
)
def test_overfitted_on_four_rows_it_answers_them_and_stops(
    tiny: Any, tokenizer: Any, tmp_path: Path, kind: str, tied: bool, adaptation: str
) -> None:
    model = tiny.build_model(kind, tied, scale=12.0)
    ids = extend(model, tokenizer, None, schema.Vocabulary(alpha="mean"), 8, 0)
    rows = _rows(tokenizer, 4)
    lora = {"lora": {"rank": 32, "alpha": 32}, "learning_rate": 2e-2, "epochs": 35} if adaptation == "lora" else {"epochs": 40}
    section = _section(adaptation, warmup_steps=10, **lora)
    trained, history, timings = finetune(model, tokenizer, rows, rows[:3], TrainingSpec(section, "cirf_full", ids, tmp_path, 0))
    outputs = generate(trained, tokenizer, [row.prompt for row in rows], 20)
    assert [output.text for output in outputs] == [row.target for row in rows]
    assert all(output.ids[-1] == end_token(tokenizer) and not output.truncated for output in outputs)
    assert read_trace(outputs[3].text, token_names(8)) == ("<cirf_003>3<cirf_006>", "7")
    assert history.updates == section.epochs == len(history.losses) and history.losses[-1]["loss"] < 0.3
    assert len(history.validation) == section.epochs + 1 and history.validation[-1]["loss"] < 0.3
    assert [row.matrix for row in history.functional_rows] == (["input"] if tied else ["input", "output"])
    assert json.loads(json.dumps(history.to_dict()))["dropped"] == 0 and timings["updates"] == history.updates


def _trainables(
    tiny: Any, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tied: bool, adaptation: str
) -> list[str]:
    model = tiny.build_model("llama", tied)
    ids = extend(model, tokenizer, None, schema.Vocabulary(), 8, 0)
    frozen = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    seen: list[str] = []

    class Spy(trainer.TargetTrainer):
        def create_optimizer(self, model: Any = None) -> Any:
            seen.extend(name for name, parameter in self.model.named_parameters() if parameter.requires_grad)
            return super().create_optimizer(model)

    monkeypatch.setattr("cirf.lm.training.finetune.TargetTrainer", Spy)
    trained, _, _ = finetune(
        model, tokenizer, _rows(tokenizer), [], TrainingSpec(_section(adaptation), "cirf_full", ids, tmp_path, 0)
    )
    after = dict(trained.named_parameters())
    assert set(after) == set(frozen)
    if adaptation == "lora":
        embeddings = trained.get_input_embeddings().weight
        old = frozen["model.embed_tokens.weight"]
        moved = (embeddings != old).any(dim=1).nonzero()[:, 0].tolist()
        assert moved == ids
        assert torch.equal(after["model.norm.weight"], frozen["model.norm.weight"])
        assert not torch.equal(after["model.layers.0.mlp.up_proj.weight"], frozen["model.layers.0.mlp.up_proj.weight"])
    return seen


LINEAR = [f"self_attn.{side}_proj" for side in "qkvo"] + [f"mlp.{part}_proj" for part in ("gate", "up", "down")]


@pytest.mark.parametrize("tied", [True, False])
def test_lora_trains_adapters_and_new_rows_and_nothing_else(
    tiny: Any, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tied: bool
) -> None:
    names = _trainables(tiny, tokenizer, tmp_path, monkeypatch, tied, "lora")
    start = "base_model.model."
    adapters = [
        f"{start}model.layers.{layer}.{name}.lora_{side}.default.weight" for layer in (0, 1) for name in LINEAR for side in "AB"
    ]
    rows = [f"{start}model.embed_tokens.cirf_rows"] + ([] if tied else [f"{start}lm_head.cirf_rows"])
    assert sorted(names) == sorted(adapters + rows)


def test_a_row_of_more_tokens_than_a_model_has_positions_is_too_long(tiny: Any, tokenizer: Any, tmp_path: Path) -> None:
    model, rows = tiny.build_model("gpt2"), _rows(tokenizer)
    rows[2] = Row(prompt_text(tokenizer, "hi " * 90), "7")
    section = _section(max_length=1024)
    _, history, _ = finetune(model, tokenizer, rows, rows[:3], TrainingSpec(section, "direct_sft", [], tmp_path, 0))
    assert history.to_dict()["dropped"] == 1 and history.updates == 2


def test_full_trains_everything(tiny: Any, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = _trainables(tiny, tokenizer, tmp_path, monkeypatch, False, "full")
    assert sorted(names) == sorted(name for name, _ in tiny.build_model("llama", False).named_parameters())


@pytest.mark.parametrize(
    ("kind", "tied"), [pytest.param("llama", True, marks=pytest.mark.slow), ("llama", False), ("gpt2", True)]
)
def test_the_merged_model_is_the_unmerged_one(
    tiny: Any, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, tied: bool
) -> None:
    model = tiny.build_model(kind, tied)
    ids = extend(model, tokenizer, None, schema.Vocabulary(alpha="mean"), 8, 0)
    rows = _rows(tokenizer)
    probe = torch.tensor([tokenizer(rows[3].prompt + rows[3].target, add_special_tokens=False).input_ids])
    unmerged: list[Any] = []
    merge = TrainableRows.merge

    def look_first(self: Any) -> None:
        unmerged.append(self)
        merge(self)

    from peft import LoraModel

    unload = LoraModel.merge_and_unload

    def before(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.model.eval()
        with torch.no_grad():
            unmerged.append(self.model(probe).logits)
        unmerged.append(generate(self.model, tokenizer, [row.prompt for row in rows], 12))
        return unload(self, *args, **kwargs)

    monkeypatch.setattr(TrainableRows, "merge", look_first)
    monkeypatch.setattr(LoraModel, "merge_and_unload", before)
    plain, _, _ = finetune(model, tokenizer, rows, [], TrainingSpec(_section("lora", epochs=5), "cirf_full", ids, tmp_path, 0))
    with torch.no_grad():
        torch.testing.assert_close(plain(probe).logits, unmerged[0], atol=1e-4, rtol=1e-4)
    assert generate(plain, tokenizer, [row.prompt for row in rows], 12) == unmerged[1]
    assert type(plain).__module__.startswith("transformers.") and not any("lora" in name for name, _ in plain.named_modules())


@pytest.mark.parametrize("adaptation", [pytest.param("full", marks=pytest.mark.slow), "lora"])
def test_the_saved_model_loads_plainly_and_answers_the_same(tiny: Any, tokenizer: Any, tmp_path: Path, adaptation: str) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = tiny.build_model("llama", False)
    model.generation_config.repetition_penalty = 1.5
    ids = extend(model, tokenizer, None, schema.Vocabulary(alpha="mean"), 8, 0)
    rows = _rows(tokenizer)
    trained, _, _ = finetune(
        model, tokenizer, rows, [], TrainingSpec(_section(adaptation, epochs=12), "cirf_full", ids, tmp_path / "work", 0)
    )
    save_model(trained, tokenizer, tmp_path / "model", "bfloat16", "cirf")
    assert {path.suffix for path in (tmp_path / "model").iterdir()} <= {".json", ".safetensors", ".jinja"}
    ours = generate(trained, tokenizer, [row.prompt for row in rows], 12)

    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    loaded = AutoTokenizer.from_pretrained(tmp_path / "model")
    assert theirs.dtype is torch.bfloat16
    assert end_token(loaded) in theirs.generation_config.eos_token_id
    for i, output in enumerate(ours):
        messages = [{"role": "user", "content": f"What is {i} plus {i + 1}?"}]
        inputs = loaded.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        made = theirs.generate(**inputs, max_new_tokens=12)[0, inputs["input_ids"].shape[1] :]
        assert tuple(made.tolist()) == output.ids
        if not output.truncated:
            assert loaded.decode(made, skip_special_tokens=True) == output.text
    assert loaded.parse_response("<cirf><cirf_001>4</cirf>4<|im_end|>", prefix="")["thinking"] == "<cirf_001>4"


def test_accumulation_weighs_every_token_alike(tiny: Any, tokenizer: Any, tmp_path: Path) -> None:
    results = []
    for size, gradient_accumulation_steps in ((8, 1), (2, 4), (1, 8)):
        model = tiny.build_model()
        section = _section(
            batch_size=size,
            gradient_accumulation_steps=gradient_accumulation_steps,
            epochs=2,
            group_by_length=False,
            max_grad_norm=0.1,
        )
        ids = extend(model, tiny.build_tokenizer(), None, schema.Vocabulary(), 8, 0)
        tokenizer_now = tiny.build_tokenizer()
        extend(tiny.build_model(), tokenizer_now, None, schema.Vocabulary(), 8, 0)
        rows = [*_rows(tokenizer_now, 15), Row(prompt_text(tokenizer_now, "Hi?"), "a long answer " * 8)]
        _, history, _ = finetune(model, tokenizer_now, rows, [], TrainingSpec(section, "x", ids, tmp_path / str(size), 0))
        results.append([(row["loss"], row["gradient_norm"]) for row in history.losses])
    for other in results[1:]:
        torch.testing.assert_close(torch.tensor(other), torch.tensor(results[0]), atol=1e-4, rtol=1e-4)


def test_gradients_are_clipped(tiny: Any, tokenizer: Any, tmp_path: Path) -> None:
    """Of gradients far below its epsilon Adam makes no step to speak of."""
    section = _section(max_grad_norm=1e-12, adam_epsilon=1e-8, warmup_steps=0)
    trained, history, _ = finetune(
        tiny.build_model(), tokenizer, _rows(tokenizer), [], TrainingSpec(section, "x", [], tmp_path, 0)
    )
    assert min(row["gradient_norm"] for row in history.losses) > 0.1  # as they were
    for name, weight in tiny.build_model().named_parameters():
        torch.testing.assert_close(trained.get_parameter(name), weight, atol=1e-5, rtol=0)


def test_the_schedule_warms_up_and_ends_at_the_smallest_rate(tiny: Any, tokenizer: Any, tmp_path: Path) -> None:
    section = _section(epochs=10, warmup_steps=5, min_lr_ratio=0.1, learning_rate=1e-3)
    _, history, _ = finetune(
        tiny.build_model(), tokenizer, _rows(tokenizer), [], TrainingSpec(section, "x", [], tmp_path / "a", 0)
    )
    rates = [row["learning_rate"] for row in history.losses]
    assert max(rates) == pytest.approx(1e-3) and rates[0] < 3e-4 and 1e-4 <= rates[-1] < 1.2e-4
    assert not history.warmup_scaled_down and history.functional_rows == []
    long = _section(warmup_steps=100)
    _, short, _ = finetune(tiny.build_model(), tokenizer, _rows(tokenizer), [], TrainingSpec(long, "x", [], tmp_path / "b", 0))
    assert short.warmup_scaled_down and short.warmup_updates == 0


@pytest.mark.parametrize(
    ("schedule", "last"),
    [
        ("cosine", lambda left: 0.1 + 0.9 * (1 + math.cos(math.pi * (1 - left))) / 2),
        ("linear", lambda left: left),
        ("constant", lambda left: 1.0),
    ],
)
def test_the_rate_takes_its_course(tiny: Any, tokenizer: Any, tmp_path: Path, schedule: str, last: Any) -> None:
    section = _section(lr_scheduler_type=schedule, epochs=6, learning_rate=1e-3, warmup_steps=2, min_lr_ratio=0.1)
    _, history, _ = finetune(tiny.build_model(), tokenizer, _rows(tokenizer), [], TrainingSpec(section, "x", [], tmp_path, 0))
    rates = [row["learning_rate"] for row in history.losses]
    assert len(rates) == 12
    for update, rate in enumerate(rates):  # of the 12 updates the first two warm up
        expected = update / 2 if update < 2 else last((12 - update) / 10)
        assert rate == pytest.approx(1e-3 * expected, rel=1e-6, abs=1e-12), (update, rates)


def test_the_optimiser_is_what_the_recipe_says(
    tiny: Any, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    create = trainer.TargetTrainer.create_optimizer

    def creating(self: trainer.TargetTrainer, *more: Any) -> Any:
        seen.append(create(self, *more))
        return seen[-1]

    monkeypatch.setattr(trainer.TargetTrainer, "create_optimizer", creating)
    section = _section(weight_decay=0.03, adam_beta1=0.8, adam_beta2=0.95, adam_epsilon=1e-7)
    finetune(tiny.build_model(), tokenizer, _rows(tokenizer), [], TrainingSpec(section, "x", [], tmp_path, 0))
    assert isinstance(seen[0], torch.optim.AdamW)
    groups = seen[0].param_groups
    assert {(group["betas"], group["eps"]) for group in groups} == {((0.8, 0.95), 1e-7)}
    assert {group["weight_decay"] for group in groups} == {0.03, 0.0}  # none on norms and biases
    decayed = sum(p.numel() for group in groups if group["weight_decay"] for p in group["params"])
    assert decayed > sum(p.numel() for group in groups if not group["weight_decay"] for p in group["params"])


@pytest.mark.parametrize(
    ("adaptation", "tied"),
    [
        ("full", True),
        ("lora", False),
        *(pytest.param(*given, marks=pytest.mark.slow) for given in (("full", False), ("lora", True))),
    ],
)
def test_new_rows_go_as_much_further_as_they_are_given_and_all_else_goes_as_far(
    tiny: Any, tmp_path: Path, adaptation: str, tied: bool
) -> None:
    ids: list[int] = []

    def weights(updates: int, ratio: float) -> dict[str, torch.Tensor]:
        model = tiny.build_model("llama", tied=tied)
        tokenizer = tiny.build_tokenizer()
        ids[:] = extend(model, tokenizer, None, schema.Vocabulary(), 8, 0)
        if updates:
            keys = {
                "epochs": updates / 2,
                "warmup_steps": 0,
                "lr_scheduler_type": "constant",
                "weight_decay": 0.1,
                "new_token_lr_multiplier": ratio,
            }
            section = _section(adaptation, **keys)
            folder = tmp_path / f"{ratio}-{updates}"
            model, history, _ = finetune(
                model, tokenizer, _rows(tokenizer), [], TrainingSpec(section, "cirf_full", ids, folder, 0)
            )
            assert history.updates == updates
        found = {name: weight.detach().clone() for name, weight in model.named_parameters()}
        return {name: weight for name, weight in found.items() if not (tied and name == "lm_head.weight")}

    start, plain, fast = weights(0, 1.0), weights(1, 1.0), weights(1, 3.0)
    matrices = [name for name in start if name.endswith(("embed_tokens.weight", "lm_head.weight"))]
    assert len(matrices) == 2 - tied
    others = torch.ones(len(start[matrices[0]]), dtype=torch.bool)
    others[ids] = False
    for name in matrices:
        gone, further = plain[name][ids] - start[name][ids], fast[name][ids] - start[name][ids]
        assert gone.abs().max() > 1e-3
        torch.testing.assert_close(further, 3 * gone, atol=1e-6, rtol=1e-5)
        assert torch.equal(plain[name][others], fast[name][others])
    assert all(torch.equal(plain[name], fast[name]) for name in start.keys() - set(matrices))
    later = weights(3, 3.0)
    assert not any(torch.equal(later[name], fast[name]) for name in matrices)


def test_overrides_go_before_a_preset_and_that_before_the_section() -> None:
    section = _section(overrides={"direct_sft": {"learning_rate": 3e-4, "epochs": 3}})
    preset = schema.Override(learning_rate=1e-5, weight_decay=0.5, lora=schema.Lora(rank=2))
    chosen = section.resolved("direct_sft", preset)
    assert (chosen.learning_rate, chosen.epochs, chosen.weight_decay, chosen.lora.rank) == (3e-4, 3, 0.5, 2)
    other = section.resolved("cirf_full", schema.Override())
    assert other == section.model_copy(update={"overrides": {}})


class _Break(Exception):
    pass


class _Breaking:
    """A progress bar that ends the training after some updates."""

    def __init__(self, after: int) -> None:
        self.left, self.done = after, -1

    @contextmanager
    def task(self, name: str, total: int | None, unit: str = "rows", done: int = 0) -> Iterator[Any]:
        self.done = done

        def advance(count: int) -> None:
            self.left -= count
            if self.left == 0:
                raise _Break

        yield advance


def test_an_interrupted_training_goes_on_from_its_checkpoint(tiny: Any, tokenizer: Any, tmp_path: Path) -> None:
    section = _section("lora", epochs=6, save_steps=4)
    rows = _rows(tokenizer)
    results = []
    for name, stop in (("whole", 0), ("broken", 7)):
        for after in [stop, 0] if stop else [0]:
            model, own = tiny.build_model("gpt2"), tiny.build_tokenizer()
            own.chat_template = tokenizer.chat_template
            ids = extend(model, own, None, schema.Vocabulary(), 8, 0)
            bar = _Breaking(after)
            try:
                trained, history, _ = finetune(
                    model, own, rows, rows[:2], TrainingSpec(section, "x", ids, tmp_path / name, 0), bar
                )
            except _Break:
                continue
        assert bar.done == (4 if stop else 0)  # the bar, too, goes on where it was
        results.append((history, trained.state_dict()))
    assert results[0][0] == results[1][0]
    for name, value in results[0][1].items():
        assert torch.equal(value, results[1][1][name])
    assert [folder.name for folder in (tmp_path / "broken" / "checkpoints").iterdir()] == ["checkpoint-12"]


@pytest.mark.parametrize("epochs", [2.0, 1.4])
def test_a_training_that_was_killed_after_its_last_update_does_none_more(
    tiny: Any, tokenizer: Any, tmp_path: Path, epochs: float
) -> None:
    section, rows = _section(epochs=epochs, save_steps=2), _rows(tokenizer)
    results = []
    for _ in range(3):  # the checkpoint of the last update stays there
        trained, history, _ = finetune(tiny.build_model(), tokenizer, rows, rows[:2], TrainingSpec(section, "x", [], tmp_path, 0))
        results.append((history, trained.state_dict()))
    for history, weights in results[1:]:
        assert history == results[0][0]
        assert all(torch.equal(value, results[0][1][name]) for name, value in weights.items())


def test_mistakes_are_one_sentence(tiny: Any, tokenizer: Any, tmp_path: Path) -> None:
    rows = _rows(tokenizer)
    cases: list[tuple[list[Row], dict[str, Any], str]] = [
        ([], {}, "there is no row to train on"),
        (rows, {"max_length": 5}, "longer than finetune.max_length"),
        (rows, {"adaptation": "lora", "lora": {"target_modules": "nothing_like_it"}}, "finetune.lora.target_modules"),
        (rows, {"learning_rate": 1e30, "epochs": 4, "warmup_steps": 0}, "lower finetune.learning_rate"),
    ]
    with pytest.raises(CirfError, match="its tokenizer splits text differently once saved"):
        finetune(tiny.build_model("qwen2"), tokenizer, rows, [], TrainingSpec(_section(), "x", [], tmp_path, 0))
    for number, (lines, keys, words) in enumerate(cases):
        with pytest.raises(CirfError, match=words) as caught:
            finetune(tiny.build_model(), tokenizer, lines, [], TrainingSpec(_section(**keys), "x", [], tmp_path / str(number), 0))
        assert "\n" not in str(caught.value)


def test_functional_tokens_weigh_in_the_loss_what_they_are_given(tiny: Any, tokenizer: Any, tmp_path: Path) -> None:
    rows = _rows(tokenizer, 4)
    for weight in (1.0, 3.0):
        model = tiny.build_model("llama")
        ids = extend(model, tokenizer, None, schema.Vocabulary(), 8, 0)
        batch = Objective().collate(tokenise(rows, tokenizer, 256, ids)[0], 0)
        with torch.no_grad():
            logits, targets = Objective().logits(model, batch)
            nll = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
            coded = torch.isin(targets, torch.tensor(ids[2:]))
            assert 0 < int(coded.sum()) < len(targets)
            wanted = weight * nll[coded].sum() + nll[~coded].sum()
            weighing = Objective()
            weighing.weigh(ids[2:], weight)
            torch.testing.assert_close(weighing.loss(model, batch, 100), wanted / 100)
            torch.testing.assert_close(weighing.loss(model, batch, None), wanted / len(nll))
        section = _section(functional_token_loss_weight=weight)
        _, history, _ = finetune(model, tokenizer, rows, rows, TrainingSpec(section, "cirf_full", ids, tmp_path / str(weight), 0))
        assert history.losses[0]["loss"] == pytest.approx(float(wanted / len(nll)), abs=1e-5)
        assert history.validation[0]["loss"] == pytest.approx(float(nll.mean()), abs=1e-5)  # which is reported unweighted


def test_a_loss_of_ones_own_takes_no_weight(tiny: Any, tokenizer: Any, tmp_path: Path) -> None:
    class Own(Objective):
        def loss(self, model: Any, batch: Any, count: Any) -> torch.Tensor:
            raise AssertionError("refused before it is asked for")

    model = tiny.build_model("llama", tied=False)
    ids = extend(model, tokenizer, None, schema.Vocabulary(), 8, 0)
    section, rows = _section(functional_token_loss_weight=2.0), _rows(tokenizer, 4)
    with pytest.raises(CirfError, match=r"finetune\.functional_token_loss_weight: mine has a loss of its own"):
        finetune(model, tokenizer, rows, [], TrainingSpec(section, "mine", ids, tmp_path, 0, objective=Own()))


@pytest.mark.parametrize("group", [True, False])
def test_a_loss_that_is_no_number_names_its_rows_and_leaves_the_last_good_checkpoint(
    tiny: Any, tokenizer: Any, tmp_path: Path, group: bool
) -> None:
    model = tiny.build_model("llama", tied=False)
    ids = extend(model, tokenizer, None, schema.Vocabulary(), 8, 0)
    rows = [dataclasses.replace(row, problem=f"sums/{i}") for i, row in enumerate(_rows(tokenizer, 24))]
    rows[17] = dataclasses.replace(rows[17], prompt=rows[17].prompt.replace("plus", "~"))
    rows[3] = dataclasses.replace(rows[3], prompt=rows[3].prompt * 400)  # too long: the rows behind it have other places
    with torch.no_grad():
        model.get_input_embeddings().weight[tokenizer.convert_tokens_to_ids("~")] = math.nan
    section = _section("lora", batch_size=2, gradient_accumulation_steps=2, epochs=2, save_steps=1, group_by_length=group)
    with pytest.raises(trainer.DivergedError) as caught:
        finetune(model, tokenizer, rows, [], TrainingSpec(section, "cirf_full", ids, tmp_path, 1))
    found = re.fullmatch(r"the training loss is not a number in update (\d) \((.*)\); lower .*", str(caught.value))
    assert found is not None, caught.value
    assert "sums/17" in found[2].split(", ") and len(found[2].split(", ")) <= 4 and "sums/3" not in found[2].split(", ")
    good = latest(tmp_path / "checkpoints")
    assert int(found[1]) > 1 and good is not None and good.name == f"checkpoint-{int(found[1]) - 1}"


def test_a_gradient_that_is_no_number_stops_before_it_is_saved(tiny: Any, tokenizer: Any, tmp_path: Path) -> None:
    model = tiny.build_model("llama")
    passes = 0

    def burst(gradient: torch.Tensor) -> torch.Tensor:
        nonlocal passes
        passes += 1
        return gradient * math.inf if passes == 3 else gradient

    model.model.norm.weight.register_hook(burst)
    with pytest.raises(trainer.DivergedError, match=r"the gradient is not a number in update 3 \(row \d+, row \d+\)"):
        finetune(
            model,
            tokenizer,
            _rows(tokenizer),
            [],
            TrainingSpec(_section(batch_size=2, save_steps=1), "direct_sft", [], tmp_path, 0),
        )
    good = latest(tmp_path / "checkpoints")
    assert good is not None and good.name == "checkpoint-2"


def test_a_disk_that_takes_no_more_is_one_sentence(tiny: Any, tokenizer: Any, tmp_path: Path) -> None:
    for limit in (20_000, 140_000):  # too little for the weights; enough for them, too little for the optimiser's state
        model, summary = tiny.build_model(), r"cannot write there, .* free some space and run the same command again"
        with tinyrun.files_no_longer_than(limit), pytest.raises(CirfError, match=summary) as caught:
            finetune(model, tokenizer, _rows(tokenizer), [], TrainingSpec(_section(), "x", [], tmp_path / str(limit), 0))
        assert "\n" not in str(caught.value)


def test_on_a_cpu_freed_memory_is_handed_back_now_and_then_and_in_the_end(
    tiny: Any, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, handed = tiny.build_model(), []
    ids = extend(model, tokenizer, None, schema.Vocabulary(), 8, 0)
    monkeypatch.setattr(trainer, "release_freed_memory", lambda: handed.append("within"))
    monkeypatch.setattr("cirf.lm.training.finetune.release_freed_memory", lambda: handed.append("after"))
    monkeypatch.setattr(trainer.ReleaseMemory, "every", 3)
    scarce = iter([True, False, False, True, False])  # after updates 1, 2, 4, 5 and 7
    monkeypatch.setattr(trainer, "scarce", lambda: next(scarce))
    section = _section(epochs=7, batch_size=8)  # an update an epoch
    _, history, _ = finetune(
        model, tokenizer, _rows(tokenizer), [], TrainingSpec(section, "cirf_full", ids, tmp_path, 0, device="cpu")
    )
    assert history.updates == 7 and handed == ["within"] * 4 + ["after"] and not list(scarce)


@pytest.mark.slow
def test_bfloat16_and_checkpointed_activations_train_too(
    tiny: Any, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cirf.cpu.number_formats.is_fast", lambda dtype: True)
    losses: list[float] = []
    seen: set[tuple[bool, bool]] = set()
    for number, keys in enumerate(({}, {"bf16": True}, {"gradient_checkpointing": True})):
        for adaptation in ("full", "lora"):
            model = tiny.build_model("llama", False)
            own = tiny.build_tokenizer()
            ids = extend(model, own, None, schema.Vocabulary(), 8, 0)
            section = _section(adaptation, epochs=4, **keys)
            layer = model.model.layers[0]
            seen.clear()

            def look(*given: Any, layer: Any = layer) -> None:
                if torch.is_grad_enabled():  # not what is tried beforehand
                    seen.add((torch.is_autocast_enabled("cpu"), layer.gradient_checkpointing))

            layer.self_attn.register_forward_pre_hook(look)
            work = tmp_path / f"{number}{adaptation}"
            trained, history, _ = finetune(model, own, _rows(own), [], TrainingSpec(section, "x", ids, work, 0))
            assert seen == {(bool(keys.get("bf16")), bool(keys.get("gradient_checkpointing")))}
            assert trained.dtype is torch.float32
            assert history.computed_in == ("bfloat16" if keys.get("bf16") else "float32")
            losses.append(history.losses[-1]["loss"])
    torch.testing.assert_close(torch.tensor(losses[2:4]), torch.tensor(losses[:2]), atol=0.15, rtol=0.05)
    torch.testing.assert_close(torch.tensor(losses[4:]), torch.tensor(losses[:2]), atol=1e-4, rtol=1e-4)


def test_a_processor_without_bfloat16_trains_in_float32(
    tiny: Any, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cirf.cpu.number_formats.is_fast", lambda dtype: dtype == "float32")
    losses = []
    for bf16 in (True, False):
        model, own = tiny.build_model("llama", False), tiny.build_tokenizer()
        section = _section("lora", epochs=2, bf16=bf16)
        _, history, _ = finetune(model, own, _rows(own), [], TrainingSpec(section, "x", [], tmp_path / str(bf16), 0))
        losses.append(history.losses[-1]["loss"])
        assert history.computed_in == "float32"
    assert losses[0] == losses[1]


@given(st.integers(1, 500), st.integers(1, 5000))
def test_a_training_is_looked_at_behind_an_epoch_and_a_third_of_it(epoch: int, total: int) -> None:
    at = check_update(epoch, total)
    ends = [update for update in range(epoch, total, epoch) if update >= total / 3]
    assert at == (ends[0] if ends else None)


def _train(folder: Path, look: Callable[[Any, int, int], str | None], kernel: str = "sdpa") -> History:
    """Three epochs of four updates, looked at behind the first."""
    tokenizer, model = tiny.build_tokenizer(), tiny.build_model("llama", tied=False)
    model.set_attn_implementation(kernel)
    settle_template(tokenizer)
    rows = [Row_of_glance(prompt_text(tokenizer, f"What is {i} plus {i}?"), f"{2 * i}") for i in range(8)]
    section = schema.Finetune(adaptation="full", epochs=3, batch_size=2, gradient_accumulation_steps=1, save_steps=4, bf16=False)
    _, history, _ = finetune(model, tokenizer, rows, rows[:2], TrainingSpec(section, "direct_sft", [], folder, 1, look=look))
    return history


def test_a_look_ends_a_training_and_says_why(tmp_path: Path) -> None:
    history = _train(tmp_path, lambda model, update, updates: f"{update} of {updates}")
    assert history.ended == "4 of 12" and history.updates == 4
    assert [row["update"] for row in history.losses] == [1, 2, 3, 4] and [row["update"] for row in history.validation] == [0, 4]
    assert history.to_dict()["ended"] == "4 of 12"


def test_a_look_that_finds_nothing_changes_nothing(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []

    def look(model: Any, update: int, updates: int) -> None:
        assert not model.training and model.config.use_cache
        seen.append((update, updates))

    looked = _train(tmp_path / "looked", look)
    assert seen == [(4, 12)] and looked.updates == 12 and "ended" not in looked.to_dict()


@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
def test_a_look_answers_with_the_kernel_that_the_model_came_with(tmp_path: Path, kernel: str) -> None:
    history = _train(tmp_path, lambda model, update, updates: model.config._attn_implementation, kernel)
    assert history.ended == kernel


def test_a_training_killed_while_it_is_looked_at_is_looked_at_again(tmp_path: Path) -> None:
    def killed(model: Any, update: int, updates: int) -> str | None:
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        _train(tmp_path, killed)
    history = _train(tmp_path, lambda model, update, updates: "no use")
    assert history.ended == "no use" and history.updates == len(history.losses) == 4
