"""What went wrong in published releases of these methods, tried on every method that is registered, now and later.

Ten defects are known from their code: (1) the right answer in the prompt, (2) a layout that training never showed, (3) no end
token, (4) answers that depend on the batch, (5) latents that the cache changes, (6) a metric that any text satisfies, (7) new
rows that are not trained, or whole matrices that are, (8) rows that move though they are frozen, (9) checkpoints chosen by the
rows that are reported, (10) other outputs from the same seed. Elsewhere: the seeing of gold by any other way of asking
(`evaluation/test_no_gold.py`), the metric (`evaluation/test_chance.py`), the laid over rows against rows of the matrix
(`lm/test_loss.py`), a warm-up apart and the share cut off (`evaluation/test_latency.py`, `test_harness.py`), latents that are
computed again (5; `lm/test_latent.py`, `lm/test_projector.py`). A model that reasons in vectors does so here as it is evaluated.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tinyrun
import torch
from safetensors.torch import load_file

from cirf import methods
from cirf.evaluation.harness import hide
from cirf.lm.decoding.generate import Decoding, generate
from cirf.lm.prompt import encode, end_token, prompt_text
from cirf.lm.training import finetune as training
from cirf.lm.training.batches import Feature, Row, tokenise
from cirf.lm.training.objective import CurriculumRow
from cirf.lm.training.spec import TrainingData
from cirf.lm.training.trainer import TargetTrainer
from cirf.lm.vocabulary import token_names
from cirf.methods.base import Method
from cirf.recipe.load import load
from cirf.records import Example, Problem
from cirf.stages import models
from cirf.stages.context import Context
from cirf.store.jsonl import read_rows
from cirf.store.run_folder import RunFolder

NAMES = methods.names()
TRAINED = [name for name in NAMES if methods.named(name).trained]
ALIKE = {"cirf_subjects", "cirf_subjects_after_cot", "cirf_zero", "cirf_faster", "cirf_lean", "cirf_bare", "cirf_self"}
ALIKE |= {
    "cirf_after_cot",
    "cirf_fast",
    "token_skip",
    "terse",
    "pause",
    "terse_subjects",
    "terse_equations",
    "filler",
    "sim_cot",
    "sem_cot",
}
"""Methods made as others here are: tried with ``-m slow``."""
EPOCHS, SIZE = 32.0, 4
GOLD, WORKING = "8675309", "SENTINEL OF THE RATIONALE"


def each(names: Iterable[str]) -> list[Any]:
    """The names as parameters, some of them ``slow``."""
    return [pytest.param(name, marks=[pytest.mark.slow] if name in ALIKE else []) for name in names]


@pytest.fixture(scope="module")
def context(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Context]:
    """A run of every method that tests ask for, each over-fitted on eight rows; input and output matrix are two."""
    here = [item.name for item in request.session.items if item.path == request.path]
    named = [name for name in NAMES if any(item.endswith(f"[{name}]") for item in here)] or ["direct"]
    folder = tmp_path_factory.mktemp("everything")
    tinyrun.write_backbone(folder / "backbone", tied=False, scale=12.0)
    tinyrun.write_embedder(folder / "embedder")
    short = [row | {"rationale": re.sub(r"There are | \w+ in box \d+", "", row["rationale"])} for row in tinyrun.sums(9, steps=2)]
    train = tinyrun.write_jsonl(folder / "train.jsonl", short)
    test = tinyrun.write_jsonl(folder / "test.jsonl", tinyrun.sums(4, seed=9, steps=2))
    tune = {"epochs": EPOCHS, "batch_size": 8, "learning_rate": 0.02, "weight_decay": 0.0, "eval_steps": 1000}
    keys = {f"finetune__{key}": value for key, value in tune.items()}
    made = tinyrun.recipe(folder / "backbone", folder / "embedder", train, test, methods=named, codebook__size=SIZE, **keys)
    path = tinyrun.write_recipe(folder / "r.yaml", made)
    said = tinyrun.cirf("run", path, "--out", folder / "run", "--until", "models")
    assert said.code == 0, said.err
    found = Context(load(str(folder / "run/recipe.yaml")), RunFolder(folder / "run"))
    yield found
    models.release(found)
    KEPT.clear()


KEPT: dict[str, dict[str, Any]] = {}
"""The models that were loaded, by their folder, as the context holds one."""


def loaded(context: Context, name: str) -> tuple[Any, Any]:
    """The model and tokenizer that answer for a method. Each model is loaded once, though the context keeps only the last."""
    source = str(models.source_of(context, name))
    context.loaded.clear()
    context.loaded.update(KEPT.get(source, {}))
    found = models.load_for(context, name)
    KEPT[source] = dict(context.loaded)
    return found


def get(context: Context, name: str) -> Method:
    return methods.get(name, context.recipe)


def task_of(context: Context, problem: Problem) -> Any:
    return context.tasks[problem.task]


def asked(context: Context, name: str, problem: Problem, tokenizer: Any) -> str:
    """The rendered prompt, as an evaluation makes it."""
    return prompt_text(tokenizer, get(context, name).prompt(hide(problem), task_of(context, problem)))


def beginnings(context: Context, name: str, model: Any, tokenizer: Any) -> Any:
    """How its prompts begin, as in an evaluation: with its thoughts, where it has any."""
    return get(context, name).beginnings(model, tokenizer, models.source_of(context, name))


@dataclass
class Taught:
    """The rows of a method's training, and as ids what the model was taught last."""

    examples: list[Example]
    rows: list[Row]
    features: list[Feature]


