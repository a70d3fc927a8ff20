"""Vectors among embeddings: their places are found, training and answering read them alike, and a guide makes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from cirf.errors import CirfError
from cirf.lm.decoding.generate import Decoding, generate, generate_one, sample_many
from cirf.lm.prompt import encode, prompt_text, settle_template
from cirf.lm.training.batches import Feature, Row, tokenise
from cirf.lm.training.finetune import finetune
from cirf.lm.training.loss import IGNORED
from cirf.lm.training.objective import Objective
from cirf.lm.training.spec import TrainingSpec
from cirf.methods.base import around_turn
from cirf.methods.soft.guide import (
    Guide,
    GuidedPrefiller,
    SoftPromptSettings,
    fingerprint,
    load_guide,
    read_soft,
    save_soft,
    saved_guide,
)
from cirf.methods.soft.loss import FrozenGuideVectors, SoftObjective, TrainedGuideVectors
from cirf.methods.soft.prompts import PromptCache, TemplateFrame, find_run, placeholder, slots_of, soft_logits
from cirf.recipe import schema

KINDS = ["llama", "qwen2", "gpt2", "gemma2"]
QUESTIONS = ["Hi?", "What is 12 plus 7?", "Anna has 3 apples and buys 4 more. How many?", "yes"]
LLAMA3 = (
    "{{ '<|endoftext|>' }}{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n\n' + message['content'] | trim "
    "+ '<|im_end|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n\n' }}{% endif %}"
)
"""Like Llama 3's: it begins with a special token, strips the content, and its end token closes every turn."""


def settled(tiny: Any, template: str | None, count: int = 3, special: tuple[str, ...] = ()) -> tuple[Any, str]:
    """A tokenizer whose prompts have places behind the question, and the token that holds them."""
    tokenizer = tiny.build_tokenizer(template)
    tokenizer.add_special_tokens({"additional_special_tokens": list(special)}) if special else None
    settle_template(tokenizer)
    holder = placeholder(tokenizer)
    tokenizer.chat_template = around_turn(tokenizer.chat_template, "", holder * count)
    return tokenizer, holder


@pytest.mark.parametrize(
    ("template", "special", "wanted"),
    [
        ("chatml", (), "<|endoftext|>"),  # the end token closes turns
        ("no system", (), "<|im_end|>"),
        (None, (), "<|im_end|>"),
        ("llama3", ("<|reserved_0|>",), "<|reserved_0|>"),
        ("llama3", ("<|it's|>", "<|reserved_0|>"), "<|reserved_0|>"),  # one that a template cannot quote
    ],
)
def test_places_are_held_by_a_token_that_is_nowhere_else_and_found_by_it(
    tiny: Any, template: str | None, special: tuple[str, ...], wanted: str
) -> None:
    templates = {"chatml": tiny.CHATML, "no system": tiny.NO_SYSTEM, "llama3": LLAMA3}
    tokenizer, holder = settled(tiny, templates.get(template or ""), special=special)
    assert holder == wanted
    token, frame = tokenizer.convert_tokens_to_ids(holder), TemplateFrame(tokenizer)
    for text in ["How many?", f"Say {holder}{holder} and {holder}", "é 数\n\nA. one\nB. two", "x" * 90]:
        ids = encode(tokenizer, prompt_text(tokenizer, text))
        start, count = find_run(ids, token)
        assert count == 3 and ids.count(token) == 3 and ids[start : start + 3] == [token] * 3 and start + 3 < len(ids)
        assert frame.text(ids) == text.replace(holder, holder[0] + " " + holder[1:])
    with pytest.raises(CirfError, match="no place for vectors"):
        find_run(encode(tokenizer, "How many?"), token)
    with pytest.raises(CirfError, match="several places for vectors"):
        find_run([5, token, 6, token], token)
    with pytest.raises(CirfError, match="not a prompt in the model's chat template"):
        frame.text(encode(tokenizer, "How many?"))


def test_without_a_token_to_spare_there_are_no_places(tiny: Any) -> None:
    with pytest.raises(CirfError, match="no special token is left to hold the places of vectors"):
        settled(tiny, LLAMA3)


