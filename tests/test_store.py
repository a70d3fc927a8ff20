"""The run's folder: writes that are whole or not there, logs that survive a kill, keys that hash contents."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import tinyrun
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cirf.errors import CirfError
from cirf.files import RowLog, hash_json, write_atomic, write_rows
from cirf.rows import read_rows
from cirf.store import Part, Plan, RunFolder

HERE = Path(__file__).parent


# Kills


def test_a_kill_before_any_change_of_the_disk_leaves_what_the_next_start_completes(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, HERE / "crashing.py", tmp_path],
        env=tinyrun.ENVIRONMENT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    crashes = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(crashes) > 30  # two courses: into an empty folder, and in place of finished stages
    for crash in crashes:
        assert crash["same"], crash
        # A row that was logged is never computed again; the one being logged when the kill came may be.
        assert crash["before"] + crash["again"] <= 4 + 1, crash


WRITER = """
import sys
from pathlib import Path
from cirf.files import RowLog, write_atomic
path, size = Path(sys.argv[1]), int(sys.argv[2])
for letter in "AB" * 10_000:
    write_atomic(path, letter * size)
    print(letter, flush=True)
"""


@pytest.mark.parametrize("seed", range(6))
def test_a_file_is_old_or_new_after_a_kill_at_a_random_moment_of_its_write(tmp_path: Path, seed: int) -> None:
    path, size = tmp_path / "file", 4_000_000
    command = [sys.executable, "-c", WRITER, str(path), str(size)]
    with subprocess.Popen(command, env=tinyrun.ENVIRONMENT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        written = process.stdout.readline().strip()
        assert written == "A"
        time.sleep(random.Random(seed).uniform(0, 0.05))
        process.send_signal(signal.SIGKILL)
        told = "".join(line.strip() for line in process.stdout)
    content = path.read_text()
    assert len(content) == size and len(set(content)) == 1
    count = len(written + told)  # so many writes were told of; the next one may be in place untold
    assert content[0] in {"AB"[(count - 1) % 2], "AB"[count % 2]}
    write_atomic(path, "C")  # what the kill left behind is in no one's way
    assert path.read_text() == "C"


@given(
    rows=st.lists(
        st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
            st.integers() | st.text(st.characters(exclude_categories=["Cs"]), max_size=9),
        ),
        max_size=5,
    ),
    cut=st.integers(0, 400),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
def test_a_log_cut_anywhere_keeps_its_whole_rows_and_goes_on(tmp_path: Path, rows: list[dict[str, Any]], cut: int) -> None:
    path = tmp_path / "log.jsonl"
    path.unlink(missing_ok=True)
    log = RowLog(path)
    for row in rows:
        log.append(row)
    data = path.read_bytes() if rows else b""
    path.write_bytes(data[:cut])
    whole = data[:cut].count(b"\n")
    again = RowLog(path)
    assert again.rows() == rows[:whole]
    again.append({"new": "ü"})
    assert again.rows() == [*rows[:whole], {"new": "ü"}] == RowLog(path).rows() == read_rows(path)


@pytest.mark.parametrize("size", [300, 6700])
def test_on_a_full_disk_a_log_keeps_its_whole_rows(tmp_path: Path, size: int) -> None:
    """Of a row that does not fit nothing stays, wherever the disk is full: rows behind it would else be joined to its half."""
    path = tmp_path / "log.jsonl"
    for room in (1, 299, 4095, 4096, 4097, 6000, size, size + 13):
        path.unlink(missing_ok=True)
        log = RowLog(path)
        log.append({"first": "x" * 50})
        row = {"a": "ü" * (size // 2)}
        with tinyrun.files_no_longer_than(path.stat().st_size + room), pytest.raises(OSError, match="File too large"):
            for _ in range(100):
                log.append(row)
        assert len(RowLog(path).rows()) == len(log.rows()) == 1 + room // (size + len('{"a": ""}\n'))
        log.append({"last": 1})
        assert log.rows() == RowLog(path).rows() and log.rows()[-1] == {"last": 1}


# Reading a user's rows


BAD = {
    "malformed": ('{"question": "a"}\n{"question": \n', r"line 2: not valid JSON"),
    "two on a line": ('{"a": 1} {"a": 2}\n', r"line 1: not valid JSON \(Extra data\)"),
    "a list": ('{"a": 1}\n\n[1, 2]\n', r"line 3: expected a JSON object, found list"),
    "a NUL byte": ('{"a": 1}\n\0\n', r"line 2: not valid JSON"),
    "a NUL byte in a text": ('{"a": "x\0y"}\n', r"line 1: not valid JSON"),
    "a number of 5,000 digits": ('{"answer": ' + "7" * 5000 + "}\n", "a number of thousands of digits"),
    "nested 100,000 deep": ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}\n", "it is nested too deep"),
    "half a surrogate pair": ('{"a": "\\ud800"}\n', r"line 1: an escape such as \\ud800 that is no character"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_rows_are_one_sentence_with_file_and_line(tmp_path: Path, name: str) -> None:
    content, says = BAD[name]
    path = tmp_path / "rows.jsonl"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(CirfError, match=says) as caught:
        read_rows(path)
    assert (
        str(caught.value).startswith(str(path))
        and "\n" not in str(caught.value)
        and len(str(caught.value)) < 250 + len(str(path))
    )


def test_a_mark_of_the_byte_order_windows_line_ends_and_blank_lines_are_let_pass(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes('\ufeff{"a": "ü"}\r\n\r\n   \r\n{"a": "\\ud83d\\ude00"}'.encode())
    assert read_rows(path) == [{"a": "ü"}, {"a": "😀"}]
    path.write_bytes(b"")
    assert read_rows(path) == []


def test_what_is_no_readable_file_is_one_sentence(tmp_path: Path) -> None:
    latin = tmp_path / "latin.jsonl"
    latin.write_bytes('{"a": "é"}\n'.encode("latin-1"))
    for path, says in ((tmp_path, "Is a directory"), (tmp_path / "none", "no such file"), (latin, r"not UTF-8 text \(byte 7\)")):
        with pytest.raises(CirfError, match=says):
            read_rows(path)


def test_a_file_that_may_not_be_read_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("{}\n")
    path.chmod(0)
    if os.geteuid() != 0:
        with pytest.raises(CirfError, match="Permission denied"):
            read_rows(path)
        return
    os.seteuid(65534)  # root may read everything
    try:
        with pytest.raises(CirfError, match="Permission denied"):
            read_rows(path)
    finally:
        os.seteuid(0)


# Keys


def test_the_hash_of_json_ignores_the_order_of_keys_and_nothing_else() -> None:
    assert hash_json({"a": 1, "b": [1, 2]}) == hash_json({"b": [1, 2], "a": 1})
    values = [{"a": 1}, {"a": "1"}, {"a": 1.5}, {"a": None}, {"a": [1]}, {"a": {}}, {"b": 1}, [1, 2], [2, 1]]
    assert len({hash_json(value) for value in values}) == len(values)


class House:
    """A run's folder whose stages count how often they were made."""

    def __init__(self, root: Path) -> None:
        self.folder = RunFolder(root)
        self.made: list[str] = []

    def plan(self, name: str, content: str | dict[str, str] = "x", section: Any = None, version: int = 1, **inputs: Any) -> Plan:
        def make(work: Path) -> dict[str, Any]:
            self.made.append(name)
            for file, text in ({"file": content} if isinstance(content, str) else content).items():
                write_atomic(work / file, text)
            return {"rows": len(content)}

        return Plan(name, section or {}, inputs, make, version)

    def run(self, *plans: Plan) -> list[str]:
        self.made.clear()
        for plan in plans:
            self.folder.run(plan)
        return list(self.made)


