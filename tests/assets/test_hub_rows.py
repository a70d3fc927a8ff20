"""Data sets of the hub as a user's own rows: names, rows at a commit, what a run records, and errors that say what to write."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import datasets
import pytest
from loopback import Hub

from cirf.assets import fetch, hub_rows
from cirf.assets.hub_rows import hub_file, pinned
from cirf.commands.check import check, init
from cirf.commands.evaluate import task_entry
from cirf.commands.run import absolute, read_before
from cirf.errors import CirfError
from cirf.fitting.fit import name_of
from cirf.recipe.load import dump, parse
from cirf.recipe.schema import Recipe
from cirf.report.model_cards import sources
from cirf.stages.lineage import problem_files
from cirf.store.hub_names import HubName, suggestion
from cirf.store.hub_names import parse as parse_name
from cirf.store.jsonl import read_rows

OLD, NEW = "a" * 40, "b" * 40
ROWS = [{"exercise": f"What is {n} + 1?", "answer": str(n + 1), "rationale": f"{n} + 1 = {n + 1}"} for n in range(60)]


def lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """A data set ``ann/sums``; this process asks for it as a fresh one would."""
    made = Hub("ann/sums", {"train.jsonl": lines(ROWS), "test.jsonl": lines(ROWS[:7])})
    monkeypatch.setattr(fetch, "ANSWERED", {})
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    for name, value in (made.environment(tmp_path) | {"CIRF_DATA": str(tmp_path / "data")}).items():
        monkeypatch.setenv(name, value)
    hub_rows._commit.cache_clear()
    yield made
    made.stop()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("hub:openai/gsm8k", HubName("openai/gsm8k", None, None)),
        ("hub:openai/gsm8k:main", HubName("openai/gsm8k", None, "main")),
        ("hub:openai/gsm8k:main:test", HubName("openai/gsm8k", None, "main", "test")),
        ("hub:ann/sums-1.2M::test", HubName("ann/sums-1.2M", None, None, "test")),
        ("hub:ann/sums@v1", HubName("ann/sums", "v1", None)),
        ("hub:ann/sums@refs/pr/3:de-en:test[:100]", HubName("ann/sums", "refs/pr/3", "de-en", "test[:100]")),
    ],
)
def test_a_name_has_a_revision_a_configuration_and_a_split(text: str, named: HubName) -> None:
    assert parse_name(text) == parse_name(str(named)) == named


@pytest.mark.parametrize("text", ["hub:", "hub:gsm8k", "hub:a/b/c", "hub:a/b@", "hub:a/..", "hub:a b/c", "hub:a/b@v1@v2"])
def test_another_form_is_refused(text: str) -> None:
    with pytest.raises(CirfError, match=r"expected hub:ORG/NAME"):
        parse_name(text)


def test_a_missing_file_with_the_look_of_an_id_may_be_meant_for_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    assert suggestion("openai/gsm8k") == "; if it is a data set of the hub, write hub:openai/gsm8k"
    assert [suggestion(name) for name in ("mine.jsonl", "data/mine", "./gsm8k", "../gsm8k", "/a/b", "a/b/c")] == [""] * 6
    for ask in (lambda: check("ann/sums", [], None, False), lambda: init("ann/sums", "bundled:smollm2-135m-instruct", None)):
        with pytest.raises(CirfError, match=r"^ann/sums: no such file; if it is a data set of the hub, write hub:ann/sums$"):
            ask()


def test_a_recipe_is_named_after_the_data_set() -> None:
    names = ("hub:ann/sums", "hub:ann/sums-1.2M@v1", "hub:ann/sums@v1:main:test")
    assert [name_of(name) for name in names] == ["sums", "sums-1.2M", "sums-main-test"]


SCRIPT = f"""
from cirf.assets.hub_rows import hub_file
from cirf.commands.check import check
from cirf.errors import CirfError
check("hub:ann/sums", [], None, True, columns="question=exercise")
try:
    hub_file("hub:ann/sums@{OLD}::tset")
except CirfError as error:
    raise SystemExit(str(error))
