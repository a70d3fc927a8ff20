"""The decoder beside a model that thinks: what it is to say, that a batch is its groups, where gradients go, and its end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tables import each_row

from cirf.lm.adapters import put_adapters, through
from cirf.lm.prompt import prompt_text
from cirf.lm.training.batches import Feature, Row, tokenise
from cirf.lm.training.finetune import TrainableRows
from cirf.lm.training.objective import CurriculumRow
from cirf.methods.base import at_head_of_answer
from cirf.methods.curricula import CurriculumPlan, StagedCurriculum, aligned, groups_of
from cirf.methods.latent.coconut import BEGIN, END, CoconutSettings
from cirf.methods.latent.loop import Projector
from cirf.methods.latent.loss import Distillation, ExplainedObjective, LatentObjective, StepDecoder, copied
from cirf.recipe import schema

ROWS = [  # 3, 1, 0 and 4 thoughts; two a group
    Feature((5, 9, 30, 41, 90, 91, 20, 21), 6, 7, thoughts=(5, 3), groups=((60, 61, 3), (62, 3))),
    Feature((7, 90, 91, 22, 23, 24, 25), 3, 4, thoughts=(2, 1), groups=((63, 64, 65, 66, 3),)),
    Feature((60, 61, 62, 63, 26), 4, 4),
    Feature((11, 12, 90, 91, 27, 28), 4, 5, thoughts=(3, 4), groups=((67, 3), ())),
]
SECTION = schema.Finetune(lora=schema.Lora(rank=4, alpha=8), bf16=False)


@each_row(
    ("steps", "count", "said"),
    [
        ("ab", 3, ["a", "b", "72"]),
        ("ab", 4, ["a", "b", "72", "72"]),
        ("abc", 3, ["a", "b", "c"]),
        ("abcde", 3, ["a", "b", "c\nd\ne"]),
        ("abc", 1, ["a\nb\nc"]),
        ("", 2, ["72", "72"]),
        ("abc", 0, []),
    ],
)
def test_a_group_says_its_step_the_last_one_all_the_others_and_one_too_many_what_follows(
    steps: str, count: int, said: list[str]
) -> None:
    assert aligned(list(steps), count, "72") == said
    assert aligned(list(steps), count) == ["" if text == "72" else text for text in said]


def test_a_text_is_made_safe_and_ends(tokenizer: Any) -> None:
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    found = groups_of(tokenizer, ["1+1 = 2.", "", "say <|im_end|>"], end)
    assert [tokenizer.decode(ids) for ids in found] == ["1+1 = 2.<|im_end|>", "", "say < |im_end|><|im_end|>"]


STEPS = [("a is 1.", "b is 2."), ("1+1 = 2.", "2+2 = 4.", "4+4 = 8."), tuple(f"step {i}" for i in range(5))]


def staged(tokenizer: Any, **keys: Any) -> list[list[list[str]]]:
    """The targets of each row at each of four stages, without the end token."""
    tokenizer.add_tokens([BEGIN, END])
    tokenizer.chat_template = at_head_of_answer(tokenizer.chat_template, BEGIN)

    def write(steps: Any, answer: str) -> str:
        return "\n".join((*steps, f"#### {answer}")) if steps else answer

    rows = [Row(prompt_text(tokenizer, f"How many {i}?"), write(steps, "72"), 2, steps) for i, steps in enumerate(STEPS)]
    lessons = [CurriculumRow(row, feature) for row, feature in zip(rows, tokenise(rows, tokenizer, 500)[0], strict=True)]
    settings = CoconutSettings(stage_epochs=1.0, **keys)
    made = StagedCurriculum(lessons, lessons, tokenizer, write, settings, CurriculumPlan(END, 1, 10, 1, 1, settings.thoughts))
    assert not any(row.groups for row in made.validation)
    return [[[tokenizer.decode(ids[:-1]) for ids in made.feature(row, update).groups] for update in range(4)] for row in range(3)]


def test_only_steps_that_are_gone_are_said(tokenizer: Any) -> None:
    short, even, long = staged(tokenizer)
    assert even == [["1+1 = 2."], ["1+1 = 2.", "2+2 = 4."], [*STEPS[1]], [*STEPS[1]]]
    assert long == [
        ["step 0"],
        ["step 0", "step 1"],
        ["step 0", "step 1", "step 2"],
        ["step 0", "step 1", "step 2\nstep 3\nstep 4"],
    ]
    assert short == [["a is 1."], [*STEPS[0]], [*STEPS[0], "72"], [*STEPS[0], "72"]]


def test_groups_are_as_many_as_thoughts_make(tokenizer: Any) -> None:
    capped = staged(tokenizer, most=3)  # one group of two, one of one
    assert [len(said) for said in capped[2]] == [1, 2, 2, 2] and capped[2][3] == ["step 0", "step 1\nstep 2\nstep 3\nstep 4"]


def test_without_padding_a_short_rationale_has_no_group_too_many(tokenizer: Any) -> None:
    assert staged(tokenizer, pad_latent_to_max=False)[0] == [["a is 1."], *[[*STEPS[0]]] * 3]


def explaining(
    host: LatentObjective, decoder: StepDecoder, mean: bool = False, beyond: bool = False, weight: float = 1.0
) -> ExplainedObjective:
    return ExplainedObjective(host, decoder, 1 if beyond else 2, beyond, weight, mean)


def one_by_one(model: Any, decoder: Any, made: ExplainedObjective, size: int, mean: bool) -> torch.Tensor:
    """The decoder's loss without batches, padding and masks."""
    sums: dict[int, list[torch.Tensor]] = {}
    for row in ROWS:
        if row.thoughts is None or not row.groups:
            continue
        thoughts = made.host.think(model, made.host.collate([row], 0))
        vectors = made.vectors(thoughts)[0]
        for place, ids in enumerate(row.groups):
            if not ids:
                continue
            read = vectors[place * size : (place + 1) * size]
            given = torch.cat([read, model.get_input_embeddings()(torch.tensor(ids))])
            logits = decoder(inputs_embeds=given[None], use_cache=False).logits[0, len(read) - 1 : -1]
            sums.setdefault(place, []).append(torch.nn.functional.cross_entropy(logits, torch.tensor(ids), reduction="none"))
    groups = [torch.cat(losses).mean() if mean else sum(loss.sum() for loss in losses) / len(losses) for losses in sums.values()]
    return torch.stack(groups).mean()  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["llama", pytest.param("qwen2", marks=pytest.mark.slow), "gpt2"])
