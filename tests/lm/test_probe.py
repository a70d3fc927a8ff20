"""Probes: what changes nothing changes no answer; and who answers from thoughts or a trace answers otherwise behind another's."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from tiny import Thinks

from cirf.evaluation.probes import Cut, OfThoughts, OfTrace, Prober, Unit, shuffled
from cirf.lm.decoding.generate import Decoding, Output, continue_generation, generate
from cirf.lm.prompt import encode, prompt_text
from cirf.lm.training.batches import Row
from cirf.lm.training.finetune import finetune
from cirf.lm.training.objective import Batch
from cirf.lm.training.spec import TrainingSpec
from cirf.lm.vocabulary import add_tokens, extend, token_names
from cirf.methods.base import at_head_of_answer
from cirf.methods.latent.decode import LatentPrefiller, LatentSettings, given
from cirf.methods.latent.loop import Thoughts
from cirf.methods.latent.loss import LatentObjective
from cirf.recipe import schema

LATENT = LatentSettings("<latent>", "</latent>", 3)
ASKED = ["Hi?", "What is 12 plus 7?", "Anna has 3 apples and buys 4 more. How many?", "yes", "A coin is heads up."]
NAMES = list("abcde")
CAP = 6


def thinker(tiny: Any, kind: str = "llama", scale: float = 4.0) -> tuple[Any, Any, list[int]]:
    model, tokenizer = tiny.build_model(kind, tied=False, scale=scale), tiny.build_tokenizer()
    ids = add_tokens(model, tokenizer, [LATENT.begin, LATENT.end])
    tokenizer.chat_template = at_head_of_answer(tokenizer.chat_template, LATENT.begin)
    return model, tokenizer, ids


def probed(model: Any, tokenizer: Any, prompts: list[str], probes: tuple[str, ...], seed: int = 0) -> dict[str, list[Any]]:
    thinking = LatentPrefiller(model, tokenizer, LATENT)
    prober = Prober(model, tokenizer, thinking, OfThoughts(model, thinking), probes, seed)
    return prober(prompts, NAMES[: len(prompts)], CAP)


def plainly(model: Any, vectors: torch.Tensor) -> tuple[int, ...]:
    """The most likely ids behind vectors [s x d], without a cache."""
    written: list[int] = []
    with torch.no_grad():
        for _ in range(CAP):
            written.append(int(model(inputs_embeds=vectors[None], use_cache=False).logits[0, -1].argmax()))
            vectors = torch.cat([vectors, model.get_input_embeddings()(torch.tensor(written[-1:]))])
    return tuple(written)


@pytest.mark.parametrize("kind", ["llama", pytest.param("gpt2", marks=pytest.mark.slow)])
def test_thoughts_perturbed_are_answered_as_without_a_cache(tiny: Any, kind: str) -> None:
    model, tokenizer, _ = thinker(tiny, kind)
    prompts = [prompt_text(tokenizer, text) for text in ASKED]
    found = probed(model, tokenizer, prompts, ("drop", "shuffle", "swap", "truncate-1", "truncate-9"))
    wanted = generate(model, tokenizer, prompts, CAP, Decoding(prefixes=LatentPrefiller(model, tokenizer, LATENT)))
    assert [one.output for one in found["none"]] == [one.output for one in found["keep"]] == wanted
    assert not any(one.changed for name in ("none", "keep", "truncate-9") for one in found[name])
    assert all(one.changed for name in ("drop", "shuffle", "swap", "truncate-1") for one in found[name])
    shorter = LatentPrefiller(model, tokenizer, LatentSettings(LATENT.begin, LATENT.end, 1))
    assert [one.output for one in found["truncate-1"]] == generate(model, tokenizer, prompts, CAP, Decoding(prefixes=shorter))
    rows = given(model, LatentPrefiller(model, tokenizer, LATENT), [encode(tokenizer, text) for text in prompts])
    heads, ends = [row.vectors[:-4] for row in rows], [row.vectors[-1:] for row in rows]
    assert {one.partner for one in found["swap"]} == set(range(5))
    for place, (drop, swap) in enumerate(zip(found["drop"], found["swap"], strict=True)):
        assert swap.partner not in (None, place)
        other = rows[swap.partner].vectors[-4:-1]
        for output, vectors in ((drop.output, []), (swap.output, [other])):
            ids = plainly(model, torch.cat([heads[place], *vectors, ends[place]]))
            assert output.ids == ids[: len(output.ids)] and (len(output.ids) == CAP or not output.truncated)


def test_a_shuffle_is_another_order_where_there_is_one() -> None:
    units = [Unit((token,), torch.full((1, 2), float(token))) for token in (3, 4, 5)]
    made = [shuffled(units, Random(seed)) for seed in range(20)]
    assert {tuple(unit.ids[0] for unit in order) for order in made} == {(3, 5, 4), (4, 3, 5), (4, 5, 3), (5, 3, 4), (5, 4, 3)}
    assert all(float(unit.vectors[0, 0]) == unit.ids[0] for order in made for unit in order if unit.vectors is not None)
    assert shuffled(units[:1], Random(0)) == (units[0],)
    assert [unit.ids for unit in shuffled([Unit((7,))] * 3, Random(0))] == [(7,)] * 3


def test_draws_hang_on_the_seed_and_the_questions(tiny: Any) -> None:
    model, tokenizer, _ = thinker(tiny)
    prompts = [prompt_text(tokenizer, text) for text in ASKED]
    once, again = (probed(model, tokenizer, prompts, ("shuffle", "swap")) for _ in range(2))
    assert once == again
    rings = {tuple(one.partner for one in probed(model, tokenizer, prompts, ("swap",), seed)["swap"]) for seed in range(6)}
    assert len(rings) > 1
    alone = probed(model, tokenizer, prompts[:1], ("swap",))["swap"][0]
    assert alone.partner is None and not alone.changed


class Blind(LatentObjective):
    """A row is shown any row's prompt when it answers, so that only its own thoughts contain the answer."""

    def think(self, model: Any, batch: Batch) -> Thoughts:
        thoughts = super().think(model, batch)
        end, turn = batch["heads"].shape[1], int(torch.randint(len(batch["heads"]), ()))
        for layer in thoughts.cache.layers:
            for name in ("keys", "values"):
                part = getattr(layer, name)
                setattr(layer, name, torch.cat([part[:, :, :end].roll(turn, 0), part[:, :, end:]], dim=2))
        thoughts.mask[:, :end] = thoughts.mask[:, :end].roll(turn, 0)
        return thoughts


