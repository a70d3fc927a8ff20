"""Sweeps in miniature: each finished stage is made once, what is taken over is as if it were made, and a kill costs nothing."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tinyrun
import yaml

from cirf.store.paths import without_folders

FIRST = ["problems", "rationales", "segments", "results", "embeddings"]
NEEDED = [stage for stage in FIRST if stage != "results"]  # by a codebook
LAST = ["traces", "models/cirf_full", "evaluation/cirf_full"]
SMALL, RANDOM, TRAINED, OTHER = (
    f"codes/codebook.size={size},codebook.representation={what}" for size in (3, 4) for what in ("mean_centered", "random")
)
FAILS, SHORT = "trained/codebook.size=500", "trained/codebook.size=4,finetune.epochs=0.5"
PARTS: list[dict[str, Any]] = [
    {
        "name": "codes",
        "until": "codebook",
        "grid": {"codebook.size": [3, 4], "codebook.representation": ["mean_centered", "random"]},
    },
    {
        "name": "trained",
        "points": [{"codebook.size": 4}, {"codebook.size": 500}, {"codebook.size": 4, "finetune.epochs": 0.5}],
    },
]


def base(workshop: tinyrun.Workshop, **keys: Any) -> dict[str, Any]:
    keys = {"methods": ["cirf_full"], "evaluate__latency_questions": 0} | keys
    return tinyrun.recipe(workshop.backbone, workshop.embedder, workshop.train, workshop.test, **keys)


def write_sweep(path: Path, recipe: Any, parts: list[dict[str, Any]], **more: Any) -> Path:
    path.write_text(yaml.safe_dump({"name": "small", "recipe": recipe, "parts": parts} | more, sort_keys=False))
    return path


@dataclass(frozen=True)
class Swept:
    """A sweep with its dry run, then its run, and their output."""

    file: Path
    out: Path
    predicted: dict[str, Any]
    said: tinyrun.Said

    def record(self) -> dict[str, Any]:
        return json.loads((self.out / "sweep.json").read_text())  # type: ignore[no-any-return]

    def stages(self, run: str) -> dict[str, str]:
        """What the dry run said of a run's stages."""
        return next(row["stages"] for row in self.predicted["runs"] if row["run"] == run)  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def swept(workshop: tinyrun.Workshop, tmp_path_factory: pytest.TempPathFactory) -> Swept:
    """Five runs, one of them in two parts, and one that is invalid; tests must not change anything in it."""
    folder = tmp_path_factory.mktemp("sweep")
    file = write_sweep(folder / "small.yaml", base(workshop), PARTS)
    predicted = tinyrun.cirf("sweep", file, "--out", folder / "out", "--dry-run", "--json")
    assert predicted.code == 0, predicted.err
    assert not (folder / "out").exists()
    said = tinyrun.cirf("sweep", file, "--out", folder / "out")
    assert said.code == 2, said.err
    return Swept(file, folder / "out", json.loads(predicted.out), said)


def test_its_archive_holds_every_run_that_is_begun_and_is_analysed(swept: Swept, tmp_path: Path) -> None:
    out = tmp_path / "results"
    for _ in range(2):  # again is the same
        said = tinyrun.cirf("archive", swept.out, "--out", out, "--json")
        assert said.code == 0, said.err
    begun = {point["run"] for point in swept.record()["points"] if tinyrun.stages(swept.out / point["run"])}
    assert set(json.loads(said.out)["runs"]) == begun >= {SMALL, SHORT}
    assert {path.name for path in out.iterdir()} == {"answers.parquet", "measured.json"}
    summary = [json.loads(tinyrun.cirf("analyze", folder, "pareto", "--json").out)["analyses"] for folder in (out, swept.out)]
    assert summary[0]["pareto"]["tables"] == without_folders(summary[1]["pareto"]["tables"])
    assert tinyrun.cirf("report", out / SHORT).code == 0 and (out / SHORT / "report.html").is_file()
    assert f"with RUN one of {SMALL}, " in tinyrun.cirf("report", out).error()


