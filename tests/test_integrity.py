"""Files that are no more what they were: found, named and made again, and nothing that was paid for is thrown away."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import tinyrun
import yaml

from cirf.errors import CirfError
from cirf.store.files import write_atomic
from cirf.store.integrity import read_by, set_damaged_aside
from cirf.store.run_folder import RunFolder, StagePlan, record


def flip(path: Path, place: float = 0.5, bit: int = 2) -> None:
    """Turn one bit of a file over, in place and whatever its permissions."""
    data = bytearray(path.read_bytes())
    data[int(place * (len(data) - 1))] ^= 1 << bit
    path.chmod(0o644)
    path.write_bytes(bytes(data))


def truncate(path: Path) -> None:
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


HARM: dict[str, Callable[[Path], object]] = {
    "segments/segments.jsonl": flip,
    "embeddings/embeddings.safetensors": truncate,
    "codebook-4/codebook.json": lambda path: path.unlink(),
    "traces/stage.json": flip,
    "models/cirf_full/model.safetensors": flip,
    "models/direct_sft/stage.json": truncate,
    "evaluation/cot/sums.jsonl": truncate,
    "results/stage.json": lambda path: path.unlink(),
    "latency/stage.json": lambda path: path.write_bytes(b"\xff\xfe"),
}


def test_every_damaged_file_is_named_and_its_stage_comes_out_as_it_was(
    finished: Path, workshop: tinyrun.Workshop, tmp_path: Path
) -> None:
    run, recipe = tmp_path / "run", workshop.recipe(tmp_path / "recipe.yaml")
    shutil.copytree(finished, run)
    assert tinyrun.cirf("status", run, "--verify").code == 0
    whole = tinyrun.artefacts(run)
    for name, harm in HARM.items():
        harm(run / name)
    summary = tinyrun.cirf("status", run, "--verify", "--json")
    assert summary.code == 1, summary.err
    rows = {row["stage"]: row for row in json.loads(summary.out)}
    stages = {name.rpartition("/")[0] for name in HARM}
    assert {name for name, row in rows.items() if row["state"] == "damaged"} == stages
    for name in HARM:
        stage, _, file = name.rpartition("/")
        assert rows[stage]["damaged"] == [file]
    shown = tinyrun.cirf("status", run, "--verify")
    assert shown.code == 1 and all(f"{run / name}: missing or changed" in shown.out for name in HARM), shown.out

    before = tinyrun.stages(run)
    said = tinyrun.cirf("run", recipe, "--out", run)
    assert said.code == 0 and "Traceback" not in said.err, said.err
    for name in HARM:
        assert f"{run / name}: missing or changed; made again" in said.err
    assert tinyrun.remade(before, tinyrun.stages(run)) == stages
    kept = {name: data for name, data in tinyrun.artefacts(run).items() if not name.startswith(".work/")}
    assert kept == whole
    assert (run / ".work/models--cirf_full.damaged/model.safetensors").is_file()
    assert tinyrun.cirf("status", run, "--verify").code == 0


def stage(name: str, text: str, *before: StagePlan, made: list[str]) -> StagePlan:
    def make(work: Path) -> dict[str, Any]:
        made.append(name)
        write_atomic(work / "file", text)
        return {}

    return StagePlan(name, {"text": text}, {plan.name: plan for plan in before}, make)


def bring(folder: RunFolder, plans: Sequence[StagePlan], largest: int = 100) -> list[str]:
    said: list[str] = []
    set_damaged_aside(folder, plans, said.append, largest)
    for plan in plans:
        folder.run(plan)
    return said


def test_large_files_are_read_when_something_is_made_of_them(tmp_path: Path) -> None:
    folder, made = RunFolder(tmp_path), list[str]()
    model = stage("model", "weights", made=made)
    score = stage("score", "1", model, made=made)
    bring(folder, [model, score])
    flip(tmp_path / "model/file")
    assert bring(folder, [model, score], 3) == []
    assert folder.damaged("model") == ["file"]
    said: list[str] = []
    other = stage("score", "2", model, made=made)
    assert [plan.name for plan in read_by(other)] == ["model"]
    assert set_damaged_aside(folder, read_by(other), said.append, None) == ["model"]
    assert len(said) == 1 and said[0].startswith("model: ")
    bring(folder, [model, other])
    assert made == ["model", "score", "model", "score"]
    (tmp_path / "model/file").unlink()  # that it is gone is always seen
    assert len(bring(folder, [model, other], 3)) == 1


def test_what_was_set_aside_before_stays(tmp_path: Path) -> None:
    folder, made = RunFolder(tmp_path), list[str]()
    plan = stage("a", "x", made=made)
    for text in ("one", "two", "three"):
        bring(folder, [plan])
        (tmp_path / "a/file").write_text(text)
    bring(folder, [plan])
    assert [(tmp_path / f".work/a.damaged{end}/file").read_text() for end in ("", "-2", "-3")] == ["one", "two", "three"]
    folder.sweep([plan])
    assert len(list(tmp_path.glob(".work/*"))) == 3


def test_a_file_that_a_disk_cannot_read_is_a_damaged_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, made = RunFolder(tmp_path), list[str]()
    plan = stage("a", "x", made=made)
    bring(folder, [plan])

    def fails(number: int, path: Path) -> str:
        raise OSError(number, "the disk says no")

    with monkeypatch.context() as patch:
        patch.setattr("cirf.store.run_folder.hash_file", lambda path: fails(errno.EIO, path))
        assert folder.damaged("a") == ["file"]
        patch.setattr("cirf.store.run_folder.hash_file", lambda path: fails(errno.EACCES, path))
        with pytest.raises(OSError) as caught:
            folder.damaged("a")
        assert caught.value.filename == str(tmp_path / "a/file")
    assert folder.damaged("a") == []


def test_a_record_with_another_hash_or_none_is_damaged(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    bring(folder, [stage("a", "x", made=[])])
    path = tmp_path / "a/stage.json"
    summary = json.loads(path.read_text())
    for changed in (summary | {"summary": {"rows": 7}}, {key: value for key, value in summary.items() if key != "sha256"}):
        path.write_text(json.dumps(changed))
        assert folder.damaged("a") == ["stage.json"]


@pytest.mark.parametrize("seconds", ["x", None, [], True])
def test_times_of_another_type_are_not_known(tmp_path: Path, seconds: Any) -> None:
    folder = RunFolder(tmp_path)
    bring(folder, [stage("a", "x", made=[])])
    (tmp_path / "a/timings.json").write_text(json.dumps({"seconds": seconds}))
    assert folder.finished("a").seconds is None


@pytest.mark.parametrize(
    "change",
    [
        {"summary": {"notes": 5}},
        {"summary": {"notes": [5]}},
        {"summary": {"rows": "7"}},
        {"files": {"file": 5}},
    ],
    ids=json.dumps,
)
def test_a_record_of_other_types_is_a_damaged_one(tmp_path: Path, change: dict[str, Any]) -> None:
    folder = RunFolder(tmp_path)
    bring(folder, [stage("a", "x", made=[])])
    summary = json.loads((tmp_path / "a/stage.json").read_text())
    (tmp_path / "a/stage.json").write_text(record(summary | change))  # its own hash does not reveal the change
    assert folder.damaged("a") == ["stage.json"]
    with pytest.raises(CirfError, match=r"stage\.json: damaged; `cirf run` makes the stage again"):
        folder.finished("a")


@pytest.mark.parametrize("moved", [False, True], ids=["with its data", "without its data"])
def test_results_that_were_edited_are_not_published(finished: Path, tmp_path: Path, moved: bool) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    if moved:
        recipe = yaml.safe_load((run / "recipe.yaml").read_text())
        recipe["problems"]["tasks"][0]["train_file"] = str(tmp_path / "gone.jsonl")
        (run / "recipe.yaml").chmod(0o644)
        (run / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    path = next(path for path in sorted((run / "evaluation" / "cot").glob("*.jsonl")) if '"correct": ' in path.read_text())
    text = path.read_text()
    edited = text.replace('"correct": false', '"correct": true', 1)
    path.chmod(0o644)
    path.write_text(edited if edited != text else text.replace('"correct": true', '"correct": false', 1))
    before = (run / "report.json").read_bytes()
    for command in ("report", "analyze"):
        assert f"{path}: missing or changed; `cirf run" in tinyrun.cirf(command, run).error()
    assert (run / "report.json").read_bytes() == before
    shown = tinyrun.cirf("status", run)
    assert shown.code == 1 and f"{path}: missing or changed" in shown.out


@pytest.mark.parametrize(
    "command", [("ask", "How many?"), ("evaluate",), ("probe", "--probes", "drop")], ids=lambda command: command[0]
)
def test_a_model_with_a_flipped_bit_answers_nothing(finished: Path, tmp_path: Path, command: tuple[str, ...]) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    path = run / "models" / "cirf_full" / "model.safetensors"
    flip(path)
    where = [] if command[0] == "ask" else ["--out", tmp_path / "made"]
    for model in (run, path.parent):
        said = tinyrun.cirf(command[0], model, *command[1:], *where)
        assert f"{path.resolve()}: not as it was written" in said.error()
    assert not (tmp_path / "made" / "evaluation").exists()
