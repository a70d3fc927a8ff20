"""The latent loop: cached is recomputed, padding changes nothing, and gradients go through the thoughts."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cirf.lm.training.loss import IGNORED, summed, target_logits
from cirf.methods.latent.loop import Thoughts, logits_after, padded_left, think

KINDS = ["llama", "qwen2", "gpt2"]
PROMPTS = [[5, 9, 30, 41], [7, 8], [60, 61, 62, 63, 64, 65, 66], [11, 12, 13]]
COUNTS = [3, 1, 0, 5]
TAILS = [[90, 20, 21], [90, 22, 23, 24, 25], [90, 26], [90, 27, 28]]
PAD = 1


def batch(rows: list[int]) -> tuple[torch.Tensor, ...]:
    """The rows' prompts, masks and counts, and their tails, masks and labels."""
    ids, mask = padded_left([PROMPTS[row] for row in rows], PAD)
    longest = max(len(TAILS[row]) for row in rows)
    tails = torch.full((len(rows), longest), PAD)
    labels = torch.full((len(rows), longest), IGNORED)
    for place, row in enumerate(rows):
        tails[place, : len(TAILS[row])] = torch.tensor(TAILS[row])
        labels[place, 1 : len(TAILS[row])] = torch.tensor(TAILS[row][1:])
    behind = torch.tensor([[1] * len(TAILS[row]) + [0] * (longest - len(TAILS[row])) for row in rows])
    return ids, mask, torch.tensor([COUNTS[row] for row in rows]), tails, behind, labels


def run(model: Any, rows: list[int], project: Any = None) -> tuple[Thoughts, torch.Tensor, torch.Tensor]:
    ids, mask, counts, tails, behind, labels = batch(rows)
    thoughts = think(model, ids, mask, counts, project)
    return thoughts, *logits_after(model, thoughts, tails, behind, labels)