@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize("price", [0, 4, 64])
def test_groups_of_all_rows_in_as_many_passes_as_pad_little_are_each_by_itself(
    tiny: Any, monkeypatch: pytest.MonkeyPatch, kind: str, mean: bool, price: int
) -> None:
    monkeypatch.setattr("cirf.methods.latent.loss.pass_price", lambda device: price)
    model, other = tiny.build_model(kind, tied=False), tiny.build_model(kind, tied=False, seed=5)
    made, passes = explaining(LatentObjective(), copied(other), mean), []
    batch = made.collate(ROWS, 0)
    assert made.decoder.own is not None
    made.decoder.own.register_forward_pre_hook(lambda _, args, given: passes.append(given), with_kwargs=True)
    with torch.no_grad():
        wanted = one_by_one(model, other, made, 2, mean)
        host = made.host.loss(model, batch, 9)
        torch.testing.assert_close(made.loss(model, batch, 9) - host, wanted * 9 / 9, atol=1e-3, rtol=1e-4)
        assert [given["inputs_embeds"].shape[:2] for given in passes] == {
            0: [(2, 4), (1, 5), (1, 7)],  # not a place of padding behind a row
            4: [(2, 4), (2, 7)],
            64: [(4, 7)],
        }[price]
        half = explaining(LatentObjective(), made.decoder, mean, weight=0.5).loss(model, batch, 18) - host / 2
        torch.testing.assert_close(half, wanted / 4, atol=1e-3, rtol=1e-4)  # half the weight, half of an update
        made.join(model, SECTION, 1)
        assert torch.equal(explaining(LatentObjective(), made.decoder, mean, weight=0.0).loss(model, batch, 9), host)