def taught(context: Context, name: str, tokenizer: Any) -> Taught:
    """From what the run kept (``sft.jsonl``) by way of the method's curriculum, where it has one."""
    method = get(context, name)
    examples, _ = context.examples(method)
    kept = read_rows(context.folder.folder(f"models/{name}") / "sft.jsonl")
    rows = []
    for row, example in zip(kept, examples, strict=True):
        answer = example.problem.answer
        length = len(answer) if row["completion"].endswith(answer) else None
        rows.append(Row(row["prompt"], row["completion"], length, example.segments))
    names = token_names(SIZE).all if method.functional else ()
    features, dropped = tokenise(rows, tokenizer, 10**6, tokenizer.convert_tokens_to_ids(list(names)), method.ends)
    assert not dropped and len(features) == len(examples) == 8
    lessons = [CurriculumRow(row, feature) for row, feature in zip(rows, features, strict=True)]
    curriculum = method.curriculum(lessons, lessons, tokenizer, EPOCHS, 1)
    if curriculum is not None:
        features = [curriculum.feature(place, int(EPOCHS) - 1) for place in range(len(rows))]
    return Taught(examples, rows, features)


# 1. The right answer is never in a prompt


@pytest.mark.parametrize("name", each(NAMES))
def test_the_rendered_prompt_holds_no_gold(context: Context, name: str) -> None:
    _, tokenizer = loaded(context, name)
    method, task = get(context, name), context.tasks["sums"]
    question = "Box {} gets some apples. How many are in it?"
    problems = [Problem(f"p{place}", "sums", question.format(place), GOLD, None, WORKING) for place in range(50)]
    behind = set()
    for problem in problems:
        summary = prompt_text(tokenizer, method.prompt(problem, task))
        other = dataclasses.replace(problem, answer="1", rationale=None)
        assert summary == prompt_text(tokenizer, method.prompt(other, task)) and problem.question in summary
        assert GOLD not in summary and WORKING not in summary
        behind.add(summary.partition(problem.question)[2])
    (same,) = behind  # whatever is asked
    most = 60 if method.trained else 200  # a template's few tokens; the untrained are asked for a form
    assert len(encode(tokenizer, same)) < most
    examples = context.examples(method)[0] if method.trained else []
    assert bool(examples) == method.trained
    for example in examples:
        secret = dataclasses.replace(example.problem, answer=GOLD, rationale=WORKING)
        summary = method.training_prompt(dataclasses.replace(example, problem=secret), task)
        assert GOLD not in summary and WORKING not in summary


# 2. What is asked was seen in training


@pytest.mark.parametrize("name", each(TRAINED))
def test_the_layout_when_answering_is_one_of_training(context: Context, name: str) -> None:
    model, tokenizer = loaded(context, name)
    method, begins = get(context, name), beginnings(context, name, model, tokenizer)
    seen = taught(context, name, tokenizer)
    same = [
        asked(context, name, example.problem, tokenizer) == row.prompt
        for example, row in zip(seen.examples, seen.rows, strict=True)
    ]
    one_way = type(get(context, name)).training_prompt is Method.training_prompt
    assert all(same) if one_way else any(same)
    for example, row, feature in zip(seen.examples, seen.rows, seen.features, strict=True):
        prompt = encode(tokenizer, row.prompt)
        assert list(feature.ids[: len(prompt)]) == prompt and feature.skipped is None
        last = feature.ids[len(prompt) :]
        if method.guide:  # the positions of its vectors are in the prompt
            begun = begins.begin([prompt])
            assert begun.prompts == [prompt] and begins.vectors([prompt]).shape[1] == method.latents
        elif method.latents:  # as many thoughts, followed by what is given before the model writes
            assert feature.thoughts == (len(prompt), method.latents)
            begun = begins.begin([prompt])
            assert last[: feature.start - len(prompt)] == tuple(begun.prompts[0][begun.heads[0] :])
            last = feature.ids[feature.start :]
        assert end_token(tokenizer) not in last[:-1]
        # The text after the prompt is a whole answer: training adds nothing before it that is absent when answering.
        text = tokenizer.decode([token for token in last if token != end_token(tokenizer)])
        parsed = task_of(context, example.problem).parse(get(context, name).read(text)[1], example.problem)
        assert parsed == example.problem.answer
    if name == "icot_si":
        forms = [[*encode(tokenizer, f"#### {example.problem.answer}"), end_token(tokenizer)] for example in seen.examples]
        assert [list(feature.ids[feature.start :]) for feature in seen.features] == forms