def test_each_stage_is_made_once_and_the_record_shows_how_runs_ended(swept: Swept) -> None:
    record = swept.record()
    summary = [(point["part"], point["point"], point["run"], point["state"]) for point in record["points"]]
    assert summary == [
        *(("codes", run.removeprefix("codes/"), run, "done") for run in (SMALL, RANDOM, TRAINED, OTHER)),
        ("trained", "codebook.size=4", TRAINED, "done"),  # the same point, run once
        ("trained", "codebook.size=500", FAILS, "failed"),
        ("trained", "codebook.size=4,finetune.epochs=0.5", SHORT, "done"),
    ]
    taken = [line.partition(": reused from ") for line in swept.said.err.splitlines() if ": reused from " in line]
    sources = Counter(Path(source).relative_to(swept.out).as_posix() for _, _, source in taken)
    assert sources == {SMALL: 20, TRAINED: 4}
    assert record["points"][1]["settings"] == {"codebook.size": 3, "codebook.representation": "random"}
    assert [path.parent.parent.name for path in swept.out.rglob(".work/*")] == [FAILS.partition("/")[2]]  # goes on if asked again


def test_a_dry_run_shows_what_then_happens(swept: Swept) -> None:
    assert swept.predicted["stages"] == {"asked": 42, "done": 0, "taken": 24, "made": 18}
    made = {run: [stage for stage, state in swept.stages(run).items() if state == "made"] for run in (SMALL, RANDOM, TRAINED)}
    assert made[SMALL] == [*NEEDED, "codebook-3"] and made[RANDOM] == ["codebook-3"]
    assert made[TRAINED] == ["results", "codebook-4", *LAST]  # as far as the part that goes further
    for row in swept.predicted["runs"]:
        if row["run"] != FAILS:
            assert set(tinyrun.stages(swept.out / row["run"])) == set(row["stages"])
    after = tinyrun.cirf("sweep", swept.file, "--out", swept.out, "--dry-run")
    assert after.code == 0, after.err
    assert "in all 6 42 38 0 4" in " ".join(after.out.split())
    assert f"{SHORT}: nothing to make" in after.out and f"{FAILS}: codebook-500, traces" in after.out


@pytest.mark.slow
@pytest.mark.parametrize("run", [SHORT, RANDOM])
def test_a_run_is_byte_for_byte_what_it_is_alone(swept: Swept, workshop: tinyrun.Workshop, tmp_path: Path, run: str) -> None:
    recipe = tinyrun.write_recipe(tmp_path / "recipe.yaml", base(workshop))
    sets = [f"--set={setting}" for setting in run.partition("/")[2].split(",")]
    until = ["--until", "codebook"] if run == RANDOM else []
    said = tinyrun.cirf("run", recipe, *sets, *until, "--out", tmp_path / "alone")
    assert said.code == 0, said.err
    alone = tinyrun.artefacts(tmp_path / "alone")
    assert len(alone) > 15 and tinyrun.artefacts(swept.out / run) == alone
    assert (swept.out / run / "report.html").exists() == (run == SHORT)


def test_status_report_and_show_work_on_every_run(swept: Swept, tmp_path: Path) -> None:
    for run in (TRAINED, SHORT):
        assert tinyrun.cirf("status", swept.out / run).out.endswith("a rerun would do nothing\n")
    copy = shutil.copytree(swept.out / SHORT, tmp_path / "run")
    assert list(json.loads(tinyrun.cirf("report", copy, "--json").out)["methods"]) == ["cirf_full"]
    assert tinyrun.cirf("show", copy, "--limit", "1").code == 0
    assert "--until codebook" not in tinyrun.cirf("status", swept.out / RANDOM).out
    assert "models/cirf_full" in tinyrun.cirf("status", swept.out / RANDOM).out  # a run of the whole recipe, stopped early


def test_a_failing_point_is_reported_and_the_others_go_on(swept: Swept) -> None:
    reason = "codebook-500: codebook.size is 500, but only"
    point = next(point for point in swept.record()["points"] if point["run"] == FAILS)
    assert point["error"].startswith(reason)
    lines = swept.said.err.splitlines()
    assert any(line.startswith(f"failed: {FAILS}: {reason}") for line in lines)
    said = f"cirf: 1 of 6 runs failed (see {swept.out / 'sweep.json'}); the same command tries them again"
    assert swept.said.error() == said
    assert lines.index(f"[6/6] {SHORT}") > next(number for number, line in enumerate(lines) if reason in line)
    assert "6 runs, 1 failed" in swept.said.out


