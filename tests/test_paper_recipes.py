"""The paper's hyper-parameter table against the paper recipes, row by row; and every shipped recipe explains its keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tables import each_row

from cirf.recipe import keys as recipe_keys
from cirf.recipe import yaml as yaml_text
from cirf.recipe.load import load, shipped
from cirf.recipe.schema import Recipe, Variant

# Table "Hyper-parameter settings" of the paper: the row's name, its value, and the key that holds it.
TABLE: list[tuple[str, Any, str]] = [
    ("Step 1: Generation temperature", 0.7, "rationales.teacher.temperature"),
    ("Step 1: Generation top-p", 0.95, "rationales.teacher.top_p"),
    ("Step 1: Max generated tokens", 4096, "rationales.teacher.max_tokens"),
    ("Step 2: Generation temperature", 0.2, "results.writer.temperature"),
    ("Step 2: Generation top-p", 0.9, "results.writer.top_p"),
    ("Step 2: Max generated tokens", 2048, "results.writer.max_tokens"),
    ("Step 3: Embedding model", "Qwen/Qwen3-Embedding-8B", "embeddings.model"),
    ("Step 3: Codebook vector dimension", 4096, "codebook.dimension"),
    ("Step 3: MLP hidden dimension", 1024, "codebook.hidden"),
    ("Step 3: Autoencoder training epochs", 30, "codebook.autoencoder_epochs"),
    ("Step 3: VQ epochs", 10, "codebook.vq_epochs"),
    ("Step 3: Codebook batch size", 128, "codebook.batch_size"),
    ("Step 3: Codebook learning rate", 1e-4, "codebook.learning_rate"),
    ("Step 3: Gradient clip", 1.0, "codebook.max_grad_norm"),
    ("Step 3: VQ commitment beta", 1.0, "codebook.beta"),
    ("Step 3: Sinkhorn lambda", 0.05, "codebook.sinkhorn.temperature"),
    ("Step 3: Sinkhorn iterations", 3, "codebook.sinkhorn.iterations"),
    ("Step 3: Codebook size K", (32, 64, 128, 256), "codebook.sizes"),
    ("Step 3: Vector scale alpha", 0.01, "vocabulary.alpha"),
    ("Step 4: Hidden size", 4096, "backbone.architecture.hidden_size"),
    ("Step 4: Layers", 36, "backbone.architecture.layers"),
    ("Step 4: Heads", 32, "backbone.architecture.heads"),
    ("Step 4: Training epochs", 2, "finetune.epochs"),
    ("Step 4: Batch size", 4, "finetune.batch_size"),
    ("Step 4: Gradient gradient_accumulation_steps steps", 8, "finetune.gradient_accumulation_steps"),
    ("Step 4: Learning rate", 2e-5, "finetune.learning_rate"),
    ("Step 4: Weight decay", 0.1, "finetune.weight_decay"),
    ("Step 4: Adam adam_beta1", 0.9, "finetune.adam_beta1"),
    ("Step 4: Adam adam_beta2", 0.999, "finetune.adam_beta2"),
    ("Step 4: Adam epsilon", 1e-8, "finetune.adam_epsilon"),
    ("Step 4: LR scheduler", "cosine", "finetune.lr_scheduler_type"),
    ("Step 4: Warmup steps", 100, "finetune.warmup_steps"),
    ("Step 4: Min LR ratio", 0.1, "finetune.min_lr_ratio"),
    ("Step 4: Gradient clip", 1.0, "finetune.max_grad_norm"),
    ("Step 5: Generation temperature", 0.7, "evaluate.temperature"),
    ("Step 5: Generation top-p", 0.9, "evaluate.top_p"),
    ("Greedy segment selection: threshold gamma", (0.0, 0.1, 0.2), "compression.gamma"),
]
EFFECTIVE_BATCH = 32  # "Step 4: Effective batch", a product of two keys

# Where a recipe holds another value than the table, on purpose; docs/concepts/deviations.md says why.
DEVIATIONS: dict[str, dict[str, Any]] = {
    "paper-qwen3-8b": {"evaluate.top_p": 0.95},
    "paper-llama3.1-8b": {"evaluate.top_p": 0.95, "backbone.architecture.layers": 32},
}
# What the recipes must say beyond the table.
BEYOND: list[tuple[str, Any]] = [
    ("finetune.adaptation", "lora"),
    ("finetune.lora.rank", 128),
    ("finetune.lora.alpha", 32),
    ("finetune.bf16", True),
    ("codebook.representation", "mean_centered"),
    ("codebook.initialiser", "sinkhorn"),
    ("codebook.assign", "sinkhorn"),
    ("codebook.sinkhorn.scale", "mean"),
    ("codebook.single_step", "corpus_mean"),
    ("codebook.gradient", "straight_through"),
    ("vocabulary.init", "codebook"),
    ("vocabulary.opening", "written"),
    ("results.last", "drop"),
    ("results.working", "drop"),
    ("evaluate.runs", 3),
    ("rationales.source", "teacher"),
    ("rationales.teacher.prompt", None),  # the shipped one
    ("results.by", "llm"),
    ("compression.fast", 0.1),
    ("compression.faster", 0.2),
]
BACKBONES = {"paper-qwen3-8b": "Qwen/Qwen3-8B", "paper-llama3.1-8b": "meta-llama/Llama-3.1-8B-Instruct"}
TASKS = ["gsm8k", "svamp", "multiarith", "coin_flip", "commonsense_qa", "math500", "bbh", "strategyqa", "scienceqa"]

DEVIATION_PAGES = sorted((Path(__file__).parents[1] / "docs" / "concepts").glob("deviations*.md"))


def value(recipe: Recipe, key: str) -> Any:
    found: Any = recipe
    for part in key.split("."):
        found = getattr(found, part)
    return found


@pytest.fixture(params=sorted(BACKBONES))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize(("row", "expected", "key"), TABLE, ids=[row for row, _, _ in TABLE])
def test_the_recipes_equal_the_papers_table(name: str, row: str, expected: Any, key: str) -> None:
    assert value(load(name), key) == DEVIATIONS[name].get(key, expected), row


def test_the_effective_batch_is_the_papers(name: str) -> None:
    section = load(name).finetune
    assert section.batch_size * section.gradient_accumulation_steps == EFFECTIVE_BATCH


def test_every_deviation_differs_from_the_table_and_is_documented(name: str) -> None:
    table = {key: expected for _, expected, key in TABLE}
    listed = "".join(page.read_text(encoding="utf-8") for page in DEVIATION_PAGES)
    for key, ours in DEVIATIONS[name].items():
        assert table[key] != ours
        assert f"`{key}`" in listed


@pytest.mark.parametrize(("key", "expected"), BEYOND, ids=[key for key, _ in BEYOND])
def test_the_recipes_settle_what_the_table_leaves_open(name: str, key: str, expected: Any) -> None:
    assert value(load(name), key) == expected


def test_model_and_tasks_are_the_papers(name: str) -> None:
    recipe = load(name)
    assert recipe.backbone.model == BACKBONES[name]
    assert [entry.task for entry in recipe.problems.tasks] == TASKS


def test_every_test_question_is_timed(name: str) -> None:
    recipe = load(name)
    assert recipe.evaluate.latency_questions >= max(entry.test or 0 for entry in recipe.problems.tasks)


def test_the_list_of_deviations_names_keys_that_exist() -> None:
    lines = [line for page in DEVIATION_PAGES for line in page.read_text(encoding="utf-8").splitlines()]
    rows = [line for line in lines if line.startswith("| ") and not line.startswith(("| Question", "|--"))]
    assert len(rows) >= 50
    for row in rows:
        keys = [part for part in row.split("|")[-2].split("`") if part.strip(" ,")]
        assert keys, row
        for key in keys:
            assert recipe_keys.locate(tuple(key.split("."))) is not None, key


# The appendix on baselines: epochs, learning rate, weight decay (None: not stated) and each method's own numbers.
BASELINES: dict[str, tuple[float, float, float | None, dict[str, Any]]] = {
    "token_skip": (10, 1e-4, 0.01, {}),
    "pause": (10, 1e-4, 0.01, {"n": 5}),
    "icot_si": (10, 5e-5, None, {"rate": 8}),
    "coconut": (10, 1e-5, 0.01, {"stages": 3, "most": 5}),
    "codi": (5, 8e-4, 0.1, {"thoughts": 6, "gamma": 20}),
    "sim_cot": (10, 1e-5, 0.01, {"weight": 1, "host_settings": {"stages": 3, "thoughts": 2, "most": 5}}),
    "soft_cot": (10, 1e-3, 0.01, {"n": 5, "backbone": "frozen"}),
}


@each_row("baseline", sorted(BASELINES))
def test_the_presets_are_those_of_the_papers_appendix(baseline: str) -> None:
    from cirf import methods

    epochs, rate, decay, settings = BASELINES[baseline]
    recipe = load("paper-qwen3-8b")
    recipe = recipe.model_copy(update={"variants": {"x": Variant(method=baseline, preset="paper")}})
    method = methods.get("x", recipe)
    section = recipe.finetune.resolved("x", method.training)
    assert (section.epochs, section.learning_rate) == (epochs, rate)
    assert decay is None or section.weight_decay == decay
    assert settings.items() <= method.settings.model_dump(mode="json").items()
    if baseline == "codi":
        batch = section.batch_size * section.gradient_accumulation_steps
        assert batch == 128 and section.lr_scheduler_type == "cosine"
        assert section.warmup_steps == round(0.03 * section.epochs * 38_334 / batch)


# Every shipped recipe


@pytest.fixture(params=sorted(shipped()))
def recipe_file(request: pytest.FixtureRequest) -> Path:
    return shipped()[request.param]


def test_a_shipped_recipe_parses_and_bears_the_name_of_its_file(recipe_file: Path) -> None:
    assert load(str(recipe_file)).name == recipe_file.stem


def test_a_shipped_recipe_is_short_and_says_what_differs_from_the_defaults(recipe_file: Path) -> None:
    text = recipe_file.read_text(encoding="utf-8")
    lines, document = text.splitlines(), yaml_text.parse(text)
    assert len(lines) <= 120
    for path, number in document.lines.items():
        located = recipe_keys.locate(path, Recipe)
        if located is None or located[0] not in recipe_keys.by_key(Recipe) or located[0].count(".") + 1 != len(path):
            continue
        value: Any = document.value
        for part in path:
            value = value[part]
        explained = "  # " in lines[number - 1] or lines[number - 2].lstrip().startswith("# ")
        default = recipe_keys.by_key(Recipe)[located[0]].default
        assert explained or isinstance(value, dict) or yaml_text.inline(value) != default, (
            f"{recipe_file.name}:{number}: at its default"
        )


def test_tasks_and_methods_of_shipped_recipes_exist(recipe_file: Path) -> None:
    from cirf import methods, tasks

    recipe = load(str(recipe_file))
    assert [methods.get(name, recipe).name for name in recipe.methods] == list(recipe.methods)
    assert {entry.task for entry in recipe.problems.tasks} <= set(tasks.names()) | {"jsonl"}


def test_the_shipped_prompt_of_teachers_is_the_papers() -> None:
    from cirf.endpoints.requests import SHIPPED

    assert (SHIPPED / "rationale.txt").read_text() == "Solve the following problem step by step:{question}"


@pytest.mark.parametrize("name", sorted(BACKBONES))
def test_the_teachers_are_the_papers(name: str) -> None:
    models = [endpoint.model for endpoint in load(name).rationales.teacher.endpoints]
    assert models == ["google/gemma-3-27b-it", "meta-llama/Llama-3.1-70B-Instruct"]