def test_the_one_exception_is_reported(context: Context) -> None:
    """Another number of pauses when answering is for who asks for it, and said by the run and the report."""
    variants = {"x": {"method": "pause", "settings": {"answered": 1}}}
    made = context.recipe.model_validate(context.recipe.model_dump() | {"variants": variants})
    assert methods.get("x", made).caveats() and not any(get(context, name).caveats() for name in NAMES)


# 3. The end token is learned


@pytest.mark.parametrize("name", each(TRAINED))
def test_an_overfitted_model_stops(context: Context, name: str) -> None:
    method = get(context, name)
    model, tokenizer = loaded(context, name)
    seen = taught(context, name, tokenizer)
    assert method.ends and all(feature.ids[-1] == end_token(tokenizer) for feature in seen.features)
    if method.frozen:  # a net that was random and stays so cannot be brought to say anything; it learns what it can
        losses = json.loads((context.folder.folder(f"models/{name}") / "history.json").read_text())["losses"]
        assert losses[-1]["loss"] < losses[0]["loss"] - 0.3
        return
    length = max(len(feature.ids) - feature.start for feature in seen.features)
    prompts = [row.prompt for row in seen.rows]
    outputs = generate(model, tokenizer, prompts, length + 2, Decoding(prefixes=beginnings(context, name, model, tokenizer)))
    assert [output.truncated for output in outputs] == [False] * 8
    assert {output.ids[-1] for output in outputs} == {end_token(tokenizer)}
    right = sum(output.ids == feature.ids[feature.start :] for output, feature in zip(outputs, seen.features, strict=True))
    assert right >= 6  # it is over-fitted indeed


# 4. An answer does not depend on the batch


@pytest.mark.parametrize("name", each(NAMES))
def test_alone_or_in_a_padded_batch_a_question_has_the_same_logits_and_answer(context: Context, name: str) -> None:
    model, tokenizer = loaded(context, name)
    problems = [
        *context.test()["sums"][:2],
        Problem("l", "sums", "And " * 25 + "how many are in box 3?", "1"),
        Problem("s", "sums", "7?", "7"),
    ]
    prompts = [asked(context, name, problem, tokenizer) for problem in problems]
    encoded = [encode(tokenizer, prompt) for prompt in prompts]
    longest = max(map(len, encoded))
    ids = torch.tensor([[end_token(tokenizer)] * (longest - len(one)) + one for one in encoded])
    mask = torch.tensor([[0] * (longest - len(one)) + [1] * len(one) for one in encoded])
    places = (mask.cumsum(dim=1) - 1).clamp(min=0)
    with torch.inference_mode():
        together = model(input_ids=ids, attention_mask=mask, position_ids=places).logits[:, -1]
        alone = torch.stack([model(input_ids=torch.tensor([one])).logits[0, -1] for one in encoded])
    torch.testing.assert_close(together, alone, atol=1e-4, rtol=0)
    begins = beginnings(context, name, model, tokenizer)
    at_once, one_by_one = (generate(model, tokenizer, prompts, 6, Decoding(prefixes=begins), batch_size=size) for size in (32, 1))
    assert at_once == one_by_one


# 7 to 10. A few updates of adapters, looked at from inside


@dataclass
class Adapted:
    """What two updates of a method's adapters trained, from what, on what, and the folder that they left."""

    trainable: dict[str, tuple[int, ...]]
    before: dict[str, torch.Tensor]
    held_out: list[Feature]
    folder: Path


class _Enough(Exception):
    """The names are known; no need to train."""