def test_running_again_makes_nothing_and_shows_the_same(swept: Swept) -> None:
    before, stages = (swept.out / "sweep.json").read_bytes(), tinyrun.stages(swept.out)
    said = tinyrun.cirf("sweep", swept.file, "--out", swept.out, "--json")
    assert "1 of 6 runs failed" in said.error()
    assert json.loads(said.out) == json.loads(before)
    assert said.err.count(": finished before\n") >= 5 and "segments ..." not in said.err
    assert tinyrun.stages(swept.out) == stages and (swept.out / "sweep.json").read_bytes() == before


def test_damage_is_mended_in_a_finished_sweep(swept: Swept, tmp_path: Path) -> None:
    out = shutil.copytree(swept.out, tmp_path / "out")
    whole = {run: tinyrun.artefacts(out / run) for run in (SMALL, RANDOM, TRAINED)}
    for file in (out / SMALL / "segments/segments.jsonl", out / TRAINED / "codebook-4/stage.json"):
        content = file.read_bytes()
        file.chmod(0o644)
        file.write_bytes(content[: len(content) // 2])
    said = tinyrun.cirf("sweep", swept.file, "--out", out)
    assert "segments.jsonl: missing or changed" in said.err and "codebook-4/stage.json: missing" in said.err
    for run, before in whole.items():
        shutil.rmtree(out / run / ".work", ignore_errors=True)  # where the damaged ones are kept
        assert tinyrun.artefacts(out / run) == before


def test_the_file_as_resolved_asks_for_the_same(swept: Swept, tmp_path: Path) -> None:
    said = tinyrun.cirf("sweep", swept.out / "sweep.yaml", "--out", tmp_path / "out", "--dry-run", "--json")
    assert said.code == 0, said.err
    assert json.loads(said.out)["runs"] == swept.predicted["runs"]


def test_another_version_of_the_file_takes_over_what_the_first_has_left(
    swept: Swept, workshop: tinyrun.Workshop, tmp_path: Path
) -> None:
    out = shutil.copytree(swept.out, tmp_path / "out")
    parts = [{"name": "new", "until": "traces", "points": [{"codebook.size": 4, "evaluate.max_trace_tokens": 9}]}]
    said = tinyrun.cirf("sweep", write_sweep(tmp_path / "small.yaml", base(workshop), parts), "--out", out, "--json")
    assert said.code == 0, said.err
    assert json.loads(said.out)["points"][0]["state"] == "done" and " ...\n" not in said.err
    assert f"traces: reused from {out / TRAINED}" in said.err


def test_share_only_until_and_set(finished: Path, workshop: tinyrun.Workshop, swept: Swept, tmp_path: Path) -> None:
    file = write_sweep(tmp_path / "small.yaml", base(workshop, methods=["cirf_full", "direct_sft", "cot"]), PARTS)
    arguments = ["--out", tmp_path / "out", "--share", finished, "--until", "traces", "--json"]
    predicted = tinyrun.cirf("sweep", file, *arguments, "--only", "codes", "--dry-run")
    assert json.loads(predicted.out)["stages"] == {"asked": 28, "done": 0, "taken": 22, "made": 6}
    said = tinyrun.cirf("sweep", file, *arguments, "--only", "codes", "--set", "codebook.vq_epochs=1")
    assert said.code == 0, said.err
    first = said.err.partition("[2/4]")[0]
    assert all(f"{stage}: reused from {finished}" in first for stage in FIRST)
    assert "codebook-3 ..." in first and "traces ..." in first
    points = {point["run"]: point for point in json.loads(said.out)["points"]}
    assert points[TRAINED]["settings"]["codebook.vq_epochs"] == 1
    assert points[SHORT]["state"] == "open" and not (tmp_path / "out" / "trained").exists()
    said = tinyrun.cirf("sweep", swept.file, "--out", tmp_path / "two", "--share", swept.out, "--only", "codes")
    assert said.code == 0 and " ...\n" not in said.err  # a sweep's folder represents all its runs


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--only", "code"], "--only code: there is no such part in {file} (parts: codes, trained)"),
        (["--until", "cook"], "{file}, part codes, point " + SMALL.partition("/")[2] + ": --until cook: there is no such stage"),
        (["--share", "/usr"], "--share /usr: not a run's folder (no recipe.yaml in it)"),
        (["--set", "methods=[cirf_ful]"], "{file}, part codes, point " + SMALL.partition("/")[2] + ": "),
        (["--out", "{run}"], "--out {run}: a run is there; give the sweep its own folder"),
        (["--set", "codebook.size=3"], "--set codebook.size: part codes varies codebook.size from run to run"),
        (["--data", "/nowhere"], "--data /nowhere: no such folder"),
    ],
)
def test_mistakes_are_reported_before_anything_runs(
    swept: Swept, finished: Path, tmp_path: Path, arguments: list[str], says: str
) -> None:
    names = {"file": swept.file, "run": finished}
    arguments = [argument.format(**names) for argument in arguments]
    out = [] if "--out" in arguments else ["--out", tmp_path / "out"]
    said = tinyrun.cirf("sweep", swept.file, *out, *arguments)
    assert says.format(**names) in said.error()
    assert not (tmp_path / "out").exists()