def test_a_stage_is_made_once_and_again_when_its_key_changes(tmp_path: Path) -> None:
    house = House(tmp_path)
    assert house.run(house.plan("a")) == ["a"]
    assert house.run(house.plan("a")) == []
    assert house.run(house.plan("a", section={"k": 1})) == ["a"]
    assert house.run(house.plan("a", section={"k": 1}, version=2)) == ["a"]
    assert house.run(house.plan("a", section={"k": 1}, version=2, data="hash")) == ["a"]
    assert house.run(house.plan("a", section={"k": 1}, version=2, data="hash")) == []


def test_a_stage_made_again_with_the_same_content_leaves_those_behind_it_standing(tmp_path: Path) -> None:
    house = House(tmp_path)

    def chain(content: str, key: int) -> list[Plan]:
        a = house.plan("a", content, section={"k": key})
        b = house.plan("b", f"from {content}", of=a)
        return [a, b, house.plan("c", of=b)]

    assert house.run(*chain("x", 1)) == ["a", "b", "c"]
    assert house.run(*chain("x", 2)) == ["a"]
    assert house.run(*chain("y", 2)) == []  # what a stage would give is not known without a changed key
    assert house.run(*chain("y", 3)) == ["a", "b", "c"]


def test_a_part_of_a_stage_hashes_just_its_files(tmp_path: Path) -> None:
    house = House(tmp_path)

    def two(train: str, test: str, key: int) -> list[Plan]:
        a = house.plan("a", {"train.jsonl": train, "test/t.jsonl": test}, section={"k": key})
        return [a, house.plan("learn", of=Part(a, ("train",))), house.plan("ask", of=Part(a, ("test/",)))]

    assert house.run(*two("x", "y", 1)) == ["a", "learn", "ask"]
    assert house.run(*two("x", "z", 2)) == ["a", "ask"]
    assert house.run(*two("w", "z", 3)) == ["a", "learn"]