def spied(context: Context, name: str, adaptation: str, folder: Path, monkeypatch: pytest.MonkeyPatch, train: bool) -> Adapted:
    found = Adapted({}, {}, [], folder)

    class Spy(TargetTrainer):
        def __init__(self, model: Any, args: Any, data: TrainingData, *more: Any, **keys: Any) -> None:
            found.held_out.extend(data.validation)
            for key, value in model.named_parameters():
                if value.requires_grad:
                    found.trainable[key] = tuple(value.shape)
                elif ("embed_tokens" in key or "lm_head" in key) and not key.startswith(PREFIX):
                    found.before[key.removeprefix("base_model.model.")] = value.detach().clone()
            if not train:
                raise _Enough
            super().__init__(model, args, data, *more, **keys)

    monkeypatch.setattr(training, "TargetTrainer", Spy)
    lora = {"rank": 2, "alpha": 4, "dropout": 0.1, "target_modules": "all-linear"}
    update = {"adaptation": adaptation, "lora": lora, "batch_size": 4, "epochs": 1.0, "overrides": {}}
    section = type(context.recipe.finetune).model_validate(context.recipe.finetune.model_dump() | update)
    with contextlib.suppress(_Enough):
        models.finetune(context, name, section, folder)
    return found


@pytest.fixture(scope="module")
def adapted(context: Context, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Adapted]:
    """``adapted(name)``: the same for every test that asks."""
    known: dict[str, Adapted] = {}

    def find(name: str) -> Adapted:
        if name not in known:
            with pytest.MonkeyPatch.context() as patch:
                known[name] = spied(context, name, "lora", tmp_path_factory.mktemp(name) / "model", patch, train=True)
        return known[name]

    return find


