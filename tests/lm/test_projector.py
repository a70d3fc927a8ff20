"""The net that thoughts go through: made by the seed alone, kept beside a model, and part of how it thinks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from cirf.errors import CirfError
from cirf.lm.decoding.generate import generate
from cirf.lm.prompt import encode, prompt_text
from cirf.lm.vocabulary import add_tokens
from cirf.methods.base import at_head_of_answer
from cirf.methods.latent.decode import Latent, Thinking, read_latent, thinking
from cirf.methods.latent.loop import Projector, read_projector


def test_the_seed_alone_decides_it_and_it_comes_back_as_it_was(tmp_path: Path) -> None:
    torch.manual_seed(1)
    first, before = Projector(8, 5, 3), torch.get_rng_state()
    torch.manual_seed(2)
    again = Projector(8, 5, 3)
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in first.state_dict().items())
    torch.manual_seed(1)
    assert torch.equal(before, torch.get_rng_state())  # nobody's random numbers are used up
    assert not torch.equal(Projector(8, 5, 4).net[0].weight, first.net[0].weight)  # type: ignore[arg-type]
    with pytest.raises(CirfError, match="not there, damaged, or of another model"):
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
    latent = Latent("<latent>", "</latent>", 3, "The answer is:", 16)
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
        found = generate(model, tokenizer, asked, 5, batch_size=size, prefixes=thinks)
        assert [output.ids for output in found] == [ids[: len(output.ids)] for ids, output in zip(wanted, found, strict=True)]
    plain, silent = Thinking(model, tokenizer, latent), Thinking(model, tokenizer, Latent("<latent>", "</latent>", 3), project)
    ids = [encode(tokenizer, prompt) for prompt in asked]
    keys = [each.begin(ids).cache.layers[1].keys for each in (thinks, plain, silent)]
    assert torch.equal(keys[0], keys[2]) and (keys[0] - keys[1]).abs().max() > 0.1  # the net is in the thoughts
    assert [out.ids for out in generate(model, tokenizer, asked, 5, prefixes=silent)] != [out.ids for out in found]
