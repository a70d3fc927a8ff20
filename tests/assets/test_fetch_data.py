"""Benchmark data: fetched, checked, gone on with after a cut, converted; brought by hand; read by recipes without a folder."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tinyrun
from loopback import Hub, Server, sha256

from cirf.assets import fetch
from cirf.assets.benchmarks import (
    DataFile,
    benchmarks,
    catalogue,
    commonsense_options,
    gsm8k_steps,
    select,
    svamp_expressions,
    svamp_sentences,
)
from cirf.commands import data
from cirf.commands import data as fetching
from cirf.commands.data import SOURCES, FetchedFile, get_task, state
from cirf.errors import CirfError
from cirf.progress import SILENT
from cirf.rationales.files import find_file
from cirf.recipe.load import load, shipped
from cirf.recipe.schema import Problems, TaskEntry
from cirf.recipe.sweep import shipped as shipped_sweeps
from cirf.store.jsonl import read_rows
from cirf.tasks.loading.load import load_problems, source_files

ROWS = "".join(f'{{"question": "What is {number} + 1?", "final_ans": "{number + 1}"}}\n' for number in range(3000)).encode()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(fetch, "ANSWERED", {})
    monkeypatch.setattr(data, "WAIT", 0.0)
    made = Server({"rows": ROWS})
    yield made
    made.stop()


def a_file(server: Server, path: str = "multiarith/train.jsonl", hashed: str | None = None, at: str = "rows") -> DataFile:
    return DataFile(path, "mit", "https://home.example", addresses=(server.address(at, hashed),))


def fetched(files: list[DataFile], folder: Path) -> tuple[list[str], list[FetchedFile]]:
    got, missing = get_task(files, folder, SILENT, lambda summary: None)
    return [each.state for each in got], missing


def test_a_file_is_fetched_once_and_again_where_it_is_damaged(server: Server, tmp_path: Path) -> None:
    file = a_file(server, hashed=sha256(ROWS))
    assert fetched([file], tmp_path) == (["fetched"], [])
    path = tmp_path / file.path
    assert path.read_bytes() == ROWS
    kept = json.loads((tmp_path / SOURCES).read_text())[file.path]
    assert (kept["licence"], kept["home"], kept["rows"], kept["sha256"]) == ("mit", "https://home.example", 3000, sha256(ROWS))
    assert fetched([file], tmp_path) == (["there"], [])
    assert len(server.asked) == 1
    path.write_bytes(ROWS[:-10])
    assert fetched([file], tmp_path) == (["fetched"], [])
    assert path.read_bytes() == ROWS
    assert sorted(each.name for each in tmp_path.iterdir()) == [".lock", "multiarith", SOURCES]


def test_another_hash_is_refused_and_the_other_files_come(server: Server, tmp_path: Path) -> None:
    wrong, right = a_file(server, "svamp/train.jsonl", "0" * 64), a_file(server)
    states, missing = fetched([wrong, right], tmp_path)
    assert states == ["fetched"]
    assert [each.file for each in missing] == [wrong]
    assert re.search(rf"is refused: it has SHA-256 {sha256(ROWS)} where 0000", missing[0].reason)
    assert not list(tmp_path.rglob("*.part")) and not (tmp_path / wrong.path).exists()


@pytest.mark.parametrize("ranges", [True, False])
def test_a_cut_connection_is_gone_on_with(server: Server, tmp_path: Path, ranges: bool) -> None:
    server.cuts["rows"], server.ranges = 70_000, ranges
    target = tmp_path / "rows"
    seen: list[float] = []
    assert data.download(server.address("rows").url, target, sha256(ROWS), seen.append) == sha256(ROWS)
    assert target.read_bytes() == ROWS
    assert server.asked == [("rows", None), ("rows", "bytes=70000-")]
    assert seen[-1] == len(ROWS)


def test_a_later_call_goes_on_where_an_earlier_one_failed(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "TRIES", 1)
    server.cuts["rows"] = 70_000
    _, missing = fetched([a_file(server)], tmp_path)
    assert re.search(r"the connection broke after 70,000 of [\d,]+ bytes; the partial download is kept", missing[0].reason)
    assert fetched([a_file(server)], tmp_path) == (["fetched"], [])
    assert server.asked[-1] == ("rows", "bytes=70000-")
    assert (tmp_path / "multiarith/train.jsonl").read_bytes() == ROWS


def test_a_part_that_nothing_follows_is_fetched_anew(server: Server, tmp_path: Path) -> None:
    target = tmp_path / "rows"
    target.with_name("rows.part").write_bytes(ROWS)  # whole, but killed before it got its name
    assert data.download(server.address("rows").url, target, sha256(ROWS), lambda there: None) == sha256(ROWS)
    assert server.asked == [("rows", f"bytes={len(ROWS)}-"), ("rows", None)]


def test_a_file_that_is_not_there_is_reported_and_not_asked_for_again(server: Server, tmp_path: Path) -> None:
    _, missing = fetched([a_file(server, at="nothing")], tmp_path)
    assert re.search(r"nothing: the server refuses it \(HTTP 404", missing[0].reason)
    assert len(server.asked) == 1


def test_lines_show_licence_home_and_hash(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    named = (
        a_file(server, hashed=sha256(ROWS)),
        a_file(server, "svamp/train.jsonl"),
        replace(a_file(server, "rationales/a.jsonl"), rows_sha256=sha256(ROWS)),
        replace(a_file(server, "rationales/b.jsonl"), rows_sha256="0" * 64),
    )
    fetching.get(["all"], tmp_path, True, False, named)
    assert capsys.readouterr().out.splitlines() == [
        "multiarith/train.jsonl: fetched, 3,000 rows, licence mit, from https://home.example; SHA-256 as pinned",
        f"svamp/train.jsonl: fetched, 3,000 rows, licence mit, from https://home.example; SHA-256 {sha256(ROWS)} (not pinned)",
        "rationales/a.jsonl: fetched, 3,000 rows, licence mit, from https://home.example; the rows of the published results",
        "rationales/b.jsonl: fetched, 3,000 rows, licence mit, from https://home.example; "
        f"not the rows of the published results (SHA-256 {sha256(ROWS)})",
        f"folder: {tmp_path} (give it to recipes with --data {tmp_path})",
    ]
    fetching.get(["multiarith"], tmp_path, True, True, named)
    made = json.loads(capsys.readouterr().out)
    assert [(each["state"], each["sources"][0]["pinned"]) for each in made["files"]] == [("there", True)]


def test_without_network_one_sentence_says_what_to_bring_from_where(server: Server, tmp_path: Path) -> None:
    server.stop()
    files = [a_file(server), a_file(server, "multiarith/test.jsonl"), DataFile("rationales/x.jsonl", "mit", "https://by.hand")]
    with pytest.raises(CirfError) as caught:
        fetching.get(["all"], tmp_path, True, False, files)
    assert str(caught.value) == (
        "no network, 3 files are missing: run the command again, or bring multiarith/train.jsonl, multiarith/test.jsonl from "
        f"https://home.example; rationales/x.jsonl from https://by.hand to {tmp_path}, "
        "in the form described in docs/how-to/benchmark-data.md"
    )
    assert server.asked == []


def test_a_file_without_a_checked_address_is_brought_by_hand(tmp_path: Path) -> None:
    said = tinyrun.cirf("data", "get", "coin_flip.gpt-4o-mini", "--out", tmp_path)
    assert said.code == 2
    assert (
        "1 file is missing: bring rationales/coin_flip.gpt-4o-mini.jsonl from https://github.com/YinhanHe123/SemCoT" in said.err
    )
    (tmp_path / "rationales").mkdir()
    (tmp_path / "rationales/coin_flip.gpt-4o-mini.jsonl").write_text('{"question": "q", "rationale": "r", "answer": "yes"}\n')
    said = tinyrun.cirf("data", "get", "coin_flip.gpt-4o-mini", "--out", tmp_path)
    assert said.code == 0
    assert "there, brought by hand, 1 row, licence mit" in said.out


def test_a_run_that_lacks_such_a_file_does_not_send_to_the_command_that_cannot_fetch_it(tmp_path: Path) -> None:
    with pytest.raises(CirfError, match=r"no file coin_flip\.gpt-4o-mini .* has no address of it"):
        find_file("coin_flip.gpt-4o-mini", str(tmp_path), "rationales.files")
    with pytest.raises(CirfError, match=r"no file svamp\.palm .* fetch a public file with `cirf data get`"):
        find_file("svamp.palm", str(tmp_path), "rationales.files")


def test_what_somebody_brought_is_left_as_it_is(server: Server, tmp_path: Path) -> None:
    file = a_file(server)
    (tmp_path / "multiarith").mkdir()
    (tmp_path / file.path).write_text('{"question": "mine", "final_ans": "1"}\n')
    assert fetched([file], tmp_path) == (["brought"], [])
    assert (state(file, tmp_path), server.asked) == ("brought", [])


# Conversion


def write(path: Path, data: Any, lines: bool = False) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in data) if lines else json.dumps(data))
    return path


def test_steps_become_lines_and_wrong_answers_go(tmp_path: Path) -> None:
    steps = {"step_one": "2 + 2 = 4.", "step_two": "4 × 2 = 8."}
    rows = [
        {"question": "q1", "gold": 8.0, "response_rationale": steps, "response_ans": 8},
        {"question": "q2", "gold": 8.0, "response_rationale": steps, "response_ans": 9},
    ]
    path = write(tmp_path / "rows.jsonl", rows, lines=True)
    made = [{"question": "q1", "rationale": "Step 1: 2 + 2 = 4.\nStep 2: 4 × 2 = 8.", "answer": "8"}]
    assert list(gsm8k_steps([path], tmp_path)) == made


def test_options_are_read_in_the_order_of_the_questions(tmp_path: Path) -> None:
    choices = ["pan", "lamp", "sea", "tree", "car"]
    questions = [{"id": f"i{place}", "question": f"q{place}", "choices": choices, "answer": "sea"} for place in range(4)]
    texts = [
        ["Fish swim. So the answer is (c) sea.\n\nQ: more\nA: So the answer is (a) pan.", "No. So the answer is (a) pan."],
        ["Cut off before it", "Two. So the answer is either (c) sea or (b) lamp."],
    ]
    paths = [write(tmp_path / "q.jsonl", questions, lines=True), *(write(tmp_path / f"{n}.json", texts[n]) for n in range(2))]
    made = [{"question": "q0", "rationale": "Fish swim.", "answer": "C", "id": "i0"}]
    assert list(commonsense_options(paths, tmp_path)) == made
    with pytest.raises(ValueError, match="shorter"):
        list(commonsense_options(paths[:2], tmp_path))


SVAMP = [
    {"ID": "s-1", "Body": "Ann has 9 pens. If she gives 2 away", "Question": "How many are left?", "Answer": 7.0},
    {"ID": "s-2", "Body": "There are 6 boxes of 3 eggs.", "Question": "How many eggs are there?", "Answer": 18.0},
]


def asked(row: dict[str, Any]) -> str:
    return f"{row['Body']}\n{row['Question']}"


def test_expressions_are_worked_out_and_other_questions_left(tmp_path: Path) -> None:
    write(tmp_path / "svamp/train.jsonl", SVAMP, lines=True)
    inputs = [{"input": asked(row)} for row in (*SVAMP, {"Body": "A test", "Question": "question?"}, *SVAMP)]
    texts = [
        "She had 9. 9 - 2 = 7. The answer is (9 - 2).\n\nQ: more\nA: The answer is (1 + 1).",
        "6 * 3 = 18. The answer is (4 + 2) * 3.",
        "So 1. The answer is 1.",
        "9 - 3 = 6. The answer is (9 - 3).",
        "No end.\n\nQ: more\nA: The answer is (6 * 3).",
    ]
    paths = [
        write(tmp_path / "inputs.json", inputs),
        write(tmp_path / "1.json", texts[:3]),
        write(tmp_path / "2.json", texts[3:]),
    ]
    assert list(svamp_expressions(paths, tmp_path)) == [
        {
            "question": "Ann has 9 pens. If she gives 2 away How many are left?",
            "rationale": "She had 9. 9 - 2 = 7.",
            "answer": "7",
            "id": "s-1",
        },
        {
            "question": "There are 6 boxes of 3 eggs. How many eggs are there?",
            "rationale": "6 * 3 = 18.",
            "answer": "18",
            "id": "s-2",
        },
    ]


@pytest.mark.parametrize(
    ("text", "rationale"),
    [
        (" Rationale: 9 - 2 = 7 pens. Hence the answer is 7.", "9 - 2 = 7 pens."),
        ("Rationale: Take 2 from 9. Hence the answer is 9 - 2 = 7. Answer: 7", "Take 2 from 9."),
        ("Take 2 from 9, hence the answer is 9.0 - 2.0 = 7.0 pens. Answer: 7.0 pens.", "Take 2 from 9, hence"),
        ("9 - 2 = 7\nAnswer: 7", "9 - 2 = 7"),
        ("It is $7. Hence the answer is $7.", "It is $7."),
        ("Hence the answer is 8.", None),
        ("It is 7 pens. Answer: 7 pens", None),
        ("9 - 2 = 7.", None),
    ],
)
def test_a_stated_answer_is_cut_off_and_compared(tmp_path: Path, text: str, rationale: str | None) -> None:
    write(tmp_path / "svamp/train.jsonl", SVAMP, lines=True)
    path = write(tmp_path / "rows.json", [{"input": asked(SVAMP[0]), "gen_label": text}])
    made = list(svamp_sentences([path], tmp_path))
    assert [row["rationale"] for row in made] == ([] if rationale is None else [rationale])


def test_a_list_that_is_nested_too_deep_is_no_list(tmp_path: Path) -> None:
    write(tmp_path / "svamp/train.jsonl", SVAMP, lines=True)
    path = tmp_path / "rows.json"
    path.write_text("[" * 100_000)
    with pytest.raises(ValueError, match="nested too deep"):
        list(svamp_sentences([path], tmp_path))


def test_converted_rows_are_written_and_what_cannot_be_read_is_reported(server: Server, tmp_path: Path) -> None:
    rows = [{"question": "q", "gold": 8.0, "response_rationale": {"one": "4 + 4 = 8."}, "response_ans": 8}]
    server.files["steps"] = (json.dumps(rows[0]) + "\n").encode()
    file = replace(a_file(server, "rationales/steps.jsonl", at="steps"), convert=gsm8k_steps)
    other = replace(a_file(server, "rationales/other.jsonl"), convert=gsm8k_steps)
    waiting = replace(a_file(server, "rationales/waiting.jsonl"), after=("svamp/train.jsonl",))
    states, missing = fetched([file, other, waiting], tmp_path)
    assert states == ["fetched"]
    assert read_rows(tmp_path / file.path) == [{"question": "q", "rationale": "Step 1: 4 + 4 = 8.", "answer": "8"}]
    assert "cannot be read (KeyError: 'response_ans')" in missing[0].reason
    assert "svamp/train.jsonl, which it is made from, is missing" in missing[1].reason


# The catalogue


def test_the_catalogue_has_the_benchmarks_and_every_rationale_file_of_a_recipe() -> None:
    assert len(benchmarks()) == 9
    stems = {Path(file.path).stem for file in catalogue() if file.group == "rationales"}
    named = {name for recipe in shipped() for name in load(recipe).rationales.files}
    named |= set(re.findall(r"\w+\.(?:gpt|palm|llama)[\w.-]*", "".join(p.read_text() for p in shipped_sweeps().values())))
    assert named == stems
    for file in catalogue():
        assert file.licence and file.home.startswith("https://")
        hashes = [address.sha256 for address in file.addresses] + [file.rows_sha256]
        assert all(len(each) == 64 and int(each, 16) for each in hashes if each)
        assert all(re.search(r"/[0-9a-f]{40}/", address.url) for address in file.addresses)


def test_names_choose_files_and_what_they_are_made_from() -> None:
    def paths(*names: str) -> list[str]:
        return [file.path for file in select(names, catalogue())]

    assert paths("multiarith") == ["multiarith/train.jsonl", "multiarith/test.jsonl"]
    assert paths("svamp.palm") == paths("rationales/svamp.palm.jsonl") == ["svamp/train.jsonl", "rationales/svamp.palm.jsonl"]
    assert len(paths("bbh", "bbh/navigate")) == 27
    assert len(paths("rationales")) == 8
    assert len(paths("all")) == len(catalogue())
    with pytest.raises(CirfError, match=r"gsm9k: no such benchmark or rationale file; did you mean gsm8k\?"):
        paths("gsm9k")


def test_the_list_shows_state_licence_and_home() -> None:
    said = tinyrun.cirf("data", "list")
    assert said.code == 0
    assert re.search(r"gsm8k/train\.jsonl +not fetched +mit +https://github.com/openai/grade-school-math", said.out)
    assert re.search(r"scienceqa/test\.jsonl +not fetched +cc-by-nc-sa-4\.0", said.out)
    assert re.search(r"rationales/coin_flip\.gpt-4o-mini\.jsonl +by hand", said.out)


# Reading what was fetched


def test_recipes_without_a_folder_read_what_was_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CIRF_DATA", str(tmp_path))
    section = Problems(tasks=(TaskEntry(task="multiarith"),))
    assert source_files(section) == {}
    for split in ("train", "test"):
        write(tmp_path / f"multiarith/{split}.jsonl", [{"question": f"{split}?", "final_ans": "7"}], lines=True)
    write(tmp_path / "rationales/a.jsonl", [{"question": "train?", "rationale": "r"}], lines=True)
    assert source_files(section) == {f"multiarith/{split}": tmp_path / f"multiarith/{split}.jsonl" for split in ("train", "test")}
    loaded = load_problems(section, seed=1)
    assert [problem.question for problem in (*loaded.train, *loaded.validation)] == ["train?"]
    assert find_file("a", None, "rationales.files") == tmp_path / "rationales/a.jsonl"
    with pytest.raises(CirfError, match=r"elsewhere.*no such file"):
        load_problems(section.model_copy(update={"data": str(tmp_path / "elsewhere")}), seed=1)


# The hub


def test_a_benchmark_comes_from_the_hub(tmp_path: Path) -> None:
    rows = {f"{split}.jsonl": f'{{"question": "{split}?", "final_ans": "7"}}\n'.encode() for split in ("train", "test")}
    hub = Hub("ChilleD/MultiArith", rows)
    env = hub.environment(tmp_path)
    command = [sys.executable, "-m", "cirf", "data", "get", "multiarith", "--out", str(tmp_path / "data")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    hub.stop()
    assert (done.returncode, done.stderr) == (0, "")
    assert "multiarith/train.jsonl: fetched, 1 row, licence mit, from https://huggingface.co/datasets/" in done.stdout
    assert read_rows(tmp_path / "data/multiarith/test.jsonl") == [{"question": "test?", "final_ans": "7"}]
    kept = json.loads((tmp_path / "data" / SOURCES).read_text())
    assert kept["multiarith/train.jsonl"]["asked"] == ["ChilleD/MultiArith at main"]