def recomputed(model: Any, ids: list[int], start: int, vectors: torch.Tensor, steps: int) -> list[int]:
    """What a model writes after one prompt with vectors in place of three ids, without padding and cache."""
    embed = model.get_input_embeddings()
    tail = ids[start + 3 :]
    given = torch.cat([embed(torch.tensor([ids[:start]])), vectors[None], embed(torch.tensor([tail]))], dim=1)
    written: list[int] = []
    for _ in range(steps):
        written.append(int(model(inputs_embeds=given, use_cache=False).logits[0, -1].argmax()))
        given = torch.cat([given, embed(torch.tensor([written[-1:]]))], dim=1)
    return written


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_answers_are_those_computed_without_a_cache_however_they_are_asked_for(tiny: Any, kind: str) -> None:
    model = tiny.build_model(kind, tied=False)
    tokenizer, holder = settled(tiny, tiny.CHATML)
    token = tokenizer.convert_tokens_to_ids(holder)
    small = tiny.build_model("gpt2", seed=5)
    torch.manual_seed(0)
    guide = Guide(small, tiny.build_tokenizer(tiny.NO_SYSTEM), "Think.", 32)
    guided = GuidedPrefiller(model, tokenizer, SoftPromptSettings(holder, 3, "x", "x", "Think."), guide)
    prompts = [prompt_text(tokenizer, text) for text in QUESTIONS]
    wanted = []
    for text, prompt in zip(QUESTIONS, prompts, strict=True):
        ids = encode(tokenizer, prompt)
        asked = guide.ids(text, 3)
        last = small(input_ids=torch.tensor([asked]), output_hidden_states=True).hidden_states[-1][0, -3:]
        wanted.append(recomputed(model, ids, find_run(ids, token)[0], guide.projection(last), 5))
    found = []
    for size in (1, 4):
        found = generate(model, tokenizer, prompts, 5, Decoding(prefixes=guided), batch_size=size)
        assert [list(output.ids) for output in found] == [
            row[: len(output.ids)] for row, output in zip(wanted, found, strict=True)
        ]
    one = generate_one(model, tokenizer, prompts[2], 5, Decoding(prefixes=guided))
    assert one.text == found[2].text
    assert [output.ids for output in sample_many(model, tokenizer, prompts[2], 5, 3, Decoding(0.0, 1.0, 1, prefixes=guided))] == [
        found[2].ids
    ] * 3
    # Of each question as many as one likes, and in a batch as alone.
    rows = [encode(tokenizer, prompt) for prompt in prompts]
    vectors = guided.vectors(rows)
    assert vectors.shape == (4, 3, 32)
    few = [own[:count] for own, count in zip(vectors, (3, 1, 0, 2), strict=True)]
    together = guided.fill(rows, few)
    assert [row.count(token) for row in together.prompts] == [3, 1, 0, 2]
    ends = torch.tensor([row[-1:] for row in together.prompts])
    mask = torch.tensor([[0] * (max(together.heads) - head) + [1] * (head + 1) for head in together.heads])
    places = torch.tensor(together.heads)[:, None]
    logits = model(input_ids=ends, attention_mask=mask, position_ids=places, past_key_values=together.cache).logits[:, -1]
    for row, own in enumerate(few):
        alone = guided.fill(rows[row : row + 1], [own])
        by_itself = model(input_ids=ends[row : row + 1], past_key_values=alone.cache).logits[:, -1]
        torch.testing.assert_close(logits[row : row + 1], by_itself, atol=1e-4, rtol=1e-4)


def test_what_cannot_be_begun_is_said(tiny: Any, tokenizer: Any) -> None:
    model, guide = tiny.build_model(), Guide(tiny.build_model(), tokenizer, "", 32)
    own, holder = settled(tiny, tiny.CHATML)
    token = own.convert_tokens_to_ids(holder)
    guided = GuidedPrefiller(model, own, SoftPromptSettings(holder, 3, "x", "x", ""), guide)
    rows = [encode(own, prompt_text(own, text)) for text in QUESTIONS[:2]]
    with pytest.raises(CirfError, match="different numbers of places"):
        guided.vectors([rows[0], [ids for place, ids in enumerate(rows[1]) if place != find_run(rows[1], token)[0]]])
    with pytest.raises(CirfError, match="ends with the places"):
        guided.fill([[5, 6, token]], [torch.zeros(1, 32)])
    with pytest.raises(CirfError, match="does not know <nobody>"):
        GuidedPrefiller(model, own, SoftPromptSettings("<nobody>", 3, "x", "x", ""), guide)