"""


def test_the_rows_come_once_and_are_kept(hub: Hub, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=300)
    made = json.loads(done.stdout)
    assert (made["source"], made["total"]["usable"]) == (f"hub:ann/sums@{OLD}", 60)
    assert made["notes"][0] == f"read from hub:ann/sums@{OLD}"
    assert re.fullmatch(r'hub:.*Unknown split "tset".*\'test\'.*named as hub:ann/sums:CONFIG:SPLIT\n', done.stderr)
    hub.stop()
    assert read_rows(hub_file(f"hub:ann/sums@{OLD}")) == ROWS


def keep(folder: Path, commit: str, rows: list[dict[str, Any]]) -> None:
    """Rows as if they had been fetched before."""
    path = folder / f"data/hub/ann/sums/{commit}/sums.train.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(lines(rows))


def test_a_fitted_recipe_names_the_commit(hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(tmp_path, OLD, ROWS)
    init("hub:ann/sums", "bundled:smollm2-135m-instruct", None, "question=exercise")
    made = parse(capsys.readouterr().out)
    assert (made.name, made.problems.tasks[0].name, made.problems.tasks[0].train_file) == ("sums", "sums", f"hub:ann/sums@{OLD}")


def recipe(name: str) -> Recipe:
    return parse(json.dumps({"name": "r", "problems": {"tasks": [{"task": "jsonl", "name": "mine", "train_file": name}]}}))


def test_a_run_keeps_the_commit_that_it_began_with(hub: Hub, tmp_path: Path) -> None:
    def in_a_new_process(name: str) -> str | None:
        hub_rows._commit.cache_clear()
        return absolute(recipe(name), read_before(tmp_path / "run")).problems.tasks[0].train_file

    assert in_a_new_process("hub:ann/sums") == f"hub:ann/sums@{OLD}"
    (tmp_path / "run").mkdir()
    (tmp_path / "run/recipe.yaml").write_text(dump(absolute(recipe("hub:ann/sums"))))
    hub.commit = NEW
    assert in_a_new_process("hub:ann/sums") == f"hub:ann/sums@{OLD}"
    assert in_a_new_process("hub:ann/sums@main") == f"hub:ann/sums@{NEW}"
    assert in_a_new_process("hub:ann/sums::test") == f"hub:ann/sums@{NEW}::test"
    assert in_a_new_process(f"hub:ann/sums@{OLD}:main") == f"hub:ann/sums@{OLD}:main"


def test_the_key_of_the_problems_depends_on_the_rows(hub: Hub, tmp_path: Path) -> None:
    for commit, rows in ((OLD, ROWS), (NEW, ROWS[:50])):
        keep(tmp_path, commit, rows)
    keys = [problem_files(recipe(f"hub:ann/sums@{commit}")) for commit in (OLD, NEW)]
    assert [key.keys() for key in keys] == [{"file:mine/train"}] * 2 and keys[0] != keys[1]


def test_without_a_network_what_was_read_before_is_read_and_else_one_sentence_says_what_to_bring(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned("hub:ann/sums")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    hub_rows._commit.cache_clear()
    assert pinned("hub:ann/sums::test") == f"hub:ann/sums@{OLD}::test"
    for name in (f"hub:ann/sums@{OLD}::test", "hub:ann/other:main"):
        with pytest.raises(CirfError) as caught:
            hub_file(name)
        folder = tmp_path / f"data/hub/{parse_name(name).id}"
        assert str(caught.value) == (
            f"{name}: the hub cannot be reached and these rows are not in {folder}; run `cirf check {name}` where there is a "
            "network and bring that folder, or name a file with the rows"
        )


def test_an_id_that_is_not_there_is_refused(hub: Hub) -> None:
    with pytest.raises(CirfError, match=r"hub:ann/none: the hub refuses it .*check the id and the revision"):
        pinned("hub:ann/none")


def test_labels_have_names_and_what_is_no_text_is_left_out(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    features = datasets.Features({
        "question": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"]), "picture": datasets.Image(),
        "day": datasets.Value("date32"), "scores": datasets.List(datasets.Value("float64")), "data": datasets.Value("binary"),
    })  # fmt: skip
    rows = [
        {"question": "q1", "label": 1, "picture": None, "day": date(2024, 5, 1), "scores": [1.0, float("nan")], "data": b"x"},
        {"question": "q2", "label": -1, "picture": None, "day": None, "scores": None, "data": None},
    ]
    asked: list[Any] = []

    def load_dataset(*given: Any, **how: Any) -> Any:
        asked.append((given, how))
        return datasets.Dataset.from_list(rows, features=features)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert read_rows(hub_file(f"hub:ann/sums@{OLD}:main:test[:2]")) == [
        {"question": "q1", "label": "yes", "day": "2024-05-01", "scores": [1.0, None], "data": None},
        {"question": "q2", "label": None},
    ]
    assert asked == [(("hf://datasets/ann/sums", "main"), {"split": "test[:2]", "revision": OLD})]


def test_a_card_links_the_data_set_and_an_evaluation_names_its_table() -> None:
    made = sources(recipe(f"hub:ann/sums@{OLD}:main").model_dump(mode="json"))
    assert [row.origin for row in made][:1] == ["[ann/sums](https://huggingface.co/datasets/ann/sums) at aaaaaaa (main, train)"]
    entry = task_entry("hub:ann/sums:main:test")
    assert (entry.task, entry.name, entry.test_file) == ("jsonl", "sums-main-test", "hub:ann/sums:main:test")
