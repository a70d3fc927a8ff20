"""Sentence vectors from middle layers: which layers, which attention mask, and that it learns to distinguish texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from cirf.errors import CirfError
from cirf.lm.training.batches import Feature
from cirf.lm.training.phases import Phase, run_phase
from cirf.methods.soft import encoder as sentence_encoder
from cirf.methods.soft.encoder import SentenceEncoder, TextStates, contrast, layer_range, text_states
from cirf.methods.soft.loss import FrozenGuideVectors, SemanticObjective, SoftObjective, TrainedGuideVectors

LONG = [[5, 6, 7, 8, 9, 10], [11, 12, 13, 14], [15, 16, 17, 18, 19, 20, 21], [22, 23, 24], [40, 41, 42], [50, 51, 52, 53]]
SHORT = [[5, 6], [11], [15, 16], [22], [40, 41], [53]]


def deeper(tiny: Any, kind: str, layers: int = 6) -> Any:
    """A tiny model of more layers."""
    import transformers as t

    made = tiny.build_model(kind, tied=False)
    config = made.config
    config.num_hidden_layers = layers
    if getattr(config, "layer_types", None):
        config.layer_types = [config.layer_types[place % 2] for place in range(layers)]
    torch.manual_seed(1)
    return t.AutoModelForCausalLM.from_config(config, attn_implementation=config._attn_implementation).eval()


def test_the_layers_are_those_of_the_publication_in_proportion() -> None:
    assert [layer_range(depth) for depth in (32, 28, 24, 30, 36, 2, 1)] == [
        (16, 21), (14, 18), (12, 16), (15, 20), (18, 24), (1, 2), (0, 1)
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt2", "gemma2"])
@torch.no_grad()
def test_copied_layers_pass_states_on_as_the_model_does(tiny: Any, kind: str) -> None:
    model = deeper(tiny, kind)
    encoder = SentenceEncoder(model)
    assert encoder.first == 3 and encoder.body.config.num_hidden_layers == 1
    states, mask = text_states(model, LONG, 3)
    whole = model.base_model(input_ids=torch.tensor([LONG[2]]), output_hidden_states=True).hidden_states
    torch.testing.assert_close(states[2], whole[3][0], atol=1e-5, rtol=1e-5)
    behind: list[Any] = []
    layers = max((part for part in model.base_model.children() if isinstance(part, torch.nn.ModuleList)), key=len)
    with layers[3].register_forward_hook(lambda *_: behind.append(1)):
        assert torch.equal(text_states(model, LONG, 3)[0], states) and not behind  # layers behind it do not run
        model.base_model(input_ids=torch.tensor([LONG[2]]))
        assert behind
    layer = encoder.body(inputs_embeds=whole[3], use_cache=False, output_hidden_states=True)
    norm = getattr(model.base_model, "norm", None) or model.base_model.ln_f
    torch.testing.assert_close(layer.last_hidden_state, norm(whole[4]), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(encoder.pooled(states, mask)[2], norm(whole[4])[0].mean(dim=0), atol=1e-4, rtol=1e-4)
    # A text in a padded batch means what it means alone.
    torch.testing.assert_close(encoder(states, mask)[1], encoder(*text_states(model, LONG[1:2], 3))[0], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_texts_are_read_once_by_themselves_as_far_as_there_is_room(tiny: Any) -> None:
    model = deeper(tiny, "llama")
    encoder, read = SentenceEncoder(model), []
    model.base_model.embed_tokens.register_forward_hook(lambda module, args, made: read.append(tuple(args[0].shape)))
    texts = TextStates(model, encoder.first)
    states, mask = texts(LONG)
    wanted, same = text_states(model, LONG, encoder.first)
    assert torch.equal(mask, same) and read[:6] == [(1, len(row)) for row in LONG]
    torch.testing.assert_close(states * mask[..., None], wanted * mask[..., None], atol=1e-5, rtol=1e-5)
    del read[:]
    assert torch.equal(texts(LONG)[0], states) and not read
    few = TextStates(model, encoder.first, 10 * states[0, 0].nbytes)  # the first two
    assert torch.equal(few(LONG)[0], states) and torch.equal(few(LONG)[0], states) and len(read) == 6 + 4


@pytest.mark.parametrize("price", [0, 64])
def test_texts_of_unlike_lengths_mean_in_several_passes_what_they_mean_in_one(
    tiny: Any, monkeypatch: pytest.MonkeyPatch, price: int
) -> None:
    monkeypatch.setattr("cirf.methods.soft.encoder.pass_price", lambda device: price)
    model = deeper(tiny, "llama").requires_grad_(False)
    encoder, shapes = SentenceEncoder(model), []
    encoder.body.register_forward_pre_hook(
        lambda module, args, given: shapes.append(tuple(given["inputs_embeds"].shape[:2])), with_kwargs=True
    )
    made = encoder.pooled_texts(TextStates(model, encoder.first), LONG)
    assert shapes == ([(2, 3), (2, 4), (1, 6), (1, 7)] if price == 0 else [(6, 7)])
    torch.testing.assert_close(made, encoder.pooled(*text_states(model, LONG, encoder.first)), atol=1e-5, rtol=1e-5)
    made.sum().backward()
    assert all(weight.grad is not None for weight in encoder.body.layers.parameters())


def test_layers_that_do_more_than_their_configuration_shows_are_refused(tiny: Any) -> None:
    model = deeper(tiny, "gpt2")
    for layer in model.base_model.h:
        layer.register_forward_hook(lambda layer, given, made: made * 2)
    with pytest.raises(CirfError, match="the middle layers of a GPT2Model cannot be run by themselves"):
        SentenceEncoder(model)


@pytest.mark.parametrize("layers", [1, 2])
def test_where_the_copied_layers_are_the_last_the_norm_is_theirs(tiny: Any, layers: int) -> None:
    assert SentenceEncoder(deeper(tiny, "llama", layers)).first == layers - 1


@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
@torch.no_grad()
def test_who_sees_whom_is_as_asked_for_in_every_kernel(tiny: Any, kernel: str) -> None:
    model = deeper(tiny, "llama")
    found = {}
    for attention in ("causal", "bidirectional"):
        model.set_attn_implementation(kernel)
        encoder = SentenceEncoder(model, attention)  # type: ignore[arg-type]
        assert encoder.body.config._attn_implementation == kernel
        states, mask = text_states(model, LONG[:1], 3)
        seen = sentence_encoder.attention_mask(mask, attention == "causal")
        run = [
            encoder.body(inputs_embeds=given, attention_mask=seen, use_cache=False).last_hidden_state[0, 0]
            for given in (states, torch.cat([states[:, :-1], states[:, -1:] + 1], dim=1))
        ]
        assert torch.equal(*run) == (attention == "causal")  # the first position, once the last is another
        found[attention] = encoder(*text_states(model, LONG, 3))
        alone = encoder(*text_states(model, LONG[3:4], 3))
        torch.testing.assert_close(found[attention][3], alone[0], atol=1e-5, rtol=1e-5)
    assert not torch.allclose(found["causal"], found["bidirectional"], atol=1e-3)
    with torch.autocast("cpu", torch.bfloat16):
        assert encoder.pooled(states, mask).dtype == torch.float32


def test_contrast_is_lowest_where_each_text_means_its_own() -> None:
    meant = torch.eye(4)[:3]
    assert float(contrast(meant, meant)) == pytest.approx(-1 + torch.logsumexp(torch.tensor([1.0, 0, 0]), 0).item())
    assert float(contrast(meant, meant * 7)) == pytest.approx(float(contrast(meant, meant)))  # by cosine
    assert float(contrast(meant, meant.roll(1, 0))) > float(contrast(meant, meant))
    assert (
        float(contrast(meant, meant)) < float(torch.tensor(3.0).log()) == pytest.approx(float(contrast(meant, torch.ones(3, 4))))
    )


def test_the_encoder_learns_which_short_text_belongs_to_which_long_one(tiny: Any, tmp_path: Path) -> None:
    model = deeper(tiny, "llama", 4).requires_grad_(False)
    encoder = SentenceEncoder(model).requires_grad_(False)
    body = {name: value.clone() for name, value in encoder.body.state_dict().items()}

    def loss(rows: Any) -> torch.Tensor:
        return contrast(*(encoder(*text_states(model, [texts[row] for row in rows], encoder.first)) for texts in (LONG, SHORT)))

    encoder.head.requires_grad_(True)
    summary = run_phase(Phase("head", encoder, loss, range(6), [], 6, 1e-2, 0.01, 6), tmp_path, 1)
    first, last = summary["losses"][1]["train"], summary["losses"][-1]["train"]
    assert last < first - 0.1 and summary["best"] == 6
    assert all(torch.equal(value, encoder.body.state_dict()[name]) for name, value in body.items())
    encoder.requires_grad_(True)
    summary = run_phase(Phase("all", encoder, loss, range(6), [], 3, 1e-3, 0.01, 6), tmp_path, 1)
    assert summary["losses"][-1]["train"] < last
    moved = {name for name, value in encoder.body.state_dict().items() if not torch.equal(value, body[name])}
    assert "layers.0.mlp.up_proj.weight" in moved and "norm.weight" in moved
    assert all(value.grad is None for value in model.parameters())


def test_a_meaning_pulls_vectors_and_not_the_encoder(tiny: Any) -> None:
    model = deeper(tiny, "llama", 4).requires_grad_(False)
    encoder = SentenceEncoder(model)
    states = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(0))
    meant = encoder(*text_states(model, LONG[:2], encoder.first)).detach()
    rows = [Feature((5, 9, 9, 9, 6, 7), 5, given=0), Feature((9, 9, 9, 5, 8, 20), 4, given=1)]
    parts = []
    for alpha in (0.0, 0.25, 1.0):
        objective = SemanticObjective(9, FrozenGuideVectors(states, range(2), 32, 0), encoder, meant, alpha)
        batch = objective.collate(rows, 0)
        parts.append(objective.loss(model, batch, None))
        objective.module.zero_grad()
        parts[-1].backward()  # type: ignore[no-untyped-call]
        assert all(value.grad is None for value in encoder.parameters()) and all(v.grad is None for v in model.parameters())
        assert float(objective.module.weight.grad.abs().sum()) > 0  # type: ignore[union-attr,operator]
        cut = [objective.loss(model, objective.collate([row], 0), 3) for row in rows]
        torch.testing.assert_close(sum(cut), parts[-1], atol=1e-5, rtol=1e-5)  # however rows are cut into batches
    torch.testing.assert_close(parts[1], 0.75 * parts[0] + 0.25 * parts[2])
    source = FrozenGuideVectors(states, range(2), 32, 0)
    plain = SoftObjective(9, source)
    torch.testing.assert_close(parts[0], plain.loss(model, plain.collate(rows, 0), None))
    vectors = source.vectors(plain.collate(rows, 0))
    said = encoder(vectors, torch.ones(2, 3))
    apart = 1 - torch.nn.functional.cosine_similarity(said, meant)
    torch.testing.assert_close(parts[2], (apart * torch.tensor([1.0, 2.0])).sum() / 3)


def test_rows_share_what_is_read_of_their_question(tiny: Any, tokenizer: Any) -> None:
    from cirf.methods.soft.guide import Guide

    guide = Guide(tiny.build_model(), tokenizer, "", 32)
    asked = [guide.ids(text, 2) for text in ("Hi?", "And you, how many?")]
    live = TrainedGuideVectors(guide, asked, [0, 1, 1])
    made = live.vectors(live.given([2, 0, 1]))
    torch.testing.assert_close(made[0], made[2])
    assert not torch.allclose(made[0], made[1])


# Phases


class Stop(Exception):
    pass


class Watched:
    """A bar that counts epochs, and ends the phase after some (0: never)."""

    def __init__(self, after: int = 0) -> None:
        self.after, self.epochs = after, 0

    def task(self, name: str, total: int | None, unit: str = "rows", done: int = 0) -> Any:
        import contextlib

        @contextlib.contextmanager
        def bar() -> Any:
            def advance(count: int) -> None:
                self.epochs += 1
                if self.epochs == self.after:
                    raise Stop

            yield advance

        return bar()


def phase(held_out: list[int], rate: float = 0.1, epochs: int = 5) -> tuple[Phase, torch.nn.Linear]:
    torch.manual_seed(0)
    module = torch.nn.Linear(2, 1)
    inputs = torch.randn(12, 2, generator=torch.Generator().manual_seed(3))
    wanted = inputs @ torch.tensor([[2.0], [-1.0]])

    def loss(rows: Any) -> torch.Tensor:
        return (module(inputs[list(rows)]) - wanted[list(rows)]).square().mean()

    return Phase("line", module, loss, range(8), held_out, epochs, rate, 0.01, 3), module


def test_a_phase_that_was_killed_goes_on_and_one_that_is_done_is_not_done_again(tmp_path: Path) -> None:
    whole, module = phase([8, 9, 10, 11])
    summary = run_phase(whole, tmp_path / "whole", 1, Watched())  # type: ignore[arg-type]
    assert len(summary["losses"]) == 6 and summary["losses"][-1]["held_out"] < summary["losses"][0]["held_out"]
    killed, _ = phase([8, 9, 10, 11])
    with pytest.raises(Stop):
        run_phase(killed, tmp_path / "killed", 1, Watched(2))  # type: ignore[arg-type]
    watched = Watched()
    again, other = phase([8, 9, 10, 11])
    assert run_phase(again, tmp_path / "killed", 1, watched) == summary and watched.epochs == 3  # type: ignore[arg-type]
    assert torch.equal(other.weight, module.weight)
    watched = Watched()
    once_more, loaded = phase([8, 9, 10, 11])
    assert run_phase(once_more, tmp_path / "killed", 1, watched) == summary and watched.epochs == 0  # type: ignore[arg-type]
    assert torch.equal(loaded.weight, module.weight)
    assert sorted(path.name for path in (tmp_path / "killed").iterdir()) == ["line.json", "line.safetensors"]


def test_the_epoch_that_held_out_rows_like_best_is_kept_and_without_them_the_last(tmp_path: Path) -> None:
    wild, module = phase([8, 9, 10, 11], rate=3.0, epochs=4)
    first = {name: value.clone() for name, value in module.state_dict().items()}
    summary = run_phase(wild, tmp_path / "wild", 1)
    kept = [row["held_out"] for row in summary["losses"]]
    assert summary["best"] == kept.index(min(kept)) < 4
    assert float(wild.loss([8, 9, 10, 11]).detach()) == pytest.approx(min(kept), abs=2e-3)
    blind, _ = phase([], rate=3.0)
    summary = run_phase(blind, tmp_path / "blind", 1)
    assert summary["best"] == 5 and {row["held_out"] for row in summary["losses"]} == {None}
    assert all(not torch.equal(value, first[name]) for name, value in blind.module.state_dict().items())


def test_a_loss_that_is_no_number_ends_a_phase(tmp_path: Path) -> None:
    made, module = phase([])
    module.weight.data.fill_(float("nan"))
    with pytest.raises(CirfError, match="line: the loss is not a number"):
        run_phase(made, tmp_path, 1)