def taught(model: Any, tokenizer: Any, rows: list[Row], work: Path, **more: Any) -> Any:
    section = schema.Finetune(
        adaptation="full", epochs=more.pop("epochs", 200), batch_size=len(rows), gradient_accumulation_steps=1,
        learning_rate=more.pop("rate", 3e-3), warmup_steps=5, weight_decay=0.0, bf16=False,
    )  # fmt: skip
    return finetune(model, tokenizer, rows, [], TrainingSpec(section, "m", more.pop("new_ids", []), work, 0, **more))[0]


@pytest.mark.slow
def test_who_answers_from_thoughts_gives_anothers_answer_to_anothers_thoughts(tiny: Any, tmp_path: Path) -> None:
    model, tokenizer, ids = thinker(tiny, scale=12.0)
    alike = [f"What is {number} plus 7?" for number in range(5)]  # of equal length, so that no position reveals the answer
    rows = [Row(prompt_text(tokenizer, text), answer) for text, answer in zip(alike, "13579", strict=True)]
    assert len({len(encode(tokenizer, row.prompt)) for row in rows}) == 1
    model = taught(
        model,
        tokenizer,
        rows,
        tmp_path,
        input_ids=ids,
        teach=lambda train, *_: Thinks(train, ids[1], LATENT.count, watched=1),
        objective=Blind(),
    )
    found = probed(model, tokenizer, [row.prompt for row in rows], ("drop", "swap"))
    assert [one.output.text for one in found["none"]] == [one.output.text for one in found["keep"]] == list("13579")
    assert [one.output.text for one in found["swap"]] == ["13579"[one.partner] for one in found["swap"]]
    assert sum(one.output.text == row.target for one, row in zip(found["drop"], rows, strict=True)) <= 2


def functional(tiny: Any, tokenizer: Any, size: int = 4) -> tuple[Any, list[int]]:
    model = tiny.build_model(scale=12.0)
    return model, extend(model, tokenizer, None, schema.Vocabulary(alpha="mean"), size, 0)


def trace_cuts(tokenizer: Any, results: Any, *texts: str, opened: bool = False) -> tuple[OfTrace, list[Any]]:
    between = OfTrace(tokenizer, token_names(4), results)
    written = [Output(text, 0, False, tuple(encode(tokenizer, text))) for text in texts]
    return between, between.cut([[5, 6, *encode(tokenizer, "<cirf>" * opened)]] * len(texts), written)


@pytest.mark.parametrize("opened", [False, True])
def test_a_trace_is_cut_into_its_steps(tiny: Any, tokenizer: Any, opened: bool) -> None:
    functional(tiny, tokenizer)
    start, whole = "" if opened else "<cirf>", "<cirf><cirf_001>48<cirf_003><cirf_000>72</cirf>"
    texts = (f"{start}{whole.removeprefix('<cirf>')}72", "72", f"{start}<cirf_001>48", f"{start}</cirf>7", "</cirf><cirf>")
    between, (cut, *others) = trace_cuts(tokenizer, "follow", *texts, opened=opened)
    assert others == [None] * 4

    def text(units: Any) -> list[str]:
        return [tokenizer.decode(list(unit.ids)) for unit in units]

    assert text(cut.units) == ["<cirf_001>48", "<cirf_003>", "<cirf_000>72"]
    begun = between.begin([cut])
    assert begun.prompts == [[5, 6, *encode(tokenizer, whole)]] and begun.heads == [0] and cut.asked == 2 + opened
    assert text(between.arranged(cut.units, cut.units[1:])) == ["<cirf_003>", "<cirf_000>72"]