def recomputed(model: Any, row: int, project: Any = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Thoughts and logits of one row without padding and cache: all of it again for every thought."""
    embed = model.get_input_embeddings()
    given, latents = embed(torch.tensor([PROMPTS[row]])), []
    for _ in range(COUNTS[row]):
        state = model(inputs_embeds=given, output_hidden_states=True, use_cache=False).hidden_states[-1][:, -1]
        latents.append(state if project is None else project(state))
        given = torch.cat([given, latents[-1][:, None]], dim=1)
    given = torch.cat([given, embed(torch.tensor([TAILS[row]]))], dim=1)
    logits = model(inputs_embeds=given, use_cache=False).logits[0, -len(TAILS[row]) : -1]
    return torch.cat(latents) if latents else given.new_zeros(0, given.shape[2]), logits


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("projected", [False, True])
def test_cached_is_recomputed(tiny: Any, kind: str, projected: bool) -> None:
    model = tiny.build_model(kind, tied=False)
    torch.manual_seed(0)
    project = torch.nn.Linear(32, 32) if projected else None
    with torch.no_grad():
        for row in range(len(PROMPTS)):
            thoughts, logits, targets = run(model, [row], project)
            latents, wanted = recomputed(model, row, project)
            torch.testing.assert_close(thoughts.latents[0], latents, atol=2e-5, rtol=2e-5)
            torch.testing.assert_close(logits, wanted, atol=1e-4, rtol=1e-4)
            assert targets.tolist() == TAILS[row][1:]


@pytest.mark.parametrize("kind", [*KINDS, "gemma2"])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_row_alone_is_the_row_in_a_padded_batch(tiny: Any, kind: str, attention: str) -> None:
    model = tiny.build_model(kind, tied=False)
    if kind != "gemma2":
        model.set_attn_implementation(attention)
    with torch.no_grad():
        together, logits, targets = run(model, [0, 1, 2, 3])
        assert together.latents.shape == (4, 5, 32)
        assert together.length.tolist() == [len(prompt) + n for prompt, n in zip(PROMPTS, COUNTS, strict=True)]
        assert together.mask.sum(dim=1).tolist() == together.length.tolist()
        at = 0
        for row in range(len(PROMPTS)):
            alone, own, mine = run(model, [row])
            n = COUNTS[row]
            torch.testing.assert_close(together.latents[row, :n], alone.latents[0], atol=1e-4, rtol=1e-4)
            torch.testing.assert_close(together.last[row], alone.last[0], atol=1e-4, rtol=1e-4)
            torch.testing.assert_close(logits[at : at + len(mine)], own, atol=1e-4, rtol=1e-4)
            assert not together.latents[row, n:].any() and torch.equal(targets[at : at + len(mine)], mine)
            at += len(mine)


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_is_what_the_head_reads(tiny: Any, kind: str) -> None:
    """After the final norm: multiplied by the head it gives the logits."""
    model = tiny.build_model(kind, tied=False)
    with torch.no_grad():
        thoughts = think(model, torch.tensor([PROMPTS[0]]), torch.ones(1, 4, dtype=torch.long), torch.tensor([1]))
        wanted = model(torch.tensor([PROMPTS[0]])).logits[0, -1]
        torch.testing.assert_close(model.get_output_embeddings()(thoughts.latents[0, 0]), wanted, atol=1e-5, rtol=1e-5)


def test_the_mask_is_as_long_as_the_keys_and_no_logits_are_made_on_the_way(tiny: Any) -> None:
    model, seen = tiny.build_model("llama", tied=False), []

    def watch(module: Any, args: Any, summary: dict[str, Any], made: Any) -> None:
        given = summary["input_ids"] if "input_ids" in summary else summary["inputs_embeds"]
        keys = made.past_key_values.layers[0].keys.shape[2]
        seen.append((given.shape[1], summary["attention_mask"].shape[1], keys, made.logits.shape[1]))

    model.register_forward_hook(watch, with_kwargs=True)
    run(model, [0, 1, 2, 3])
    assert [(width, made) for width, _, _, made in seen] == [(7, 0)] + [(1, 0)] * 5 + [(5, 9)]
    assert all(mask == keys for _, mask, keys, _ in seen)


@pytest.mark.parametrize("kind", KINDS)
def test_without_thoughts_it_is_the_plain_loss(tiny: Any, kind: str) -> None:
    model = tiny.build_model(kind, tied=False)
    ids, mask = padded_left(PROMPTS, PAD)
    _, _, _, tails, behind, labels = batch([0, 1, 2, 3])
    with torch.no_grad():
        thoughts = think(model, ids, mask, torch.zeros(4, dtype=torch.long))
        logits, targets = logits_after(model, thoughts, tails, behind, labels)
        longest = max(len(p) + len(t) for p, t in zip(PROMPTS, TAILS, strict=True))
        plain, learned = torch.full((4, longest), PAD), torch.full((4, longest), IGNORED)
        for row, (prompt, tail) in enumerate(zip(PROMPTS, TAILS, strict=True)):
            plain[row, : len(prompt) + len(tail)] = torch.tensor(prompt + tail)
            learned[row, len(prompt) + 1 : len(prompt) + len(tail)] = torch.tensor(tail[1:])
        wanted = summed(*target_logits(model, plain, learned), None)
    assert thoughts.latents.shape == (4, 0, 32)
    torch.testing.assert_close(torch.nn.functional.cross_entropy(logits, targets), wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_gradients_go_through_the_thoughts_and_not_through_padding(tiny: Any, kind: str, attention: str) -> None:
    """Those of a padded batch are the sum of those of its rows recomputed, which differ from those without the thoughts' own."""
    model = tiny.build_model(kind, tied=False)
    model.set_attn_implementation(attention)
    embed = model.get_input_embeddings().weight

    def gradient(loss: torch.Tensor) -> torch.Tensor:
        (found,) = torch.autograd.grad(loss, embed)
        return found

    thoughts, logits, targets = run(model, [0, 1, 2, 3])
    thoughts.latents.retain_grad()
    through = gradient(torch.nn.functional.cross_entropy(logits, targets, reduction="sum"))
    wanted = torch.zeros_like(embed)
    for row in range(len(PROMPTS)):
        loss = torch.nn.functional.cross_entropy(recomputed(model, row)[1], torch.tensor(TAILS[row][1:]), reduction="sum")
        wanted += gradient(loss)
    torch.testing.assert_close(through, wanted, atol=2e-3, rtol=2e-3)
    assert not through[PAD].any() and through[PROMPTS[0]].abs().sum(dim=1).gt(0).all()
    _, logits, targets = run(model, [0, 1, 2, 3], torch.Tensor.detach)
    stopped = gradient(torch.nn.functional.cross_entropy(logits, targets, reduction="sum"))
    assert (stopped - through).abs().max() > 0.05 * through.abs().max()
    torch.testing.assert_close(stopped[PROMPTS[2]], through[PROMPTS[2]], atol=2e-3, rtol=2e-3)  # has no thought


def test_a_row_that_is_done_gives_its_further_thoughts_no_gradient(tiny: Any) -> None:
    model, fed = tiny.build_model("llama", tied=False), []

    def keep(state: torch.Tensor) -> torch.Tensor:
        fed.append(state * 1)
        fed[-1].retain_grad()
        return fed[-1]

    _, logits, targets = run(model, [0, 1, 2, 3], keep)
    torch.nn.functional.cross_entropy(logits, targets).backward()
    for step, thought in enumerate(fed):
        assert thought.grad is not None
        assert [bool(row.any()) for row in thought.grad] == [count > step for count in COUNTS]


@pytest.mark.parametrize("kind", KINDS)
def test_adapters_new_rows_and_autocast_think_too(tiny: Any, kind: str) -> None:
    """Under LoRA with trained rows, in bfloat16 or under autocast: near what float32 gives, and with gradients."""
    from cirf.lm.adapters import put_adapters
    from cirf.lm.training.new_token_rows import TrainableRows
    from cirf.recipe import schema

    model = tiny.build_model(kind, tied=True, scale=2.0)
    with torch.no_grad():
        _, wanted, targets = run(model, [0, 1, 2, 3])
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        near = run(model, [0, 1, 2, 3])[1]
    assert near.dtype == torch.float32
    assert torch.nn.functional.cosine_similarity(near, wanted).min() > 0.98
    adapted = put_adapters(model, schema.Lora(rank=2, alpha=2))
    TrainableRows(model, [], [90])
    _, logits, _ = run(adapted, [0, 1, 2, 3])
    torch.testing.assert_close(logits, wanted, atol=1e-4, rtol=1e-4)
    torch.nn.functional.cross_entropy(logits, targets).backward()
    gradients = {name: p.grad for name, p in adapted.named_parameters() if p.requires_grad}
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients.values())
    rows = next(gradient for name, gradient in gradients.items() if name.endswith("cirf_rows"))
    assert rows is not None and rows.any()
    with torch.no_grad():
        brief = run(model.to(torch.bfloat16), [0, 1, 2, 3])
    assert brief[0].latents.dtype == torch.bfloat16
    assert torch.nn.functional.cosine_similarity(brief[1], wanted).min() > 0.95
