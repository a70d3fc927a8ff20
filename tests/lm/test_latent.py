"""The latent loop: cached is recomputed, padding changes nothing, and gradients go through the thoughts. The net that thoughts
go through: made by the seed alone, kept beside a model, and part of how it thinks. Prompts with thoughts as vectors: fed at
once they are answered as they are by the loop, in transformers and in vLLM.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from cirf.errors import CirfError
from cirf.lm.decoding.generate import Decoding, generate
from cirf.lm.decoding.prefix_cache import PrefilledPrompts
from cirf.lm.prompt import encode, prompt_text, stop_ids
from cirf.lm.training.loss import IGNORED, summed, target_logits
from cirf.lm.vocabulary import add_tokens
from cirf.methods.base import at_head_of_answer
from cirf.methods.latent.decode import LatentPrefiller, LatentSettings, given, prefill, prompt_embeddings, read_latent, thinking
from cirf.methods.latent.loop import Projector, Thoughts, padded_left, read_after, read_projector, think

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
    return thoughts, *read_after(model, thoughts, tails, behind, labels)[:2]


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
        logits, targets, _ = read_after(model, thoughts, tails, behind, labels)
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
    from cirf.lm.training.finetune import TrainableRows
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


def test_the_seed_alone_decides_it_and_it_comes_back_as_it_was(tmp_path: Path) -> None:
    torch.manual_seed(1)
    first, before = Projector(8, 5, 3), torch.get_rng_state()
    torch.manual_seed(2)
    again = Projector(8, 5, 3)
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in first.state_dict().items())
    torch.manual_seed(1)
    assert torch.equal(before, torch.get_rng_state())  # nobody's random numbers are used up
    assert not torch.equal(Projector(8, 5, 4).net[0].weight, first.net[0].weight)  # type: ignore[arg-type]
    with pytest.raises(CirfError, match="missing, damaged, or of another model"):
        read_projector(tmp_path, 8, 5)
    first.save(tmp_path)
    read = read_projector(tmp_path, 8, 5)
    state = torch.randn(3, 8)
    assert torch.equal(read(state), first(state)) and read.inner == 5 and not read.training
    assert not any(weight.requires_grad for weight in read.parameters())
    assert read(state.bfloat16()).dtype == torch.float32
    with pytest.raises(CirfError, match="or of another model"):
        read_projector(tmp_path, 9, 5)
    assert not list(tmp_path.glob("*.safetensors"))  # an engine would take it for the model's own weights


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_answers_behind_words_are_those_computed_without_a_cache(tiny: Any, tmp_path: Path, kind: str) -> None:
    model, tokenizer = tiny.build_model(kind, tied=False), tiny.build_tokenizer()
    add_tokens(model, tokenizer, ["<latent>", "</latent>"])
    tokenizer.chat_template = at_head_of_answer(tokenizer.chat_template, "<latent>")
    project = Projector(32, 16, 1)
    with torch.no_grad():
        project.net[-1].weight.mul_(3)  # type: ignore[operator, union-attr]
    latent = LatentSettings("<latent>", "</latent>", 3, "The answer is:", 16)
    project.save(tmp_path)
    latent.save(tmp_path)
    assert read_latent(tmp_path) == latent
    thinks = thinking(model, tokenizer, latent, tmp_path)
    behind = encode(tokenizer, "</latent>The answer is:")
    asked = [prompt_text(tokenizer, text) for text in ("Hi?", "Anna has 3 apples and buys 4 more. How many?", "yes")]
    wanted, embed = [], model.get_input_embeddings()
    with torch.no_grad():
        for prompt in asked:
            given = embed(torch.tensor([encode(tokenizer, prompt)]))
            for _ in range(3):
                state = model(inputs_embeds=given, output_hidden_states=True, use_cache=False).hidden_states[-1][:, -1:]
                given = torch.cat([given, project(state)], dim=1)
            written = []
            given = torch.cat([given, embed(torch.tensor([behind]))], dim=1)
            for _ in range(5):
                written.append(int(model(inputs_embeds=given, use_cache=False).logits[0, -1].argmax()))
                given = torch.cat([given, embed(torch.tensor([written[-1:]]))], dim=1)
            wanted.append(tuple(written))
    for size in (1, 3):
        found = generate(model, tokenizer, asked, 5, Decoding(prefixes=thinks), batch_size=size)
        assert [output.ids for output in found] == [ids[: len(output.ids)] for ids, output in zip(wanted, found, strict=True)]
    plain, silent = (
        LatentPrefiller(model, tokenizer, latent),
        LatentPrefiller(model, tokenizer, LatentSettings("<latent>", "</latent>", 3), project),
    )
    ids = [encode(tokenizer, prompt) for prompt in asked]
    keys = [each.begin(ids).cache.layers[1].keys for each in (thinks, plain, silent)]
    assert torch.equal(keys[0], keys[2]) and (keys[0] - keys[1]).abs().max() > 0.1  # the net is in the thoughts
    assert [out.ids for out in generate(model, tokenizer, asked, 5, Decoding(prefixes=silent))] != [out.ids for out in found]


LATENT = LatentSettings("<latent>", "</latent>", 3)
ASKED = ["Hi?", "What is 12 plus 7?", "Anna has 3 apples and buys 4 more. How many?", "yes", "A coin is heads up."]
CAP = 6


def prepared(tiny: Any, kind: str, **shape: int) -> tuple[Any, Any, list[str]]:
    model, tokenizer = tiny.build_model(kind, tied=False, **shape), tiny.build_tokenizer()
    add_tokens(model, tokenizer, [LATENT.begin, LATENT.end])
    tokenizer.chat_template = at_head_of_answer(tokenizer.chat_template, LATENT.begin)
    return model, tokenizer, [prompt_text(tokenizer, text) for text in ASKED]


def plainly(model: Any, tokenizer: Any, vectors: torch.Tensor) -> tuple[int, ...]:
    """What anyone's ``generate`` answers to these vectors, up to its end token."""
    stops = stop_ids(model, tokenizer)
    how = {"max_new_tokens": CAP, "do_sample": False, "eos_token_id": stops, "pad_token_id": stops[0]}
    made = model.generate(inputs_embeds=vectors[None], **how)
    return tuple(made[0].tolist())


