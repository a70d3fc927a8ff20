"""Which runs are put beside each other: what counts once, what sets groups apart, and what no name may hide."""

from __future__ import annotations

import random
from typing import Any

import made
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cirf.analysis.analysis import Found, Lacking, get
from cirf.analysis.groups import distinct_labels, file_name, grouped, model_names, put
from cirf.analysis.source import Source
from cirf.errors import CirfError

PLAIN = {"cirf_full": {"sums": 0.5, "coins": 0.6}}
MORE = PLAIN | {"cirf_bare": {"sums": 0.4, "coins": 0.4}}


def make(name: str, *runs: Any, paper: bool = False) -> Found:
    return get(name).make(Source(runs, paper))


def rows(found: Found, table: str) -> list[Any]:
    return list(next(one for one in found.tables if one.name == table).rows)


def codes(count: int, size: int = 4, seed: int = 0) -> dict[str, list[list[int]]]:
    draw = random.Random(seed)
    return {task: [[draw.randrange(size) for _ in range(3)] for _ in range(count)] for task in made.TASKS}


def with_tasks(run: Any, path: str) -> Any:
    run.data["recipe"]["problems"] = {"tasks": [{"task": "jsonl", "name": "sums", "train_file": path}]}
    return run


def test_groups_of_other_long_values_are_not_mixed(tmp_path):
    runs = [
        with_tasks(
            made.run(tmp_path / f"{name}{size}", PLAIN, codebook__size=size), f"/a/very/long/path/of/problems/{name}.jsonl"
        )
        for name in ("one", "two")
        for size in (4, 8)
    ]
    found = make("codebook_size", *runs)
    labels = {row["settings"] for row in rows(found, "codebook_size")}
    assert labels == {"tasks sums 1", "tasks sums 2"}
    assert len(found.pictures) == 4


def test_backbones_of_one_last_part_are_not_mixed(tmp_path):
    runs = [
        made.run(tmp_path / f"{folder}{size}", PLAIN, backbone__model=f"/{folder}/model", codebook__size=size)
        for folder in "ab"
        for size in (4, 8)
    ]
    found = make("codebook_size", *runs)
    assert {row["settings"] for row in rows(found, "codebook_size")} == {"model 1", "model 2"} and len(found.pictures) == 4
    names = model_names(runs)
    assert len(set(names.values())) == 2 and all(name.startswith("model ") for name in names.values())
    assert model_names(runs[:2]) == {"/a/model": "model"}


def test_a_group_that_lacks_a_key_is_not_base(tmp_path):
    assert distinct_labels([{"a": "1", "b": "1"}, {"a": "1", "b": "1"}, {"a": "2"}, {"a": "1"}]) == [
        "base 1",
        "base 2",
        "2, no b",
        "no b",
    ]


@given(
    st.lists(
        st.dictionaries(st.sampled_from("abc"), st.text(max_size=3)), max_size=6, unique_by=lambda one: str(sorted(one.items()))
    )
)
def test_what_differs_has_labels_and_files_that_differ(several):
    labels = distinct_labels(several, lambda key, value: value[:1])
    assert len({file_name(label) for label in labels}) == len(several)


@given(st.text(max_size=300))
def test_names_of_files_are_short(text):
    name = file_name(text)
    assert len(name.encode()) <= 60 and not set(name) & set("/\\\0\n")


def test_long_names_of_files_still_differ():
    assert file_name("x" * 80 + "a") != file_name("x" * 80 + "b")


def test_no_picture_takes_the_place_of_another():
    pictures = {"accuracy": "<svg>"}
    with pytest.raises(CirfError, match=r"accuracy\.svg"):
        put(pictures, "accuracy", "<svg>")


def test_runs_of_other_methods_alone_count_once(tmp_path):
    same = [made.run(tmp_path / name, shares, codes=codes(24)) for name, shares in (("few", PLAIN), ("more", MORE))]
    larger = made.run(tmp_path / "larger", PLAIN, codes=codes(24, 8), codebook__size=8)
    (group,) = grouped([*same, larger], ("codebook.size",))
    assert [run.name for run in group.runs] == ["more", "larger"]
    sizes = [(row["size"], row["task"]) for row in rows(make("codebook_size", *same, larger), "codebook_size")]
    assert len(sizes) == len(set(sizes)) == 6


def test_a_second_run_of_the_papers_choice_does_not_keep_from_testing(tmp_path):
    same = [made.run(tmp_path / name, shares) for name, shares in (("few", PLAIN), ("more", MORE))]
    raw = made.run(tmp_path / "raw", {"cirf_full": {"sums": 0.1, "coins": 0.1}}, draw=3, codebook__representation="raw")
    found = make("representation", *same, raw)
    assert [row["reading"] for row in rows(found, "representation")] == ["the reference", "below"]


def test_pruning_matters_to_pruned_methods_alone(tmp_path):
    def pair(name: str, *methods: str) -> list[Any]:
        shares = {method: {"sums": 0.5, "coins": 0.5} for method in methods}
        return [made.run(tmp_path / f"{name}{size}", shares, codebook__size=size, compression__fast=size / 10) for size in (4, 8)]

    with pytest.raises(Lacking, match=r"differ in codebook\.size alone"):
        make("codebook_size", *pair("pruned", "cirf_fast"))
    assert len(rows(make("codebook_size", *pair("plain", "cirf_fast", "cirf_full")), "codebook_size")) == 6
    other = made.run(tmp_path / "raw", {"cirf_fast": {"sums": 0.5}}, codebook__representation="raw", compression__fast=0.9)
    with pytest.raises(Lacking):
        make("representation", made.run(tmp_path / "chosen", {"cirf_fast": {"sums": 0.5}}), other)


def test_tasks_called_like_columns_take_no_columns_place(tmp_path):
    shares = {"mean": 0.9, "p": 0.2, "source": 0.5, "difference": 0.4}
    chosen = made.run(tmp_path / "chosen", {"cirf_full": shares})
    raw = made.run(tmp_path / "raw", {"cirf_full": shares}, draw=2, codebook__representation="raw")
    found = make("representation", chosen, raw)
    (table,) = found.tables
    assert len(table.keys()) == len(set(table.keys()))
    row = rows(found, "representation")[0]
    tasks = chosen.methods["cirf_full"]["tasks"]
    assert row["source"] == "chosen" and row["mean"] == pytest.approx(sum(one["accuracy"] for one in tasks.values()) / 4)
    assert {task: row[f"task:{task}"] for task in shares} == {task: pytest.approx(one["accuracy"]) for task, one in tasks.items()}
