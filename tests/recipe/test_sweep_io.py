"""Sweeps read: every point is a checked recipe, and a mistake names file, part, point and the nearest valid key."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import each_row

from cirf.errors import CirfError
from cirf.recipe import load as recipe_io
from cirf.recipe import sweep as sweep_io
from cirf.recipe import yaml as yaml_text
from cirf.recipe.sweep import overlap

BASE = "name: small\nrecipe:\n  name: base\n  problems:\n    tasks:\n      - task: gsm8k\n      - task: svamp\n"
ONE = BASE + "parts:\n  - name: one\n"  # `one` is on line 9


def points(text: str, *sets: str) -> list[sweep_io.Point]:
    return sweep_io.parse(text, "my.yaml").points(sets)


def mistake(text: str, *sets: str) -> str:
    with pytest.raises(CirfError) as caught:
        points(text, *sets)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_points_are_what_is_set_then_each_point_then_the_product_of_the_grid() -> None:
    found = points(
        BASE
        + """
set: {seed: 5, codebook.size: 16, finetune.epochs: 3}
parts:
  - name: one
    set: {codebook.size: 32}
    points: [{codebook.hidden: 8}, {codebook.hidden: 9, finetune.epochs: 2}]
    grid: {seed: [1, 2], codebook.representation: [raw, random]}
    until: codebook
  - name: two