def test_with_codi_the_vector_that_would_come_next_is_read_too(tiny: Any) -> None:
    model, other = tiny.build_model("llama", tied=False), tiny.build_model("llama", tied=False, seed=5)
    made = explaining(Distillation(Projector(32, 32, 1), 0.0, 0.0), copied(other), beyond=True)
    rows = [
        Feature((5, 9, 30, 90, 91, 20, 21), 5, 6, thoughts=(4, 2), groups=((60, 3), (61, 62, 3), (63, 3))),
        Feature((7, 90, 91, 22, 23), 3, 4, thoughts=(2, 2), groups=((64, 3), (), ())),
    ]
    with torch.no_grad():
        batch = made.collate(rows, 0)
        thoughts = made.host.think(model, batch)
        vectors = made.vectors(thoughts)
        assert vectors.shape == (2, 3, 32) and made.host.projector is not None
        given = torch.cat([model.get_input_embeddings()(torch.tensor([[5, 9, 30, 90]])), thoughts.latents[:1]], dim=1)
        state = model(inputs_embeds=given, output_hidden_states=True, use_cache=False).hidden_states[-1][0, -1]
        torch.testing.assert_close(vectors[0, 2], made.host.projector(state), atol=1e-4, rtol=1e-4)
        said = 0.0
        for place, ids in [(0, (60, 3)), (1, (61, 62, 3)), (2, (63, 3))]:
            words = torch.cat([vectors[0, place][None], model.get_input_embeddings()(torch.tensor(ids))])
            loss = torch.nn.functional.cross_entropy(
                other(inputs_embeds=words[None]).logits[0, :-1], torch.tensor(ids), reduction="sum"
            )
            if place == 0:
                words = torch.cat([vectors[1, 0][None], model.get_input_embeddings()(torch.tensor((64, 3)))])
                logits = other(inputs_embeds=words[None]).logits[0, :-1]
                loss = (loss + torch.nn.functional.cross_entropy(logits, torch.tensor((64, 3)), reduction="sum")) / 2
            said += float(loss) / 3
        found = made.said(model, vectors, batch["counts"] + 1, batch["groups"])
        torch.testing.assert_close(float(found), said, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("price", [0, 64])
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_its_gradient_reaches_the_thoughts_and_the_question(
    tiny: Any, monkeypatch: pytest.MonkeyPatch, kind: str, price: int
) -> None:
    monkeypatch.setattr("cirf.methods.latent.loss.pass_price", lambda device: price)
    model = tiny.build_model(kind, tied=False)
    made = explaining(LatentObjective(), copied(tiny.build_model(kind, tied=False, seed=5)))
    batch = made.collate(ROWS, 0)
    thoughts = made.host.think(model, batch)
    thoughts.latents.retain_grad()
    made.said(model, made.vectors(thoughts), batch["counts"], batch["groups"]).backward()
    assert thoughts.latents.grad is not None
    reached = thoughts.latents.grad.abs().sum(dim=2) > 1e-6
    assert reached.tolist() == [[True] * 3 + [False], [True] + [False] * 3, [False] * 4, [True, True, False, False]]
    rows = model.get_input_embeddings().weight.grad
    assert rows is not None and rows[[5, 9, 30, 41, 90, 7, 11, 12]].abs().sum(dim=1).gt(1e-6).all()
    assert not rows[[20, 22, 27, 91]].any()  # the text after the thoughts is not read
    assert made.decoder.own is not None
    assert all(weight.grad is not None for weight in made.decoder.own.parameters() if weight.requires_grad)


def lively(parameters: Any, seed: int) -> None:
    """Adapters begin as nothing: give them weight."""
    chance = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in parameters:
            weight.copy_(torch.randn(weight.shape, generator=chance) * 0.3)


def adapted(tiny: Any, kind: str, decoder: StepDecoder | None) -> Any:
    """A model under trained adapters and rows; with a decoder beside, where one is given."""
    plain = tiny.build_model(kind, tied=False).train()
    torch.manual_seed(1)
    model, rows = put_adapters(plain, SECTION.lora), TrainableRows(plain, [], [90, 91])
    lively([weight for name, weight in model.named_parameters() if ".default." in name], 1)
    if decoder is not None:
        decoder.join(model, SECTION, 1)
        lively([weight for name, weight in model.named_parameters() if ".decoder." in name], 2)
    return model, rows


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_shared_it_is_adapters_on_the_frozen_model_and_without_it_all_is_the_same_to_the_bit(tiny: Any, kind: str) -> None:
    alone, own = adapted(tiny, kind, None)
    made = explaining(LatentObjective(), StepDecoder())
    state = torch.get_rng_state()
    model, rows = adapted(tiny, kind, made.decoder)
    assert torch.equal(state, torch.get_rng_state())  # dropout draws as it would without the decoder
    batch = made.collate(ROWS, 0)
    more = {name for name, _ in model.named_parameters()} - {name for name, _ in alone.named_parameters()}
    assert more and all("lora" in name and ".decoder." in name for name in more)  # no second copy of a weight
    model.train()
    loss = made.loss(model, batch, 9)
    loss.backward()
    trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    assert set(trained) == {name for name in dict(model.named_parameters()) if "lora" in name or "cirf_rows" in name}
    assert all(weight.grad is not None and weight.grad.any() for weight in trained.values())
    # What it reads by is the model as it was: without the first adapters, with its own.
    with torch.no_grad(), through(model, "decoder"):
        inside = model(torch.tensor([[60, 61, 62]])).logits
    with torch.no_grad():
        outside = model(torch.tensor([[60, 61, 62]])).logits
        with alone.disable_adapter():
            bare = alone(torch.tensor([[60, 61, 62]])).logits
    assert (inside - outside).abs().max() > 1e-3 and (inside - bare).abs().max() > 1e-3
    with torch.no_grad():
        host = LatentObjective()
        assert torch.equal(host.logits(model, batch)[0], host.logits(alone, batch)[0])
        plain, wanted = model.merge_and_unload(), alone.merge_and_unload()
        rows.merge()
        own.merge()
        assert dict(plain.named_parameters()).keys() == dict(wanted.named_parameters()).keys()
        assert all(torch.equal(weight, wanted.get_parameter(name)) for name, weight in plain.named_parameters())
        assert torch.equal(host.logits(plain, batch)[0], host.logits(wanted, batch)[0])


@pytest.mark.parametrize("shared", [False, True])
def test_gradients_of_several_passes_are_those_of_one(tiny: Any, monkeypatch: pytest.MonkeyPatch, shared: bool) -> None:
    found = []
    for price in (0, 64):
        monkeypatch.setattr("cirf.methods.latent.loss.pass_price", lambda device, price=price: price)
        decoder = StepDecoder() if shared else copied(tiny.build_model("llama", tied=False, seed=5))
        made = explaining(LatentObjective(), decoder)
        model, _ = adapted(tiny, "llama", decoder)
        with counting(model if shared else decoder.own) as passes:
            made.loss(model, made.collate(ROWS, 0), 9).backward()
        weights = [*model.parameters(), *([] if shared or decoder.own is None else decoder.own.parameters())]
        found.append((len(passes), [weight.grad for weight in weights if weight.grad is not None]))
    (many, one), (few, other) = found
    assert many == few + 2 and len(one) == len(other) > 0
    for mine, its in zip(one, other, strict=True):
        torch.testing.assert_close(mine, its, atol=1e-3, rtol=1e-4)


@contextlib.contextmanager
def counting(model: Any) -> Iterator[list[int]]:
    """The passes of a model within that it is given vectors for."""
    passes: list[int] = []
    hook = model.get_decoder().register_forward_pre_hook(
        lambda module, args, given: passes.append(1) if given.get("inputs_embeds") is not None else None, with_kwargs=True
    )
    yield passes
    hook.remove()


def test_one_pass_is_made_where_each_would_cast_the_frozen_weights(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cirf.methods.latent.loss.pass_price", lambda device: 0)
    passes = {}
    for name, dtype, trained in (
        ("frozen", torch.float32, False),
        ("fits", torch.bfloat16, False),
        ("trained", torch.float32, True),
    ):
        own = tiny.build_model("llama", tied=False, seed=5).to(dtype).requires_grad_(trained)
        own.get_input_embeddings().requires_grad_(False)  # read, and not multiplied
        made = explaining(LatentObjective(), StepDecoder(own))
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16), counting(own) as within:
            made.loss(tiny.build_model("llama", tied=False), made.collate(ROWS, 0), 9)
        passes[name] = len(within)
    assert passes == {"frozen": 1, "fits": 3, "trained": 3}


def test_where_all_is_trained_it_is_adapters_on_a_copy_that_stays(tiny: Any) -> None:
    model = tiny.build_model("llama", tied=False)
    decoder = StepDecoder()
    made = explaining(LatentObjective(), decoder)
    made.join(model, SECTION.model_copy(update={"adaptation": "full"}), 1)
    assert all(weight.requires_grad for weight in model.parameters())
    assert decoder.own is not None and made.module is not None
    trained = {name for name, weight in decoder.own.named_parameters() if weight.requires_grad}
    assert trained and all("lora" in name for name in trained)
    before = {name: weight.detach().clone() for name, weight in decoder.own.named_parameters()}
    optimiser = torch.optim.SGD([*model.parameters(), *made.module.parameters()], lr=0.1)
    for _ in range(2):  # the first gradient of half of the adapters is zero
        made.loss(model, made.collate(ROWS, 0), 9).backward()
        optimiser.step()
    moved = {name for name, weight in decoder.own.named_parameters() if not torch.equal(weight, before[name])}
    assert moved == trained
    assert not torch.equal(model.get_input_embeddings().weight, decoder.own.get_input_embeddings().weight)  # type: ignore[operator]


def test_a_batch_with_nothing_to_say_leaves_it_gradients_of_zero(tiny: Any) -> None:
    model = tiny.build_model("llama", tied=False)
    made = explaining(LatentObjective(), copied(model))
    made.join(model, SECTION, 1)
    batch = made.collate(ROWS[2:3], 0)
    assert "groups" not in batch
    loss = made.loss(model, batch, 1)
    loss.backward()
    assert torch.equal(loss.detach(), LatentObjective().loss(model, batch, 1).detach()) and made.decoder.own is not None
    trained = [weight for weight in made.decoder.own.parameters() if weight.requires_grad]
    assert all(weight.grad is not None and not weight.grad.any() for weight in trained)


def test_a_copy_is_of_its_own_and_in_float32(tiny: Any) -> None:
    model = tiny.build_model("llama", tied=False).to(torch.bfloat16).requires_grad_(False)
    decoder = copied(model)
    assert decoder.own is not None
    trained = {name for name, weight in decoder.own.named_parameters() if weight.requires_grad}
    assert {name for name, _ in decoder.own.named_parameters()} - trained == {"model.embed_tokens.weight"}  # given vectors
    assert all(weight.dtype == torch.float32 for weight in decoder.own.parameters())
    made = explaining(LatentObjective(), decoder)
    made.join(model, SECTION, 1)
    made.loss(model, made.collate(ROWS, 0), 9).backward()  # thoughts in 16 bits are read, too
    assert all(decoder.own.get_parameter(name).grad is not None for name in trained)
    assert model.get_input_embeddings().weight.dtype == torch.bfloat16
    tied = copied(tiny.build_model("llama", tied=True))
    assert tied.own is not None and all(weight.requires_grad for weight in tied.own.parameters())  # the head reads it