LAYERS = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"]
LAYERS += ["mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]
ADAPTERS = {
    f"base_model.model.model.layers.{layer}.{part}.lora_{side}.default.weight"
    for layer in range(2)
    for part in LAYERS
    for side in "AB"
}
INPUT, OUTPUT = "base_model.model.model.embed_tokens.cirf_rows", "base_model.model.lm_head.cirf_rows"
NEW = (
    {"pause": (1, 0)}
    | dict.fromkeys(("coconut", "codi", "sim_cot"), (2, 0))
    | {name: (SIZE + 2, SIZE + 2) for name in NAMES if name.startswith("cirf_")}
)
"""Rows that are trained in the input and in the output matrix; no others are in any method."""
PREFIX = "cirf_beside."
BESIDE: dict[str, dict[str, tuple[int, ...]]] = {
    "codi": {f"cirf_beside.net.{layer}.weight": (32, 32) for layer in (0, 2)}
    | {f"cirf_beside.net.{layer}.bias": (32,) for layer in (0, 2, 3)}
    | {"cirf_beside.net.3.weight": (32,)}
}
"""What is trained besides the model and is no part of it."""


@pytest.mark.parametrize("name", each(TRAINED))
def test_adapters_and_new_rows_are_trained_and_nothing_else(
    context: Context, adapted: Callable[[str], Adapted], name: str
) -> None:
    found, method = adapted(name).trainable, get(context, name)
    read, written = NEW.get(name, (0, 0))
    written_by_kind = (SIZE + 2) * method.functional
    assert (read, written) == (written_by_kind + len(method.tokens), written_by_kind)
    if method.frozen:
        learns_beside_the_model_alone(name, found)
        return
    rows = ({INPUT: (read, 32)} if read else {}) | ({OUTPUT: (written, 32)} if written else {})
    assert {key: shape for key, shape in found.items() if "lora" not in key} == rows | BESIDE.get(name, {})
    second = {key.replace(".default.", ".decoder.") for key in ADAPTERS} if name == "sim_cot" else set()
    assert {key for key in found if "lora" in key} == ADAPTERS | second


def learns_beside_the_model_alone(name: str, found: dict[str, tuple[int, ...]]) -> None:
    """Of a frozen model nothing is trained: a map, or a guide without its vocabulary, its map and its vector."""
    one_map = {f"{PREFIX}weight": (32, 32), f"{PREFIX}bias": (32,)}
    if name == "soft_cot":
        assert found == one_map
        return
    own = {key.removeprefix(PREFIX) for key in found if key.startswith(PREFIX)}
    assert len(own) == len(found) and {"thought", "projection.weight", "projection.bias"} < own
    parts = {key.removeprefix("model.") for key in own if key.startswith("model.")}
    layers = {f"model.layers.{layer}.{part}.weight" for layer in range(2) for part in LAYERS}
    norms = {f"model.layers.{n}.{which}_layernorm.weight" for n in range(2) for which in ("input", "post_attention")}
    assert parts == layers | norms | {"model.norm.weight"}


@pytest.mark.parametrize("name", each(TRAINED))
def test_in_full_every_weight_is_trained(context: Context, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = spied(context, name, "full", tmp_path, monkeypatch, train=False)
    if get(context, name).frozen:
        learns_beside_the_model_alone(name, found.trainable)
        return
    saved = load_file(context.folder.folder(f"models/{name}") / "model.safetensors")
    beside = {key: shape for key, shape in found.trainable.items() if key.startswith("cirf_beside")}
    inside = {key: shape for key, shape in found.trainable.items() if key not in beside}
    assert inside == {key: tuple(value.shape) for key, value in saved.items()} and not found.before
    if name == "sim_cot":  # adapters, on a copy that stays as it was
        copied = f"cirf_beside.decoder.{next(iter(ADAPTERS))}".partition("model.layers")[0]
        assert beside.keys() == {key.replace("base_model.model.model.layers", f"{copied}model.layers") for key in ADAPTERS}
    else:
        assert beside == BESIDE.get(name, {})
    assert {"lm_head.weight", "model.embed_tokens.weight"} < set(saved)


@pytest.mark.parametrize("name", each(TRAINED))
def test_rows_that_are_not_new_stay_to_the_bit(context: Context, adapted: Callable[[str], Adapted], name: str) -> None:
    from transformers import AutoTokenizer

    found, method = adapted(name), get(context, name)
    saved = load_file(found.folder / "model.safetensors")
    tokenizer = AutoTokenizer.from_pretrained(found.folder)
    functional = tokenizer.convert_tokens_to_ids(list(token_names(SIZE).all)) if method.functional else []
    new = {
        "model.embed_tokens.weight": [*functional, *tokenizer.convert_tokens_to_ids(list(method.tokens))],
        "lm_head.weight": functional,
    }
    assert set(found.before) == set(new)
    for key, ids in new.items():
        changed = (saved[key] != found.before[key]).any(dim=1).nonzero().flatten().tolist()
        assert set(changed) <= set(ids), key
        assert bool(changed) == bool(ids)  # and the new ones are trained
    layers = [key for key in saved if "proj" in key]
    source = load_file(Path(context.recipe.backbone.model) / "model.safetensors")
    if method.frozen:
        assert all(torch.equal(value, source[key]) for key, value in saved.items())
        return
    assert layers and all(not torch.equal(saved[key], source[key]) for key in layers)


@pytest.mark.parametrize("name", each(TRAINED))
def test_what_a_model_is_chosen_by_is_not_what_is_reported(
    context: Context, adapted: Callable[[str], Adapted], name: str
) -> None:
    _, tokenizer = loaded(context, name)
    reported = [problem.question for problem in context.test()["sums"]]
    held_out = [problem.question for problem in context.validation()]
    features = adapted(name).held_out
    assert len(features) == len(held_out) == 1
    for feature in features:
        text = tokenizer.decode(feature.ids)
        assert any(question in text for question in held_out)
        assert not any(question in text for question in reported)
    losses = json.loads((adapted(name).folder / "history.json").read_text())["validation"]
    assert losses[0]["update"] == 0 and len(losses) == 2  # the only losses there are to choose by
    assert not {problem.id for problem in context.validation()} & {problem.id for problem in context.train()}


def _files(folder: Path) -> list[str]:
    """Those of a model, but not its checkpoints or what a clock touched."""
    found = [path for path in (*folder.iterdir(), *folder.glob("latent/*"), *folder.glob("guide/*")) if path.is_file()]
    return sorted(path.relative_to(folder).as_posix() for path in found if path.name != "timings.json")


@pytest.mark.parametrize("name", each(TRAINED))
def test_the_same_seed_gives_the_same_model(
    context: Context, adapted: Callable[[str], Adapted], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = adapted(name).folder
    second = spied(context, name, "lora", tmp_path / "model", monkeypatch, train=True).folder
    files = _files(first)
    assert {"model.safetensors", "history.json", "sft.jsonl", "tokenizer.json", "config.json"} <= set(files)
    assert files == _files(second)
    for file in files:
        assert (first / file).read_bytes() == (second / file).read_bytes(), file


@pytest.mark.parametrize("name", each(NAMES))
def test_the_same_seed_gives_the_same_answers_and_another_one_others(context: Context, name: str) -> None:
    model, tokenizer = loaded(context, name)
    prompts = [asked(context, name, problem, tokenizer) for problem in context.test()["sums"]]
    begins = beginnings(context, name, model, tokenizer)
    drawn = [generate(model, tokenizer, prompts, 8, Decoding(9.0, 1.0, seed, prefixes=begins)) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
