"""The run's folder: writes that are whole or not there, logs that survive a kill, keys that hash contents."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import tinyrun
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cirf.errors import CirfError
from cirf.records import Dropped, Example, Problem, Rationale, Record, Steps, Trace
from cirf.store.files import RowLog, hash_json, load_object, write_atomic, write_changed, write_rows
from cirf.store.jsonl import read_rows
from cirf.store.run_folder import RunFolder, StagePart, StagePlan, record

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
from cirf.store.files import RowLog, write_atomic
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
        summary = "".join(line.strip() for line in process.stdout)
    content = path.read_text()
    assert len(content) == size and len(set(content)) == 1
    count = len(written + summary)  # so many writes were reported; the next one may be in place, not yet reported
    assert content[0] in {"AB"[(count - 1) % 2], "AB"[count % 2]}
    write_atomic(path, "C")  # files left by the kill do no harm
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
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
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
    "half a surrogate pair": ('{"a": "\\ud800"}\n', r"line 1: an escape such as \\ud800 that is not a character"),
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


def test_a_key_that_occurs_twice_is_a_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"question": "q", "answer": "4"}\n{"a": {"x": 1, "x": 2}}\n')
    with pytest.raises(CirfError, match="line 2: the key 'x' occurs twice; remove one"):
        read_rows(path)


def test_a_pipe_or_device_is_not_waited_for(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    for path in (tmp_path / "pipe.jsonl", Path("/dev/zero")):
        with pytest.raises(CirfError, match="not a regular file"):
            read_rows(path)
        recipe = workshop.recipe(tmp_path / "recipe.yaml", train=path)
        for options in (["--dry-run"], ["--limit", "4", "--dry-run"]):
            said = tinyrun.cirf("run", recipe, "--out", tmp_path / "run", *options)
            assert "not a regular file" in said.error()


def test_what_is_no_readable_file_is_one_sentence(tmp_path: Path) -> None:
    latin = tmp_path / "latin.jsonl"
    latin.write_bytes('{"a": "é"}\n'.encode("latin-1"))
    for path, says in (
        (tmp_path, "Is a directory"),
        (tmp_path / "none", "no such file; fetch data"),
        (latin, r"not UTF-8 text \(byte 7\)"),
    ):
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

    def plan(
        self, name: str, content: str | dict[str, str] = "x", section: Any = None, version: int = 1, **inputs: Any
    ) -> StagePlan:
        def make(work: Path) -> dict[str, Any]:
            self.made.append(name)
            for file, text in ({"file": content} if isinstance(content, str) else content).items():
                write_atomic(work / file, text)
            return {"rows": len(content)}

        return StagePlan(name, section or {}, inputs, make, version)

    def run(self, *plans: StagePlan) -> list[str]:
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


def test_a_stage_made_again_with_the_same_content_leaves_later_stages_as_they_are(tmp_path: Path) -> None:
    house = House(tmp_path)

    def chain(content: str, key: int) -> list[StagePlan]:
        a = house.plan("a", content, section={"k": key})
        b = house.plan("b", f"from {content}", of=a)
        return [a, b, house.plan("c", of=b)]

    assert house.run(*chain("x", 1)) == ["a", "b", "c"]
    assert house.run(*chain("x", 2)) == ["a"]
    assert house.run(*chain("y", 2)) == []  # what a stage would give is not known without a changed key
    assert house.run(*chain("y", 3)) == ["a", "b", "c"]


def test_a_part_of_a_stage_hashes_just_its_files(tmp_path: Path) -> None:
    house = House(tmp_path)

    def two(train: str, test: str, key: int) -> list[StagePlan]:
        a = house.plan("a", {"train.jsonl": train, "test/t.jsonl": test}, section={"k": key})
        return [a, house.plan("learn", of=StagePart(a, ("train",))), house.plan("ask", of=StagePart(a, ("test/",)))]

    assert house.run(*two("x", "y", 1)) == ["a", "learn", "ask"]
    assert house.run(*two("x", "z", 2)) == ["a", "ask"]
    assert house.run(*two("w", "z", 3)) == ["a", "learn"]


def test_a_clock_counts_for_nothing(tmp_path: Path) -> None:
    house, times = House(tmp_path), iter(("1.0", "2.0"))

    def make(work: Path) -> None:
        write_atomic(work / "timings.json", f'{{"measured": {next(times)}}}')

    for key in (1, 2):
        timed = StagePlan("timed", {"k": key}, {}, make)
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

    broken = StagePlan("a", {"k": 1}, {}, fail)
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
        house.folder.run(StagePlan(other, {}, {}, fail))
    short = house.plan("models/pause")
    house.run(short)  # makes its own folder to work in tidy
    house.folder.sweep([short])
    assert [path.name for path in tmp_path.glob(".work/*/scratch/begun")] == ["begun"]


def test_states(tmp_path: Path) -> None:
    house = House(tmp_path)
    a, b = house.plan("a"), house.plan("a", section={"k": 1})
    after = house.plan("after", of=a)

    def state(plan: StagePlan) -> str:
        return house.folder.state(plan).state

    assert (state(a), state(after)) == ("open", "open")
    assert not list(tmp_path.iterdir())  # looking writes nothing
    house.run(a, after)
    assert (state(a), state(after), state(b)) == ("done", "done", "stale")
    assert state(house.plan("after", of=b)) == "stale"
    found = house.folder.state(a)
    assert found.rows == 1 and found.seconds is not None and found.seconds >= 0

    def fail(work: Path) -> None:
        raise CirfError("no")

    begun, other = StagePlan("begun", {}, {}, fail), StagePlan("begun", {"k": 1}, {}, fail)
    with pytest.raises(CirfError):
        house.folder.run(begun)
    assert (state(begun), state(other)) == ("part", "open")
    with pytest.raises(CirfError):
        house.folder.run(StagePlan("a", {"k": 2}, {}, fail))
    assert [state(StagePlan("a", {"k": k}, {}, fail)) for k in (1, 2)] == ["stale", "part"]
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

    plan = StagePlan("slow", {}, {}, make)
    for _ in range(2):
        with pytest.raises(CirfError):
            folder.run(plan)
        time.sleep(0.3)  # between two lives nothing is counted
    folder.run(plan)
    seconds = folder.state(plan).seconds
    assert seconds is not None and 0.55 <= seconds < 1.1


def test_a_run_that_was_moved_is_intact(tmp_path: Path) -> None:
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
    summary = json.loads((tmp_path / "a" / "stage.json").read_text())
    assert summary["stage"] == "a" and summary["section"] == {"k": 1} and list(summary["files"]) == ["deep/y", "x"]


def test_rows_are_written_as_they_are_read(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"a": "ü\n\u2028", "b": [1, 2.5, None, True]}, {}]
    write_rows(tmp_path / "deep" / "rows.jsonl", rows)
    assert read_rows(tmp_path / "deep" / "rows.jsonl") == rows


@pytest.mark.parametrize("data", ["text", b"bytes\0"])
def test_an_atomic_write_leaves_nothing_next_to_the_file(tmp_path: Path, data: str | bytes) -> None:
    write_atomic(tmp_path / "deep" / "file", data)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["file"]


def test_an_atomic_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomic(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomic(path, "\ud800")
    assert path.read_text() == "old" and [found.name for found in tmp_path.iterdir()] == ["file"]


def test_a_clock_that_was_set_adds_no_years(tmp_path: Path) -> None:
    house = House(tmp_path)
    plan = house.plan("a")
    work = tmp_path / ".work" / f"a-{(house.folder.key(plan) or '')[:16]}"
    write_atomic(work / "scratch" / "lives.json", json.dumps({"seconds": 5.0, "begun": 60.0}))  # in January 1970
    house.run(plan)
    assert 5 <= (house.folder.state(plan).seconds or 0) < 60


# Symbolic links


def _written(work: Path) -> dict[str, Any]:
    RowLog(work / "scratch" / "log.jsonl").append({"a": 1})
    write_atomic(work / "file", "x")
    return {}


@pytest.mark.parametrize(
    "place",
    [".work", ".work/models--a-KEY", ".work/models--a-KEY/scratch", ".work/models--a-KEY/scratch/log.jsonl",
     ".work/models--a.old", ".work/b.taken", ".work/models--a-0123456789abcdef", "models", "asked"],
)  # fmt: skip
def test_nothing_is_written_or_removed_through_a_symbolic_link(tmp_path: Path, place: str) -> None:
    run, theirs = tmp_path / "run", tmp_path / "theirs"
    plan = StagePlan("models/a", {}, {}, _written)
    folder = RunFolder(run)
    path = run / place.replace("KEY", str(folder.key(plan))[:16])
    for name in ("scratch/log.jsonl", "a/file", f".work/models--a-{folder.key(plan)}/file", "holder.json"):
        write_atomic(theirs / name, "mine, without an end")
    before = tinyrun.artefacts(theirs)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(theirs / "scratch/log.jsonl" if path.suffix == ".jsonl" else theirs)
    with pytest.raises(CirfError, match=f"{path}: a symbolic link"), folder.alone():
        folder.sweep([plan])
        folder.run(plan)
    assert tinyrun.artefacts(theirs) == before


def test_a_log_is_not_written_through_a_symbolic_link(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("mine, without an end")
    (tmp_path / "log").symlink_to(tmp_path / "theirs")
    with pytest.raises(CirfError, match="log: a symbolic link"):
        RowLog(tmp_path / "log").append({"a": 1})
    assert (tmp_path / "theirs").read_text() == "mine, without an end"


def test_a_finished_stage_may_be_on_another_disk(tmp_path: Path) -> None:
    folder, plan = RunFolder(tmp_path / "run"), StagePlan("models/a", {}, {}, _written)
    with folder.alone():
        folder.run(plan)
    (tmp_path / "run/models/a").rename(tmp_path / "disk")
    (tmp_path / "run/models/a").symlink_to(tmp_path / "disk")
    with folder.alone():
        folder.sweep([plan])
        assert (folder.run(plan) / "file").read_text() == "x"


def test_a_record_nested_without_end_is_made_again(tmp_path: Path) -> None:
    folder, plan = RunFolder(tmp_path), StagePlan("a", {}, {}, _written)
    folder.run(plan)
    (tmp_path / "a/stage.json").write_text("[" * 100_000)
    assert folder.damaged("a") == ["stage.json"]
    with pytest.raises(CirfError, match=r"stage\.json: damaged"):
        folder.manifest("a")
    folder.set_aside("a")
    folder.run(plan)
    (tmp_path / "a/timings.json").write_text("[" * 100_000)
    assert folder.state(plan).state == "done"


def test_a_link_in_a_folder_that_was_set_aside_is_left_alone(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.run(plan := house.plan("a"))
    (house.folder.folder("a") / "link").symlink_to("/dev/null")
    house.folder.set_aside("a")
    with house.folder.alone():
        assert house.run(plan) == ["a"]


# Files that are written only where they change, and objects that are read from them


def test_what_is_there_already_is_not_written_again_but_is_of_now(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    write_changed(path, "one")
    os.utime(path, (1, 1))
    node = path.stat().st_ino
    write_changed(path, "one")
    assert path.stat().st_ino == node and path.stat().st_mtime > 1
    write_changed(path, "two")
    assert path.read_text() == "two" and path.stat().st_ino != node


def test_what_cannot_be_read_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "summary.json"
    path.write_text("one")

    def refuse(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(self))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", refuse)
        write_changed(path, "one")
    assert path.read_text() == "one"
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(IsADirectoryError):
        write_changed(folder, "one")


def test_of_a_damaged_file_its_stage_is_to_be_removed_where_it_is_in_one(tmp_path: Path) -> None:
    path = tmp_path / "trials.json"
    assert load_object(path) is None
    path.write_text('{"a": 1}')
    assert load_object(path) == {"a": 1}
    path.write_text("[]")
    with pytest.raises(CirfError, match=r"expected a JSON object; remove the file$"):
        load_object(path)
    (tmp_path / "stage.json").write_text("{}")
    with pytest.raises(CirfError, match=rf"expected a JSON object; remove the folder {tmp_path} and run again$"):
        load_object(path)
    path.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(CirfError, match="not valid JSON"):
        load_object(path)


def test_what_is_no_file_is_not_read_without_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(CirfError, match=f"{path}: not a regular file; name a file of rows"):
            read_rows(path)


def test_a_key_that_occurs_twice_in_a_row_is_named(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"answer": "7"}\n{"answer": "7", "answer": "8"}\n')
    with pytest.raises(CirfError, match="line 2: the key 'answer' occurs twice; remove one"):
        read_rows(tmp_path / "rows.jsonl")


# Records go to JSON and come back the same

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
texts = st.lists(text, max_size=4).map(tuple)
problems = st.builds(Problem, text, text, text, text, st.none() | texts, st.none() | text)
traces = st.builds(Trace, text, st.integers(0, 9), st.lists(st.integers(0, 300), max_size=4).map(tuple), texts, text)
flat = st.one_of(
    problems,
    traces,
    st.builds(Rationale, text, st.integers(0, 9), text, text, st.none() | st.booleans()),
    st.builds(Steps, text, st.integers(0, 9), text, texts),
    st.builds(Dropped, text, st.none() | st.integers(0, 9), text, text),
)


@given(flat)
def test_a_record_survives_one_line_of_json(record: Record) -> None:
    line = record.to_json()
    assert "\n" not in line
    again = type(record).from_dict(json.loads(line))
    assert again == record
    assert again.to_json() == line


@given(problems, texts, traces)
def test_an_example_holds_its_problem_and_trace_in_json(problem: Problem, segments: tuple[str, ...], trace: Trace) -> None:
    row = json.loads(Example(problem, segments, trace).to_json())
    assert Problem.from_dict(row["problem"]) == problem
    assert Trace.from_dict(row["trace"]) == trace


def test_unknown_and_missing_keys_are_errors() -> None:
    row: dict[str, Any] = {"id": "1", "task": "t", "question": "q", "answer": "a"}
    assert Problem.from_dict(row) == Problem("1", "t", "q", "a")
    with pytest.raises(ValueError, match="colour"):
        Problem.from_dict(row | {"colour": "red"})
    with pytest.raises(ValueError, match="answer"):
        Problem.from_dict({key: value for key, value in row.items() if key != "answer"})


def test_records_never_change() -> None:
    problem = Problem("1", "t", "q", "a", choices=("x", "y"))
    with pytest.raises(dataclasses.FrozenInstanceError):
        problem.answer = "b"  # type: ignore[misc]
    assert hash(problem) == hash(Problem("1", "t", "q", "a", choices=("x", "y")))


# Runs that an older version has begun: read, gone on with, or refused in one line that names the key


@pytest.fixture
def old(finished: Path, tmp_path: Path) -> Path:
    """A finished run as a version left it that had no times and fewer keys."""
    run = shutil.copytree(finished, tmp_path / "run")
    (run / "environment.json").unlink()
    (run / "problems" / "timings.json").unlink()
    made = yaml.safe_load((run / "recipe.yaml").read_text())
    del (
        made["problems"]["max_unusable_share"],
        made["evaluate"]["probes"],
        made["vocabulary"]["init_from_token"],
        made["steering" if "steering" in made else "notes"],
    )
    (run / "recipe.yaml").write_text(yaml.safe_dump(made))
    return run


def test_what_has_not_changed_since_is_kept_and_is_reported(old: Path) -> None:
    before = tinyrun.stages(old)
    said = tinyrun.cirf("status", old, "--verify")
    assert said.code == 0 and "a rerun would do nothing" in said.out, said.out + said.err
    assert tinyrun.cirf("report", old).code == 0
    said = tinyrun.cirf("run", old / "recipe.yaml", "--out", old)
    assert said.code == 0 and tinyrun.stages(old) == before, said.err


def test_a_stage_whose_code_has_changed_is_made_again_with_what_rests_on_it(old: Path) -> None:
    path = old / "segments" / "stage.json"
    summary = json.loads(path.read_text())
    path.write_text(record(summary | {"key": "0" * len(summary["key"])}))
    rows = {row["stage"]: row["state"] for row in json.loads(tinyrun.cirf("status", old, "--json").out)}
    assert rows["problems"] == "done" and rows["segments"] == "stale" and rows["evaluation/cot"] == "done"
    before = tinyrun.stages(old)
    said = tinyrun.cirf("run", old / "recipe.yaml", "--out", old)
    assert said.code == 0, said.err
    assert tinyrun.remade(before, tinyrun.stages(old)) == {"segments"}  # it came out as it was


def test_a_key_that_is_no_more_is_named(old: Path) -> None:
    path = old / "recipe.yaml"
    path.write_text(path.read_text() + "temperature_of_old: 1\n")
    for command in (["status", old], ["report", old], ["run", path, "--out", old]):
        assert "temperature_of_old: no such key" in tinyrun.cirf(*command).error()
