"""An archive: the numbers of a run without its texts, weights and vectors, reported of and gone on from."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tinyrun

from cirf.analysis.backbones import Setting, points_of
from cirf.analysis.source import Run
from cirf.analysis.stability import common
from cirf.analysis.training_codes import TRAINING_CODES
from cirf.archive import _verdict, archive, is_archive
from cirf.errors import CirfError
from cirf.files import hash_file, write_atomic
from cirf.report.collect import collect
from cirf.rows import read_rows
from cirf.store import LEFT_OUT, Plan, RunFolder, record

WEIGHTS = (".safetensors", ".npy", ".bin", ".pt")


@pytest.fixture(scope="module")
def archived(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The finished run's archive; copy it to change it."""
    out = tmp_path_factory.mktemp("archived") / "results"
    said = tinyrun.cirf("archive", finished, "--out", out)
    assert said.code == 0, said.err
    assert "0.1 MB" in said.out or "0.0 MB" in said.out
    return out


def texts(folder: Path) -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in folder.rglob("*") if path.is_file())


def test_no_row_of_the_data_no_weight_and_no_place_is_in_it(archived: Path, workshop: tinyrun.Workshop) -> None:
    assert not [path for path in archived.rglob("*") if path.suffix in WEIGHTS]
    held = texts(archived)
    for row in [*read_rows(workshop.train), *read_rows(workshop.test)]:
        assert row["question"] not in held
        assert not any(step in held for step in row["rationale"].splitlines())
    assert str(workshop.train.parent) not in held
    assert sum(path.stat().st_size for path in archived.rglob("*") if path.is_file()) < 200_000