def features(tokenizer: Any) -> list[Feature]:
    rows = [Row(prompt_text(tokenizer, text), f"{place} it", given=place) for place, text in enumerate(QUESTIONS)]
    return tokenise(rows, tokenizer, 500)[0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_weighs_its_targets_as_its_rows_do_alone_and_the_loss_reaches_the_vectors_alone(tiny: Any, kind: str) -> None:
    model = tiny.build_model(kind, tied=False).requires_grad_(False)
    tokenizer, holder = settled(tiny, tiny.CHATML)
    token, rows = tokenizer.convert_tokens_to_ids(holder), features(tokenizer)
    states = torch.randn(4, 3, 20, generator=torch.Generator().manual_seed(1))
    objective = SoftObjective(token, FrozenGuideVectors(states, range(4), 32, 0))
    together = objective.loss(model, objective.collate(rows, 1), 12)
    alone = torch.stack([objective.loss(model, objective.collate([row], 1), 12) for row in rows]).sum()
    torch.testing.assert_close(together, alone, atol=1e-4, rtol=1e-4)
    together.backward()  # type: ignore[no-untyped-call]
    assert all(value.grad is not None and bool(value.grad.abs().sum() > 0) for value in objective.module.parameters())
    assert all(value.grad is None for value in model.parameters())
    # The token that holds a place is not read: without vectors the loss is another, with its own embedding the same.
    batch = objective.collate(rows, 1)
    plain, targets = Objective().logits(model, batch)
    same = model.get_input_embeddings()(torch.full((4, 3), token))
    logits, _ = soft_logits(model, batch["input_ids"], batch["labels"], batch["slots"], same)
    torch.testing.assert_close(logits, plain, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(objective.logits(model, batch)[0], plain, atol=1e-2)
    assert targets.tolist() == [id_ for row in rows for id_ in row.ids[row.start :]]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_before_the_vectors_of_a_frozen_model_needs_no_graph(tiny: Any, kind: str) -> None:
    model = tiny.build_model(kind, tied=False).requires_grad_(False)
    tokenizer, holder = settled(tiny, tiny.CHATML)
    token, rows = tokenizer.convert_tokens_to_ids(holder), features(tokenizer)
    batch = SoftObjective(token, FrozenGuideVectors(torch.zeros(4, 3, 20), range(4), 32, 0)).collate(rows, 1)
    starts = (batch["slots"] >= 0).int().argmax(dim=1)
    assert len(set(starts.tolist())) > 1
    drawn = torch.randn(4, 3, 32, generator=torch.Generator().manual_seed(2))
    sides, read = [], []
    hook = model.get_input_embeddings().register_forward_hook(lambda module, args, made: read.append(torch.is_grad_enabled()))
    widths: list[int] = []

    def taken(module: Any, args: Any, given: dict[str, Any]) -> None:
        if given.get("inputs_embeds") is not None:
            widths.append(given["inputs_embeds"].shape[1])

    inner = model.base_model.register_forward_pre_hook(taken, with_kwargs=True)
    for heads in (None, PromptCache(0)):
        vectors = drawn.clone().requires_grad_()
        logits, targets = soft_logits(model, batch["input_ids"], batch["labels"], batch["slots"], vectors, heads)
        logits.logsumexp(dim=1).sum().backward()
        sides.append((logits.detach(), targets, vectors.grad))
    hook.remove()
    inner.remove()
    assert widths == [
        batch["input_ids"].shape[1],
        max(len(row.ids) - start for row, start in zip(rows, starts.tolist(), strict=True)),
    ]
    assert [*dict.fromkeys(read)] == [True, False] and read[-1]  # the rest behind it has one again
    for whole, parted in zip(*sides, strict=True):
        torch.testing.assert_close(parted, whole, atol=1e-4, rtol=1e-4)


def test_a_batch_without_targets_has_no_logits(tiny: Any) -> None:
    model = tiny.build_model(tied=False).requires_grad_(False)
    ids, vectors = torch.randint(5, 60, (2, 9), generator=torch.Generator().manual_seed(0)), torch.zeros(2, 3, 32)
    labels = torch.full((2, 9), IGNORED)
    for heads in (None, PromptCache()):
        logits, targets = soft_logits(model, ids, labels, slots_of([4, 2], [3, 3], 9), vectors, heads)
        assert logits.shape == (0, 448) and not len(targets)


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_rows_as_long_as_a_model_has_places_may_be_read_in_parts(tiny: Any, kind: str) -> None:
    model = tiny.build_model(kind, tied=False).requires_grad_(False)
    width = model.config.max_position_embeddings
    ids = torch.randint(5, 60, (2, width), generator=torch.Generator().manual_seed(0))
    labels = torch.full((2, width), IGNORED)
    labels[0, -1], labels[1, 20] = 7, 8
    slots = slots_of([width - 20, 5], [3, 3], width)
    vectors = torch.randn(2, 3, 32, generator=torch.Generator().manual_seed(3))
    whole, parted = (soft_logits(model, ids, labels, slots, vectors, heads)[0] for heads in (None, PromptCache()))
    torch.testing.assert_close(parted, whole, atol=1e-4, rtol=1e-4)


def test_a_model_whose_angles_hang_on_a_rows_length_is_not_read_in_parts(tiny: Any) -> None:
    model = tiny.build_model().requires_grad_(False)
    objective = SoftObjective(9, FrozenGuideVectors(torch.zeros(2, 3, 4), range(2), 8, 0))
    for rope_type, expected in (("default", True), ("dynamic", False), ("longrope", False)):
        model.config.rope_parameters = {"rope_theta": 10000.0, "rope_type": rope_type, "factor": 2.0}
        objective.join(model, schema.Finetune(), 0)
        assert (objective.heads is not None) == expected


def test_whether_a_model_is_frozen_is_seen_when_it_is_joined(tiny: Any) -> None:
    objective, section = SoftObjective(9, FrozenGuideVectors(torch.zeros(2, 3, 4), range(2), 8, 0)), schema.Finetune()
    model = tiny.build_model().requires_grad_(False)
    objective.join(model, section, 0)
    assert objective.heads is not None
    objective.join(model, section.model_copy(update={"gradient_checkpointing": True}), 0)
    assert objective.heads is None
    objective.join(model.requires_grad_(True), section, 0)
    assert objective.heads is None


def test_rows_may_have_unlike_numbers_of_vectors() -> None:
    assert slots_of([1, 0], [2, 3], 5).tolist() == [[-1, 0, 1, -1, -1], [0, 1, 2, -1, -1]]
    objective = SoftObjective(9, FrozenGuideVectors(torch.zeros(2, 3, 4), range(2), 8, 0))
    rows = [Feature((5, 9, 9, 6, 7), 4, given=0), Feature((9, 9, 9, 5, 9, 8), 4, given=1)]  # a target may be that token
    batch = objective.collate(rows, 9)
    assert batch["slots"].tolist() == [[-1, 0, 1, -1, -1, -1], [0, 1, 2, -1, -1, -1]]
    assert batch["labels"].tolist() == [[IGNORED] * 4 + [7, IGNORED], [IGNORED] * 4 + [9, 8]]


# The guide


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_a_guides_states_are_its_last_ones_at_its_places_alone_or_padded(tiny: Any, kind: str) -> None:
    small = tiny.build_model(kind, tied=False)
    tokenizer = tiny.build_tokenizer()
    settle_template(tokenizer)
    own, before = (Guide(small, tokenizer, "Think.", 16, shifted) for shifted in (False, True))
    read = own.read(QUESTIONS, 3)
    rows = [own.ids(text, 4) for text in QUESTIONS]
    for place, ids in enumerate(rows):
        whole = small(input_ids=torch.tensor([ids]), output_hidden_states=True).hidden_states[-1][0]
        torch.testing.assert_close(read[place], whole[-4:-1], atol=1e-4, rtol=1e-4)  # causal: the first three of four
        torch.testing.assert_close(before.states(before.batch([ids]))[0], whole[-5:-1], atol=1e-4, rtol=1e-4)
        assert tokenizer.decode(ids).count("Think.") == 1 and QUESTIONS[place] in tokenizer.decode(ids)
    together = own.states(own.batch(rows))
    alone = torch.cat([own.states(own.batch([ids])) for ids in rows])
    torch.testing.assert_close(together, alone, atol=1e-4, rtol=1e-4)


def test_a_learned_vector_is_in_the_places_and_the_vocabulary_is_not_trained(tiny: Any, tokenizer: Any) -> None:
    small = tiny.build_model(tied=False)
    guide = Guide(small, tokenizer, "", 16, learned=True)
    assert guide.thought is not None
    torch.testing.assert_close(guide.thought.data, small.get_input_embeddings().weight[: len(tokenizer)].mean(dim=0))
    rows = [guide.ids(text, 2) for text in QUESTIONS]
    guide.requires_grad_(True)(guide.batch(rows)).square().sum().backward()
    trained = {name for name, value in guide.named_parameters() if value.grad is not None}
    assert {"thought", "projection.weight", "model.model.layers.0.mlp.up_proj.weight"} < trained
    assert trained == {name for name, value in guide.named_parameters() if value.requires_grad}
    assert not any("embed_tokens" in name or "lm_head" in name for name in trained)
    with torch.no_grad():
        before = guide(guide.batch(rows))
        guide.thought += 1
        assert not torch.allclose(before, guide(guide.batch(rows)))


def test_a_fingerprint_distinguishes_weights_in_every_format(tiny: Any, tokenizer: Any, tmp_path: Path) -> None:
    model = tiny.build_model()
    summary = fingerprint(model.to(torch.bfloat16))
    model.save_pretrained(tmp_path / "m")
    tokenizer.save_pretrained(tmp_path / "m")
    found = [
        load_guide(str(tmp_path / "m"), schema.Backbone(dtype=dtype, device="cpu"), 8, "") for dtype in ("float32", "bfloat16")
    ]
    assert [fingerprint(guide.model) for guide in found] == [summary, summary]
    assert not any(value.requires_grad for value in found[0].model.parameters())
    with torch.no_grad():
        found[0].model.model.layers[1].mlp.up_proj.weight += 0.01
    assert fingerprint(found[0].model) != summary != fingerprint(tiny.build_model(seed=1))


def test_what_is_next_to_a_model_comes_back_or_is_said_to_be_damaged(tmp_path: Path) -> None:
    assert read_soft(tmp_path) is None
    soft = SoftPromptSettings("<x>", 4, "a/b", "abc", "Think.", True)
    save_soft(tmp_path, soft, torch.nn.Linear(3, 2))
    assert read_soft(tmp_path) == soft
    for text in ("{}", "[", '{"placeholder": 1}'):
        (tmp_path / "soft.json").write_text(text)
        with pytest.raises(CirfError, match="damaged"):
            read_soft(tmp_path)


@pytest.mark.parametrize("live", [False, True])
def test_a_frozen_model_stays_to_the_bit_while_a_map_or_a_guide_learns(tiny: Any, tmp_path: Path, live: bool) -> None:
    model = tiny.build_model("llama", tied=False)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    tokenizer, holder = settled(tiny, tiny.CHATML)
    small_tokenizer = tiny.build_tokenizer(tiny.NO_SYSTEM)
    torch.manual_seed(0)
    guide = Guide(tiny.build_model("qwen2", seed=2), small_tokenizer, "", 32, learned=live)
    asked = [guide.ids(text, 3) for text in QUESTIONS]
    known = {name: value.clone() for name, value in guide.state_dict().items()}
    source = (
        TrainedGuideVectors(guide, asked, range(4)) if live else FrozenGuideVectors(guide.read(QUESTIONS, 3), range(4), 32, 0)
    )
    objective = SoftObjective(tokenizer.convert_tokens_to_ids(holder), source)
    rows = [Row(prompt_text(tokenizer, text), "7", 1, given=place) for place, text in enumerate(QUESTIONS)]
    section = schema.Finetune(
        adaptation="full", epochs=6, batch_size=4, gradient_accumulation_steps=1, learning_rate=1e-2, warmup_steps=1, bf16=True,
        gradient_checkpointing=live,
    )  # fmt: skip
    trained, history, _ = finetune(
        model, tokenizer, rows, rows[:2], TrainingSpec(section, "soft", [], tmp_path, 0, objective=objective, frozen=True)
    )
    assert history.adaptation == "frozen" and history.validation[-1]["loss"] < history.validation[0]["loss"]
    assert all(torch.equal(value, before[name]) for name, value in trained.state_dict().items())
    assert set(trained.state_dict()) == set(before)
    moved = {name for name, value in guide.state_dict().items() if not torch.equal(value, known[name])}
    assert not moved if not live else {"thought", "projection.weight", "model.model.norm.weight"} <= moved
    assert not any("embed" in name or "lm_head" in name for name in moved)


def test_a_saved_guide_is_asked_as_in_training_in_every_format(tiny: Any, tokenizer: Any, tmp_path: Path) -> None:
    guide = tmp_path / "guide"
    tiny.build_model(seed=4).save_pretrained(guide)
    tiny.build_tokenizer(tiny.CHATML).save_pretrained(guide)
    for empty, dtype in ((True, torch.float32), (False, torch.float16), (False, torch.bfloat16)):
        section = schema.Backbone(dtype="float32", device="cpu", empty_system=empty)
        learned = load_guide(str(guide), section, 32, "Think.")
        soft = SoftPromptSettings("<pad>", 2, str(guide), fingerprint(learned.model), "Think.", empty_system=empty)
        save_soft(tmp_path, soft, learned.projection)
        summary = read_soft(tmp_path)
        assert summary == soft
        found = saved_guide(tmp_path, soft, tiny.build_model().to(dtype))
        assert found.ids("How many?", 2) == learned.ids("How many?", 2)
        assert ("long introduction" in found.tokenizer.decode(found.ids("How many?", 2))) == (not empty)


def test_first_weights_leave_the_random_numbers_of_gpus_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeds.append)
    before = torch.get_rng_state()
    one, again = (FrozenGuideVectors(torch.zeros(1, 1, 4), [0], 8, 3).module.weight for _ in range(2))
    assert torch.equal(one, again) and torch.equal(before, torch.get_rng_state()) and not seeds
