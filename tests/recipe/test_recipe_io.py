"""Recipes read and written: errors that name file, key, expectation and find; nothing lost on the way to YAML and back."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import each_row

from cirf.commands.run import absolute
from cirf.endpoints.requests import read_template
from cirf.errors import CirfError
from cirf.recipe.keys import rows as schema_rows
from cirf.recipe.load import dump, load, parse, shipped
from cirf.recipe.schema import Codebook, Finetune, Override, Problems, Recipe, TaskEntry
from cirf.store.jsonl import read_rows

BASE = "name: small\nproblems:\n  tasks:\n    - task: gsm8k\n    - task: svamp\n"


def mistake(text: str, *sets: str) -> str:
    with pytest.raises(CirfError) as caught:
        parse(text, "my.yaml", sets)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_recipe_reads_with_defaults_where_it_is_silent() -> None:
    recipe = parse(BASE + "finetune:\n  learning_rate: 2e-5\n  epochs: 3\ncodebook:\n  sizes: [32, 64]\n")
    assert recipe.finetune.learning_rate == 2e-5
    assert recipe.codebook.sizes == (32, 64)
    assert recipe.seed == 1


@each_row(
    ("lines", "message"),
    [
        (
            "finetune:\n  learning_rat: 1e-4",
            "my.yaml, line 7: finetune.learning_rat: no such key; did you mean finetune.learning_rate?",
        ),
        (
            "finetune:\n  lr: 1e-4",
            "my.yaml, line 7: finetune.lr: no such key; did you mean finetune.learning_rate or finetune.learning_rates?",
        ),
        ("finetun:\n  epochs: 1", "my.yaml, line 6: finetun: no such key; did you mean finetune?"),
        ("gamma: [0]", "my.yaml, line 6: gamma: no such key; did you mean compression.gamma?"),
        ("lora:\n  rank: 4", "my.yaml, line 6: lora: no such key; did you mean finetune.lora or reward.lora?"),
        (
            "learning_rate: 1e-4",
            "my.yaml, line 6: learning_rate: no such key;"
            " did you mean codebook.learning_rate or finetune.learning_rate or reward.learning_rate?",
        ),
        ("finetune:\n  epochs: two", 'my.yaml, line 7: finetune.epochs: expected a number above 0 or "auto", found "two"'),
        ("finetune:\n  epochs: -1", 'my.yaml, line 7: finetune.epochs: expected a number above 0 or "auto", found -1'),
        ("finetune:\n  bf16: yes", 'my.yaml, line 7: finetune.bf16: expected true or false, found "yes"'),
        ("finetune:\n  max_grad_norm:", "my.yaml, line 7: finetune.max_grad_norm: expected a number above 0, found null"),
        ("finetune: 5", "my.yaml, line 6: finetune: expected a group of keys, found 5"),
        ("seed: true", "my.yaml, line 6: seed: expected a whole number from 0 to 4294967295, found true"),
        ("seed: 1.5", "my.yaml, line 6: seed: expected a whole number from 0 to 4294967295, found 1.5"),
        ('seed: "1"', 'my.yaml, line 6: seed: expected a whole number from 0 to 4294967295, found "1"'),
        (
            "codebook: {size: 1000000000}",
            "my.yaml, line 6: codebook.size: 1,000,000,000 functional tokens are too many; use at most 65,536",
        ),
        (
            "codebook: {sizes: [64, 70000]}",
            "my.yaml, line 6: codebook.sizes: 70,000 functional tokens are too many; use at most 65,536",
        ),
        (
            "codebook: {vq_epochs: 1000000000000}",
            "my.yaml, line 6: codebook.vq_epochs: expected a whole number from 0 to 100000, found 1000000000000",
        ),
        (
            "codebook: {sinkhorn: {temperature: 1.0e+300}}",
            "my.yaml, line 6: codebook.sinkhorn.temperature: 1e+300 makes all codes alike; use at most 1e+06",
        ),
        (
            "evaluate: {trace_cap: 60}",
            "my.yaml, line 6: evaluate.trace_cap: no such key; did you mean evaluate.max_trace_tokens?",
        ),
        ("evaluate: {top_p: 1.5}", "my.yaml, line 6: evaluate.top_p: expected a number from 0 to 1, found 1.5"),
        (
            "vocabulary: {delimiters: thinks}",
            'my.yaml, line 6: vocabulary.delimiters: expected one of cirf, think, found "thinks"',
        ),
        (
            "codebook: {dimension: wide}",
            'my.yaml, line 6: codebook.dimension: expected "backbone" or a whole number of at least 1, found "wide"',
        ),
        (
            "codebook: {sizes: [32, many]}",
            'my.yaml, line 6: codebook.sizes.1: expected an item of a list of whole numbers of at least 1, found "many"',
        ),
        ("methods: []", "my.yaml, line 6: methods: expected a list of text, at least one, found an empty list"),
        (
            "finetune: {overrides: {direct_sft: {learning_rat: 1}}}",
            "my.yaml, line 6: finetune.overrides.direct_sft.learning_rat: no such key;"
            " did you mean finetune.overrides.direct_sft.learning_rate?",
        ),
    ],
)
def test_a_mistake_names_file_key_expectation_and_find(lines: str, message: str) -> None:
    assert mistake(BASE + lines) == message


def test_all_weights_are_trained_with_a_lower_learning_rate_unless_it_is_set() -> None:
    assert Finetune(adaptation="full").learning_rate == 2e-5 < Finetune().learning_rate
    assert Finetune(adaptation="full", learning_rate=4e-4).learning_rate == 4e-4


def test_where_no_key_is_near_the_keys_of_the_section_are_listed() -> None:
    found = mistake(BASE + "results:\n  xyzzy: 1\n")
    keys = "by, values, units, working, last, dropout, file, max_characters, writer"
    assert found == f"my.yaml, line 7: results.xyzzy: no such key; the keys of results are {keys}"


def test_of_several_mistakes_the_misspelt_key_comes_first_and_the_rest_is_counted() -> None:
    found = mistake("name: small\nproblem:\n  tasks: [{task: gsm8k}]\nseed: x\n")
    assert found == "my.yaml, line 2: problem: no such key; did you mean problems? (and 2 more)"


def test_what_is_missing_is_said_with_its_meaning() -> None:
    assert mistake("problems: {tasks: [{task: gsm8k}]}").startswith("my.yaml: name: missing; expected text that matches")
    assert "problems.tasks.0.task: missing; expected text: A task's name" in mistake("name: a\nproblems: {tasks: [{train: 5}]}")


def test_a_saved_codebook_has_one_size() -> None:
    summary = "my.yaml: codebook.sizes: a saved codebook has one size; leave sizes empty where codebook.reuse is given"
    assert mistake(BASE + "codebook: {reuse: saved, size: 8, sizes: [8, 16]}") == summary


def test_a_task_that_occurs_twice_needs_a_name() -> None:
    assert mistake("name: a\nproblems: {tasks: [{task: b}, {task: b}]}") == (
        "my.yaml: problems.tasks: b occurs twice; give each its own name"
    )


def test_a_task_may_not_be_called_like_the_end_of_anothers_interval() -> None:
    assert mistake("name: a\nproblems: {tasks: [{task: b_low}, {task: b}]}") == (
        "my.yaml: problems.tasks: b_low is what tables call an end of an interval; give it another name"
    )
    parse("name: a\nproblems: {tasks: [{task: b_low}, {task: c}]}", "my.yaml")


@pytest.mark.parametrize(
    "url", ["https://ann:sesame@teachers/v1", "http://sesame@teachers:8000/v1", "https://ann:sesame@teachers?x"]
)
def test_an_address_with_a_password_is_refused_and_not_repeated(url: str) -> None:
    """What a recipe holds is kept with the run, and published with it."""
    said = mistake(BASE, f"rationales.teacher.endpoints=[{{url: '{url}', model: m}}]")
    assert "password" in said and "api_key_env" in said and "sesame" not in said
    parse(BASE, "my.yaml", ["rationales.teacher.endpoints=[{url: 'https://teachers/v1/@ann', model: m}]"])


@pytest.mark.parametrize("url", ["https://teachers/v1?api_key=sesame", "https://teachers/v1#sesame", "https://teachers?sesame"])
def test_an_address_with_a_query_is_refused_and_not_repeated(url: str) -> None:
    said = mistake(BASE, f"rationales.teacher.endpoints=[{{url: '{url}', model: m}}]")
    assert "query" in said and "api_key_env" in said and "sesame" not in said


def test_broken_yaml_is_said_with_file_and_line() -> None:
    assert mistake("name: a\nname: b\n") == "my.yaml, line 2: not valid YAML: the key name occurs twice, first on line 1"
    assert mistake("name: [a\n").startswith("my.yaml, line 2: not valid YAML:")
    assert "empty" in mistake("# nothing\n")
    assert "found a list" in mistake("- a\n")


def test_a_section_whose_keys_are_all_commented_out_means_its_defaults() -> None:
    text = BASE + "finetune:\n  # epochs: 1\n  lora:\ncodebook:\n"
    assert parse(text) == parse(BASE)


# --set


def test_overrides_reach_keys_lists_and_sections_not_written() -> None:
    recipe = parse(
        BASE,
        sets=["finetune.learning_rate=3e-4", "problems.tasks.1.train=50", "codebook.sizes=[32, 64]", "finetune.lora.rank=8"],
    )
    assert recipe.finetune.learning_rate == 3e-4
    assert [entry.train for entry in recipe.problems.tasks] == [None, 50]
    assert recipe.codebook.sizes == (32, 64)
    assert recipe.finetune.lora.rank == 8


def test_a_later_override_wins_and_text_may_hold_an_equals_sign() -> None:
    assert parse(BASE, sets=["seed=2", "seed=3"]).seed == 3
    assert parse(BASE, sets=['notes="a=b: c"']).notes == "a=b: c"


@each_row(
    ("item", "message"),
    [
        ("seed", "--set seed: expected KEY=VALUE, such as finetune.epochs=1"),
        ("=1", "--set =1: expected KEY=VALUE, such as finetune.epochs=1"),
        ("finetune..lr=1", "--set finetune..lr=1: expected KEY=VALUE, such as finetune.epochs=1"),
        ("finetune.epochs=two", '--set finetune.epochs: expected a number above 0 or "auto", found "two"'),
        ("finetune.epoch=2", "--set finetune.epoch: no such key; did you mean finetune.epochs?"),
        ("finetun.epochs=2", "--set finetun.epochs: finetun: no such key; did you mean finetune?"),
        (
            "problems.tasks.7.train=5",
            "--set problems.tasks.7.train: problems.tasks is a list; expected a position from 0 to 1, found 7",
        ),
        (
            "problems.tasks.x.train=5",
            "--set problems.tasks.x.train: problems.tasks is a list; expected a position from 0 to 1, found x",
        ),
        ("problems.tasks.1.trian=5", "--set problems.tasks.1.trian: no such key; did you mean problems.tasks.1.train?"),
        ("name.x=5", '--set name.x: name holds "small", which has no keys to set'),
        ("seed=[1", '--set seed: the value "[1" is not valid YAML: expected'),
    ],
)
def test_a_mistaken_override_is_named_as_such(item: str, message: str) -> None:
    assert mistake(BASE, item).startswith(message)


def test_the_line_of_the_file_is_named_when_the_override_is_not_at_fault() -> None:
    assert mistake(BASE + "finetune:\n  epochs: two\n", "finetune.max_grad_norm=2") == (
        'my.yaml, line 7: finetune.epochs: expected a number above 0 or "auto", found "two"'
    )


# Files and names


def test_load_takes_a_path_or_a_shipped_name(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(BASE)
    assert load(str(path)) == parse(BASE)
    assert load(str(path), ["seed=9"]).seed == 9
    for name, where in shipped().items():
        assert load(name) == load(str(where))


def test_what_cannot_be_found_or_read_is_said_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00\x00")
    for name, words in [
        (str(tmp_path / "none.yaml"), "no such file; the recipes that come with cirf are"),
        (str(tmp_path), "a folder, not a recipe"),
        (str(tmp_path / "binary.yaml"), "not UTF-8 text"),
        ("paper-qwen3", "neither a file nor a recipe that comes with cirf; did you mean paper-qwen3-8b?"),
        ("xyzzy", "there are "),
    ]:
        with pytest.raises(CirfError) as caught:
            load(name)
        assert str(caught.value).startswith(f"{name}: ")
        assert words in str(caught.value)


@pytest.mark.parametrize(("path", "said"), [("~nobody-here/a", "write the whole path"), ("a\0b", "NUL")])
def test_a_path_that_can_be_none_is_one_sentence(path: str, said: str) -> None:
    with pytest.raises(CirfError, match=said):
        load(path)
    written = json.dumps(path)
    for key in ("problems.data", "embeddings.model", "results.file", "codebook.reuse", "rationales.teacher.prompt"):
        recipe = parse(BASE, "my.yaml", [f"{key}={written}"])
        if key != "rationales.teacher.prompt":
            with pytest.raises(CirfError, match=said):
                absolute(recipe)
    with pytest.raises(CirfError, match=said):
        read_template(path, "rationale", ("question",), "rationales.teacher.prompt")
    for task in ({"task": "jsonl", "train_file": path}, {"task": path + ".py"}):
        with pytest.raises(CirfError, match=said):
            absolute(parse(BASE, "my.yaml", [f"problems.tasks=[{json.dumps(task)}]"]))
    with pytest.raises(CirfError, match=r"NUL|no such file"):
        read_rows(Path(path))


@each_row("name", ["../x", "..", ".", "a/b", "/a", "~", "a\\b"])
def test_no_name_leads_out_of_its_folder(name: str) -> None:
    written = json.dumps(name)
    assert "name: expected text that matches" in mistake(BASE, f"name={written}")
    assert "name: expected text" in mistake(BASE, f"problems.tasks=[{{task: gsm8k, name: {written}}}]")
    assert "cannot name a folder" in mistake(BASE, f"variants={{{written}: {{method: cot}}}}")
    assert "cannot name a folder" in mistake(BASE, f"methods=[{written}]")


# Writing

ENTRIES = st.builds(
    TaskEntry,
    task=st.text("abc", min_size=1),
    name=st.none(),
    train=st.none() | st.integers(1, 10**6),
    options=st.dictionaries(st.text(max_size=4), st.booleans() | st.integers() | st.text(max_size=4), max_size=3),
)
RECIPES = st.builds(
    Recipe,
    name=st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]*", fullmatch=True),
    notes=st.text(st.characters(exclude_categories=["Cs"])),
    problems=st.builds(Problems, tasks=st.lists(ENTRIES, min_size=1, max_size=3, unique_by=lambda entry: entry.task).map(tuple)),
    codebook=st.builds(
        Codebook, dimension=st.just("backbone") | st.integers(1), sizes=st.lists(st.integers(1, 65_536), max_size=40).map(tuple)
    ),
    finetune=st.builds(
        Finetune,
        learning_rate=st.floats(1e-9, 1),
        report_to=st.lists(st.text(max_size=5), max_size=2).map(tuple),
        overrides=st.dictionaries(
            st.text(min_size=1, max_size=5), st.builds(Override, learning_rate=st.none() | st.floats(1e-9, 1)), max_size=3
        ),
    ),
)


@settings(max_examples=10, deadline=None)
@given(RECIPES)
def test_a_recipe_written_reads_back_the_same(recipe: Recipe) -> None:
    again = parse(dump(recipe))
    assert again == recipe and dump(again) == dump(recipe)
    assert yaml.safe_load(dump(recipe))["notes"] == recipe.notes  # not only ours reads it


def test_dump_holds_every_key_and_no_comment() -> None:
    text = dump(parse(BASE))
    assert not [line for line in text.splitlines() if "#" in line]
    leaves = {row.leaf for row in schema_rows() if "*" not in row.key}
    assert leaves <= {line.strip("- ").partition(":")[0] for line in text.splitlines()}


def test_a_default_and_the_same_value_written_resolve_to_the_same_text() -> None:
    assert dump(parse(BASE)) == dump(parse(BASE + "finetune:\n  epochs: auto\n  max_grad_norm: 1\n"))


def test_the_schema_lists_every_key_with_a_meaning() -> None:
    rows = {row.key: row for row in schema_rows()}
    assert rows["codebook.sinkhorn.temperature"] == (
        "codebook.sinkhorn.temperature",
        "a number of at least 1e-06",
        "0.05",
        "λ: smaller is sharper.",
        "",
        "eq. 6; Table hyper-parameters, Step 3",
    )
    assert rows["problems.tasks.*.train"].type == "a whole number of at least 1 or null"
    assert rows["finetune.overrides.*.epochs"].default == "null"
    assert rows["name"].default == ""
    assert all(row.meaning and row.type for row in rows.values())
    assert len(rows) == len(schema_rows())


def test_reading_recipes_loads_nothing_heavy() -> None:
    code = "import sys, cirf.recipe.load; print(sorted({'torch', 'numpy', 'transformers', 'rich'} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


def test_thousands_of_unknown_keys_are_reported_at_once(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text("\n".join(f"key{number}: 1" for number in range(20_000)))
    before = time.process_time()
    with pytest.raises(CirfError, match=r"line 1: key0: no such key.*more"):
        load(str(path))
    assert time.process_time() - before < 10