"""
    )
    assert [point.name for point in found[:3]] == [
        "codebook.hidden=8,seed=1,codebook.representation=raw",
        "codebook.hidden=8,seed=1,codebook.representation=random",
        "codebook.hidden=8,seed=2,codebook.representation=raw",
    ]
    summary = [
        (point.recipe.codebook.hidden, point.recipe.finetune.epochs, point.recipe.seed, point.recipe.codebook.representation)
        for point in found[:8]
    ]
    assert summary == [(*first, *rest) for first in ((8, 3), (9, 2)) for rest in itertools.product((1, 2), ("raw", "random"))]
    assert {point.recipe.codebook.size for point in found[:8]} == {32} and {point.until for point in found[:8]} == {"codebook"}
    assert found[0].settings == {
        "finetune.epochs": 3, "codebook.size": 32, "codebook.hidden": 8, "seed": 1, "codebook.representation": "raw",
    }  # fmt: skip
    assert found[0].varied == ("codebook.hidden", "seed", "codebook.representation")
    last = found[8]
    assert (last.part, last.name, last.until, last.varied) == ("two", "base", None, ())
    assert (last.recipe.seed, last.recipe.codebook.size) == (5, 16)
    assert len(found) == 9


def test_overrides_go_last_and_are_reported_among_the_settings() -> None:
    text = ONE + "    set: {codebook.size: 8}\n    grid: {seed: [1, 2]}\n"
    found = points(text, "codebook.size=9", "methods=[cot]")
    assert [(point.recipe.codebook.size, point.recipe.methods, point.recipe.seed) for point in found] == [
        (9, ("cot",), 1), (9, ("cot",), 2)
    ]  # fmt: skip
    assert found[0].settings == {"codebook.size": 9, "seed": 1, "methods": ["cot"]}
    assert points(text)[0].recipe.codebook.size == 8  # and the sweep itself is as it was


def test_one_point_is_what_a_recipe_with_these_overrides_is() -> None:
    found = points(ONE + "    points: [{problems.tasks.1.train: 30, variants: {p: {method: pause}}, methods: [p, cot]}]\n")[0]
    text = "name: base\nproblems:\n  tasks:\n    - task: gsm8k\n    - task: svamp\n"
    sets = ("problems.tasks.1.train=30", "variants={p: {method: pause}}", "methods=[p, cot]")
    assert found.recipe == recipe_io.parse(text, sets=sets)


@each_row(
    ("text", "message"),
    [
        (
            ONE + "    grid:\n      codebook.sise: [3]",
            "my.yaml, part one, point codebook.sise=3: codebook.sise: no such key; did you mean codebook.size?",
        ),
        (
            ONE + "    grid:\n      codebook.size: [3, 0]",
            'my.yaml, part one, point codebook.size=0: codebook.size: expected a whole number of at least 1 or "auto", found 0',
        ),
        (
            ONE + "    points:\n      - seed: 1\n      - {seed: 2,\n         finetune.lr: 1}",
            "my.yaml, part one, point seed=2,finetune.lr=1: finetune.lr: no such key;"
            " did you mean finetune.learning_rate or finetune.learning_rates?",
        ),
        (
            ONE + "    set: {seed: one}",
            'my.yaml, part one, point base: seed: expected a whole number from 0 to 4294967295, found "one"',
        ),
        (
            BASE + "  seeds: 1\nparts: [{name: one}]",
            "my.yaml, part one, point base: seeds: no such key; did you mean seed?",
        ),
        (
            ONE + "    set: {problems.tasks.2.train: 5}",
            "my.yaml, part one, point base: problems.tasks.2.train: problems.tasks is a list;"
            " expected a position from 0 to 1, found 2",
        ),
        (
            ONE + "    points: [{seed.first: 3}]",
            "my.yaml, part one, point seed.first=3: seed: expected a whole number from 0 to 4294967295, found a group of keys",
        ),
        (
            ONE + "    grid: {codebook: {size: [3]}}",
            "my.yaml, line 9: grid.codebook: expected a list of values, found a group of keys;"
            " write the whole key, such as codebook.size",
        ),
        (ONE + "    grid: {codebook.size: 3}", "my.yaml, line 9: grid.codebook.size: expected a list of values, found 3"),
        (ONE + "    grid: {seed: []}", "my.yaml, line 9: grid.seed: expected a list of values, found an empty list"),
        (ONE + "    grid: {codebook.: [1]}", "my.yaml, line 10: 'codebook.' is not a key; expected one such as codebook.size"),
        (
            ONE + "    points: []",
            "my.yaml, line 10: parts.0.points: expected a list of mappings of NAME to any value, at least one, found an",
        ),
        (
            ONE + "    points: [{problems.tasks: [{task: svamp}]}]\n    grid: {problems.tasks.0.train: [3]}",
            "my.yaml, line 9: part one: the points and the grid set problems.tasks.0.train twice; give it in one place",
        ),
        (ONE + "    points: [{seed: 1}, {seed: 1}]", "my.yaml, part one, point seed=1: occurs twice in this part; name it once"),
        (ONE + "    gird: {seed: [1]}", "my.yaml, line 10: parts.0.gird: no such key; did you mean parts.0.grid?"),
        (ONE + "  - name: one", "my.yaml: parts: one occurs twice; give each its own name"),
        (ONE + "  - name: a/b", "my.yaml, line 10: parts.1.name: expected text that matches"),
        (ONE + "  - set: {}", "my.yaml, line 10: parts.1.name: missing; expected text"),
        ("name: x\nrecipe: quickstart", "my.yaml: parts: missing; expected a list of groups of keys, at least one: The runs."),
        (
            "name: x\nrecipe: quikstart\nparts: [{name: one}]",
            "my.yaml: recipe: quikstart: neither a file nor a recipe that comes with cirf; did you mean quickstart?",
        ),
        (
            "name: x\nrecipe: [1]\nparts: [{name: one}]",
            "my.yaml, line 2: recipe: expected text or a mapping of NAME to any value",
        ),
        ("name: x\nproblems: {}", "my.yaml: a recipe, not a sweep (it has no parts); `cirf run my.yaml` runs it"),
        ("- 1", "my.yaml: expected a sweep, keys such as name:, recipe: and parts:, found a list"),
        ("name: [", "my.yaml, line 1: not valid YAML"),
        (ONE + "    name: two", "my.yaml, line 10: not valid YAML: the key name occurs twice, first on line 9"),
    ],
)
def test_a_mistake_names_file_part_point_and_key(text: str, message: str) -> None:
    assert mistake(text).startswith(message)


def test_a_mistake_in_an_override_names_it(tmp_path: Path) -> None:
    assert mistake(ONE, "codebook.sise=3") == "--set codebook.sise: no such key; did you mean codebook.size?"
    varies = ONE + "    grid: {codebook.size: [3]}\n"
    says = "--set codebook: part one varies codebook.size from run to run; change it in my.yaml"
    assert mistake(varies, "codebook={size: 3}") == says
    assert len(points(varies, "codebook.hidden=3")) == 1


def test_a_recipe_and_a_sweep_are_not_taken_for_each_other(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(ONE)
    with pytest.raises(CirfError, match=rf"{path}: a sweep, several runs of one recipe; `cirf sweep {path}` runs it"):
        recipe_io.load(str(path))


def test_a_recipe_is_looked_for_next_to_the_sweep_and_must_be_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = tmp_path / "deep" / "sweep.yaml"
    sweep.parent.mkdir()
    sweep.write_text("name: x\nrecipe: mine.yaml\nparts: [{name: one, set: {seed: 3}}]\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CirfError, match=rf"^{sweep}: recipe: mine.yaml: no such file; the recipes that come with cirf are"):
        sweep_io.load(str(sweep))
    text = "name: {}\nproblems: {{tasks: [{{task: gsm8k}}]}}\n"
    (tmp_path / "mine.yaml").write_text(text.format("here"))
    assert sweep_io.load(str(sweep)).points()[0].recipe.name == "here"
    (sweep.parent / "mine.yaml").write_text(text.format("beside"))
    found = sweep_io.load(str(sweep)).points()[0].recipe
    assert (found.name, found.seed) == ("beside", 3)
    (sweep.parent / "mine.yaml").write_text("name: bad\nproblem: 1\n")
    with pytest.raises(CirfError, match=r"sweep.yaml: recipe: .*deep/mine.yaml, line 2: problem: no such key; did you mean"):
        sweep_io.load(str(sweep))


def test_what_is_written_as_resolved_reads_back_and_needs_no_other_file(tmp_path: Path) -> None:
    text = (
        "name: x\nrecipe: quickstart\nset: {finetune.epochs: 2}\nparts:\n  - name: one\n    grid: {seed: [1, 2]}\n  - name: two\n"
    )
    loaded = sweep_io.parse(text)
    again = sweep_io.parse(loaded.resolved(["evaluate.latency_questions=0", "finetune.epochs=3"]))
    assert isinstance(again.sweep.recipe, dict)
    wanted = loaded.points(["evaluate.latency_questions=0", "finetune.epochs=3"])
    assert [(point.part, point.name, point.recipe) for point in again.points()] == [
        (point.part, point.name, point.recipe) for point in wanted
    ]


# Names of folders

VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=200)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=4,
)
SETTINGS = st.dictionaries(st.from_regex(r"[a-z_]{1,8}(\.[a-z_*0-9]{1,8}){0,3}", fullmatch=True), VALUES, max_size=4)


@given(SETTINGS, SETTINGS)
def test_a_points_name_is_safe_short_and_its_own(one: dict[str, Any], other: dict[str, Any]) -> None:
    name = sweep_io.point_name(one)
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.+=,~-]*", name) and len(name) <= 120
    assert (name == sweep_io.point_name(other)) == (yaml_text.inline(one) == yaml_text.inline(other))


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"codebook.size": 32, "codebook.representation": "random"}, "codebook.size=32,codebook.representation=random"),
        ({"finetune.learning_rate": 2e-5, "seed": 1}, "finetune.learning_rate=2.0e-05,seed=1"),
        ({"backbone.revision": None, "problems.validation": -0.5}, "backbone.revision=null,problems.validation=-0.5"),
        ({}, "base"),
    ],
)
def test_plain_values_are_named_as_they_are_written(settings: dict[str, Any], name: str) -> None:
    assert sweep_io.point_name(settings) == name


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ("{name: one, points: [{codebook: {size: 8}}]}", "codebook: a whole section would replace the recipe's values there"),
        ("{name: one, set: {codebook.sinkhorn: {iterations: 8}}}", "name its keys, such as codebook.sinkhorn.iterations"),
        ("{name: sweep.json}", "sweep.json is a file name of the sweep itself"),
        ("{name: analysis}", "analysis is a file name of the sweep itself"),
    ],
)
def test_what_would_lose_or_hide_something_is_refused(tmp_path: Path, part: str, message: str) -> None:
    path = tmp_path / "my.yaml"
    path.write_text(f"name: my\nrecipe: quickstart\nparts: [{part}]\n")
    with pytest.raises(CirfError, match=re.escape(message)):
        sweep_io.load(str(path)).points()


def test_awkward_values_are_named_readably() -> None:
    name = sweep_io.point_name({"backbone.model": "bundled:smollm2-135m-instruct", "methods": ["cot", "direct"]})
    assert re.fullmatch(r"backbone.model=bundled-smollm2-135m-instruct,methods=cot,direct~[0-9a-f]{8}", name)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("codebook.size", "codebook.size", True),
        ("codebook", "codebook.size", True),
        ("codebook.size", "codebook.sizes", False),
        ("a.b", "a.c", False),
    ],
)
def test_keys_overlap_where_one_holds_the_other(one: str, other: str, same: bool) -> None:
    assert overlap(one, other) == overlap(other, one) == same


# Every shipped sweep


@pytest.fixture(params=sorted(sweep_io.shipped()))
def sweep_file(request: pytest.FixtureRequest) -> Path:
    return sweep_io.shipped()[request.param]


def test_a_shipped_sweep_parses_every_point_and_bears_the_name_of_its_file(sweep_file: Path) -> None:
    loaded = sweep_io.load(sweep_file.stem)
    assert loaded.sweep.name == sweep_file.stem
    found = loaded.points()
    assert len(found) >= 2 and len({(point.part, point.name) for point in found}) == len(found)


def test_a_shipped_sweep_written_in_full_is_the_same(sweep_file: Path) -> None:
    sweep = sweep_io.load(str(sweep_file)).sweep
    assert sweep_io.parse(recipe_io.dump(sweep)).sweep == sweep


def test_sweeps_are_not_among_the_recipes() -> None:
    assert "quickstart-codebooks" in sweep_io.shipped()
    assert not set(sweep_io.shipped()) & set(recipe_io.shipped())