def test_no_trace_is_written_again_behind_a_perturbed_one(tiny: Any, tokenizer: Any) -> None:
    model, ids = functional(tiny, tokenizer)
    with torch.no_grad():  # a model that would write functional tokens only
        model.get_output_embeddings().weight[ids] *= 100
    opened, prompts = tokenizer("<cirf>").input_ids, [prompt_text(tokenizer, text) for text in ASKED[:3]]
    between = OfTrace(tokenizer, token_names(4), "follow")
    begun = between.begin([Cut(Unit((*encode(tokenizer, text), *opened)), (), Unit((between.never[1],))) for text in prompts])
    wild = continue_generation(model, tokenizer, begun, CAP, [[]] * 3)
    tame = continue_generation(model, tokenizer, begun, CAP, [[]] * 3, between.never)
    assert all({*ids} & {*output.ids} for output in wild) and not any({*between.never} & {*output.ids} for output in tame)


def test_results_that_stay_keep_their_places(tiny: Any, tokenizer: Any) -> None:
    functional(tiny, tokenizer)
    texts = (
        "<cirf><cirf_001>48<cirf_003>7<cirf_000>72</cirf>72",
        "<cirf><cirf_002>9</cirf>9",
        "<cirf><cirf_002><cirf_002></cirf>",
    )
    between, (cut, short, bare) = trace_cuts(tokenizer, "keep", *texts)

    def text(units: tuple[Unit, ...], others: Any) -> str:
        return "".join(tokenizer.decode(list(unit.ids)) for unit in between.arranged(units, others))

    assert text(cut.units, cut.units) == "<cirf_001>48<cirf_003>7<cirf_000>72"
    assert text(cut.units, cut.units[::-1]) == "<cirf_000>48<cirf_003>7<cirf_001>72"
    assert text(cut.units, ()) == "48 7 72"
    assert text(cut.units, cut.units[:1]) == "<cirf_001>48 7 72"
    assert text(cut.units, short.units) == "<cirf_002>48 7 72"
    assert text(short.units, cut.units) == "<cirf_001>9<cirf_003><cirf_000>"
    assert text(bare.units, ()) == ""


@pytest.mark.parametrize("opened", [pytest.param(False, marks=pytest.mark.slow), True])
def test_who_answers_from_its_trace_gives_anothers_answer_to_anothers_trace(
    tiny: Any, tokenizer: Any, tmp_path: Path, opened: bool
) -> None:
    """In training every question comes with every trace, its own more often, so that only the trace contains the answer."""
    model, ids = functional(tiny, tokenizer)
    start = "" if opened else "<cirf>"
    if opened:
        tokenizer.chat_template = at_head_of_answer(tokenizer.chat_template, "<cirf>")
    targets = [f"{start}<cirf_00{code}><cirf_00{3 - code}></cirf>{code + 4}" for code in range(4)]
    rows = []
    for place, question in enumerate(ASKED[:4]):
        prompt = prompt_text(tokenizer, question)
        rows += [Row(prompt, target) for target in (*targets, targets[place], targets[place])]
    model = taught(model, tokenizer, rows, tmp_path, new_ids=ids, epochs=60, rate=1e-2)
    names = token_names(4)
    prober = Prober(model, tokenizer, None, OfTrace(tokenizer, names, "follow"), ("drop", "shuffle", "swap", "truncate-1"), 0)
    prompts = [prompt_text(tokenizer, question) for question in ASKED[:4]]
    found = prober(prompts, NAMES[:4], 12)
    texts = [one.output.text for one in found["none"]]
    assert texts == targets
    assert [one.output for one in found["keep"]] == [one.output for one in found["none"]]
    assert [one.output.text for one in found["swap"]] == [targets[one.partner] for one in found["swap"]]
    assert all(one.changed for one in found["swap"])
    assert [one.output.text.partition("</cirf>")[0] for one in found["truncate-1"]] == [
        f"{start}{names.codes[i]}" for i in range(4)
    ]
    assert all(one.output.text.startswith(f"{start}</cirf>") for one in found["drop"])
    short = prober(prompts, NAMES[:4], 4 - opened)  # the cap is as it was: the trace takes all of it
    assert [one.output for one in short["keep"]] == [one.output for one in short["none"]]
    assert all(one.output.truncated and one.output.tokens == 4 - opened for one in short["keep"])