def test_its_report_has_the_run_s_numbers(archived: Path, finished: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(archived, tmp_path / "copy")
    assert tinyrun.cirf("report", copy).code == 0
    ours, theirs = (json.loads((folder / "report.json").read_text()) for folder in (copy, finished))
    for told in (*ours["training"].values(), *theirs["training"].values()):
        del told["settings"]  # they name files, of which the archive keeps the names alone
    for part in ("methods", "comparisons", "training", "latency"):
        assert ours[part] == theirs[part], part
    assert ours["environment"]["packages"] == theirs["environment"]["packages"]
    page = (copy / "report.html").read_text(encoding="utf-8")
    assert "cirf_full" in page and "direct_sft" in page


def test_what_its_report_cannot_know_is_no_number(archived: Path, finished: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(archived, tmp_path / "copy")
    assert tinyrun.cirf("report", copy).code == 0
    ours, theirs = (json.loads((folder / "report.json").read_text()) for folder in (copy, finished))
    assert ours["codebook"]["codes"] == [] and ours["codebook"]["used"] is None and ours["codebook"]["segments"] is None
    assert ours["codebook"]["losses"] == theirs["codebook"]["losses"]
    assert {**ours["data"], "reports": {}} == {**theirs["data"], "reports": {}}  # told by the reports of the stages
    page = (copy / "report.html").read_text(encoding="utf-8")
    assert 'id="codes"' not in page and "Used here are 0" not in page
    said = tinyrun.cirf("analyze", copy, "--json")
    assert said.code == 0 and "an archive leaves out" in said.out + said.err
    assert "left out of the archive" in tinyrun.cirf("label", copy, "1=adds").error()


def test_of_codes_it_is_told_what_the_run_tells(archived: Path, finished: Path, tmp_path: Path) -> None:
    copies = [shutil.copytree(folder, tmp_path / name) for name, folder in (("archive", archived), ("run", finished))]
    told = []
    for copy in copies:
        said = tinyrun.cirf("analyze", copy, "clustering", "transitions", "--json")
        assert said.code == 0, said.err
        told.append(json.loads(said.out)["analyses"])
    ours, theirs = ({name: one["tables"] for name, one in found.items()} for found in told)
    assert ours["clustering"] == theirs["clustering"]
    counts = [
        [{key: row[key] for key in row if "label" not in key} for row in one["transitions"][0]["rows"]] for one in (ours, theirs)
    ]
    assert counts[0] == counts[1] and counts[0]
    again = tmp_path / "again"
    archive(copies[0], again, ["codebook-4"])  # of an archive, what it kept
    kept = [folder / "codebook-4" / "training_codes.jsonl" for folder in (archived, again)]
    assert kept[0].read_bytes() == kept[1].read_bytes()


def test_where_rows_are_there_again_and_traces_are_not_nothing_is_made_up(archived: Path, finished: Path, tmp_path: Path) -> None:
    on = shutil.copytree(archived, tmp_path / "on")
    for file in ("problems/train.jsonl", "rationales/rationales.jsonl", "segments/segments.jsonl"):
        shutil.copy(finished / file, on / file)
    said = tinyrun.cirf("analyze", on, "--json")
    assert said.code == 0, said.err
    told = json.loads(said.out)
    assert "an archive leaves out" in told["left_out"]["predictability"]
    (row,) = (one for one in told["analyses"]["statistics"]["tables"][0]["rows"] if one["task"] == "sums")
    assert row["cot_tokens"] is row["trace_tokens"] is None


def test_codes_are_compared_where_rationales_are_known_to_be_cut_alike(archived: Path, finished: Path, tmp_path: Path) -> None:
    def run(folder: Path) -> Run:
        return Run(folder, lambda: {"recipe": {"codebook": {"size": 4}}})

    other = shutil.copytree(archived, tmp_path / "other")
    kept = other / "codebook-4" / TRAINING_CODES
    rows = read_rows(kept)
    whole = len(rows)
    assert len(common(run(archived), run(finished))) == len(common(run(archived), run(archived))) == whole > 2
    rows[0]["cut"], rows[1]["codes"] = "of another text", [*rows[1]["codes"], 0]
    del rows[2]["cut"]
    kept.write_text("".join(json.dumps(row) + "\n" for row in rows))
    units = common(run(archived), run(other))
    assert len(units) == whole - 3 and all(len(ours) == len(theirs) for ours, theirs in units)
    kept.write_text('{"problem": "x"}\n')
    with pytest.raises(CirfError, match=r"training_codes\.jsonl: line 1 is no rationale's codes"):
        run(other).coded(4)


@pytest.mark.parametrize("adaptation", ["full", "lora"])
def test_it_knows_how_large_the_backbone_is(adaptation: str, workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    recipe = workshop.recipe(tmp_path / "recipe.yaml", methods=["cirf_full"], finetune__adaptation=adaptation)
    said = tinyrun.cirf("run", recipe, "--out", tmp_path / "run", "--until", "evaluation")
    assert said.code == 0, said.err
    assert tinyrun.cirf("archive", tmp_path / "run", "--out", tmp_path / "archive").code == 0
    ours, theirs = (
        points_of(Setting("tiny", [Run(folder, lambda folder=folder: collect(folder))]), "in", ["cirf_full"])
        for folder in (tmp_path / "archive", tmp_path / "run")
    )
    assert ours[0]["parameters"] == theirs[0]["parameters"] > 1000


def test_passages_that_questions_share_stay_behind(finished: Path, tmp_path: Path) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    told = json.loads((run / "problems" / "problems.json").read_text())
    told["overlap"]["tasks"]["sums"]["examples"] = [{"test": "a", "train": "b", "share": 1.0, "words": "box 0 gets 8 apples"}]
    write_atomic(run / "problems" / "problems.json", json.dumps(told))
    with pytest.raises(CirfError, match=r"problems\.json: gone, or not as it was written; `cirf run` makes the stage again"):
        archive(run, tmp_path / "out", ["problems"])
    sealed = json.loads((run / "problems" / "stage.json").read_text())
    sealed["files"]["problems.json"] = hash_file(run / "problems" / "problems.json")
    write_atomic(run / "problems" / "stage.json", record(sealed))
    archive(run, tmp_path / "out", ["problems"])
    kept = json.loads((tmp_path / "out" / "problems" / "problems.json").read_text())["overlap"]
    assert kept["words"] == 13 and kept["tasks"]["sums"]["examples"] == [{"test": "a", "train": "b", "share": 1.0, "words": ""}]


def test_functional_traces_stay_and_prose_goes(archived: Path, finished: Path) -> None:
    for method, kept in (("cirf_full", True), ("cot", False)):
        ours, theirs = (read_rows(folder / "evaluation" / method / "sums.jsonl") for folder in (archived, finished))
        assert [row["correct"] for row in ours] == [row["correct"] for row in theirs]
        assert [row["tokens"] for row in ours] == [row["tokens"] for row in theirs]
        same = [
            row["output"] == other["output"]
            for row, other in zip(ours, theirs, strict=True)
            if "<cirf_0" in other["output"] and row["output"]
        ]
        assert all(same) and (not kept or same)
        assert kept or {row["output"] for row in ours} == {""}
        plain = [row["parsed"] for row in ours if "<cirf_0" not in row["output"]]
        assert {*plain} <= {"", None}  # an answer that is right is the gold one
        assert [row["parsed"] is None for row in ours] == [row["parsed"] is None for row in theirs]


@pytest.mark.parametrize(
    ("output", "kept"),
    [
        ("<cirf><cirf_016>48<cirf_023>19 - 5 = 14</cirf>14", True),
        ("<cirf><cirf_016>Initial state: heads<cirf_023>not flip</cirf>yes", True),
        ("<cirf><cirf_016><cirf_023>the dog that the neighbour lost</cirf>a dog", False),
        ("The scientist met the artist, and he left.</cirf><cirf_031>1</cirf>2", False),
        ("A. idiom</cirf><cirf_002>", False),
        ("no functional token", False),
    ],
)
def test_a_trace_with_prose_in_it_goes_too(output: str, kept: bool) -> None:
    row = {
        "id": "a",
        "prompt": "who?",
        "output": output,
        "trace": "t",
        "answer": "x",
        "parsed": "x",
        "gold": "x",
        "correct": True,
    }
    gone = ("prompt", "gold") if kept else ("prompt", "gold", "output", "trace", "answer", "parsed")
    assert _verdict(row) == row | dict.fromkeys(gone, "")


def test_a_run_goes_on_from_it_and_makes_no_more_than_it_needs(
    archived: Path, finished: Path, workshop: tinyrun.Workshop, tmp_path: Path
) -> None:
    copy = shutil.copytree(archived, tmp_path / "copy")
    methods = ["cirf_full", "direct_sft", "cot", "sft_cot"]
    recipe = workshop.recipe(tmp_path / "recipe.yaml", methods=methods, evaluate__latency_items=0)
    before = tinyrun.stages(copy)
    foretold = json.loads(tinyrun.cirf("run", recipe, "--out", copy, "--dry-run", "--json").out)
    assert set(foretold["methods"]) == {"sft_cot"} and "prepared" not in foretold
    said = tinyrun.cirf("run", recipe, "--out", copy)
    assert said.code == 0, said.err
    again = {"problems", "rationales", "segments"}  # what the new method reads
    assert tinyrun.remade(before, tinyrun.stages(copy)) == {*again, "models/sft_cot", "evaluation/sft_cot"}
    for stage in again:
        assert f"{stage}: again, since the archive left its files out" in said.err + said.out
        for name in json.loads((copy / stage / "stage.json").read_text())["files"]:
            assert (copy / stage / name).read_bytes() == (finished / stage / name).read_bytes()
    assert not is_archive(copy)
    told = json.loads((copy / "report.json").read_text())
    assert list(told["methods"]) == methods
    assert told["methods"]["direct_sft"] == _untimed(json.loads((finished / "report.json").read_text()))


def test_a_model_that_was_left_out_is_foretold_where_it_is_asked_anew(
    archived: Path, workshop: tinyrun.Workshop, tmp_path: Path
) -> None:
    copy = shutil.copytree(archived, tmp_path / "copy")

    def foretold(**keys: Any) -> set[str]:
        recipe = workshop.recipe(tmp_path / "recipe.yaml", **keys)
        said = tinyrun.cirf("run", recipe, "--out", copy, "--dry-run", "--json", "--until", "evaluation/cirf_full")
        assert said.code == 0, said.err
        return set(json.loads(said.out).get("methods", {}))

    assert foretold() == set()
    assert foretold(evaluate__trace_cap=5) == {"cirf_full"}


def _untimed(report: dict[str, Any]) -> dict[str, Any]:
    """A method's numbers as a run without latency tells them."""
    method: dict[str, Any] = report["methods"]["direct_sft"]
    times = [key for key in method if key.startswith(("latency", "first", "decode")) or key.endswith("bytes")]
    for part in (method, *method["tasks"].values()):
        part.update(dict.fromkeys((key for key in times if key in part), None))
    return method


def test_what_comes_out_different_is_refused_and_said(tmp_path: Path) -> None:
    def model(content: str) -> Plan:
        return Plan("models/some", {"k": 1}, {"file": "x"}, lambda work: write_atomic(work / "weights.bin", content))

    def score(content: str, how: int) -> Plan:
        plan = model(content)
        return Plan("evaluation/some", {"how": how}, {"model": plan}, lambda work: write_atomic(work / "scores.json", "{}"))

    from cirf.run import _restore_inputs

    run = RunFolder(tmp_path / "run")
    write_atomic(run.root / "recipe.yaml", tinyrun_recipe())
    run.run(model("a"))
    run.run(score("a", 1))
    archive(run.root, tmp_path / "kept", ["models/some", "evaluation/some"])
    kept = RunFolder(tmp_path / "kept")
    assert kept.is_done(model("a")) and kept.is_done(score("a", 1)) and kept.left_out("models/some") == ("weights.bin",)
    begun = kept.root / ".work" / f"models--some-{str(kept.key(model('a')))[:16]}"
    write_atomic(begun / "scratch" / "half", "a")
    kept.sweep([model("a"), score("a", 1)])
    assert (begun / "scratch" / "half").exists()  # making it again goes on after a kill, too
    other = RunFolder(shutil.copytree(kept.root, tmp_path / "other"))
    for made in ("b", "c"):  # what was made is kept: the second time nothing is made
        with pytest.raises(CirfError, match="they come out different"):
            _restore_inputs(other, score(made, 2), lambda line: None)
        assert other.is_done(score("a", 1)) and other.left_out("models/some")  # as it was
    shutil.rmtree(other.folder("models/some"))
    assert (other.run(model("c")) / "weights.bin").read_text() == "b" and not other.is_done(score("a", 1))
    _restore_inputs(kept, score("a", 2), lambda line: None)
    assert (kept.folder("models/some") / "weights.bin").read_text() == "a" and not kept.left_out("models/some")
    assert LEFT_OUT not in json.loads((kept.folder("models/some") / "stage.json").read_text())


def tinyrun_recipe() -> str:
    return "name: some\nproblems:\n  tasks:\n    - task: gsm8k\n"


def test_methods_trained_apart_meet_in_one_archive(finished: Path, workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    run, out = shutil.copytree(finished, tmp_path / "run"), tmp_path / "results"
    for method in ("direct_sft", "cot"):
        recipe = workshop.recipe(tmp_path / "recipe.yaml", methods=[method], evaluate__latency_items=0)
        assert tinyrun.cirf("run", recipe, "--out", run).code == 0
        said = tinyrun.cirf("archive", run, "--out", out, "--json")
        assert said.code == 0, said.err
    assert "evaluation/direct_sft" in json.loads(said.out)["kept"]
    assert tinyrun.cirf("report", out).code == 0
    assert list(json.loads((out / "report.json").read_text())["methods"]) == ["direct_sft", "cot"]


def test_no_run_is_overwritten(finished: Path, tmp_path: Path) -> None:
    other = shutil.copytree(finished, tmp_path / "other")
    before = tinyrun.artefacts(other)
    assert "not empty, and no archive" in tinyrun.cirf("archive", finished, "--out", other).error()
    assert tinyrun.artefacts(other) == before


def test_a_killed_archive_is_finished_by_the_same_command(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import cirf.archive

    stages, out, write = ["problems", "rationales", "segments"], tmp_path / "out", cirf.archive._stage

    def dies(run: RunFolder, name: str, target: Path) -> None:
        if name == "segments":
            raise KeyboardInterrupt
        write(run, name, target)

    with monkeypatch.context() as patched:
        patched.setattr(cirf.archive, "_stage", dies)
        with pytest.raises(KeyboardInterrupt):
            archive(finished, out, stages)
    assert is_archive(out) and archive(finished, out, stages).kept == ()


def test_methods_of_other_rows_or_seeds_do_not_meet(finished: Path, tmp_path: Path) -> None:
    run, out = shutil.copytree(finished, tmp_path / "run"), tmp_path / "out"
    archive(run, out, ["problems", "evaluation/cot"])
    recipe = (run / "recipe.yaml").read_text()
    write_atomic(run / "recipe.yaml", recipe.replace("seed: 1", "seed: 2"))
    with pytest.raises(CirfError, match="differs in seed or backbone"):
        archive(run, out, ["problems", "evaluation/direct_sft"])
    write_atomic(run / "recipe.yaml", recipe)
    told = json.loads((run / "problems" / "stage.json").read_text())
    asked = run / "problems" / "test" / "sums.jsonl"
    write_atomic(asked, asked.read_text() + "\n")
    told["files"]["test/sums.jsonl"] = hash_file(asked)
    write_atomic(run / "problems" / "stage.json", record(told))
    with pytest.raises(CirfError, match="differs in problems"):
        archive(run, out, ["problems", "evaluation/direct_sft"])
    assert archive(run, out, ["problems", "evaluation/cot"]).kept == ()  # what is replaced as a whole may differ


def test_what_is_no_place_for_it_is_one_sentence(
    finished: Path, archived: Path, workshop: tinyrun.Workshop, tmp_path: Path
) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "thesis.tex").write_text("mine")
    assert "not empty, and no archive" in tinyrun.cirf("archive", finished, "--out", full).error()
    assert "that is the run itself" in tinyrun.cirf("archive", finished, "--out", finished).error()
    other = shutil.copytree(archived, tmp_path / "other")
    write_atomic(other / "recipe.yaml", tinyrun_recipe())
    assert is_archive(other)
    assert "holds the archive of some, not of tiny" in tinyrun.cirf("archive", finished, "--out", other).error()
    assert "not a run's folder" in tinyrun.cirf("archive", full, "--out", tmp_path / "new").error()
    assert "cannot be told here" in tinyrun.cirf("archive", archived, "--out", tmp_path / "new").error()
    assert "an archive" in tinyrun.cirf("status", archived).out