def test_a_clock_counts_for_nothing(tmp_path: Path) -> None:
    house, times = House(tmp_path), iter(("1.0", "2.0"))

    def make(work: Path) -> None:
        write_atomic(work / "timings.json", f'{{"measured": {next(times)}}}')

    for key in (1, 2):
        timed = Plan("timed", {"k": key}, {}, make)
        assert house.run(timed, house.plan("after", of=timed)) == ([] if key == 2 else ["after"])


def test_a_stage_waits_for_its_inputs(tmp_path: Path) -> None:
    house = House(tmp_path)
    first = house.plan("a")
    with pytest.raises(CirfError, match="stage b: an input is not finished"):
        house.folder.run(house.plan("b", of=first))
    house.run(first)
    with pytest.raises(CirfError, match="not finished"):
        house.folder.run(house.plan("b", of=house.plan("a", section={"k": 9})))


def test_a_stage_that_fails_leaves_the_old_one_and_its_own_beginnings(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.run(house.plan("a", "old"))

    def fail(work: Path) -> None:
        write_atomic(work / "scratch" / "begun", "1")
        raise CirfError("no")

    broken = Plan("a", {"k": 1}, {}, fail)
    with pytest.raises(CirfError, match="no"):
        house.folder.run(broken)
    assert (tmp_path / "a" / "file").read_text() == "old"
    assert sorted(path.name for path in tmp_path.glob(".work/*/scratch/*")) == ["begun", "lives.json"]
    assert house.run(house.plan("a", "other", section={"k": 2})) == ["a"]
    assert not list(tmp_path.glob(".work/*"))  # progress towards a key that no one asks for is gone


@pytest.mark.parametrize("other", ["models/pause-10", "models/pause-0123456789abcdef", "models/pause-x2"])
def test_progress_of_a_stage_whose_name_begins_alike_stays(tmp_path: Path, other: str) -> None:
    house = House(tmp_path)

    def fail(work: Path) -> None:
        write_atomic(work / "scratch" / "begun", "1")
        raise CirfError("no")

    with pytest.raises(CirfError, match="no"):
        house.folder.run(Plan(other, {}, {}, fail))
    short = house.plan("models/pause")
    house.run(short)  # makes its own folder to work in tidy
    house.folder.sweep([short])
    assert [path.name for path in tmp_path.glob(".work/*/scratch/begun")] == ["begun"]


def test_standings(tmp_path: Path) -> None:
    house = House(tmp_path)
    a, b = house.plan("a"), house.plan("a", section={"k": 1})
    after = house.plan("after", of=a)

    def state(plan: Plan) -> str:
        return house.folder.standing(plan).state

    assert (state(a), state(after)) == ("open", "open")
    assert not list(tmp_path.iterdir())  # looking writes nothing
    house.run(a, after)
    assert (state(a), state(after), state(b)) == ("done", "done", "stale")
    assert state(house.plan("after", of=b)) == "stale"
    standing = house.folder.standing(a)
    assert standing.rows == 1 and standing.seconds is not None and standing.seconds >= 0

    def fail(work: Path) -> None:
        raise CirfError("no")

    begun, other = Plan("begun", {}, {}, fail), Plan("begun", {"k": 1}, {}, fail)
    with pytest.raises(CirfError):
        house.folder.run(begun)
    assert (state(begun), state(other)) == ("part", "open")
    with pytest.raises(CirfError):
        house.folder.run(Plan("a", {"k": 2}, {}, fail))
    assert [state(Plan("a", {"k": k}, {}, fail)) for k in (1, 2)] == ["stale", "part"]
    house.folder.sweep([a, begun])
    assert [path.name.partition("-")[0] for path in tmp_path.glob(".work/*")] == ["begun"]  # the other has no use any more


def test_the_time_of_a_stage_counts_lives_that_were_cut_short(tmp_path: Path) -> None:
    folder, lives = RunFolder(tmp_path), iter((True, True, False))

    def make(work: Path) -> dict[str, Any]:
        time.sleep(0.2)
        write_atomic(work / "file", "x")
        if next(lives):
            raise CirfError("cut short")
        return {"rows": 1}

    plan = Plan("slow", {}, {}, make)
    for _ in range(2):
        with pytest.raises(CirfError):
            folder.run(plan)
        time.sleep(0.3)  # between two lives nothing is counted
    folder.run(plan)
    seconds = folder.standing(plan).seconds
    assert seconds is not None and 0.55 <= seconds < 1.1


def test_a_run_that_was_moved_stands(tmp_path: Path) -> None:
    house = House(tmp_path / "here")
    a = house.plan("a")
    house.run(a, house.plan("b", of=a))
    (tmp_path / "here").rename(tmp_path / "there")
    moved = House(tmp_path / "there")
    a = moved.plan("a")
    assert moved.run(a, moved.plan("b", of=a)) == []


def test_a_damaged_record_says_what_to_remove(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.run(house.plan("a"))
    for damaged in ("{", "[]", '{"key": 3}', '{"key": "a", "summary": []}'):
        (tmp_path / "a" / "stage.json").write_text(damaged)
        with pytest.raises(CirfError, match=r"a/stage.json: damaged; `cirf run` makes the stage again"):
            house.run(house.plan("a"))


def test_a_stage_says_what_it_was_made_from(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.run(house.plan("a", {"x": "1", "deep/y": "2"}, section={"k": 1}))
    told = json.loads((tmp_path / "a" / "stage.json").read_text())
    assert told["stage"] == "a" and told["section"] == {"k": 1} and list(told["files"]) == ["deep/y", "x"]


def test_rows_are_written_as_they_are_read(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"a": "ü\n\u2028", "b": [1, 2.5, None, True]}, {}]
    write_rows(tmp_path / "deep" / "rows.jsonl", rows)
    assert read_rows(tmp_path / "deep" / "rows.jsonl") == rows


@pytest.mark.parametrize("data", ["text", b"bytes\0"])
def test_an_atomic_write_leaves_nothing_beside_the_file(tmp_path: Path, data: str | bytes) -> None:
    write_atomic(tmp_path / "deep" / "file", data)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["file"]


def test_an_atomic_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomic(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomic(path, "\ud800")
    assert path.read_text() == "old" and [found.name for found in tmp_path.iterdir()] == ["file"]