@pytest.mark.parametrize(("kind", "size"), [("llama", 1), ("qwen2", 5), ("gpt2", 5), ("gemma2", 1)])
def test_plain_generate_answers_the_vectors_as_the_loop_does(tiny: Any, kind: str, size: int) -> None:
    model, tokenizer, prompts = prepared(tiny, kind)
    thinking = LatentPrefiller(model, tokenizer, LATENT)
    made = prompt_embeddings(model, tokenizer, prompts, thinking, batch_size=size)
    wanted = generate(model, tokenizer, prompts, CAP, Decoding(prefixes=thinking))
    assert [tuple(vectors.shape) for vectors in made] == [(len(encode(tokenizer, text)) + 4, 32) for text in prompts]
    assert [plainly(model, tokenizer, vectors) for vectors in made] == [output.ids for output in wanted]
    without = prompt_embeddings(model, tokenizer, prompts, None)
    assert [plainly(model, tokenizer, vectors) for vectors in without] == [
        o.ids for o in generate(model, tokenizer, prompts, CAP)
    ]


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_they_are_the_thoughts_between_the_tokens(tiny: Any, kind: str) -> None:
    model, tokenizer, prompts = prepared(tiny, kind)
    ids = [encode(tokenizer, text) for text in prompts]
    rows = given(model, LatentPrefiller(model, tokenizer, LATENT), ids)
    embed, end = model.get_input_embeddings(), tokenizer.convert_tokens_to_ids(LATENT.end)
    for row, tokens in zip(rows, ids, strict=True):
        assert row.own.nonzero()[:, 0].tolist() == [len(tokens), len(tokens) + 1, len(tokens) + 2]
        feed = embed(torch.tensor([tokens]))
        with torch.no_grad():
            for _ in range(LATENT.count):
                state = model(inputs_embeds=feed, output_hidden_states=True, use_cache=False).hidden_states[-1][:, -1:]
                feed = torch.cat([feed, state], dim=1)
        feed = torch.cat([feed, embed(torch.tensor([[end]]))], dim=1)[0]
        torch.testing.assert_close(row.vectors, feed, atol=2e-4, rtol=2e-4)
        assert torch.equal(row.vectors[: len(tokens)], feed[: len(tokens)])
    begun = prefill(model, rows)
    assert begun.prompts == [row.ids for row in rows] and begun.heads == [len(row.ids) - 1 for row in rows]


class Soft:
    """Another kind of beginning: a vector of a row's own at its very beginning; without ``said`` it does not give it."""

    besides = 1

    def __init__(self, model: Any, said: bool = True) -> None:
        self.model, self.said = model, said

    def prepare(self, prompts: Sequence[str]) -> None: ...

    def begin(self, prompts: Sequence[list[int]]) -> PrefilledPrompts:
        own = torch.arange(len(prompts) * 32.0).reshape(-1, 1, 32).sin()
        cache = self.model(inputs_embeds=own, use_cache=True).past_key_values
        vectors = [(0, row) for row in own] if self.said else None
        return PrefilledPrompts([[90, *row] for row in prompts], [1] * len(prompts), cache, vectors)


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_nothing_is_needed_but_how_prompts_begin(tiny: Any, kind: str) -> None:
    model, tokenizer, prompts = prepared(tiny, kind)
    ids = [encode(tokenizer, text) for text in prompts]
    rows = given(model, Soft(model), ids)
    assert [row.ids for row in rows] == [[90, *row] for row in ids]
    assert [row.own.tolist() for row in rows] == [[True] + [False] * len(row) for row in ids]
    (wanted,) = generate(model, tokenizer, prompts[:1], CAP, Decoding(prefixes=Soft(model)))
    assert plainly(model, tokenizer, rows[0].vectors) == wanted.ids
    with pytest.raises(CirfError, match="was computed elsewhere"):
        given(model, Soft(model, said=False), ids)


@pytest.mark.engine
def test_vllm_answers_the_vectors_as_the_loop_does(tiny: Any, tmp_path: Path) -> None:
    """With heads as wide as its kernels want them."""
    vllm = pytest.importorskip("vllm")
    model, tokenizer, prompts = prepared(tiny, "llama", width=128)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    thinking = LatentPrefiller(model, tokenizer, LATENT)
    wanted = [output.ids for output in generate(model, tokenizer, prompts, CAP, Decoding(prefixes=thinking))]
    vectors = prompt_embeddings(model, tokenizer, prompts, thinking)
    engine = vllm.LLM(str(tmp_path), enable_prompt_embeds=True, dtype="float32", enforce_eager=True, max_model_len=128)
    stops = stop_ids(model, tokenizer)
    how = vllm.SamplingParams(temperature=0.0, max_tokens=CAP, stop_token_ids=stops)
    made = engine.generate([{"prompt_embeds": rows} for rows in vectors], how)
    assert [tuple(one.outputs[0].token_ids) for one in made] == wanted
    without = engine.generate([{"prompt_token_ids": encode(tokenizer, prompt)} for prompt in prompts], how)
    assert [tuple(one.outputs[0].token_ids) for one in without] != wanted