def test_a_folder_holds_one_sweep_and_one_process_works_there(swept: Swept, workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    other = write_sweep(tmp_path / "other.yaml", base(workshop), PARTS, name="other")
    says = f"--out {swept.out}: the sweep small is there; give other its own folder"
    assert says in tinyrun.cirf("sweep", other, "--out", swept.out).error()
    from cirf.store.run_folder import RunFolder

    with RunFolder(swept.out).alone():
        assert "works on this sweep; wait for it" in tinyrun.cirf("sweep", swept.file, "--out", swept.out).error()
    assert "name a sweep file" in tinyrun.cirf("sweep").error()


def test_a_run_that_two_parts_ask_for_makes_what_either_needs(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    from cirf.commands.sweep import SweepOptions, plan

    parts = [
        {"name": name, "until": until, "points": [{"seed": 2}]} for name, until in (("a", "codebook"), ("b", "evaluation/cot"))
    ]
    file = write_sweep(tmp_path / "small.yaml", base(workshop, methods=["cirf_full", "cot"]), parts)
    for only, names in (
        ((), {*NEEDED, "codebook-4", "evaluation/cot"}),
        (("a",), {*NEEDED, "codebook-4"}),
        (("b",), {"problems", "evaluation/cot"}),
    ):
        [run] = plan(str(file), SweepOptions(out=tmp_path / "out", only=only)).runs
        assert {stage.name for stage in run.stages} == names and not run.to_report


def test_shipped_sweeps_are_listed() -> None:
    rows = json.loads(tinyrun.cirf("sweep", "--list", "--json").out)
    assert {row["name"] for row in rows} >= {"quickstart-codebooks"} and all(row["runs"] > 1 for row in rows)
    assert "quickstart-codebooks" in tinyrun.cirf("sweep", "--list").out


LIVES = """
import os, signal, sys, time
from pathlib import Path
from cirf.cli import main
file, out, *ends = sys.argv[1:]
for end in ends:
    child = os.fork()
    if child == 0:
        sys.argv = ["cirf", "sweep", file, "--out", out]
        main()
        os._exit(0)
    while not (Path(out) / end / "stage.json").exists():
        assert os.waitpid(child, os.WNOHANG) == (0, 0), f"it ended before {end}"
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""
"""One life of a sweep after the other, each killed as soon as a stage is in place."""


@pytest.mark.slow
def test_a_killed_sweep_goes_on_where_it_stopped(swept: Swept, workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    file = write_sweep(tmp_path / "small.yaml", base(workshop), PARTS[:1])
    ends = [f"{SMALL}/segments", f"{RANDOM}/segments"]  # while it makes, and while it takes over
    done = tinyrun.python("-c", LIVES, file, tmp_path / "out", *ends)
    assert done.code == 0, done.err
    before = tinyrun.stages(tmp_path / "out")
    assert f"{SMALL}/codebook-3" in before and f"{OTHER}/problems" not in before
    said = tinyrun.cirf("sweep", file, "--out", tmp_path / "out")
    assert said.code == 0, said.err
    assert {name: state for name, state in tinyrun.stages(tmp_path / "out").items() if name in before} == before
    record = json.loads((tmp_path / "out" / "sweep.json").read_text())
    assert {point["state"] for point in record["points"]} == {"done"}
    for run in (SMALL, RANDOM, OTHER):
        assert tinyrun.artefacts(tmp_path / "out" / run) == tinyrun.artefacts(swept.out / run)
